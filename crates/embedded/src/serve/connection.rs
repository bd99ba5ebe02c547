//! One connection: handshake, HTTP, and how it ends.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::api::streams::Stopping as UntilStop;
use crate::api::{ApiBody, ApiService};

/// How long silence is borne.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Who connects and does not say hello is not waited for.
    pub(super) handshake: Duration,
    /// For a request's headers, and between two requests on one connection. Clients drop theirs after 90 s (client-go,
    /// hyper): they are to be first, since a request sent into a closing connection fails.
    pub(super) headers: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            headers: Duration::from_secs(120),
        }
    }
}

/// A silent h2 peer is asked this often whether it is there, and dropped if it does not answer.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(20);
/// A1 wants 250: informers of a large program share one connection.
const STREAMS: u32 = 1_000;
const HEADER_BYTES: u32 = 64 * 1024;

/// Turns true when the listener is to stop.
pub(super) type Stopping = watch::Receiver<bool>;

/// Serves until the client goes, or what it asked before the stop is answered.
pub(super) async fn serve(
    tcp: TcpStream,
    tls: TlsAcceptor,
    api: ApiService,
    patience: Patience,
    mut stopping: Stopping,
) {
    let _ = tcp.set_nodelay(true);
    let greeted = tokio::select! {
        greeted = tokio::time::timeout(patience.handshake, tls.accept(tcp)) => greeted,
        () = stopped(&mut stopping) => return,
    };
    let stream = match greeted {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "no TLS");
            return;
        }
        Err(_) => return,
    };
    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let io = TokioIo::new(stream);
    let until = stopping.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (api, until) = (api.clone(), until.clone());
        // For what takes the connection over: its end is no longer ours to wait for.
        request.extensions_mut().insert(UntilStop(until.clone()));
        async move {
            // A task of its own: a client that goes away in the middle of a write does not leave half of it done.
            let response = match tokio::spawn(api.answer(request)).await {
                Ok(response) => response,
                Err(error) => {
                    tracing::error!(%error, "a request ended in a panic");
                    crate::api::panicked()
                }
            };
            Ok::<_, Infallible>(response.map(|body| Ending::new(body, until)))
        }
    });
    // By ALPN, not by looking at the first bytes: those may never come, and nothing would time that.
    if is_h2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(HEADER_BYTES)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG);
        let connection = std::pin::pin!(builder.serve_connection(io, service));
        drive(connection, stopping, |connection| connection.graceful_shutdown()).await;
    } else {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(patience.headers)
            .max_buf_size(HEADER_BYTES as usize);
        let connection = std::pin::pin!(builder.serve_connection(io, service).with_upgrades());
        drive(connection, stopping, |connection| connection.graceful_shutdown()).await;
    }
}

async fn drive<C>(mut connection: Pin<&mut C>, mut stopping: Stopping, finish: impl FnOnce(Pin<&mut C>))
where
    C: Future<Output = Result<(), hyper::Error>>,
{
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut stopping) => {
            finish(connection.as_mut());
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// A sender that is gone is a listener that is gone.
async fn stopped(stopping: &mut Stopping) {
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// An answer that ends at the stop if it would not end by itself: watches do, and the client asks again elsewhere.
struct Ending {
    body: ApiBody,
    stopped: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Ending {
    fn new(body: ApiBody, mut stopping: Stopping) -> Self {
        let is_endless = body.size_hint().exact().is_none();
        Self {
            body,
            stopped: is_endless.then(|| {
                let stopped: Pin<Box<dyn Future<Output = ()> + Send>> =
                    Box::pin(async move { stopped(&mut stopping).await });
                stopped
            }),
        }
    }
}

impl Body for Ending {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame);
        }
        match &mut self.stopped {
            Some(stopped) => stopped.as_mut().poll(context).map(|()| None),
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
