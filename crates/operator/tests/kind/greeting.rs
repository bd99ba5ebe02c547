//! A whole kind in one file, room by room: a `Greeting` keeps a ConfigMap, its *note*, with a sentence in it.
//! `docs/adding-a-kind.md` walks through it. A kind that ships has a file per room.

use std::time::Duration;

use jiff::Timestamp;
use kube::{CustomResource, api::DynamicObject};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use usher_engine::{Condition, Conditions, Finding, Plan, Stance, Step, Tell};
use usher_operator::record::{ApiType, Meta, Record};
use usher_operator::view::{Change, View, Wake};
use usher_operator::{Kind, error::Failure, pass::Pass, queue::Why};

// api.rs: the custom resource.

pub const FINALIZER: &str = "test.usher.dev/farewell";

#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq)]
#[kube(group = "test.usher.dev", version = "v1", kind = "Greeting", namespaced)]
#[kube(status = "GreetingStatus")]
#[serde(rename_all = "camelCase")]
pub struct GreetingSpec {
    /// Who is greeted.
    pub to: String,
    /// Not before the Greeting is this old.
    #[serde(default)]
    pub after_seconds: u32,
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
    let (namespace, name, uid) = (meta.key.namespace(), meta.key.name(), &*meta.uid);
    let owner = json!({"apiVersion": "test.usher.dev/v1", "kind": "Greeting", "name": name, "uid": uid});
    let metadata = json!({"namespace": namespace, "name": name, "ownerReferences": [owner]});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": text}})
}

// wake.rs: which events wake which resource. Both kinds of object wake the Greeting of their name.

const BY_OWNER: &str = "owner";

fn wake<R: Record>(_: &View, change: &Change<R>) -> Vec<Wake> {
    let named = change.latest().map(|latest| latest.meta().key.clone());
    Vec::from_iter(named.map(|key| Wake::now(Greetings::NAME, key, Why::UPDATE)))
}

// plan.rs: what it can do, and (below) the decision.

#[derive(Debug, Clone, PartialEq)]
pub enum GreetingStep {
    Finalizer { set: bool },
    Write { text: String },
    Remove { note: Meta },
}

impl Step for GreetingStep {
    fn name(&self) -> &'static str {
        match self {
            Self::Finalizer { .. } => "SetFinalizer",
            Self::Write { .. } => "WriteNote",
            Self::Remove { .. } => "RemoveNote",
        }
    }
    fn describe(&self) -> String {
        match self {
            Self::Finalizer { set } => format!("set the finalizer: {set}"),
            Self::Write { text } => format!("write a note that says {text:?}"),
            Self::Remove { note } => format!("remove the note {}", note.key),
        }
    }
    fn disruptive(&self) -> bool {
        false
    }
}

// kinds.rs: the rooms, put together.

#[derive(Debug, Clone, Copy)]
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
        let owners = |note: &NoteRecord| note.meta.owners.iter().map(|o| o.uid.clone()).collect();
        let _ = view.watch::<NoteRecord>().index(BY_OWNER, owners).wake(wake);
    }

    async fn fetch(&self, _: &Pass, _: &GreetingRecord) -> Result<(), Failure> {
        Ok(())
    }

    fn observe<'v>(&self, view: &'v View, greeting: &'v GreetingRecord, (): &'v ()) -> Self::Observation<'v> {
        let Meta { key, uid, .. } = &greeting.meta;
        let own = view.by::<NoteRecord>(BY_OWNER, key.namespace(), uid);
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
            conditions.set("Ready", stance == Stance::Done, reason, message, generation, now);
            match stance {
                Stance::Blocked => conditions.set("Stalled", true, reason, message, generation, now),
                _ => conditions.remove("Stalled"),
            }
            let mut status = GreetingStatus::default();
            status.observed_generation = Some(generation);
            status.conditions = conditions.into_vec();
            Plan::report(status).finding(Finding::new(stance, reason, message).told(Tell::Normal))
        };
        let remove = |note: &NoteRecord| GreetingStep::Remove {
            note: note.meta.clone(),
        };
        let finalizer = |set| Plan::report(status.clone()).step(GreetingStep::Finalizer { set });
        let text = format!("Hello, {}!", spec.to);
        let age = Duration::try_from(now.duration_since(meta.created)).unwrap_or_default();
        let early = Duration::from_secs(spec.after_seconds.into()).saturating_sub(age);
        match own.first() {
            Some(note) if meta.deleting.is_some() => Plan::report(status.clone()).step(remove(note)),
            None if meta.deleting.is_some() => finalizer(false),
            // Before the first thing that must be cleaned up.
            _ if !meta.has_finalizer(FINALIZER) => finalizer(true),
            _ if spec.to.is_empty() => report(Stance::Blocked, "InvalidSpec", "spec.to is empty: name somebody"),
            _ if !early.is_zero() => report(Stance::Waiting, "NotYet", "it is too early").again_after(early),
            Some(note) if note.text.as_ref() == Some(&text) => report(Stance::Done, "Greeted", &text),
            Some(note) => report(Stance::Doing, "Correcting", "the note says something else").step(remove(note)),
            None if *taken => report(
                Stance::Waiting,
                "NameTaken",
                "ConfigMap of this name is another's: delete it",
            ),
            None => report(Stance::Doing, "Writing", "the note is written").step(GreetingStep::Write { text }),
        }
    }

    async fn act(&self, pass: &Pass, greeting: &GreetingRecord, step: &GreetingStep) -> Result<(), Failure> {
        let meta = &greeting.meta;
        let answer = match step {
            GreetingStep::Write { text } => pass.create(NoteRecord::TYPE, &meta.key, note(meta, text)).await,
            GreetingStep::Remove { note } => pass.delete(NoteRecord::TYPE, note).await,
            GreetingStep::Finalizer { set } => {
                let others = meta.finalizers.iter().map(AsRef::as_ref).filter(|f| *f != FINALIZER);
                let finalizers: Vec<&str> = others.chain(set.then_some(FINALIZER)).collect();
                pass.set_finalizers(GreetingRecord::TYPE, meta, &finalizers).await
            }
        };
        answer.map(drop)
    }
}
