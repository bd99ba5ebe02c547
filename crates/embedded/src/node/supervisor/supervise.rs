//! The supervisor itself: one thread, one loop, one pod.
//!
//! Each round waits for news (a child ended, a stage or a container said something, somebody asks, a time came), takes
//! it in, and then settles every container and exec, whatever the news was. Nothing here decides about restarts, order
//! or probes: the agent does, and may die at any line without anything being lost.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use rustix::process::WaitOptions;

use super::container::{Container, Ended, Settled};
use super::log::Stream;
use super::peers::{Peer, Role};
use super::processes;
use super::protocol::{Attempt, ExitReason, PLAN_FILE, Phase, PodPlan, PodState, Stopping};
use super::record::Record;

/// How often we look whether our folder is still there, and try again what could not be written.
const CHECK_PAUSE: Duration = Duration::from_secs(1);
/// What containers get when the system goes down.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(25);
/// Connections at once. An agent has one for watching and one for each exec or ask under way.
const PEERS_LIMIT: usize = 256;
const SIGTERM: i32 = nix::sys::signal::Signal::SIGTERM as i32;

/// A container's name and the number of the attempt.
pub(super) type Key = (String, u32);

/// Whatever news can come from.
#[derive(Debug, Clone)]
enum Source {
    Signals,
    Listener,
    Patron,
    Control(Key),
    Output(Key, Stream),
    Peer(u64),
    ExecControl(u64),
    ExecInput,
    ExecOutput(u64, Stream),
}

#[derive(Debug)]
pub(super) struct Supervisor {
    pub folder: PathBuf,
    /// The folder, open: it tells when the folder is gone.
    pub handle: OwnedFd,
    pub plan: PodPlan,
    pub record: Record,
    pub listener: UnixListener,
    pub signals: SignalFd,
    /// The process that the pod dies with.
    pub patron: Option<OwnedFd>,
    pub containers: BTreeMap<Key, Container>,
    pub peers: BTreeMap<u64, Peer>,
    pub next_peer: u64,
    /// Nothing new starts; when the last container is gone, so are we.
    pub ending: bool,
    pub check_at: Instant,
}

impl Supervisor {
    /// Until the pod is over.
    pub(super) fn run(mut self) {
        loop {
            let now = Instant::now();
            self.answer_asks(now);
            self.settle(now);
            if self.ending && self.is_empty() {
                break;
            }
            for (source, flags) in self.wait(now) {
                self.take_in(source, flags);
            }
            self.check();
        }
        for peer in self.peers.values_mut() {
            if matches!(peer.role, Role::AwaitingEnd) {
                peer.answer(&super::protocol::Answer::Done);
            }
            peer.write_out();
        }
    }

