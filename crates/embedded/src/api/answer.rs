//! How an answer is written: format, headers, compression.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, RETRY_AFTER, VARY,
    WARNING,
};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use serde_json::Value;

use crate::api::body::ApiBody;
use crate::api::negotiate::{Format, representation};
use crate::api::watch::WatchLines;
use crate::fault::Fault;
use crate::node::door::LogStream;
use crate::store::{self, Revision};

/// Smaller answers are not worth compressing (A7).
const GZIP_FROM: usize = 128 * 1024;
static AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// An answer before it is a response.
#[derive(Debug)]
pub(crate) struct Answer {
    code: u16,
    content_type: String,
    content: Content,
    warnings: Vec<String>,
    retry_after: Option<u32>,
    etag: Option<String>,
    /// Of the object that was created, for the audit log: the path does not have it.
    name: Option<String>,
}

#[derive(Debug)]
enum Content {
    Bytes(Bytes),
    Watch(Box<WatchLines>),
    Log(LogStream),
    /// Nothing, and the connection is no longer HTTP's.
    Upgrade(Vec<(HeaderName, String)>),
}

impl Answer {
    pub(crate) fn bytes(code: u16, content_type: &str, bytes: impl Into<Bytes>) -> Self {
        Self {
            code,
            content_type: content_type.to_owned(),
            content: Content::Bytes(bytes.into()),
            warnings: Vec::new(),
            retry_after: None,
            etag: None,
            name: None,
        }
    }

    /// No body at all.
    pub(crate) fn nothing(code: u16) -> Self {
        Self::bytes(code, "", Bytes::new())
    }

    pub(crate) fn text(code: u16, text: impl Into<String>) -> Self {
        Self::bytes(code, "text/plain; charset=utf-8", text.into().into_bytes())
    }

    /// A value in the format asked for.
    pub(crate) fn value(code: u16, value: &Value, format: Format) -> Self {
        Self::bytes(code, format.content_type(), written(value, format))
    }

    /// JSON that is already written.
    pub(crate) fn json(code: u16, bytes: Vec<u8>, format: Format) -> Self {
        match format {
            Format::Json => Self::bytes(code, format.content_type(), bytes),
            _ => match serde_json::from_slice::<Value>(&bytes) {
                Ok(value) => Self::value(code, &value, format),
                Err(_) => Self::bytes(code, "application/json", bytes),
            },
        }
    }

    pub(crate) fn watch(lines: WatchLines) -> Self {
        Self {
            content: Content::Watch(Box::new(lines)),
            ..Self::bytes(200, "application/json", Bytes::new())
        }
    }

    pub(crate) fn log(log: LogStream) -> Self {
        Self {
            content: Content::Log(log),
            ..Self::bytes(200, "text/plain", Bytes::new())
        }
    }

    /// With the headers of the protocol that was agreed on.
    pub(crate) fn upgrade(headers: Vec<(HeaderName, String)>) -> Self {
        Self {
            content: Content::Upgrade(headers),
            ..Self::nothing(101)
        }
    }

