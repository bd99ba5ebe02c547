//! One program on its way from a spawned stage to an executed program, as the supervisor sees it.
//!
//! Owned by a container or an exec. The supervisor feeds it three kinds of news (its control line can be read, a child
//! was reaped, the state is on disk) and asks it where things stand.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use super::control::{self, GO, JOIN, ORDER, Order, Report};
use super::processes;
use super::protocol::{CONTAINER_ID_VARIABLE, Isolation, POD_UID_VARIABLE};
use super::stage::{self, JOIN_STAGE, KEEP_POWERS, RUN, SPLIT_BUBBLEWRAP, SPLIT_ROOT, SPLIT_USER};

/// The namespaces of a container that runs, held open so that an exec joins these and no others.
#[derive(Debug)]
pub(super) struct Namespaces {
    /// The one that the mounts belong to; only without root.
    user: Option<OwnedFd>,
    pid: OwnedFd,
    mounts: OwnedFd,
    hostname: OwnedFd,
}

impl Namespaces {
    /// Of a last stage that has made them and has not gone on yet.
    pub(super) fn of(pid: u32, isolation: Isolation) -> io::Result<Option<Namespaces>> {
        let open = |name: &str| File::open(format!("/proc/{pid}/ns/{name}")).map(OwnedFd::from);
        let user = match isolation {
            Isolation::Paths => return Ok(None),
            Isolation::NamespacesAsRoot => None,
            Isolation::NamespacesAsUser | Isolation::Bubblewrap => Some(open("user")?),
        };
        Ok(Some(Namespaces {
            user,
            pid: open("pid")?,
            mounts: open("mnt")?,
            hostname: open("uts")?,
        }))
    }
}

/// The program's ends of its streams. None: it gets a terminal.
#[derive(Debug)]
pub(super) struct Standard {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

#[derive(Debug)]
pub(super) struct Launch {
    control: Option<UnixStream>,
    inbox: Vec<u8>,
    /// The stage that makes or joins namespaces, until it is reaped.
    outer: Option<u32>,
    /// What is or will be the program.
    main: Option<u32>,
    pidfd: Option<OwnedFd>,
    ready: bool,
    released: bool,
    failure: Option<String>,
    terminal: Option<OwnedFd>,
}

impl Launch {
    /// Spawns the first stage for a container, or for an exec at the `paths` level.
    pub(super) fn start(pod_uid: &str, id: &str, order: &Order, standard: Option<&Standard>) -> io::Result<Launch> {
        let stage = match order.isolation {
            Isolation::NamespacesAsRoot => SPLIT_ROOT,
            Isolation::NamespacesAsUser => SPLIT_USER,
            Isolation::Bubblewrap => SPLIT_BUBBLEWRAP,
            Isolation::Paths => RUN,
        };
        let arguments = match order.isolation {
            Isolation::Bubblewrap => vec![order.uid.to_string(), order.gid.to_string()],
            _ => Vec::new(),
        };
        let launch = Launch::spawn(pod_uid, id, stage, &arguments)?;
        launch.send_order(order, standard, &[])?;
        Ok(launch)
    }

    /// Spawns the first stage for a program beside another, whose first process is `beside`.
    pub(super) fn join(
        pod_uid: &str,
        id: &str,
        order: &Order,
        standard: Option<&Standard>,
        namespaces: &Namespaces,
        beside: u32,
    ) -> io::Result<Launch> {
        let arguments = match order.isolation {
            Isolation::Bubblewrap => vec![KEEP_POWERS.to_owned()],
            _ => Vec::new(),
        };
        let launch = Launch::spawn(pod_uid, id, JOIN_STAGE, &arguments)?;
        let joined: Vec<BorrowedFd<'_>> = namespaces
            .user
            .iter()
            .chain([&namespaces.pid])
            .map(AsFd::as_fd)
            .collect();
        let inner_user = match order.isolation {
            Isolation::NamespacesAsUser => Some(File::open(format!("/proc/{beside}/ns/user"))?),
            _ => None,
        };
        let mut rest = vec![namespaces.mounts.as_fd(), namespaces.hostname.as_fd()];
        rest.extend(inner_user.as_ref().map(AsFd::as_fd));
        launch.send(JOIN, &joined)?;
        launch.send_order(order, standard, &rest)?;
        Ok(launch)
    }

