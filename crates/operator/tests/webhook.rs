//! The webhook server end to end: a TLS client that trusts the published bundle and nothing else, as an API server does.
//!
//! The last test needs a real API server; run it with
//! `USHER_TEST_KUBECONFIG=… cargo test -p usher-operator --test webhook -- --ignored`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::net::{Ipv4Addr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
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
use usher_operator::webhook::{Lifetimes, Names, ReviewLimits, Routes, WebhookConfig, WebhookError, Webhooks};

const DAY: Duration = Duration::from_secs(86_400);

/// A clock that goes when told. The TLS client goes by it too. It counts how often the server asked.
#[derive(Debug, Clone)]
struct HandClock {
    now: Arc<Mutex<Timestamp>>,
    asked: Arc<AtomicU64>,
}

impl HandClock {
    fn at(now: Timestamp) -> Self {
        Self {
            now: Arc::new(Mutex::new(now)),
            asked: Arc::default(),
        }
    }

    fn advance(&self, time: Duration) {
        let mut now = self.now.lock().unwrap();
        *now = now.checked_add(SignedDuration::try_from(time).unwrap()).unwrap();
    }

    /// Until the server has finished a look that began after this call.
    async fn looked_at(&self) {
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
struct Running {
    address: SocketAddr,
    clock: HandClock,
    bundle: watch::Receiver<Option<String>>,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<Result<(), WebhookError>>,
}

fn config() -> WebhookConfig {
    let names = Names::new(["usher.usher-system.svc".to_owned()], [Ipv4Addr::LOCALHOST.into()]).unwrap();
    let secret = ObjectKey::new("usher-system", "usher-webhook").unwrap();
    let mut config = WebhookConfig::new((Ipv4Addr::LOCALHOST, 0).into(), names, secret);
    config.look_every = Duration::from_millis(5);
    config
}

impl Running {
    async fn start(config: WebhookConfig, clock: HandClock) -> Self {
        let health = config.health.clone();
        let server = Webhooks::bind(config, routes(), None, Arc::new(clock.clone()))
            .await
            .unwrap();
        Self::run(server, health, clock).await
    }

    async fn run(server: Webhooks, health: Health, clock: HandClock) -> Self {
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

    fn bundle(&self) -> String {
        self.bundle.borrow().clone().unwrap()
    }

    async fn connect(&self, bundle: &str) -> std::io::Result<TlsStream<TcpStream>> {
        connect(self.address, bundle, &self.clock).await
    }

    async fn post(&self, path: &str, body: impl Into<Vec<u8>>) -> (u16, String) {
        let stream = self.connect(&self.bundle()).await.unwrap();
        request(stream, "POST", path, &body.into(), true).await.unwrap()
    }

    async fn stop(self) {
        self.stop.send(true).unwrap();
        self.task.await.unwrap().unwrap();
    }
}

async fn connect(address: SocketAddr, bundle: &str, clock: &HandClock) -> std::io::Result<TlsStream<TcpStream>> {
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
async fn request<S>(stream: S, method: &str, path: &str, body: &[u8], length: bool) -> std::io::Result<(u16, String)>
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

async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait)
        .await
        .unwrap_or_else(|_| panic!("within a minute: {what}"));
}

async fn guard(request: AdmissionRequest<DynamicObject>) -> AdmissionResponse {
    let response = AdmissionResponse::from(&request);
    if request.name.starts_with("bad") {
        response.deny("names must not begin with bad")
    } else {
        response
    }
}

fn routes() -> Routes {
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

fn review(name: &str) -> Value {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "0c9a8d74", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"}, "name": name, "namespace": "default",
        "operation": "CREATE", "userInfo": {"username": "kim"}, "object": object, "oldObject": null, "dryRun": false,
    }})
}

