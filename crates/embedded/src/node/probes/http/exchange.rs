//! One request and its answer over a connection of its own.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::{Arc, LazyLock};

use futures::future::{Either, select};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::super::{MOST_OUTPUT, dial};
use super::Target;

pub(super) const NOT_TLS: &str = "http: server gave HTTP response to HTTPS client";

/// An answer, its body cut to what is kept of it.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

pub(super) async fn get(target: &Target, agent: &'static str) -> Result<Got, String> {
    let stream = dial::connect(&target.host, target.port).await?;
    if !target.https {
        return over(stream, target, agent).await;
    }
    let config = TLS
        .clone()
        .ok_or_else(|| "tls: no protocol version is supported".to_owned())?;
    let name = ServerName::try_from(target.host.clone()).map_err(|why| format!("tls: {why}"))?;
    let stream = TlsConnector::from(config)
        .connect(name, stream)
        .await
        .map_err(|why| tls_words(&why))?;
    over(stream, target, agent).await
}

async fn over<S>(stream: S, target: &Target, agent: &'static str) -> Result<Got, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|why| words(&why))?;
    let mut request = Request::get(target.path.as_str())
        .body(Empty::<Bytes>::new())
        .map_err(|why| format!("net/http: {why}"))?;
    *request.headers_mut() = target.sent(agent);
    let exchange = async move {
        let response = sender.send_request(request).await.map_err(|why| words(&why))?;
        let (head, body) = response.into_parts();
        Ok(Got {
            status: head.status,
            headers: head.headers,
            body: beginning(body).await,
        })
    };
    beside(exchange, connection).await
}

/// Runs an exchange with the connection that carries it, in one task: whoever drops this, drops both.
async fn beside<T>(exchange: impl Future<Output = T>, connection: impl Future) -> T {
    match select(pin!(exchange), pin!(connection)).await {
        Either::Left((answer, _)) => answer,
        // The connection is over; what it brought is with the exchange already.
        Either::Right((_, exchange)) => exchange.await,
    }
}

/// As much of a body as is kept. One that breaks off was answered all the same: the status is what counts.
async fn beginning(mut body: Incoming) -> Vec<u8> {
    let mut kept = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(bytes) = frame.data_ref() {
            kept.extend_from_slice(bytes);
        }
        if kept.len() >= MOST_OUTPUT {
            kept.truncate(MOST_OUTPUT);
            break;
        }
    }
    kept
}

fn words(why: &hyper::Error) -> String {
    if why.is_parse() {
        return "net/http: HTTP/1.x transport connection broken: malformed HTTP response".to_owned();
    }
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(why);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return dial::in_words(error);
        }
        cause = error.source();
    }
    if why.is_incomplete_message() || why.is_closed() || why.is_canceled() {
        return "EOF".to_owned();
    }
    why.to_string()
}

fn tls_words(why: &io::Error) -> String {
    let inner = why.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        // A plain server answers the greeting with a line of text.
        Some(rustls::Error::InvalidMessage(_)) => NOT_TLS.to_owned(),
        Some(error) => format!("remote error: tls: {error}"),
        None => dial::in_words(why),
    }
}

static TLS: LazyLock<Option<Arc<rustls::ClientConfig>>> = LazyLock::new(|| {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .ok()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate { provider }))
        .with_no_client_auth();
    Some(Arc::new(config))
});

/// Takes whatever certificate comes.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
