//! What the node's agent and a pod's supervisor say to each other, and what stands in a pod's folder.
//!
//! Plain values, used by both sides. The agent decides (order, restarts, probes, back-off, names); the supervisor only
//! carries out: it starts what it is told to start, once, says what became of it, and kills what it is told to stop.
//!
//! A pod's folder `<data>/pods/<uid>/`:
//!
//! | file | written by | what |
//! |---|---|---|
//! | `pod.json` | agent, before the supervisor starts | [`PodPlan`] |
//! | `state.json` | supervisor, before it tells anyone | [`PodState`] |
//! | `pod.socket` | supervisor | where it answers: one JSON line per [`Ask`] and per [`Answer`] |
//! | `pod.lock` | supervisor | held while it lives, so that there are never two |
//! | `supervisor.log` | supervisor | its own complaints, nothing when all is well |
//! | `<container>/<attempt>.log` | supervisor | what the container wrote; older parts are `<attempt>.log.1` to `.4` |
//!
//! The lines of a connection: an [`Ask`] is answered by one [`Answer`]; after [`Ask::Watch`] the supervisor sends one
//! [`Answer::State`] at once and one after each change (a slow reader gets the latest only); after [`Ask::Exec`] the
//! connection carries [`Frame`]s in both directions until an [`Frame::Exit`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// In the environment of every process of a pod. What a dead supervisor left behind is known by it.
pub const POD_UID_VARIABLE: &str = "USHER_POD_UID";
/// In the environment of every process of a container: the attempt's [`ContainerPlan::id`].
pub const CONTAINER_ID_VARIABLE: &str = "USHER_CONTAINER_ID";

/// Names within a pod's folder. With a dot: no container, whose folders are beside them, can be called so.
pub const PLAN_FILE: &str = "pod.json";
pub const STATE_FILE: &str = "state.json";
pub const SOCKET_FILE: &str = "pod.socket";
pub const LOCK_FILE: &str = "pod.lock";
pub const COMPLAINTS_FILE: &str = "supervisor.log";

/// What a supervisor must know before the first container. Written by the agent, never changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodPlan {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    pub isolation: Isolation,
    /// What `hostname` says inside. Not used by `paths`.
    pub hostname: String,
    /// The pod ends when this process does (memory mode). Without it the pod outlives everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dies_with: Option<ProcessMark>,
    /// Host folders that no container sees (an empty folder is there instead, in its mounts too), but for mounts from within them: the data folder.
    #[serde(default)]
    pub masked: Vec<PathBuf>,
    /// Folders of the pod that are in memory, each of at most so many bytes. Only with [`Isolation::NamespacesAsRoot`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub in_memory: BTreeMap<PathBuf, u64>,
}

/// How a container is kept apart from the rest of the machine (spec 11.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Isolation {
    /// Own root, own PID namespace, made as root.
    NamespacesAsRoot,
    /// The same in a user namespace of one id: the wanted uid inside, ours outside.
    NamespacesAsUser,
    /// The same, made by `bwrap`, where it may and we may not.
    Bubblewrap,
    /// The host's files; a process group and the subreaper.
    Paths,
}

impl Isolation {
    /// Whether containers have a root of their own, so that mounts are where the pod says.
    pub fn has_private_root(self) -> bool {
        !matches!(self, Isolation::Paths)
    }
}

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProcessMark {
    pub pid: u32,
    /// Clock ticks after boot (`/proc/<pid>/stat`, field 22).
    pub start_ticks: u64,
    /// `/proc/sys/kernel/random/boot_id`: after a reboot no mark of before means anything.
    pub boot_id: String,
}

/// One attempt of one container, with every choice made. The pair (name, attempt) runs at most once, ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerPlan {
    pub name: String,
    /// 0, 1, 2, …: the restart count at the start of this attempt.
    pub attempt: u32,
    /// As in the container's status (`usher://…`), different for each attempt.
    pub id: String,
    /// The program and its arguments. A program without `/` is looked for along `PATH` of `env`, inside the container.
    pub argv: Vec<String>,
    /// The whole environment. The supervisor adds [`POD_UID_VARIABLE`] and [`CONTAINER_ID_VARIABLE`], nothing else.
    pub env: BTreeMap<String, String>,
    /// Absolute, as seen inside. Made if it is missing and can be.
    pub workdir: PathBuf,
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups. Ignored where there is only one id.
    #[serde(default)]
    pub groups: Vec<u32>,
    /// The image's root file system; without it the host's, of which `/tmp`, `/run`, `/var/tmp` and what the pod masks are
    /// not seen: what is needed from there must be mounted. Always read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<PathBuf>,
    /// `readOnlyRootFilesystem`: also `/tmp` and `/run` are read-only.
    #[serde(default)]
    pub read_only_root: bool,
    /// A folder whose files take the place of those of the same name in `/etc` (hosts, hostname, resolv.conf). A file
    /// that is replaced there by a rename is seen inside at once, whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etc: Option<PathBuf>,
    /// In order; a later one may lie inside an earlier one. Not used by `paths`.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// A pseudo-terminal instead of pipes. What comes out is logged as `stdout`.
    #[serde(default)]
    pub tty: bool,
}

