//! A program beside a container's own: a probe, a hook, or somebody's shell (spec 11.6).
//!
//! It lives on one connection. Bytes go both ways in frames, each side held back when the other does not take them; when
//! the connection goes, the program is killed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::termios::{Winsize, tcsetwinsize};

use super::container::{Container, Ended, order_beside};
use super::launch::{Launch, Standard};
use super::log::Stream;
use super::protocol::{ExecPlan, Exit, FRAME_CHUNK_BYTES, Frame, FrameError, Isolation, PodPlan};

/// What may wait for a side that does not take it, before the other is no longer read.
const WAITING_BYTES: usize = 256 * 1024;
/// After the program's end its last words may still be on their way through the terminal, or something that it left
/// holds the pipe open for ever.
const LINGER: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Exec {
    pub launch: Launch,
    stdin: Option<File>,
    stdout: Option<File>,
    stderr: Option<File>,
    /// stdin and stdout are the same terminal.
    tty: bool,
    size: Option<Winsize>,
    waiting_input: Vec<u8>,
    /// No more input will come: close stdin once what waits is written.
    input_ended: bool,
    /// Output that may still be sent; None: any.
    budget: Option<u64>,
    kill_at: Option<Instant>,
    timed_out: bool,
    ended: Option<Ended>,
    linger_until: Option<Instant>,
}

impl Exec {
    pub(super) fn start(pod: &PodPlan, beside: &Container, plan: &ExecPlan, now: Instant) -> io::Result<Exec> {
        let order = order_beside(pod, &beside.plan, plan.argv.clone(), plan.tty);
        let (mut stdin, mut stdout, mut stderr) = (None, None, None);
        let standard = if plan.tty {
            None
        } else {
            let (their_stdin, our_stdin) = io::pipe()?;
            let (our_stdout, their_stdout) = io::pipe()?;
            let (our_stderr, their_stderr) = io::pipe()?;
            stdin = Some(File::from(OwnedFd::from(our_stdin)));
            stdout = Some(File::from(OwnedFd::from(our_stdout)));
            stderr = Some(File::from(OwnedFd::from(our_stderr)));
            for pipe in stdin.iter().chain(&stdout).chain(&stderr) {
                rustix::io::ioctl_fionbio(pipe, true)?;
            }
            Some(Standard {
                stdin: their_stdin.into(),
                stdout: their_stdout.into(),
                stderr: their_stderr.into(),
            })
        };
        let id = &beside.plan.id;
        let launch = match (&beside.namespaces, beside.launch.main()) {
            (Some(namespaces), Some(main)) => Launch::join(&pod.uid, id, &order, standard.as_ref(), namespaces, main)?,
            (None, _) if pod.isolation == Isolation::Paths => Launch::start(&pod.uid, id, &order, standard.as_ref())?,
            _ => return Err(io::Error::other("its namespaces could not be opened when it started")),
        };
        Ok(Exec {
            launch,
            stdin,
            stdout,
            stderr,
            tty: plan.tty,
            size: None,
            waiting_input: Vec::new(),
            input_ended: !plan.stdin,
            budget: plan.max_output_bytes,
            kill_at: plan
                .timeout_milliseconds
                .map(|timeout| now + Duration::from_millis(timeout)),
            timed_out: false,
            ended: None,
            linger_until: None,
        })
    }

    /// Frames from the other side, as far as `inbox` has whole ones.
    pub(super) fn hear(&mut self, inbox: &mut Vec<u8>) -> Result<(), FrameError> {
        while !self.is_full() {
            match Frame::decode(inbox)? {
                None => break,
                Some(Frame::Stdin(bytes)) if bytes.is_empty() => self.input_ended = true,
                Some(Frame::Stdin(_)) if self.input_ended => {}
                Some(Frame::Stdin(bytes)) => self.waiting_input.extend(bytes),
                Some(Frame::Resize { columns, rows }) => {
                    self.size = Some(Winsize {
                        ws_row: rows,
                        ws_col: columns,
                        ws_xpixel: 0,
                        ws_ypixel: 0,
                    });
                    self.apply_size();
                }
                Some(frame) => return Err(FrameError(format!("{frame:?} is not for the program"))),
            }
        }
        Ok(())
    }

    /// No more frames are taken until the program reads.
    pub(super) fn is_full(&self) -> bool {
        self.waiting_input.len() >= WAITING_BYTES
    }

    fn apply_size(&mut self) {
        if let (true, Some(terminal), Some(size)) = (self.tty, &self.stdout, self.size) {
            let _ = tcsetwinsize(terminal, size);
        }
    }

