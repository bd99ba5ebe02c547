//! The life of a Greeting, on a real API server.

use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use usher_engine::ConditionStatus;
use usher_engine::condition::{Verdict, verdict};

use crate::greeting::FINALIZER;
use crate::support::lab::{Lab, eventually, quick};

/// What serving one Greeting takes: a finalizer, what is about to happen, the note, and that it is there.
const SERVED: [&str; 4] = [
    "PATCH /greetings/first",
    "PUT /greetings/first/status",
    "POST /configmaps",
    "PUT /greetings/first/status",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_greeting_is_served_in_four_writes_and_then_left_alone() {
    Lab::run(async |lab| {
        lab.start_rigged(quick());
        lab.greeted("first").await;
        assert_eq!(lab.deeds("first"), SERVED);

        let greeting = lab.greetings().get("first").await.unwrap();
        assert_eq!(greeting.finalizers(), [FINALIZER]);
        let status = greeting.status.unwrap();
        let generation = greeting.metadata.generation.unwrap();
        let said = verdict(false, generation, status.observed_generation, &status.conditions);
        assert_eq!(said, Verdict::Current, "as kstatus reads it");
        eventually("it is told in events", async || {
            let events = lab.events("first").await;
            ["Writing", "Greeted"]
                .iter()
                .all(|reason| events.iter().any(|(r, _)| r == reason))
        })
        .await;

        // Woken five times for nothing: five passes, no write.
        for n in 0..5 {
            let before = lab.rig.plans("first");
            lab.poke("first", &n.to_string()).await;
            eventually("it looks", async || lab.rig.plans("first") > before).await;
        }
        lab.until_calm("marker").await;
        assert_eq!(lab.deeds("first"), SERVED);
    })
    .await;
}

/// All an operator knows is on the API: another one starts with a look, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_operator_finds_everything_as_it_should_be_and_writes_nothing() {
    Lab::run(async |lab| {
        lab.start();
        lab.greeted("first").await;
        lab.stop().await;
        lab.start_rigged(quick());
        eventually("it looks", async || lab.rig.plans("first") > 0).await;
        lab.until_calm("marker").await;
        assert_eq!(lab.deeds("first"), SERVED);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_note_that_is_deleted_or_scribbled_on_is_put_right() {
    Lab::run(async |lab| {
        lab.start();
        lab.greeted("first").await;
        let notes = lab.notes();
        let uid = async || notes.get("first").await.unwrap().uid().unwrap();
        let before = uid().await;
        notes.delete("first", &DeleteParams::default()).await.unwrap();
        eventually("it is back", async || {
            lab.note("first").await.is_some() && uid().await != before
        })
        .await;
        lab.until_says("first", "Hello, world!").await;

        let scribble = Patch::Merge(json!({"data": {"text": "Bah!"}}));
        notes.patch("first", &PatchParams::default(), &scribble).await.unwrap();
        eventually("it is right again", async || {
            lab.note("first").await.as_deref() == Some("Hello, world!")
        })
        .await;
        lab.until_says("first", "Hello, world!").await;

        lab.change("first", json!({"spec": {"to": "Ann"}})).await;
        lab.until_says("first", "Hello, Ann!").await;
        let (asked, done) = lab.creations("first");
        assert_eq!((asked, done), (4, 4), "written, and written again for each change");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_is_said_and_not_tried_until_it_changes() {
    Lab::run(async |lab| {
        lab.start_rigged(quick());
        lab.greet("nobody", json!({"to": ""})).await;
        lab.until_reason("nobody", "InvalidSpec").await;
        let stalled = lab.condition("nobody", "Stalled").await.unwrap();
        assert_eq!(stalled.status, ConditionStatus::True);
        assert!(stalled.message.contains("spec.to"), "{}", stalled.message);
        eventually("its echo is looked at", async || lab.rig.plans("nobody") >= 3).await;
        lab.until_calm("marker").await;
        assert_eq!(lab.rig.plans("nobody"), 3, "finalizer, status, and the echo of that");
        assert_eq!(lab.deeds("nobody").len(), 2);
        assert_eq!(lab.note("nobody").await, None);

        lab.change("nobody", json!({"spec": {"to": "Ann"}})).await;
        lab.until_says("nobody", "Hello, Ann!").await;
        assert_eq!(lab.condition("nobody", "Stalled").await, None, "kstatus wants it gone");
    })
    .await;
}

/// A ConfigMap holds 1 MiB at most: the plan is sound by our lights, the server says no.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_refuses_is_told_on_the_object_and_not_tried_again() {
    Lab::run(async |lab| {
        lab.start_rigged(quick());
        lab.greet("huge", json!({"to": "x".repeat(1 << 20)})).await;
        eventually("it is told", async || {
            let events = lab.events("huge").await;
            events.iter().any(|(reason, _)| reason == "StepFailed")
        })
        .await;
        let events = lab.events("huge").await;
        let (_, note) = events.iter().find(|(reason, _)| reason == "StepFailed").unwrap();
        let object = format!("create ConfigMap {}/huge: refused", lab.namespace);
        assert!(note.contains(&object) && note.contains("Too long"), "{note}");
        lab.until_calm("marker").await;
        let logged = || {
            lab.logs
                .with(&["WARN", &format!("{}/huge", lab.namespace), "validation"])
                .len()
        };
        eventually("each try is logged", async || logged() == lab.creations("huge").0).await;
        let (asked, done) = lab.creations("huge");
        assert!(
            asked <= 2 && done == 0,
            "asked {asked} times: once, and once for the echo of its own status"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_greeting_cleans_up_before_it_goes() {
    Lab::run(async |lab| {
        lab.start();
        lab.greeted("first").await;
        lab.delete("first").await;
        lab.until_gone("first").await;
        assert_eq!(
            lab.deeds("first")[4..],
            ["DELETE /configmaps/first", "PATCH /greetings/first"]
        );

        // And one that had not come to anything.
        lab.greet("nobody", json!({"to": ""})).await;
        lab.until_reason("nobody", "InvalidSpec").await;
        lab.delete("nobody").await;
        lab.until_gone("nobody").await;

        // The same name again is another object.
        lab.greeted("first").await;
        lab.delete("first").await;
        lab.until_gone("first").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_is_a_timer_not_a_loop() {
    Lab::run(async |lab| {
        lab.start_rigged(quick());
        lab.greet("later", json!({"to": "world", "afterSeconds": 2})).await;
        lab.until_reason("later", "NotYet").await;
        assert_eq!(lab.note("later").await, None);
        lab.until_says("later", "Hello, world!").await;
        let age = |meta: &kube::core::ObjectMeta| meta.creation_timestamp.clone().unwrap().0;
        let (greeting, note) = (
            lab.greetings().get("later").await.unwrap(),
            lab.notes().get("later").await.unwrap(),
        );
        let waited = age(&note.metadata).duration_since(age(&greeting.metadata));
        assert!(waited.as_secs() >= 2, "written after {waited}");
        assert!(lab.rig.plans("later") <= 7, "{} plans", lab.rig.plans("later"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_somebody_elses_is_left_alone_and_waited_for() {
    Lab::run(async |lab| {
        lab.start();
        let theirs = json!({"metadata": {"name": "taken"}, "data": {"text": "mine"}});
        let theirs = serde_json::from_value(theirs).unwrap();
        lab.notes().create(&PostParams::default(), &theirs).await.unwrap();
        lab.greet("taken", json!({"to": "world"})).await;
        lab.until_reason("taken", "NameTaken").await;
        assert_eq!(lab.note("taken").await.as_deref(), Some("mine"));
        lab.notes().delete("taken", &DeleteParams::default()).await.unwrap();
        lab.until_says("taken", "Hello, world!").await;
    })
    .await;
}
