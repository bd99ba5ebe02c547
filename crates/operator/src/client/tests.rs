//! The fence, byte by byte; and what a busy server says in a header.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::*;
use crate::error::Failure;

/// Whether we lead, as the test says.
#[derive(Clone, Default)]
struct Leading(Arc<AtomicBool>);

impl Leading {
    fn yes() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    fn set(&self, leading: bool) {
        self.0.store(leading, Ordering::SeqCst);
    }

    fn may_send(&self) -> MaySend {
        let leading = self.0.clone();
        Arc::new(move || leading.load(Ordering::SeqCst))
    }
}

/// A server that answers every request with the same words, and counts.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    bytes: Arc<AtomicUsize>,
}

impl Server {
    async fn start(answer: String) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, bytes) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (counted, read) = (connections.clone(), bytes.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, answer.clone(), read.clone()));
            }
        });
        Self {
            address,
            connections,
            bytes,
        }
    }

    fn config(&self) -> kube::Config {
        kube::Config::new(format!("http://{}", self.address).parse().unwrap())
    }

    fn seen(&self) -> (usize, usize) {
        (
            self.connections.load(Ordering::SeqCst),
            self.bytes.load(Ordering::SeqCst),
        )
    }
}

async fn serve(mut stream: TcpStream, answer: String, read: Arc<AtomicUsize>) {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        read.fetch_add(n, Ordering::SeqCst);
        request.extend_from_slice(&buffer[..n]);
        if request.ends_with(b"\r\n\r\n") {
            request.clear();
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }
}

fn answer(code: u16, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {code} X\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
}

fn get() -> Request<Vec<u8>> {
    Request::get("/api/v1/namespaces/ns/configmaps/x")
        .body(Vec::new())
        .unwrap()
}

/// Nothing here waits for an answer that may not come.
async fn within<T>(what: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(Duration::from_secs(20), what).await;
    ended.expect("the fence breaks the connection")
}

async fn failure(client: &kube::Client) -> Failure {
    let error = client.request_text(get()).await.unwrap_err();
    Failure::from_client("get", "ConfigMap ns/x".into(), error)
}

#[tokio::test]
async fn who_does_not_lead_does_not_even_connect() {
    let server = Server::start(answer(200, "", "{}")).await;
    let leading = Leading::default();
    let client = fenced(&server.config(), leading.may_send()).unwrap();
    let refused = failure(&client).await;
    assert!(matches!(refused, Failure::NotLeader { .. }), "{refused}");
    assert_eq!(server.seen(), (0, 0));
}

#[tokio::test]
async fn a_connection_kept_open_is_no_way_around_the_fence() {
    let server = Server::start(answer(200, "", "{}")).await;
    let leading = Leading::yes();
    let client = fenced(&server.config(), leading.may_send()).unwrap();
    assert_eq!(client.request_text(get()).await.unwrap(), "{}");
    let before = server.seen();
    leading.set(false);
    for _ in 0..3 {
        let refused = failure(&client).await;
        assert!(matches!(refused, Failure::NotLeader { .. }), "{refused}");
    }
    assert_eq!(server.seen(), before, "not a byte");
    leading.set(true);
    assert_eq!(client.request_text(get()).await.unwrap(), "{}", "and it works again");
}

#[tokio::test]
async fn what_does_not_lead_may_still_be_read_past_the_fence() {
    let server = Server::start(answer(200, "", "{}")).await;
    let client = reading(&server.config(), "watch").unwrap();
    assert_eq!(client.request_text(get()).await.unwrap(), "{}");
}

/// A process stopped in the middle of sending, and continued past its lease: the rest of the request stays unsent, so the
/// server never has a whole one to act on.
#[tokio::test]
async fn a_request_already_begun_is_not_finished_past_the_lease() {
    const PIPE: usize = 1 << 10;
    const BODY: usize = 1 << 20;
    let (ours, mut theirs): (DuplexStream, DuplexStream) = tokio::io::duplex(PIPE);
    let leading = Leading::yes();
    let io = FencedIo {
        inner: TokioIo::new(ours),
        may_send: Some(leading.may_send()),
    };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    let connection = tokio::spawn(connection);
    let body = axum::body::Body::from(vec![b'x'; BODY]);
    let request = Request::put("/").header("content-length", BODY).body(body).unwrap();
    let sending = tokio::spawn(async move { sender.send_request(request).await });

    let mut begun = vec![0; 16 * PIPE];
    theirs.read_exact(&mut begun).await.unwrap();
    assert!(begun.starts_with(b"PUT / HTTP/1.1"));
    leading.set(false);
    let mut rest = Vec::new();
    within(theirs.read_to_end(&mut rest)).await.unwrap();
    assert!(
        rest.len() <= PIPE,
        "only what was on the wire when the lease ended: {} bytes",
        rest.len()
    );

    let problem = sending.await.unwrap().unwrap_err();
    let words = crate::error::words(&problem);
    assert!(words.contains("not the leader"), "{words}");
    drop(connection.await.unwrap());
}

