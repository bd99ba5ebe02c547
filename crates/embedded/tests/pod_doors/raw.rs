//! Exec as no kubectl does it: frames in pieces, spoiled, too large; clients that vanish.

use serde_json::{Value, json};

use super::World;
use super::socket::Socket;

const CAT: &str = "command=cat&stdin=true&stdout=true&stderr=true";
const V5: &str = "v5.channel.k8s.io";
const BINARY: u8 = 0x82;

#[tokio::test]
async fn input_in_pieces_with_a_ping_between_them_is_one_message() {
    let world = World::new().await;
    let mut socket = Socket::exec(&world, V5, CAT).await;
    assert!(socket.head.starts_with("http/1.1 101 "), "{}", socket.head);
    assert!(
        socket.head.contains(
            "sec-websocket-accept: s3ppLMBiTxaQ9kYGzzhZRbK+xOo="
                .to_lowercase()
                .as_str()
        )
    );
    assert!(socket.head.contains("sec-websocket-protocol: v5.channel.k8s.io"));
    assert_eq!(socket.message().await, (1, Vec::new()), "all is set up");
    socket.send(0x02, b"\0hel").await;
    socket.send(0x89, b"there?").await;
    assert_eq!(socket.next().await, (10, b"there?".to_vec()));
    socket.send(0x80, b"lo").await;
    assert_eq!(socket.message().await, (1, b"hello".to_vec()));
    // The end of the input.
    socket.send(BINARY, &[255, 0]).await;
    let (channel, status) = socket.message().await;
    assert_eq!(channel, 3);
    assert_eq!(
        serde_json::from_slice::<Value>(&status).unwrap(),
        json!({"metadata": {}, "status": "Success"})
    );
    assert_eq!(socket.closed().await, 1000);
}

#[tokio::test]
async fn v4_has_no_end_of_input_and_a_failed_command_tells_its_code() {
    let world = World::new().await;
    let mut socket = Socket::exec(&world, "v4.channel.k8s.io", CAT).await;
    assert!(
        socket.head.contains("sec-websocket-protocol: v4.channel.k8s.io"),
        "{}",
        socket.head
    );
    socket.message().await;
    socket.send(BINARY, &[255, 0]).await;
    socket.send(BINARY, b"\0still").await;
    assert_eq!(socket.message().await, (1, b"still".to_vec()));
    let mut socket = Socket::exec(&world, "v4.channel.k8s.io", "command=complain&command=7&stderr=true").await;
    assert_eq!(socket.message().await, (2, Vec::new()));
    assert_eq!(socket.message().await, (2, b"oh no\n".to_vec()));
    let (channel, status) = socket.message().await;
    let status: Value = serde_json::from_slice(&status).unwrap();
    assert_eq!((channel, &status["reason"]), (3, &json!("NonZeroExitCode")));
    assert_eq!(
        status["details"]["causes"],
        json!([{"reason": "ExitCode", "message": "7"}])
    );
}

#[tokio::test]
async fn a_frame_that_is_not_masked_closes_with_1002_and_one_too_large_with_1009() {
    let world = World::new().await;
    for (bytes, code) in [
        (&[0x82, 0x02, 0, b'a'][..], 1002),
        (&[0x82, 0xff, 0, 0, 0, 0, 0x7f, 0, 0, 0][..], 1009),
        (&[0x80, 0x80, 0, 0, 0, 0][..], 1002),
    ] {
        let mut socket = Socket::exec(&world, V5, CAT).await;
        socket.message().await;
        socket.send_raw(bytes).await;
        assert_eq!(socket.closed().await, code, "{bytes:?}");
    }
    // And many small pieces that are too much together.
    let mut socket = Socket::exec(&world, V5, CAT).await;
    socket.message().await;
    socket.send(0x02, &[0; 60_000]).await;
    for _ in 0..17 {
        socket.send(0x00, &[0; 64_000]).await;
    }
    assert_eq!(socket.closed().await, 1009);
}

#[tokio::test]
async fn a_terminal_is_told_its_size() {
    let world = World::new().await;
    let mut socket = Socket::exec(&world, V5, "command=size&stdin=true&stdout=true&tty=true").await;
    socket.message().await;
    socket.send(BINARY, b"\x04not a size").await;
    socket.send(BINARY, b"\x04{\"Width\":132,\"Height\":43}").await;
    assert_eq!(socket.message().await, (1, b"132x43".to_vec()));
}

#[tokio::test]
async fn a_client_that_goes_away_is_noticed_by_the_node() {
    let world = World::new().await;
    let mut left = world.node.left.subscribe();
    let mut socket = Socket::exec(&world, V5, CAT).await;
    socket.message().await;
    drop(socket);
    left.wait_for(|left| *left == 1).await.unwrap();
    // With a word of farewell.
    let mut socket = Socket::exec(&world, V5, CAT).await;
    socket.message().await;
    socket.send(0x88, &1000_u16.to_be_bytes()).await;
    left.wait_for(|left| *left == 2).await.unwrap();
    assert_eq!(socket.closed().await, 1000);
}

#[tokio::test]
async fn a_command_under_way_is_closed_with_1001_when_the_cluster_stops() {
    let world = World::new().await;
    let mut socket = Socket::exec(&world, V5, CAT).await;
    socket.message().await;
    world.cluster.stop().await;
    assert_eq!(socket.closed().await, 1001);
}

#[tokio::test]
async fn all_of_a_large_output_arrives_before_the_close_though_the_client_writes_meanwhile() {
    let world = World::new().await;
    let mut socket = Socket::exec(&world, V5, "command=flood&stdin=true&stdout=true").await;
    for _ in 0..16 {
        socket.send(BINARY, &[0; 4_000]).await;
    }
    let mut bytes = 0;
    loop {
        match socket.message().await {
            (1, piece) => bytes += piece.len(),
            (3, _) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(bytes, 64 * 32 * 1024);
    assert_eq!(socket.closed_at_last().await, 1000);
}

#[tokio::test]
async fn an_offer_of_other_protocols_is_refused() {
    let world = World::new().await;
    let socket = Socket::exec(&world, "base64.channel.k8s.io", CAT).await;
    assert!(socket.head.starts_with("http/1.1 400 "), "{}", socket.head);
}
