//! The `usher` binary as a process: started, asked, signalled, and never left behind.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::history::DEADLINE;

/// Lines of the log that a failure shows.
const SHOWN: usize = 150;

/// How long a lease holds, in tests that have one.
pub const LEASE_SECONDS: i64 = 3;

/// How it is to be started.
#[derive(Debug, Clone)]
pub struct Launch {
    kubeconfig: PathBuf,
    namespace: Option<String>,
    lease: Vec<String>,
    identity: String,
    log: PathBuf,
    tls: bool,
    verbose: bool,
    level: Option<String>,
    flags: Vec<String>,
}

impl Launch {
    pub fn new(kubeconfig: &Path, namespace: &str, log: PathBuf) -> Self {
        Self {
            kubeconfig: kubeconfig.to_owned(),
            namespace: Some(namespace.to_owned()),
            lease: vec!["--no-lease".to_owned()],
            identity: "usher-test".to_owned(),
            log,
            tls: false,
            verbose: false,
            level: None,
            flags: Vec::new(),
        }
    }

    /// With the TLS port open; its certificates are kept in the operator's namespace.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Says all there is to say.
    pub fn verbose(mut self) -> Self {
        self.verbose = true;
        self
    }

    /// With another log level than the usual one.
    pub fn log_level(mut self, level: &str) -> Self {
        self.level = Some(level.to_owned());
        self
    }

    /// With a flag of `usher operator`, and its value.
    pub fn flag(mut self, name: &str, value: impl ToString) -> Self {
        self.flags.extend([name.to_owned(), value.to_string()]);
        self
    }

    /// With a flag that has no value.
    pub fn switch(mut self, name: &str) -> Self {
        self.flags.push(name.to_owned());
        self
    }

    /// As another user.
    pub fn with(mut self, kubeconfig: &Path) -> Self {
        self.kubeconfig = kubeconfig.to_owned();
        self
    }

    /// With a lease in its namespace. Short, so that a test need not wait long for a take-over; and half of it is margin,
    /// so that a request sent in time is received in time also by a server that has no processor for a second.
    pub fn lease(self, identity: &str) -> Self {
        self.leased(identity, LEASE_SECONDS)
    }

    /// With a lease so long that it is never taken from whoever has it.
    pub fn standby(self) -> Self {
        self.leased("standby", 3_600)
    }

    fn leased(mut self, identity: &str, seconds: i64) -> Self {
        let flag = |name: &str, value: &str| [name.to_owned(), value.to_owned()];
        self.lease = [
            flag("--lease-namespace", self.namespace.as_deref().unwrap()),
            flag("--lease-seconds", &seconds.to_string()),
            flag("--lease-renew-ms", "300"),
            flag("--lease-margin-ms", &(seconds * 500).to_string()),
        ]
        .concat();
        self.identity = identity.to_owned();
        self
    }

    pub fn start(&self) -> Operator {
        let log = File::options().append(true).open(&self.log).unwrap();
        let health = free_address();
        let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
        command
            .arg("operator")
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["--identity", &self.identity])
            .args(["--health-address", &health.to_string()])
            .args(&self.lease)
            .args(&self.flags)
            .env("RUST_BACKTRACE", "1")
            .env_remove("POD_NAME")
            .env_remove("POD_NAMESPACE")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        if let Some(level) = &self.level {
            command.env("USHER_LOG", level);
        }
        if let Some(namespace) = &self.namespace {
            command.args(["--namespace", namespace]);
        }
        let tls = free_address();
        if self.tls {
            command.args(["--tls-address", &tls.to_string()]);
            if self.lease.len() == 1 {
                command.args(["--lease-namespace", self.namespace.as_deref().unwrap()]);
            }
        }
        if self.verbose {
            command.env("USHER_LOG", "trace");
        }
        Operator {
            child: command.spawn().unwrap(),
            log: self.log.clone(),
            health,
            tls,
        }
    }

    /// Starts it and waits until it says that it is ready.
    pub async fn ready(&self) -> Operator {
        let mut operator = self.start();
        operator.until_ready().await;
        operator
    }
}

/// A port that is free now. Somebody else may take it before the operator does; then that one says so and the test fails.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A running operator; dropped, it is killed.
#[derive(Debug)]
pub struct Operator {
    child: Child,
    log: PathBuf,
    health: SocketAddr,
    /// Where its TLS port is, if it has one.
    pub tls: SocketAddr,
}

impl Operator {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Panics if it is not running any more.
    pub fn assert_alive(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("the operator ended by itself: {status}\n{}", self.log_tail());
        }
    }

    pub async fn until_ready(&mut self) {
        let begun = Instant::now();
        loop {
            self.assert_alive();
            let answer = self.ask("/readyz");
            if answer.starts_with("HTTP/1.1 200") {
                return;
            }
            assert!(begun.elapsed() < DEADLINE, "the operator is not ready: {answer}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whether `/readyz` says yes now.
    pub fn is_ready(&self) -> bool {
        self.ask("/readyz").starts_with("HTTP/1.1 200")
    }

    /// What `/metrics` says, with the head of the HTTP answer.
    pub fn metrics(&self) -> String {
        self.ask("/metrics")
    }

    /// Sum over all series of a metric whose labels contain all of these words.
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let text = self.ask("/metrics");
        let series = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        });
        series
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// `kill -9`, and gone when this returns.
    pub fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        self.child.wait().unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// SIGTERM; how it ended, and after how long.
    pub async fn terminate(mut self) -> (ExitStatus, Duration) {
        self.signal(Signal::SIGTERM);
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status, begun.elapsed());
            }
            assert!(begun.elapsed() < DEADLINE, "the operator does not stop");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn ask(&self, path: &str) -> String {
        let wait = Some(Duration::from_secs(5));
        let answer = TcpStream::connect(self.health).and_then(|mut stream| {
            stream.set_read_timeout(wait)?;
            write!(
                stream,
                "GET {path} HTTP/1.1\r\nHost: usher\r\nConnection: close\r\n\r\n"
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        });
        answer.unwrap_or_else(|error| error.to_string())
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(SHOWN)..].join("\n")
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "--- the operator's log (process {}):\n{}\n---",
                self.pid(),
                self.log_tail()
            );
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
