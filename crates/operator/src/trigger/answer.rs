//! What a caller gets back: JSON, always. A refusal is one sentence that says what is wrong and what to do; none can
//! contain a token.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use usher_engine::ObjectKey;

use super::Trigger;
use super::cluster::Trouble;

/// How long a client is asked to stay away, in seconds.
const SOON: HeaderValue = HeaderValue::from_static("1");
const LATER: HeaderValue = HeaderValue::from_static("5");

/// One answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    body: Value,
    retry_after: Option<HeaderValue>,
}

impl Answer {
    pub(super) fn accepted(trigger: &Trigger, key: &ObjectKey, value: &str) -> Self {
        Self {
            status: StatusCode::ACCEPTED,
            body: json!({trigger.called: key.to_string(), "trigger": value}),
            retry_after: None,
        }
    }

    pub(super) fn answered(trigger: &Trigger, key: &ObjectKey, value: &str, answer: Value) -> Self {
        Self {
            status: StatusCode::OK,
            body: json!({trigger.called: key.to_string(), "trigger": value, trigger.answered_in: answer}),
            retry_after: None,
        }
    }
}

impl From<Answer> for Response {
    fn from(answer: Answer) -> Self {
        let mut response = Response::new(Body::from(format!("{}\n", answer.body)));
        *response.status_mut() = answer.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match answer.status {
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        if let Some(seconds) = answer.retry_after {
            headers.insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

/// Why not.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("nothing answers at this path; triggers are POSTed to {}", known.join(", "))]
    NoPath { known: Vec<String> },
    #[error("a trigger changes something: send it with POST")]
    NotPost,
    #[error("the query may have wait=SECONDS once, from 1 to {longest}, and nothing else; correct or omit it")]
    BadQuery { longest: u64 },
    #[error("this replica of Usher is not ready; try again in a moment, its /readyz says what it waits for")]
    NotReady,
    #[error("send a token of the cluster in the header `Authorization: Bearer TOKEN`, once")]
    NoToken,
    #[error("the API server does not know this token; get a new one, for example with `kubectl create token`")]
    UnknownToken,
    #[error("{user} may not update {object}; grant the verb update on it with a Role in namespace {namespace}")]
    Forbidden {
        user: String,
        object: String,
        namespace: String,
    },
    #[error("there is no {object} (any more); `{list}` lists what there is")]
    NoSuch { object: String, list: String },
    #[error("this operator looks after namespace {scope} only; ask the one that looks after this namespace")]
    OutOfScope { scope: String },
    #[error("the body may have {limit} bytes at most; a trigger needs none")]
    BodyTooLarge { limit: usize },
    #[error("the body did not come to its end in time; a trigger needs none")]
    BodyTooSlow,
    #[error("too many triggers at once; try again in a second")]
    TooMany,
    #[error("too many clients wait for an answer already; leave out wait and read the status, or try again later")]
    TooManyWait,
    #[error("Usher lacks a right to do this: {missing}; an administrator grants it with `usher install`, or see {see}")]
    NoRight { missing: String, see: &'static str },
    #[error("the API server gave Usher no answer; it may or may not have been done, try again in a moment")]
    NoAnswer,
    #[error("trigger {value} is written, but this replica of Usher stops now; read the answer in the status")]
    Stopping { value: String },
    #[error(
        "trigger {value} is written on {object}, but after {} s status.{field} does not answer it; the leader does so when it \
         can, so read the status later",
        wait.as_secs()
    )]
    Unanswered {
        object: String,
        value: String,
        field: &'static str,
        wait: Duration,
    },
}

impl Refusal {
    pub(super) fn forbidden(user: String, trigger: &Trigger, key: &ObjectKey) -> Self {
        let resource = trigger.resource;
        Refusal::Forbidden {
            user,
            object: format!("{}.{} {key}", resource.plural, resource.group),
            namespace: key.namespace().to_owned(),
        }
    }

    pub(super) fn no_such(trigger: &Trigger, key: &ObjectKey) -> Self {
        let resource = trigger.resource;
        Refusal::NoSuch {
            object: format!("{} {key}", resource.kind),
            list: format!("kubectl get {} -n {}", resource.plural, key.namespace()),
        }
    }

    pub(super) fn unanswered(trigger: &Trigger, key: &ObjectKey, value: String, wait: Duration) -> Self {
        Refusal::Unanswered {
            object: format!("{} {key}", trigger.resource.kind),
            value,
            field: trigger.answered_in,
            wait,
        }
    }

    fn code(&self) -> (StatusCode, Option<HeaderValue>) {
        match self {
            Refusal::NoPath { .. } | Refusal::NoSuch { .. } | Refusal::OutOfScope { .. } => {
                (StatusCode::NOT_FOUND, None)
            }
            Refusal::NotPost => (StatusCode::METHOD_NOT_ALLOWED, None),
            Refusal::BadQuery { .. } => (StatusCode::BAD_REQUEST, None),
            Refusal::NoToken | Refusal::UnknownToken => (StatusCode::UNAUTHORIZED, None),
            Refusal::Forbidden { .. } => (StatusCode::FORBIDDEN, None),
            Refusal::BodyTooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, None),
            Refusal::BodyTooSlow => (StatusCode::REQUEST_TIMEOUT, None),
            Refusal::TooMany => (StatusCode::TOO_MANY_REQUESTS, Some(SOON)),
            Refusal::TooManyWait => (StatusCode::TOO_MANY_REQUESTS, Some(LATER)),
            Refusal::NotReady | Refusal::NoRight { .. } | Refusal::NoAnswer | Refusal::Stopping { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, Some(LATER))
            }
            Refusal::Unanswered { .. } => (StatusCode::GATEWAY_TIMEOUT, None),
        }
    }
}

impl From<Trouble> for Refusal {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::NoRight { missing, see } => Refusal::NoRight { missing, see },
            Trouble::NoAnswer => Refusal::NoAnswer,
        }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        let (status, retry_after) = refusal.code();
        Self {
            status,
            body: json!({"code": status.as_u16(), "message": refusal.to_string()}),
            retry_after,
        }
    }
}