/// The same through the whole client and a real socket. Part of it was sent, so nobody knows: that is no clean refusal.
#[tokio::test]
async fn a_write_cut_off_by_the_fence_counts_as_unknown() {
    // More than any socket's buffers hold.
    const BODY: usize = 64 << 20;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let config = kube::Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
    let leading = Leading::yes();
    let client = fenced(&config, leading.may_send()).unwrap();
    let begun = Arc::new(Notify::new());
    let server = tokio::spawn({
        let (leading, begun) = (leading.clone(), begun.clone());
        async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = vec![0; 1 << 16];
            let mut received = stream.read(&mut buffer).await.unwrap();
            leading.set(false);
            begun.notify_one();
            while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                received += n;
            }
            received
        }
    });
    let request = Request::put("/api/v1/namespaces/ns/configmaps/x")
        .body(vec![b'x'; BODY])
        .unwrap();
    let error = within(client.request_text(request)).await.unwrap_err();
    begun.notified().await;
    let failure = Failure::from_client("update", "ConfigMap ns/x".into(), error);
    assert!(matches!(failure, Failure::Unknown { .. }), "{failure}");
    let received = server.await.unwrap();
    assert!(
        received < BODY,
        "the server has {received} of {BODY} bytes: no request to act on"
    );
}

#[tokio::test]
async fn the_wait_a_busy_server_asks_for_is_found_wherever_it_says_it() {
    let status =
        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":429,"reason":"TooManyRequests","message":"m""#;
    for (headers, body, seconds) in [
        // Priority and fairness: a header and a text.
        (
            "retry-after: 7\r\n",
            "Too many requests, please try again later.".to_owned(),
            7,
        ),
        ("retry-after: 7\r\n", format!("{status}}}"), 7),
        (
            "retry-after: 7\r\n",
            format!(r#"{status},"details":{{"retryAfterSeconds":3}}}}"#),
            3,
        ),
        ("", format!(r#"{status},"details":{{"retryAfterSeconds":3}}}}"#), 3),
        // A date is of no use without trusting two clocks.
        ("retry-after: Wed, 21 Oct 2026 07:28:00 GMT\r\n", String::new(), 1),
        ("", String::new(), 1),
    ] {
        let server = Server::start(answer(429, headers, &body)).await;
        let client = reading(&server.config(), "test").unwrap();
        let failure = failure(&client).await;
        let Failure::TooMany { wait, .. } = failure else {
            panic!("{headers}{body}: {failure}")
        };
        assert_eq!(wait, Duration::from_secs(seconds), "{headers}{body}");
    }
}

#[tokio::test]
async fn each_connection_says_what_it_is_for() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let config = kube::Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
    let heard = Arc::new(Mutex::new(String::new()));
    let listening = heard.clone();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 4096];
        let n = stream.read(&mut buffer).await.unwrap();
        listening
            .lock()
            .unwrap()
            .push_str(&String::from_utf8_lossy(&buffer[..n]));
        stream.write_all(answer(200, "", "{}").as_bytes()).await.unwrap();
    });
    reading(&config, "lease").unwrap().request_text(get()).await.unwrap();
    server.await.unwrap();
    let agent = format!("user-agent: usher/{} (lease)", env!("CARGO_PKG_VERSION"));
    assert!(heard.lock().unwrap().contains(&agent), "{}", heard.lock().unwrap());
}

#[test]
fn a_kubeconfig_that_makes_no_client_is_named() {
    let mut config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
    config.root_cert = Some(vec![b"no certificate".to_vec()]);
    let error = reading(&config, "watch").map(drop).unwrap_err().to_string();
    assert!(
        error.contains("https://127.0.0.1:1") && error.contains("check the kubeconfig"),
        "{error}"
    );
}
