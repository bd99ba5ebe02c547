//! The webhook server end to end: a TLS client that trusts the published bundle and nothing else, as an API server does.
//!
//! What is in `real` needs a real API server; run it with
//! `USHER_TEST_KUBECONFIG=… cargo test -p usher-operator --test webhook -- --ignored`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod real;
mod server;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use usher_operator::tls::{Lifetimes, Names, TlsServer};
use usher_operator::webhook::ReviewLimits;

use server::{DAY, HandClock, Running, config, connect, eventually, guard, request, review, routes};

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
            "the webhook at /sleeps took longer than 0.3 s: try again",
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
        TlsServer::bind(config, routes, None, None, Arc::new(clock.clone()))
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
            .ends_with("choose another with --tls-address")
    );
    assert!(Names::new(["not a name".to_owned()], []).is_err());
    assert!(Names::new([], []).is_err());
}

/// Through a change of authority, whoever holds a bundle no older than the settling time is served.
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
