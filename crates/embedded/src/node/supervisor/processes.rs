//! Processes as `/proc` shows them, and the only ways in which we signal them.
//!
//! Used by the supervisor (what belongs to a container), by its client (is it alive, what did it leave) and nobody else.
//! Promises: a process is only ever signalled through a pidfd that was checked to be the process that was meant, and
//! nothing is found by its name (N3).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::protocol::ProcessMark;

/// One line of `/proc/<pid>/stat`, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub pid: u32,
    pub parent: u32,
    pub session: u32,
    pub start_ticks: u64,
    /// Dead, and waiting for its parent to ask how it ended.
    pub zombie: bool,
}

/// The process with this number, now.
pub fn look(pid: u32) -> Option<Seen> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(pid, &line)
}

fn parse_stat(pid: u32, line: &str) -> Option<Seen> {
    // The second field is the program's name in brackets, which may hold spaces and brackets itself.
    let after_name = line.get(line.rfind(')')? + 1..)?;
    let mut fields = after_name.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().unwrap_or(0);
    let start_ticks = fields.nth(15)?.parse().ok()?;
    Some(Seen {
        pid,
        parent,
        session,
        start_ticks,
        zombie: matches!(state, "Z" | "X" | "x"),
    })
}

/// Every process there is.
pub fn all() -> Vec<Seen> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(look)
        .collect()
}

/// Those of `all` that stem from one of `roots`, the roots themselves not among them.
pub fn descendants(all: &[Seen], roots: &BTreeSet<u32>) -> Vec<Seen> {
    let mut children: BTreeMap<u32, Vec<&Seen>> = BTreeMap::new();
    for seen in all {
        children.entry(seen.parent).or_default().push(seen);
    }
    let mut found = Vec::new();
    let mut reached: BTreeSet<u32> = roots.clone();
    let mut open: Vec<u32> = roots.iter().copied().collect();
    while let Some(pid) = open.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if reached.insert(child.pid) {
                found.push(**child);
                open.push(child.pid);
            }
        }
    }
    found
}

/// Whether the process was started with `NAME=value` in its environment. No, if we may not look.
pub fn has_variable(pid: u32, name: &str, value: &str) -> bool {
    let wanted = format!("{name}={value}");
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
        environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == wanted.as_bytes())
    })
}

/// What tells this process from any other, before and after.
pub fn mark(pid: u32) -> Option<ProcessMark> {
    look(pid).map(|seen| ProcessMark {
        pid,
        start_ticks: seen.start_ticks,
        boot_id: boot_id(),
    })
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

/// A pidfd of exactly this process; None if it is gone.
pub fn open_marked(mark: &ProcessMark) -> Option<OwnedFd> {
    if mark.boot_id != boot_id() {
        return None;
    }
    open_started(mark.pid, mark.start_ticks)
}

fn open_started(pid: u32, start_ticks: u64) -> Option<OwnedFd> {
    let pidfd = open(pid).ok()?;
    // The number may have been given anew before the pidfd was there, but not after: so look again now.
    look(pid)
        .filter(|seen| seen.start_ticks == start_ticks && !seen.zombie)
        .map(|_| pidfd)
}

/// A pidfd of a process that cannot have been reaped, because only we can (a child of ours).
pub fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other(format!("{pid} is not the number of a process")))?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

pub fn is_alive(mark: &ProcessMark) -> bool {
    open_marked(mark).is_some()
}

/// Whether this number names a signal that we can send.
pub fn is_signal(number: i32) -> bool {
    Signal::from_named_raw(number).is_some()
}

/// Sends a signal by its number.
pub fn signal(pidfd: &OwnedFd, number: i32) -> io::Result<()> {
    let signal = Signal::from_named_raw(number)
        .ok_or_else(|| io::Error::other(format!("{number} is not the number of a signal")))?;
    Ok(pidfd_send_signal(pidfd, signal)?)
}

/// SIGKILL to these and no others; those that are already gone are none of our business.
pub fn kill_each(processes: &[Seen]) {
    for seen in processes.iter().filter(|seen| !seen.zombie) {
        if let Some(pidfd) = open_started(seen.pid, seen.start_ticks) {
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        }
    }
}

/// The processes that a pod's dead supervisor left: known by the variable, readable only if they are ours.
pub fn of_pod(variable: &str, uid: &str) -> Vec<Seen> {
    let ourselves = std::process::id();
    all()
        .into_iter()
        .filter(|seen| seen.pid != ourselves && !seen.zombie && has_variable(seen.pid, variable, uid))
        .collect()
}

/// Kills what `find` finds until it finds nothing. Gives back how many it met, or those that would not die.
pub fn kill_until_none(find: impl Fn() -> Vec<Seen>, limit: Duration) -> Result<usize, Vec<u32>> {
    let started = Instant::now();
    let mut met = BTreeSet::new();
    // A process that forks faster than we look is caught because each round is faster than the one before was long.
    let mut pause = Duration::from_millis(1);
    loop {
        let left = find();
        if left.is_empty() {
            return Ok(met.len());
        }
        if started.elapsed() > limit {
            return Err(left.iter().map(|seen| seen.pid).collect());
        }
        kill_each(&left);
        met.extend(left.iter().map(|seen| (seen.pid, seen.start_ticks)));
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_have_brackets_and_spaces_in_its_name() {
        let line = "42 (a) b (c) S 7 42 41 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 2 3";
        let seen = Seen {
            pid: 42,
            parent: 7,
            session: 41,
            start_ticks: 98765,
            zombie: false,
        };
        assert_eq!(parse_stat(42, line), Some(seen));
    }

    #[test]
    fn we_are_alive_and_a_later_process_of_our_number_would_not_be_us() {
        let ourselves = mark(std::process::id()).unwrap();
        assert!(is_alive(&ourselves));
        let mut later = ourselves.clone();
        later.start_ticks += 1;
        assert!(!is_alive(&later));
        let mut before_the_reboot = ourselves;
        before_the_reboot.boot_id = "another".to_owned();
        assert!(!is_alive(&before_the_reboot));
    }

    #[test]
    fn descendants_are_found_at_any_depth() {
        let process = |pid, parent| Seen {
            pid,
            parent,
            session: 0,
            start_ticks: 0,
            zombie: false,
        };
        let all = [
            process(2, 1),
            process(5, 4),
            process(4, 2),
            process(3, 1),
            process(6, 3),
        ];
        let mut found: Vec<u32> = descendants(&all, &BTreeSet::from([2]))
            .iter()
            .map(|seen| seen.pid)
            .collect();
        found.sort_unstable();
        assert_eq!(found, [4, 5]);
    }
}
