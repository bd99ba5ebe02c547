//! A command's streams on one WebSocket: every message begins with the number of its channel.
//!
//! | channel | from | what |
//! |---|---|---|
//! | 0 | client | standard input |
//! | 1, 2 | server | standard output and error |
//! | 3 | server | how it ended, as a `Status`; the last message |
//! | 4 | client | the terminal's size: `{"Width": 80, "Height": 24}` |
//! | 255 | client, v5 | the next byte names a channel that has ended |
//!
//! Reading and writing go on side by side, so that neither a client that writes without reading nor a command that does
//! the same holds up the other direction. A client that goes away drops the command's [`Executed`].

use std::future::Future;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};

use super::frame::{self, CloseCode, Event, Messages};
use super::handshake::Protocol;
use crate::fault::Fault;
use crate::node::door::{ExecEnd, ExecOrder, Executed, Output, TerminalSize};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;
const ENDED: u8 = 255;

/// Pongs that wait to be sent. Who pings faster than we can answer is read no faster.
const PONGS: usize = 8;
/// How long the client may take to end its side once we have.
const FAREWELL: Duration = Duration::from_secs(5);

/// Serves a connection to its end. `start` starts the command; `stopped` comes when the cluster stops.
pub(super) async fn serve<S>(
    stream: S,
    protocol: Protocol,
    order: &ExecOrder,
    start: impl Future<Output = Result<Executed, Fault>>,
    stopped: impl Future<Output = ()>,
) where
    S: AsyncRead + AsyncWrite,
{
    let (read, write) = tokio::io::split(stream);
    let mut writer = Writer { write, is_cut: false };
    let mut reader = Reader {
        read,
        buffer: BytesMut::new(),
        messages: Messages::default(),
    };
    let parting = tokio::select! {
        parting = talk(&mut reader, &mut writer, protocol, order, start) => parting,
        () = stopped => Parting::Ours(CloseCode::GoingAway),
    };
    let code = match parting {
        Parting::Gone => return,
        // In the middle of a frame no other can begin.
        _ if writer.is_cut => return,
        Parting::Theirs => CloseCode::Normal,
        Parting::Ours(code) => code,
    };
    let farewell = async {
        writer.send(&frame::close(code)).await?;
        if parting != Parting::Theirs {
            // What it still sends is read: closing before that would reset the connection, and our last words with it.
            reader.until_closed().await;
        }
        writer.write.shutdown().await
    };
    let _ = tokio::time::timeout(FAREWELL, farewell).await;
}

/// How a conversation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parting {
    /// The connection is no more.
    Gone,
    /// The client said so.
    Theirs,
    /// We are to say so.
    Ours(CloseCode),
}

impl Parting {
    /// After our last message.
    fn after(sent: &std::io::Result<()>) -> Self {
        match sent {
            Ok(()) => Self::Ours(CloseCode::Normal),
            Err(_) => Self::Gone,
        }
    }
}

async fn talk<S>(
    reader: &mut Reader<S>,
    writer: &mut Writer<S>,
    protocol: Protocol,
    order: &ExecOrder,
    start: impl Future<Output = Result<Executed, Fault>>,
) -> Parting
where
    S: AsyncRead + AsyncWrite,
{
    let executed = match start.await {
        Ok(executed) => executed,
        Err(fault) => {
            let status = message(STATUS, fault.status().to_string().as_bytes());
            return Parting::after(&writer.send(&status).await);
        }
    };
    let Executed {
        input,
        mut output,
        size,
        end,
    } = executed;
    let (pongs, mut answers) = mpsc::channel::<Vec<u8>>(PONGS);
    let receiving = receive(reader, protocol, input, size, pongs);
    let sending = async {
        // As the reference does: an empty message on the first channel tells the client that all is set up.
        let first = match order {
            ExecOrder { stdout: true, .. } => STDOUT,
            ExecOrder { stderr: true, .. } => STDERR,
            _ => STATUS,
        };
        writer.send(&message(first, &[])).await?;
        loop {
            let bytes = tokio::select! {
                Some(pong) = answers.recv() => frame::pong(pong),
                piece = output.recv() => match piece {
                    Some(Output::Stdout(bytes)) => message(STDOUT, &bytes),
                    Some(Output::Stderr(bytes)) => message(STDERR, &bytes),
                    None => break,
                },
            };
            writer.send(&bytes).await?;
        }
        let end = end
            .await
            .unwrap_or_else(|_| ExecEnd::Failed("the node lost it".to_owned()));
        let status = status(&end, &order.command).to_string();
        writer.send(&message(STATUS, status.as_bytes())).await
    };
    tokio::select! {
        parting = receiving => parting,
        sent = sending => Parting::after(&sent),
    }
}

