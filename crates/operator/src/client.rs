//! Clients, each on connections of its own.
//!
//! Watches, lease renewals and writes never share a connection: 64 writers on one starve the rest. Writes go
//! through a *fence*: the connection itself asks the leadership value before each byte it sends, so that a process that
//! was stopped past its lease and goes on cannot finish sending what it had begun to write.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use serde_json::{Value, json};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

/// Names this binary to the API server: `usher/0.1.0 (writer)`. Audit logs tell the connections apart by it.
fn user_agent(role: &str) -> String {
    format!("usher/{} ({role})", env!("CARGO_PKG_VERSION"))
}

/// No refusal's body is longer.
const STATUS_BYTES: usize = 1 << 20;

/// Asked before anything is sent.
pub type MaySend = Arc<dyn Fn() -> bool + Send + Sync>;

/// Refused by the fence.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("not the leader (any more)")]
pub struct NotLeading;

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig's contents do not make a client.
    #[error("cannot make a client for {url}: {problem}; check the kubeconfig's user and cluster entries")]
    Config {
        /// The API server's address.
        url: String,
        /// What is wrong.
        problem: String,
    },
}

/// A client that sends only while `may_send` says so; every request fails with [`NotLeading`] otherwise.
pub fn fenced(config: &kube::Config, may_send: MaySend) -> Result<kube::Client, ClientError> {
    build(config, "writer", Some(may_send))
}

/// As [`fenced`], for events, on connections of its own: they tell what the leader did, and only the leader tells it.
pub(crate) fn telling(config: &kube::Config, may_send: MaySend) -> Result<kube::Client, ClientError> {
    build(config, "events", Some(may_send))
}

/// A client for reading, for one named purpose, on its own connections.
pub fn reading(config: &kube::Config, role: &str) -> Result<kube::Client, ClientError> {
    build(config, role, None)
}

/// A client for what every replica does, leader or not: keeping its certificates, writing down a trigger. Nothing that a
/// plan decided may go through it.
pub(crate) fn unfenced(config: &kube::Config, role: &str) -> Result<kube::Client, ClientError> {
    build(config, role, None)
}

fn build(config: &kube::Config, role: &str, may_send: Option<MaySend>) -> Result<kube::Client, ClientError> {
    let problem = |e: &dyn std::fmt::Display| ClientError::Config {
        url: config.cluster_url.to_string(),
        problem: e.to_string(),
    };
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    // A server that vanished without a word (machine lost, packets dropped) is noticed within half a minute.
    tcp.set_keepalive(Some(Duration::from_secs(15)));
    tcp.set_keepalive_interval(Some(Duration::from_secs(5)));
    tcp.set_keepalive_retries(Some(3));
    tcp.set_connect_timeout(Some(config.connect_timeout.unwrap_or(Duration::from_secs(10))));
    let connector = config
        .rustls_https_connector_with_connector(Fence {
            inner: tcp,
            may_send: may_send.clone(),
        })
        .map_err(|e| problem(&e))?;
    let http: HyperClient<_, Body> = HyperClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .build(connector);
    let agent = http::HeaderValue::from_str(&user_agent(role)).map_err(|e| problem(&e))?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(|e| problem(&e))?)
        .layer(config.extra_headers_layer().map_err(|e| problem(&e))?)
        .map_request(move |mut request: Request<Body>| {
            request.headers_mut().insert(http::header::USER_AGENT, agent.clone());
            request
        })
        .filter(move |request: Request<Body>| -> Result<Request<Body>, BoxError> {
            match &may_send {
                Some(may_send) if !may_send() => Err(NotLeading.into()),
                _ => Ok(request),
            }
        })
        .map_err(BoxError::from)
        .and_then(keep_retry_after)
        .service(http);
    Ok(kube::Client::new(
        service.boxed_clone(),
        config.default_namespace.clone(),
    ))
}

/// A busy API server says in a header how long to wait (priority and fairness, with a text for a body); kube reads only
/// the `Status` in the body. So what the header says is put there.
async fn keep_retry_after(response: Response<Incoming>) -> Result<Response<axum::body::Body>, BoxError> {
    let response = response.map(axum::body::Body::new);
    let asked = response.headers().get(http::header::RETRY_AFTER);
    let asked: Option<u32> = asked.and_then(|seconds| seconds.to_str().ok()?.parse().ok());
    let (Some(asked), StatusCode::TOO_MANY_REQUESTS) = (asked, response.status()) else {
        return Ok(response);
    };
    let (mut head, body) = response.into_parts();
    let body = axum::body::to_bytes(body, STATUS_BYTES).await?;
    let mut status = match serde_json::from_slice(&body) {
        Ok(status @ Value::Object(_)) => status,
        _ => json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429,
            "reason": "TooManyRequests", "message": String::from_utf8_lossy(&body).trim()}),
    };
    if let Some(fields) = status.as_object_mut() {
        let details = fields.entry("details").or_insert_with(|| json!({}));
        if let Some(details) = details.as_object_mut() {
            details.entry("retryAfterSeconds").or_insert_with(|| asked.into());
        }
    }
    head.headers.remove(http::header::CONTENT_LENGTH);
    Ok(Response::from_parts(head, status.to_string().into()))
}

/// A connector whose connections ask before they send.
#[derive(Clone)]
struct Fence {
    inner: HttpConnector,
    may_send: Option<MaySend>,
}

impl Service<Uri> for Fence {
    type Response = FencedIo<<HttpConnector as Service<Uri>>::Response>;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.inner.call(uri);
        let may_send = self.may_send.clone();
        Box::pin(async move {
            Ok(FencedIo {
                inner: connecting.await?,
                may_send,
            })
        })
    }
}

/// A connection that refuses to send once the lease is over; the refusal breaks it, so nothing half-sent is finished.
struct FencedIo<T> {
    inner: T,
    may_send: Option<MaySend>,
}

impl<T> FencedIo<T> {
    fn check(&self) -> io::Result<()> {
        match &self.may_send {
            Some(may_send) if !may_send() => Err(io::Error::new(io::ErrorKind::ConnectionAborted, NotLeading)),
            _ => Ok(()),
        }
    }
}

impl<T: hyper::rt::Read + Unpin> hyper::rt::Read for FencedIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: hyper::rt::Write + Unpin> hyper::rt::Write for FencedIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }
}

impl<T: Connection> Connection for FencedIo<T> {
    fn connected(&self) -> Connected {
        self.inner.connected()
    }
}

#[cfg(test)]
mod tests;
