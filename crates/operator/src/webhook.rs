//! Admission webhooks: for what schema and CEL cannot say. Kinds register reviewers by path ([`Routes`]); they are served on
//! the TLS port ([`crate::tls`]).
//!
//! Here is the part of a webhook that is the same for all: from an HTTP request to a reviewer and back.
//!
//! A request that is no review gets an HTTP error with a sentence. A review always gets a review back: a reviewer that
//! panics or takes too long denies, and says so. Fail closed here; whether the API server fails open when it cannot reach
//! us at all is the `failurePolicy` of its configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures::{FutureExt, StreamExt};
use http::{Method, StatusCode, header};
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use tokio::time::Instant;

/// What a reviewer returns in time.
pub type Reply = Pin<Box<dyn Future<Output = AdmissionResponse> + Send>>;

/// Judges admission requests. Any `Fn(AdmissionRequest<DynamicObject>) -> impl Future<Output = AdmissionResponse>` is one.
pub trait Reviewer: Send + Sync + 'static {
    /// Allows or denies, with a reason.
    fn review(&self, request: AdmissionRequest<DynamicObject>) -> Reply;
}

impl<F, R> Reviewer for F
where
    F: Fn(AdmissionRequest<DynamicObject>) -> R + Send + Sync + 'static,
    R: Future<Output = AdmissionResponse> + Send + 'static,
{
    fn review(&self, request: AdmissionRequest<DynamicObject>) -> Reply {
        Box::pin(self(request))
    }
}

/// Which reviewer answers at which path. Kinds register theirs; a path belongs to one.
#[derive(Clone, Default)]
pub struct Routes {
    by_path: BTreeMap<String, Arc<dyn Reviewer>>,
    pub(crate) problem: Option<String>,
}

impl Routes {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `reviewer` at `path`. A path that is taken or does not begin with `/` keeps the server from starting.
    #[must_use]
    pub fn on(mut self, path: &str, reviewer: impl Reviewer) -> Self {
        if !path.starts_with('/') {
            self.problem
                .get_or_insert_with(|| format!("the webhook path {path:?} must begin with /"));
        } else if self.by_path.insert(path.to_owned(), Arc::new(reviewer)).is_some() {
            self.problem
                .get_or_insert_with(|| format!("two webhooks want the path {path}: give one of them another"));
        }
        self
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_path.is_empty()
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.by_path.contains_key(path)
    }

    /// Every path, in order.
    pub fn paths(&self) -> Vec<String> {
        self.by_path.keys().cloned().collect()
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_path.keys()).finish()
    }
}

/// Bounds on one review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReviewLimits {
    /// Of the request. etcd takes 1.5 MiB per object, and a review carries two.
    pub body_bytes: usize,
    /// For the whole review, from the head of the request; less where the API server says that it waits for less.
    pub time: Duration,
}

impl Default for ReviewLimits {
    fn default() -> Self {
        Self {
            body_bytes: 3 * 1024 * 1024,
            time: Duration::from_secs(10),
        }
    }
}

/// Everything behind one handler: paths are looked up here, because axum panics on those it cannot parse.
pub(crate) fn router(routes: Routes, limits: ReviewLimits) -> Router {
    Router::new().fallback(answer).with_state(Arc::new((routes, limits)))
}

/// A request that gets no review.
struct Rejected(StatusCode, String);

impl IntoResponse for Rejected {
    fn into_response(self) -> Response {
        let Rejected(status, sentence) = self;
        (
            status,
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            format!("{sentence}\n"),
        )
            .into_response()
    }
}

async fn answer(State(desk): State<Arc<(Routes, ReviewLimits)>>, request: Request) -> Response {
    let (routes, limits) = desk.as_ref();
    match review(routes, *limits, request).await {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(rejected) => {
            tracing::debug!(status = rejected.0.as_u16(), "{}", rejected.1);
            rejected.into_response()
        }
    }
}

