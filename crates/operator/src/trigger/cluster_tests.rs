//! What is asked of an API server, word by word, and what is made of its answers.

use std::sync::{Arc, Mutex};

use http::{Request, Response, StatusCode};
use kube::client::Body;

use super::*;
use crate::trigger::request;
use crate::trigger::tests::GREETINGS;

const SECRET: &str = "s3cret-t0ken";

type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// A cluster that always gives this answer, and what it was asked.
fn cluster(code: StatusCode, answer: impl Into<String>) -> (KubeCluster, Asked) {
    let (answer, asked): (String, Asked) = (answer.into(), Arc::default());
    let heard = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (answer, heard) = (answer.clone(), heard.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            heard
                .lock()
                .unwrap()
                .push((format!("{} {}", head.method, head.uri), body));
            let answer = Response::builder().status(code).body(Body::from(answer.into_bytes()));
            Ok::<_, std::convert::Infallible>(answer.unwrap())
        }
    });
    (KubeCluster::new(kube::Client::new(service, "default")), asked)
}

fn token() -> request::Token {
    let head =
        http::Request::post("/v1/trigger/greetings/here/hello").header("authorization", format!("Bearer {SECRET}"));
    let head = head.body(()).unwrap().into_parts().0;
    request::read(&[GREETINGS], &head).unwrap().token.unwrap()
}

fn key() -> ObjectKey {
    ObjectKey::new("here", "hello").unwrap()
}

fn user() -> UserInfo {
    serde_json::from_value(json!({
        "username": "kim", "uid": "7", "groups": ["a", "b"], "extra": {"x": ["1", "2"]},
    }))
    .unwrap()
}

#[tokio::test]
async fn only_a_token_that_the_server_vouches_for_is_somebodys() {
    let whole = json!({"authenticated": true, "user": user()});
    for (status, known) in [
        (whole.clone(), true),
        (json!({"authenticated": false, "user": user()}), false),
        (json!({"user": user()}), false),
        (json!({"authenticated": true}), false),
        (json!({"authenticated": true, "user": {"username": ""}}), false),
        (
            json!({"authenticated": true, "user": {"groups": ["system:masters"]}}),
            false,
        ),
        (json!({}), false),
        (json!({"error": "expired"}), false),
    ] {
        let answer = json!({"spec": {"token": SECRET}, "status": status});
        let (cluster, asked) = cluster(StatusCode::CREATED, answer.to_string());
        let who = cluster.who(&token()).await.unwrap();
        assert_eq!(who, known.then(user), "{status}");
        let (request, body) = asked.lock().unwrap()[0].clone();
        assert_eq!(request, "POST /apis/authentication.k8s.io/v1/tokenreviews");
        assert_eq!(body["spec"], json!({"token": SECRET}));
    }
}

#[tokio::test]
async fn the_right_that_is_asked_for_is_update_of_this_very_object_for_this_very_user() {
    for (status, may) in [
        (json!({"allowed": true}), true),
        (json!({"allowed": false}), false),
        (json!({"allowed": true, "denied": true}), false),
        (json!({"allowed": false, "reason": "no rule"}), false),
    ] {
        let (cluster, asked) = cluster(StatusCode::CREATED, json!({"spec": {}, "status": status}).to_string());
        assert_eq!(
            cluster.may_update(&user(), &GREETINGS, &key()).await,
            Ok(may),
            "{status}"
        );
        let (request, body) = asked.lock().unwrap()[0].clone();
        assert_eq!(request, "POST /apis/authorization.k8s.io/v1/subjectaccessreviews");
        assert_eq!(
            body["spec"],
            json!({
                "user": "kim", "uid": "7", "groups": ["a", "b"], "extra": {"x": ["1", "2"]},
                "resourceAttributes": {"verb": "update", "group": "test.usher.dev", "version": "v1",
                    "resource": "greetings", "namespace": "here", "name": "hello"},
            })
        );
    }
    // No status is no yes.
    let (cluster, _) = cluster(StatusCode::CREATED, json!({"spec": {}}).to_string());
    assert_eq!(cluster.may_update(&user(), &GREETINGS, &key()).await, Ok(false));
}

#[tokio::test]
async fn one_annotation_is_written_and_nothing_else() {
    let (cluster, asked) = cluster(StatusCode::OK, json!({"metadata": {"uid": "1"}}).to_string());
    let written = cluster.annotate(&GREETINGS, &key(), "now").await.unwrap();
    assert_eq!(written, Some(json!({"metadata": {"uid": "1"}})));
    cluster.read(&GREETINGS, &key()).await.unwrap();
    let path = "/apis/test.usher.dev/v1/namespaces/here/greetings/hello";
    assert_eq!(
        *asked.lock().unwrap(),
        [
            (
                format!("PATCH {path}?fieldManager=usher-trigger"),
                json!({"metadata": {"annotations": {"usher.dev/again": "now"}}})
            ),
            (format!("GET {path}"), Value::Null)
        ]
    );
}

#[tokio::test]
async fn what_the_server_refuses_us_is_our_lack_and_what_it_does_not_say_is_no_answer() {
    let status =
        |code: u16| json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": "x"});
    for code in [401, 403] {
        let (cluster, _) = cluster(StatusCode::from_u16(code).unwrap(), status(code).to_string());
        let missing = |trouble: Trouble| match trouble {
            Trouble::NoRight { missing, .. } => missing,
            Trouble::NoAnswer => panic!("no answer"),
        };
        assert_eq!(
            missing(cluster.who(&token()).await.unwrap_err()),
            "create tokenreviews.authentication.k8s.io"
        );
        assert_eq!(
            missing(cluster.may_update(&user(), &GREETINGS, &key()).await.unwrap_err()),
            "create subjectaccessreviews.authorization.k8s.io"
        );
        assert_eq!(
            missing(cluster.annotate(&GREETINGS, &key(), "now").await.unwrap_err()),
            "patch greetings.test.usher.dev"
        );
    }
    for code in [409, 422, 429, 500, 503] {
        let (cluster, _) = cluster(StatusCode::from_u16(code).unwrap(), status(code).to_string());
        assert_eq!(cluster.who(&token()).await, Err(Trouble::NoAnswer), "{code}");
        assert_eq!(
            cluster.annotate(&GREETINGS, &key(), "now").await,
            Err(Trouble::NoAnswer),
            "{code}"
        );
    }
    let (cluster, _) = cluster(StatusCode::NOT_FOUND, status(404).to_string());
    assert_eq!(cluster.annotate(&GREETINGS, &key(), "now").await, Ok(None));
    assert_eq!(cluster.read(&GREETINGS, &key()).await, Ok(None));
    // A server without such reviews knows nobody; that is not the same as a token of nobody.
    assert_eq!(cluster.who(&token()).await, Err(Trouble::NoAnswer));
}

/// A TokenReview comes back with the token in it. What cannot be read of it must not be shown either.
#[tokio::test]
async fn an_answer_that_cannot_be_read_shows_no_token() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    for cut in [
        format!("{{\"spec\": {{\"token\": \"{SECRET}\"}}, \"sta"),
        format!("[\"{SECRET}\"]"),
    ] {
        let (cluster, _) = cluster(StatusCode::CREATED, cut);
        assert_eq!(cluster.who(&token()).await, Err(Trouble::NoAnswer));
    }
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("cannot be read"), "{log}");
    assert!(!log.contains(SECRET), "{log}");
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> tracing_subscriber::fmt::MakeWriter<'a> for Log {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
