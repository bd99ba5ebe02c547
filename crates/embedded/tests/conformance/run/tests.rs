//! The player against a server of a few lines, which keeps what it was asked.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::{Story, run};
use crate::case;
use crate::target::Target;

const UID: &str = "aaaaaaaa-0000-4000-8000-000000000001";

/// Makes whatever is posted, has a node `n` after it was asked three times, and a watch of two events.
fn answer(asked: &[String], method: &str, path: &str, body: &Value) -> (u16, String) {
    let same = asked.iter().filter(|one| **one == format!("{method} {path}")).count();
    match (method, path) {
        ("POST", _) => {
            let mut object = body.clone();
            object["metadata"]["uid"] = UID.into();
            object["metadata"]["resourceVersion"] = "41".into();
            (201, object.to_string())
        }
        ("GET", "/api/v1/nodes/n") if same < 3 => (404, json!({"code": 404}).to_string()),
        ("GET", watch) if watch.contains("watch=true") => {
            let event = |kind: &str| format!("{}\n", json!({"type": kind, "object": {"metadata": {"uid": UID}}}));
            (200, event("ADDED") + &event("DELETED"))
        }
        ("GET", _) => (200, json!({"path": path}).to_string()),
        _ => (200, "{}".to_owned()),
    }
}

async fn play(text: &str) -> (Story, Vec<String>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        let log = Arc::clone(&log);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let line = format!("{} {}", head.method, head.uri);
            let (code, text) = {
                let mut log = log.lock().unwrap();
                log.push(line);
                let body = serde_json::from_slice(&body).unwrap_or_default();
                answer(&log, head.method.as_str(), &head.uri.to_string(), &body)
            };
            let response = Response::builder()
                .status(code)
                .header("content-type", "application/json");
            Ok::<_, Infallible>(response.body(Full::new(bytes::Bytes::from(text))).unwrap())
        }
    });
    let target = Target::over(Client::new(service, "default"));
    let case = case::parse("area/name", text).unwrap();
    let story = run(&case, &target, "c1").await;
    let asked = asked.lock().unwrap().clone();
    (story, asked)
}

#[tokio::test]
async fn f1_what_is_captured_stands_in_later_paths() {
    let (story, asked) =
        play("# x\nPOST $core/configmaps\n  metadata: {name: a}\n$uid = .metadata.uid\nGET /x/$uid\n").await;
    assert_eq!(story.failures, Vec::<String>::new());
    assert!(asked.contains(&format!("GET /x/{UID}")), "{asked:?}");
    assert_eq!(story.answers[1].text, "200 application/json\npath: \"/x/<uid-1>\"\n");
}

#[tokio::test]
async fn a_case_has_a_namespace_and_leaves_nothing() {
    let (_, asked) =
        play("# x\nPOST /api/v1/nodes\n  metadata: {name: $ns-n}\nPOST $core/pods\n  metadata: {name: p}\n").await;
    assert_eq!(asked[0], "POST /api/v1/namespaces");
    let removed: Vec<_> = asked.iter().filter(|line| line.starts_with("DELETE")).collect();
    assert_eq!(removed, ["DELETE /api/v1/nodes/c1-n", "DELETE /api/v1/namespaces/c1"]);
}

#[tokio::test]
async fn a_step_that_fails_does_not_end_the_story() {
    let (story, _) = play("# x\nGET /a\n$x = .none\nGET /$x\nGET /b\n").await;
    assert_eq!(story.failures.len(), 2, "{:?}", story.failures);
    assert!(
        story.answers[0].text.contains("path: \"/a\"\nno .none"),
        "{:?}",
        story.answers[0]
    );
    assert_eq!(story.answers[2].text, "200 application/json\npath: \"/b\"\n");
}

#[tokio::test]
async fn f1_events_are_read_one_by_one_until_the_end() {
    let (story, _) = play("# x\nWATCH w /x?watch=true\nEVENTS w 1\nshow .type\nEND w\nshow .type\nEVENTS w 1\n").await;
    assert_eq!(story.answers[1].text, "--\n.type: \"ADDED\"\n");
    assert_eq!(story.answers[2].text, "--\n.type: \"DELETED\"\nclosed\n");
    assert!(story.answers[3].text.contains("no watch w is open"));
}

#[tokio::test]
async fn f1_until_asks_again_and_tells_the_last_answer_only() {
    let (story, asked) = play("# x\nGET /api/v1/nodes/n\nuntil 200\n").await;
    assert_eq!(asked.iter().filter(|line| *line == "GET /api/v1/nodes/n").count(), 3);
    assert_eq!(
        story.answers[0].text,
        "200 application/json\npath: \"/api/v1/nodes/n\"\n"
    );
}
