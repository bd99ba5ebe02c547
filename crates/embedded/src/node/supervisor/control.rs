//! The line between a supervisor and the stages it starts: one byte with descriptors down, reports up.
//!
//! A stage's stdin is one end of a socket pair. Down go single bytes, each with the descriptors that belong to it: an
//! [`Order`] is in a memory file among them, so that no order, however long its environment, can block the supervisor.
//! Up come [`Report`]s, one JSON line each. The end of the line is news as well: the stage's end closes itself when the
//! program is executed, so silence and then the end means that it runs.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use std::collections::BTreeMap;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize};

use super::protocol::{Isolation, Mount};

/// Every choice made about one program: what the last stage does before it becomes that program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Order {
    pub isolation: Isolation,
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub workdir: PathBuf,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub tty: bool,
    pub place: Place,
    /// Go all the way and then do not execute it (the probe).
    pub only_try: bool,
}

/// Where the program finds itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Place {
    /// The host's files.
    Host,
    /// A root that is made for it.
    New { hostname: String, root: RootOrder },
    /// The namespaces of a container that runs; their descriptors come after the standard ones: mount, host name, and
    /// user if there is one.
    Beside,
}

/// What a private root is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RootOrder {
    /// An empty folder of the pod to build it on. Nothing is ever written there, only mounted.
    pub scaffold: PathBuf,
    pub image: Option<PathBuf>,
    pub read_only: bool,
    pub etc: Option<PathBuf>,
    pub mounts: Vec<Mount>,
    pub masked: Vec<PathBuf>,
}

/// What a stage says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Report {
    /// The first stage: the process that will become the program.
    Child { pid: u32 },
    /// The last stage: all is prepared, it waits for [`GO`].
    Ready,
    /// The last stage: the terminal's other end comes with this.
    Terminal,
    /// It cannot be; the stage ends.
    Failed { message: String },
}

/// The first stage of a join: with the user (if any) and PID namespaces.
pub(super) const JOIN: u8 = b'j';
/// With the order and all that belongs to it.
pub(super) const ORDER: u8 = b'o';
/// Execute.
pub(super) const GO: u8 = b'g';

/// More than any message has: order, three standard ones, three namespaces.
const DESCRIPTORS_LIMIT: usize = 8;

/// Sends one byte, with descriptors. Never blocks: a few bytes fit into any socket's buffer.
pub(super) fn send(control: &UnixStream, byte: u8, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_LIMIT))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    rustix::net::sendmsg(control, &[IoSlice::new(&[byte])], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives at most `buffer` with the descriptors that came along; 0 bytes at the end of the line.
pub(super) fn receive(control: &UnixStream, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_LIMIT))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(buffer)];
    let message = rustix::net::recvmsg(control, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    Ok((message.bytes, descriptors))
}

/// Waits for one byte that must be `wanted`. None: the supervisor is gone, or thought better of it.
pub(super) fn expect(control: &UnixStream, wanted: u8) -> io::Result<Option<Vec<OwnedFd>>> {
    let mut byte = [0u8];
    let (count, descriptors) = receive(control, &mut byte)?;
    match (count, byte) {
        (0, _) => Ok(None),
        (_, [byte]) if byte == wanted => Ok(Some(descriptors)),
        (_, [byte]) => Err(io::Error::other(format!("told {byte} where {wanted} should come"))),
    }
}

impl Report {
    pub(super) fn send(&self, control: &UnixStream, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        rustix::net::sendmsg(control, &[IoSlice::new(&line)], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

impl Order {
    /// As a memory file that no path leads to: environments hold secrets.
    pub(super) fn to_file(&self) -> io::Result<File> {
        let mut file = File::from(memfd_create("order", MemfdFlags::CLOEXEC)?);
        file.write_all(&serde_json::to_vec(self)?)?;
        file.rewind()?;
        Ok(file)
    }

    pub(super) fn from_file(descriptor: OwnedFd) -> io::Result<Order> {
        let mut text = Vec::new();
        File::from(descriptor).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

/// The control line of a stage: its stdin, kept under another number so that the program may have stdin.
pub(super) fn of_this_stage() -> io::Result<UnixStream> {
    Ok(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?))
}
