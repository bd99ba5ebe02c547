//! Events through a kube client: against a server that notes what it is asked, and against a real one.
//!
//! The last test needs a real API server and kubectl; run it with
//! `USHER_TEST_KUBECONFIG=… cargo test -p usher-operator --test events -- --ignored`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use http::{Request, Response};
use k8s_openapi::api::core::v1::{ConfigMap, Event as CoreEvent, Namespace};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use usher_engine::ObjectKey;
use usher_operator::clock::SystemClock;
use usher_operator::events::{self, About, EventSettings, EventSink, EventWriter, Limits, Within};

/// Notes every request; answers from the list, then with success. Answers nothing while shut.
#[derive(Clone, Default)]
struct Notebook {
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    answers: Arc<Mutex<VecDeque<Value>>>,
    shut: Option<Arc<Notify>>,
}

impl Notebook {
    fn client(&self) -> kube::Client {
        let notebook = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let notebook = notebook.clone();
            async move {
                let (head, body) = request.into_parts();
                let body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
                notebook
                    .asked
                    .lock()
                    .unwrap()
                    .push((format!("{} {}", head.method, head.uri.path()), body));
                if let Some(open) = &notebook.shut {
                    open.notified().await;
                }
                let answer = notebook.answers.lock().unwrap().pop_front();
                let answer = answer.unwrap_or_else(|| json!({"metadata": {}, "eventTime": null}));
                let code = u16::try_from(answer["code"].as_u64().unwrap_or(200)).unwrap();
                let body = Body::from(answer.to_string().into_bytes());
                Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        kube::Client::new(service, "default")
    }

    fn open(&self) -> (EventSink, EventWriter) {
        self.open_with(EventSettings::new("usher-0"))
    }

    fn open_with(&self, settings: EventSettings) -> (EventSink, EventWriter) {
        events::open(self.client(), settings, Arc::new(SystemClock::new()))
    }

    fn asked(&self) -> Vec<(String, Value)> {
        self.asked.lock().unwrap().clone()
    }

    fn verbs(&self) -> Vec<String> {
        self.asked()
            .into_iter()
            .map(|(line, _)| line.split(' ').next().unwrap().to_owned())
            .collect()
    }

    fn will_answer(&self, answers: impl IntoIterator<Item = Value>) {
        self.answers.lock().unwrap().extend(answers);
    }
}

fn status(code: u16, reason: &str) -> Value {
    let causes = if code == 403 && reason == "NamespaceTerminating" {
        json!([{"reason": reason}])
    } else {
        json!([])
    };
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason,
           "details": {"causes": causes}})
}

fn pool() -> About {
    About {
        api_version: "plexaubnet.io/v1alpha1".into(),
        kind: "SubnetPool".into(),
        key: ObjectKey::new("team-a", "pool").unwrap(),
        uid: "uid-1".into(),
        resource_version: "42".into(),
    }
}

