//! One plain connection, with one command in flight: it can tell a server that closed it while it was idle from one that
//! closed it on a command.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::observe::client::Password;
use crate::observe::reply::Reply;

/// Silence of this length with a command in flight is an error (spec 11).
pub(super) const SILENCE: Duration = Duration::from_secs(5);
/// No answer that this client asks for is longer.
const LONGEST: usize = 16 << 20;

/// What went wrong with a connection, in one word for the count and in the words of the system.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) kind: &'static str,
    pub(super) words: String,
}

impl Broken {
    fn of(kind: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self {
            kind,
            words: error.to_string(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr, password: Option<&Password>) -> Result<Self, Broken> {
        let opening = tokio::time::timeout(SILENCE, TcpStream::connect(address)).await;
        let stream = opening
            .map_err(|_| io::Error::other(format!("{address}: no connection within {} s", SILENCE.as_secs())))
            .and_then(|opened| opened)
            .map_err(Broken::of("refused"))?;
        stream.set_nodelay(true).map_err(Broken::of("refused"))?;
        let mut connection = Self {
            stream: BufReader::new(stream),
        };
        if let Some(password) = password {
            let answer = connection.ask(&[b"AUTH", password.reveal().as_bytes()]).await?;
            if let Some(words) = answer.refusal() {
                return Err(Broken {
                    kind: "password",
                    words: words.to_owned(),
                });
            }
        }
        Ok(connection)
    }

    /// Whether the server has closed it while nothing was asked.
    pub(super) fn is_closed(&self) -> bool {
        let mut byte = [0];
        let read = self.stream.get_ref().try_read(&mut byte);
        // What comes unasked belongs to nobody: such a connection is of no use either.
        !matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// One command, one answer.
    pub(super) async fn ask(&mut self, words: &[&[u8]]) -> Result<Reply, Broken> {
        let asked = tokio::time::timeout(SILENCE, self.exchange(words)).await;
        match asked {
            Ok(answer) => answer.map_err(Broken::of("closed")),
            Err(_) => Err(Broken {
                kind: "silent",
                words: format!("no answer within {} s", SILENCE.as_secs()),
            }),
        }
    }

    async fn exchange(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n", word.len()).bytes());
            request.extend(*word);
            request.extend(b"\r\n");
        }
        self.stream.write_all(&request).await?;
        self.read().await
    }

    async fn read(&mut self) -> io::Result<Reply> {
        let line = self.line().await?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(garbage)?;
        let number = || rest.parse::<i64>().map_err(|_| garbage());
        match kind {
            "+" => Ok(Reply::of(rest)),
            "-" => Ok(Reply::Refusal(rest.to_owned())),
            ":" => Ok(Reply::Number(number()?)),
            "$" => match usize::try_from(number()?) {
                Ok(length) if length <= LONGEST => self.bytes(length).await,
                Ok(_) => Err(garbage()),
                Err(_) => Ok(Reply::Nil),
            },
            "*" => match usize::try_from(number()?) {
                Ok(count) if count <= LONGEST => {
                    let mut parts = Vec::new();
                    for _ in 0..count {
                        parts.push(Box::pin(self.read()).await?);
                    }
                    Ok(Reply::List(parts))
                }
                Ok(_) => Err(garbage()),
                Err(_) => Ok(Reply::Nil),
            },
            _ => Err(garbage()),
        }
    }

    async fn bytes(&mut self, length: usize) -> io::Result<Reply> {
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes).await?;
        bytes.truncate(length);
        Ok(Reply::Bytes(bytes))
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        let read = self.stream.read_until(b'\n', &mut line).await?;
        if read == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "closed with a command in flight",
            ));
        }
        let line = String::from_utf8(line).map_err(|_| garbage())?;
        Ok(line.trim_end().to_owned())
    }
}

fn garbage() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "this is no answer of a server")
}
