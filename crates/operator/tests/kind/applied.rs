//! What a kind may do beyond creating and deleting: apply an object, merge fields into one, list what has no namespace.
//!
//! A kind of its own keeps a Greeting's note by applying it, and then says on it for whom it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use usher_engine::{Plan, Step};
use usher_operator::record::{ApiType, Meta, Record};
use usher_operator::view::{Change, View, Wake};
use usher_operator::{Kind, error::Failure, pass::Pass, queue::Why};

use crate::greeting::{GreetingRecord, GreetingStatus, NoteRecord};
use crate::support::lab::{Lab, eventually, quick};
use crate::support::proxy::on;

const MANAGER: &str = "usher-test";

/// Applies notes. Counts the namespaces that it saw.
#[derive(Default)]
struct Posters {
    namespaces: Arc<AtomicUsize>,
}

#[derive(Debug, Clone, PartialEq)]
enum PosterStep {
    Apply(Option<Meta>),
    Label(Meta),
}

impl Step for PosterStep {
    fn name(&self) -> &'static str {
        match self {
            Self::Apply(_) => "Apply",
            Self::Label(_) => "Label",
        }
    }
    fn describe(&self) -> String {
        self.name().to_owned()
    }
    fn disruptive(&self) -> bool {
        false
    }
}

fn wake<R: Record>(_: &View, change: &Change<R>) -> Vec<Wake> {
    let named = change.latest().map(|latest| latest.meta().key.clone());
    Vec::from_iter(named.map(|key| Wake::now(Posters::NAME, key, Why::UPDATE)))
}

fn text(greeting: &GreetingRecord) -> String {
    format!("Hello, {}!", greeting.spec.to)
}

fn poster(greeting: &GreetingRecord) -> Value {
    let key = &greeting.meta.key;
    let mut note = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": key.namespace(), "name": key.name()},
        "data": {"text": text(greeting)},
    });
    if let Some(after) = greeting.spec.after_seconds {
        note["data"]["after"] = after.to_string().into();
    }
    note
}

