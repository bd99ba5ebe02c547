use super::*;
use serde_json::{Value, json};

fn container() -> Container {
    serde_json::from_value(json!({"name": "c", "ports": [
        {"name": "web", "containerPort": 8080}, {"name": "bad", "containerPort": 70000}, {"containerPort": 1}]}))
    .unwrap()
}

fn probe(value: Value) -> Probe {
    serde_json::from_value(value).unwrap()
}

async fn never(_: Vec<String>) -> Result<Executed, String> {
    std::future::pending().await
}

async fn asked(value: Value) -> Answer {
    check(&probe(value), &container(), "127.0.0.1", never).await
}

/// A port of loopback where nobody listens.
async fn closed_port() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn n8_exec_succeeds_with_0_and_fails_with_what_it_printed() {
    let ran = |code, output: &str| {
        let output = output.as_bytes().to_vec();
        async move |command: Vec<String>| {
            assert_eq!(command, ["cat", "/x"]);
            Ok(Executed { code, output })
        }
    };
    let exec = probe(json!({"exec": {"command": ["cat", "/x"]}}));
    let answer = check(&exec, &container(), "", ran(0, "fine")).await;
    assert_eq!(answer, Answer::new(Outcome::Success, "fine"));
    let answer = check(&exec, &container(), "", ran(1, "cat: /x: No such file")).await;
    assert_eq!(answer, Answer::new(Outcome::Failure, "cat: /x: No such file"));
    let answer = check(&exec, &container(), "", ran(137, &"x".repeat(20_000))).await;
    assert_eq!(answer.message.len(), 10 * 1024);
    let answer = check(&exec, &container(), "", async |_| {
        Err("container is stopping".to_owned())
    })
    .await;
    assert_eq!(answer, Answer::new(Outcome::Unknown, "container is stopping"));
}

#[tokio::test]
async fn n8_exec_that_takes_too_long_fails_by_its_time() {
    let answer = asked(json!({"exec": {"command": ["sh", "-c", "sleep 9"]}, "timeoutSeconds": 1})).await;
    let expected = "command timed out: \"sh -c sleep 9\" timed out after 1s";
    assert_eq!(answer, Answer::new(Outcome::Failure, expected));
}

#[tokio::test]
async fn n8_tcp_succeeds_where_somebody_listens_and_names_the_address_where_nobody_does() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    assert_eq!(
        asked(json!({"tcpSocket": {"port": port}})).await.outcome,
        Outcome::Success
    );
    let port = closed_port().await;
    assert_eq!(
        asked(json!({"tcpSocket": {"port": port, "host": "127.0.0.1"}})).await,
        Answer::new(
            Outcome::Failure,
            format!("dial tcp 127.0.0.1:{port}: connect: connection refused")
        )
    );
    let answer = asked(json!({"tcpSocket": {"port": 1, "host": "no-such-host.invalid"}})).await;
    assert_eq!(answer.message, "dial tcp: lookup no-such-host.invalid: no such host");
}

#[tokio::test]
async fn n8_ports_go_by_name_and_a_name_that_no_port_has_is_an_error() {
    let port = |value: Value| ports::number(&serde_json::from_value(value).unwrap(), &container());
    assert_eq!(port(json!("web")), Ok(8080));
    assert_eq!(port(json!(9)), Ok(9));
    assert_eq!(port(json!("9")), Ok(9));
    assert_eq!(port(json!("bad")), Err("invalid port number: 70000".to_owned()));
    assert_eq!(port(json!(0)), Err("invalid port number: 0".to_owned()));
    let answer = asked(json!({"httpGet": {"port": "http"}})).await;
    let expected = "strconv.Atoi: parsing \"http\": invalid syntax";
    assert_eq!(answer, Answer::new(Outcome::Unknown, expected));
}

#[tokio::test]
async fn n8_a_probe_without_a_question_is_an_error() {
    assert_eq!(
        asked(json!({})).await,
        Answer::new(Outcome::Unknown, "missing probe handler for container c")
    );
}

#[tokio::test]
async fn n8_http_and_grpc_probes_ask_the_pods_address() {
    let port = closed_port().await;
    let answer = asked(json!({"httpGet": {"port": port, "path": "/healthz"}})).await;
    assert_eq!(
        answer.message,
        format!("Get \"http://127.0.0.1:{port}/healthz\": dial tcp 127.0.0.1:{port}: connect: connection refused")
    );
    let answer = asked(json!({"grpc": {"port": port}})).await;
    assert_eq!(
        answer.message,
        format!("timeout: failed to connect service \"127.0.0.1:{port}\" within 1s: context deadline exceeded")
    );
}
