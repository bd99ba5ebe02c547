//! List and watch, into the view.
//!
//! kube-runtime's watcher starts a streaming list at resourceVersion 0, which any API server may answer from an old
//! cache. The view promises more: its first state is a quorum read. So this small loop does it itself: one streaming
//! list with resourceVersion unset where the server has them, pages of 500 otherwise; then watch, resume after breaks,
//! and list again after a 410.

use std::time::Duration;

use futures::{Stream, TryStreamExt};
use kube::Api;
use kube::api::{DynamicObject, ListParams, Request, WatchEvent, WatchParams};
use usher_engine::Backoff;

use crate::arrived::{Arrived, Page};
use crate::record::ApiType;
use crate::view::Event;

/// Objects per page of a list.
const PAGE: u32 = 500;
/// How long the server keeps one watch request open. Shorter than the common 5 minutes of load balancers.
const WATCH_SECONDS: u32 = 240;
/// A request that is not answered at all by then is given up. The API server's own limit is 60 s.
const ANSWER: Duration = if cfg!(test) {
    Duration::from_millis(100)
} else {
    Duration::from_secs(75)
};
/// A watch that says nothing this long past its end is dead.
const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 15);
/// A watch that ends sooner was not ended by its time: wait a little before the next, so that a server or proxy that
/// closes at once is not asked in a tight loop.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);
/// Which annotation marks the end of a streaming list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Why a watch ended.
#[derive(Debug, thiserror::Error)]
enum Break {
    #[error("{}", sentence(.0))]
    Client(#[from] kube::Error),
    #[error("the server forgot the version we had (410); listing again")]
    Expired,
    #[error("the server answered {code}: {message}")]
    Refused { code: u16, message: String },
    #[error("nothing heard for {} s", SILENCE.as_secs())]
    Silent,
    #[error("no answer within {} s", ANSWER.as_secs())]
    NoAnswer,
    #[error("the list has no resourceVersion")]
    NoVersion,
    #[error("the server ended the answer early")]
    Cut,
}

/// The server's own words, where it said any.
fn sentence(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("the server answered {}: {}", status.code, status.message),
        other => crate::error::words(other),
    }
}

/// Where watch events go, and what is told about breaks.
pub(crate) trait Sink: Send {
    /// One event of the type, in order.
    fn event(&mut self, kind: ApiType, event: Event);
    /// The watch broke; it is tried again after `wait`.
    fn broke(&mut self, kind: ApiType, problem: &str, wait: Duration);
}

/// Keeps one type's state flowing into the sink until the task is dropped.
pub(crate) async fn run(client: kube::Client, kind: ApiType, namespace: Option<String>, mut sink: impl Sink) {
    let server = Server {
        path: Request::new(api(client.clone(), kind, namespace.as_deref()).resource_url()),
        client,
    };
    let mut resume: Option<String> = None;
    let mut streaming = true;
    let mut failures = 0;
    loop {
        let before = resume.clone();
        let ended = match &resume {
            None => listed(&server, kind, streaming, &mut resume, &mut sink).await,
            Some(_) => follow(&server, kind, &mut resume, &mut sink).await,
        };
        // Progress since the last break means that the server is there: start the back-off anew.
        if resume != before {
            failures = 0;
        }
        let Err(problem) = ended else { continue };
        match &problem {
            // Nothing is wrong with the server: list again at once.
            Break::Expired => {
                resume = None;
                failures = 0;
            }
            // A server without streaming lists refuses the parameter; take pages from then on.
            Break::Client(kube::Error::Api(status)) if streaming && resume.is_none() && is_refusal(status.code) => {
                streaming = false;
                continue;
            }
            Break::Client(kube::Error::Api(status)) if status.code == 410 => {
                resume = None;
                failures = 0;
            }
            _ => {}
        }
        failures += 1;
        let wait = Backoff::default().delay(failures).max(asked_to_wait(&problem));
        sink.broke(kind, &problem.to_string(), wait);
        tokio::time::sleep(wait).await;
    }
}

/// What a busy server asks for (429), within reason.
fn asked_to_wait(problem: &Break) -> Duration {
    match problem {
        Break::Client(kube::Error::Api(status)) if status.code == 429 => {
            let seconds = status
                .details
                .as_ref()
                .map_or(1, |d| d.retry_after_seconds.clamp(1, 120));
            Duration::from_secs(u64::from(seconds))
        }
        _ => Duration::ZERO,
    }
}

async fn answered<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Break> {
    match tokio::time::timeout(ANSWER, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Break::NoAnswer),
    }
}

/// Where lists and watches of one type are asked for.
struct Server {
    client: kube::Client,
    path: Request,
}

