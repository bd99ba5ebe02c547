//! Whose write goes next, on a real API server: one place, and a proxy that holds whoever is in it.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use usher_operator::run::Settings;

use crate::support::lab::{Lab, ask, eventually, free_address, quick};
use crate::support::proxy::{Fault, of, on};

async fn waiting(address: SocketAddr) -> usize {
    let metrics = ask(address, "/metrics").await;
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("usher_writes_waiting "));
    line.unwrap().parse().unwrap()
}

/// R20: the writes of one kind, in the order of their ranks and not of their coming.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r20_the_most_urgent_write_goes_first_whoever_came_first() {
    Lab::run(async |lab| {
        let address = free_address().await;
        lab.rig.rank("status", 1);
        lab.rig.rank("SetFinalizer", 200);
        lab.start_rigged(Settings {
            writes_at_once: 1,
            health_address: Some(address),
            ..quick()
        });
        for name in ["late", "leaving"] {
            lab.greeted(name).await;
        }
        let held = lab.proxy.hold(on("PATCH", "/greetings/blocker"));
        lab.greet("blocker", json!({"to": "world"})).await;
        eventually("the only place is taken", async || held.rule.hits() == 1).await;
        for (n, name) in ["first", "second"].into_iter().enumerate() {
            lab.greet(name, json!({"to": "world"})).await;
            eventually("its finalizer waits", async || waiting(address).await == n + 1).await;
        }
        // The removal of its note has no rank of its own: between the two.
        lab.delete("leaving").await;
        eventually("its removal waits", async || waiting(address).await == 3).await;
        lab.change("late", json!({"spec": {"to": "Ann"}})).await;
        eventually("its status waits", async || waiting(address).await == 4).await;
        let before = lab.proxy.effects(&of("writer")).len();
        held.release();
        for (name, whom) in [("first", "world"), ("second", "world"), ("late", "Ann")] {
            lab.until_says(name, &format!("Hello, {whom}!")).await;
        }
        let writes: Vec<String> = lab
            .proxy
            .effects(&of("writer"))
            .split_off(before)
            .into_iter()
            .map(|w| w.path)
            .collect();
        let at = |part: &str| writes.iter().position(|path| path.contains(part)).unwrap();
        let parts = ["/blocker", "/late/status", "/configmaps/leaving", "/first", "/second"];
        let order = parts.map(at);
        assert!(order.is_sorted(), "{order:?} of {writes:#?}");
    })
    .await;
}

/// Both who is inside and who waits run out of time, again and again. The place is there for whoever comes after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passes_that_time_out_at_the_turnstile_give_their_place_back() {
    Lab::run(async |lab| {
        let (_gate, closed) = tokio::sync::watch::channel(false);
        let rule = lab.proxy.fault(on("PATCH", "/greetings/"), 4, Fault::Hold(closed));
        lab.start_rigged(Settings {
            writes_at_once: 1,
            pass_timeout: Duration::from_millis(300),
            ..quick()
        });
        let names = ["a", "b", "c"];
        for name in names {
            lab.greet(name, json!({"to": "world"})).await;
        }
        for name in names {
            lab.until_says(name, "Hello, world!").await;
        }
        assert_eq!(rule.hits(), 4, "four writes hung until their passes were given up");
    })
    .await;
}
