//! A whole kind, room by room: a `Greeting` keeps a ConfigMap, its note. `docs/adding-a-kind.md` walks through it.

use jiff::{SignedDuration, Timestamp};
use kube::{CustomResource, api::DynamicObject};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use usher_engine::Stance::{Blocked, Doing, Done, Waiting};
use usher_engine::{Condition, Conditions, Finding, Plan, Step, Tell};
use usher_operator::record::{ApiType, Meta, Record};
use usher_operator::view::{Change, View, Wake};
use usher_operator::{Kind, error::Failure, pass::Pass, queue::Why};

// api.rs: the custom resource.
pub const FINALIZER: &str = "test.usher.dev/farewell";
const BY_OWNER: &str = "owner";

#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq)]
#[kube(group = "test.usher.dev", version = "v1", kind = "Greeting")]
#[kube(namespaced, status = "GreetingStatus")]
#[serde(rename_all = "camelCase")]
pub struct GreetingSpec {
    /// Who is greeted.
    pub to: String,
    /// Not before the Greeting is this old.
    pub after_seconds: Option<u32>,
}

#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct GreetingStatus {
    pub observed_generation: Option<i64>,
    pub conditions: Vec<Condition>,
}

// records.rs: what the view keeps of each object.
#[derive(Debug, PartialEq)]
pub struct GreetingRecord {
    pub meta: Meta,
    pub spec: GreetingSpec,
    pub status: GreetingStatus,
}

impl Record for GreetingRecord {
    const TYPE: ApiType = api_type("test.usher.dev", "Greeting", "greetings");
    fn read(meta: Meta, object: &DynamicObject) -> Result<Self, String> {
        let Greeting { spec, status, .. } = object.clone().try_parse().map_err(|e| e.to_string())?;
        let status = status.unwrap_or_default();
        Ok(Self { meta, spec, status })
    }
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Debug, PartialEq)]
pub struct NoteRecord {
    pub meta: Meta,
    pub text: Option<String>,
}

impl Record for NoteRecord {
    const TYPE: ApiType = api_type("", "ConfigMap", "configmaps");
    fn read(meta: Meta, object: &DynamicObject) -> Result<Self, String> {
        let text = object.data["data"]["text"].as_str().map(str::to_owned);
        Ok(Self { meta, text })
    }
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

const fn api_type(group: &'static str, kind: &'static str, plural: &'static str) -> ApiType {
    ApiType {
        group,
        version: "v1",
        kind,
        plural,
    }
}

// objects.rs: pure builders of the objects it owns.
fn note(meta: &Meta, text: &str) -> Value {
    let (namespace, name, uid) = (meta.key.namespace(), meta.key.name(), &meta.uid);
    let owner = json!({"apiVersion": "test.usher.dev/v1", "kind": "Greeting", "name": name, "uid": uid});
    let metadata = json!({"namespace": namespace, "name": name, "ownerReferences": [owner]});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": text}})
}

// wake.rs: which events wake which resource. A Greeting and a ConfigMap both wake the Greeting of their name.
fn wake<R: Record>(_: &View, change: &Change<R>) -> Vec<Wake> {
    let named = change.latest().map(|latest| latest.meta().key.clone());
    Vec::from_iter(named.map(|key| Wake::now(Greetings::NAME, key, Why::UPDATE)))
}

// plan.rs: what it can do, and (below) the decision.
#[derive(Debug, Clone, PartialEq)]
pub enum GreetingStep {
    Finalizer(bool),
    Write(String),
    Remove(Meta),
}

impl Step for GreetingStep {
    fn name(&self) -> &'static str {
        match self {
            Self::Finalizer(_) => "SetFinalizer",
            Self::Write(_) => "WriteNote",
            Self::Remove(_) => "RemoveNote",
        }
    }
    fn describe(&self) -> String {
        match self {
            Self::Finalizer(set) => format!("have the finalizer: {set}"),
            Self::Write(text) => format!("write a note that says {text:?}"),
            Self::Remove(note) => format!("remove the note {}", note.key),
        }
    }
    fn disruptive(&self) -> bool {
        false
    }
}

// kinds.rs: the rooms, put together.
pub struct Greetings;