async fn review(routes: &Routes, limits: ReviewLimits, request: Request) -> Result<Vec<u8>, Rejected> {
    let time = patience(request.uri().query(), limits.time);
    let deadline = Instant::now() + time;
    let path = request.uri().path().to_owned();
    let Some(reviewer) = routes.by_path.get(&path) else {
        let known = routes.paths().join(", ");
        return Err(Rejected(
            StatusCode::NOT_FOUND,
            format!("no webhook answers at {path}; there are: {known}"),
        ));
    };
    if request.method() != Method::POST {
        let sentence = format!("{path} answers admission reviews of Kubernetes API servers: POST one");
        return Err(Rejected(StatusCode::METHOD_NOT_ALLOWED, sentence));
    }
    let body = tokio::time::timeout_at(deadline, read(request.into_body(), limits.body_bytes));
    let body = body.await.unwrap_or_else(|_| {
        let sentence = format!("the request took longer than {} s to arrive", time.as_secs_f32());
        Err(Rejected(StatusCode::REQUEST_TIMEOUT, sentence))
    })?;
    let no_review = |problem: &str| {
        Rejected(
            StatusCode::BAD_REQUEST,
            format!("the body is no admission.k8s.io/v1 AdmissionReview: {problem}"),
        )
    };
    let review: AdmissionReview<DynamicObject> =
        serde_json::from_slice(&body).map_err(|problem| no_review(&problem.to_string()))?;
    let request: AdmissionRequest<DynamicObject> = review.try_into().map_err(|_| no_review("it has no request"))?;
    drop(body);

    let (types, uid, otherwise) = (
        request.types.clone(),
        request.uid.clone(),
        AdmissionResponse::from(&request),
    );
    // The call itself may panic too, before there is a future to poll.
    let judged = AssertUnwindSafe(async { reviewer.review(request).await }).catch_unwind();
    let mut response = match tokio::time::timeout_at(deadline, judged).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => {
            tracing::error!(path, "a webhook panicked; the request was denied");
            let sentence = format!("the webhook at {path} failed while judging this request; Usher's log says where");
            denied(otherwise, sentence)
        }
        Err(_) => {
            let sentence = format!(
                "the webhook at {path} took longer than {} s: try again",
                time.as_secs_f32()
            );
            denied(otherwise, sentence)
        }
    };
    // An API server discards an answer without its uid and type; no reviewer can forget them.
    (response.types, response.uid) = (types, uid);
    serde_json::to_vec(&response.into_review()).map_err(|problem| {
        Rejected(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the answer at {path} has no JSON form: {problem}"),
        )
    })
}

/// How long a review may take: API servers say how long they wait (`?timeout=10s`), and an answer with a reason is to
/// reach them before they give up without one.
fn patience(query: Option<&str>, limit: Duration) -> Duration {
    let pairs = query.unwrap_or_default().split('&');
    let stated = pairs.filter_map(|pair| pair.strip_prefix("timeout=")?.strip_suffix('s')?.parse::<u32>().ok());
    stated
        .map(|seconds| Duration::from_millis(900) * seconds)
        .fold(limit, Duration::min)
}

/// Our failure, not the request's: 500, what an API server says itself of a webhook that fails. Not 503 or 504, which
/// clients repeat without a word; kube-rs does for minutes.
fn denied(response: AdmissionResponse, sentence: String) -> AdmissionResponse {
    let mut response = response.deny(sentence);
    response.result.code = StatusCode::INTERNAL_SERVER_ERROR.as_u16();
    response
}

async fn read(body: Body, limit: usize) -> Result<Vec<u8>, Rejected> {
    let mut stream = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(part) = stream.next().await {
        let part = part.map_err(|problem| {
            Rejected(
                StatusCode::BAD_REQUEST,
                format!("the request ended before its body did: {problem}"),
            )
        })?;
        if bytes.len() + part.len() > limit {
            let sentence = format!("the request is larger than {limit} bytes; no object of a Kubernetes API server is");
            return Err(Rejected(StatusCode::PAYLOAD_TOO_LARGE, sentence));
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_review_is_answered_before_the_api_server_gives_up() {
        let limit = Duration::from_secs(10);
        assert_eq!(patience(None, limit), limit);
        assert_eq!(patience(Some("timeout=10s"), limit), Duration::from_secs(9));
        assert_eq!(patience(Some("a=b&timeout=1s"), limit), Duration::from_millis(900));
        assert_eq!(patience(Some("timeout=30s"), limit), limit);
    }

    proptest! {
        #[test]
        fn no_query_makes_a_review_last_longer(query in ".{0,20}", number: u32) {
            let limit = Duration::from_secs(10);
            prop_assert!(patience(Some(&query), limit) <= limit);
            let stated = format!("timeout={number}s");
            prop_assert!(patience(Some(&stated), limit) <= limit);
        }
    }
}
