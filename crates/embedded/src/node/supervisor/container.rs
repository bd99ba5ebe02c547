//! One attempt of a container, from its first stage until nothing of it is left.
//!
//! The supervisor calls [`Container::settle`] after every piece of news; it looks at where things stand and takes the
//! next step. It keeps no other order of events than that, so none can be missed.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::unistd::{Gid, Uid, fchown};

use super::control::{Order, Place, RootOrder};
use super::launch::{Launch, Namespaces, Standard};
use super::log::{Log, Stream};
use super::processes::{self, Seen};
use super::protocol::{CONTAINER_ID_VARIABLE, ContainerPlan, ExitReason, Isolation, POD_UID_VARIABLE, Phase, PodPlan};

/// Between two looks for processes that would not go.
const SWEEP_PAUSE: Duration = Duration::from_millis(5);

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Code(i32),
    Signal(i32),
}

impl Ended {
    /// As shells and kubelets say it.
    pub(super) fn code(self) -> i32 {
        match self {
            Ended::Code(code) => code,
            Ended::Signal(signal) => 128 + signal,
        }
    }
}

/// What settling came to.
#[derive(Debug)]
pub(super) enum Settled {
    /// Nothing to write down.
    Same,
    /// It runs now.
    Runs(Phase),
    /// Nothing of it is left.
    Gone(Phase),
}

#[derive(Debug)]
pub(super) struct Container {
    pub plan: ContainerPlan,
    pub launch: Launch,
    pub namespaces: Option<Namespaces>,
    isolation: Isolation,
    log: Log,
    stdout: Option<File>,
    stderr: Option<File>,
    /// Its start is on disk: it may run.
    pub recorded: bool,
    started_at: Option<Timestamp>,
    ended: Option<(Ended, Timestamp)>,
    signal_due: Option<i32>,
    kill_at: Option<Instant>,
    sweep_at: Option<Instant>,
}

