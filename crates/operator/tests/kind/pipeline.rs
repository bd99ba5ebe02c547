//! What every pass promises, whatever the kind: on a real API server, through a proxy that notes each request.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use usher_operator::kind::Pace;
use usher_operator::leadership::LeaseTiming;
use usher_operator::lease::LeaseConfig;
use usher_operator::run::Settings;

use crate::support::lab::{Lab, eventually, quick};
use crate::support::proxy::{Fault, Seen, When, of, on};

fn status_writes(lab: &Lab, name: &str) -> Vec<Seen> {
    lab.proxy.effects(&on("PUT", format!("/greetings/{name}/status")))
}

fn message(seen: &Seen) -> &str {
    seen.body
        .pointer("/status/conditions/0/message")
        .unwrap()
        .as_str()
        .unwrap()
}

/// Events about a Greeting that were sent to the server, created or counted up.
fn told(lab: &Lab, name: &str, reason: &str) -> usize {
    let created = lab.proxy.seen(&of("events").and("/events"));
    let about = |seen: &&Seen| seen.body["regarding"]["name"] == name && seen.body["reason"] == reason;
    let counts = |seen: &Seen| {
        let event = seen.body["metadata"]["name"].as_str().unwrap().to_owned();
        1 + lab.proxy.seen(&on("PATCH", event)).len()
    };
    created.iter().filter(about).map(counts).sum()
}

/// J13. The ConfigMap is made, its echo does not come: whatever wakes the Greeting, it is not made again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_planned_before_our_own_last_write_is_in_view() {
    Lab::run(async |lab| {
        lab.write_unseen().await;
        let plans = lab.rig.plans("x");
        let skips = || {
            lab.logs
                .with(&[&format!("{}/x", lab.namespace), "own write not in view yet"])
                .len()
        };
        for n in 0..5 {
            let before = skips();
            lab.poke("x", &n.to_string()).await;
            eventually("it is woken, and waits", async || skips() > before).await;
        }
        assert_eq!(lab.rig.plans("x"), plans, "no plan on an old view");
        assert_eq!(lab.creations("x"), (1, 1));
        lab.proxy.release_watches("/configmaps");
        lab.until_says("x", "Hello, world!").await;
        assert_eq!(lab.creations("x"), (1, 1));
    })
    .await;
}

/// J8: never more than one, and never the same one twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_writes_the_status_once_and_only_when_it_says_something_new() {
    Lab::run(async |lab| {
        lab.start_rigged(quick());
        lab.greeted("x").await;
        for name in ["Ann", "Bob", "Eve"] {
            lab.change("x", json!({"spec": {"to": name}})).await;
            lab.until_says("x", &format!("Hello, {name}!")).await;
        }
        let writes = status_writes(lab, "x");
        let plans = lab.rig.plans("x");
        assert!(
            writes.len() <= plans,
            "{} status writes in {plans} passes",
            writes.len()
        );
        for pair in writes.windows(2) {
            assert_ne!(pair[0].body["status"], pair[1].body["status"]);
        }
        for write in &writes {
            let guarded =
                write.body["metadata"]["resourceVersion"].is_string() && write.body["metadata"]["uid"].is_string();
            assert!(guarded, "a replace carries uid and resourceVersion");
        }
    })
    .await;
}

/// The CRD that is installed is older than the operator, and drops a field. Saying it again would change nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_field_that_the_server_drops_is_not_written_for_ever() {
    Lab::run(async |lab| {
        lab.start_rigged(quick());
        lab.greeted("x").await;
        let before = status_writes(lab, "x").len();
        lab.rig.say("x", "/unheardOf", json!("of another time"));
        lab.poke("x", "first").await;
        eventually("it is written", async || status_writes(lab, "x").len() > before).await;
        let writes = status_writes(lab, "x").len();
        assert_eq!(writes, before + 1);
        for n in 0..5 {
            let before = lab.rig.plans("x");
            lab.poke("x", &n.to_string()).await;
            eventually("it looks", async || lab.rig.plans("x") > before).await;
        }
        lab.until_calm("marker").await;
        assert_eq!(status_writes(lab, "x").len(), writes);
    })
    .await;
}

