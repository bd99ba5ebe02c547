//! The test kind with handles on it: it counts, waits, panics and says odd things when told to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;
use usher_engine::{Plan, Step};
use usher_operator::Kind;
use usher_operator::error::Failure;
use usher_operator::kind::{Outcome, Pace, Passed};
use usher_operator::pass::Pass;
use usher_operator::queue::Why;
use usher_operator::turn::Rank;
use usher_operator::view::{View, Wake};

use crate::greeting::{GreetingRecord, GreetingStep, Greetings, NoteRecord};

/// A place where passes of named Greetings wait until released.
pub struct Turnstile {
    held: watch::Sender<BTreeSet<String>>,
    reached: Mutex<BTreeMap<String, usize>>,
}

impl Default for Turnstile {
    fn default() -> Self {
        Self {
            held: watch::Sender::new(BTreeSet::new()),
            reached: Mutex::default(),
        }
    }
}

impl Turnstile {
    pub fn hold(&self, name: &str) {
        self.held.send_modify(|held| {
            held.insert(name.to_owned());
        });
    }

    pub fn release(&self, name: &str) {
        self.held.send_modify(|held| {
            held.remove(name);
        });
    }

    /// How often a pass of this Greeting came here.
    pub fn reached(&self, name: &str) -> usize {
        self.reached.lock().unwrap().get(name).copied().unwrap_or(0)
    }

    async fn pass(&self, name: &str) {
        *self.reached.lock().unwrap().entry(name.to_owned()).or_default() += 1;
        let _ = self.held.subscribe().wait_for(|held| !held.contains(name)).await;
    }
}