impl Container {
    /// Starts its first stage. Nothing of it runs before it is recorded.
    pub(super) fn start(pod: &PodPlan, folder: &Path, plan: ContainerPlan) -> io::Result<Container> {
        let log = Log::new(folder, &plan.name, plan.attempt);
        let order = order(pod, folder, &plan);
        let mut ours = (None, None);
        let standard = if plan.tty {
            None
        } else {
            let (stdout, their_stdout) = io::pipe()?;
            let (stderr, their_stderr) = io::pipe()?;
            for pipe in [&their_stdout, &their_stderr] {
                // So that the program may open /dev/stdout as who it is. Only root can, and only root must.
                let _ = fchown(pipe, Some(Uid::from_raw(plan.uid)), Some(Gid::from_raw(plan.gid)));
            }
            ours = (
                Some(File::from(OwnedFd::from(stdout))),
                Some(File::from(OwnedFd::from(stderr))),
            );
            Some(Standard {
                stdin: File::open("/dev/null")?.into(),
                stdout: their_stdout.into(),
                stderr: their_stderr.into(),
            })
        };
        let (stdout, stderr) = ours;
        for pipe in stdout.iter().chain(&stderr) {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        let launch = Launch::start(&pod.uid, &plan.id, &order, standard.as_ref())?;
        Ok(Container {
            plan,
            launch,
            namespaces: None,
            isolation: pod.isolation,
            log,
            stdout,
            stderr,
            recorded: false,
            started_at: None,
            ended: None,
            signal_due: None,
            kill_at: None,
            sweep_at: None,
        })
    }

    /// The streams that it may have written to.
    pub(super) fn outputs(&self) -> impl Iterator<Item = (Stream, BorrowedFd<'_>)> {
        let stdout = self.stdout.iter().map(|file| (Stream::Stdout, file.as_fd()));
        stdout.chain(self.stderr.iter().map(|file| (Stream::Stderr, file.as_fd())))
    }

    /// Takes what is there into the log. At most a few reads, so that one chatty container does not hold up the pod.
    pub(super) fn read_output(&mut self, stream: Stream) {
        for _ in 0..4 {
            if !self.read_once(stream) {
                return;
            }
        }
    }

    /// Whether there may be more.
    fn read_once(&mut self, stream: Stream) -> bool {
        let source = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let Some(file) = source else { return false };
        let mut buffer = [0u8; 32 * 1024];
        match file.read(&mut buffer) {
            Ok(count) if count > 0 => {
                self.log
                    .take(stream, buffer.get(..count).unwrap_or_default(), Timestamp::now());
                true
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            // The end; a terminal says it with an error.
            Ok(_) | Err(_) => {
                *source = None;
                false
            }
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.started_at.is_some() && self.ended.is_none()
    }

    /// Its first process was reaped.
    pub(super) fn main_reaped(&mut self, ended: Ended) {
        self.launch.hear();
        self.ended = Some((ended, Timestamp::now()));
    }

    /// Signal now (or as soon as it runs), SIGKILL to all after the grace; without one it is killed and not asked. Only
    /// the first signal counts, and the earliest end.
    pub(super) fn stop(&mut self, signal: i32, grace: Duration) {
        let kill_at = Instant::now() + grace;
        if grace.is_zero() {
            self.signal_due = None;
        } else if self.kill_at.is_none() {
            self.signal_due = Some(signal);
        }
        self.kill_at = Some(self.kill_at.map_or(kill_at, |earlier| earlier.min(kill_at)));
    }

    /// When it must be looked at again even if nothing happens.
    pub(super) fn due(&self) -> Option<Instant> {
        [self.kill_at.filter(|_| self.ended.is_none()), self.sweep_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// Takes whatever step can be taken. `alone`: no other container of the pod is left.
    pub(super) fn settle(&mut self, now: Instant, alone: bool) -> Settled {
        if let Some(terminal) = self.launch.take_terminal() {
            let _ = rustix::io::ioctl_fionbio(&terminal, true);
            self.stdout = Some(File::from(terminal));
        }
        if self.launch.is_stillborn() && self.ended.is_none() {
            self.ended = Some((Ended::Signal(super::launch::SIGKILL), Timestamp::now()));
        }
        if self.ended.is_some() {
            return self.finish(now, alone);
        }
        if self.kill_at.is_some_and(|kill_at| kill_at <= now) {
            self.launch.kill();
            self.sweep(now, alone);
            // Its end will be news; until then look again, for what was just being forked.
            self.kill_at = Some(now + SWEEP_PAUSE);
        }
        if self.launch.waits() && self.recorded {
            if let Some(main) = self.launch.main() {
                // While it waits it is still where an exec must enter.
                self.namespaces = Namespaces::of(main, self.isolation).unwrap_or(None);
            }
            self.launch.release();
        }
        if self.launch.has_executed() && self.started_at.is_none() {
            let started_at = Timestamp::now();
            self.started_at = Some(started_at);
            let pid = self.launch.main().unwrap_or_default();
            return Settled::Runs(Phase::Running { pid, started_at });
        }
        if self.started_at.is_some()
            && let Some(signal) = self.signal_due.take()
        {
            let _ = self.launch.signal(signal);
        }
        Settled::Same
    }

    fn finish(&mut self, now: Instant, alone: bool) -> Settled {
        let Some((ended, finished_at)) = self.ended else {
            return Settled::Same;
        };
        if self.sweep(now, alone) {
            return Settled::Same;
        }
        for stream in [Stream::Stdout, Stream::Stderr] {
            while self.read_once(stream) {}
        }
        self.log.close(Timestamp::now());
        let started_at = match self.launch.has_executed() {
            true => self.started_at.or(Some(finished_at)),
            false => None,
        };
        let (code, signal, reason, message) = match (self.launch.failure(), ended) {
            (Some(failure), _) => (128, None, ExitReason::StartError, failure.to_owned()),
            (None, Ended::Code(0)) => (0, None, ExitReason::Completed, String::new()),
            (None, Ended::Code(code)) => (code, None, ExitReason::Error, String::new()),
            (None, Ended::Signal(signal)) => (ended.code(), Some(signal), ExitReason::Error, String::new()),
        };
        Settled::Gone(Phase::Exited {
            code,
            signal,
            started_at,
            finished_at,
            reason,
            message,
        })
    }

    /// Kills what is left of it outside a PID namespace. True: something was.
    fn sweep(&mut self, now: Instant, alone: bool) -> bool {
        self.sweep_at = None;
        // A PID namespace has ended only when everything in it has.
        if self.isolation != Isolation::Paths {
            return false;
        }
        let left = self.strays(alone);
        if left.is_empty() {
            return false;
        }
        processes::kill_each(&left);
        self.sweep_at = Some(now + SWEEP_PAUSE);
        true
    }

    /// Whatever double-forked came back to us as the subreaper, so it is below us; whose it is, its session or its
    /// environment tells. What hides both is taken with the pod's last container.
    fn strays(&self, alone: bool) -> Vec<Seen> {
        let all = processes::all();
        let mut ours = processes::descendants(&all, &BTreeSet::from([std::process::id()]));
        ours.retain(|seen| !seen.zombie);
        if alone {
            return ours;
        }
        let below: BTreeSet<u32> = match self.launch.main() {
            Some(main) => processes::descendants(&all, &BTreeSet::from([main]))
                .iter()
                .map(|seen| seen.pid)
                .collect(),
            None => BTreeSet::new(),
        };
        ours.retain(|seen| {
            below.contains(&seen.pid)
                || self.launch.main() == Some(seen.session)
                || processes::has_variable(seen.pid, CONTAINER_ID_VARIABLE, &self.plan.id)
        });
        ours
    }
}

/// The order for a container's own program.
fn order(pod: &PodPlan, folder: &Path, plan: &ContainerPlan) -> Order {
    let place = match pod.isolation {
        Isolation::Paths => Place::Host,
        _ => Place::New {
            hostname: pod.hostname.clone(),
            root: RootOrder {
                scaffold: folder.join(super::SCAFFOLD_FOLDER),
                image: plan.root.clone(),
                read_only: plan.read_only_root,
                etc: plan.etc.clone(),
                mounts: plan.mounts.clone(),
                masked: pod.masked.clone(),
            },
        },
    };
    Order {
        isolation: pod.isolation,
        argv: plan.argv.clone(),
        env: environment(pod, plan),
        workdir: plan.workdir.clone(),
        uid: plan.uid,
        gid: plan.gid,
        groups: plan.groups.clone(),
        tty: plan.tty,
        place,
        only_try: false,
    }
}

/// The order for a program beside the container's own.
pub(super) fn order_beside(pod: &PodPlan, plan: &ContainerPlan, argv: Vec<String>, tty: bool) -> Order {
    let mut env = environment(pod, plan);
    if tty {
        env.entry("TERM".to_owned()).or_insert_with(|| "xterm".to_owned());
    }
    Order {
        isolation: pod.isolation,
        argv,
        env,
        workdir: plan.workdir.clone(),
        uid: plan.uid,
        gid: plan.gid,
        groups: plan.groups.clone(),
        tty,
        place: if pod.isolation == Isolation::Paths {
            Place::Host
        } else {
            Place::Beside
        },
        only_try: false,
    }
}

fn environment(pod: &PodPlan, plan: &ContainerPlan) -> std::collections::BTreeMap<String, String> {
    let mut env = plan.env.clone();
    env.insert(POD_UID_VARIABLE.to_owned(), pod.uid.clone());
    env.insert(CONTAINER_ID_VARIABLE.to_owned(), plan.id.clone());
    env
}