/// With one place for writes, and that one taken: who may wait does, without holding up others; then it is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_may_wait_is_put_off_while_all_places_for_writes_are_taken() {
    Lab::run(async |lab| {
        lab.rig.may_wait("patient", Duration::MAX);
        let one_place = Settings {
            writes_at_once: 1,
            ..quick()
        };
        lab.start_rigged(one_place);
        lab.greeted("patient").await;
        lab.greeted("busy").await;
        let held = lab.proxy.hold(on("PUT", "/greetings/busy/status"));
        lab.rig.say("busy", "/conditions/0/message", json!("much to do"));
        lab.poke("busy", "now").await;
        eventually("the place is taken", async || held.rule.hits() == 1).await;
        let before = (lab.rig.plans("patient"), status_writes(lab, "patient").len());
        lab.rig.say("patient", "/conditions/0/message", json!("no hurry"));
        for n in 0..3 {
            let plans = lab.rig.plans("patient");
            lab.poke("patient", &n.to_string()).await;
            eventually("it looks", async || lab.rig.plans("patient") > plans).await;
        }
        assert!(
            lab.rig.plans("patient") >= before.0 + 3,
            "its passes end, each without a write"
        );
        assert_eq!(status_writes(lab, "patient").len(), before.1);
        held.release();
        eventually("there is a place", async || {
            status_writes(lab, "patient").len() > before.1
        })
        .await;
        assert_eq!(message(&status_writes(lab, "patient")[before.1]), "no hurry");
    })
    .await;
}

