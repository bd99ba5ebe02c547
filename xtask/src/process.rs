//! Processes by identity (pid and start time), and child programs that never outlive the command that wanted them.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::{interrupt, paths};

const POLL: Duration = Duration::from_millis(20);

/// A process that cannot be mixed up with a later one of the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pub(crate) pid: i32,
    /// Clock ticks since boot: field 22 of /proc/PID/stat.
    pub(crate) start_ticks: u64,
}

fn threads(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

impl ProcessId {
    /// The running process of that pid; `None` when there is none, or it only waits to be reaped.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (state, start_ticks) = parse_stat(&stat)?;
        // A process of many threads is a zombie as soon as its first one has ended; its sockets and locks are held until
        // the last one has.
        let ended = matches!(state, 'Z' | 'X') && threads(pid) <= 1;
        (!ended).then_some(Self { pid, start_ticks })
    }

    pub(crate) fn of_child(child: &Child) -> Option<Self> {
        i32::try_from(child.id()).ok().and_then(Self::of)
    }

    pub(crate) fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    pub(crate) fn signal(self, signal: Signal) {
        if self.is_alive() {
            // It may be gone by now, which is as good.
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }

    /// SIGTERM, then SIGKILL after `grace`; returns when the process is gone. Not interruptible: it is what an interrupt
    /// leads to.
    pub(crate) fn stop(self, grace: Duration) {
        self.signal(Signal::SIGTERM);
        if !self.wait_gone(grace) {
            self.kill_now();
        }
    }

    pub(crate) fn kill_now(self) {
        self.signal(Signal::SIGKILL);
        // The kernel needs a moment even for SIGKILL; ten seconds means an uninterruptible disk.
        self.wait_gone(Duration::from_secs(10));
    }

    fn wait_gone(self, limit: Duration) -> bool {
        let start = Instant::now();
        while self.is_alive() {
            if start.elapsed() > limit {
                return false;
            }
            std::thread::sleep(POLL);
        }
        true
    }

    /// Kills the group this process leads or led. A group that still has members keeps its number from being reused, so
    /// only a *different* process of this pid tells that the group is gone.
    pub(crate) fn kill_group(self) {
        if Self::of(self.pid).is_none_or(|now| now == self) {
            let _ = killpg(Pid::from_raw(self.pid), Signal::SIGKILL);
        }
    }
}

/// State and start time. The second field is the program's name in parentheses, and may contain both blanks and
/// parentheses, so fields are counted from the last one.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    // `state` is field 3, so 18 more lie between it and field 22.
    let start_ticks = fields.nth(18)?.parse().ok()?;
    Some((state, start_ticks))
}

/// Starts a program in a process group of its own (Ctrl-C then reaches only us, and we stop the whole group), and waits.
/// `started` is told who it is before the wait begins.
pub(crate) fn run_group(command: &mut Command, started: impl FnOnce(ProcessId) -> Result<()>) -> Result<ExitStatus> {
    run_heard(command, started, |_| ())
}

/// As [`run_group`]; `hear` is given each line of its stdout, if that is piped.
pub(crate) fn run_heard(
    command: &mut Command,
    started: impl FnOnce(ProcessId) -> Result<()>,
    mut hear: impl FnMut(&str),
) -> Result<ExitStatus> {
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(Error::io(format!("start {program}")))?;
    let mut group = Group(child);
    if let Some(id) = ProcessId::of_child(&group.0) {
        started(id)?;
    }
    let lines = lines_of(group.0.stdout.take());
    // Its children may have its stdout, and outlive it: it is the program that is waited for, not the end of its words.
    let status = loop {
        lines.try_iter().for_each(|line| hear(&line));
        if let Some(status) = group.0.try_wait().map_err(Error::io(format!("wait for {program}")))? {
            break status;
        }
        interrupt::pause(POLL)?;
    };
    while let Ok(line) = lines.recv_timeout(POLL) {
        hear(&line);
    }
    Ok(status)
}

/// A child and its group: dropped before the child ended, it takes the group down.
#[derive(Debug)]
pub(crate) struct Group(pub(crate) Child);

impl Drop for Group {
    fn drop(&mut self) {
        let Ok(None) = self.0.try_wait() else { return };
        let Ok(pid) = i32::try_from(self.0.id()) else { return };
        let group = Pid::from_raw(pid);
        let _ = killpg(group, Signal::SIGTERM);
        let start = Instant::now();
        // Five seconds let cargo and test programs say their last words.
        while matches!(self.0.try_wait(), Ok(None)) && start.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(POLL);
        }
        // Also when the leader has ended: members of the group may have ignored the signal.
        if killpg(group, Signal::SIGKILL) != Err(Errno::ESRCH) {
            let _ = self.0.wait();
        }
    }
}

/// Runs a program in a process group of its own and hands over each line it writes to stderr as it comes, or
/// `Idle` five times a second, for signs of life.
pub(crate) fn run_watched(command: &mut Command, mut on: impl FnMut(Event)) -> Result<ExitStatus> {
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(Error::io(format!("start {program}")))?;
    let mut group = Group(child);
    let lines = lines_of(group.0.stderr.take());
    loop {
        interrupt::check()?;
        match lines.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => on(Event::Line(line)),
            Err(RecvTimeoutError::Timeout) => on(Event::Idle),
            // Stderr is closed: the program has ended, or is about to.
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    group.0.wait().map_err(Error::io(format!("wait for {program}")))
}

#[derive(Debug)]
pub(crate) enum Event {
    Line(String),
    Idle,
}

fn lines_of(source: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(1024);
    if let Some(source) = source {
        std::thread::spawn(move || {
            for line in BufReader::new(source).split(b'\n').map_while(std::io::Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
    }
    receiver
}

/// Cargo, as if called from a shell. `cargo xtask` tells us about our own package by variables; build scripts that look
/// at them (ring's) would run again, and with them half the workspace, each time it is built from here and from a shell.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new("cargo");
    for (name, _) in std::env::vars_os() {
        let ours = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        if name.to_str().is_some_and(ours) {
            command.env_remove(name);
        }
    }
    command.current_dir(paths::repository());
    command
}

/// Output of a short question to a program (`--version`), stdout and stderr together; `None` if it fails.
pub(crate) fn ask(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    output
        .status
        .success()
        .then(|| text(&output.stdout) + &text(&output.stderr))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_past_a_program_name_with_blanks_and_parentheses() {
        let stat = "42 (a) b (c)) S 1 42 42 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0 987654 1000 200 1844";
        assert_eq!(parse_stat(stat), Some(('S', 987_654)));
        assert_eq!(parse_stat("42 (a) S 1"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn a_process_of_the_same_pid_but_another_start_time_is_another_process() {
        let me = ProcessId::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(me.is_alive());
        assert!(
            !ProcessId {
                start_ticks: me.start_ticks + 1,
                ..me
            }
            .is_alive()
        );
    }

    #[test]
    fn a_dead_child_that_nobody_reaped_is_not_alive() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let id = ProcessId::of_child(&child).unwrap();
        id.stop(Duration::from_secs(10));
        assert!(!id.is_alive());
        child.wait().unwrap();
    }

    #[test]
    fn a_dropped_group_takes_its_grandchildren_along() {
        let mut command = Command::new("sh");
        command
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(Stdio::piped())
            .process_group(0);
        let mut group = Group(command.spawn().unwrap());
        let mut line = String::new();
        let stdout = group.0.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
        let grandchild = ProcessId::of(line.trim().parse().unwrap()).unwrap();
        drop(group);
        assert!(grandchild.wait_gone(Duration::from_secs(10)));
    }
}
