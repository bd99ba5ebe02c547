//! One pod's worker: it looks at everything, decides ([`life`](super::life)), keeps what must not be forgotten, and takes
//! the steps that are not under way. It ends when the pod is forgotten.
//!
//! Dropped at any point it leaves the pod's processes running and its folder telling where things were: the next worker
//! of the same pod goes on from there (N2).
//!
//! - [`steps`]: taking them. [`reports`]: what became of them. [`tending`]: probes, config volumes, names.

mod reports;
mod steps;
mod tending;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::node::agent::chores::{Context, Started, Unprepared};
use crate::node::agent::folder::PodFolder;
use crate::node::agent::life::{self, Attempts, Decision, Health, Kept, Sight, Step, Trouble, Usage};
use crate::node::agent::messages;
use crate::node::agent::publish::Publisher;
use crate::node::agent::surroundings::Surroundings;
use crate::node::agent::{Agent, Seen, View, admission};
use crate::node::hooks::HookFailure;
use crate::node::probes::{self, Prober};
use crate::node::supervisor::client::{self, Found, Supervisor};
use crate::node::supervisor::protocol::PodState;
use steps::key_of;

/// A step that failed is tried again after this, then twice that, up to the longest.
const FIRST_RETRY: SignedDuration = SignedDuration::from_millis(500);
const LONGEST_RETRY: SignedDuration = SignedDuration::from_secs(10);
/// What cannot be started for want of an image or a config object: the reference's back-off.
const FIRST_TROUBLE: SignedDuration = SignedDuration::from_secs(10);
const LONGEST_TROUBLE: SignedDuration = SignedDuration::from_secs(300);
/// How often a supervisor is asked whether it is there: with the time it has to answer, well below 10 s (N12).
const CHECK: SignedDuration = SignedDuration::from_secs(3);
/// How long a supervisor may take to say its state, before it is looked at more closely.
const FIRST_WORD: Duration = Duration::from_secs(5);
/// After a supervisor said something that is no state.
const SILENCE: Duration = Duration::from_secs(1);
/// How often tokens are looked at.
const RENEWAL: SignedDuration = SignedDuration::from_secs(60);
/// How often it is looked what a pod has on the disk, if there is a limit to it: as often as a kubelet looks.
const MEASURING: SignedDuration = SignedDuration::from_secs(10);
/// A look that takes long is taken less often: at most one part of so many of the time.
const MEASURED_PART: i32 = 20;
/// When a supervisor is looked for again whose files cannot be read, and after how many times that is told.
const FIND_AGAIN: Duration = Duration::from_secs(1);
const FINDS_UNTOLD: u32 = 3;

/// What the supervisor's watcher says. The number tells one supervisor from the next.
#[derive(Debug)]
enum News {
    State(u64, Box<PodState>),
    Lost(u64),
}

/// What became of a chore.
#[derive(Debug)]
enum Report {
    Prepared(Result<Supervisor, Vec<Unprepared>>),
    Started(String, u32, Started),
    PostStart(String, u32, Result<(), HookFailure>),
    PreStop(String, u32, Result<(), HookFailure>),
    Stopped(Result<(), String>),
    Ended(Result<(), String>),
    Cleared(Result<(), String>),
    Removed(Result<(), String>),
    Forgotten(Result<(), String>),
    Probed(String, u32, probes::Kind, Option<probes::Answer>),
    Refreshed(Vec<String>),
    Checked(u64, Result<(), String>),
    /// And how long that took.
    Measured(Usage, Duration),
}

#[derive(Debug)]
pub(super) struct Worker {
    context: Arc<Context>,
    seen: watch::Receiver<Seen>,
    view: watch::Sender<View>,
    kept: Kept,
    attempts: Attempts,
    supervisor: Option<Supervisor>,
    life: life::Supervisor,
    is_prepared: bool,
    /// Which supervisor it is that news are about.
    generation: u64,
    troubles: BTreeMap<String, Trouble>,
    probers: BTreeMap<String, (u32, Prober)>,
    messages: BTreeMap<(String, u32), String>,
    under_way: BTreeSet<Step>,
    /// Steps that failed: not before then, and how often.
    pauses: BTreeMap<Step, (Timestamp, u32)>,
    /// Attempts that the supervisor has accepted.
    asked: BTreeSet<(String, u32)>,
    chores: JoinSet<(Option<Step>, Report)>,
    tasks: JoinSet<()>,
    news: (mpsc::Sender<News>, mpsc::Receiver<News>),
    publisher: Publisher,
    versions: Vec<String>,
    next_check: Timestamp,
    /// A look at the supervisor may take a minute: one at a time.
    is_checking: bool,
    next_renewal: Timestamp,
    usage: Option<Usage>,
    next_measuring: Timestamp,
    is_refreshing: bool,
    is_forgotten: bool,
    /// It was found running by this agent, not started by it.
    is_adopted: bool,
}

