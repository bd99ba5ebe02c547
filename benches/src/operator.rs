//! `usher operator` as a child process: the binary that people run, asked over its own port.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{Error, Result};
use crate::process;

/// How long it may take to be ready, or to do what is waited for.
const PATIENCE: Duration = Duration::from_secs(600);
/// Between two looks at whether it is ready: what the figures are exact to.
const LOOK: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Operator {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
    started: Instant,
}

impl Operator {
    /// Starts it for one namespace, without a lease.
    pub(crate) fn start(usher: &Path, kubeconfig: &Path, namespace: &str, log: &Path) -> Result<Self> {
        let file = File::create(log).map_err(Error::at("write", log))?;
        let address = free_address()?;
        let child = Command::new(usher)
            .args(["operator", "--no-lease", "--namespace", namespace, "--kubeconfig"])
            .arg(kubeconfig)
            .args(["--health-address", &address.to_string()])
            .env_remove("POD_NAME")
            .env_remove("POD_NAMESPACE")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .map_err(Error::at("start", usher))?;
        Ok(Self {
            child,
            address,
            log: log.to_owned(),
            started: Instant::now(),
        })
    }

    /// Waits until it says that it is ready. Answers when that was, and how long after its start.
    pub(crate) async fn ready(&mut self) -> Result<(Timestamp, Duration)> {
        while self.get("/readyz").is_none_or(|(code, _)| code != 200) {
            self.still_runs("be ready")?;
            tokio::time::sleep(LOOK).await;
        }
        Ok((Timestamp::now(), self.started.elapsed()))
    }

    /// Waits until its metrics are as wanted. Looks seldom: making metrics is work.
    pub(crate) async fn until(&mut self, what: &str, wanted: impl Fn(&Metrics) -> bool) -> Result<Metrics> {
        let begun = Instant::now();
        loop {
            let metrics = self.metrics();
            if wanted(&metrics) {
                return Ok(metrics);
            }
            self.still_runs(what)?;
            if begun.elapsed() > PATIENCE {
                return Err(self.late(what));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What it counts, now. Empty where it does not answer.
    pub(crate) fn metrics(&self) -> Metrics {
        Metrics::parse(&self.get("/metrics").map(|(_, text)| text).unwrap_or_default())
    }

    pub(crate) fn cpu_seconds(&self) -> f64 {
        process::cpu_seconds(self.child.id())
    }

    /// Megabytes of memory: now, and at most so far.
    pub(crate) fn memory(&self) -> (f64, f64) {
        let pid = self.child.id();
        (process::megabytes(pid, "VmRSS"), process::megabytes(pid, "VmHWM"))
    }

    fn still_runs(&mut self, what: &str) -> Result<()> {
        let ended = self.child.try_wait().map_err(Error::io("look at usher"))?;
        match ended {
            None if self.started.elapsed() < PATIENCE * 3 => Ok(()),
            None => Err(self.late(what)),
            Some(status) => Err(Error::Program {
                program: "usher operator".to_owned(),
                said: format!("{status}; see {}", self.log.display()),
            }),
        }
    }

    fn late(&self, what: &str) -> Error {
        Error::Late {
            what: format!("usher operator: {what}"),
            seconds: PATIENCE.as_secs(),
            log: self.log.display().to_string(),
        }
    }

    /// One small HTTP exchange on loopback, by hand: it must cost the machine nothing.
    fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: usher\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let code = head.split_whitespace().nth(1)?.parse().ok()?;
        Some((code, body.to_owned()))
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if begun.elapsed() > Duration::from_secs(30) {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(Error::io("find a free port"))?;
    listener.local_addr().map_err(Error::io("find a free port"))
}

/// One answer of `/metrics`: series to value.
#[derive(Debug, Default)]
pub(crate) struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines.filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            Some((series.to_owned(), value.parse().ok()?))
        });
        Self(series.collect())
    }

    /// Sum over the series of this name that have all of these labels.
    pub(crate) fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let series = self.0.iter().filter(|(series, _)| {
            let (its_name, its_labels) = series.split_once('{').unwrap_or((series, ""));
            its_name == name && labels.iter().all(|label| its_labels.contains(label))
        });
        series.map(|(_, value)| value).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_summed_by_name_and_labels() {
        let metrics = Metrics::parse(
            "# TYPE a counter\na_total{verb=\"create\",resource=\"x\"} 2\na_total{verb=\"update\",resource=\"x\"} 3\nab_total 7\n",
        );
        assert_eq!(metrics.sum("a_total", &["resource=\"x\""]), 5.0);
        assert_eq!(metrics.sum("a_total", &["resource=\"x\"", "verb=\"update\""]), 3.0);
        assert_eq!(metrics.sum("ab_total", &[]), 7.0);
        assert_eq!(metrics.sum("b_total", &[]), 0.0);
    }
}
