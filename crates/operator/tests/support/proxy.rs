//! A door between an operator and the real API server, which can be told to misbehave.
//!
//! It listens in the clear; whatever passes goes on to the real server with the kubeconfig's credentials, and every
//! request is noted. Faults are rules: the first one that fits a request and is not used up decides what happens to it.

use std::collections::{BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::body::{Body, Bytes};
use futures::StreamExt;
use http::{HeaderName, Request, Response, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

/// Which requests a rule is for.
#[derive(Debug, Clone, Default)]
pub struct When {
    method: Option<&'static str>,
    path: Vec<String>,
    agent: Option<&'static str>,
    name: Option<String>,
}

/// Requests of this method whose path and query contain `path`.
pub fn on(method: &'static str, path: impl Into<String>) -> When {
    When {
        method: Some(method),
        path: vec![path.into()],
        ..When::default()
    }
}

/// Requests of one of the operator's clients: `writer`, `watch`, `lease`, `events`.
pub fn of(agent: &'static str) -> When {
    When {
        agent: Some(agent),
        ..When::default()
    }
}

impl When {
    /// Which also contain this.
    pub fn and(mut self, path: impl Into<String>) -> Self {
        self.path.push(path.into());
        self
    }

    /// Whose body names this object: a creation's path does not.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    pub fn fits(&self, request: &Seen) -> bool {
        let named = request.body.pointer("/metadata/name").and_then(Value::as_str);
        self.method.is_none_or(|method| method == request.method)
            && self.path.iter().all(|part| request.path.contains(part))
            && self
                .agent
                .is_none_or(|agent| request.agent.contains(&format!("({agent})")))
            && (self.name.is_none() || self.name.as_deref() == named)
    }
}

/// What happens instead of the request's going through.
#[derive(Debug, Clone)]
pub enum Fault {
    /// This answer, and no effect.
    Answer {
        code: u16,
        body: Value,
        retry_after: Option<u32>,
    },
    /// The connection breaks before the server hears of it.
    CutBefore,
    /// The server acts, and the connection breaks before its answer arrives.
    CutAfter,
    /// It waits here until released, then goes through. Whoever hangs up meanwhile never sent it.
    Hold(watch::Receiver<bool>),
    /// The server acts, and its answer waits here until released.
    HoldAnswer(watch::Receiver<bool>),
}

impl Fault {
    /// A refusal as the API server words it.
    pub fn answer(code: u16, reason: &str) -> Self {
        let message = format!("the proxy says {reason}");
        Fault::Answer {
            code,
            body: json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "code": code, "reason": reason, "message": message, "details": {}}),
            retry_after: None,
        }
    }

    /// Priority and fairness: a header, and a text for a body.
    pub fn too_many(seconds: u32) -> Self {
        Fault::Answer {
            code: 429,
            body: Value::String("Too many requests, please try again later.".into()),
            retry_after: Some(seconds),
        }
    }
}

/// A rule at work.
#[derive(Debug)]
pub struct Rule {
    when: When,
    fault: Fault,
    left: AtomicUsize,
    hits: AtomicUsize,
}

impl Rule {
    /// How many requests it has met.
    pub fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }

    pub fn lift(&self) {
        self.left.store(0, Ordering::SeqCst);
    }

    fn take(&self) -> bool {
        let used = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if used.is_ok() {
            self.hits.fetch_add(1, Ordering::SeqCst);
        }
        used.is_ok()
    }
}

/// Requests that wait; dropping it lets them go.
#[derive(Debug)]
pub struct Held {
    pub rule: Arc<Rule>,
    gate: watch::Sender<bool>,
}

impl Held {
    pub fn release(self) {
        self.rule.lift();
        self.gate.send_replace(true);
    }
}

/// A request, as noted.
#[derive(Debug, Clone)]
pub struct Seen {
    pub connection: u64,
    pub agent: String,
    pub method: String,
    /// Path and query.
    pub path: String,
    pub body: Value,
    /// What the real server answered; `None` if it was not asked, or has not answered.
    pub code: Option<u16>,
    pub at: Instant,
}