#[tokio::test]
async fn a_review_gets_a_review_back_whatever_the_reviewer_does() {
    let mut config = config();
    config.limits = ReviewLimits {
        time: Duration::from_millis(300),
        ..ReviewLimits::default()
    };
    let server = Running::start(config, HandClock::at(Timestamp::now())).await;
    for (path, name, allowed, message) in [
        ("/guard", "good", true, ""),
        ("/guard?timeout=10s", "bad-one", false, "names must not begin with bad"),
        ("/forgetful", "any", false, "no idea"),
        (
            "/panics",
            "any",
            false,
            "the webhook at /panics failed while judging this request; Usher's log says where",
        ),
        (
            "/sleeps",
            "any",
            false,
            "the webhook at /sleeps took longer than 0 s: try again",
        ),
    ] {
        let (status, body) = server.post(path, review(name).to_string()).await;
        assert_eq!(status, 200, "{path}: {body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["kind"], "AdmissionReview");
        assert_eq!(body["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(body["response"]["uid"], "0c9a8d74", "{path}");
        assert_eq!(body["response"]["allowed"], allowed, "{path}");
        assert_eq!(
            body["response"]["status"]["message"].as_str().unwrap_or_default(),
            message,
            "{path}"
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn a_request_that_is_no_review_gets_a_sentence() {
    let server = Running::start(config(), HandClock::at(Timestamp::now())).await;
    for (body, sentence) in [
        ("{", "the body is no admission.k8s.io/v1 AdmissionReview: EOF"),
        (
            "\u{0}\u{1}",
            "the body is no admission.k8s.io/v1 AdmissionReview: expected value",
        ),
        (
            r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#,
            "it has no request",
        ),
    ] {
        let (status, answer) = server.post("/guard", body).await;
        assert_eq!(status, 400, "{answer}");
        assert!(answer.contains(sentence), "{answer}");
    }
    let (status, answer) = server.post("/nobody", review("x").to_string()).await;
    assert_eq!(
        (status, answer.as_str()),
        (
            404,
            "no webhook answers at /nobody; there are: /forgetful, /guard, /panics, /sleeps\n"
        )
    );
    let stream = server.connect(&server.bundle()).await.unwrap();
    assert_eq!(request(stream, "GET", "/guard", b"", true).await.unwrap().0, 405);

    // Just what is allowed passes, with or without a length; one more is refused.
    let limit = ReviewLimits::default().body_bytes;
    let mut body = review("good").to_string().into_bytes();
    body.resize(limit, b' ');
    for length in [true, false] {
        let stream = server.connect(&server.bundle()).await.unwrap();
        assert_eq!(request(stream, "POST", "/guard", &body, length).await.unwrap().0, 200);
    }
    body.push(b' ');
    for length in [true, false] {
        let stream = server.connect(&server.bundle()).await.unwrap();
        let (status, answer) = request(stream, "POST", "/guard", &body, length).await.unwrap();
        assert_eq!(status, 413);
        assert_eq!(
            answer,
            "the request is larger than 3145728 bytes; no object of a Kubernetes API server is\n"
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_cannot_work_says_why() {
    let clock = HandClock::at(Timestamp::now());
    let bind = async |config, routes| {
        Webhooks::bind(config, routes, None, Arc::new(clock.clone()))
            .await
            .unwrap_err()
    };
    let twice = routes().on("/guard", guard);
    assert_eq!(
        bind(config(), twice).await.to_string(),
        "two webhooks want the path /guard: give one of them another"
    );
    let mut short = config();
    short.lifetimes.serving = Duration::from_secs(60);
    assert!(bind(short, routes()).await.to_string().contains("settling time"));
    let taken = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let mut config = config();
    config.address = taken.local_addr().unwrap();
    assert!(
        bind(config, routes())
            .await
            .to_string()
            .ends_with("choose another with --webhook-address")
    );
    assert!(Names::new(["not a name".to_owned()], []).is_err());
    assert!(Names::new([], []).is_err());
}

/// I4 of the module: through a change of authority, whoever holds a bundle no older than the settling time is served.
#[tokio::test]
async fn certificates_are_replaced_under_clients_that_notice_nothing() {
    let server = Running::start(config(), HandClock::at(Timestamp::now())).await;
    let presented = async |bundle: &str| {
        let stream = server.connect(bundle).await?;
        Ok::<_, std::io::Error>(stream.get_ref().1.peer_certificates().unwrap()[0].clone())
    };
    let old = server.bundle();
    let first = presented(&old).await.unwrap();

    // One connection from before, kept open; and one client that never stops asking.
    let mut kept = server.connect(&old).await.unwrap();
    let (asking, asked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let asker = {
        let (asking, asked, bundle) = (Arc::clone(&asking), Arc::clone(&asked), server.bundle.clone());
        let (address, clock) = (server.address, server.clock.clone());
        tokio::spawn(async move {
            while asking.load(Ordering::Relaxed) {
                let trusted = bundle.borrow().clone().unwrap();
                let stream = connect(address, &trusted, &clock).await.expect("trusted at any time");
                let body = review("good").to_string();
                assert_eq!(
                    request(stream, "POST", "/guard", body.as_bytes(), true)
                        .await
                        .unwrap()
                        .0,
                    200
                );
                asked.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let some_more_asked = async || {
        let until = asked.load(Ordering::Relaxed) + 3;
        eventually("the asker is served", async || {
            asker.is_finished() || asked.load(Ordering::Relaxed) >= until
        })
        .await;
        assert!(!asker.is_finished(), "the asker met a certificate it could not trust");
    };
    some_more_asked().await;

    // A new serving certificate, from the same authority.
    server.clock.advance(61 * DAY);
    eventually("a new serving certificate", async || {
        presented(&old).await.unwrap() != first
    })
    .await;
    assert_eq!(server.bundle(), old);
    some_more_asked().await;

    // A new authority joins the bundle; what is presented is still the old one's.
    for _ in 0..18 {
        server.clock.advance(24 * DAY);
        server.clock.looked_at().await;
        some_more_asked().await;
    }
    assert_ne!(server.bundle(), old, "493 days are over");
    let both = server.bundle();
    assert!(both.ends_with(&old) && both.len() > old.len());
    let newest = both.strip_suffix(&old).unwrap().to_owned();
    let during = presented(&old)
        .await
        .expect("whoever has not seen the new bundle yet is served");
    assert_eq!(presented(&both).await.unwrap(), during);
    assert!(presented(&newest).await.is_err(), "the new authority signs nothing yet");
    some_more_asked().await;

    // It has settled: it signs.
    server.clock.advance(Lifetimes::default().settle);
    eventually("the new authority signs", async || presented(&newest).await.is_ok()).await;
    assert!(presented(&both).await.is_ok());
    assert!(presented(&old).await.is_err());
    some_more_asked().await;

    kept.write_all(b"GET /guard HTTP/1.1\r\nhost: usher\r\n\r\n")
        .await
        .unwrap();
    let mut answer = [0; 12];
    kept.read_exact(&mut answer).await.unwrap();
    assert_eq!(
        &answer, b"HTTP/1.1 405",
        "a connection from before all this still works"
    );
    drop(kept);
    asking.store(false, Ordering::Relaxed);
    asker.await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real API server: USHER_TEST_KUBECONFIG"]
async fn an_api_server_is_served_through_a_change_of_authority() {
    let path = std::env::var("USHER_TEST_KUBECONFIG")
        .expect("this test needs a real API server: set USHER_TEST_KUBECONFIG to the path of a kubeconfig");
    let kubeconfig = kube::config::Kubeconfig::read_from(&path).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let name = format!("usher-webhook-{}", std::process::id());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let new: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    namespaces.create(&PostParams::default(), &new).await.unwrap();
    let outcome = AssertUnwindSafe(change_authority(client, name.clone()))
        .catch_unwind()
        .await;
    let _ = configurations.delete(&name, &DeleteParams::default()).await;
    let _ = namespaces.delete(&name, &DeleteParams::default()).await;
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

async fn change_authority(client: kube::Client, name: String) {
    // The API server goes by the real time, so ours begins ten days before it: what is made then is due now, and
    // still counts now.
    let clock = HandClock::at(
        Timestamp::now()
            .checked_sub(SignedDuration::try_from(10 * DAY).unwrap())
            .unwrap(),
    );
    let mut config = config();
    config.secret = ObjectKey::new(&name, "usher-webhook").unwrap();
    config.configuration = Some(name.clone());
    config.lifetimes.authority = 12 * DAY;
    config.lifetimes.serving = 11 * DAY;
    let bind = async |config: &WebhookConfig| {
        Webhooks::bind(config.clone(), routes(), Some(client.clone()), Arc::new(clock.clone()))
            .await
            .unwrap()
    };
    let server = bind(&config).await;
    config.address = server.address();

    let webhook = json!({
        "name": "guard.usher.dev", "clientConfig": {"url": format!("https://{}/guard", server.address())},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
        "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 10,
    });
    let new = serde_json::from_value(json!({"metadata": {"name": name}, "webhooks": [webhook]})).unwrap();
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    configurations.create(&PostParams::default(), &new).await.unwrap();
    let published = async || {
        let found = configurations.get(&name).await.unwrap();
        String::from_utf8(
            found.webhooks.unwrap()[0]
                .client_config
                .ca_bundle
                .clone()
                .unwrap_or_default()
                .0,
        )
        .unwrap()
    };
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &name);
    let try_out = async |map: &str| {
        let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": map}})).unwrap();
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        maps.create(&dry, &map).await.map_err(|error| error.to_string())
    };
    let guarded = async || {
        let denied = try_out("bad-one").await.unwrap_err();
        assert!(
            denied.contains("guard.usher.dev\" denied the request: names must not begin with bad"),
            "{denied}"
        );
        try_out("good").await.unwrap();
    };

    let running = Running::run(server, config.health.clone(), clock.clone()).await;
    eventually("the API server asks", async || {
        try_out("bad-one")
            .await
            .is_err_and(|error| error.contains("names must not begin with bad"))
    })
    .await;
    guarded().await;
    let old = running.bundle();
    assert_eq!(published().await, old);

    clock.advance(10 * DAY);
    eventually("a second authority is published", async || {
        published().await.len() > old.len()
    })
    .await;
    let both = published().await;
    let newest = both.strip_suffix(&old).unwrap();
    guarded().await;
    clock.looked_at().await;
    clock.advance(config.lifetimes.settle);
    eventually("the new authority signs", async || {
        running.connect(newest).await.is_ok()
    })
    .await;
    guarded().await;

    // Another process takes over the address: new connections, new handshakes, the same Secret.
    running.stop().await;
    let running = Running::run(bind(&config).await, config.health.clone(), clock.clone()).await;
    assert_eq!(running.bundle(), both);
    guarded().await;
    assert_eq!(published().await, both);
    running.stop().await;
    let lost = try_out("good").await.unwrap_err();
    assert!(lost.contains("failed calling webhook"), "{lost}");
}
