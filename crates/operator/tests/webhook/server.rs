//! A webhook server at work, a clock to move it by, and a client that trusts the bundle and nothing else.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::client::TlsStream;
use usher_engine::{Moment, ObjectKey};
use usher_operator::clock::Clock;
use usher_operator::serve::Health;
use usher_operator::tls::{Names, TlsConfig, TlsError, TlsServer};
use usher_operator::webhook::Routes;

pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// A clock that goes when told. The TLS client goes by it too. It counts how often the server asked.
#[derive(Debug, Clone)]
pub(super) struct HandClock {
    now: Arc<Mutex<Timestamp>>,
    asked: Arc<AtomicU64>,
}

impl HandClock {
    pub(super) fn at(now: Timestamp) -> Self {
        Self {
            now: Arc::new(Mutex::new(now)),
            asked: Arc::default(),
        }
    }

    pub(super) fn advance(&self, time: Duration) {
        let mut now = self.now.lock().unwrap();
        *now = now.checked_add(SignedDuration::try_from(time).unwrap()).unwrap();
    }

    /// Until the server has finished a look that began after this call.
    pub(super) async fn looked_at(&self) {
        let before = self.asked.load(Ordering::Relaxed);
        eventually("the server looks", async || {
            self.asked.load(Ordering::Relaxed) >= before + 2
        })
        .await;
    }

    fn since_epoch(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.now.lock().unwrap().as_second()).unwrap())
    }
}

impl Clock for HandClock {
    fn wall(&self) -> Timestamp {
        self.asked.fetch_add(1, Ordering::Relaxed);
        *self.now.lock().unwrap()
    }
    fn monotonic(&self) -> Moment {
        Moment::after_start(self.since_epoch())
    }
}

impl rustls::time_provider::TimeProvider for HandClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.since_epoch()))
    }
}

/// A server at work, and the means to stop it.
pub(super) struct Running {
    pub(super) address: SocketAddr,
    pub(super) clock: HandClock,
    pub(super) bundle: watch::Receiver<Option<String>>,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<Result<(), TlsError>>,
}

pub(super) fn config() -> TlsConfig {
    let names = Names::new(["usher.usher-system.svc".to_owned()], [Ipv4Addr::LOCALHOST.into()]).unwrap();
    let secret = ObjectKey::new("usher-system", "usher-webhook").unwrap();
    let mut config = TlsConfig::new((Ipv4Addr::LOCALHOST, 0).into(), names, secret);
    config.look_every = Duration::from_millis(5);
    config
}

impl Running {
    pub(super) async fn start(config: TlsConfig, clock: HandClock) -> Self {
        let health = config.health.clone();
        let server = TlsServer::bind(config, routes(), None, None, Arc::new(clock.clone()))
            .await
            .unwrap();
        Self::run(server, health, clock).await
    }

    pub(super) async fn run(server: TlsServer, health: Health, clock: HandClock) -> Self {
        let (address, bundle) = (server.address(), server.bundle());
        let (stop, stopping) = watch::channel(false);
        let task = tokio::spawn(server.run(stopping));
        eventually("the webhook is ready", async || health.ready().is_ok()).await;
        Self {
            address,
            clock,
            bundle,
            stop,
            task,
        }
    }

    pub(super) fn bundle(&self) -> String {
        self.bundle.borrow().clone().unwrap()
    }

    pub(super) async fn connect(&self, bundle: &str) -> std::io::Result<TlsStream<TcpStream>> {
        connect(self.address, bundle, &self.clock).await
    }

    pub(super) async fn post(&self, path: &str, body: impl Into<Vec<u8>>) -> (u16, String) {
        let stream = self.connect(&self.bundle()).await.unwrap();
        request(stream, "POST", path, &body.into(), true).await.unwrap()
    }

    pub(super) async fn stop(self) {
        self.stop.send(true).unwrap();
        self.task.await.unwrap().unwrap();
    }
}

pub(super) async fn connect(
    address: SocketAddr,
    bundle: &str,
    clock: &HandClock,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_details(provider, Arc::new(clock.clone()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("usher.usher-system.svc").unwrap();
    let stream = TcpStream::connect(address).await?;
    tokio_rustls::TlsConnector::from(Arc::new(tls))
        .connect(name, stream)
        .await
}

/// One request on a connection that ends with it; reading while writing, as a refused request is answered early.
pub(super) async fn request<S>(
    stream: S,
    method: &str,
    path: &str,
    body: &[u8],
    length: bool,
) -> std::io::Result<(u16, String)>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    let framing = if length {
        format!("content-length: {}", body.len())
    } else {
        "transfer-encoding: chunked".to_owned()
    };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: usher\r\nconnection: close\r\n{framing}\r\n\r\n");
    let send = async {
        writer.write_all(head.as_bytes()).await?;
        if length {
            writer.write_all(body).await?;
        } else {
            for part in body.chunks(65_536) {
                writer.write_all(format!("{:x}\r\n", part.len()).as_bytes()).await?;
                writer.write_all(part).await?;
                writer.write_all(b"\r\n").await?;
            }
            writer.write_all(b"0\r\n\r\n").await?;
        }
        writer.flush().await
    };
    let mut answer = Vec::new();
    let (_, read) = tokio::join!(send, reader.read_to_end(&mut answer));
    if answer.is_empty() {
        read?;
    }
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    Ok((head[9..12].parse().unwrap(), body.to_owned()))
}

pub(super) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait)
        .await
        .unwrap_or_else(|_| panic!("within a minute: {what}"));
}

pub(super) async fn guard(request: AdmissionRequest<DynamicObject>) -> AdmissionResponse {
    let response = AdmissionResponse::from(&request);
    if request.name.starts_with("bad") {
        response.deny("names must not begin with bad")
    } else {
        response
    }
}

pub(super) fn routes() -> Routes {
    Routes::new()
        .on("/guard", guard)
        .on("/forgetful", |_| {
            std::future::ready(AdmissionResponse::invalid("no idea"))
        })
        .on("/panics", |request: AdmissionRequest<DynamicObject>| async move {
            assert!(request.name.is_empty(), "a bug in a reviewer");
            AdmissionResponse::from(&request)
        })
        .on("/sleeps", |_| std::future::pending())
}

pub(super) fn review(name: &str) -> Value {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "0c9a8d74", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"}, "name": name, "namespace": "default",
        "operation": "CREATE", "userInfo": {"username": "kim"}, "object": object, "oldObject": null, "dryRun": false,
    }})
}
