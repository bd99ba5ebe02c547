//! kubectl as users have it.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use super::World;

impl World {
    pub fn command(&self, arguments: &[&str]) -> Command {
        let kubeconfig = self.listening.kubeconfig_file();
        let mut command = Command::new("kubectl");
        command
            .args(arguments)
            .env("KUBECONFIG", kubeconfig)
            .env("HOME", kubeconfig.parent().unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// To its end, off the runtime's threads, which serve what it asks.
    pub async fn kubectl(&self, arguments: &[&str], input: Option<Vec<u8>>) -> Output {
        let mut command = self.command(arguments);
        if input.is_some() {
            command.stdin(Stdio::piped());
        }
        let running = move || {
            let mut child = command.spawn().unwrap();
            let stdin = child.stdin.take();
            let writing = std::thread::spawn(move || {
                if let (Some(mut stdin), Some(input)) = (stdin, input) {
                    stdin.write_all(&input).unwrap();
                }
            });
            let output = child.wait_with_output().unwrap();
            writing.join().unwrap();
            output
        };
        tokio::task::spawn_blocking(running).await.unwrap()
    }

    /// What it says when it succeeds.
    pub async fn says(&self, arguments: &[&str]) -> String {
        let output = self.kubectl(arguments, None).await;
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{arguments:?}: {complaint}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What it complains about when it fails.
    pub async fn complains(&self, arguments: &[&str]) -> String {
        let output = self.kubectl(arguments, None).await;
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}
