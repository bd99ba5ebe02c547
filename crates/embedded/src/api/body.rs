//! Bodies in and out: JSON, YAML, and in protobuf what clients send.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures::Stream as _;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use serde_json::Value;

use crate::api::protobuf::{BodyType, DELETE_OPTIONS};
use crate::api::watch::WatchLines;
use crate::fault::{Fault, quote};
use crate::node::door::LogStream;
use crate::registry::ask::Parsed;
use crate::schema::settle_numbers;

pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The most that a body may hold (S8).
pub(crate) const MOST: usize = 3 * 1024 * 1024;
/// Larger frames are cut, so that a large answer does not sit in one piece in a connection's buffer.
const FRAME: usize = 256 * 1024;

/// How many values, keys and ends of a YAML text aliases may repeat. Nobody's manifests come near it, and some hundred
/// bytes with aliases of aliases would otherwise keep a processor busy for seconds.
const MOST_REPEATED: usize = 20_000;

/// What is answered: bytes, or a watch or log that goes on.
#[derive(Debug)]
pub struct ApiBody(Inner);

#[derive(Debug)]
enum Inner {
    Whole(VecDeque<Bytes>),
    Watch(Box<WatchLines>),
    Log(LogStream),
}

impl ApiBody {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        let mut bytes: Bytes = bytes.into();
        let mut frames = VecDeque::new();
        while bytes.len() > FRAME {
            frames.push_back(bytes.split_to(FRAME));
        }
        if !bytes.is_empty() {
            frames.push_back(bytes);
        }
        Self(Inner::Whole(frames))
    }

    pub(crate) fn watch(lines: WatchLines) -> Self {
        Self(Inner::Watch(Box::new(lines)))
    }

    pub(crate) fn log(log: LogStream) -> Self {
        Self(Inner::Log(log))
    }
}

impl Body for ApiBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut self.0 {
            Inner::Whole(frames) => Poll::Ready(frames.pop_front().map(|bytes| Ok(Frame::data(bytes)))),
            Inner::Watch(lines) => lines
                .poll_line(context)
                .map(|line| line.map(|bytes| Ok(Frame::data(bytes)))),
            Inner::Log(log) => Pin::new(log)
                .poll_next(context)
                .map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Inner::Whole(frames) if frames.is_empty())
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match &self.0 {
            Inner::Whole(frames) => {
                http_body::SizeHint::with_exact(frames.iter().map(|bytes| bytes.len() as u64).sum())
            }
            Inner::Watch(_) | Inner::Log(_) => http_body::SizeHint::default(),
        }
    }
}

/// All of a request's body, up to the limit.
pub(crate) async fn read<B>(body: B) -> Result<Bytes, Fault>
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let mut body = std::pin::pin!(body);
    // Most bodies are one frame, which is taken as it is.
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|why| Fault::bad_request(format!("the body could not be read: {why}")))?;
        let Ok(bytes) = frame.into_data() else {
            continue;
        };
        if first.len().max(whole.len()) + bytes.len() > MOST {
            return Err(Fault::new(
                413,
                "RequestEntityTooLarge",
                format!("Request entity too large: limit is {MOST}"),
            ));
        }
        if first.is_empty() {
            first = bytes;
            continue;
        }
        if whole.is_empty() {
            whole.extend_from_slice(&first);
        }
        whole.extend_from_slice(&bytes);
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

/// JSON, YAML or protobuf by its media type.
pub(crate) fn parse(bytes: &Bytes, media: &str, expected: BodyType) -> Result<Parsed, Fault> {
    match media {
        "application/json" => parse_json(bytes, expected.kind),
        "application/yaml" => parse_yaml(bytes).map(Parsed::from),
        PROTOBUF => super::protobuf::parse(bytes, expected).map(Parsed::from),
        _ => Err(super::negotiate::unsupported(&[
            "application/json",
            "application/yaml",
            PROTOBUF,
        ])),
    }
}

