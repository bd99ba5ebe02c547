//! The agent's side of a supervisor: start one, find one again, ask it, and clear up after a dead one.
//!
//! A [`Supervisor`] here is only a folder and a mark: each ask has a connection of its own, so nothing is shared and any
//! number of tasks may ask at once. Every answer is waited for with a limit; a supervisor that does not answer
//! ([`SupervisorError::Silent`]) is stopped or broken, and [`put_down`] is what helps then (N12).

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures::Stream;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::begin::READY;
use super::processes;
use super::protocol::{
    Answer, Ask, COMPLAINTS_FILE, ContainerPlan, ExecPlan, Exit, FRAME_CHUNK_BYTES, Frame, POD_UID_VARIABLE, PodState,
    ProcessMark, Refusal, SOCKET_FILE,
};
use super::record;

/// How long an answer may take. Asks are answered in well under a millisecond; a disk that syncs slowly adds to it.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// A supervisor may have remains to kill before it begins.
const START_LIMIT: Duration = Duration::from_secs(15);
/// Killing everything takes as long as the kernel takes to let go of it.
const END_LIMIT: Duration = Duration::from_secs(10);
/// How long [`remains`] tries.
const REMAINS_LIMIT: Duration = Duration::from_secs(8);

#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    #[error("the supervisor of {folder} did not start: {reason}")]
    NotStarted { folder: PathBuf, reason: String },
    #[error("the supervisor of {folder} is gone: {source}")]
    Gone { folder: PathBuf, source: io::Error },
    #[error("the supervisor of {folder} has not answered within {} s", .limit.as_secs())]
    Silent { folder: PathBuf, limit: Duration },
    #[error("{message}")]
    Refused { refusal: Refusal, message: String },
    #[error("the supervisor of {folder} said something that is no answer: {reason}")]
    Garbled { folder: PathBuf, reason: String },
    #[error("processes of pod {uid} would not die: {pids:?}")]
    Remains { uid: String, pids: Vec<u32> },
}

/// A supervisor that was alive when this was made.
#[derive(Debug, Clone)]
pub struct Supervisor {
    folder: PathBuf,
    mark: ProcessMark,
}

/// What is in a pod's folder.
#[derive(Debug)]
pub enum Found {
    /// It answers, or at least it is there.
    Alive(Supervisor),
    /// It is dead; this is what it wrote last. None: it never wrote anything.
    Dead(Option<PodState>),
}

/// Looks whose folder this is, now. Safe against a process that has got the number of a dead supervisor.
pub fn find(folder: &Path) -> io::Result<Found> {
    let state = record::read(folder)?;
    Ok(match state {
        Some(state) if processes::is_alive(&state.supervisor) => Found::Alive(Supervisor {
            folder: folder.to_owned(),
            mark: state.supervisor,
        }),
        state => Found::Dead(state),
    })
}

