use super::*;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

const LONG: Duration = Duration::from_secs(60);

/// A server that answers each request's head with a text of the test's.
struct Server {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start(answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::with_tls(None, answer).await
    }

    async fn with_tls(
        tls: Option<tokio_rustls::TlsAcceptor>,
        answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                match &tls {
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            serve(stream, &seen, &answer).await;
                        }
                    }
                    None => serve(stream, &seen, &answer).await,
                }
            }
        });
        Self { port, heads }
    }

    fn target(&self, path: &str) -> Target {
        Target {
            https: false,
            host: "127.0.0.1".to_owned(),
            port: self.port,
            path: path.to_owned(),
            headers: HeaderMap::new(),
        }
    }

    fn head(&self, at: usize) -> String {
        self.heads.lock().unwrap()[at].to_lowercase()
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    seen: &Mutex<Vec<String>>,
    answer: &impl Fn(&str) -> Option<String>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    seen.lock().unwrap().push(head.clone());
    match answer(head.split(' ').nth(1).unwrap_or_default()) {
        Some(text) => {
            stream.write_all(text.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
        // Never answers; the other side goes.
        None => drop(stream.read_u8().await),
    }
}

fn response(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn n8_the_status_decides() {
    let server = Server::start(|path| {
        let status = path.trim_start_matches('/').to_owned();
        Some(response(&format!("{status} Text"), "", "body"))
    })
    .await;
    let rows = [
        ("/200", Outcome::Success, "body"),
        ("/204", Outcome::Success, ""),
        ("/304", Outcome::Warning, "Probe terminated redirects, Response body: "),
        (
            "/302",
            Outcome::Warning,
            "Probe terminated redirects, Response body: body",
        ),
        ("/400", Outcome::Failure, "HTTP probe failed with statuscode: 400"),
        ("/500", Outcome::Failure, "HTTP probe failed with statuscode: 500"),
    ];
    for (path, outcome, message) in rows {
        let answer = probe(&server.target(path), LONG).await;
        assert_eq!(answer, Answer::new(outcome, message), "{path}");
    }
}

#[tokio::test]
async fn n8_the_request_is_the_references_with_the_users_headers_over_it() {
    let server = Server::start(|_| Some(response("200 OK", "", ""))).await;
    probe(&server.target("/a?b=c"), LONG).await;
    let head = server.head(0);
    assert!(head.starts_with("get /a?b=c http/1.1\r\n"), "{head}");
    for line in [
        "user-agent: kube-probe/1.36",
        "accept: */*",
        "connection: close",
        &format!("host: 127.0.0.1:{}", server.port),
    ] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line} in {head}");
    }
    let action: HTTPGetAction = serde_json::from_value(serde_json::json!({
        "port": server.port, "path": "x y", "scheme": "HTTP",
        "httpHeaders": [
            {"name": "Host", "value": "shop.local"}, {"name": "X-A", "value": "1"}, {"name": "X-A", "value": "2"},
            {"name": "Accept", "value": ""}, {"name": "User-Agent", "value": "me"},
        ],
    }))
    .unwrap();
    probe(&Target::of(&action, &Container::default(), "127.0.0.1").unwrap(), LONG).await;
    let head = server.head(1);
    assert!(head.starts_with("get /x%20y http/1.1\r\n"), "{head}");
    for line in ["host: shop.local", "x-a: 1", "x-a: 2", "user-agent: me"] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line} in {head}");
    }
    assert!(!head.contains("accept"), "{head}");
}

#[tokio::test]
async fn n8_redirects_to_the_same_host_are_followed_and_others_are_a_warning() {
    let server = Server::start(|path| {
        let to = |location: &str| Some(response("302 Found", &format!("location: {location}\r\n"), "gone"));
        match path {
            "/start" => to("/folder/next"),
            "/folder/next" => to("last?x=1"),
            "/folder/last?x=1" => Some(response("500 Broken", "", "")),
            "/away" => to("http://other.example:80/"),
            "/round" => to("/round"),
            "/odd" => to("mailto:x"),
            _ => None,
        }
    })
    .await;
    let answer = probe(&server.target("/start"), LONG).await;
    assert_eq!(
        answer,
        Answer::new(Outcome::Failure, "HTTP probe failed with statuscode: 500")
    );
    let answer = probe(&server.target("/away"), LONG).await;
    let expected = "Probe terminated redirects, Response body: gone";
    assert_eq!(answer, Answer::new(Outcome::Warning, expected));
    let answer = probe(&server.target("/round"), LONG).await;
    let expected = format!(
        "Get \"http://127.0.0.1:{}/round\": stopped after 10 redirects",
        server.port
    );
    assert_eq!(answer, Answer::new(Outcome::Failure, expected));
}

