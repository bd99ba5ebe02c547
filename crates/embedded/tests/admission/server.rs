//! A webhook of the test's own: a TLS server on this machine that answers as each path is told to.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// What a webhook does when it is asked.
#[derive(Debug, Clone)]
pub enum Reply {
    /// The `response` of an AdmissionReview; the uid is filled in.
    Response(Value),
    /// Anything else, with its code.
    Raw(u16, String),
    /// The whole AdmissionReview.
    Review(Value),
    /// Never.
    Silence,
    /// The connection is closed instead.
    Hangup,
}

/// An AdmissionReview that answers another.
pub fn answer(review: &Value, mut response: Value) -> Value {
    if response.get("uid").is_none() {
        response["uid"] = review["request"]["uid"].clone();
    }
    json!({"kind": "AdmissionReview", "apiVersion": review["apiVersion"], "response": response})
}

pub struct Server {
    pub address: SocketAddr,
    /// Of the CA that signed its certificate, as `caBundle` wants it.
    pub authority: String,
    state: Arc<State>,
}

struct State {
    reply: Mutex<Reply>,
    asked: AtomicUsize,
    connections: AtomicUsize,
    last: Mutex<(String, Value)>,
}

/// A CA in PEM and base64, that signed nothing here.
pub fn stranger() -> String {
    let (pem, _, _) = certificates(&["other".to_owned()]);
    base64::engine::general_purpose::STANDARD.encode(pem)
}

fn certificates(names: &[String]) -> (String, rcgen::Certificate, KeyPair) {
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Go names an authority that it tried in vain if it has the right name.
    params
        .distinguished_name
        .push(DnType::CommonName, format!("CA of {}", names.join(" ")));
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(names.to_vec()).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    (authority.pem(), leaf, key)
}

impl Server {
    /// With a certificate for these names.
    pub async fn start(names: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", names).await
    }

    /// In the block of an instance (W1), where its pods are.
    #[cfg(target_os = "linux")]
    pub async fn start_as_pod(names: &[&str]) -> Self {
        Self::start_at("127.64.1.7:0", names).await
    }

    async fn start_at(listen: &str, names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let (authority, leaf, key) = certificates(&names);
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(listen).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            reply: Mutex::new(Reply::Response(json!({"allowed": true}))),
            asked: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            last: Mutex::default(),
        });
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, state) = (acceptor.clone(), shared.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    state.connections.fetch_add(1, Ordering::SeqCst);
                    let service = service_fn(|request| state.clone().reply(request));
                    let server = hyper::server::conn::http1::Builder::new();
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self {
            address,
            authority: base64::engine::general_purpose::STANDARD.encode(authority),
            state,
        }
    }

    pub fn url(&self) -> String {
        format!("https://{}/hook", self.address)
    }

    pub fn set(&self, reply: Reply) {
        *self.state.reply.lock().unwrap() = reply;
    }

    pub fn asked(&self) -> usize {
        self.state.asked.load(Ordering::SeqCst)
    }

    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// The path and body of the last request.
    pub fn last(&self) -> (String, Value) {
        self.state.last.lock().unwrap().clone()
    }
}

impl State {
    async fn reply(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, std::io::Error> {
        let path = request.uri().to_string();
        let bytes = request.into_body().collect().await.map(|body| body.to_bytes());
        let review: Value = serde_json::from_slice(&bytes.unwrap_or_default()).unwrap_or_default();
        *self.last.lock().unwrap() = (path, review.clone());
        let reply = self.reply.lock().unwrap().clone();
        self.asked.fetch_add(1, Ordering::SeqCst);
        let json = |value: Value| {
            Response::builder()
                .header("content-type", "application/json")
                .body(Full::from(value.to_string()))
                .unwrap()
        };
        match reply {
            Reply::Response(response) => Ok(json(answer(&review, response))),
            Reply::Review(whole) => Ok(json(whole)),
            Reply::Raw(code, text) => {
                let kind = if text.starts_with('{') {
                    "application/json"
                } else {
                    "text/plain"
                };
                let response = Response::builder().status(code).header("content-type", kind);
                Ok(response.body(Full::from(text)).unwrap())
            }
            Reply::Silence => {
                std::future::pending::<Infallible>().await;
                unreachable!()
            }
            Reply::Hangup => Err(std::io::Error::other("hung up")),
        }
    }
}