    /// What can be written to when something waits for it.
    pub(super) fn input(&self) -> Option<BorrowedFd<'_>> {
        self.stdin
            .as_ref()
            .filter(|_| !self.waiting_input.is_empty())
            .map(AsFd::as_fd)
    }

    /// What can be read, while the other side keeps up.
    pub(super) fn outputs(&self, outbox: usize) -> impl Iterator<Item = (Stream, BorrowedFd<'_>)> {
        let keeps_up = outbox < WAITING_BYTES;
        let stdout = self.stdout.iter().map(|file| (Stream::Stdout, file.as_fd()));
        let stderr = self.stderr.iter().map(|file| (Stream::Stderr, file.as_fd()));
        stdout.chain(stderr).filter(move |_| keeps_up)
    }

    fn write_input(&mut self) {
        while let (Some(stdin), false) = (&mut self.stdin, self.waiting_input.is_empty()) {
            match stdin.write(&self.waiting_input) {
                Ok(count) => drop(self.waiting_input.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It does not want it, nor any more.
                Err(_) => {
                    self.stdin = None;
                    self.waiting_input.clear();
                    self.input_ended = true;
                }
            }
        }
        if self.input_ended && !self.tty {
            self.stdin = None;
        }
    }

    /// Takes output into frames. True: there may be more.
    pub(super) fn read_output(&mut self, stream: Stream, outbox: &mut Vec<u8>) -> bool {
        let source = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let Some(file) = source else { return false };
        let mut buffer = [0u8; FRAME_CHUNK_BYTES];
        match file.read(&mut buffer) {
            Ok(count) if count > 0 => {
                let allowed = self
                    .budget
                    .map_or(count, |left| usize::try_from(left).unwrap_or(usize::MAX).min(count));
                if let Some(left) = &mut self.budget {
                    *left = left.saturating_sub(u64::try_from(count).unwrap_or(u64::MAX));
                }
                let bytes = buffer.get(..allowed).unwrap_or_default().to_vec();
                if !bytes.is_empty() {
                    outbox.extend(match stream {
                        Stream::Stdout => Frame::Stdout(bytes).encode(),
                        Stream::Stderr => Frame::Stderr(bytes).encode(),
                    });
                }
                true
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            Ok(_) | Err(_) => {
                *source = None;
                false
            }
        }
    }

    pub(super) fn main_reaped(&mut self, ended: Ended) {
        self.launch.hear();
        self.ended = Some(ended);
    }

    pub(super) fn kill(&mut self) {
        if self.ended.is_none() {
            self.launch.kill();
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        [self.kill_at.filter(|_| self.ended.is_none()), self.linger_until]
            .into_iter()
            .flatten()
            .min()
    }

    /// Takes whatever step can be taken. True: it is over, and the last frame is in the outbox.
    pub(super) fn settle(&mut self, now: Instant, outbox: &mut Vec<u8>) -> bool {
        if let Some(terminal) = self.launch.take_terminal() {
            let _ = rustix::io::ioctl_fionbio(&terminal, true);
            self.stdin = terminal.try_clone().ok().map(File::from);
            self.stdout = Some(File::from(terminal));
            self.apply_size();
        }
        self.write_input();
        if self.launch.is_stillborn() && self.ended.is_none() {
            self.ended = Some(Ended::Signal(super::launch::SIGKILL));
        }
        if self.launch.waits() {
            self.launch.release();
        }
        if self.ended.is_none() && self.kill_at.is_some_and(|kill_at| kill_at <= now) {
            self.timed_out = true;
            self.kill_at = None;
            self.launch.kill();
        }
        let Some(ended) = self.ended else { return false };
        for stream in [Stream::Stdout, Stream::Stderr] {
            while outbox.len() < WAITING_BYTES && self.read_output(stream, outbox) {}
        }
        if outbox.len() >= WAITING_BYTES {
            // There may be more, for as long as the other side takes.
            self.linger_until = None;
            return false;
        }
        let linger_until = *self.linger_until.get_or_insert(now + LINGER);
        let drained = self.stdout.is_none() && self.stderr.is_none();
        if !drained && now < linger_until {
            return false;
        }
        let start_error = self.launch.failure().map(str::to_owned);
        let code = match &start_error {
            Some(failure) if failure.contains("not found") || failure.contains("no such file") => 127,
            Some(_) => 126,
            None => ended.code(),
        };
        outbox.extend(
            Frame::Exit(Exit {
                code,
                timed_out: self.timed_out,
                start_error,
            })
            .encode(),
        );
        true
    }
}