impl Server {
    async fn list(&self, params: &ListParams) -> Result<Page, kube::Error> {
        let request = self.path.list(params).map_err(kube::Error::BuildRequest)?;
        self.client.request(request).await
    }

    async fn watch(
        &self,
        params: &WatchParams,
        version: &str,
    ) -> Result<impl Stream<Item = Result<WatchEvent<Arrived>, kube::Error>> + use<>, kube::Error> {
        let request = self.path.watch(params, version).map_err(kube::Error::BuildRequest)?;
        self.client.request_events(request).await
    }
}

fn is_refusal(code: u16) -> bool {
    matches!(code, 400 | 422)
}

fn api(client: kube::Client, kind: ApiType, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &kind.resource()),
        None => Api::all_with(client, &kind.resource()),
    }
}

/// Takes the whole state; leaves in `resume` the version to watch from.
async fn listed(
    server: &Server,
    kind: ApiType,
    streaming: bool,
    resume: &mut Option<String>,
    sink: &mut impl Sink,
) -> Result<(), Break> {
    // Before the request is sent: what exists now is in the list, or will have been deleted.
    sink.event(kind, Event::ListStarted);
    if streaming {
        let params = WatchParams::default().initial_events().timeout(WATCH_SECONDS);
        let stream = answered(server.watch(&params, "")).await?;
        return consume(stream, kind, true, resume, sink).await;
    }
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = answered(server.list(&params)).await?;
        for Arrived(object) in page.items {
            sink.event(kind, Event::Listed(object));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => {
                let version = page.metadata.resource_version.ok_or(Break::NoVersion)?;
                sink.event(
                    kind,
                    Event::ListDone {
                        revision: version.parse().map_err(|_| Break::NoVersion)?,
                    },
                );
                *resume = Some(version);
                return Ok(());
            }
        }
    }
}

/// Watches from `resume` on, moving it with each event.
async fn follow(
    server: &Server,
    kind: ApiType,
    resume: &mut Option<String>,
    sink: &mut impl Sink,
) -> Result<(), Break> {
    let params = WatchParams::default().timeout(WATCH_SECONDS);
    let stream = answered(server.watch(&params, resume.as_deref().unwrap_or_default())).await?;
    sink.event(kind, Event::Resumed);
    consume(stream, kind, false, resume, sink).await
}

async fn consume(
    stream: impl Stream<Item = Result<WatchEvent<Arrived>, kube::Error>>,
    kind: ApiType,
    mut listing: bool,
    resume: &mut Option<String>,
    sink: &mut impl Sink,
) -> Result<(), Break> {
    let mut stream = std::pin::pin!(stream);
    let begun = tokio::time::Instant::now();
    loop {
        let event = match tokio::time::timeout(SILENCE, stream.try_next()).await {
            Err(_) => return Err(Break::Silent),
            Ok(next) => match next? {
                Some(event) => event,
                // The server's time-out: go on from where we are; a list that was not complete begins anew.
                None if listing || begun.elapsed() < SHORTEST_WATCH => return Err(Break::Cut),
                None => return Ok(()),
            },
        };
        match event {
            WatchEvent::Added(Arrived(object)) | WatchEvent::Modified(Arrived(object)) if listing => {
                sink.event(kind, Event::Listed(object));
            }
            WatchEvent::Added(Arrived(object)) | WatchEvent::Modified(Arrived(object)) => {
                *resume = object.metadata.resource_version.clone().or_else(|| resume.take());
                sink.event(kind, Event::Applied(object));
            }
            // Part of the list: there is no version to go on from before it is complete.
            WatchEvent::Deleted(Arrived(object)) if listing => sink.event(kind, Event::Deleted(object)),
            WatchEvent::Deleted(Arrived(object)) => {
                *resume = object.metadata.resource_version.clone().or_else(|| resume.take());
                sink.event(kind, Event::Deleted(object));
            }
            WatchEvent::Bookmark(bookmark) => {
                let version = bookmark.metadata.resource_version;
                let Ok(revision) = version.parse() else { continue };
                if !listing {
                    sink.event(kind, Event::Bookmark { revision });
                } else if bookmark.metadata.annotations.contains_key(INITIAL_EVENTS_END) {
                    listing = false;
                    sink.event(kind, Event::ListDone { revision });
                } else {
                    continue;
                }
                *resume = Some(version);
            }
            WatchEvent::Error(status) if status.code == 410 => return Err(Break::Expired),
            WatchEvent::Error(status) => {
                return Err(Break::Refused {
                    code: status.code,
                    message: status.message,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
