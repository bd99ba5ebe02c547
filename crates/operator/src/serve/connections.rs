//! Accepting connections, plain or TLS, with a bound on everything: how many, how long a handshake, how long and
//! how large a header, how long a farewell.
//!
//! The loop owns the listener and every connection it accepted. Stop travels to all of them: the listener closes first,
//! idle connections close at once, busy ones after their answer, and whatever is left after the farewell is cut.
//!
//! HTTP/1.1 only: API servers speak it, and a server without HTTP/2 has none of its floods.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

/// Longest pause after the system refused an accept (no file handles left): long enough not to spin, short enough
/// to be back before a probe gives up.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Open at once; the next one waits in the system's backlog.
    pub(crate) connections: usize,
    /// For the TLS handshake.
    pub(crate) handshake: Duration,
    /// For the head of a connection's first request: who connects has something to ask.
    pub(crate) first: Duration,
    /// For the head of a request. Longer ones are refused (431).
    pub(crate) header_bytes: usize,
    /// For the head of any later request, and so for how long a connection may idle.
    pub(crate) headers: Duration,
    /// For the answers under way when told to stop.
    pub(crate) farewell: Duration,
}

/// Serves `router` until `stop` is true or its sender is gone.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(limits.connections));
    let mut open = JoinSet::new();
    loop {
        while open.try_join_next().is_some() {}
        let accepted = tokio::select! {
            () = stopped(&mut stop) => break,
            accepted = accept(&listener, &room) => accepted,
        };
        let Some((stream, place)) = accepted else { continue };
        let (tls, router, stop) = (tls.clone(), router.clone(), stop.clone());
        open.spawn(async move {
            connection(stream, tls, router, limits, stop).await;
            drop(place);
        });
    }
    drop(listener);
    let farewell = async { while open.join_next().await.is_some() {} };
    if tokio::time::timeout(limits.farewell, farewell).await.is_err() {
        tracing::debug!(
            connections = open.len(),
            "connections cut: their answers took too long while stopping"
        );
    }
}

/// Resolves when told to stop, or when nobody is left who could tell.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    // Place first: an accepted connection that nobody reads would look alive to its client.
    let place = Arc::clone(room).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(error) => {
            tracing::debug!(%error, "a connection could not be accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: Limits,
    stop: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = tls else {
        return speak(stream, router, limits, stop).await;
    };
    match tokio::time::timeout(limits.handshake, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => speak(stream, router, limits, stop).await,
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake took too long"),
    }
}

async fn speak<S>(stream: S, router: Router, limits: Limits, mut stop: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let asked = Arc::new(AtomicBool::new(false));
    let service = router.map_request({
        let asked = Arc::clone(&asked);
        move |request: Request<Incoming>| {
            asked.store(true, Ordering::Relaxed);
            request
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.headers)
        // The one bounds what is kept of a header that never ends, the other what is accepted.
        .max_buf_size(limits.header_bytes)
        .max_header_size(limits.header_bytes)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut connection = std::pin::pin!(connection);
    let silent = async {
        tokio::time::sleep(limits.first).await;
        if asked.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = silent => return tracing::debug!("connection cut: no whole request came"),
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.as_mut().await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
}