/// Starts a supervisor for a folder in which `pod.json` stands, and waits until it answers. `held` becomes its stdin,
/// which it keeps open for as long as it lives. `program` is ours: [`super::main`] answers in it.
pub async fn start(program: &Path, folder: &Path, held: Option<OwnedFd>) -> Result<Supervisor, SupervisorError> {
    let not_started = |reason: String| SupervisorError::NotStarted {
        folder: folder.to_owned(),
        reason,
    };
    let complaints = std::fs::File::options()
        .create(true)
        .append(true)
        .open(folder.join(COMPLAINTS_FILE))
        .map_err(|error| not_started(format!("cannot open {COMPLAINTS_FILE}: {error}")))?;
    let mut child = tokio::process::Command::new(program)
        .arg(super::SUBCOMMAND)
        .arg(folder)
        // Nothing of ours is for pods, least of all a mark of the pod that we may be in ourselves.
        .env_clear()
        .current_dir("/")
        .stdin(held.map_or_else(Stdio::null, Stdio::from))
        .stdout(Stdio::piped())
        .stderr(complaints)
        .kill_on_drop(false)
        .spawn()
        .map_err(|error| not_started(format!("cannot execute {}: {error}", program.display())))?;
    let mut said = String::new();
    if let Some(stdout) = child.stdout.take() {
        let mut reader = BufReader::new(stdout);
        match timeout(START_LIMIT, reader.read_line(&mut said)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(not_started(error.to_string())),
            Err(_) => return Err(not_started(format!("not within {} s", START_LIMIT.as_secs()))),
        }
    }
    // Whoever drops a child leaves it to tokio, which asks it how it ended when it does.
    drop(child);
    if said != READY {
        let said = said.trim();
        return Err(not_started(if said.is_empty() {
            "it ended without a word".to_owned()
        } else {
            said.to_owned()
        }));
    }
    match find(folder) {
        Ok(Found::Alive(supervisor)) => Ok(supervisor),
        Ok(Found::Dead(_)) => Err(not_started("it ended at once".to_owned())),
        Err(error) => Err(not_started(error.to_string())),
    }
}

/// Kills whatever a dead supervisor left of this pod, until nothing is left (N3). Gives back how many processes it met.
pub async fn remains(uid: &str) -> Result<usize, SupervisorError> {
    let wanted = uid.to_owned();
    let killed = tokio::task::spawn_blocking(move || {
        processes::kill_until_none(|| processes::of_pod(POD_UID_VARIABLE, &wanted), REMAINS_LIMIT)
    });
    match killed.await {
        Ok(Ok(count)) => Ok(count),
        Ok(Err(pids)) => Err(SupervisorError::Remains {
            uid: uid.to_owned(),
            pids,
        }),
        // Only if the runtime is being shut down.
        Err(_) => Ok(0),
    }
}

/// SIGKILL to a supervisor that does not answer, and to all that it leaves.
pub async fn put_down(supervisor: &Supervisor, uid: &str) -> Result<usize, SupervisorError> {
    if let Some(pidfd) = processes::open_marked(&supervisor.mark) {
        let _ = processes::signal(&pidfd, super::launch::SIGKILL);
    }
    remains(uid).await
}

impl Supervisor {
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn mark(&self) -> &ProcessMark {
        &self.mark
    }

    pub fn is_alive(&self) -> bool {
        processes::is_alive(&self.mark)
    }

    pub async fn look(&self) -> Result<PodState, SupervisorError> {
        match self.ask(&Ask::Look, ANSWER_LIMIT).await? {
            Answer::State { state } => Ok(state),
            other => Err(self.garbled(&other)),
        }
    }

    /// Starts an attempt unless it ever was started. How it goes is in the state.
    pub async fn start(&self, container: ContainerPlan) -> Result<(), SupervisorError> {
        self.done(
            &Ask::Start {
                container: Box::new(container),
            },
            ANSWER_LIMIT,
        )
        .await
    }

    pub async fn stop(
        &self,
        container: &str,
        attempt: u32,
        signal: i32,
        grace: Duration,
    ) -> Result<(), SupervisorError> {
        let grace_milliseconds = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        let ask = Ask::Stop {
            container: container.to_owned(),
            attempt,
            signal,
            grace_milliseconds,
        };
        self.done(&ask, ANSWER_LIMIT).await
    }

    pub async fn signal(&self, container: &str, attempt: u32, signal: i32) -> Result<(), SupervisorError> {
        self.done(
            &Ask::Signal {
                container: container.to_owned(),
                attempt,
                signal,
            },
            ANSWER_LIMIT,
        )
        .await
    }

    /// Kills the pod and ends the supervisor. Done when no process is left.
    pub async fn end(&self) -> Result<(), SupervisorError> {
        self.done(&Ask::End, END_LIMIT).await
    }