/// Takes what the client sends, until it goes or breaks the protocol.
async fn receive<S: AsyncRead>(
    reader: &mut Reader<S>,
    protocol: Protocol,
    mut input: Option<mpsc::Sender<Bytes>>,
    size: Option<watch::Sender<TerminalSize>>,
    pongs: mpsc::Sender<Vec<u8>>,
) -> Parting {
    loop {
        let message = match reader.next().await {
            Ok(Some(Event::Message(message))) => message,
            Ok(Some(Event::Ping(payload))) => {
                // The sending side lives as long as this one.
                let _ = pongs.send(payload).await;
                continue;
            }
            Ok(Some(Event::Close)) => return Parting::Theirs,
            Ok(None) => return Parting::Gone,
            Err(code) => return Parting::Ours(code),
        };
        let mut message = Bytes::from(message);
        if message.is_empty() {
            continue;
        }
        let channel = message.split_to(1);
        match channel.first().copied() {
            Some(STDIN) if !message.is_empty() => {
                if let Some(sender) = &input
                    && sender.send(message).await.is_err()
                {
                    // It reads no more. What it is sent is lost, as in a closed pipe.
                    input = None;
                }
            }
            Some(ENDED) if protocol == Protocol::V5 && message.first() == Some(&STDIN) => input = None,
            Some(RESIZE) => {
                if let (Some(size), Ok(wanted)) = (&size, serde_json::from_slice::<Wanted>(&message)) {
                    size.send_replace(TerminalSize {
                        columns: wanted.width,
                        rows: wanted.height,
                    });
                }
            }
            // As in the reference, what nobody reads is passed over.
            _ => {}
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Wanted {
    width: u16,
    height: u16,
}

fn message(channel: u8, bytes: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(bytes.len() + 1);
    payload.push(channel);
    payload.extend_from_slice(bytes);
    frame::binary(payload)
}

/// How a command ended, in the reference's words.
fn status(end: &ExecEnd, command: &[String]) -> Value {
    match end {
        ExecEnd::Exited(0) => json!({"metadata": {}, "status": "Success"}),
        ExecEnd::Exited(code) => json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!(
                "command terminated with non-zero exit code: error executing command [{}], exit code {code}",
                command.join(" ")
            ),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        ExecEnd::Failed(why) => Fault::internal(format!("error executing command in container: {why}")).status(),
    }
}

/// What goes to the client.
#[derive(Debug)]
struct Writer<S> {
    write: WriteHalf<S>,
    /// A frame has been begun, and whoever sent it was dropped before its end.
    is_cut: bool,
}

impl<S: AsyncWrite> Writer<S> {
    async fn send(&mut self, frame: &[u8]) -> std::io::Result<()> {
        self.is_cut = true;
        self.write.write_all(frame).await?;
        self.is_cut = false;
        self.write.flush().await
    }
}

/// What comes from the client.
#[derive(Debug)]
struct Reader<S> {
    read: ReadHalf<S>,
    buffer: BytesMut,
    messages: Messages,
}

impl<S: AsyncRead> Reader<S> {
    /// `None`: it went without a word.
    async fn next(&mut self) -> Result<Option<Event>, CloseCode> {
        loop {
            while let Some(frame) = frame::decode(&mut self.buffer)? {
                if let Some(event) = self.messages.push(frame)? {
                    return Ok(Some(event));
                }
            }
            match self.read.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return Ok(None),
                Ok(_) => {}
            }
        }
    }

    /// Until the client has closed too. One that does not keep to the protocol is read until it goes.
    async fn until_closed(&mut self) {
        loop {
            match self.next().await {
                Ok(Some(Event::Close) | None) => return,
                Ok(Some(_)) => {}
                Err(_) => break,
            }
        }
        loop {
            self.buffer.clear();
            if !matches!(self.read.read_buf(&mut self.buffer).await, Ok(1..)) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_code_is_a_cause_of_its_status() {
        let command = ["sh".to_owned(), "-c".to_owned(), "exit 3".to_owned()];
        let failed = status(&ExecEnd::Exited(3), &command);
        assert_eq!(failed["reason"], "NonZeroExitCode");
        assert_eq!(
            failed["details"]["causes"][0],
            json!({"reason": "ExitCode", "message": "3"})
        );
        assert_eq!(
            failed["message"],
            "command terminated with non-zero exit code: error executing command [sh -c exit 3], exit code 3"
        );
        assert_eq!(status(&ExecEnd::Exited(0), &command)["status"], "Success");
        let lost = status(&ExecEnd::Failed("no such file".to_owned()), &command);
        assert_eq!(
            lost["message"],
            "Internal error occurred: error executing command in container: no such file"
        );
    }
}