#[test]
fn n8_a_redirect_leads_where_its_location_says() {
    let target = Target {
        https: false,
        host: "127.0.0.1".to_owned(),
        port: 8080,
        path: "/a/b?c".to_owned(),
        headers: HeaderMap::new(),
    };
    let rows = [
        ("/x", "http://127.0.0.1:8080/x"),
        ("x", "http://127.0.0.1:8080/a/x"),
        ("?d", "http://127.0.0.1:8080/a/b?d"),
        ("https://127.0.0.1/x#y", "https://127.0.0.1:443/x"),
        ("https://127.0.0.1:9?q", "https://127.0.0.1:9/?q"),
        ("//127.0.0.1:9/z", "http://127.0.0.1:9/z"),
        ("http://[::1]:9/", "http://[::1]:9/"),
    ];
    for (location, expected) in rows {
        assert_eq!(target.redirected(location).unwrap().url(), expected, "{location}");
    }
    assert_eq!(target.redirected("ftp://127.0.0.1/"), None);
}

#[tokio::test]
async fn n8_a_server_that_does_not_answer_in_time_fails_in_the_kubelets_words() {
    let server = Server::start(|_| None).await;
    let answer = probe(&server.target("/x"), Duration::from_millis(50)).await;
    let expected = format!(
        "Get \"http://127.0.0.1:{}/x\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
        server.port
    );
    assert_eq!(answer, Answer::new(Outcome::Failure, expected));
}

#[tokio::test]
async fn n8_a_server_that_hangs_up_or_talks_nonsense_fails_in_gos_words() {
    let server = Server::start(|path| Some(if path == "/nothing" { "" } else { "what?\r\n\r\n" }.to_owned())).await;
    let told = |path: &'static str| {
        let target = server.target(path);
        async move { probe(&target, LONG).await.message }
    };
    let place = format!("Get \"http://127.0.0.1:{}", server.port);
    assert_eq!(told("/nothing").await, format!("{place}/nothing\": EOF"));
    let nonsense = "net/http: HTTP/1.x transport connection broken: malformed HTTP response";
    assert_eq!(told("/else").await, format!("{place}/else\": {nonsense}"));
}

#[tokio::test]
async fn n8_a_body_is_kept_to_ten_kibibytes() {
    let server = Server::start(|_| Some(response("200 OK", "", &"x".repeat(50_000)))).await;
    let answer = probe(&server.target("/"), LONG).await;
    assert_eq!((answer.outcome, answer.message.len()), (Outcome::Success, 10 * 1024));
}

fn acceptor() -> tokio_rustls::TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(["somebody.else".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    Arc::new(config).into()
}

#[tokio::test]
async fn n8_https_takes_any_certificate() {
    let server = Server::with_tls(Some(acceptor()), |_| Some(response("200 OK", "", "hello"))).await;
    let mut target = server.target("/");
    target.https = true;
    assert_eq!(probe(&target, LONG).await, Answer::new(Outcome::Success, "hello"));
}

#[tokio::test]
async fn n8_https_to_a_plain_server_is_told_and_a_hook_asks_again_without() {
    // It does not wait for a head's end: a TLS greeting has none.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut some = [0; 64];
            if stream.read(&mut some).await.is_ok() {
                let text = response("400 Bad Request", "connection: close\r\n", "");
                stream.write_all(text.as_bytes()).await.unwrap();
            }
        }
    });
    let target = Target {
        https: true,
        host: "127.0.0.1".to_owned(),
        port,
        path: "/".to_owned(),
        headers: HeaderMap::new(),
    };
    let expected = format!("Get \"https://127.0.0.1:{port}/\": http: server gave HTTP response to HTTPS client");
    assert_eq!(probe(&target, LONG).await, Answer::new(Outcome::Failure, expected));
    assert_eq!(any_answer(&target).await, Ok(()));
}

#[tokio::test]
async fn n8_a_hook_is_heard_whatever_the_status() {
    let server = Server::start(|_| Some(response("500 Broken", "", ""))).await;
    assert_eq!(any_answer(&server.target("/bye")).await, Ok(()));
    assert!(server.head(0).contains("user-agent: kube-lifecycle/1.36"));
}
