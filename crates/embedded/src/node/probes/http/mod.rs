//! httpGet, of probes and of hooks: one GET, redirects to the same host followed.
//!
//! 200 to 399 is well; a redirect to another host is well too, with a warning. Certificates are not looked at, as in the
//! reference: a probe asks how a container is, not who it is.

mod exchange;

use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use k8s_openapi::api::core::v1::{Container, HTTPGetAction};

use super::{Answer, Outcome, dial, ports};
use exchange::Got;

/// As many as the reference follows.
const MOST_REDIRECTS: usize = 10;
const OUT_OF_TIME: &str = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";

/// What is asked of whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub(super) https: bool,
    pub(super) host: String,
    pub(super) port: u16,
    /// With the query; begins with `/`.
    pub(super) path: String,
    pub(super) headers: HeaderMap,
}

impl Target {
    /// # Errors
    /// The port is none, or a header cannot be sent.
    pub fn of(action: &HTTPGetAction, container: &Container, pod_ip: &str) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        for header in action.http_headers.iter().flatten() {
            let name = HeaderName::from_bytes(header.name.as_bytes())
                .map_err(|_| format!("net/http: invalid header field name {:?}", header.name))?;
            let value = HeaderValue::from_str(&header.value)
                .map_err(|_| format!("net/http: invalid header field value for {:?}", header.name))?;
            headers.append(name, value);
        }
        Ok(Self {
            https: action.scheme.as_deref() == Some("HTTPS"),
            host: action
                .host
                .clone()
                .filter(|host| !host.is_empty())
                .unwrap_or_else(|| pod_ip.to_owned()),
            port: ports::number(&action.port, container)?,
            path: rooted(action.path.as_deref().unwrap_or_default()),
            headers,
        })
    }

    pub(super) fn url(&self) -> String {
        let scheme = if self.https { "https" } else { "http" };
        format!("{scheme}://{}{}", self.place(), self.path)
    }

    pub(super) fn place(&self) -> String {
        dial::address(&self.host, self.port)
    }

    /// The headers that are sent: the user's, and the reference's own where the user says nothing. An empty `Accept`
    /// is none.
    pub(super) fn sent(&self, agent: &'static str) -> HeaderMap {
        let mut headers = self.headers.clone();
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        for name in [ACCEPT, USER_AGENT] {
            if headers.get(&name).is_some_and(HeaderValue::is_empty) {
                headers.remove(&name);
            }
        }
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        if !headers.contains_key(HOST)
            && let Ok(place) = HeaderValue::from_str(&self.place())
        {
            headers.insert(HOST, place);
        }
        headers
    }

    /// Where a redirect leads; `None`: to no place that can be asked.
    fn redirected(&self, location: &str) -> Option<Self> {
        let (scheme, rest) = match location.split_once("://") {
            Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
            None if location.starts_with("//") => (self.scheme().to_owned(), location.trim_start_matches('/')),
            None => {
                let mut next = self.clone();
                next.path = self.beside(location);
                return Some(next);
            }
        };
        let https = match scheme.as_str() {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end)?;
        let authority: http::uri::Authority = authority.parse().ok()?;
        let default = if https { 443 } else { 80 };
        let mut next = self.clone();
        next.https = https;
        next.host = authority.host().trim_matches(['[', ']']).to_owned();
        next.port = authority.port_u16().unwrap_or(default);
        next.path = rooted(path);
        // The name that the user gave goes with the address that the user gave.
        next.headers.remove(HOST);
        Some(next)
    }

    const fn scheme(&self) -> &'static str {
        if self.https { "https" } else { "http" }
    }

    /// A path without a root, as seen from this one.
    fn beside(&self, location: &str) -> String {
        if location.starts_with('/') {
            return rooted(location);
        }
        let path = self.path.split('?').next().unwrap_or_default();
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        if location.starts_with('?') {
            return rooted(&format!("{path}{location}"));
        }
        rooted(&format!("{folder}/{location}"))
    }
}

/// A path as it is sent: with a root, without a fragment, odd signs escaped.
fn rooted(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let mut out = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        out.push('/');
    }
    for byte in path.bytes() {
        if byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Asks, and judges the answer.
pub(super) async fn probe(target: &Target, limit: Duration) -> Answer {
    match tokio::time::timeout(limit, follow(target)).await {
        Err(_) => Answer::new(Outcome::Failure, format!("Get {:?}: {OUT_OF_TIME}", target.url())),
        Ok(Err(why)) => Answer::new(Outcome::Failure, why),
        Ok(Ok(got)) => judged(&got),
    }
}

fn judged(got: &Got) -> Answer {
    let body = String::from_utf8_lossy(&got.body);
    match got.status.as_u16() {
        200..=299 => Answer::new(Outcome::Success, body),
        300..=399 => Answer::new(
            Outcome::Warning,
            format!("Probe terminated redirects, Response body: {body}"),
        ),
        // Without the body: it may hold what events must not show.
        other => Answer::new(Outcome::Failure, format!("HTTP probe failed with statuscode: {other}")),
    }
}

async fn follow(first: &Target) -> Result<Got, String> {
    let mut target = first.clone();
    for _ in 0..MOST_REDIRECTS {
        let got = ask(&target, "kube-probe/1.36").await?;
        let Some(next) = next(&target, &got) else {
            return Ok(got);
        };
        if next.host != first.host {
            return Ok(got);
        }
        target = next;
    }
    Err(format!(
        "Get {:?}: stopped after {MOST_REDIRECTS} redirects",
        target.url()
    ))
}

fn next(target: &Target, got: &Got) -> Option<Target> {
    let follows = matches!(
        got.status,
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let location = got.headers.get(LOCATION).filter(|_| follows)?.to_str().ok()?;
    target.redirected(location)
}

async fn ask(target: &Target, agent: &'static str) -> Result<Got, String> {
    exchange::get(target, agent)
        .await
        .map_err(|why| format!("Get {:?}: {why}", target.url()))
}

/// A hook's request: whatever is answered, it was heard. A server that turns out not to speak TLS is asked without.
///
/// # Errors
/// Nobody answered.
pub async fn any_answer(target: &Target) -> Result<(), String> {
    const AGENT: &str = "kube-lifecycle/1.36";
    let asked = match ask(target, AGENT).await {
        Err(why) if why.ends_with(exchange::NOT_TLS) => {
            let mut plain = Target {
                https: false,
                ..target.clone()
            };
            // What was meant for an encrypted connection is not shown on another.
            plain.headers.remove(AUTHORIZATION);
            ask(&plain, AGENT).await
        }
        asked => asked,
    };
    asked.map(drop)
}

#[cfg(test)]
mod tests;