impl Kind for Posters {
    type Resource = GreetingRecord;
    type Fetched = ();
    type Observation<'v> = Option<&'v NoteRecord>;
    type Status = GreetingStatus;
    type Step = PosterStep;
    const NAME: &'static str = "Poster";
    const QUEUE: &'static str = "Poster";
    fn register(&self, view: &mut View) {
        let _ = view.watch::<GreetingRecord>().wake(wake);
        let _ = view.watch::<NoteRecord>().wake(wake);
    }
    async fn fetch(&self, _: &Pass, _: &GreetingRecord) -> Result<(), Failure> {
        Ok(())
    }
    fn observe<'v>(&self, view: &'v View, greeting: &'v GreetingRecord, (): &'v ()) -> Option<&'v NoteRecord> {
        view.get::<NoteRecord>(&greeting.meta.key).map(AsRef::as_ref)
    }
    fn plan(
        &self,
        greeting: &GreetingRecord,
        note: &Option<&NoteRecord>,
        _: Timestamp,
    ) -> Plan<PosterStep, GreetingStatus> {
        let said = greeting.status.observed_generation == Some(greeting.meta.generation);
        let status = GreetingStatus {
            observed_generation: Some(greeting.meta.generation),
            ..GreetingStatus::default()
        };
        let plan = Plan::report(status);
        match note {
            None => plan.step(PosterStep::Apply(None)),
            Some(note) if !said => {
                let label = PosterStep::Label(note.meta.clone());
                plan.step(PosterStep::Apply(Some(note.meta.clone()))).step(label)
            }
            Some(_) => plan,
        }
    }
    async fn act(&self, pass: &Pass, greeting: &GreetingRecord, step: &PosterStep) -> Result<(), Failure> {
        let kind = NoteRecord::TYPE;
        match step {
            PosterStep::Apply(found) => {
                let key = &greeting.meta.key;
                pass.apply(kind, key, found.as_ref(), poster(greeting), MANAGER).await?;
            }
            PosterStep::Label(note) => {
                let fields = json!({"metadata": {"labels": {"for": greeting.spec.to, "draft": null}}});
                pass.patch(kind, note, fields).await?;
                let namespaces = ApiType {
                    group: "",
                    version: "v1",
                    kind: "Namespace",
                    plural: "namespaces",
                };
                let seen = pass.list_all(namespaces).await?.len();
                self.namespaces.store(seen, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

async fn data(lab: &Lab, name: &str) -> Value {
    let note = lab.notes().get_opt(name).await.unwrap();
    note.map_or(
        Value::Null,
        |note| json!({"data": note.data, "labels": note.metadata.labels}),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_makes_changes_and_takes_back_what_it_no_longer_says_and_leaves_others_alone() {
    Lab::run(async |lab| {
        let posters = Posters::default();
        let namespaces = posters.namespaces.clone();
        lab.start_with(posters, quick());
        lab.greet("x", json!({"to": "Ann", "afterSeconds": 7})).await;
        eventually("it is applied", async || {
            data(lab, "x").await["data"] == json!({"text": "Hello, Ann!", "after": "7"})
        })
        .await;
        let others = json!({"data": {"theirs": "kept"}, "metadata": {"labels": {"draft": "yes", "owner": "them"}}});
        let (params, others) = (PatchParams::default(), Patch::Merge(others));
        lab.notes().patch("x", &params, &others).await.unwrap();
        lab.change("x", json!({"spec": {"to": "Bob", "afterSeconds": null}}))
            .await;
        eventually("it is applied again", async || {
            data(lab, "x").await
                == json!({
                    "data": {"text": "Hello, Bob!", "theirs": "kept"},
                    "labels": {"for": "Bob", "owner": "them"},
                })
        })
        .await;
        eventually("what has no namespace can be listed", async || {
            namespaces.load(Ordering::Relaxed) > 0
        })
        .await;
        // Every write but the first says which version it is meant for.
        let writes = lab.proxy.effects(&on("PATCH", "/configmaps/x"));
        let ours: Vec<_> = writes.iter().filter(|seen| seen.agent.contains("(writer)")).collect();
        assert!(ours.len() >= 3, "{ours:?}");
        let guarded =
            |body: &Value| body["metadata"]["uid"].is_string() && body["metadata"]["resourceVersion"].is_string();
        assert!(!guarded(&ours[0].body), "there was none before");
        assert!(ours[1..].iter().all(|seen| guarded(&seen.body)), "{ours:?}");
        // The second write of one pass is guarded by what the first one made, not by what was planned.
        let version = |at: usize| ours[at].body["metadata"]["resourceVersion"].clone();
        assert_ne!(version(ours.len() - 1), version(ours.len() - 2));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_to_be_new_is_not_applied_over_what_the_view_has_not_seen_yet() {
    Lab::run(async |lab| {
        lab.start_with(Posters::default(), quick());
        lab.greet("first", json!({"to": "Ann"})).await;
        eventually("it runs", async || {
            data(lab, "first").await["data"]["text"] == "Hello, Ann!"
        })
        .await;
        lab.proxy.hold_watches("/configmaps");
        let theirs =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"text": "mine"}});
        let theirs = serde_json::from_value(theirs).unwrap();
        lab.notes().create(&PostParams::default(), &theirs).await.unwrap();
        lab.greet("x", json!({"to": "Bob"})).await;
        let asked = || lab.proxy.seen(&on("GET", "/configmaps/x")).len();
        eventually("it looks before it writes, and again", async || asked() >= 3).await;
        assert!(lab.proxy.seen(&on("PATCH", "/configmaps/x")).is_empty());
        assert_eq!(data(lab, "x").await["data"]["text"], "mine");
    })
    .await;
}
