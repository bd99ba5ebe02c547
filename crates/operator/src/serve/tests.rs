use std::net::Ipv4Addr;

use prometheus_client::metrics::counter::Counter;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

/// Asks for `path` on a connection of its own and returns the whole answer.
async fn ask(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: usher\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn probes_and_metrics_answer_until_told_to_stop() {
    let listener = bind((Ipv4Addr::LOCALHOST, 0).into(), "--health-address").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (health, mut registry) = (Health::new(), Registry::default());
    let passes = Counter::<u64>::default();
    registry.register("usher_passes", "Passes", passes.clone());
    passes.inc_by(3);
    let (stop, stopping) = watch::channel(false);
    let server = tokio::spawn(run(listener, health.clone(), Arc::new(registry), stopping));

    assert!(ask(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(
        ask(address, "/readyz").await.contains("starting"),
        "nobody reported yet"
    );

    health.set("caches", Err("reading SubnetPools\nand Subnets".into()));
    health.set("webhook", Err("no certificate".into()));
    health.set("lease", Ok(()));
    let answer = ask(address, "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(
        answer.ends_with("caches: reading SubnetPools; and Subnets\nwebhook: no certificate\n"),
        "{answer}"
    );

    health.set("caches", Ok(()));
    health.set("webhook", Ok(()));
    assert!(ask(address, "/readyz").await.starts_with("HTTP/1.1 200"));

    let answer = ask(address, "/metrics").await;
    assert!(
        answer
            .to_ascii_lowercase()
            .contains(&format!("content-type: {OPEN_METRICS}")),
        "{answer}"
    );
    assert!(answer.contains("usher_passes_total 3"), "{answer}");
    assert!(answer.ends_with("# EOF\n"), "{answer}");
    assert!(ask(address, "/other").await.starts_with("HTTP/1.1 404"));

    health.end("the lease task ended");
    assert!(ask(address, "/healthz").await.starts_with("HTTP/1.1 500"));
    assert!(ask(address, "/readyz").await.contains("the lease task ended"));

    stop.send(true).unwrap();
    server.await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn an_idle_connection_does_not_hold_up_the_end() {
    let listener = bind((Ipv4Addr::LOCALHOST, 0).into(), "--health-address").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = connections::Limits {
        farewell: Duration::from_secs(3_600),
        headers: Duration::from_secs(3_600),
        ..LIMITS
    };
    let (stop, stopping) = watch::channel(false);
    let router = routes(Health::new(), Arc::default());
    let server = tokio::spawn(connections::serve(listener, None, router, limits, stopping));
    let mut kept = TcpStream::connect(address).await.unwrap();
    kept.write_all(b"GET /healthz HTTP/1.1\r\nhost: usher\r\n\r\n")
        .await
        .unwrap();
    let mut head = [0; 12];
    kept.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    stop.send(true).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(60), server).await;
    ended.expect("ends without the client closing its connection").unwrap();
}

/// Who connects and does not ask takes a place from others: not for long, however it goes about it.
#[tokio::test]
async fn who_does_not_come_to_the_point_is_cut_off() {
    let listener = bind((Ipv4Addr::LOCALHOST, 0).into(), "--health-address").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = connections::Limits {
        first: Duration::from_millis(300),
        headers: Duration::from_secs(3_600),
        ..LIMITS
    };
    let (_stop, stopping) = watch::channel(false);
    let router = routes(Health::new(), Arc::default());
    tokio::spawn(connections::serve(listener, None, router, limits, stopping));

    // Nothing is said to them: reading ends.
    let soon = Duration::from_secs(20);
    let mut silent = TcpStream::connect(address).await.unwrap();
    let read = tokio::time::timeout(soon, silent.read(&mut [0; 1])).await;
    assert_eq!(read.expect("a silent one is cut").unwrap_or(0), 0);

    let (mut reader, mut writer) = TcpStream::connect(address).await.unwrap().into_split();
    let trickle = async {
        while writer.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let read = async { reader.read(&mut [0; 1]).await.unwrap_or(0) };
    let either = async {
        tokio::select! { read = read => read, () = trickle => 0 }
    };
    let read = tokio::time::timeout(soon, either).await;
    assert_eq!(read.expect("a header that comes byte by byte is cut"), 0);

    let mut huge = TcpStream::connect(address).await.unwrap();
    let header = format!(
        "GET /healthz HTTP/1.1\r\nconnection: close\r\nx: {}\r\n\r\n",
        "x".repeat(LIMITS.header_bytes)
    );
    let _ = huge.write_all(header.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = huge.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    // Cut before all of it was read, the answer may be lost on the way.
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");

    // Who asks in time may then be silent for as long as `headers` says.
    let mut kept = TcpStream::connect(address).await.unwrap();
    for _ in 0..2 {
        kept.write_all(b"GET /healthz HTTP/1.1\r\nhost: usher\r\n\r\n")
            .await
            .unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok\n") {
            assert!(kept.read_buf(&mut answer).await.unwrap() > 0, "cut");
        }
        tokio::time::sleep(2 * limits.first).await; // edge: longer than the first request may take
    }
}

#[tokio::test]
async fn a_server_whose_stopper_is_gone_stops() {
    let listener = bind((Ipv4Addr::LOCALHOST, 0).into(), "--health-address").await.unwrap();
    let (stop, stopping) = watch::channel(false);
    let server = tokio::spawn(run(listener, Health::new(), Arc::default(), stopping));
    drop(stop);
    server.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_taken_port_names_the_flag_and_the_address() {
    let first = bind((Ipv4Addr::LOCALHOST, 0).into(), "--health-address").await.unwrap();
    let address = first.local_addr().unwrap();
    let error = bind(address, "--health-address").await.unwrap_err();
    let port = address.port();
    assert_eq!(
        error.to_string(),
        format!("port {port} is taken (127.0.0.1:{port}): choose another with --health-address")
    );
    assert_eq!(error.class(), ErrorClass::Transient);
    let elsewhere = bind("192.0.2.1:0".parse().unwrap(), "--health-address")
        .await
        .unwrap_err();
    assert!(
        elsewhere.to_string().contains("no address of this machine"),
        "{elsewhere}"
    );
    assert_eq!(elsewhere.class(), ErrorClass::Permanent);
}

const PARTS: [&str; 4] = ["caches", "lease", "queue", "webhook"];

proptest! {
    #[test]
    fn ready_means_that_every_part_last_said_so(
        reports in prop::collection::vec((0usize..PARTS.len(), prop::option::of("[a-z ]{0,9}")), 0..30),
    ) {
        let health = Health::new();
        let mut last = std::collections::BTreeMap::new();
        for (part, problem) in reports {
            health.set(PARTS[part], problem.clone().map_or(Ok(()), Err));
            last.insert(PARTS[part], problem);
        }
        let missing = last.values().filter(|problem| problem.is_some()).count();
        match health.ready() {
            Ok(()) => prop_assert!(missing == 0 && !last.is_empty()),
            Err(lines) => prop_assert_eq!(lines.len(), missing.max(1)),
        }
        prop_assert!(health.alive().is_ok());
    }
}