    /// The state now, and after each change; it ends with an error when the supervisor does. Dropping it ends it.
    pub async fn watch(
        &self,
    ) -> Result<impl Stream<Item = Result<PodState, SupervisorError>> + Send + use<>, SupervisorError> {
        let connection = self.send(&Ask::Watch).await?;
        let lines = BufReader::new(connection).lines();
        let this = self.clone();
        Ok(futures::stream::unfold(Some((lines, this)), async |watching| {
            let (mut lines, this) = watching?;
            let next = match lines.next_line().await {
                Ok(Some(line)) => this.read_answer(&line).and_then(|answer| match answer {
                    Answer::State { state } => Ok(state),
                    other => Err(this.garbled(&other)),
                }),
                Ok(None) => Err(this.gone(io::ErrorKind::UnexpectedEof.into())),
                Err(error) => Err(this.gone(error)),
            };
            let rest = next.is_ok().then_some((lines, this));
            Some((next, rest))
        }))
    }

    /// Runs a program beside a container's own. Dropping it kills the program: whoever wants it to outlive its user, as
    /// `kubectl exec` does, holds on to it.
    pub async fn exec(&self, exec: ExecPlan) -> Result<Exec, SupervisorError> {
        let mut connection = BufReader::new(self.send(&Ask::Exec { exec }).await?);
        let mut line = String::new();
        let read = timeout(ANSWER_LIMIT, connection.read_line(&mut line)).await;
        self.read_limited(read, ANSWER_LIMIT)?;
        match self.read_answer(&line)? {
            Answer::Done => {}
            other => return Err(self.garbled(&other)),
        }
        // What was read beyond the line is the first frames.
        let inbox = connection.buffer().to_vec();
        let (reader, writer) = connection.into_inner().into_split();
        let supervisor = self.clone();
        Ok(Exec {
            input: ExecInput { writer },
            output: ExecOutput {
                supervisor,
                reader,
                inbox,
            },
        })
    }

    async fn done(&self, ask: &Ask, limit: Duration) -> Result<(), SupervisorError> {
        match self.ask(ask, limit).await? {
            Answer::Done => Ok(()),
            other => Err(self.garbled(&other)),
        }
    }

