//! Passes that hang, panic, or crowd the way to the server.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use usher_operator::run::Settings;

use crate::support::lab::{Lab, ask, eventually, free_address, quick};
use crate::support::proxy::{of, on};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_that_takes_too_long_is_given_up_and_tried_again() {
    Lab::run(async |lab| {
        lab.rig.fetching.hold("slow");
        lab.start_rigged(Settings {
            pass_timeout: Duration::from_millis(300),
            ..quick()
        });
        lab.greet("slow", json!({"to": "world"})).await;
        eventually("it is tried again and again", async || {
            lab.rig.fetching.reached("slow") >= 3
        })
        .await;
        lab.greeted("other").await;
        let line = lab
            .logs
            .with(&["ERROR", &format!("{}/slow", lab.namespace), "the pass took longer"]);
        assert!(line.len() >= 2, "{line:?}");
        lab.rig.fetching.release("slow");
        lab.until_says("slow", "Hello, world!").await;
        assert_eq!(lab.creations("slow"), (1, 1));
    })
    .await;
}

/// Given up in the middle of a write: whether that took effect is anybody's guess.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_outlives_its_pass_is_not_done_twice() {
    Lab::run(async |lab| {
        let held = lab.proxy.hold(on("POST", "/configmaps").named("slow"));
        lab.start_rigged(Settings {
            pass_timeout: Duration::from_millis(500),
            ..quick()
        });
        lab.greet("slow", json!({"to": "world"})).await;
        eventually("it is tried again", async || held.rule.hits() >= 2).await;
        held.release();
        lab.until_says("slow", "Hello, world!").await;
        assert_eq!(lab.creations("slow").1, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_that_panics_takes_nothing_else_down() {
    Lab::run(async |lab| {
        let address = free_address().await;
        lab.rig.panic_once("bomb");
        lab.start_rigged(Settings {
            health_address: Some(address),
            ..quick()
        });
        let others = ["a", "b", "c"];
        for name in ["bomb"].iter().chain(&others) {
            lab.greet(name, json!({"to": "world"})).await;
        }
        for name in ["bomb"].iter().chain(&others) {
            lab.until_says(name, "Hello, world!").await;
            assert_eq!(lab.creations(name), (1, 1));
        }
        let line = lab.logs.with(&[
            "ERROR",
            &format!("{}/bomb", lab.namespace),
            "a pass panicked",
            "report this",
        ]);
        assert_eq!(line.len(), 1);
        lab.until_calm("marker").await;
        let metrics = ask(address, "/metrics").await;
        let has = |line: &str| assert!(metrics.lines().any(|l| l == line), "{line} is not in\n{metrics}");
        has(r#"usher_passes_total{kind="Greeting",result="panic"} 1"#);
        eventually("no pass is counted as under way", async || {
            ask(address, "/metrics")
                .await
                .contains(r#"usher_passes_inflight{kind="Greeting"} 0"#)
        })
        .await;
    })
    .await;
}

/// A mapper is pure and total; one that is not has lost an event. Only a restart makes up for that, so somebody must ask
/// for it, and a view that stands still must not pass for a calm one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_ends_badly_asks_for_a_restart() {
    Lab::run(async |lab| {
        let address = free_address().await;
        lab.start_rigged(Settings {
            health_address: Some(address),
            ..quick()
        });
        lab.greeted("x").await;
        assert!(ask(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        lab.greet("poison", json!({"to": "world"})).await;
        eventually("it asks for a restart", async || {
            let answer = ask(address, "/healthz").await;
            answer.starts_with("HTTP/1.1 500") && answer.contains("a watch ended badly")
        })
        .await;
    })
    .await;
}

/// As many writes hang as may be in flight. Watches, events and the lease have connections of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_hang_do_not_keep_the_watches_from_telling() {
    const SLOW: usize = 64;
    Lab::run(async |lab| {
        let held = lab.proxy.hold(on("POST", "/configmaps"));
        lab.start_rigged(Settings {
            passes_at_once: Some(SLOW + 8),
            ..quick()
        });
        join_all((0..SLOW).map(|n| lab.greet_owned(format!("slow-{n}")))).await;
        eventually("all writes are under way", async || held.rule.hits() == SLOW).await;
        // News of both types still come in and are looked at, though nothing can be written.
        lab.rig.fetching.hold("late");
        lab.greet("late", json!({"to": "world"})).await;
        eventually("it is heard of", async || lab.rig.fetching.reached("late") == 1).await;
        // A watch that breaks now gets through again, too.
        lab.proxy.cut_watches("/greetings?");
        lab.rig.fetching.hold("later");
        lab.greet("later", json!({"to": "world"})).await;
        eventually("it is heard of", async || lab.rig.fetching.reached("later") == 1).await;
        assert_eq!(held.rule.hits(), SLOW, "and all the while they hang");

        let connections =
            |agent| -> BTreeSet<u64> { lab.proxy.seen(&of(agent)).iter().map(|s| s.connection).collect() };
        let (watches, writes, events) = (connections("watch"), connections("writer"), connections("events"));
        assert!(!watches.is_empty() && !writes.is_empty());
        assert!(watches.is_disjoint(&writes) && watches.is_disjoint(&events) && writes.is_disjoint(&events));

        held.release();
        lab.rig.fetching.release("late");
        lab.rig.fetching.release("later");
        for name in (0..SLOW)
            .map(|n| format!("slow-{n}"))
            .chain(["late".into(), "later".into()])
        {
            lab.until_says(&name, "Hello, world!").await;
            assert_eq!(lab.creations(&name), (1, 1), "{name}");
        }
    })
    .await;
}