/// Overwrites part of a Greeting's status: whose, a JSON pointer, and what is to stand there.
type Saying = Option<(String, &'static str, Value)>;

#[derive(Default)]
pub struct Rig {
    /// Before anything is planned.
    pub fetching: Turnstile,
    /// After the status is recorded, before the step.
    pub acting: Turnstile,
    /// Greetings whose next plan panics.
    panics: Mutex<BTreeSet<String>>,
    saying: Mutex<Saying>,
    pace: Mutex<Pace>,
    /// Its mappers do not hear of a Greeting's status.
    pub deaf: AtomicBool,
    /// Greetings whose status may wait, and how long.
    patience: Mutex<BTreeMap<String, Duration>>,
    plans: Mutex<BTreeMap<String, usize>>,
    /// Steps that came to an end, good or bad.
    acts: Mutex<BTreeMap<String, usize>>,
    ranks: Mutex<BTreeMap<String, Rank>>,
    told: Mutex<Vec<Told>>,
}

/// What the kind was told of a pass that was over.
#[derive(Debug, Clone)]
pub struct Told {
    pub name: String,
    pub outcome: Outcome,
    pub whys: Vec<(Why, u32)>,
    pub planned: bool,
    pub reported: bool,
}

impl Rig {
    pub fn panic_once(&self, name: &str) {
        self.panics.lock().unwrap().insert(name.to_owned());
    }

    /// Puts `value` at `pointer` of this Greeting's status from now on.
    pub fn say(&self, name: &str, pointer: &'static str, value: Value) {
        *self.saying.lock().unwrap() = Some((name.to_owned(), pointer, value));
    }

    pub fn pace(&self, pace: Pace) {
        *self.pace.lock().unwrap() = pace;
    }

    /// Gives a step, or the status (`status`), a rank.
    pub fn rank(&self, step: &str, rank: u8) {
        self.ranks.lock().unwrap().insert(step.to_owned(), Rank(rank));
    }

    /// What the kind was told of this Greeting's passes, in order.
    pub fn told(&self, name: &str) -> Vec<Told> {
        let told = self.told.lock().unwrap();
        told.iter().filter(|told| told.name == name).cloned().collect()
    }

    /// This Greeting's status may be put off so long while there is no place for writes.
    pub fn may_wait(&self, name: &str, at_most: Duration) {
        self.patience.lock().unwrap().insert(name.to_owned(), at_most);
    }

    /// How often this Greeting was planned for.
    pub fn plans(&self, name: &str) -> usize {
        self.plans.lock().unwrap().get(name).copied().unwrap_or(0)
    }

    /// How many steps of this Greeting came to an end.
    pub fn acts(&self, name: &str) -> usize {
        self.acts.lock().unwrap().get(name).copied().unwrap_or(0)
    }
}

pub struct Rigged(pub Arc<Rig>);

impl Kind for Rigged {
    type Resource = GreetingRecord;
    type Fetched = ();
    type Observation<'v> = <Greetings as Kind>::Observation<'v>;
    type Status = Value;
    type Step = GreetingStep;
    const NAME: &'static str = Greetings::NAME;
    const QUEUE: &'static str = Greetings::QUEUE;

    fn register(&self, view: &mut View) {
        if self.0.deaf.load(Ordering::Relaxed) {
            let _ = view.watch::<GreetingRecord>().wake(|_, change| {
                let generation = |record: &Arc<GreetingRecord>| (record.meta.uid.clone(), record.meta.generation);
                let (old, new) = (change.old.as_ref().map(generation), change.new.as_ref().map(generation));
                let finalizers = |record: &Arc<GreetingRecord>| record.meta.finalizers.clone();
                let same = old == new && change.old.as_ref().map(finalizers) == change.new.as_ref().map(finalizers);
                let latest = change.latest().filter(|_| !same);
                Vec::from_iter(latest.map(|g| Wake::now(Self::NAME, g.meta.key.clone(), Why::UPDATE)))
            });
            let owners = |note: &NoteRecord| note.meta.owners.iter().map(|o| (&o.uid).into()).collect();
            let _ = view.watch::<NoteRecord>().index("owner", owners).wake(|_, change| {
                let key = change.latest().map(|note| note.meta.key.clone());
                Vec::from_iter(key.map(|key| Wake::now(Self::NAME, key, Why::UPDATE)))
            });
            return;
        }
        Greetings.register(view);
        let _ = view.watch::<GreetingRecord>().wake(|_, change| {
            let poison = change.new.as_ref().is_some_and(|new| new.meta.key.name() == "poison");
            assert!(!poison, "a mapper panics");
            Vec::new()
        });
    }

    async fn fetch(&self, pass: &Pass, greeting: &GreetingRecord) -> Result<(), Failure> {
        self.0.fetching.pass(greeting.meta.key.name()).await;
        Greetings.fetch(pass, greeting).await
    }

    fn observe<'v>(&self, view: &'v View, greeting: &'v GreetingRecord, fetched: &'v ()) -> Self::Observation<'v> {
        Greetings.observe(view, greeting, fetched)
    }

    fn plan(
        &self,
        greeting: &GreetingRecord,
        seen: &Self::Observation<'_>,
        now: Timestamp,
    ) -> Plan<GreetingStep, Value> {
        let name = greeting.meta.key.name();
        *self.0.plans.lock().unwrap().entry(name.to_owned()).or_default() += 1;
        let panics = self.0.panics.lock().unwrap().remove(name);
        assert!(!panics, "{name} was told to panic");
        let plan = Greetings.plan(greeting, seen, now);
        let mut status = serde_json::to_value(&plan.status).unwrap();
        if let Some((_, pointer, value)) = self
            .0
            .saying
            .lock()
            .unwrap()
            .as_ref()
            .filter(|(whose, ..)| whose == name)
        {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            if let Some(parent) = status.pointer_mut(parent).and_then(Value::as_object_mut) {
                parent.insert(field.to_owned(), value.clone());
            }
        }
        Plan {
            status,
            steps: plan.steps,
            findings: plan.findings,
            next: plan.next,
        }
    }

    async fn act(&self, pass: &Pass, greeting: &GreetingRecord, step: &GreetingStep) -> Result<(), Failure> {
        let name = greeting.meta.key.name();
        self.0.acting.pass(name).await;
        let outcome = Greetings.act(pass, greeting, step).await;
        *self.0.acts.lock().unwrap().entry(name.to_owned()).or_default() += 1;
        outcome
    }

    fn rank(&self, step: Option<&GreetingStep>, _: &Value) -> Rank {
        let ranks = self.0.ranks.lock().unwrap();
        ranks
            .get(step.map_or("status", Step::name))
            .copied()
            .unwrap_or_default()
    }

    fn passed(&self, _: &View, pass: &Passed<'_, Self>) {
        self.0.told.lock().unwrap().push(Told {
            name: pass.key.name().to_owned(),
            outcome: pass.outcome,
            whys: pass.whys.to_vec(),
            planned: pass.planned.is_some(),
            reported: pass.reported,
        });
    }

    fn pace(&self) -> Pace {
        *self.0.pace.lock().unwrap()
    }

    fn may_wait(&self, greeting: &GreetingRecord, _: &Value) -> Option<Duration> {
        self.0.patience.lock().unwrap().get(greeting.meta.key.name()).copied()
    }

    /// A reason is urgent, a mere word is not.
    fn urgent(&self, greeting: &GreetingRecord, new: &Value) -> bool {
        let reason = greeting.status.conditions.first().map(|ready| ready.reason.as_str());
        reason != new.pointer("/conditions/0/reason").and_then(Value::as_str)
    }
}
