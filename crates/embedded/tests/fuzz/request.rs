//! A request as it is sent, and how it reads in a report.

use std::fmt::Write as _;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;

#[derive(Debug, Clone, Default)]
pub struct Sent {
    pub method: String,
    pub path: String,
    pub query: Vec<(String, String)>,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Sent {
    pub fn new(method: &str, path_and_query: &str) -> Self {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            query: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
            ..Self::default()
        }
    }

    pub fn with_body(mut self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        self.set_header("content-type", content_type);
        self.body = body.into();
        self
    }

    pub fn set_header(&mut self, name: &str, value: &str) {
        self.headers.retain(|(key, _)| !key.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
    }

    pub fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn set_parameter(&mut self, name: &str, value: &str) {
        self.query.retain(|(key, _)| key != name);
        self.query.push((name.to_owned(), value.to_owned()));
    }

    /// `None`: HTTP itself does not let it through, so no server would see it.
    pub fn request(&self) -> Option<Request<Full<Bytes>>> {
        let mut uri = self.path.clone();
        if !self.query.is_empty() {
            let query = form_urlencoded::Serializer::new(String::new())
                .extend_pairs(&self.query)
                .finish();
            uri = format!("{uri}?{query}");
        }
        let mut request = Request::builder().method(self.method.as_str()).uri(uri);
        for (name, value) in &self.headers {
            request = request.header(name, value.as_bytes());
        }
        request.body(Full::new(Bytes::from(self.body.clone()))).ok()
    }

    /// For a report: long parts are cut.
    pub fn told(&self) -> String {
        const SHOWN: usize = 3_000;
        let mut text = format!("{} {:?}", self.method, cut(&self.path, 300));
        for (name, value) in &self.query {
            let _ = write!(text, "\n  ? {name}={:?}", cut(value, 300));
        }
        for (name, value) in &self.headers {
            let _ = write!(text, "\n  > {name}: {:?}", cut(value, 300));
        }
        let body = String::from_utf8_lossy(&self.body);
        let _ = write!(text, "\n  {} bytes: {}", self.body.len(), cut(&body, SHOWN));
        text
    }
}

pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