impl Worker {
    pub(super) fn new(
        agent: Arc<Agent>,
        uid: String,
        folder: PodFolder,
        seen: watch::Receiver<Seen>,
        view: watch::Sender<View>,
    ) -> Self {
        let pod = seen.borrow().pod.clone();
        let (publisher, writing) = Publisher::new(agent.clone(), pod.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(writing);
        let now = agent.machine.hand().now();
        let read = folder.kept();
        if let Err(why) = &read {
            tracing::warn!(pod = uid, %why, "what was kept of a pod cannot be read: it is looked at anew");
        }
        let (is_adopted, kept) = match read {
            Ok(Some(kept)) => (true, kept),
            Ok(None) | Err(_) => (
                false,
                Kept {
                    namespace: pod.metadata.namespace.clone().unwrap_or_default(),
                    name: pod.metadata.name.clone().unwrap_or_default(),
                    node: agent.entry.name.clone(),
                    start_time: pod
                        .status
                        .as_ref()
                        .and_then(|status| Some(status.start_time.as_ref()?.0)),
                    ..Kept::default()
                },
            ),
        };
        if let Some(address) = kept.address {
            agent.machine.keep_address(&uid, address);
        }
        Self {
            context: Arc::new(Context::new(agent, uid, folder)),
            seen,
            view,
            kept,
            attempts: Attempts::new(),
            supervisor: None,
            life: life::Supervisor::None,
            is_prepared: false,
            generation: 0,
            troubles: BTreeMap::new(),
            probers: BTreeMap::new(),
            messages: BTreeMap::new(),
            under_way: BTreeSet::new(),
            pauses: BTreeMap::new(),
            asked: BTreeSet::new(),
            chores: JoinSet::new(),
            tasks,
            news: mpsc::channel(16),
            publisher,
            versions: Vec::new(),
            next_check: now,
            is_checking: false,
            next_renewal: now,
            usage: None,
            next_measuring: now,
            is_refreshing: false,
            is_forgotten: false,
            is_adopted,
        }
    }

    fn agent(&self) -> &Arc<Agent> {
        &self.context.agent
    }

    fn now(&self) -> Timestamp {
        self.agent().machine.hand().now()
    }

    fn pod(&self) -> Arc<Pod> {
        self.seen.borrow().pod.clone()
    }

    pub(super) async fn run(mut self) {
        let machine = self.agent().machine.clone();
        let mut config = machine.config_changes();
        let mut names = machine.name_changes();
        let mut images = machine.image_changes();
        self.begin().await;
        let mut is_first = true;
        loop {
            let mut decision = self.decide();
            if self.tend_probers(&decision.up) {
                decision = self.decide();
            }
            let wake = self.apply(decision);
            if self.is_forgotten {
                return;
            }
            if std::mem::take(&mut is_first) {
                let (machine, uid, written) = (machine.clone(), self.context.uid.clone(), self.publisher.flushed());
                self.tasks.spawn(async move {
                    written.await;
                    machine.found(&uid);
                });
            }
            let mut alarm = pin!(sleep_until(wake, self.now()));
            tokio::select! {
                Some(news) = self.news.1.recv() => self.hear(news).await,
                Some(done) = self.chores.join_next() => {
                    let (step, report) = sound(done);
                    self.take_report(step, report).await;
                }
                _ = self.seen.changed() => self.config_changed(),
                _ = config.changed() => self.config_changed(),
                _ = names.changed() => self.names_changed(),
                _ = images.changed() => self.images_changed(),
                () = &mut alarm => {}
            }
            // All that is there already is seen before the next decision.
            while let Ok(news) = self.news.1.try_recv() {
                self.hear(news).await;
            }
            while let Some(done) = self.chores.try_join_next() {
                let (step, report) = sound(done);
                self.take_report(step, report).await;
            }
        }
    }

    /// Finds out what there is of the pod already, and whether the node will have it.
    async fn begin(&mut self) {
        let pod = self.pod();
        if self.is_adopted || admission::has_run(&pod) {
            self.recover().await;
        }
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if !self.is_adopted {
            if matches!(phase, Some("Succeeded" | "Failed")) {
                // It had its life, and its folder is gone.
                self.kept.end_as_finished(self.now());
            } else if let Some(verdict) = admission::verdict(self.agent(), &pod) {
                let message = verdict.message.clone();
                self.agent().tell_pod(&pod, true, &verdict.reason, message);
                self.kept.rejected = Some(verdict);
            }
        }
        self.versions = Surroundings::new(&self.agent().machine, &pod).versions(&pod);
    }

    /// After a start of ours or a supervisor's end: what runs is adopted, what a dead one left is killed.
    async fn recover(&mut self) {
        self.supervisor = None;
        self.life = life::Supervisor::None;
        self.asked.clear();
        self.generation += 1;
        match self.find().await {
            Ok(Found::Alive(supervisor)) => {
                self.is_prepared = true;
                self.watch(supervisor).await;
            }
            found => {
                if let Err(why) = client::remains(&self.context.uid).await {
                    tracing::warn!(pod = self.context.uid, %why, "what a dead supervisor left cannot be killed");
                }
                if let Ok(Found::Dead(Some(state))) = found {
                    self.attempts = state.containers;
                }
                let now = self.now();
                lose(&mut self.attempts, now);
                // With nothing left to start, no supervisor is needed to say so.
                if self.kept.ended.is_some() {
                    self.life = life::Supervisor::Over;
                }
            }
        }
    }

    /// What there is of its supervisor. A file that cannot be read now (too many are open, say) is no sign of its death: it is
    /// looked at again until it can be, or until the pod is to go anyhow.
    async fn find(&self) -> std::io::Result<Found> {
        let mut tries = 0;
        loop {
            let pod = self.pod();
            let is_going = pod.metadata.deletion_timestamp.is_some() || self.seen.borrow().is_gone;
            let why = match client::find(self.context.folder.path()) {
                Err(why) if !is_going => why,
                found => return found,
            };
            tries += 1;
            if tries == FINDS_UNTOLD {
                let folder = self.context.folder.path().display();
                tracing::warn!(pod = self.context.uid, %why, "a pod's supervisor cannot be looked for and is looked for again");
                let message = format!(
                    "error determining status: the state in {folder} cannot be read ({why}): what runs of the pod runs on, and is \
                     found when it can; delete the pod to have it ended"
                );
                self.agent().tell_pod(&pod, true, "FailedSync", message);
            }
            tokio::time::sleep(FIND_AGAIN).await;
        }
    }

    /// Listens to a supervisor from now on. Its first word is waited for: a decision without it would be about nothing.
    async fn watch(&mut self, supervisor: Supervisor) {
        let generation = self.generation;
        let news = self.news.0.clone();
        self.supervisor = Some(supervisor.clone());
        self.next_check = later(self.now(), CHECK);
        let states = match supervisor.watch().await {
            Ok(states) => states,
            Err(why) => {
                tracing::debug!(pod = self.context.uid, %why, "a supervisor cannot be watched");
                let _ = news.try_send(News::Lost(generation));
                return;
            }
        };
        let mut states = Box::pin(states);
        let mut first = tokio::time::timeout(FIRST_WORD, states.next()).await;
        if first.is_err() {
            // Stopped, perhaps before there was a worker: it is woken and waited for, as at any other time.
            if let Err(why) = self.context.clone().check(supervisor).await {
                tracing::warn!(pod = self.context.uid, why, "a supervisor is gone");
                let _ = news.try_send(News::Lost(generation));
                return;
            }
            first = tokio::time::timeout(FIRST_WORD, states.next()).await;
        }
        let is_heard = match first {
            Ok(Some(Ok(state))) => {
                self.take_state(state);
                self.life = life::Supervisor::Alive;
                true
            }
            _ => false,
        };
        self.tasks.spawn(async move {
            if !is_heard {
                // It is there and cannot be understood: not again at once.
                tokio::time::sleep(SILENCE).await;
            }
            while let Some(Ok(state)) = states.next().await {
                if news.send(News::State(generation, Box::new(state))).await.is_err() {
                    return;
                }
            }
            let _ = news.send(News::Lost(generation)).await;
        });
    }

    fn take_state(&mut self, state: PodState) {
        if let Some(why) = &state.not_durable {
            tracing::warn!(pod = self.context.uid, why, "a pod's state cannot be written down");
        }
        self.attempts = state.containers;
    }

    async fn hear(&mut self, news: News) {
        match news {
            News::State(generation, state) if generation == self.generation => {
                self.life = life::Supervisor::Alive;
                self.take_state(*state);
            }
            News::Lost(generation)
                if generation == self.generation
                    && self.supervisor.is_some()
                    && !self.under_way.contains(&Step::End) =>
            {
                self.recover().await;
            }
            News::State(..) | News::Lost(_) => {}
        }
    }

    fn decide(&mut self) -> Decision {
        let pod = self.pod();
        for (name, attempts) in &self.attempts {
            let container = find(&pod, name);
            messages::read(&self.context.folder, container, name, attempts, &mut self.messages);
        }
        let health: BTreeMap<String, Health> = self
            .probers
            .iter()
            .map(|(name, (attempt, prober))| {
                let health = Health {
                    attempt: *attempt,
                    started: prober.started(),
                    ready: prober.ready(),
                };
                (name.clone(), health)
            })
            .collect();
        let agent = self.agent();
        let is_gone = self.seen.borrow().is_gone;
        life::decide(&Sight {
            pod: &pod,
            is_gone,
            kept: &self.kept,
            attempts: &self.attempts,
            supervisor: self.life,
            is_prepared: self.is_prepared,
            troubles: &self.troubles,
            health: &health,
            messages: &self.messages,
            usage: self.usage.as_ref(),
            host_ip: &agent.address.to_string(),
            limits: agent.machine.limits(),
            now: self.now(),
        })
    }

    /// Keeps, says and does. Gives back when to decide again at the latest.
    fn apply(&mut self, decision: Decision) -> Option<Timestamp> {
        let pod = self.pod();
        let mut wake = decision.wake;
        if decision.kept != self.kept {
            self.kept = decision.kept;
            self.save();
        }
        for telling in decision.tellings {
            self.agent().tell(&pod, telling);
        }
        if decision.is_settled {
            self.publisher.publish(&decision.status);
        }
        let supervisor = self.supervisor.clone();
        let attempts = &self.attempts;
        self.view.send_modify(|view| {
            view.status = decision.status.clone();
            view.supervisor = supervisor;
            if view.attempts != *attempts {
                view.attempts = attempts.clone();
            }
        });
        let now = self.now();
        for step in decision.steps {
            let key = key_of(&step);
            // What is being prepared has to be there before it can be taken away.
            let is_early = matches!(key, Step::Remove | Step::Forget) && self.under_way.contains(&Step::Prepare);
            if is_early || self.under_way.contains(&key) {
                continue;
            }
            match self.pauses.get(&key) {
                Some((until, _)) if *until > now => wake = earlier(wake, *until),
                _ => self.take(key, step),
            }
        }
        for prober in self.probers.values().filter_map(|(_, prober)| prober.next_due()) {
            wake = earlier(wake, prober);
        }
        if self.life == life::Supervisor::Alive {
            if self.next_check <= now
                && !self.is_checking
                && let Some(supervisor) = self.supervisor.clone()
            {
                self.is_checking = true;
                let (context, generation) = (self.context.clone(), self.generation);
                self.chores
                    .spawn(async move { (None, Report::Checked(generation, context.check(supervisor).await)) });
            }
            if !self.is_checking {
                wake = earlier(wake, self.next_check);
            }
            if self.next_renewal <= now {
                self.next_renewal = later(now, RENEWAL);
                self.refresh();
            }
            wake = earlier(wake, self.next_renewal);
            if let Some(next) = self.measure(&pod, now) {
                wake = earlier(wake, next);
            }
        }
        wake
    }

    /// Before a step is taken. A full disk does not stop the pod: what could not be written is in memory and tried again
    /// with the next change.
    fn save(&self) {
        let folder = &self.context.folder;
        if !folder.path().exists() && self.kept.ended.is_some() {
            return;
        }
        if let Err(why) = folder.make().and_then(|()| folder.keep(&self.kept)) {
            tracing::warn!(pod = self.context.uid, %why, "what is to be kept of a pod cannot be written");
        }
    }
}

/// What had not ended has ended now, nobody knows how.
fn lose(attempts: &mut Attempts, now: Timestamp) {
    for attempt in attempts.values_mut().flat_map(BTreeMap::values_mut) {
        attempt.phase.lose(now);
    }
}

fn find<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    let mut all = spec.init_containers.iter().flatten().chain(&spec.containers);
    all.find(|container| container.name == name)
}

fn later(moment: Timestamp, by: SignedDuration) -> Timestamp {
    moment.saturating_add(by).unwrap_or(Timestamp::MAX)
}

fn earlier(wake: Option<Timestamp>, moment: Timestamp) -> Option<Timestamp> {
    Some(wake.map_or(moment, |wake| wake.min(moment)))
}

/// Never, if there is nothing to wait for.
async fn sleep_until(wake: Option<Timestamp>, now: Timestamp) {
    match wake {
        Some(wake) => {
            let wait = Duration::try_from(wake.duration_since(now)).unwrap_or_default();
            tokio::time::sleep(wait).await;
        }
        None => std::future::pending().await,
    }
}

/// A chore that panicked would be waited for for ever: the worker goes down with it, and the agent starts another.
fn sound<T>(done: Result<T, tokio::task::JoinError>) -> T {
    match done {
        Ok(report) => report,
        Err(lost) => std::panic::resume_unwind(lost.into_panic()),
    }
}
