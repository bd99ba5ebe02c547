//! Clients that mean no good: each is cut off in time, and others are served meanwhile.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::json;

use super::client::{Answer, Client, rest, update};
use crate::support::World;

/// Above the ten seconds that a request may take to arrive, for a machine that is busy.
const CUT_BY: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn who_trickles_or_sends_too_much_is_cut_off() {
    let world = World::new().await;
    world.take_lease().await;
    world.pool("office", json!({"cidr": "10.0.0.0/16"})).await;
    let token = world.token("may", update(&["office"])).await;
    let operator = world.operator().standby().tls().ready().await;
    let client = Client::of(&world, &operator).await;
    let path = world.path("office");
    let head = format!("POST {path} HTTP/1.1\r\nhost: usher\r\nauthorization: Bearer {token}\r\n");

    // What they send first, and then byte by byte; what they may get for it.
    let cases: Vec<(&str, String, u8, &[u16])> = vec![
        ("a header byte by byte", "POST / HTTP/1.1\r\nx: ".to_owned(), b'x', &[]),
        ("nothing at all", String::new(), 0, &[]),
        (
            "a body byte by byte",
            format!("{head}content-length: 60000\r\n\r\n"),
            b'x',
            &[408],
        ),
        (
            "a body that does not come",
            format!("{head}content-length: 10\r\n\r\n"),
            0,
            &[408],
        ),
        (
            "a body in chunks that is too large",
            format!(
                "{head}transfer-encoding: chunked\r\n\r\n40000\r\n{}\r\n0\r\n\r\n",
                "x".repeat(0x40000)
            ),
            0,
            &[413],
        ),
        (
            "a body of a length that is too large",
            format!("{head}content-length: 10000000\r\n\r\n{}", "x".repeat(100_000)),
            0,
            &[413],
        ),
    ];
    let begun = Instant::now();
    let mut threads = Vec::new();
    for (what, first, trickle, expected) in cases {
        let client = client.clone();
        let case = move || {
            let mut stream = client.connect("localhost").unwrap();
            let _ = stream.write_all(first.as_bytes()).and_then(|()| stream.flush());
            stream.sock.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let mut bytes = Vec::new();
            while trickle != 0 && bytes.is_empty() && begun.elapsed() < CUT_BY {
                if stream.write_all(&[trickle]).and_then(|()| stream.flush()).is_err() {
                    break;
                }
                bytes = rest(&mut stream);
            }
            stream.sock.set_read_timeout(Some(CUT_BY)).unwrap();
            bytes.extend(rest(&mut stream));
            (what, expected, Answer::read(&bytes), begun.elapsed())
        };
        threads.push(tokio::task::spawn_blocking(case));
    }
    // Meanwhile, others are served.
    let served = client.post(&path, &token).await;
    assert_eq!(served.status, 202, "{served:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    for thread in threads {
        let (what, expected, answer, took) = thread.await.unwrap();
        println!(
            "{what}: {:?} after {took:.1?}",
            answer.as_ref().map(|answer| answer.status)
        );
        assert!(took < CUT_BY, "{what}: not cut off after {took:?}");
        match answer {
            Some(answer) => assert!(expected.contains(&answer.status), "{what}: {answer:?}"),
            // Cut while it still sent, it may not see the answer.
            None => assert!(expected.is_empty() || expected == [413], "{what}: no answer"),
        }
    }
    assert!(!operator.log().contains(&token));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_that_is_too_large_is_refused() {
    let world = World::new().await;
    world.take_lease().await;
    let operator = world.operator().standby().tls().ready().await;
    let client = Client::of(&world, &operator).await;
    let answers = tokio::task::spawn_blocking(move || {
        let mut stream = client.connect("localhost").unwrap();
        let huge = format!(
            "POST / HTTP/1.1\r\nauthorization: Bearer {}\r\n\r\n",
            "x".repeat(200_000)
        );
        let _ = stream.write_all(huge.as_bytes()).and_then(|()| stream.flush());
        rest(&mut stream)
    })
    .await
    .unwrap();
    // Cut while it still sent, a client may not see the answer.
    let answer = String::from_utf8_lossy(&answers).into_owned();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
}