    async fn ask(&self, ask: &Ask, limit: Duration) -> Result<Answer, SupervisorError> {
        let mut line = String::new();
        let talk = async {
            let mut connection = BufReader::new(self.send(ask).await?);
            match connection.read_line(&mut line).await {
                Ok(0) => Err(self.gone(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => Ok(()),
                Err(error) => Err(self.gone(error)),
            }
        };
        match timeout(limit, talk).await {
            Ok(outcome) => outcome?,
            Err(_) => {
                return Err(SupervisorError::Silent {
                    folder: self.folder.clone(),
                    limit,
                });
            }
        }
        self.read_answer(&line)
    }

    async fn send(&self, ask: &Ask) -> Result<UnixStream, SupervisorError> {
        let mut line = serde_json::to_vec(ask).map_err(|error| self.gone(error.into()))?;
        line.push(b'\n');
        // By way of the open folder: the system allows 107 bytes for a socket's path, and folders may be longer.
        let folder = std::fs::File::open(&self.folder).map_err(|error| self.gone(error))?;
        let path = format!(
            "/proc/self/fd/{}/{SOCKET_FILE}",
            std::os::fd::AsRawFd::as_raw_fd(&folder)
        );
        let talk = async {
            let mut connection = UnixStream::connect(path).await?;
            connection.write_all(&line).await?;
            Ok(connection)
        };
        match timeout(ANSWER_LIMIT, talk).await {
            Ok(connection) => connection.map_err(|error| self.gone(error)),
            Err(_) => Err(SupervisorError::Silent {
                folder: self.folder.clone(),
                limit: ANSWER_LIMIT,
            }),
        }
    }

    fn read_limited(
        &self,
        read: Result<io::Result<usize>, tokio::time::error::Elapsed>,
        limit: Duration,
    ) -> Result<(), SupervisorError> {
        match read {
            Ok(Ok(0)) => Err(self.gone(io::ErrorKind::UnexpectedEof.into())),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(self.gone(error)),
            Err(_) => Err(SupervisorError::Silent {
                folder: self.folder.clone(),
                limit,
            }),
        }
    }

    fn read_answer(&self, line: &str) -> Result<Answer, SupervisorError> {
        match serde_json::from_str(line) {
            Ok(Answer::Refused { refusal, message }) => Err(SupervisorError::Refused { refusal, message }),
            Ok(answer) => Ok(answer),
            Err(error) => Err(SupervisorError::Garbled {
                folder: self.folder.clone(),
                reason: error.to_string(),
            }),
        }
    }

    fn gone(&self, source: io::Error) -> SupervisorError {
        SupervisorError::Gone {
            folder: self.folder.clone(),
            source,
        }
    }

    fn garbled(&self, answer: &Answer) -> SupervisorError {
        SupervisorError::Garbled {
            folder: self.folder.clone(),
            reason: format!("{answer:?} answers another question"),
        }
    }
}

/// A program that runs beside a container's own: both of its directions. Dropping [`ExecOutput`] and [`ExecInput`] both
/// kills it.
#[derive(Debug)]
pub struct Exec {
    pub input: ExecInput,
    pub output: ExecOutput,
}

#[derive(Debug)]
pub struct ExecInput {
    writer: tokio::net::unix::OwnedWriteHalf,
}

impl ExecInput {
    /// Bytes for its stdin. Waits while the program does not read.
    pub async fn stdin(&mut self, bytes: &[u8]) -> io::Result<()> {
        for chunk in bytes.chunks(FRAME_CHUNK_BYTES) {
            self.writer.write_all(&Frame::Stdin(chunk.to_vec()).encode()).await?;
        }
        Ok(())
    }

    /// No more will come.
    pub async fn end_stdin(&mut self) -> io::Result<()> {
        self.writer.write_all(&Frame::Stdin(Vec::new()).encode()).await
    }

    pub async fn resize(&mut self, columns: u16, rows: u16) -> io::Result<()> {
        self.writer.write_all(&Frame::Resize { columns, rows }.encode()).await
    }
}

/// What comes out of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEvent {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    /// The last one.
    Exit(Exit),
}

#[derive(Debug)]
pub struct ExecOutput {
    supervisor: Supervisor,
    reader: tokio::net::unix::OwnedReadHalf,
    inbox: Vec<u8>,
}

impl ExecOutput {
    /// The next piece. Cancelling it loses nothing.
    pub async fn next(&mut self) -> Result<ExecEvent, SupervisorError> {
        loop {
            match Frame::decode(&mut self.inbox) {
                Ok(Some(Frame::Stdout(bytes))) => return Ok(ExecEvent::Stdout(bytes)),
                Ok(Some(Frame::Stderr(bytes))) => return Ok(ExecEvent::Stderr(bytes)),
                Ok(Some(Frame::Exit(exit))) => return Ok(ExecEvent::Exit(exit)),
                Ok(Some(frame @ (Frame::Stdin(_) | Frame::Resize { .. }))) => {
                    let reason = format!("{frame:?} is for the program");
                    return Err(SupervisorError::Garbled {
                        folder: self.supervisor.folder.clone(),
                        reason,
                    });
                }
                Ok(None) => match self.reader.read_buf(&mut self.inbox).await {
                    Ok(0) => return Err(self.supervisor.gone(io::ErrorKind::UnexpectedEof.into())),
                    Ok(_) => {}
                    Err(error) => return Err(self.supervisor.gone(error)),
                },
                Err(error) => {
                    let folder = self.supervisor.folder.clone();
                    return Err(SupervisorError::Garbled {
                        folder,
                        reason: error.to_string(),
                    });
                }
            }
        }
    }
}
