//! Steps of a StatefulSet as tables: its pods as words, what the plan makes of them.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::{Value, json};

use super::identity::{self, Revision};
use super::plan::{Plan, Seen, Step, plan};

const NOW: &str = "2026-01-01T01:00:00Z";

fn set(replicas: i32, change: &Value) -> StatefulSet {
    let mut set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "default", "uid": "s", "generation": 1},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "db"}}, "template": {},
            "podManagementPolicy": "OrderedReady",
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}}});
    json_patch::merge(&mut set, change);
    serde_json::from_value(set).unwrap()
}

fn revision(name: &str) -> Revision {
    Revision {
        name: name.to_owned(),
        template: serde_json::from_value(json!({"metadata": {"labels": {"app": "db"}}, "spec": {"containers": []}})).unwrap(),
    }
}

/// A pod by a word: `3` is ready, `3?` runs, `3-` is pending, `3x` goes, `3!` failed; `old` before it: of the old revision.
fn pod(set: &StatefulSet, word: &str) -> Arc<Pod> {
    let (name, word) = match word.strip_prefix("old") {
        Some(rest) => ("old", rest),
        None => ("new", word),
    };
    let (ordinal, state) = match word.char_indices().last() {
        Some((at, sign)) if !sign.is_ascii_digit() => (&word[..at], sign),
        _ => (word, '+'),
    };
    let mut pod = identity::pod(set, &revision(name), ordinal.parse().unwrap());
    pod.metadata.uid = Some(word.to_owned());
    let (phase, ready) = match state {
        '+' | 'x' => ("Running", "True"),
        '?' => ("Running", "False"),
        '!' => ("Failed", "False"),
        _ => ("Pending", "False"),
    };
    if state == 'x' {
        pod.metadata.deletion_timestamp = serde_json::from_value(json!(NOW)).unwrap();
    }
    pod.status = serde_json::from_value(json!({"phase": phase,
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:59:55Z"}]}))
    .unwrap();
    Arc::new(pod)
}

fn decide(set: &StatefulSet, pods: &str) -> Plan {
    let pods: Vec<_> = pods.split_whitespace().map(|word| pod(set, word)).collect();
    plan(&Seen {
        set,
        pods: &pods,
        current: &revision("old"),
        update: &revision("new"),
        claims: &|_: &str| None::<Arc<PersistentVolumeClaim>>,
        now: NOW.parse().unwrap(),
    })
}

/// The steps as words: `+3` is made, `-3` is deleted.
fn words(plan: &Plan) -> String {
    let ordinal = |pod: &Pod| identity::name(&pod.metadata).trim_start_matches("db-").to_owned();
    let words: Vec<String> = plan
        .steps
        .iter()
        .map(|step| match step {
            Step::Make(pod, _) => format!("+{}{}", if identity::revision(pod) == "old" { "old" } else { "" }, ordinal(pod)),
            Step::Delete(pod) => format!("-{}", ordinal(pod)),
            other => format!("{other:?}"),
        })
        .collect();
    words.join(" ")
}

#[test]
fn c5_what_an_ordered_set_does_next() {
    for (replicas, pods, wanted) in [
        (3, "", "+0"),
        (3, "0-", ""),
        (3, "0?", ""),
        (3, "0", "+1"),
        (3, "0 2", "+1"),
        (3, "0 1x", ""),
        (3, "0! 1", "-0"),
        (3, "0? 1!", ""),
        (3, "0 1 2", ""),
        (1, "0 1 2", "-2"),
        (1, "0 1 2x", ""),
        (1, "0 1 2?", "-2"),
        (1, "0 1? 2", "-2"),
        (1, "0 1? 2?", ""),
        (1, "0? 1", ""),
        (0, "0?", "-0"),
        (3, "old0 old1 old2", "-2"),
        (3, "old0 old1 2?", ""),
        (3, "old0 old1 2x", ""),
        (3, "old0 old1 2", "-1"),
        (3, "old0 1 2", "-0"),
        (3, "old0 old1", "+2"),
        (2, "old0 old1 old2", "-2"),
    ] {
        assert_eq!(words(&decide(&set(replicas, &json!({})), pods)), wanted, "{replicas} wanted, {pods} there");
    }
}

#[test]
fn c5_what_a_parallel_set_does_next() {
    let parallel = json!({"spec": {"podManagementPolicy": "Parallel"}});
    for (replicas, pods, wanted) in [
        (3, "", "+0 +1 +2"),
        (3, "1?", "+0 +2"),
        (1, "0? 1 2x 3-", "-3 -1"),
        (3, "0! 1", "-0 +2"),
        (3, "old0 old1 old2", "-2"),
        (3, "old0 old1? 2?", ""),
        (3, "old0? old1? 2", "-1"),
    ] {
        assert_eq!(words(&decide(&set(replicas, &parallel), pods)), wanted, "{replicas} wanted, {pods} there");
    }
}

#[test]
fn c5_partition_start_on_delete_and_minimum_time() {
    let partition = json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}});
    assert_eq!(words(&decide(&set(3, &partition), "old0 old1 old2")), "-2");
    assert_eq!(words(&decide(&set(3, &partition), "old0 old1 2")), "");
    assert_eq!(words(&decide(&set(3, &partition), "")), "+old0");
    assert_eq!(words(&decide(&set(3, &partition), "old0 old1")), "+2");
    let start = json!({"spec": {"ordinals": {"start": 5}}});
    assert_eq!(words(&decide(&set(2, &start), "")), "+5");
    assert_eq!(words(&decide(&set(2, &start), "5 6 4 7")), "-7");
    assert_eq!(words(&decide(&set(2, &start), "5 6 4")), "-4");
    let on_delete = json!({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}});
    assert_eq!(words(&decide(&set(3, &on_delete), "old0 old1 old2")), "");
    assert_eq!(words(&decide(&set(3, &on_delete), "old0 old1")), "+2");
    // Ready for five seconds.
    let patient = decide(&set(2, &json!({"spec": {"minReadySeconds": 8}})), "0");
    assert_eq!(words(&patient), "");
    assert_eq!(patient.look_again, Some("2026-01-01T01:00:03Z".parse().unwrap()));
    assert_eq!(words(&decide(&set(2, &json!({"spec": {"minReadySeconds": 5}})), "0")), "+1");
    let gone = json!({"metadata": {"deletionTimestamp": NOW}});
    assert_eq!(words(&decide(&set(3, &gone), "0!")), "");
}

#[test]
fn c5_the_status_counts_and_an_update_that_is_done_is_current() {
    let status = |replicas: i32, pods: &str| {
        let status = decide(&set(replicas, &json!({})), pods).status;
        let number = |number: Option<i32>| number.unwrap_or_default();
        (
            [status.replicas, number(status.ready_replicas), number(status.current_replicas), number(status.updated_replicas)],
            status.current_revision.unwrap(),
        )
    };
    assert_eq!(status(3, "old0 old1 2?"), ([3, 2, 2, 1], "old".to_owned()));
    assert_eq!(status(3, "old0 1 2x"), ([3, 3, 1, 1], "old".to_owned()));
    assert_eq!(status(3, "0 1 2?"), ([3, 2, 0, 3], "old".to_owned()));
    assert_eq!(status(3, "0 1 2"), ([3, 3, 3, 3], "new".to_owned()));
    assert_eq!(status(0, ""), ([0, 0, 0, 0], "new".to_owned()));
}