fn within() -> Within {
    Within {
        about: About {
            uid: "uid-2".into(),
            ..pool()
        },
        words: Some(["claim bound", "claims bound"]),
    }
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

/// Writes what was told so far, and ends.
async fn finish(sink: EventSink, writer: EventWriter) -> EventSink {
    let (stop, stopping) = watch::channel(false);
    stop.send(true).unwrap();
    writer.run(stopping).await;
    sink
}

#[tokio::test]
async fn the_same_event_three_times_is_one_object_with_a_count() {
    let notebook = Notebook::default();
    let (sink, writer) = notebook.open();
    for _ in 0..3 {
        sink.tell(&pool(), "SubnetPoolExhausted", "no /24 is free", true, "Allocate");
    }
    let sink = finish(sink, writer).await;
    assert_eq!((sink.written(), sink.shed(), sink.failed()), (3, 0, 0));

    let asked = notebook.asked();
    assert_eq!(notebook.verbs(), ["POST", "PATCH", "PATCH"]);
    let (line, event) = &asked[0];
    assert_eq!(line, "POST /apis/events.k8s.io/v1/namespaces/team-a/events");
    assert_eq!(event["regarding"]["kind"], "SubnetPool");
    assert_eq!(event["regarding"]["uid"], "uid-1");
    assert_eq!(event["regarding"]["resourceVersion"], "42");
    assert_eq!(event["type"], "Warning");
    assert_eq!(event["action"], "Allocate");
    assert_eq!(event["reportingController"], "usher.dev/operator");
    assert_eq!(event["reportingInstance"], "usher-0");
    assert_eq!(event["series"], Value::Null);
    let name = event["metadata"]["name"].as_str().unwrap();
    assert_eq!(
        asked[2].0,
        format!("PATCH /apis/events.k8s.io/v1/namespaces/team-a/events/{name}")
    );
    assert_eq!(asked[2].1["series"]["count"], 3);
}

#[tokio::test]
async fn trouble_is_tried_once_more_and_then_dropped() {
    let notebook = Notebook::default();
    // First: stumbles, then took effect after all. Second: stumbles twice. Third: no right. Fourth: a namespace that
    // goes. Fifth: nonsense. Sixth: told to slow down.
    notebook.will_answer([
        status(500, "InternalError"),
        status(409, "AlreadyExists"),
        status(503, "ServiceUnavailable"),
        status(503, "ServiceUnavailable"),
        status(403, "Forbidden"),
        status(403, "NamespaceTerminating"),
        status(422, "Invalid"),
        status(429, "TooManyRequests"),
    ]);
    let (sink, writer) = notebook.open();
    for note in ["1", "2", "3", "4", "5", "6"] {
        sink.tell(&pool(), "Recalculated", note, false, "Recalculate");
    }
    let sink = finish(sink, writer).await;
    assert_eq!(
        (sink.written(), sink.failed(), sink.shed()),
        (1, 4, 0),
        "the fourth is of no interest to anybody"
    );
    assert_eq!(notebook.asked().len(), 8);
}

#[tokio::test]
async fn an_event_that_is_gone_is_made_again_with_its_count() {
    let notebook = Notebook::default();
    notebook.will_answer([json!({"metadata": {}, "eventTime": null}), status(404, "NotFound")]);
    let (sink, writer) = notebook.open();
    for _ in 0..3 {
        sink.tell(&pool(), "Recalculated", "drift", false, "Recalculate");
    }
    finish(sink, writer).await;
    assert_eq!(notebook.verbs(), ["POST", "PATCH", "POST", "PATCH"]);
    assert_eq!(notebook.asked()[2].1["series"]["count"], 2);
    assert_eq!(notebook.asked()[3].1["series"]["count"], 3);
}

#[tokio::test]
async fn one_that_could_not_be_made_is_new_the_next_time() {
    let notebook = Notebook::default();
    notebook.will_answer([status(403, "Forbidden")]);
    let (sink, writer) = notebook.open();
    for _ in 0..2 {
        sink.tell(&pool(), "Recalculated", "drift", false, "Recalculate");
    }
    finish(sink, writer).await;
    assert_eq!(notebook.verbs(), ["POST", "POST"]);
}

#[tokio::test]
async fn telling_never_waits_for_a_server_that_does_not_answer() {
    let notebook = Notebook {
        shut: Some(Arc::default()),
        ..Notebook::default()
    };
    let (sink, writer) = notebook.open();
    let (stop, stopping) = watch::channel(false);
    let task = tokio::spawn(writer.run(stopping));
    sink.tell(&pool(), "Recalculated", "the first", false, "Recalculate");
    eventually("the writer is busy", async || !notebook.asked().is_empty()).await;
    // One thread, no await between: these return, or the test never ends.
    for n in 0..3_000 {
        sink.tell(&pool(), "Recalculated", &n.to_string(), false, "Recalculate");
    }
    assert_eq!(sink.shed(), 3_000 - 1_024);
    stop.send(true).unwrap();
    notebook.shut.as_ref().unwrap().notify_one();
    task.await.unwrap();
    sink.tell(&pool(), "Recalculated", "after the end", false, "Recalculate");
    assert!(sink.shed() > 3_000 - 1_024, "nobody writes any more: shed, not stuck");
}

#[tokio::test]
async fn a_storm_is_written_within_its_burst() {
    let notebook = Notebook::default();
    let (sink, writer) = notebook.open();
    let (stop, stopping) = watch::channel(false);
    for n in 0..1_000 {
        sink.tell_within(&pool(), &within(), "SubnetAllocated", &n.to_string(), false, "Allocate");
    }
    let task = tokio::spawn(writer.run(stopping));
    eventually("all told things are judged", async || {
        sink.written() + sink.shed() == 1_000
    })
    .await;
    stop.send(true).unwrap();
    task.await.unwrap();
    assert!((100..200).contains(&sink.written()), "{} written", sink.written());
}

/// Most find no place in the queue and never reach the judge. They are summed up all the same.
#[tokio::test]
async fn what_finds_no_place_in_the_queue_is_summed_up_too() {
    const TOLD: u64 = 5_000;
    let notebook = Notebook::default();
    let (sink, writer) = notebook.open_with(EventSettings {
        limits: Limits {
            summary_every: Duration::from_millis(50),
            ..Limits::default()
        },
        ..EventSettings::new("usher-0")
    });
    let (stop, stopping) = watch::channel(false);
    for n in 0..TOLD {
        sink.tell_within(&pool(), &within(), "SubnetAllocated", &n.to_string(), false, "Allocate");
    }
    assert_eq!(sink.shed(), TOLD - 1_024);
    let task = tokio::spawn(writer.run(stopping));
    let summed = || -> u64 {
        let notes = notebook
            .asked()
            .into_iter()
            .filter(|(_, event)| event["regarding"]["uid"] == "uid-2");
        let count = |event: &Value| {
            event["note"]
                .as_str()?
                .split_once(" claims bound, ")?
                .0
                .parse::<u64>()
                .ok()
        };
        notes.filter_map(|(_, event)| count(&event)).sum()
    };
    eventually("all that was left out is summed up", async || {
        sink.shed() > TOLD - 1_024 && summed() == sink.shed() && sink.shed_of(&["SubnetPool"]) == sink.shed()
    })
    .await;
    stop.send(true).unwrap();
    task.await.unwrap();
    let one_by_one = notebook
        .asked()
        .iter()
        .filter(|(_, event)| event["regarding"]["uid"] == "uid-1")
        .count() as u64;
    assert_eq!(one_by_one + summed(), TOLD, "nothing is lost in silence");
}

/// A client of the real API server.
async fn real() -> (kube::Client, String) {
    let path = std::env::var("USHER_TEST_KUBECONFIG")
        .expect("this test needs a real API server: set USHER_TEST_KUBECONFIG to the path of a kubeconfig");
    let kubeconfig = kube::config::Kubeconfig::read_from(&path).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .unwrap();
    (kube::Client::try_from(config).unwrap(), path)
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_describe_shows_what_was_told() {
    let (client, kubeconfig) = real().await;
    let namespace = format!("usher-events-{}", std::process::id());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let new: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
    namespaces.create(&PostParams::default(), &new).await.unwrap();
    let outcome = AssertUnwindSafe(tell_and_describe(client.clone(), kubeconfig, namespace.clone()))
        .catch_unwind()
        .await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let _ = maps
        .patch("told-about", &PatchParams::default(), &Patch::Merge(finalizers(&[])))
        .await;
    let _ = namespaces.delete(&namespace, &DeleteParams::default()).await;
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Keeps an object, and so its namespace, from going.
fn finalizers(names: &[&str]) -> Value {
    json!({"metadata": {"name": "told-about", "finalizers": names}})
}

async fn tell_and_describe(client: kube::Client, kubeconfig: String, namespace: String) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let map: ConfigMap = serde_json::from_value(finalizers(&["usher.dev/test"])).unwrap();
    let map = maps.create(&PostParams::default(), &map).await.unwrap();
    let about = About {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        key: ObjectKey::new(&namespace, "told-about").unwrap(),
        uid: map.metadata.uid.unwrap(),
        resource_version: map.metadata.resource_version.unwrap(),
    };
    let (sink, writer) = events::open(client.clone(), EventSettings::new("test"), Arc::new(SystemClock::new()));
    let (stop, stopping) = watch::channel(false);
    let task = tokio::spawn(writer.run(stopping));
    for _ in 0..3 {
        sink.tell(&about, "SubnetPoolExhausted", "no /24 is free", true, "Allocate");
    }
    sink.tell(&about, "Recalculated", &"long ".repeat(1_000), false, "Recalculate");
    // A namespace that is not there interests nobody.
    let nowhere = About {
        key: ObjectKey::new("usher-no-such-namespace", "x").unwrap(),
        ..about.clone()
    };
    sink.tell(&nowhere, "Recalculated", "nobody reads this", false, "Recalculate");
    sink.tell(&about, "Recalculated", "the last", false, "Recalculate");
    eventually("all are written", async || sink.written() == 5 || sink.failed() > 0).await;
    assert_eq!((sink.failed(), sink.shed()), (0, 0));

    let core: Api<CoreEvent> = Api::namespaced(client.clone(), &namespace);
    let listed = core
        .list(&ListParams::default().fields(&format!("involvedObject.uid={}", about.uid)))
        .await
        .unwrap();
    assert_eq!(listed.items.len(), 3);
    let exhausted = listed
        .iter()
        .find(|e| e.reason.as_deref() == Some("SubnetPoolExhausted"))
        .unwrap();
    assert_eq!(exhausted.series.as_ref().unwrap().count, Some(3));

    let arguments = [
        "--kubeconfig",
        &kubeconfig,
        "--namespace",
        &namespace,
        "describe",
        "configmap",
        "told-about",
    ];
    let output = std::process::Command::new("kubectl")
        .args(arguments)
        .output()
        .expect("kubectl is installed");
    let shown = String::from_utf8(output.stdout).unwrap();
    println!("{shown}");
    let line = shown
        .lines()
        .find(|line| line.contains("SubnetPoolExhausted"))
        .unwrap_or_else(|| panic!("{shown}"));
    for word in ["Warning", "x3", "usher.dev/operator", "no /24 is free"] {
        assert!(line.contains(word), "{word} in {line}");
    }

    // In a namespace that goes nothing can be made any more, and that is nobody's failure.
    let namespaces: Api<Namespace> = Api::all(client);
    namespaces.delete(&namespace, &DeleteParams::default()).await.unwrap();
    sink.tell(&about, "Recalculated", "while the namespace goes", false, "Recalculate");
    stop.send(true).unwrap();
    task.await.unwrap();
    assert_eq!((sink.written(), sink.failed(), sink.shed()), (5, 0, 0));
}