    fn spawn(pod_uid: &str, id: &str, stage: &str, arguments: &[String]) -> io::Result<Launch> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let child = stage::command(stage, OwnedFd::from(theirs))
            .args(arguments)
            .env_clear()
            .env(POD_UID_VARIABLE, pod_uid)
            .env(CONTAINER_ID_VARIABLE, id)
            .spawn()?;
        let (outer, main) = if stage == RUN {
            (None, Some(child.id()))
        } else {
            (Some(child.id()), None)
        };
        let pidfd = main.map(processes::open).transpose()?;
        Ok(Launch {
            control: Some(ours),
            inbox: Vec::new(),
            outer,
            main,
            pidfd,
            ready: false,
            released: false,
            failure: None,
            terminal: None,
        })
    }

    fn send_order(&self, order: &Order, standard: Option<&Standard>, rest: &[BorrowedFd<'_>]) -> io::Result<()> {
        let file = order.to_file()?;
        let mut descriptors = vec![file.as_fd()];
        if let Some(standard) = standard {
            descriptors.extend([standard.stdin.as_fd(), standard.stdout.as_fd(), standard.stderr.as_fd()]);
        }
        descriptors.extend_from_slice(rest);
        self.send(ORDER, &descriptors)
    }

    fn send(&self, byte: u8, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let Some(control) = &self.control else { return Ok(()) };
        match control::send(control, byte, descriptors) {
            // A stage that gave up at once has said why, and that is still to be heard.
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => Ok(()),
            outcome => outcome,
        }
    }

    /// Reads what the stages have said so far.
    pub(super) fn hear(&mut self) {
        let mut buffer = [0u8; 4096];
        while let Some(control) = &self.control {
            match control::receive(control, &mut buffer) {
                Ok((0, _)) => self.control = None,
                Ok((count, descriptors)) => {
                    self.inbox.extend(buffer.iter().take(count));
                    self.terminal = descriptors.into_iter().next().or(self.terminal.take());
                    self.read_reports();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The other end went with something unread: it is over as well.
                Err(_) => self.control = None,
            }
        }
    }

    fn read_reports(&mut self) {
        while let Some(end) = self.inbox.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.inbox.drain(..=end).collect();
            match serde_json::from_slice(&line) {
                Ok(Report::Child { pid }) => {
                    self.main = Some(pid);
                    // It is a child of our child or, by now, ours: only we can reap it.
                    self.pidfd = processes::open(pid).ok();
                }
                Ok(Report::Ready) => self.ready = true,
                Ok(Report::Terminal) => {}
                Ok(Report::Failed { message }) => self.failure = Some(message),
                Err(error) => self.failure = Some(format!("a stage said something that is no report: {error}")),
            }
        }
    }

    pub(super) fn control(&self) -> Option<BorrowedFd<'_>> {
        self.control.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn main(&self) -> Option<u32> {
        self.main
    }

    pub(super) fn is_outer(&self, pid: u32) -> bool {
        self.outer == Some(pid)
    }

    pub(super) fn outer_reaped(&mut self) {
        self.outer = None;
    }

    /// All is prepared.
    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    /// All is prepared, we are its parent, and it only waits for the word.
    pub(super) fn waits(&self) -> bool {
        self.ready && !self.released && self.outer.is_none()
    }

    /// Gives the word. From here on it may run.
    pub(super) fn release(&mut self) {
        self.released = true;
        // If it is gone, its end will say so.
        let _ = self.send(GO, &[]);
    }

    /// It was told to go, and its line has ended without a complaint.
    pub(super) fn has_executed(&self) -> bool {
        self.released && self.control.is_none() && self.failure.is_none()
    }

    /// It ended before there was a process that could become the program.
    pub(super) fn is_stillborn(&self) -> bool {
        self.control.is_none() && self.outer.is_none() && self.main.is_none()
    }

    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The program's terminal, once.
    pub(super) fn take_terminal(&mut self) -> Option<OwnedFd> {
        self.terminal.take()
    }

    /// One signal to the program.
    pub(super) fn signal(&self, number: i32) -> io::Result<()> {
        match &self.pidfd {
            Some(pidfd) => processes::signal(pidfd, number),
            None => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
    }

    /// SIGKILL to the program, its process group, and the stages before it. In a PID namespace everything goes with the
    /// first process. Not for one that was reaped: its number may be another's.
    pub(super) fn kill(&mut self) {
        if self.main.is_none() {
            // A last stage may be there that we have not heard of. It ends with its line.
            self.control = None;
        }
        if let Some(outer) = self.outer.and_then(|outer| processes::open(outer).ok()) {
            let _ = processes::signal(&outer, SIGKILL);
        }
        if let Some(group) = self.main.and_then(|main| i32::try_from(main).ok()) {
            let _ = nix::sys::signal::killpg(nix::unistd::Pid::from_raw(group), nix::sys::signal::Signal::SIGKILL);
        }
        let _ = self.signal(SIGKILL);
    }
}

pub(super) const SIGKILL: i32 = nix::sys::signal::Signal::SIGKILL as i32;