/// A host file or folder at a place inside the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mount {
    /// The volume's folder or file on the host. Opened without following a link in its last part.
    pub source: PathBuf,
    /// `subPath`: resolved below `source`, links included, and never out of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<PathBuf>,
    /// Absolute, inside. Made if it is missing.
    pub target: PathBuf,
    #[serde(default)]
    pub read_only: bool,
}

/// Everything a supervisor knows. Written to `state.json` before anybody is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodState {
    pub uid: String,
    pub supervisor: ProcessMark,
    /// By container name, then by attempt.
    pub containers: BTreeMap<String, BTreeMap<u32, Attempt>>,
    /// Says that the last states could not be written down (a full disk), and why. The pod runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_durable: Option<String>,
}

impl PodState {
    pub fn attempt(&self, container: &str, attempt: u32) -> Option<&Attempt> {
        self.containers.get(container)?.get(&attempt)
    }

    /// The attempt with the highest number.
    pub fn latest(&self, container: &str) -> Option<(u32, &Attempt)> {
        self.containers
            .get(container)?
            .last_key_value()
            .map(|(number, attempt)| (*number, attempt))
    }
}

/// One attempt of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Attempt {
    pub id: String,
    pub phase: Phase,
    /// A stop was asked for; set once, with the first ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<Stopping>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "phase")]
pub enum Phase {
    /// Written down, not yet executed.
    Starting,
    /// Its program is executing. `pid` is the first process, as the host sees it.
    #[serde(rename_all = "camelCase")]
    Running { pid: u32, started_at: Timestamp },
    /// Nothing of it is left, and its log is complete.
    #[serde(rename_all = "camelCase")]
    Exited {
        /// As a kubelet says it: the program's own, or 128 + the signal, or 128 if it could not be started.
        code: i32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// None: it never ran.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        started_at: Option<Timestamp>,
        finished_at: Timestamp,
        reason: ExitReason,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
    },
}

impl Phase {
    pub fn has_ended(&self) -> bool {
        matches!(self, Phase::Exited { .. })
    }

    /// What had not ended has ended now, nobody knows how (N2).
    pub fn lose(&mut self, now: Timestamp) {
        let started_at = match self {
            Phase::Exited { .. } => return,
            Phase::Starting => None,
            Phase::Running { started_at, .. } => Some(*started_at),
        };
        *self = Phase::Exited {
            code: LOST_CODE,
            signal: None,
            started_at,
            finished_at: now,
            reason: ExitReason::ContainerStatusUnknown,
            message: LOST_MESSAGE.to_owned(),
        };
    }
}

/// What a kubelet says of a container that it finds no more.
pub(crate) const LOST_CODE: i32 = 137;
pub(crate) const LOST_MESSAGE: &str = "The container could not be located when the pod was terminated";

/// The reasons of a container's `terminated` state that the supervisor can tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitReason {
    /// Code 0.
    Completed,
    /// Any other code, or a signal.
    Error,
    /// The program could not be executed, or its files not be prepared; `message` says which and why.
    StartError,
    /// A supervisor before this one died while it ran.
    ContainerStatusUnknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Stopping {
    /// What it is sent, once.
    pub signal: i32,
    pub asked_at: Timestamp,
    /// When everything of it gets SIGKILL.
    pub kill_at: Timestamp,
}

/// What an agent may ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "ask")]
pub enum Ask {
    /// Answered by [`Answer::State`].
    Look,
    /// Answered by [`Answer::State`] now and after each change.
    Watch,
    /// Answered by [`Answer::Done`] once it is written down; how it went is in the state. A pair (name, attempt) that
    /// the state already has is left alone, and that is no error.
    Start { container: Box<ContainerPlan> },
    /// Sends `signal` to the first process and SIGKILL to everything of it once `grace_milliseconds` are over, whether
    /// or not the agent still lives. Answered at once by [`Answer::Done`]; the end shows in the state. Asked again, the
    /// earlier of the two ends counts and the signal is not sent again. Grace 0 kills at once.
    #[serde(rename_all = "camelCase")]
    Stop {
        container: String,
        attempt: u32,
        signal: i32,
        grace_milliseconds: u64,
    },
    /// One signal to the first process.
    Signal {
        container: String,
        attempt: u32,
        signal: i32,
    },
    /// The connection carries [`Frame`]s from here on.
    Exec { exec: ExecPlan },
    /// SIGKILL to every process of the pod, and when none is left, [`Answer::Done`] and the supervisor's own end.
    /// Removes nothing.
    End,
}

/// A program to run beside a container's own, in its namespaces, with its environment, uid and working directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecPlan {
    pub container: String,
    /// None: the one that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    pub argv: Vec<String>,
    #[serde(default)]
    pub tty: bool,
    /// Whether [`Frame::Stdin`] will come. Without it the program reads an empty stdin.
    #[serde(default)]
    pub stdin: bool,
    /// After this it is killed, and [`Exit::timed_out`] is set (probes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_milliseconds: Option<u64>,
    /// Of stdout and stderr together; what comes after is read and dropped (probes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<u64>,
}

