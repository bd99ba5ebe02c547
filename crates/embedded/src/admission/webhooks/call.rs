//! Calling a webhook: an in-process handler if one is registered for its URL, else HTTPS.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;
use futures::future::{BoxFuture, Either, select};
use http::Request;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::SendRequest;
use jiff::SignedDuration;
use serde_json::Value;

use super::hook::Place;
use super::{reply, wire};
use crate::clock::Clock;
use crate::store::Store;

/// The most of an answer that is read.
const MOST_BYTES: usize = 3 * 1024 * 1024;
/// Kept for each place; more are closed after their answer.
const MOST_IDLE: usize = 8;
/// Places remembered; the reference keeps as many clients.
const MOST_PLACES: usize = 200;

/// Answers AdmissionReviews in this process.
pub(super) type Handler = Arc<dyn Fn(Value) -> BoxFuture<'static, Value> + Send + Sync>;

/// Whom webhooks are called through.
#[derive(Default)]
pub(super) struct Callers {
    handlers: RwLock<HashMap<String, Handler>>,
    idle: Mutex<HashMap<Place, Vec<SendRequest<Full<Bytes>>>>>,
}

impl fmt::Debug for Callers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handlers = self.handlers.read().unwrap_or_else(PoisonError::into_inner);
        formatter
            .debug_struct("Callers")
            .field("handlers", &handlers.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Callers {
    pub(super) fn handle(&self, url: &str, handler: Handler) {
        let mut handlers = self.handlers.write().unwrap_or_else(PoisonError::into_inner);
        handlers.insert(url.to_owned(), handler);
    }

    /// The answer to a review, within so many seconds. An error is what the reference's client would say.
    pub(super) async fn call(
        &self,
        store: &Store,
        clock: &Clock,
        place: &Place,
        review: Value,
        seconds: u64,
    ) -> Result<Value, String> {
        let until = clock
            .now()
            .saturating_add(SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX)));
        let until = until.unwrap_or_else(|_| clock.now());
        let handler = {
            let handlers = self.handlers.read().unwrap_or_else(PoisonError::into_inner);
            handlers.get(&place.url).cloned()
        };
        let answer = async {
            match handler {
                Some(handler) => Ok(handler(review).await),
                None => self.post(store, place, &review, seconds).await,
            }
        };
        // Waited for only if the answer is not there at once: then no clock is asked (E2).
        let alarm = async { clock.until(until).await };
        match select(std::pin::pin!(answer), std::pin::pin!(alarm)).await {
            Either::Left((answer, _)) => answer,
            Either::Right(((), _)) => Err(posting(place, seconds, "context deadline exceeded")),
        }
    }

    async fn post(&self, store: &Store, place: &Place, review: &Value, seconds: u64) -> Result<Value, String> {
        let wrong = |why: String| posting(place, seconds, &why);
        let url: http::Uri = place
            .url
            .parse()
            .map_err(|why: http::uri::InvalidUri| wrong(why.to_string()))?;
        let body = Bytes::from(review.to_string());
        let request = || {
            Request::post(format!("{}?timeout={seconds}s", path_of(&url)))
                .header("host", url.authority().map_or("", |authority| authority.as_str()))
                .header("content-type", "application/json")
                .header("accept", "application/json, */*")
                .header("user-agent", "kube-apiserver-admission")
                .body(Full::new(body.clone()))
                .map_err(|why| wrong(why.to_string()))
        };
        let mut answered = None;
        while let Some(mut sender) = self.take(place) {
            match sender.send_request(request()?).await {
                Ok(response) => {
                    answered = Some((sender, response));
                    break;
                }
                // It was closed meanwhile, and nothing was sent.
                Err(why) if why.is_canceled() || why.is_closed() => {}
                Err(why) => return Err(wrong(broken(&why))),
            }
        }
        let (sender, response) = match answered {
            Some(answered) => answered,
            None => {
                let mut sender = wire::connect(store, place, &url).await.map_err(wrong)?;
                let response = sender
                    .send_request(request()?)
                    .await
                    .map_err(|why| wrong(broken(&why)))?;
                (sender, response)
            }
        };
        let status = response.status();
        let content_type = response.headers().get("content-type");
        let content_type = content_type
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        let read = Limited::new(response.into_body(), MOST_BYTES).collect().await;
        let bytes = read.map_err(|why| wrong(why.to_string()))?.to_bytes();
        self.keep(place, sender);
        reply::read(status, &content_type, &bytes)
    }

    fn take(&self, place: &Place) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let senders = idle.get_mut(place)?;
        std::iter::from_fn(|| senders.pop()).find(|sender| !sender.is_closed())
    }

    fn keep(&self, place: &Place, sender: SendRequest<Full<Bytes>>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() >= MOST_PLACES && !idle.contains_key(place) {
            idle.clear();
        }
        let senders = idle.entry(place.clone()).or_default();
        if senders.len() < MOST_IDLE {
            senders.push(sender);
        }
    }
}

fn path_of(url: &http::Uri) -> &str {
    match url.path() {
        "" => "/",
        path => path,
    }
}

/// A call that came to nothing, as the reference's client says it.
fn posting(place: &Place, seconds: u64, why: &str) -> String {
    let slash = match place.url.parse::<http::Uri>() {
        Ok(url) if url.path() == "/" && !place.url.ends_with('/') => "/",
        _ => "",
    };
    format!("Post \"{}{slash}?timeout={seconds}s\": {why}", place.url)
}

fn broken(why: &hyper::Error) -> String {
    let source = std::error::Error::source(why).and_then(|source| source.downcast_ref::<std::io::Error>());
    let is_over = source.is_some_and(|source| source.kind() == std::io::ErrorKind::UnexpectedEof);
    if is_over || why.is_incomplete_message() {
        "EOF".to_owned()
    } else {
        why.to_string()
    }
}

/// Turns a handler of the caller's into ours.
pub(super) fn boxed<H, F>(handler: H) -> Handler
where
    H: Fn(Value) -> F + Send + Sync + 'static,
    F: Future<Output = Value> + Send + 'static,
{
    Arc::new(move |review| Box::pin(handler(review)))
}
