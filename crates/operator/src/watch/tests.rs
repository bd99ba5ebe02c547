//! The list-and-watch loop against a server that follows a script: one answer per request, in order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use futures::StreamExt;
use http::{Request, Response};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;

const KIND: ApiType = ApiType {
    group: "test.usher.dev",
    version: "v1",
    kind: "Thing",
    plural: "things",
};

/// How a request is answered.
enum Answer {
    /// A list page or a refusal.
    Whole(u16, Value),
    /// A watch that tells this and ends.
    Ends(Vec<Value>),
    /// A watch that tells this and stays open.
    Stays(Vec<Value>),
    /// Nothing, ever.
    Never,
}

/// Answers by the script; rings when it is at its end.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    asked: Arc<Mutex<Vec<String>>>,
    done: Arc<Notify>,
}

impl Script {
    fn client(&self) -> kube::Client {
        let script = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let script = script.clone();
            async move {
                script
                    .asked
                    .lock()
                    .unwrap()
                    .push(request.uri().query().unwrap_or_default().to_owned());
                let answer = script.answers.lock().unwrap().pop_front();
                let (code, body) = match answer {
                    Some(Answer::Whole(code, body)) => (code, Body::from(body.to_string())),
                    Some(Answer::Ends(events)) => (200, lines(events, false)),
                    Some(Answer::Stays(events)) => (200, lines(events, true)),
                    Some(Answer::Never) => std::future::pending().await,
                    None => {
                        script.done.notify_one();
                        std::future::pending().await
                    }
                };
                Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        kube::Client::new(service, "default")
    }
}

fn lines(events: Vec<Value>, stays: bool) -> Body {
    let told = futures::stream::iter(
        events
            .into_iter()
            .map(|e| Ok::<_, std::io::Error>(Bytes::from(format!("{e}\n")))),
    );
    if stays {
        Body::from_stream(told.chain(futures::stream::pending()))
    } else {
        Body::from_stream(told)
    }
}

fn object(name: &str, version: u64) -> Value {
    json!({"apiVersion": "test.usher.dev/v1", "kind": "Thing",
           "metadata": {"namespace": "ns", "name": name, "resourceVersion": version.to_string()}})
}

fn event(type_: &str, name: &str, version: u64) -> Value {
    json!({"type": type_, "object": object(name, version)})
}

fn bookmark(version: u64, end: bool) -> Value {
    let annotations = if end {
        json!({INITIAL_EVENTS_END: "true"})
    } else {
        json!({})
    };
    json!({"type": "BOOKMARK", "object": {"apiVersion": "test.usher.dev/v1", "kind": "Thing",
           "metadata": {"resourceVersion": version.to_string(), "annotations": annotations}}})
}

fn refusal(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no", "reason": "No"})
}

/// Notes what it is told, a word each.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Sink for Notes {
    fn event(&mut self, _: ApiType, event: Event) {
        let name = |o: &DynamicObject| o.metadata.name.clone().unwrap_or_default();
        let note = match event {
            Event::ListStarted => "list".to_owned(),
            Event::Listed(o) => format!("listed {}", name(&o)),
            Event::ListDone { revision } => format!("complete {revision}"),
            Event::Applied(o) => format!("applied {}", name(&o)),
            Event::Deleted(o) => format!("deleted {}", name(&o)),
            Event::Bookmark { revision } => format!("bookmark {revision}"),
            Event::Interrupted { .. } => "interrupted".to_owned(),
            Event::Resumed => "resumed".to_owned(),
        };
        self.0.lock().unwrap().push(note);
    }

    fn broke(&mut self, _: ApiType, problem: &str, wait: Duration) {
        self.0
            .lock()
            .unwrap()
            .push(format!("broke for {} s: {problem}", wait.as_secs()));
    }
}

/// Runs the loop until it asks for more than the script has. What was told, and what was asked.
async fn play(answers: Vec<Answer>) -> (Vec<String>, Vec<String>) {
    let script = Script::default();
    script.answers.lock().unwrap().extend(answers);
    let notes = Notes::default();
    let ended = tokio::time::timeout(Duration::from_secs(30), async {
        tokio::select! {
            () = run(script.client(), KIND, Some("ns".into()), notes.clone()) => unreachable!("it never ends"),
            () = script.done.notified() => {}
        }
    });
    ended.await.expect("the script is played to its end");
    let told = notes.0.lock().unwrap().clone();
    let asked = script.asked.lock().unwrap().clone();
    (told, asked)
}

/// What identifies a request: where it starts from, and whether it is a streaming list.
fn starts(query: &str) -> &'static str {
    match query {
        q if q.contains("sendInitialEvents=true") => "streaming list",
        q if q.contains("continue=") => "next page",
        q if q.contains("limit=") => "first page",
        q if q.contains("resourceVersion=9") => "watch from 9",
        q if q.contains("resourceVersion=7") => "watch from 7",
        q if q.contains("resourceVersion=5") => "watch from 5",
        _ => "something else",
    }
}

#[tokio::test]
async fn a_streaming_list_then_the_watch_goes_on_where_it_stopped() {
    let list = vec![
        event("ADDED", "a", 3),
        bookmark(4, false),
        event("MODIFIED", "b", 4),
        bookmark(5, true),
        event("MODIFIED", "a", 7),
    ];
    let (told, asked) = play(vec![
        Answer::Ends(list),
        Answer::Ends(vec![event("DELETED", "a", 8), bookmark(9, false)]),
    ])
    .await;
    let cut = "broke for 0 s: the server ended the answer early";
    assert_eq!(
        told,
        [
            "list",
            "listed a",
            "listed b",
            "complete 5",
            "applied a",
            cut,
            "resumed",
            "deleted a",
            "bookmark 9",
            cut
        ]
    );
    let starts: Vec<_> = asked.iter().map(|q| starts(q)).collect();
    assert_eq!(starts, ["streaming list", "watch from 7", "watch from 9"]);
    assert!(
        !asked[0].contains("resourceVersion=0"),
        "a quorum read, not any cache's: {}",
        asked[0]
    );
    assert!(asked[1].contains("allowWatchBookmarks=true"), "{}", asked[1]);
}

