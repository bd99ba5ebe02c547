//! Stages: what a supervisor's child does before it becomes a container's program.
//!
//! Nothing may be done between fork and exec without `unsafe`, so our own program is executed again and does it as an
//! ordinary, single-threaded process:
//!
//! - `split-root`, `split-user`: make the namespaces, start `run` inside (a PID namespace takes in only children), say
//!   its number, end. The supervisor, being the subreaper, becomes its parent, so no process of ours stays in between.
//! - `split-bwrap UID GID`: the same with the namespaces made by `bwrap`, where that may and we may not.
//! - `join`: the same for a program beside one that runs (exec), into namespaces that exist.
//! - `run`: files, ids, terminal, no_new_privs; then it *is* the program, and number 1 of its namespace.
//!
//! A `run` executes nothing before it is told to, and it is told so only once its supervisor has it on disk. If the
//! supervisor dies first, the line ends and so does the stage; if it dies later, the kernel kills the program.

mod bubblewrap;
mod ids;
mod mirror;
mod mounting;
mod root;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, sethostname, setsid};

use super::control::{self, GO, JOIN, ORDER, Order, Place, Report};
use super::protocol::Isolation;

/// Why a stage gave up, as the container's message will say it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Failure(String);

impl Failure {
    /// For `map_err`: what was tried, and what the system said.
    fn of<E: std::fmt::Display>(tried: impl std::fmt::Display) -> impl FnOnce(E) -> Failure {
        move |error| Failure(format!("{tried}: {error}"))
    }
}

/// The arguments that make our program a stage.
pub(super) const SPLIT_ROOT: &str = "split-root";
pub(super) const SPLIT_USER: &str = "split-user";
pub(super) const SPLIT_BUBBLEWRAP: &str = "split-bwrap";
pub(super) const JOIN_STAGE: &str = "join";
/// After `join`: our uid there is not 0, so what we may do must be handed on to the next stage.
pub(super) const KEEP_POWERS: &str = "keep-powers";
pub(super) const RUN: &str = "run";

pub(super) use bubblewrap::program as bubblewrap_program;

/// How our program starts itself again. It is the same program even if its file was replaced meanwhile.
pub(super) fn command(stage: &str, control: OwnedFd) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .args([super::SUBCOMMAND, super::STAGE, stage])
        .stdin(Stdio::from(control))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

pub(super) fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let stage = args.next().unwrap_or_default();
    let Ok(control) = control::of_this_stage() else {
        return ExitCode::FAILURE;
    };
    let outcome = match stage.to_str() {
        Some(SPLIT_ROOT) => split(&control, false),
        Some(SPLIT_USER) => split(&control, true),
        Some(SPLIT_BUBBLEWRAP) => bubblewrap::split(&control, args),
        Some(JOIN_STAGE) => join(&control, args.next().is_some_and(|word| word == KEEP_POWERS)),
        Some(RUN) => run(&control),
        _ => Err(Failure(format!("there is no stage {}", stage.display()))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(message)) => {
            // If this cannot be said, then there is nobody to say it to.
            let _ = Report::Failed { message }.send(&control, None);
            ExitCode::FAILURE
        }
    }
}

fn split(control: &UnixStream, in_user_namespace: bool) -> Result<(), Failure> {
    if in_user_namespace {
        let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        unshare(CloneFlags::CLONE_NEWUSER).map_err(Failure::of("cannot make a user namespace"))?;
        ids::map(0, uid, 0, gid)?;
    }
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWUTS)
        .map_err(Failure::of("cannot make mount, PID and host name namespaces"))?;
    start_run(control)
}

fn join(control: &UnixStream, keep_powers: bool) -> Result<(), Failure> {
    let Some(namespaces) =
        control::expect(control, JOIN).map_err(Failure::of("cannot hear which namespaces to join"))?
    else {
        return Ok(());
    };
    // The user namespace comes first, because only there may we join the other.
    for namespace in namespaces {
        setns(&namespace, CloneFlags::empty()).map_err(Failure::of("cannot join the container's namespaces"))?;
    }
    if keep_powers {
        ids::keep_powers_across_execution();
    }
    start_run(control)
}

fn start_run(control: &UnixStream) -> Result<(), Failure> {
    let line = control
        .as_fd()
        .try_clone_to_owned()
        .map_err(Failure::of("cannot hand on the control line"))?;
    let child = command(RUN, line)
        .spawn()
        .map_err(Failure::of("cannot start the last stage"))?;
    Report::Child { pid: child.id() }
        .send(control, None)
        .map_err(Failure::of("cannot say the last stage's number"))
}