    /// With these in front of those it already has.
    pub(crate) fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings.splice(0..0, warnings);
        self
    }

    pub(crate) fn with_name(mut self, name: String) -> Self {
        self.name = Some(name);
        self
    }

    pub(crate) fn take_name(&mut self) -> Option<String> {
        self.name.take()
    }

    pub(crate) fn code(&self) -> u16 {
        self.code
    }

    pub(crate) fn with_etag(mut self, etag: String) -> Self {
        self.etag = Some(etag);
        self
    }

    /// A failure, in a format that the client reads.
    pub(crate) fn fault(fault: &Fault, headers: &HeaderMap) -> Self {
        if fault.is_plain {
            return Self::text(fault.code, format!("{}\n", fault.message));
        }
        let format = representation(headers, false, false).map_or(Format::Json, |asked| asked.format);
        Self {
            retry_after: fault.retry_after_seconds,
            warnings: fault.warnings.all().to_vec(),
            ..Self::value(fault.code, &fault.status(), format)
        }
    }

    /// An object as it is stored, with its revision.
    pub(crate) fn stored(code: u16, value: &store::Value, revision: Revision, format: Format) -> Self {
        let mut bytes = Vec::with_capacity(value.len() + 48);
        value.write_to(&mut bytes, revision);
        bytes.push(b'\n');
        Self::json(code, bytes, format)
    }

    pub(crate) fn into_response(self, parts: &Parts, audit_id: &str) -> Response<ApiBody> {
        let mut response = Response::new(ApiBody::whole(Bytes::new()));
        *response.status_mut() = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        let mut put = |name: &HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.append(name, value);
            }
        };
        put(&AUDIT_ID, audit_id);
        put(&CACHE_CONTROL, "no-cache, private");
        // What did not change has no content.
        if self.code != 304 && !self.content_type.is_empty() {
            put(&CONTENT_TYPE, &self.content_type);
        }
        for warning in few(&self.warnings) {
            put(&WARNING, &warning_text(warning));
        }
        if let Some(seconds) = self.retry_after {
            put(&RETRY_AFTER, &seconds.to_string());
        }
        if let Some(etag) = &self.etag {
            put(&ETAG, etag);
            put(&VARY, "Accept");
        }
        let body = match self.content {
            Content::Watch(lines) => ApiBody::watch(*lines),
            Content::Log(log) => ApiBody::log(log),
            Content::Upgrade(headers) => {
                for (name, value) in &headers {
                    put(name, value);
                }
                ApiBody::whole(Bytes::new())
            }
            Content::Bytes(bytes) if parts.method == Method::HEAD => {
                drop(bytes);
                ApiBody::whole(Bytes::new())
            }
            Content::Bytes(bytes) => {
                let packed = (bytes.len() >= GZIP_FROM && takes_gzip(&parts.headers))
                    .then(|| gzip(&bytes))
                    .flatten();
                match packed {
                    Some(packed) => {
                        put(&CONTENT_ENCODING, "gzip");
                        put(&VARY, "Accept-Encoding");
                        ApiBody::whole(packed)
                    }
                    None => ApiBody::whole(bytes),
                }
            }
        };
        *response.body_mut() = body;
        response
    }
}

fn written(value: &Value, format: Format) -> Vec<u8> {
    let text = match format {
        Format::Json => {
            // Not by way of `Display`, which checks every piece for being text again.
            let mut bytes = Vec::with_capacity(1024);
            if serde_json::to_writer(&mut bytes, value).is_err() {
                bytes = value.to_string().into_bytes();
            }
            bytes.push(b'\n');
            return bytes;
        }
        Format::Pretty => serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string()) + "\n",
        Format::Yaml => serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string()),
    };
    text.into_bytes()
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|word| {
            let (name, rest) = word.split_once(';').unwrap_or((word, ""));
            // A weight of nothing is a refusal.
            let weight = rest
                .trim()
                .strip_prefix("q=")
                .and_then(|weight| weight.trim().parse::<f32>().ok());
            name.trim() == "gzip" && weight != Some(0.0)
        })
}

fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
    // Level 1, as the reference: the answer is wanted soon.
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::new(1));
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}

/// As many and as much as the reference sends: 4,096 letters in all; past that, each cut at 256. Clients give up on more.
fn few(warnings: &[String]) -> Vec<&str> {
    const ALL: usize = 4_096;
    const EACH: usize = 256;
    let is_much = warnings.iter().map(String::len).sum::<usize>() > ALL;
    let mut left = ALL;
    let mut few = Vec::new();
    for warning in warnings {
        let most = if is_much { EACH } else { ALL };
        let end = warning
            .char_indices()
            .map(|(at, letter)| at + letter.len_utf8())
            .take_while(|end| *end <= most)
            .last()
            .unwrap_or(0);
        let text = warning.get(..end).unwrap_or_default();
        if text.len() > left {
            break;
        }
        left -= text.len();
        few.push(text);
    }
    few
}

/// `299 - "text"`; what a header cannot hold is left out.
fn warning_text(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 10);
    for letter in text.chars().filter(|letter| !letter.is_control()) {
        if matches!(letter, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(letter);
    }
    format!("299 - \"{quoted}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_taken_by_who_names_it_and_not_with_a_weight_of_nothing() {
        for (asked, takes) in [
            ("gzip", true),
            ("deflate, gzip;q=0.5", true),
            ("gzip;q=0, *", false),
            ("gzip; q=0.0", false),
            ("*", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(asked));
            assert_eq!(takes_gzip(&headers), takes, "{asked}");
        }
    }
}