/// The cache's state comes first, then what happened since. A break among those is a break of the list.
#[tokio::test]
async fn a_list_cut_after_a_deletion_begins_anew() {
    let half = vec![event("ADDED", "a", 3), event("DELETED", "a", 5)];
    let (told, asked) = play(vec![Answer::Ends(half), Answer::Ends(vec![bookmark(7, true)])]).await;
    let cut = "broke for 0 s: the server ended the answer early";
    assert_eq!(told, ["list", "listed a", "deleted a", cut, "list", "complete 7", cut]);
    let starts: Vec<_> = asked.iter().map(|q| starts(q)).collect();
    assert_eq!(starts, ["streaming list", "streaming list", "watch from 7"]);
}

#[tokio::test]
async fn a_forgotten_version_means_a_new_list_whichever_way_it_is_said() {
    let in_stream = json!({"type": "ERROR", "object": refusal(410)});
    let list = || vec![bookmark(5, true)];
    let (told, asked) = play(vec![
        Answer::Ends(list()),
        Answer::Whole(410, refusal(410)),
        Answer::Ends(vec![bookmark(7, true), event("ADDED", "a", 9)]),
        Answer::Ends(vec![in_stream]),
        Answer::Ends(list()),
    ])
    .await;
    let starts: Vec<_> = asked.iter().map(|q| starts(q)).collect();
    assert_eq!(
        starts,
        [
            "streaming list",
            "watch from 5",
            "streaming list",
            "watch from 9",
            "streaming list",
            "watch from 5"
        ]
    );
    assert_eq!(told.iter().filter(|note| *note == "list").count(), 3);
    assert!(told.iter().any(|note| note.contains("410")), "{told:?}");
}

#[tokio::test]
async fn a_server_without_streaming_lists_is_asked_for_pages() {
    let page = |names: &[&str], version: &str, more: &str| {
        let items: Vec<_> = names.iter().map(|name| object(name, 3)).collect();
        json!({"apiVersion": "test.usher.dev/v1", "kind": "ThingList", "items": items,
               "metadata": {"resourceVersion": version, "continue": more}})
    };
    let (told, asked) = play(vec![
        Answer::Whole(422, refusal(422)),
        Answer::Whole(200, page(&["a", "b"], "5", "token")),
        Answer::Whole(200, page(&["c"], "5", "")),
        // And a page token that is too old begins the list anew, in pages from then on.
        Answer::Whole(410, refusal(410)),
        Answer::Whole(200, page(&["a"], "5", "token")),
        Answer::Whole(410, refusal(410)),
        Answer::Whole(200, page(&["a"], "7", "")),
    ])
    .await;
    let starts: Vec<_> = asked.iter().map(|q| starts(q)).collect();
    let pages = ["first page", "next page"];
    assert_eq!(
        starts[..4],
        ["streaming list", "first page", "next page", "watch from 5"]
    );
    assert_eq!(starts[4..6], pages);
    assert_eq!(starts[6..], ["first page", "watch from 7"]);
    assert_eq!(
        told[..6],
        ["list", "list", "listed a", "listed b", "listed c", "complete 5"]
    );
    assert_eq!(told.last().unwrap(), "complete 7");
}

#[tokio::test]
async fn a_busy_server_is_left_alone_as_long_as_it_asks() {
    let mut busy = refusal(429);
    busy["details"] = json!({"retryAfterSeconds": 2});
    let before = tokio::time::Instant::now();
    let (told, _) = play(vec![Answer::Whole(429, busy), Answer::Ends(vec![bookmark(5, true)])]).await;
    assert!(told[1].starts_with("broke for 2 s"), "{told:?}");
    assert!(
        before.elapsed() >= Duration::from_secs(2),
        "asked again after {:?}",
        before.elapsed()
    );
}

#[tokio::test]
async fn a_request_that_is_never_answered_is_given_up() {
    let (told, asked) = play(vec![
        Answer::Never,
        Answer::Ends(vec![bookmark(5, true)]),
        Answer::Never,
        Answer::Ends(vec![event("ADDED", "a", 7)]),
    ])
    .await;
    assert_eq!(
        told.iter().filter(|note| note.contains("no answer within")).count(),
        2,
        "{told:?}"
    );
    assert_eq!(starts(asked.last().unwrap()), "watch from 7");
}

#[tokio::test]
async fn an_open_watch_that_says_nothing_is_left_open() {
    let script = Script::default();
    let list = vec![bookmark(5, true), event("ADDED", "a", 7)];
    script.answers.lock().unwrap().extend([Answer::Stays(list)]);
    let notes = Notes::default();
    tokio::select! {
        () = run(script.client(), KIND, None, notes.clone()) => unreachable!("it never ends"),
        () = script.done.notified() => panic!("it asked again"),
        () = async { while notes.0.lock().unwrap().len() < 3 { tokio::task::yield_now().await } } => {}
    }
    assert_eq!(*notes.0.lock().unwrap(), ["list", "complete 5", "applied a"]);
}
