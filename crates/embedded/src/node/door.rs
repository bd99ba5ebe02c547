//! What the API asks of the node that runs a pod: its log, and a command run inside.
//!
//! A node's agent implements [`Doors`] and opens them with [`crate::Cluster::open_doors`] under the node's name; it
//! closes them when it stops, is killed or cut off. The API (`api::streams`) has by then found the pod, and made sure that
//! it has such a container and is on that node. A pod whose node has no doors gets a sentence that says so.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use crate::fault::Fault;
use crate::node::logs::LogQuery;

/// One node's answers about the pods it runs.
pub trait Doors: Send + Sync + fmt::Debug {
    /// What a container said. Which of its instances is meant, [`crate::node::logs::chosen`] tells from the newest status
    /// that the node has, with the reference's texts where there is none.
    fn log<'a>(&'a self, pod: &'a Pod, container: &'a str, query: LogQuery) -> BoxFuture<'a, Result<LogStream, Fault>>;

    /// Starts a command in a running container. A container that does not run: [`not_running`].
    fn exec<'a>(&'a self, pod: &'a Pod, container: &'a str, order: ExecOrder)
    -> BoxFuture<'a, Result<Executed, Fault>>;
}

/// What is to be run, and which of its streams somebody holds the other end of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOrder {
    pub command: Vec<String>,
    pub stdin: bool,
    pub stdout: bool,
    /// Never together with a terminal, which has one stream for both.
    pub stderr: bool,
    pub tty: bool,
}

/// A command that runs. When its user goes away, all of this is dropped: the node sees `input` end and `output` closed.
/// As in the reference (kubernetes/kubernetes#89031, kubernetes/kubectl#1076) the command runs on, with a terminal or without:
/// what it writes is read and dropped.
#[derive(Debug)]
pub struct Executed {
    /// To its standard input; dropping it is the end of the input. `None`: it has none.
    pub input: Option<mpsc::Sender<Bytes>>,
    /// What it writes, in the order in which it came. Ends when all that it wrote has been read.
    pub output: mpsc::Receiver<Output>,
    /// Of its terminal. `None`: it has none.
    pub size: Option<watch::Sender<TerminalSize>>,
    /// How it ended. A sender that is dropped has lost the command.
    pub end: oneshot::Receiver<ExecEnd>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    Stdout(Bytes),
    Stderr(Bytes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TerminalSize {
    pub columns: u16,
    pub rows: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEnd {
    /// With this code; 128 + n where signal n ended it.
    Exited(i32),
    /// It could not be started, or was lost: why.
    Failed(String),
}

/// The other ends of an [`Executed`], for the node.
#[derive(Debug)]
pub struct ExecSide {
    pub input: Option<mpsc::Receiver<Bytes>>,
    pub output: mpsc::Sender<Output>,
    pub size: Option<watch::Receiver<TerminalSize>>,
    pub end: oneshot::Sender<ExecEnd>,
}

/// Pieces that wait in one direction, of at most some 32 KiB each: a command that writes faster than its user reads is
/// held up, as by a pipe.
const PIECES: usize = 16;

impl Executed {
    /// Both ends, joined.
    #[must_use]
    pub fn pair(order: &ExecOrder) -> (Self, ExecSide) {
        let (input, input_side) = mpsc::channel(PIECES);
        let (output_side, output) = mpsc::channel(PIECES);
        let (size, size_side) = watch::channel(TerminalSize::default());
        let (end_side, end) = oneshot::channel();
        let executed = Self {
            input: order.stdin.then_some(input),
            output,
            size: order.tty.then_some(size),
            end,
        };
        let side = ExecSide {
            input: order.stdin.then_some(input_side),
            output: output_side,
            size: order.tty.then_some(size_side),
            end: end_side,
        };
        (executed, side)
    }
}

/// What is said of a command for a container that does not run, in the reference's words.
#[must_use]
pub fn not_running(container: &str) -> Fault {
    let name = crate::fault::quote(container);
    Fault::new(
        500,
        "InternalError",
        format!("unable to upgrade connection: container not found ({name})"),
    )
}

/// Bytes of a log as they become known.
pub struct LogStream(Pin<Box<dyn Stream<Item = Bytes> + Send>>);

impl LogStream {
    #[must_use]
    pub fn new(bytes: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self(Box::pin(bytes))
    }
}

impl Stream for LogStream {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.0.as_mut().poll_next(context)
    }
}

impl fmt::Debug for LogStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LogStream")
    }
}

/// Commands under way at once. Their connections are no longer counted among the listener's.
const COMMANDS: usize = 1_024;

/// Every node's doors, by its name.
#[derive(Debug)]
pub(crate) struct AllDoors {
    nodes: RwLock<BTreeMap<String, Arc<dyn Doors>>>,
    commands: Arc<Semaphore>,
}

impl Default for AllDoors {
    fn default() -> Self {
        Self {
            nodes: RwLock::default(),
            commands: Arc::new(Semaphore::new(COMMANDS)),
        }
    }
}

impl AllDoors {
    pub(crate) fn open(&self, node: &str, doors: Arc<dyn Doors>) {
        let mut all = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(node.to_owned(), doors);
    }

    pub(crate) fn close(&self, node: &str) {
        self.nodes.write().unwrap_or_else(PoisonError::into_inner).remove(node);
    }

    pub(crate) fn of(&self, node: &str) -> Option<Arc<dyn Doors>> {
        let all = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        all.get(node).cloned()
    }

    /// Room for one more command, to be held while it runs.
    pub(crate) fn room(&self) -> Result<OwnedSemaphorePermit, Fault> {
        self.commands.clone().try_acquire_owned().map_err(|_| {
            let text = format!("{COMMANDS} commands are under way already: end some of them, and try again");
            Fault::new(429, "TooManyRequests", text).retry_after(1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_so_many_commands_and_again_when_one_has_ended() {
        let doors = AllDoors::default();
        let mut under_way: Vec<_> = (0..COMMANDS).map(|_| doors.room().unwrap()).collect();
        assert_eq!(doors.room().unwrap_err().code, 429);
        under_way.pop();
        assert!(doors.room().is_ok());
    }
}
