//! Clients that say nothing, or not enough.

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::{Cluster, Options};

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(60);

struct Running {
    address: SocketAddr,
    folder: Folder,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

async fn running(patience: Patience, connections: usize) -> Running {
    let folder = Folder::temporary().unwrap();
    let mut listener = Listener::open(ListenOptions::default(), &folder, "token")
        .await
        .unwrap();
    listener.patience = patience;
    listener.connections = connections;
    let (stop, stopping) = watch::channel(false);
    let api = Cluster::start(Options::default()).unwrap().guarded_service();
    Running {
        address: listener.listening.address(),
        folder,
        stop,
        task: tokio::spawn(listener.run(api, stopping)),
    }
}

impl Running {
    async fn connect(&self) -> TlsStream<TcpStream> {
        let pem = self.folder.read("ca.crt").unwrap().unwrap();
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let tcp = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap()
    }
}

async fn health(stream: &mut TlsStream<TcpStream>) -> String {
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut answer = vec![0; 4_096];
    let length = stream.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

#[tokio::test]
async fn who_connects_and_says_nothing_is_dropped() {
    let patience = Patience {
        handshake: SHORT,
        headers: LONG,
    };
    let running = running(patience, 10).await;
    let mut silent = TcpStream::connect(running.address).await.unwrap();
    assert_eq!(silent.read(&mut [0; 10]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn headers_that_never_end_and_idle_connections_are_dropped() {
    let patience = Patience {
        handshake: LONG,
        headers: SHORT,
    };
    let running = running(patience, 10).await;
    let mut slow = running.connect().await;
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost: ").await.unwrap();
    let mut answer = Vec::new();
    let _ = slow.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
    let mut idle = running.connect().await;
    assert!(health(&mut idle).await.starts_with("HTTP/1.1 200"));
    let _ = idle.read_to_end(&mut Vec::new()).await;
}

#[tokio::test]
async fn beyond_the_limit_a_connection_waits_for_one_to_end() {
    let running = running(Patience::default(), 1).await;
    let mut first = running.connect().await;
    assert!(health(&mut first).await.contains("200"));
    let second = async {
        let mut second = running.connect().await;
        health(&mut second).await
    };
    let mut second = std::pin::pin!(second);
    let waited = tokio::time::timeout(SHORT, &mut second).await;
    assert!(waited.is_err(), "{waited:?}");
    drop(first);
    assert!(second.await.contains("200"));
}

#[tokio::test]
async fn the_stop_waits_for_nobody_who_has_asked_nothing() {
    let running = running(Patience::default(), 10).await;
    let silent = TcpStream::connect(running.address).await.unwrap();
    let mut idle = running.connect().await;
    assert!(health(&mut idle).await.contains("200"));
    running.stop.send_replace(true);
    let ended = tokio::time::timeout(DRAIN / 2, running.task).await;
    assert!(ended.is_ok(), "the listener still waits");
    drop(silent);
    TcpStream::connect(running.address).await.unwrap_err();
}
