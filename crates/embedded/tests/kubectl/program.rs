//! The kubectls of this machine.

use std::path::PathBuf;
use std::process::Command;

use crate::recorded;

#[derive(Debug, Clone)]
pub struct Kubectl {
    pub path: PathBuf,
    /// `1.36`: what kubectl prints changes from one to the next.
    pub version: String,
}

/// `$USHER_TOOLS/kubectl` and the first on the path; one of each version.
pub fn all() -> Vec<Kubectl> {
    let tools = std::env::var_os("USHER_TOOLS").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path)
        .map(|folder| folder.join("kubectl"))
        .find(|file| file.exists());
    let files = tools.map(|folder| folder.join("kubectl")).into_iter().chain(on_path);
    let mut found: Vec<Kubectl> = Vec::new();
    for path in files.filter(|file| file.exists()) {
        let Some(version) = version(&path) else { continue };
        if !found.iter().any(|other| other.version == version) {
            found.push(Kubectl { path, version });
        }
    }
    found
}

/// Those of which transcripts are recorded. None at all fails the test: it would compare nothing.
pub fn recorded() -> Vec<Kubectl> {
    let all = all();
    let versions = recorded::versions();
    let found: Vec<String> = all.iter().map(|kubectl| kubectl.version.clone()).collect();
    let known: Vec<Kubectl> = all
        .into_iter()
        .filter(|kubectl| versions.contains(&kubectl.version))
        .collect();
    assert!(
        !known.is_empty(),
        "transcripts are recorded of kubectl {versions:?}, and here is {found:?}: run `cargo xtask setup`, and set \
         USHER_TOOLS to the folder it names"
    );
    known
}

fn version(kubectl: &PathBuf) -> Option<String> {
    let output = Command::new(kubectl)
        .args(["version", "--client", "--output", "json"])
        .output()
        .ok()?;
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let version = said["clientVersion"]["gitVersion"].as_str()?.trim_start_matches('v');
    let mut numbers = version.split('.');
    Some(format!("{}.{}", numbers.next()?, numbers.next()?))
}
