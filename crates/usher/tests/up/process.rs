//! `usher up` as a process, and kubectl beside it.

use std::fs;
use std::io::{BufRead as _, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub fn command(home: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
    command.arg("up").args(flags).env("HOME", home);
    // What one of them leaves is none of the others' business.
    command.env("TMPDIR", home);
    for variable in ["XDG_DATA_HOME", "KUBECONFIG", "USHER_LOG"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// A running `usher up`; dropped, it is killed.
pub struct Up {
    pub child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    pub said: Vec<String>,
    errors: PathBuf,
}

impl Up {
    /// Starts it and waits until it says that it is ready.
    pub fn ready(home: &Path, flags: &[&str]) -> Self {
        Self::that_said(home, flags, "Ready.")
    }

    /// One that has said a line that begins so.
    pub fn that_said(home: &Path, flags: &[&str], start: &str) -> Self {
        let errors = home.join("stderr");
        let mut command = command(home, flags);
        let mut child = command.stderr(fs::File::create(&errors).unwrap()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut up = Self {
            child,
            lines,
            said: Vec::new(),
            errors,
        };
        up.until(start);
        up
    }

    pub fn until(&mut self, start: &str) {
        loop {
            let Some(line) = self.lines.next() else {
                panic!("it never said {start:?}: {:?} {}", self.said, self.errors());
            };
            self.said.push(line.unwrap());
            if self.said.last().unwrap().starts_with(start) {
                return;
            }
        }
    }

    pub fn errors(&self) -> String {
        fs::read_to_string(&self.errors).unwrap()
    }

    /// The file that the line `export KUBECONFIG=…` names.
    pub fn kubeconfig(&self) -> PathBuf {
        let line = self
            .said
            .iter()
            .find_map(|line| line.strip_prefix("export KUBECONFIG="));
        line.unwrap_or_else(|| panic!("{:?}", self.said)).into()
    }

    pub fn token(&self) -> String {
        let text = fs::read_to_string(self.kubeconfig()).unwrap();
        let line = text.lines().find_map(|line| line.trim().strip_prefix("token: "));
        line.unwrap().trim_matches('"').to_owned()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// Waits for its end: the exit code, and all that it said.
    pub fn ended(mut self) -> (i32, String) {
        let code = self.child.wait().unwrap().code().unwrap();
        for line in self.lines.by_ref() {
            self.said.push(line.unwrap());
        }
        (code, self.said.join("\n") + &self.errors())
    }

    pub fn kubectl(&self, words: &[&str]) -> String {
        kubectl(&self.kubeconfig(), words)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn kubectl(kubeconfig: &Path, words: &[&str]) -> String {
    let mut command = Command::new("kubectl");
    command
        .env("HOME", kubeconfig.parent().unwrap())
        .env_remove("KUBECONFIG");
    let output = command
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(words)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "kubectl {words:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}