/// Nobody tells the kind of it, and nothing is kept of what was written once its echo was seen: a strange status is noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_somebody_else_writes_is_said_anew() {
    Lab::run(async |lab| {
        lab.rig.deaf.store(true, Ordering::Relaxed);
        lab.start_rigged(quick());
        lab.greeted("x").await;
        lab.until_calm("marker").await;
        for n in 0..3 {
            let nonsense = json!({"status": {"conditions": [], "observedGeneration": n}});
            let params = PatchParams::default();
            lab.greetings()
                .patch_status("x", &params, &Patch::Merge(&nonsense))
                .await
                .unwrap();
            lab.until_says("x", "Hello, world!").await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordinary_news_keep_the_pace_and_urgent_news_do_not_wait() {
    Lab::run(async |lab| {
        lab.rig.pace(Pace {
            ordinary: Duration::from_secs(3600),
            urgent: Duration::ZERO,
        });
        lab.start_rigged(quick());
        lab.greeted("x").await;
        let before = (lab.rig.plans("x"), status_writes(lab, "x").len());
        lab.rig.say("x", "/conditions/0/message", json!("one"));
        lab.poke("x", "one").await;
        eventually("it looks", async || lab.rig.plans("x") > before.0).await;
        lab.until_calm("marker").await;
        assert_eq!(status_writes(lab, "x").len(), before.1, "a word can wait");

        lab.notes().delete("x", &DeleteParams::default()).await.unwrap();
        eventually("a reason cannot", async || {
            status_writes(lab, "x").len() >= before.1 + 2
        })
        .await;
        lab.until_reason("x", "Greeted").await;

        let pace = Duration::from_secs(1);
        lab.rig.pace(Pace {
            ordinary: pace,
            urgent: Duration::ZERO,
        });
        let before = status_writes(lab, "x").len();
        for word in ["two", "three"] {
            let plans = lab.rig.plans("x");
            lab.rig.say("x", "/conditions/0/message", json!(word));
            lab.poke("x", word).await;
            eventually("it looks", async || lab.rig.plans("x") > plans).await;
        }
        eventually("the last word is written", async || {
            status_writes(lab, "x").last().map(message) == Some("three")
        })
        .await;
        let writes = status_writes(lab, "x");
        let words: Vec<_> = writes[before..].iter().map(message).collect();
        assert_eq!(words, ["three"], "the latest state, not every state it was in");
        let gap = writes[before].at.duration_since(writes[before - 1].at);
        // From when it was due to be sent to when it arrived differs by the way of one request.
        assert!(
            gap > pace - Duration::from_millis(100),
            "{gap:?} after the write before"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_told_only_of_what_is_on_record() {
    Lab::run(async |lab| {
        // Hardly any pace; but one, so that the time of each write is remembered.
        let any = Duration::from_millis(1);
        lab.rig.pace(Pace {
            ordinary: any,
            urgent: any,
        });
        lab.start_rigged(quick());
        // The status does not get through: nothing is told of what it would say.
        let held = lab.proxy.hold(on("PUT", "/greetings/x/status"));
        lab.greet("x", json!({"to": "world"})).await;
        eventually("the status is on its way", async || held.rule.hits() == 1).await;
        lab.until_calm("marker-1").await;
        eventually("events flow", async || told(lab, "marker-1", "Greeted") == 1).await;
        assert_eq!(told(lab, "x", "Writing"), 0);
        held.release();
        eventually("now it is told", async || told(lab, "x", "Writing") == 1).await;
        lab.until_says("x", "Hello, world!").await;

        // The status waits for its pace: what it would say is not told either, though the pass goes on and acts.
        lab.rig.pace(Pace {
            ordinary: Duration::from_secs(3600),
            urgent: Duration::from_secs(3600),
        });
        lab.rig.acting.hold("x");
        let acts = lab.rig.acting.reached("x");
        lab.notes().delete("x", &DeleteParams::default()).await.unwrap();
        eventually("it is about to act", async || lab.rig.acting.reached("x") > acts).await;
        lab.greet("marker-2", json!({"to": "world"})).await;
        eventually("events flow", async || told(lab, "marker-2", "Writing") == 1).await;
        assert_eq!(told(lab, "x", "Writing"), 1, "not a second time");
        lab.rig.acting.release("x");
        lab.until_says("x", "Hello, world!").await;
    })
    .await;
}

/// J11. The pass stands before its first write when the lease ends; it goes on, and does not write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_that_loses_the_lease_writes_nothing_more() {
    Lab::run(async |lab| {
        let timing = LeaseTiming {
            duration: Duration::from_secs(2),
            renew_every: Duration::from_millis(100),
            margin: Duration::from_secs(1),
        };
        lab.rig.acting.hold("x");
        lab.start_rigged(Settings {
            lease: Some(LeaseConfig {
                namespace: lab.namespace.clone(),
                name: "usher-test".into(),
                identity: "test".into(),
                timing,
            }),
            ..quick()
        });
        lab.greet("x", json!({"to": "world"})).await;
        eventually("it is about to act", async || lab.rig.acting.reached("x") == 1).await;
        let outage = lab
            .proxy
            .fault(of("lease"), usize::MAX, Fault::answer(503, "ServiceUnavailable"));
        eventually("the lease is not renewed", async || outage.hits() > 0).await;
        let renewed = lab.proxy.effects(&of("lease")).last().unwrap().at;
        eventually("the lease is over", async || {
            renewed + timing.valid_for() + timing.renew_every < Instant::now()
        })
        .await;
        lab.rig.acting.release("x");
        eventually("its step came to an end", async || lab.rig.acts("x") == 1).await;
        assert_eq!(lab.proxy.seen(&of("writer")).len(), 0, "not even asked");

        outage.lift();
        lab.until_says("x", "Hello, world!").await;
        assert_eq!(lab.creations("x"), (1, 1));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_under_way_finishes_when_the_operator_is_told_to_stop() {
    Lab::run(async |lab| {
        lab.start_rigged(quick());
        lab.until_calm("marker").await;
        let held = lab.proxy.hold(on("PATCH", "/greetings/x"));
        lab.greet("x", json!({"to": "world"})).await;
        eventually("a write is under way", async || held.rule.hits() == 1).await;
        let running = lab.take_running();
        let released = async { held.release() };
        tokio::join!(running.stop(), released);
        assert_eq!(
            lab.deeds("x"),
            ["PATCH /greetings/x"],
            "the step under way, and no new pass"
        );
        lab.start();
        lab.until_says("x", "Hello, world!").await;
    })
    .await;
}

/// Whoever held the switch is gone: that is a stop too, not a loop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_whose_switch_is_dropped_stops_at_once() {
    Lab::run(async |lab| {
        lab.start();
        lab.until_calm("marker").await;
        let begun = Instant::now();
        lab.take_running().drop_switch().await;
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "it took {:?}",
            begun.elapsed()
        );
        lab.greet("x", json!({"to": "world"})).await;
        assert!(
            lab.proxy
                .effects(&When::default())
                .iter()
                .all(|seen| !seen.path.contains("/x"))
        );
    })
    .await;
}
