//! What a kind is told of its passes: for its metrics, so nothing may be told twice or get lost.

use serde_json::json;
use usher_operator::kind::Outcome;
use usher_operator::queue::Why;
use usher_operator::run::Settings;

use crate::support::lab::{Lab, eventually, quick};

fn updates(whys: &[(Why, u32)]) -> u32 {
    whys.iter()
        .filter(|(why, _)| *why == Why::UPDATE)
        .map(|(_, times)| times)
        .sum()
}

/// Its note is written and not seen: passes are put off. What asked for them is told with the pass that comes to look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_asked_for_a_pass_that_was_put_off_is_told_with_the_one_that_serves_it() {
    Lab::run(async |lab| {
        lab.write_unseen().await;
        // Its own status came back as well; all that is over when a poke finds it waiting.
        let put_off = || {
            lab.rig
                .told("x")
                .iter()
                .filter(|told| told.outcome == Outcome::Stale)
                .count()
        };
        for n in 0..5 {
            let before = put_off();
            lab.poke("x", &n.to_string()).await;
            eventually("it is woken, and waits", async || put_off() > before).await;
        }
        let served = lab.rig.told("x").len();
        lab.proxy.release_watches("/configmaps");
        lab.until_says("x", "Hello, world!").await;
        lab.until_calm("after").await;
        let told = lab.rig.told("x");
        for pair in told.windows(2).filter(|pair| pair[0].outcome.verdict().is_none()) {
            assert!(updates(&pair[1].whys) >= updates(&pair[0].whys), "lost: {pair:#?}");
        }
        let next = told[served..]
            .iter()
            .find(|told| told.outcome.verdict().is_some())
            .unwrap();
        assert!(updates(&next.whys) >= 6, "five pokes and the note: {next:?}");
        let last = told.last().unwrap();
        assert!(
            updates(&last.whys) <= 2,
            "and not once more with the passes after it: {last:?}"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_that_panics_or_runs_out_of_time_is_told_of_with_what_asked_for_it() {
    Lab::run(async |lab| {
        lab.rig.panic_once("bomb");
        lab.rig.fetching.hold("slow");
        lab.start_rigged(Settings {
            pass_timeout: std::time::Duration::from_millis(300),
            ..quick()
        });
        for (name, outcome) in [("bomb", Outcome::Panic), ("slow", Outcome::Timeout)] {
            lab.greet(name, json!({"to": "world"})).await;
            eventually("the kind is told", async || !lab.rig.told(name).is_empty()).await;
            let first = &lab.rig.told(name)[0];
            assert_eq!((first.outcome, updates(&first.whys)), (outcome, 1));
            assert!(!first.planned && !first.reported);
            lab.rig.fetching.release(name);
            lab.until_says(name, "Hello, world!").await;
            let told = lab.rig.told(name);
            assert!(told[1].whys.iter().any(|(why, _)| *why == Why::RETRY), "{told:#?}");
            assert!(
                told.iter()
                    .any(|told| told.outcome == Outcome::Success && told.planned && told.reported)
            );
        }
    })
    .await;
}
