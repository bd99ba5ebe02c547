//! Those who are connected to the supervisor, and what each is here for.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use super::exec::Exec;
use super::protocol::{Answer, Ask};

/// The longest ask: a container's plan with as large an environment as the kernel would take.
const LINE_LIMIT_BYTES: usize = 4 * 1024 * 1024;

#[derive(Debug)]
pub(super) enum Role {
    Asking,
    /// Has been told all states up to this version.
    Watching {
        told: Option<u64>,
    },
    Executing(Box<Exec>),
    /// Asked for the pod's end.
    AwaitingEnd,
    /// Will be let go once it has what it was sent.
    Leaving,
}

#[derive(Debug)]
pub(super) struct Peer {
    stream: UnixStream,
    pub inbox: Vec<u8>,
    pub outbox: Vec<u8>,
    pub role: Role,
    gone: bool,
}

impl Peer {
    pub(super) fn new(stream: UnixStream) -> io::Result<Peer> {
        stream.set_nonblocking(true)?;
        Ok(Peer {
            stream,
            inbox: Vec::new(),
            outbox: Vec::new(),
            role: Role::Asking,
            gone: false,
        })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub(super) fn may_read(&self) -> bool {
        match &self.role {
            Role::Executing(exec) => !exec.is_full(),
            Role::Leaving => false,
            Role::Asking | Role::Watching { .. } | Role::AwaitingEnd => true,
        }
    }

    /// Takes what was sent. The end of it is the end of the peer: nobody of ours closes only one direction.
    pub(super) fn read(&mut self) {
        let mut buffer = [0u8; 32 * 1024];
        while self.may_read() && !self.gone && self.inbox.len() < LINE_LIMIT_BYTES {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.gone = true,
                Ok(count) => {
                    self.inbox.extend(buffer.iter().take(count));
                    if matches!(self.role, Role::Executing(_)) {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.gone = true,
            }
        }
    }

    /// Sends what can be sent.
    pub(super) fn write(&mut self) {
        while !self.outbox.is_empty() && !self.gone {
            match self.stream.write(&self.outbox) {
                Ok(count) => drop(self.outbox.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.gone = true,
            }
        }
    }

    /// Sends all there is, waiting for a moment at most: the last thing a supervisor does.
    pub(super) fn write_out(&mut self) {
        let _ = self.stream.set_nonblocking(false);
        let _ = self.stream.set_write_timeout(Some(std::time::Duration::from_secs(1)));
        self.write();
    }

    pub(super) fn answer(&mut self, answer: &Answer) {
        match serde_json::to_vec(answer) {
            Ok(line) => {
                self.outbox.extend(line);
                self.outbox.push(b'\n');
            }
            Err(_) => self.gone = true,
        }
    }

    /// The next ask, if a whole line of one is there.
    pub(super) fn next_ask(&mut self) -> Option<Result<Ask, String>> {
        if !matches!(self.role, Role::Asking) {
            return None;
        }
        let Some(end) = self.inbox.iter().position(|byte| *byte == b'\n') else {
            return (self.inbox.len() >= LINE_LIMIT_BYTES).then(|| {
                self.inbox.clear();
                Err(format!("the line is longer than {LINE_LIMIT_BYTES} bytes"))
            });
        };
        let line: Vec<u8> = self.inbox.drain(..=end).collect();
        Some(serde_json::from_slice(&line).map_err(|error| format!("the line is not an ask: {error}")))
    }

    pub(super) fn is_over(&self) -> bool {
        self.gone || (matches!(self.role, Role::Leaving) && self.outbox.is_empty())
    }

    /// Lets it go at once.
    pub(super) fn drop_it(&mut self) {
        self.gone = true;
    }
}