impl Seen {
    /// Whether it changed something.
    pub fn took_effect(&self) -> bool {
        self.method != "GET" && self.code.is_some_and(|code| (200..300).contains(&code))
    }
}

/// How running watches end.
#[derive(Debug, Clone)]
enum Ending {
    Cut,
    Line(Value),
}

#[derive(Debug, Clone, Default)]
struct Watches {
    /// Every order to end, with the path it is for.
    orders: Vec<(String, Ending)>,
    /// Paths whose events are kept back.
    held: BTreeSet<String>,
    /// Every order to say the last events again, with the path it is for.
    repeats: Vec<(String, usize)>,
}

/// Events of a watch that can be said again.
const REMEMBERED: usize = 8;

struct Inner {
    upstream: kube::Client,
    rules: Mutex<Vec<Arc<Rule>>>,
    log: Mutex<Vec<Seen>>,
    watches: watch::Sender<Watches>,
    connections: AtomicU64,
    repeated: AtomicUsize,
}

/// The proxy. Dropping it closes everything.
pub struct Proxy {
    pub address: SocketAddr,
    inner: Arc<Inner>,
    accepting: Option<JoinHandle<()>>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.down();
    }
}

impl Proxy {
    /// Listens, in the clear.
    pub async fn start(upstream: kube::Client) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Inner {
            upstream,
            rules: Mutex::default(),
            log: Mutex::default(),
            watches: watch::Sender::new(Watches::default()),
            connections: AtomicU64::new(0),
            repeated: AtomicUsize::new(0),
        });
        let accepting = Some(tokio::spawn(accept(listener, inner.clone())));
        Self {
            address,
            inner,
            accepting,
        }
    }

    /// What an operator needs to come in here.
    pub fn config(&self) -> kube::Config {
        kube::Config::new(format!("http://{}", self.address).parse().unwrap())
    }

    /// The same as a file, for an operator that is a process.
    pub fn kubeconfig(&self, path: &Path) -> PathBuf {
        let cluster = json!({"name": "proxy", "cluster": {"server": format!("http://{}", self.address)}});
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy", "clusters": [cluster],
            "users": [{"name": "proxy", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
        });
        std::fs::write(path, text.to_string()).unwrap();
        path.to_owned()
    }

    /// The next `times` requests that fit meet the fault.
    pub fn fault(&self, when: When, times: usize, fault: Fault) -> Arc<Rule> {
        let rule = Arc::new(Rule {
            when,
            fault,
            left: AtomicUsize::new(times),
            hits: AtomicUsize::new(0),
        });
        self.inner.rules.lock().unwrap().push(rule.clone());
        rule
    }

    /// All requests that fit wait until released.
    pub fn hold(&self, when: When) -> Held {
        let (gate, open) = watch::channel(false);
        let rule = self.fault(when, usize::MAX, Fault::Hold(open));
        Held { rule, gate }
    }

    /// The answers of all requests that fit wait until released; what they ask for is done.
    pub fn hold_answers(&self, when: When, times: usize) -> Held {
        let (gate, open) = watch::channel(false);
        let rule = self.fault(when, times, Fault::HoldAnswer(open));
        Held { rule, gate }
    }

    /// Sends the last events of the running watches of this path once more, at most so many.
    pub fn repeat_watches(&self, path: &str, events: usize) {
        let order = (path.to_owned(), events.min(REMEMBERED));
        self.inner.watches.send_modify(|watches| watches.repeats.push(order));
    }

    /// How many events were sent once more.
    pub fn repeated(&self) -> usize {
        self.inner.repeated.load(Ordering::SeqCst)
    }

    /// Breaks the running watches of this path.
    pub fn cut_watches(&self, path: &str) {
        self.end_watches(path, Ending::Cut);
    }

    /// Ends the running watches of this path with one more event.
    pub fn end_watches_with(&self, path: &str, event: Value) {
        self.end_watches(path, Ending::Line(event));
    }

    fn end_watches(&self, path: &str, ending: Ending) {
        let order = (path.to_owned(), ending);
        self.inner.watches.send_modify(|watches| watches.orders.push(order));
    }

    /// Keeps back the events of this path's watches: the view falls behind.
    pub fn hold_watches(&self, path: &str) {
        self.inner.watches.send_modify(|watches| {
            watches.held.insert(path.to_owned());
        });
    }

    pub fn release_watches(&self, path: &str) {
        self.inner.watches.send_modify(|watches| {
            watches.held.remove(path);
        });
    }

    /// The server is gone: nothing listens, every connection is broken.
    pub fn down(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
        }
    }

    /// And back again, at the same address.
    pub async fn up(&mut self) {
        let listener = loop {
            match TcpListener::bind(self.address).await {
                Ok(listener) => break listener,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        self.accepting = Some(tokio::spawn(accept(listener, self.inner.clone())));
    }

    /// The requests that fit, in order.
    pub fn seen(&self, when: &When) -> Vec<Seen> {
        let log = self.inner.log.lock().unwrap();
        log.iter().filter(|request| when.fits(request)).cloned().collect()
    }

    /// Those of them that changed something.
    pub fn effects(&self, when: &When) -> Vec<Seen> {
        let mut seen = self.seen(when);
        seen.retain(Seen::took_effect);
        seen
    }
}

async fn accept(listener: TcpListener, inner: Arc<Inner>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let number = inner.connections.fetch_add(1, Ordering::SeqCst);
        connections.spawn(connection(stream, number, inner.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: TcpStream, number: u64, inner: Arc<Inner>) {
    let service = service_fn(move |request| handle(inner.clone(), number, request));
    // How a connection ends is the fault's business.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Tells hyper to break the connection.
#[derive(Debug, thiserror::Error)]
#[error("cut by the proxy")]
struct Cut;

async fn handle(inner: Arc<Inner>, connection: u64, request: Request<Incoming>) -> Result<Response<Body>, Cut> {
    let (mut head, body) = request.into_parts();
    let body = axum::body::to_bytes(Body::new(body), usize::MAX)
        .await
        .map_err(|_| Cut)?;
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let agent = head
        .headers
        .get(header::USER_AGENT)
        .and_then(|agent| agent.to_str().ok());
    let seen = Seen {
        connection,
        agent: agent.unwrap_or_default().to_owned(),
        method: head.method.to_string(),
        path: path.clone(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
        code: None,
        at: Instant::now(),
    };
    let rule = {
        let rules = inner.rules.lock().unwrap();
        rules.iter().find(|rule| rule.when.fits(&seen) && rule.take()).cloned()
    };
    let number = {
        let mut log = inner.log.lock().unwrap();
        log.push(seen);
        log.len() - 1
    };
    let fault = rule.map(|rule| rule.fault.clone());
    match &fault {
        Some(Fault::Answer {
            code,
            body,
            retry_after,
        }) => return Ok(refusal(*code, body, *retry_after)),
        Some(Fault::CutBefore) => return Err(Cut),
        Some(Fault::Hold(open)) => drop(open.clone().wait_for(|open| *open).await),
        Some(Fault::CutAfter | Fault::HoldAnswer(_)) | None => {}
    }
    head.uri = path.parse().map_err(|_| Cut)?;
    for name in [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TE] {
        head.headers.remove(name);
    }
    let onward = Request::from_parts(head, kube::client::Body::from(body.to_vec()));
    let response = inner.upstream.send(onward).await.map_err(|_| Cut)?;
    let (mut head, body) = response.into_parts();
    inner.log.lock().unwrap()[number].code = Some(head.status.as_u16());
    for name in [
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        HeaderName::from_static("keep-alive"),
    ] {
        head.headers.remove(name);
    }
    head.version = http::Version::default();
    if path.contains("watch=true") || path.contains("watch=1") {
        return Ok(Response::from_parts(head, watched(inner, path, Body::new(body))));
    }
    // Whole, so that the effect is certain before the answer is lost.
    let body = axum::body::to_bytes(Body::new(body), usize::MAX)
        .await
        .map_err(|_| Cut)?;
    match fault {
        Some(Fault::CutAfter) => return Err(Cut),
        Some(Fault::HoldAnswer(open)) => drop(open.clone().wait_for(|open| *open).await),
        _ => {}
    }
    Ok(Response::from_parts(head, Body::from(body)))
}

fn refusal(code: u16, body: &Value, retry_after: Option<u32>) -> Response<Body> {
    let mut response = Response::builder().status(code);
    if let Some(seconds) = retry_after {
        response = response.header(header::RETRY_AFTER, seconds);
    }
    let text = match body {
        Value::String(text) => text.clone(),
        status => status.to_string(),
    };
    response.body(Body::from(text)).unwrap()
}

/// A watch's answer, passed on line by line as it comes, until somebody orders its end.
fn watched(inner: Arc<Inner>, path: String, body: Body) -> Body {
    let mut watches = inner.watches.subscribe();
    let (before, mut told) = {
        let watches = watches.borrow_and_update();
        (watches.orders.len(), watches.repeats.len())
    };
    let (to, from) = mpsc::channel::<Result<Bytes, std::io::Error>>(16);
    tokio::spawn(async move {
        let mut events = body.into_data_stream();
        let (mut unfinished, mut last) = (Vec::new(), VecDeque::new());
        // What a streaming list begins with is state, not events.
        let mut live = !path.contains("sendInitialEvents=true");
        loop {
            let (held, ending, again) = {
                let watches = watches.borrow_and_update();
                let mut orders = watches.orders.iter().skip(before);
                let ours = orders.find(|(part, _)| path.contains(part));
                let held = watches.held.iter().any(|part| path.contains(part));
                let repeats = watches
                    .repeats
                    .iter()
                    .skip(told)
                    .filter(|(part, _)| path.contains(part));
                let again: usize = repeats.map(|(_, events)| *events).max().unwrap_or(0);
                told = watches.repeats.len();
                (held, ours.map(|(_, ending)| ending.clone()), again)
            };
            match ending {
                Some(Ending::Cut) => return drop(to.send(Err(std::io::Error::other("cut by the proxy"))).await),
                Some(Ending::Line(event)) => return drop(to.send(Ok(Bytes::from(format!("{event}\n")))).await),
                None => {}
            }
            let old: Vec<Bytes> = last.iter().skip(last.len().saturating_sub(again)).cloned().collect();
            inner.repeated.fetch_add(old.len(), Ordering::SeqCst);
            for line in old {
                if to.send(Ok(line)).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                chunk = events.next(), if !held => {
                    let bytes = match chunk {
                        None => return,
                        Some(Err(error)) => return drop(to.send(Err(std::io::Error::other(error))).await),
                        Some(Ok(bytes)) => bytes,
                    };
                    unfinished.extend_from_slice(&bytes);
                    while let Some(end) = unfinished.iter().position(|byte| *byte == b'\n') {
                        let line = Bytes::from(unfinished.drain(..=end).collect::<Vec<u8>>());
                        if live {
                            last.push_back(line.clone());
                        }
                        live |= String::from_utf8_lossy(&line).contains("k8s.io/initial-events-end");
                        if last.len() > REMEMBERED {
                            last.pop_front();
                        }
                        if to.send(Ok(line)).await.is_err() {
                            return;
                        }
                    }
                }
                changed = watches.changed() => if changed.is_err() { return },
                () = to.closed() => return,
            }
        }
    });
    Body::from_stream(futures::stream::unfold(from, async |mut from| {
        let next = from.recv().await?;
        Some((next, from))
    }))
}
