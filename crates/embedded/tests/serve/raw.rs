//! Requests as no kubectl sends them: without a token, with a wrong one, from a page in a browser.

use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use usher_embedded::Listening;

use super::in_memory;

/// A connection that speaks one of these protocols, verified by the certificate in the kubeconfig.
pub async fn connect(listening: &Listening, protocols: &[&[u8]]) -> TlsStream<TcpStream> {
    let kubeconfig = std::fs::read_to_string(listening.kubeconfig_file()).unwrap();
    let line = kubeconfig
        .lines()
        .find_map(|line| line.trim().strip_prefix("certificate-authority-data: "));
    let pem = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, line.unwrap()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
    let mut config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let tcp = TcpStream::connect(listening.address()).await.unwrap();
    let name = ServerName::try_from("kubernetes.default.svc").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap()
}

async fn ask(listening: &Listening, path: &str, headers: &[(&str, &str)]) -> (StatusCode, String) {
    let stream = connect(listening, &[b"http/1.1"]).await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", listening.address().to_string());
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = sender
        .send_request(request.body(Empty::<bytes::Bytes>::new()).unwrap())
        .await
        .unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

pub fn token(listening: &Listening) -> String {
    let kubeconfig = std::fs::read_to_string(listening.kubeconfig_file()).unwrap();
    let line = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("token: "));
    line.unwrap().trim_matches('"').to_owned()
}

#[tokio::test]
async fn x1_a_wrong_token_is_refused_and_x3_without_one_only_health_and_version_answer() {
    let (_cluster, listening) = in_memory().await;
    let token = token(&listening);
    assert_eq!(token.len(), 43, "256 bits");
    let right = format!("Bearer {token}");
    let mut wrong = right.clone();
    let last = wrong.pop().unwrap();
    wrong.push(if last == 'A' { 'B' } else { 'A' });
    let path = "/api/v1/namespaces";
    assert_eq!(ask(&listening, path, &[("authorization", &right)]).await.0, 200);
    for headers in [
        vec![("authorization", wrong.as_str())],
        vec![("authorization", "Bearer ")],
        vec![("authorization", "Basic dXNoZXI6dXNoZXI=")],
        vec![],
    ] {
        let (status, body) = ask(&listening, path, &headers).await;
        assert_eq!(status, 401, "{headers:?}");
        assert!(body.contains(r#""reason":"Unauthorized""#), "{body}");
    }
    for open in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(ask(&listening, open, &[]).await.0, 200, "{open}");
    }
    for closed in ["/", "/api", "/apis", "/metrics", "/openapi/v3", "/nothing"] {
        assert_eq!(ask(&listening, closed, &[]).await.0, 401, "{closed}");
    }
}

#[tokio::test]
async fn x3_a_foreign_host_or_origin_is_refused_with_a_sentence() {
    let (_cluster, listening) = in_memory().await;
    let right = format!("Bearer {}", token(&listening));
    for (name, value) in [
        ("host", "attacker.example:6443"),
        ("host", "127.0.0.1.attacker.example"),
        ("host", "10.0.0.7:6443"),
        ("origin", "https://attacker.example"),
        ("origin", "null"),
    ] {
        let headers = [("authorization", right.as_str()), (name, value)];
        let (status, body) = ask(&listening, "/api/v1/namespaces", &headers).await;
        assert_eq!(status, 403, "{name}: {value}");
        let body = body.to_lowercase();
        assert!(
            body.contains(&format!("the {name} header names")) && body.contains("use 127.0.0.1"),
            "{body}"
        );
    }
    for host in [
        "localhost:1",
        "LOCALHOST",
        "127.0.0.1",
        "[::1]:6443",
        "kubernetes.default.svc",
    ] {
        let headers = [
            ("authorization", right.as_str()),
            ("host", host),
            ("origin", "https://localhost:3000"),
        ];
        assert_eq!(ask(&listening, "/api/v1/namespaces", &headers).await.0, 200, "{host}");
    }
}

#[tokio::test]
async fn a1_h2_is_chosen_by_alpn_and_takes_many_streams_at_once() {
    let (cluster, listening) = in_memory().await;
    let stream = connect(&listening, &[b"h2", b"http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let io = TokioIo::new(stream);
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut watches = Vec::new();
    for _ in 0..250 {
        let mut sender = sender.clone();
        let request = Request::builder()
            .uri(format!("{}/api/v1/configmaps?watch=true", listening.url()))
            .header("authorization", format!("Bearer {}", token(&listening)));
        let response = sender
            .send_request(request.body(Empty::<bytes::Bytes>::new()).unwrap())
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        watches.push(response);
    }
    cluster.stop().await;
    for watch in watches {
        assert!(watch.into_body().collect().await.unwrap().to_bytes().is_empty());
    }
}
