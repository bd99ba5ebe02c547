//! grpc: the health protocol `grpc.health.v1`, by hand. The question is one field and the answer one number, so a gRPC
//! library would be a great deal of code for two bytes.

use std::time::Duration;

use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::{Answer, MOST_OUTPUT, Outcome, dial};

/// A refused connection is tried again for as long as the probe has time, as the reference does.
const AGAIN: Duration = Duration::from_millis(100);
const SERVING: u64 = 1;
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// A call that did not succeed.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    code: usize,
    message: String,
}

impl Status {
    fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: CODES.iter().position(|name| *name == code).unwrap_or(2),
            message: message.into(),
        }
    }

    fn name(&self) -> String {
        match CODES.get(self.code) {
            Some(name) => (*name).to_owned(),
            None => format!("Code({})", self.code),
        }
    }
}

pub(super) async fn probe(host: &str, port: u16, service: &str, limit: Duration) -> Answer {
    let place = dial::address(host, port);
    let seconds = limit.as_secs();
    let deadline = tokio::time::Instant::now() + limit;
    let Ok(stream) = tokio::time::timeout_at(deadline, connected(host, port)).await else {
        return Answer::new(
            Outcome::Failure,
            format!("timeout: failed to connect service {place:?} within {seconds}s: context deadline exceeded"),
        );
    };
    let told = match tokio::time::timeout_at(deadline, call(stream, &place, service)).await {
        Ok(Ok(SERVING)) => return Answer::new(Outcome::Success, "service healthy"),
        Ok(Ok(status)) => format!("service unhealthy (responded with {:?})", health(status)),
        Err(_) => format!("timeout: health rpc did not complete within {seconds}s"),
        Ok(Err(status)) if status.name() == "Unimplemented" => format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
            status.message
        ),
        Ok(Err(status)) if status.name() == "DeadlineExceeded" => {
            format!("timeout: health rpc did not complete within {seconds}s")
        }
        Ok(Err(status)) => format!(
            "error: health rpc probe failed: rpc error: code = {} desc = {}",
            status.name(),
            status.message
        ),
    };
    Answer::new(Outcome::Failure, told)
}

async fn connected(host: &str, port: u16) -> tokio::net::TcpStream {
    loop {
        if let Ok(stream) = dial::connect(host, port).await {
            return stream;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// The status number of a service's health.
async fn call(stream: tokio::net::TcpStream, place: &str, service: &str) -> Result<u64, Status> {
    let broken =
        |why: &hyper::Error| Status::new("Unavailable", format!("connection error: desc = {:?}", why.to_string()));
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(|why| broken(&why))?;
    let driven = Driven(tokio::spawn(async move {
        // What ends the connection, the request's own error tells.
        let _ = connection.await;
    }));
    let request = Request::post(format!("http://{place}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "kube-probe/1.36")
        .body(Full::new(question(service)))
        .map_err(|why| Status::new("Internal", why.to_string()))?;
    let response = sender.send_request(request).await.map_err(|why| broken(&why))?;
    let (head, body) = response.into_parts();
    if head.status != http::StatusCode::OK {
        let code = match head.status.as_u16() {
            401 => "Unauthenticated",
            403 => "PermissionDenied",
            404 => "Unimplemented",
            429 | 502 | 503 | 504 => "Unavailable",
            _ => "Unknown",
        };
        let message = format!("unexpected HTTP status code received from server: {}", head.status);
        return Err(Status::new(code, message));
    }
    // A call that fails at once has its status in the head.
    status(&head.headers)?;
    let (bytes, trailers) = whole(body).await.map_err(|why| broken(&why))?;
    status(&trailers)?;
    drop(driven);
    answer(&bytes).ok_or_else(|| Status::new("Internal", "the answer is no HealthCheckResponse"))
}

/// The connection's task, which ends with the question: a server that does not answer holds nothing up.
struct Driven(tokio::task::JoinHandle<()>);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// `HealthCheckRequest { 1: service }` with the five bytes that gRPC puts before every message.
fn question(service: &str) -> Bytes {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(0x0a);
        push_number(service.len(), &mut message);
        message.extend_from_slice(service.as_bytes());
    }
    let length = u32::try_from(message.len()).unwrap_or_default();
    [&[0][..], &length.to_be_bytes(), &message].concat().into()
}

fn push_number(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// `HealthCheckResponse { 1: status }`; a field that is not there is 0.
fn answer(bytes: &[u8]) -> Option<u64> {
    let (compressed, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let mut message = rest.get(..length).filter(|_| *compressed == 0)?;
    let mut status = 0;
    while !message.is_empty() {
        let tag = take_number(&mut message)?;
        match (tag >> 3, tag & 7) {
            (1, 0) => status = take_number(&mut message)?,
            (_, 0) => drop(take_number(&mut message)?),
            (_, 1) => message = message.get(8..)?,
            (_, 2) => {
                let length = usize::try_from(take_number(&mut message)?).ok()?;
                message = message.get(length..)?;
            }
            (_, 5) => message = message.get(4..)?,
            _ => return None,
        }
    }
    Some(status)
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn health(status: u64) -> String {
    match status {
        0 => "UNKNOWN".to_owned(),
        1 => "SERVING".to_owned(),
        2 => "NOT_SERVING".to_owned(),
        3 => "SERVICE_UNKNOWN".to_owned(),
        other => other.to_string(),
    }
}

/// The call's status, if these headers have one and it is not OK.
fn status(headers: &HeaderMap) -> Result<(), Status> {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &http::HeaderValue| value.to_str().ok())
    };
    match text("grpc-status").map(str::parse::<usize>) {
        None | Some(Ok(0)) => Ok(()),
        Some(Ok(code)) => Err(Status {
            code,
            message: unescaped(text("grpc-message").unwrap_or_default()),
        }),
        Some(Err(_)) => Err(Status::new("Unknown", "malformed grpc-status")),
    }
}

/// gRPC escapes what is no plain ASCII, as URLs do.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = behind.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn whole(mut body: Incoming) -> Result<(Vec<u8>, HeaderMap), hyper::Error> {
    let mut bytes = Vec::new();
    let mut trailers = HeaderMap::new();
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(data) if bytes.len() < MOST_OUTPUT => bytes.extend_from_slice(&data),
            Ok(_) => break,
            Err(frame) => {
                if let Ok(found) = frame.into_trailers() {
                    trailers = found;
                }
            }
        }
    }
    Ok((bytes, trailers))
}

#[cfg(test)]
mod tests;
