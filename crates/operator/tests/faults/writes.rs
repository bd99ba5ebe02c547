//! Writes that are refused, lost on the way, or lost on the way back.

use std::time::Duration;

use serde_json::json;

use crate::support::lab::{Lab, eventually, quick};
use crate::support::proxy::{Fault, Seen, When, on};

/// Every write in a Greeting's life, by what it is for. `{}` is its name.
const WRITES: [(&str, &str, &str); 5] = [
    ("PATCH", "/greetings/{}", "finalizer"),
    ("PUT", "/greetings/{}/status", "status"),
    ("POST", "/configmaps", "note"),
    ("DELETE", "/configmaps/{}", "removal"),
    ("PATCH", "/greetings/{}", "farewell"),
];

fn write(n: usize, name: &str) -> When {
    let (method, path, _) = WRITES[n];
    let when = on(method, path.replace("{}", name));
    // A creation's name is in its body, not in its path.
    if path == "/configmaps" { when.named(name) } else { when }
}

/// A Greeting's whole life, with a fault in the way of one of its writes.
async fn live_through(lab: &Lab, name: &str, n: usize, times: usize, fault: Fault) {
    let met = if n < 3 {
        let rule = lab.proxy.fault(write(n, name), times, fault);
        lab.greeted(name).await;
        lab.delete(name).await;
        lab.until_gone(name).await;
        rule.hits()
    } else {
        lab.greeted(name).await;
        let rule = lab.proxy.fault(write(n, name), times, fault);
        lab.delete(name).await;
        lab.until_gone(name).await;
        rule.hits()
    };
    assert_eq!(met, times, "{name} met its fault");
    let (_, made) = lab.creations(name);
    assert_eq!(made, 1, "{name}: its note was made once");
    let removed = lab.proxy.effects(&on("DELETE", format!("/configmaps/{name}"))).len();
    assert_eq!(removed, 1, "{name}: and removed once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_is_refused_is_tried_again() {
    Lab::run(async |lab| {
        lab.start_rigged(quick());
        for (code, reason) in [
            (409, "Conflict"),
            (410, "Expired"),
            (500, "InternalError"),
            (503, "ServiceUnavailable"),
        ] {
            for (n, (_, _, what)) in WRITES.iter().enumerate() {
                let name = format!("{what}-{code}");
                live_through(lab, &name, n, 2, Fault::answer(code, reason)).await;
                if code == 500 {
                    let lines = lab.logs.with(&["WARN", &format!("{}/{name}", lab.namespace), "500"]);
                    assert!(!lines.is_empty(), "the log names the object and what was said: {name}");
                }
            }
        }
    })
    .await;
}

/// What M9 of the simulator is about: a lost answer is not a no, and not a yes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_answer_is_lost_is_neither_forgotten_nor_done_twice() {
    Lab::run(async |lab| {
        lab.start_rigged(quick());
        for (cut, fault) in [("before", Fault::CutBefore), ("after", Fault::CutAfter)] {
            for (n, (_, _, what)) in WRITES.iter().enumerate() {
                live_through(lab, &format!("{what}-{cut}"), n, 1, fault.clone()).await;
            }
        }
    })
    .await;
}

/// No watch tells of it in time: only the next write can find out that the first one took effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_and_a_late_echo_together_make_no_second_note() {
    Lab::run(async |lab| {
        lab.start_rigged(quick());
        lab.until_calm("before").await;
        lab.proxy.hold_watches("/configmaps");
        lab.proxy
            .fault(on("POST", "/configmaps").named("x"), 1, Fault::CutAfter);
        lab.greet("x", json!({"to": "world"})).await;
        eventually("it asks again", async || lab.creations("x").0 >= 2).await;
        lab.proxy.release_watches("/configmaps");
        lab.until_says("x", "Hello, world!").await;
        assert_eq!(lab.creations("x").1, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_server_is_not_asked_before_its_time() {
    Lab::run(async |lab| {
        lab.start_rigged(quick());
        let mut in_body = Fault::answer(429, "TooManyRequests");
        if let Fault::Answer { body, .. } = &mut in_body {
            body["details"]["retryAfterSeconds"] = json!(2);
        }
        for (name, fault) in [("by-header", Fault::too_many(2)), ("by-body", in_body)] {
            let rule = lab.proxy.fault(on("POST", "/configmaps").named(name), 1, fault);
            lab.greet(name, json!({"to": "world"})).await;
            eventually("it is told to wait", async || rule.hits() == 1).await;
            // Others are served meanwhile.
            lab.greeted(&format!("other-{name}")).await;
            lab.until_says(name, "Hello, world!").await;
            let asked: Vec<Seen> = lab.proxy.seen(&on("POST", "/configmaps").named(name));
            assert_eq!(asked.len(), 2, "once refused, once done");
            let waited = asked[1].at.duration_since(asked[0].at);
            assert!(waited >= Duration::from_secs(2), "asked again after {waited:?}");
            let line = lab
                .logs
                .with(&["WARN", &format!("{}/{name}", lab.namespace), "asks to wait 2 s"]);
            assert_eq!(line.len(), 1);
        }
    })
    .await;
}

/// A right that is missing is granted by a person, who needs to be told, and of whom nobody tells us.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_right_is_told_once_and_tried_slowly() {
    Lab::run(async |lab| {
        lab.start_rigged(quick());
        let rule = lab.proxy.fault(
            on("POST", "/configmaps").named("x"),
            usize::MAX,
            Fault::answer(403, "Forbidden"),
        );
        lab.greet("x", json!({"to": "world"})).await;
        let failures = async || {
            let events = lab.events("x").await;
            events
                .into_iter()
                .filter(|(reason, _)| reason == "StepFailed")
                .collect::<Vec<_>>()
        };
        eventually("it is told on the object", async || !failures().await.is_empty()).await;
        let (_, note) = failures().await.remove(0);
        let sentence = format!(
            "create ConfigMap {}/x: forbidden (the proxy says Forbidden)",
            lab.namespace
        );
        assert!(note.starts_with(&sentence) && note.contains("usher install"), "{note}");

        // With back-offs of 5 ms it is not asked again while others are served.
        lab.until_calm("marker").await;
        let hits = rule.hits();
        assert!(hits <= 2, "{hits}: once, and once for the echo of its own status");
        // It looks whenever it is woken, and says the same thing only once.
        for n in hits + 1..hits + 4 {
            lab.poke("x", &n.to_string()).await;
            eventually("it tries", async || rule.hits() == n).await;
        }
        rule.lift();
        lab.poke("x", "granted").await;
        lab.until_says("x", "Hello, world!").await;
        lab.until_calm("marker-2").await;
        let sent = |seen: &&Seen| seen.body["reason"] == "StepFailed" || seen.body["series"].is_object();
        assert_eq!(
            lab.proxy
                .seen(&crate::support::proxy::of("events"))
                .iter()
                .filter(sent)
                .count(),
            1
        );
    })
    .await;
}