impl Kind for Greetings {
    type Resource = GreetingRecord;
    type Fetched = ();
    /// Every note that is ours; and whether the name is taken, by whomever.
    type Observation<'v> = (Vec<&'v NoteRecord>, bool);
    type Status = GreetingStatus;
    type Step = GreetingStep;
    const NAME: &'static str = "Greeting";
    const QUEUE: &'static str = "Greeting";
    fn register(&self, view: &mut View) {
        let _ = view.watch::<GreetingRecord>().wake(wake);
        let owners = |note: &NoteRecord| note.meta.owners.iter().map(|o| (&o.uid).into()).collect();
        let _ = view.watch::<NoteRecord>().index(BY_OWNER, owners).wake(wake);
    }
    async fn fetch(&self, _: &Pass, _: &GreetingRecord) -> Result<(), Failure> {
        Ok(())
    }
    fn observe<'v>(&self, view: &'v View, greeting: &'v GreetingRecord, (): &'v ()) -> Self::Observation<'v> {
        let Meta { key, uid, .. } = &greeting.meta;
        let own = view.by::<NoteRecord>(BY_OWNER, key.namespace(), uid.into());
        (own.map(AsRef::as_ref).collect(), view.get::<NoteRecord>(key).is_some())
    }
    fn plan(
        &self,
        GreetingRecord { meta, spec, status }: &GreetingRecord,
        (own, taken): &Self::Observation<'_>,
        now: Timestamp,
    ) -> Plan<GreetingStep, GreetingStatus> {
        let report = |stance, reason, message: &str| {
            let (mut conditions, generation) = (Conditions::from_existing(&status.conditions), meta.generation);
            conditions.set("Ready", stance == Done, reason, message, generation, now);
            match stance {
                Blocked => conditions.set("Stalled", true, reason, message, generation, now),
                _ => conditions.remove("Stalled"),
            }
            let status = GreetingStatus {
                observed_generation: Some(generation),
                conditions: conditions.into_vec(),
            };
            Plan::report(status).finding(Finding::new(stance, reason, message).told(Tell::Normal))
        };
        let keep = || Plan::report(status.clone());
        let remove = |note: &NoteRecord| GreetingStep::Remove(note.meta.clone());
        let (text, wait) = (format!("Hello, {}!", spec.to), spec.after_seconds.unwrap_or(0));
        let early = SignedDuration::from_secs(wait.into()) - now.duration_since(meta.created.into());
        match (own.first(), meta.deleting.is_some(), meta.has_finalizer(FINALIZER)) {
            (Some(note), true, _) => keep().step(remove(note)),
            (None, true, true) => keep().step(GreetingStep::Finalizer(false)),
            (None, true, false) => keep(),
            // Before the first thing that must be cleaned up.
            (_, false, false) => keep().step(GreetingStep::Finalizer(true)),
            _ if spec.to.is_empty() => report(Blocked, "InvalidSpec", "spec.to is empty: name somebody"),
            _ if early.is_positive() => report(Waiting, "NotYet", "too early").again_after(early.unsigned_abs()),
            (Some(note), ..) if note.text.as_ref() == Some(&text) => report(Done, "Greeted", &text),
            (Some(note), ..) => report(Doing, "Correcting", "it says something else").step(remove(note)),
            _ if *taken => report(Waiting, "NameTaken", "the ConfigMap is another's: delete it"),
            _ => report(Doing, "Writing", "no note yet").step(GreetingStep::Write(text)),
        }
    }
    async fn act(&self, pass: &Pass, greeting: &GreetingRecord, step: &GreetingStep) -> Result<(), Failure> {
        let meta = &greeting.meta;
        let answer = match step {
            GreetingStep::Write(text) => pass.create(NoteRecord::TYPE, &meta.key, note(meta, text)).await,
            GreetingStep::Remove(note) => pass.delete(NoteRecord::TYPE, note).await,
            GreetingStep::Finalizer(set) => {
                let others = meta.finalizers.iter().map(AsRef::as_ref).filter(|f| *f != FINALIZER);
                let finalizers: Vec<&str> = others.chain(set.then_some(FINALIZER)).collect();
                pass.set_finalizers(GreetingRecord::TYPE, meta, &finalizers).await
            }
        };
        answer.map(drop)
    }
}
