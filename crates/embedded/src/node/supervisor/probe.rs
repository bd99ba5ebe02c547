//! Which isolation this machine allows, found out by making a private root and throwing it away (spec 11.4).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

use super::control::{Order, Place, RootOrder};
use super::launch::{Launch, Standard};
use super::protocol::Isolation;
use crate::serve::temporary::{Kind, Temporary};

/// How long one try may take. It takes milliseconds; a machine that needs more is no place for it.
const TRY_MILLISECONDS: u16 = 10_000;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    pub isolation: Isolation,
    /// One sentence for people.
    pub why: String,
}

/// Asks `program` (ours: [`super::main`] answers) to try. It never fails: what cannot be tried is not allowed.
pub fn probe(program: &Path) -> Probed {
    let ask = || {
        let mut command = Command::new(program);
        let command = command.args([super::SUBCOMMAND, super::PROBE]).stdin(Stdio::null());
        let output = command.stderr(Stdio::null()).output()?;
        serde_json::from_slice(&output.stdout).map_err(|_| io::Error::other(format!("it ended with {}", output.status)))
    };
    // A signal that was meant for others may have ended the first.
    ask().or_else(|_| ask()).unwrap_or_else(|error: io::Error| Probed {
        isolation: Isolation::Paths,
        why: format!(
            "paths, because {} could not try anything else: {error}",
            program.display()
        ),
    })
}

/// `PROGRAM pod-supervisor probe`: one line of JSON.
pub(super) fn main() -> ExitCode {
    let probed = find();
    match serde_json::to_string(&probed) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}

fn find() -> Probed {
    let root = nix::unistd::geteuid().is_root();
    let as_root = if root {
        try_once(Isolation::NamespacesAsRoot)
    } else {
        Err("not root".to_owned())
    };
    let Err(not_as_root) = as_root else {
        return Probed {
            isolation: Isolation::NamespacesAsRoot,
            why: "namespaces, because usher runs as root".to_owned(),
        };
    };
    let Err(not_as_user) = try_once(Isolation::NamespacesAsUser) else {
        return Probed {
            isolation: Isolation::NamespacesAsUser,
            why: "namespaces, because this system lets ordinary users make user namespaces".to_owned(),
        };
    };
    let bubblewrap = match super::stage::bubblewrap_program() {
        Some(program) => try_once(Isolation::Bubblewrap).map(|()| program),
        None => Err("there is no bwrap".to_owned()),
    };
    let not_as_user = match bubblewrap {
        Ok(program) => {
            let why = format!(
                "namespaces, because {} may make them here ({not_as_user})",
                program.display()
            );
            return Probed {
                isolation: Isolation::Bubblewrap,
                why,
            };
        }
        Err(no_bubblewrap) => format!("{not_as_user}; {no_bubblewrap}"),
    };
    let refused = if root {
        format!("{not_as_root}; {not_as_user}")
    } else {
        not_as_user
    };
    Probed {
        isolation: Isolation::Paths,
        why: format!("paths, because this system refuses namespaces ({refused})"),
    }
}

/// Goes all the way to the execution of a program, in a folder that is gone afterwards.
fn try_once(isolation: Isolation) -> Result<(), String> {
    let scaffold = Temporary::make(Kind::Trial)
        .map_err(|error| format!("cannot make a folder in {}: {error}", std::env::temp_dir().display()))?;
    launch(isolation, scaffold.path().to_owned())
}

fn launch(isolation: Isolation, scaffold: PathBuf) -> Result<(), String> {
    let order = Order {
        isolation,
        argv: Vec::new(),
        env: BTreeMap::new(),
        workdir: PathBuf::from("/"),
        uid: 65534,
        gid: 65534,
        groups: Vec::new(),
        tty: false,
        place: Place::New {
            hostname: "probe".to_owned(),
            root: RootOrder {
                scaffold,
                image: None,
                read_only: true,
                etc: None,
                mounts: Vec::new(),
                masked: Vec::new(),
            },
        },
        only_try: true,
    };
    let cannot = |error: io::Error| format!("cannot start a process: {error}");
    let nothing = || fs::File::options().read(true).write(true).open("/dev/null");
    let standard = Standard {
        stdin: nothing().map_err(cannot)?.into(),
        stdout: nothing().map_err(cannot)?.into(),
        stderr: nothing().map_err(cannot)?.into(),
    };
    let mut launch = Launch::start("probe", "probe", &order, Some(&standard)).map_err(cannot)?;
    while let Some(control) = launch.control() {
        let mut polled = [PollFd::new(control, PollFlags::POLLIN)];
        if poll(&mut polled, PollTimeout::from(TRY_MILLISECONDS)) == Ok(0) {
            launch.kill();
            return Err("a try took too long".to_owned());
        }
        launch.hear();
    }
    match launch.failure() {
        None if launch.is_ready() => Ok(()),
        None => Err("a try ended without a word".to_owned()),
        Some(failure) => Err(failure.to_owned()),
    }
}