pub(crate) fn parse_json(bytes: &Bytes, kind: &str) -> Result<Parsed, Fault> {
    let value: Value = serde_json::from_slice(bytes).map_err(|why| {
        let why = format!(
            "couldn't get version/kind; json parse error: {}",
            json_error(bytes, &why)
        );
        Fault::bad_request(match kind {
            DELETE_OPTIONS => why,
            _ => format!(
                "the object provided is unrecognized (must be of type {kind}): {why} ({})",
                summary(bytes)
            ),
        })
    })?;
    Ok(Parsed {
        value,
        text: Some(bytes.clone()),
    })
}

/// What subresources read is of kinds that no row has: their types are checked here, so that nothing of the wrong type is
/// passed over.
pub(crate) fn settle(body: &mut Value, expected: BodyType) -> Result<(), Fault> {
    let BodyType { group, version, kind } = expected;
    let Some(schema) = crate::kinds::definition_of(group, version, kind) else {
        return Ok(());
    };
    match crate::kinds::decode(&schema, body) {
        Ok(_) => Ok(()),
        Err(why) => Err(Fault::bad_request(format!(
            "{kind} in version {} cannot be handled as a {kind}: {why}",
            quote(version)
        ))),
    }
}

/// The first bytes of a body, as text if it looks like an object.
pub(crate) fn summary(bytes: &[u8]) -> String {
    /// As many as the reference shows.
    const SHOWN: usize = 30;
    let shown = bytes.get(..SHOWN).unwrap_or(bytes);
    let more = if bytes.len() > SHOWN { " ..." } else { "" };
    match shown.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(shown)),
        Some(_) => {
            let hex: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{more}")
        }
    }
}

/// What is wrong with a JSON text, in the reference's words where they are known.
pub(crate) fn json_error(bytes: &[u8], why: &serde_json::Error) -> String {
    if why.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let text = why.to_string();
    if text.starts_with("recursion limit") {
        return "exceeded max depth".to_owned();
    }
    let at = bytes
        .split(|byte| *byte == b'\n')
        .nth(why.line().saturating_sub(1))
        .and_then(|line| line.get(why.column().saturating_sub(1)))
        .copied();
    match at {
        // A word that begins like one of the three and goes on otherwise.
        Some(byte) if text.starts_with("expected ident") => {
            let line = bytes
                .split(|byte| *byte == b'\n')
                .nth(why.line().saturating_sub(1))
                .unwrap_or_default();
            let start = line
                .get(..why.column())
                .unwrap_or_default()
                .iter()
                .rposition(|byte| !byte.is_ascii_alphabetic())
                .map_or(0, |at| at + 1);
            let word = match line.get(start) {
                Some(b't') => "true",
                Some(b'f') => "false",
                _ => "null",
            };
            let expected = word
                .as_bytes()
                .get(why.column().saturating_sub(start + 1))
                .copied()
                .unwrap_or(b'?');
            format!(
                "invalid character '{}' in literal {word} (expecting '{}')",
                char::from(byte),
                char::from(expected)
            )
        }
        Some(byte) if byte.is_ascii_graphic() => format!(
            "invalid character '{}' looking for beginning of value",
            char::from(byte)
        ),
        _ => text,
    }
}

/// The reference makes JSON of YAML first, in which a whole float is an integer.
pub(crate) fn parse_yaml(bytes: &[u8]) -> Result<Value, Fault> {
    let mut value = read_yaml(bytes)?;
    settle_numbers(&mut value);
    Ok(value)
}

fn read_yaml(bytes: &[u8]) -> Result<Value, Fault> {
    // JSON is YAML, is what most clients send, and is read an order of magnitude faster as what it is. A key that is
    // given twice is an error of YAML alone.
    if bytes.first() == Some(&b'{')
        && let Ok(value) = serde_json::from_slice(bytes)
        && !super::has_duplicate_keys(bytes, &value)
    {
        return Ok(value);
    }
    let wrong = |why: String| Fault::bad_request(format!("error decoding YAML: {why}"));
    let text = std::str::from_utf8(bytes).map_err(|why| wrong(why.to_string()))?;
    let options = serde_saphyr::options! {
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MOST_REPEATED },
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|why| wrong(why.to_string()))
}
