//! One life of `usher up` on a folder that outlives it.

use std::fs;
use std::io::{BufRead as _, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub struct Life {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    data: PathBuf,
    errors: PathBuf,
}

impl Life {
    pub fn start(home: &Path, flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
        command.args(["up", "--listen", "127.0.0.1:0"]).args(flags);
        Self::spawn(home, command)
    }

    /// What exceeds the limit of a file's size is told so, not killed.
    pub fn start_unkillable_by_size(home: &Path) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_usher")]);
        command.args(["up", "--listen", "127.0.0.1:0"]);
        Self::spawn(home, command)
    }

    fn spawn(home: &Path, mut command: Command) -> Self {
        let (data, errors) = (home.join("data"), home.join("stderr"));
        let log = fs::OpenOptions::new().create(true).append(true).open(&errors).unwrap();
        command.arg("--data").arg(&data).env("HOME", home);
        for variable in ["XDG_DATA_HOME", "KUBECONFIG", "USHER_LOG"] {
            command.env_remove(variable);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            child,
            lines,
            data,
            errors,
        }
    }

    /// It says where it answers before it is ready: the operator is none of our business.
    pub fn until_it_answers(&mut self) {
        loop {
            match self.lines.next() {
                Some(line) if line.as_ref().unwrap().starts_with("The API is at") => return,
                Some(_) => {}
                None => panic!("it does not come up: {}", fs::read_to_string(&self.errors).unwrap()),
            }
        }
    }

    /// A connection of its own. What fails is not tried again: that would hide what was answered.
    pub async fn client(&self) -> kube::Client {
        let kubeconfig = Kubeconfig::read_from(self.data.join("kubeconfig")).unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options);
        let mut config = config.await.unwrap();
        config.default_retry = false;
        config.connect_timeout = Some(Duration::from_secs(20));
        config.try_into().unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// How large its files may grow from now on, in bytes.
    pub fn limit_file_size(&self, bytes: &str) {
        let pid = self.child.id().to_string();
        let limit = format!("--fsize={bytes}:");
        let status = Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap();
        assert!(status.success(), "prlimit {limit}");
    }

    /// kill -9, and nothing of it is left.
    pub fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        self.child.wait().unwrap();
        let said = fs::read_to_string(&self.errors).unwrap();
        assert!(!said.contains("panicked"), "{said}");
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