/// What a supervisor answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    State { state: PodState },
    Done,
    Refused { refusal: Refusal, message: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Refusal {
    /// The line was not an ask.
    Malformed,
    /// No such container or attempt.
    Unknown,
    /// It does not run (any more, or yet).
    NotRunning,
    /// An earlier attempt of the container has not ended yet.
    Busy,
    /// The pod is ending: nothing new starts.
    Ending,
    /// The system did not let us; the message says what and why.
    System,
}

/// One piece of an exec's conversation: a byte for the kind, four for the length (big-endian), then that many bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// To the program. Empty: end of input.
    Stdin(Vec<u8>),
    /// To the program's terminal.
    Resize {
        columns: u16,
        rows: u16,
    },
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    /// The last frame.
    Exit(Exit),
}

/// How an exec ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Exit {
    /// The program's, or 128 + the signal; 126 or 127 if it could not be executed.
    pub code: i32,
    #[serde(default)]
    pub timed_out: bool,
    /// Why it could not be executed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_error: Option<String>,
}

/// A frame that cannot be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a frame of an exec: {0}")]
pub struct FrameError(pub String);

/// The largest payload of a frame. Senders split at 32 KiB; the rest is slack for [`Exit`].
pub const FRAME_LIMIT_BYTES: usize = 64 * 1024;
/// How much senders put into one frame.
pub const FRAME_CHUNK_BYTES: usize = 32 * 1024;

impl Frame {
    pub fn encode(&self) -> Vec<u8> {
        let (kind, payload) = match self {
            Frame::Stdin(bytes) => (0u8, bytes.clone()),
            Frame::Stdout(bytes) => (1, bytes.clone()),
            Frame::Stderr(bytes) => (2, bytes.clone()),
            Frame::Resize { columns, rows } => {
                let mut payload = columns.to_be_bytes().to_vec();
                payload.extend_from_slice(&rows.to_be_bytes());
                (3, payload)
            }
            // A plain struct of numbers and strings has nothing that JSON cannot say.
            Frame::Exit(exit) => (4, serde_json::to_vec(exit).unwrap_or_default()),
        };
        let mut frame = Vec::with_capacity(payload.len() + 5);
        frame.push(kind);
        frame.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes());
        frame.extend_from_slice(&payload);
        frame
    }

    /// Takes one whole frame off the front of `buffer`; None while it is not there yet.
    pub fn decode(buffer: &mut Vec<u8>) -> Result<Option<Frame>, FrameError> {
        let Some((kind, length)) = buffer.first_chunk::<5>().map(|[kind, a, b, c, d]| {
            let length = u32::from_be_bytes([*a, *b, *c, *d]);
            (*kind, usize::try_from(length).unwrap_or(usize::MAX))
        }) else {
            return Ok(None);
        };
        if length > FRAME_LIMIT_BYTES {
            return Err(FrameError(format!(
                "{length} bytes in one, at most {FRAME_LIMIT_BYTES} are allowed"
            )));
        }
        if buffer.len() < length + 5 {
            return Ok(None);
        }
        let payload: Vec<u8> = buffer.drain(..length + 5).skip(5).collect();
        match (kind, payload.as_slice()) {
            (0, _) => Ok(Some(Frame::Stdin(payload))),
            (1, _) => Ok(Some(Frame::Stdout(payload))),
            (2, _) => Ok(Some(Frame::Stderr(payload))),
            (3, &[a, b, c, d]) => Ok(Some(Frame::Resize {
                columns: u16::from_be_bytes([a, b]),
                rows: u16::from_be_bytes([c, d]),
            })),
            (4, _) => serde_json::from_slice(&payload)
                .map(|exit| Some(Frame::Exit(exit)))
                .map_err(|error| FrameError(format!("its exit cannot be read: {error}"))),
            (kind, _) => Err(FrameError(format!("kind {kind} with {length} bytes"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_being_cut_anywhere() {
        let frames = [
            Frame::Stdin(b"in".to_vec()),
            Frame::Stdin(Vec::new()),
            Frame::Resize { columns: 120, rows: 40 },
            Frame::Stdout(vec![0, 255, 10]),
            Frame::Stderr(b"err".to_vec()),
            Frame::Exit(Exit {
                code: 7,
                timed_out: true,
                start_error: None,
            }),
        ];
        let mut buffer = Vec::new();
        let mut read = Vec::new();
        for byte in frames.iter().flat_map(Frame::encode) {
            buffer.push(byte);
            read.extend(Frame::decode(&mut buffer).unwrap());
        }
        assert_eq!(read, frames);
        assert!(buffer.is_empty());
    }

    #[test]
    fn a_frame_beyond_the_limit_is_refused_before_it_is_read() {
        assert!(Frame::decode(&mut vec![0, 255, 255, 255, 255]).is_err());
        assert!(Frame::decode(&mut vec![9, 0, 0, 0, 0]).is_err());
    }
}
