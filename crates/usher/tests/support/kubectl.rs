//! kubectl, as a user types it. What it prints is compared with a transcript, times and names of the run masked.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::world::World;

/// `$USHER_TOOLS/kubectl` where it is, else the one on the path.
fn program() -> PathBuf {
    let tools = std::env::var_os("USHER_TOOLS").map(|tools| Path::new(&tools).join("kubectl"));
    tools
        .filter(|kubectl| kubectl.exists())
        .unwrap_or_else(|| "kubectl".into())
}

impl World {
    /// Runs kubectl in this namespace; what it printed, and how it ended.
    pub async fn try_kubectl(&self, words: &[&str]) -> Output {
        let mut command = Command::new(program());
        command
            .arg("--kubeconfig")
            .arg(&self.server.kubeconfig)
            .args(["--namespace", &self.namespace])
            .args(words);
        tokio::task::spawn_blocking(move || command.output())
            .await
            .unwrap()
            .unwrap_or_else(|e| panic!("kubectl does not start: {e}; put it on the PATH or in $USHER_TOOLS"))
    }

    /// Runs kubectl in this namespace; it must succeed.
    pub async fn kubectl(&self, words: &[&str]) -> String {
        let output = self.try_kubectl(words).await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "kubectl {words:?}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        text
    }

    /// One command and what it says, for a transcript.
    pub async fn transcript(&self, words: &[&str]) -> String {
        let said = self.masked(&self.kubectl(words).await);
        format!("$ kubectl {}\n{said}\n", words.join(" "))
    }

    /// With what differs from run to run made equal.
    pub fn masked(&self, text: &str) -> String {
        let text = text.replace(&self.namespace, "NAMESPACE");
        text.lines().map(mask).map(|line| line + "\n").collect()
    }
}

fn mask(line: &str) -> String {
    let label = line.trim_start().split(':').next().unwrap_or_default();
    let indent = &line[..line.len() - line.trim_start().len()];
    if matches!(label, "UID" | "Uid" | "Resource Version") {
        return format!("{indent}{label}: …");
    }
    let words: Vec<String> = line.split(' ').map(mask_word).collect();
    let line = words.join(" ");
    // Behind an age stand as many blanks as its own length leaves.
    match line.split_once("AGE  ") {
        Some((before, after)) => format!("{before}AGE  {}", after.trim_start()),
        None => line.trim_end().to_owned(),
    }
}

/// A time, or an age as kubectl writes it (`3s`, `2m5s`).
fn mask_word(word: &str) -> String {
    let is_time = word.len() >= 20 && word.as_bytes()[4] == b'-' && word.contains('T') && word.contains('Z');
    let digits = word.chars().filter(char::is_ascii_digit).count();
    let units = word.chars().filter(|c| matches!(c, 's' | 'm' | 'h')).count();
    let is_age =
        digits > 0 && units > 0 && digits + units == word.len() && word.starts_with(|c: char| c.is_ascii_digit());
    match word {
        _ if is_time => "TIME".to_owned(),
        _ if is_age => "AGE".to_owned(),
        _ => word.to_owned(),
    }
}

/// Compares with the transcript of this name; `USHER_BLESS=1` writes it.
pub fn assert_transcript(name: &str, said: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/acceptance/transcripts")
        .join(name);
    if std::env::var_os("USHER_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, said).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    let mut lines = expected.lines().zip(said.lines()).enumerate();
    let differs = lines.find(|(_, (expected, said))| expected != said);
    assert!(
        expected == said,
        "{} is not what kubectl says now (USHER_BLESS=1 writes it anew); first at {differs:?}:\n{said}",
        path.display()
    );
}
