//! How a supervisor begins: alone, apart from whoever started it, and with what an earlier one left out of the way.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{Mode, umask};

use super::processes;
use super::protocol::{LOCK_FILE, PLAN_FILE, POD_UID_VARIABLE, PodPlan, SOCKET_FILE};
use super::record::{self, Record};
use super::supervise::Supervisor;

/// What the agent reads when it may connect.
pub(super) const READY: &str = "ready\n";
/// What an earlier supervisor left has this long to die. Only a process inside a broken kernel call needs more.
const REMAINS_LIMIT: Duration = Duration::from_secs(8);

/// How long a lock may outlive its supervisor.
const LOCK_LIMIT: Duration = Duration::from_secs(5);

pub(super) fn main(folder: &Path) -> ExitCode {
    match begin(folder) {
        Ok((supervisor, lock)) => {
            supervisor.run();
            // Held until here.
            drop(lock);
            ExitCode::SUCCESS
        }
        Err(error) => {
            // The agent reads this as the reason; without an agent it stands in the folder's supervisor.log.
            println!("{}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

fn begin(folder: &Path) -> io::Result<(Supervisor, File)> {
    close_inherited();
    // Refused if whoever started us made us the leader of a group: then we are apart already.
    let _ = nix::unistd::setsid();
    nix::sys::prctl::set_child_subreaper(true)?;
    umask(Mode::from_bits_truncate(0o077));
    let folder = fs::canonicalize(folder)?;
    // So that the socket's path is short, however long the folder's is: the system allows 107 bytes.
    std::env::set_current_dir(&folder)?;

    let lock = take_lock(&folder)?;
    let plan: PodPlan = serde_json::from_slice(&fs::read(folder.join(PLAN_FILE))?)
        .map_err(|error| io::Error::other(format!("{PLAN_FILE} is not a pod's plan: {error}")))?;
    if record::read(&folder)?.is_some() {
        processes::kill_until_none(|| processes::of_pod(POD_UID_VARIABLE, &plan.uid), REMAINS_LIMIT)
            .map_err(|left| io::Error::other(format!("processes of an earlier supervisor would not die: {left:?}")))?;
    }
    match fs::DirBuilder::new()
        .mode(0o700)
        .create(folder.join(super::SCAFFOLD_FOLDER))
    {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    super::memory::mount_all(&plan.in_memory)?;

    let signals = take_signals()?;
    let handle = OwnedFd::from(File::open(&folder)?);
    let ourselves = processes::mark(std::process::id())
        .ok_or_else(|| io::Error::other("/proc does not show us: a supervisor needs it"))?;
    let record = Record::open(&folder, handle.try_clone()?, &plan, ourselves)?;
    let _ = fs::remove_file(SOCKET_FILE);
    let listener = UnixListener::bind(SOCKET_FILE)?;
    listener.set_nonblocking(true)?;
    let patron = plan.dies_with.as_ref().map(processes::open_marked);
    let mut supervisor = Supervisor {
        folder,
        handle,
        plan,
        record,
        listener,
        signals,
        ending: false,
        patron: None,
        containers: BTreeMap::new(),
        peers: BTreeMap::new(),
        next_peer: 0,
        check_at: Instant::now(),
    };
    match patron {
        // It died before we were there.
        Some(None) => supervisor.kill_all(),
        Some(living) => supervisor.patron = living,
        None => {}
    }
    tell_ready()?;
    Ok((supervisor, lock))
}

/// There is never a second supervisor. A child that a dead one was just starting may still hold its lock, for as long as
/// it takes to execute a program: that is waited for.
fn take_lock(folder: &Path) -> io::Result<File> {
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(folder.join(LOCK_FILE))?;
    let started = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => {
                let lives = record::read(folder)?.is_some_and(|state| processes::is_alive(&state.supervisor));
                if lives || started.elapsed() > LOCK_LIMIT {
                    return Err(io::Error::other("another supervisor has this pod"));
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// Descriptors of whoever started us must reach neither us nor a pod (X4). stdin is the one that we are given to hold.
fn close_inherited() {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return;
    };
    let numbers: Vec<i32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    for number in numbers {
        // One of them was the folder that we just read, and is closed already.
        let _ = nix::unistd::close(number);
    }
}

/// Signals that we want to hear of, and those that must not end us: a Ctrl-C in the terminal is meant for `usher`.
fn take_signals() -> io::Result<SignalFd> {
    let signals = SigSet::from_iter([
        Signal::SIGCHLD,
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ]);
    signals.thread_block()?;
    Ok(SignalFd::with_flags(
        &signals,
        SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
    )?)
}

fn tell_ready() -> io::Result<()> {
    let mut stdout = io::stdout();
    // Nobody reads it when we were started by hand.
    let _ = stdout.write_all(READY.as_bytes()).and_then(|()| stdout.flush());
    let nothing = OpenOptions::new().write(true).open("/dev/null")?;
    Ok(nix::unistd::dup2_stdout(nothing)?)
}
