//! What is asked for: path, method, query and token of one request. Pure.

use std::fmt;
use std::time::Duration;

use http::request::Parts;
use http::{Method, header};
use usher_engine::ObjectKey;

use super::Trigger;
use super::answer::Refusal;

const PREFIX: &str = "/v1/trigger/";
/// Longest wait, in seconds. Clients and what is between them and us often give up after a minute.
const LONGEST_WAIT: u64 = 60;
/// Longest name of a Kubernetes object.
const LONGEST_NAME: usize = 253;

/// A bearer token. Shows itself to nobody.
pub(super) struct Token(String);

impl Token {
    /// For the TokenReview; nowhere else.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[token]")
    }
}

/// One request, read and well formed.
#[derive(Debug)]
pub(super) struct Ask<'t> {
    pub(super) trigger: &'t Trigger,
    pub(super) key: ObjectKey,
    pub(super) wait: Option<Duration>,
    pub(super) token: Option<Token>,
}

/// Which trigger a path is about, well formed or not.
pub(super) fn trigger<'t>(triggers: &'t [Trigger], path: &str) -> Option<&'t Trigger> {
    let plural = path.strip_prefix(PREFIX)?.split('/').next()?;
    triggers.iter().find(|trigger| trigger.resource.plural == plural)
}

pub(super) fn read<'t>(triggers: &'t [Trigger], head: &Parts) -> Result<Ask<'t>, Refusal> {
    let found = trigger(triggers, head.uri.path()).and_then(|trigger| Some((trigger, key(head.uri.path())?)));
    let Some((trigger, key)) = found else {
        return Err(Refusal::NoPath {
            known: triggers
                .iter()
                .map(|trigger| format!("{PREFIX}{}/NAMESPACE/NAME", trigger.resource.plural))
                .collect(),
        });
    };
    if head.method != Method::POST {
        return Err(Refusal::NotPost);
    }
    Ok(Ask {
        trigger,
        key,
        wait: wait(head.uri.query().unwrap_or_default())?,
        token: token(head),
    })
}

/// Namespace and name, as an object can be called: nothing that would mean something else in a path of the API server.
fn key(path: &str) -> Option<ObjectKey> {
    let mut parts = path.strip_prefix(PREFIX)?.split('/').skip(1);
    let (namespace, name) = (parts.next()?, parts.next()?);
    let fits = |text: &str| {
        let all = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        let ends = |c: char| c.is_ascii_alphanumeric();
        text.len() <= LONGEST_NAME && text.chars().all(all) && text.starts_with(ends) && text.ends_with(ends)
    };
    (parts.next().is_none() && fits(namespace) && fits(name) && !namespace.contains('.'))
        .then(|| ObjectKey::new(namespace, name).ok())?
}

/// A word that is not understood is refused, not passed over: whoever misspells `wait` would wait for nothing.
fn wait(query: &str) -> Result<Option<Duration>, Refusal> {
    let mut found = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let seconds = pair.strip_prefix("wait=").filter(|text| !text.starts_with('+'));
        let seconds = seconds.and_then(|text| text.parse().ok());
        match seconds.filter(|seconds| (1..=LONGEST_WAIT).contains(seconds)) {
            Some(seconds) if found.is_none() => found = Some(Duration::from_secs(seconds)),
            _ => return Err(Refusal::BadQuery { longest: LONGEST_WAIT }),
        }
    }
    Ok(found)
}

/// `None` where there is none, or more than one, or one that cannot be.
fn token(head: &Parts) -> Option<Token> {
    let mut values = head.headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (values.next()?.to_str().ok()?, values.next()) else {
        return None;
    };
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    let is_one = !token.is_empty() && token.chars().all(|c| c.is_ascii_graphic());
    (scheme.eq_ignore_ascii_case("bearer") && is_one).then(|| Token(token.to_owned()))
}