fn run(control: &UnixStream) -> Result<(), Failure> {
    let Some(descriptors) = control::expect(control, ORDER).map_err(Failure::of("cannot receive the order"))? else {
        return Ok(());
    };
    let mut descriptors = descriptors.into_iter();
    let order = descriptors
        .next()
        .ok_or_else(|| Failure("the order came without its file".to_owned()))
        .and_then(|file| Order::from_file(file).map_err(Failure::of("cannot read the order")))?;
    let standard = if order.tty {
        None
    } else {
        take_standard(&mut descriptors)
    };

    setsid().map_err(Failure::of("cannot make a session"))?;
    umask(Mode::from_bits_truncate(0o022));
    let mut joined_user = None;
    match &order.place {
        Place::Host => {}
        Place::New { hostname, root } => {
            sethostname(hostname).map_err(Failure::of(format_args!("cannot set the host name {hostname}")))?;
            root::enter(root, &order)?;
        }
        Place::Beside => {
            let missing = || Failure("the order came without the container's namespaces".to_owned());
            let (mounts, hostname) = (
                descriptors.next().ok_or_else(missing)?,
                descriptors.next().ok_or_else(missing)?,
            );
            joined_user = descriptors.next();
            setns(&mounts, CloneFlags::CLONE_NEWNS).map_err(Failure::of("cannot join the container's files"))?;
            setns(&hostname, CloneFlags::CLONE_NEWUTS).map_err(Failure::of("cannot join the container's host name"))?;
        }
    }

    if !order.only_try {
        Report::Ready
            .send(control, None)
            .map_err(Failure::of("cannot say that all is prepared"))?;
        if control::expect(control, GO)
            .map_err(Failure::of("cannot hear when to go"))?
            .is_none()
        {
            return Ok(());
        }
    }
    ids::become_user(&order, joined_user)?;
    nix::sys::prctl::set_no_new_privs().map_err(Failure::of("cannot set no_new_privs"))?;
    if order.only_try {
        return Report::Ready
            .send(control, None)
            .map_err(Failure::of("cannot say that all went well"));
    }
    // After the ids: whoever changes those is cleared of it.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(Failure::of("cannot ask to die with the supervisor"))?;
    match standard {
        Some([stdin, stdout, stderr]) => {
            let given = dup2_stdin(stdin)
                .and_then(|()| dup2_stdout(stdout))
                .and_then(|()| dup2_stderr(stderr));
            given.map_err(Failure::of("cannot set stdin, stdout and stderr"))?;
        }
        None => take_terminal(control).map_err(Failure::of("cannot make a terminal"))?,
    }
    std::env::set_current_dir(&order.workdir).map_err(Failure::of(format_args!(
        "cannot enter the working directory {}",
        order.workdir.display()
    )))?;
    Err(execute(&order))
}

fn take_standard(descriptors: &mut impl Iterator<Item = OwnedFd>) -> Option<[OwnedFd; 3]> {
    Some([descriptors.next()?, descriptors.next()?, descriptors.next()?])
}

/// A terminal from where the program is, so that it also finds it by its name; the other end goes to the supervisor.
fn take_terminal(control: &UnixStream) -> io::Result<()> {
    use rustix::pty::{OpenptFlags, openpt, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    unlockpt(&ours)?;
    let theirs = fs::OpenOptions::new().read(true).write(true).open(
        rustix::pty::ptsname(&ours, Vec::new())?
            .to_str()
            .map_err(|_| io::Error::other("the terminal's name is not text"))?,
    )?;
    dup2_stdin(&theirs)?;
    dup2_stdout(&theirs)?;
    dup2_stderr(&theirs)?;
    rustix::process::ioctl_tiocsctty(io::stdin())?;
    Report::Terminal.send(control, Some(ours.as_fd()))
}

/// Becomes the program. Comes back only with the reason why it could not.
fn execute(order: &Order) -> Failure {
    // The supervisor blocks the signals that it reads by descriptor, and its children inherit that.
    if let Err(error) = SigSet::empty().thread_set_mask() {
        return Failure(format!("its signals could not be unblocked: {error}"));
    }
    let Some((program, arguments)) = order.argv.split_first() else {
        return Failure("there is no program to execute: neither the image nor the container names one".to_owned());
    };
    let attempt = |path: &str| {
        Command::new(path)
            .arg0(program)
            .args(arguments)
            .env_clear()
            .envs(&order.env)
            .exec()
    };
    if program.contains('/') {
        let error = attempt(program);
        return Failure(format!("exec: \"{program}\": {}", plain(&error)));
    }
    // As execvp: a file that may not be executed is only an error if no later folder has a better one.
    let mut refused = None;
    for folder in order.env.get("PATH").map_or(DEFAULT_PATH, String::as_str).split(':') {
        let folder = if folder.is_empty() { "." } else { folder };
        let path = format!("{folder}/{program}");
        let error = attempt(&path);
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {}
            io::ErrorKind::PermissionDenied => refused = Some((path, error)),
            _ => return Failure(format!("exec: \"{path}\": {}", plain(&error))),
        }
    }
    match refused {
        Some((path, error)) => Failure(format!("exec: \"{path}\": {}", plain(&error))),
        None => Failure(format!("exec: \"{program}\": executable file not found in $PATH")),
    }
}

/// Where programs are looked for if the environment does not say.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The system's words without Rust's "(os error 2)", in the small letters that runtimes say them in.
fn plain(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(
        || error.to_string(),
        |number| nix::errno::Errno::from_raw(number).desc().to_lowercase(),
    )
}

/// Whether the ids are all ours to give, because we are root outside any user namespace of ours.
fn gives_ids(isolation: Isolation) -> bool {
    match isolation {
        Isolation::NamespacesAsRoot => true,
        Isolation::NamespacesAsUser | Isolation::Bubblewrap => false,
        Isolation::Paths => nix::unistd::geteuid().is_root(),
    }
}