    fn wait(&self, now: Instant) -> Vec<(Source, PollFlags)> {
        let mut sources: Vec<(Source, BorrowedFd<'_>, PollFlags)> = vec![
            (Source::Signals, self.signals.as_fd(), PollFlags::POLLIN),
            (Source::Listener, self.listener.as_fd(), PollFlags::POLLIN),
        ];
        sources.extend(
            self.patron
                .iter()
                .map(|patron| (Source::Patron, patron.as_fd(), PollFlags::POLLIN)),
        );
        for (key, container) in &self.containers {
            let control = container.launch.control();
            sources.extend(control.map(|control| (Source::Control(key.clone()), control, PollFlags::POLLIN)));
            let outputs = container.outputs();
            sources
                .extend(outputs.map(|(stream, file)| (Source::Output(key.clone(), stream), file, PollFlags::POLLIN)));
        }
        for (number, peer) in &self.peers {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, peer.may_read());
            flags.set(PollFlags::POLLOUT, !peer.outbox.is_empty());
            sources.push((Source::Peer(*number), peer.descriptor(), flags));
            if let Role::Executing(exec) = &peer.role {
                let control = exec.launch.control();
                sources.extend(control.map(|control| (Source::ExecControl(*number), control, PollFlags::POLLIN)));
                sources.extend(exec.input().map(|input| (Source::ExecInput, input, PollFlags::POLLOUT)));
                let outputs = exec.outputs(peer.outbox.len());
                sources.extend(
                    outputs.map(|(stream, file)| (Source::ExecOutput(*number, stream), file, PollFlags::POLLIN)),
                );
            }
        }
        let mut polled: Vec<PollFd<'_>> = sources
            .iter()
            .map(|(_, file, flags)| PollFd::new(*file, *flags))
            .collect();
        let timeout = self.next_due().saturating_duration_since(now);
        // Rounded up, or we would wake a little too early and go round once more for nothing.
        let timeout = PollTimeout::try_from(timeout + Duration::from_micros(999)).unwrap_or(PollTimeout::ZERO);
        if poll(&mut polled, timeout).is_err() {
            return Vec::new();
        }
        let flags: Vec<PollFlags> = polled
            .iter()
            .map(|polled| polled.revents().unwrap_or(PollFlags::empty()))
            .collect();
        let sources = sources.into_iter().map(|(source, _, _)| source);
        sources.zip(flags).filter(|(_, flags)| !flags.is_empty()).collect()
    }

    fn next_due(&self) -> Instant {
        let execs = self.peers.values().filter_map(|peer| match &peer.role {
            Role::Executing(exec) => exec.due(),
            _ => None,
        });
        let containers = self.containers.values().filter_map(Container::due);
        let soon = self.ending.then(|| Instant::now() + Duration::from_millis(20));
        containers.chain(execs).chain(soon).fold(self.check_at, Instant::min)
    }

    /// Whether somebody took the folder away. A state that was being written meanwhile may keep the folder itself there, so
    /// the plan counts, which is there from before our start and is only ever replaced.
    fn has_lost_its_folder(&self) -> bool {
        let plan = rustix::fs::statat(&self.handle, PLAN_FILE, rustix::fs::AtFlags::empty());
        matches!(plan, Err(rustix::io::Errno::NOENT))
            || rustix::fs::fstat(&self.handle).is_ok_and(|stat| stat.st_nlink == 0)
    }

    fn take_in(&mut self, source: Source, flags: PollFlags) {
        match source {
            Source::Signals => self.take_signals(),
            Source::Listener => self.take_peers(),
            Source::Patron => self.kill_all(),
            Source::Control(key) => {
                if let Some(container) = self.containers.get_mut(&key) {
                    container.launch.hear();
                }
            }
            Source::Output(key, stream) => {
                if let Some(container) = self.containers.get_mut(&key) {
                    container.read_output(stream);
                }
            }
            Source::Peer(number) => {
                if let Some(peer) = self.peers.get_mut(&number) {
                    if flags.contains(PollFlags::POLLOUT) {
                        peer.write();
                    }
                    if flags.contains(PollFlags::POLLIN) {
                        peer.read();
                    } else if flags.intersects(PollFlags::POLLHUP | PollFlags::POLLERR) {
                        peer.drop_it();
                    }
                }
            }
            Source::ExecControl(number) => {
                if let Some(Peer {
                    role: Role::Executing(exec),
                    ..
                }) = self.peers.get_mut(&number)
                {
                    exec.launch.hear();
                }
            }
            // Settling writes.
            Source::ExecInput => {}
            Source::ExecOutput(number, stream) => {
                if let Some(Peer {
                    role: Role::Executing(exec),
                    outbox,
                    ..
                }) = self.peers.get_mut(&number)
                {
                    exec.read_output(stream, outbox);
                }
            }
        }
    }

    fn take_signals(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if i32::try_from(signal.ssi_signo) == Ok(SIGTERM) {
                self.shut_down();
            }
        }
        self.reap();
    }

    fn take_peers(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let ours = nix::sys::socket::getsockopt(&stream, nix::sys::socket::sockopt::PeerCredentials)
                .is_ok_and(|peer| peer.uid() == nix::unistd::geteuid().as_raw() || peer.uid() == 0);
            if !ours || self.peers.len() >= PEERS_LIMIT {
                continue;
            }
            if let Ok(peer) = Peer::new(stream) {
                self.peers.insert(self.next_peer, peer);
                self.next_peer += 1;
            }
        }
    }

    /// Asks every child that has ended how it did.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let Ok(pid) = u32::try_from(pid.as_raw_nonzero().get()) else {
                continue;
            };
            let ended = match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Ended::Code(code),
                (None, Some(signal)) => Ended::Signal(signal),
                (None, None) => continue,
            };
            if !self.tell_reaped(pid, ended) {
                // Its stage said its number before it became ours to reap, but perhaps we have not listened yet.
                self.hear_all();
                self.tell_reaped(pid, ended);
            }
        }
    }

    /// False: it is nobody's (yet), as are orphans that were left to us.
    fn tell_reaped(&mut self, pid: u32, ended: Ended) -> bool {
        for container in self.containers.values_mut() {
            if container.launch.is_outer(pid) {
                container.launch.hear();
                container.launch.outer_reaped();
                return true;
            }
            if container.launch.main() == Some(pid) {
                container.main_reaped(ended);
                return true;
            }
        }
        for peer in self.peers.values_mut() {
            let Role::Executing(exec) = &mut peer.role else {
                continue;
            };
            if exec.launch.is_outer(pid) {
                exec.launch.hear();
                exec.launch.outer_reaped();
                return true;
            }
            if exec.launch.main() == Some(pid) {
                exec.main_reaped(ended);
                return true;
            }
        }
        false
    }

    fn hear_all(&mut self) {
        for container in self.containers.values_mut() {
            container.launch.hear();
        }
        for peer in self.peers.values_mut() {
            if let Role::Executing(exec) = &mut peer.role {
                exec.launch.hear();
            }
        }
    }

    fn settle(&mut self, now: Instant) {
        let keys: Vec<Key> = self.containers.keys().cloned().collect();
        for key in keys {
            let alone = self.containers.len() == 1;
            let Some(container) = self.containers.get_mut(&key) else {
                continue;
            };
            match container.settle(now, alone) {
                Settled::Same => {}
                Settled::Runs(phase) => {
                    self.write_down(&key, phase);
                    // A signal may have waited for this.
                    if let Some(container) = self.containers.get_mut(&key) {
                        container.settle(now, alone);
                    }
                }
                Settled::Gone(phase) => {
                    self.containers.remove(&key);
                    self.write_down(&key, phase);
                }
            }
        }
        for peer in self.peers.values_mut() {
            peer.settle(now, &self.record);
        }
        self.peers.retain(|_, peer| {
            if peer.is_over()
                && let Role::Executing(exec) = &mut peer.role
            {
                exec.kill();
            }
            !peer.is_over()
        });
    }

    fn write_down(&mut self, key: &Key, phase: Phase) {
        // If it cannot be written, the state says so itself; what happened has happened.
        let _ = self.record.change(|state| {
            if let Some(attempt) = attempt_mut(state, key) {
                attempt.phase = phase;
            }
        });
    }

    /// Stops one container: `None` if there is no such container alive.
    pub(super) fn stop(&mut self, key: &Key, signal: i32, grace: Duration) -> Option<()> {
        let container = self.containers.get_mut(key)?;
        container.stop(signal, grace);
        let asked_at = Timestamp::now();
        let kill_at = asked_at.checked_add(grace).unwrap_or(Timestamp::MAX);
        let _ = self.record.change(|state| {
            if let Some(attempt) = attempt_mut(state, key) {
                match &mut attempt.stopping {
                    Some(stopping) => stopping.kill_at = stopping.kill_at.min(kill_at),
                    none => {
                        *none = Some(Stopping {
                            signal,
                            asked_at,
                            kill_at,
                        })
                    }
                }
            }
        });
        Some(())
    }

    /// SIGKILL to everything, and then our own end.
    pub(super) fn kill_all(&mut self) {
        self.ending = true;
        // Once is enough, and a pidfd that has something to say would say it for ever.
        self.patron = None;
        let keys: Vec<Key> = self.containers.keys().cloned().collect();
        for key in keys {
            self.stop(&key, SIGTERM, Duration::ZERO);
        }
    }

    fn shut_down(&mut self) {
        if !self.ending {
            self.ending = true;
            let keys: Vec<Key> = self.containers.keys().cloned().collect();
            for key in keys {
                self.stop(&key, SIGTERM, SHUTDOWN_GRACE);
            }
        }
    }

    /// Whether no process of the pod is left; what is, is killed.
    fn is_empty(&mut self) -> bool {
        if !self.containers.is_empty() {
            return false;
        }
        self.reap();
        let all = processes::all();
        let mut left = processes::descendants(&all, &[std::process::id()].into());
        left.retain(|seen| !seen.zombie);
        processes::kill_each(&left);
        left.is_empty()
    }

    /// What must be looked at because nothing tells.
    fn check(&mut self) {
        let now = Instant::now();
        if now < self.check_at {
            return;
        }
        self.check_at = now + CHECK_PAUSE;
        self.record.catch_up();
        if !self.ending && self.has_lost_its_folder() {
            eprintln!(
                "{} {} is gone: its pod is stopped",
                Timestamp::now(),
                self.folder.display()
            );
            self.kill_all();
        }
    }

    /// What a container that could not even be spawned has come to.
    pub(super) fn start_error(error: &io::Error) -> Phase {
        Phase::Exited {
            code: 128,
            signal: None,
            started_at: None,
            finished_at: Timestamp::now(),
            reason: ExitReason::StartError,
            message: format!("cannot start a process: {error}"),
        }
    }
}

pub(super) fn attempt_mut<'a>(state: &'a mut PodState, (container, attempt): &Key) -> Option<&'a mut Attempt> {
    state.containers.get_mut(container)?.get_mut(attempt)
}
