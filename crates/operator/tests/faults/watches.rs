//! Watches that break, end, fall behind; lists that are refused; a server that goes away.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::support::lab::{Lab, eventually, quick};
use crate::support::proxy::{Fault, of, on};

const BOTH: [&str; 2] = ["/greetings?", "/configmaps?"];

/// Whole lists asked for so far, of both types: streaming or by pages.
fn lists(lab: &Lab) -> usize {
    let asked = lab.proxy.seen(&of("watch"));
    let first = |path: &str| {
        path.contains("sendInitialEvents=true") || (path.contains("limit=") && !path.contains("continue="))
    };
    asked.iter().filter(|seen| first(&seen.path)).count()
}

/// Changes made while nobody listens: one new, one scribbled on, one without its note, one deleted.
async fn stir(lab: &Lab, round: &str) {
    let name = |what: &str| format!("{what}-{round}");
    lab.greet(&name("new"), json!({"to": "world"})).await;
    let scribble = Patch::Merge(json!({"data": {"text": "Bah!"}}));
    lab.notes()
        .patch(&name("scribbled"), &PatchParams::default(), &scribble)
        .await
        .unwrap();
    lab.notes()
        .delete(&name("bare"), &DeleteParams::default())
        .await
        .unwrap();
    lab.delete(&name("doomed")).await;
}

async fn prepare(lab: &Lab, round: &str) {
    for what in ["scribbled", "bare", "doomed"] {
        lab.greet(&format!("{what}-{round}"), json!({"to": "world"})).await;
    }
    for what in ["scribbled", "bare", "doomed"] {
        lab.until_says(&format!("{what}-{round}"), "Hello, world!").await;
    }
}

/// Everything is as it should be, and was made as often as it had to be.
async fn settled(lab: &Lab, round: &str) {
    for (what, made) in [("new", 1), ("scribbled", 2), ("bare", 2)] {
        let name = format!("{what}-{round}");
        eventually(&format!("{name} is made"), async || lab.creations(&name).1 == made).await;
        lab.until_says(&name, "Hello, world!").await;
        assert_eq!(lab.creations(&name).1, made, "{name}");
    }
    lab.until_gone(&format!("doomed-{round}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_break_are_taken_up_where_they_stopped() {
    Lab::run(async |lab| {
        lab.start_rigged(quick());
        for round in ["one", "two", "three"] {
            prepare(lab, round).await;
            // Nothing gets through until the break is over: the operator hears of it all at once.
            for path in BOTH {
                lab.proxy.hold_watches(path);
            }
            stir(lab, round).await;
            for path in BOTH {
                lab.proxy.cut_watches(path);
            }
            for path in BOTH {
                lab.proxy.release_watches(path);
            }
            settled(lab, round).await;
        }
        assert_eq!(lists(lab), 2, "one of each type, at the start");
    })
    .await;
}

/// etcd was compacted past the version we had. What happened meanwhile is found by comparing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_version_is_made_up_for_by_a_new_list() {
    Lab::run(async |lab| {
        lab.start_rigged(quick());
        let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired",
            "message": "too old resource version"});
        let in_stream = json!({"type": "ERROR", "object": gone});
        for (round, lists_before) in [("stream", 2), ("answer", 4)] {
            prepare(lab, round).await;
            assert_eq!(lists(lab), lists_before);
            for path in BOTH {
                lab.proxy.hold_watches(path);
            }
            stir(lab, round).await;
            if round == "stream" {
                for path in BOTH {
                    lab.proxy.end_watches_with(path, in_stream.clone());
                }
            } else {
                let refused = Fault::answer(410, "Expired");
                for path in BOTH {
                    let watch = on("GET", path).and("resourceVersion=");
                    lab.proxy.fault(watch, 1, refused.clone());
                    lab.proxy.cut_watches(path);
                }
            }
            eventually("it lists again", async || lists(lab) == lists_before + 2).await;
            for path in BOTH {
                lab.proxy.release_watches(path);
            }
            settled(lab, round).await;
        }
        assert!(!lab.logs.with(&["WARN", "watch of greetings broke", "410"]).is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_goes_away_and_comes_back_is_found_again() {
    Lab::run(async |lab| {
        lab.start_rigged(quick());
        for round in ["one", "two"] {
            prepare(lab, round).await;
            lab.proxy.down();
            stir(lab, round).await;
            lab.proxy.up().await;
            settled(lab, round).await;
        }
        assert!(!lab.logs.with(&["WARN", "watch of configmaps broke"]).is_empty());
    })
    .await;
}

/// An operator may be there before the server is, and before the server is well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_starts_before_its_server_waits_for_it() {
    Lab::run(async |lab| {
        let refusals = [
            Fault::CutBefore,
            Fault::answer(500, "InternalError"),
            Fault::answer(503, "ServiceUnavailable"),
            Fault::answer(403, "Forbidden"),
            Fault::too_many(1),
        ];
        let rules = refusals.map(|fault| lab.proxy.fault(of("watch"), 1, fault));
        lab.proxy.down();
        lab.start_rigged(quick());
        eventually("it has tried", async || {
            !lab.logs
                .with(&["WARN", "watch of greetings broke", "Connection refused"])
                .is_empty()
        })
        .await;
        lab.proxy.up().await;
        lab.greeted("x").await;
        assert!(rules.iter().all(|rule| rule.hits() == 1), "through all of it");
        let hint = lab
            .logs
            .with(&["WARN", "lacks the right to list and watch", "usher install"]);
        assert!(!hint.is_empty(), "a missing right comes with what to do about it");
    })
    .await;
}

/// A server without streaming lists, and one that is told to have none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_streaming_lists_is_read_by_pages() {
    for code in [422, 400] {
        Lab::run(async |lab| {
            let refused = lab.proxy.fault(
                of("watch").and("sendInitialEvents=true"),
                usize::MAX,
                Fault::answer(code, "Invalid"),
            );
            prepare_foreign(lab).await;
            lab.start_rigged(quick());
            lab.greeted("x").await;
            assert_eq!(refused.hits(), 2, "asked once for each type");
            let pages = lab.proxy.seen(&of("watch").and("limit=500"));
            assert_eq!(pages.len(), 2);
            // And in pages from then on.
            lab.proxy.fault(
                on("GET", "/greetings?").and("resourceVersion="),
                1,
                Fault::answer(410, "Expired"),
            );
            lab.proxy.cut_watches("/greetings?");
            eventually("it lists again", async || {
                lab.proxy.seen(&of("watch").and("limit=500")).len() == 3
            })
            .await;
            lab.greeted("y").await;
            assert_eq!(refused.hits(), 2);
        })
        .await;
    }
}

/// Something to list that was there before.
async fn prepare_foreign(lab: &Lab) {
    lab.greet("early", json!({"to": ""})).await;
}
