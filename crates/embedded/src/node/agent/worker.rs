//! One pod's worker: it looks at everything, decides ([`life`](super::life)), keeps what must not be forgotten, and takes
//! the steps that are not under way. It ends when the pod is forgotten.
//!
//! Dropped at any point it leaves the pod's processes running and its folder telling where things were: the next worker
//! of the same pod goes on from there (N2).

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::chores::{Context, Started, Unprepared};
use super::folder::PodFolder;
use super::life::{self, Attempts, Decision, Doomed, Health, Kept, Sight, Step, Trouble};
use super::messages;
use super::publish::Publisher;
use super::surroundings::Surroundings;
use super::{Agent, Seen, View, admission};
use crate::node::hooks::{HookFailure, Moment, POST_START_WAITING_REASON};
use crate::node::probes::{self, Prober};
use crate::node::supervisor::client::{self, Found, Supervisor};
use crate::node::supervisor::protocol::{ExitReason, Phase, PodState};

/// A step that failed is tried again after this, then twice that, up to the longest.
const FIRST_RETRY: SignedDuration = SignedDuration::from_millis(500);
const LONGEST_RETRY: SignedDuration = SignedDuration::from_secs(10);
/// What cannot be started for want of an image or a config object: the reference's back-off.
const FIRST_TROUBLE: SignedDuration = SignedDuration::from_secs(10);
const LONGEST_TROUBLE: SignedDuration = SignedDuration::from_secs(300);
/// How often a supervisor is asked whether it is there: with the time it has to answer, well below 10 s (N12).
const CHECK: SignedDuration = SignedDuration::from_secs(3);
/// How often tokens are looked at.
const RENEWAL: SignedDuration = SignedDuration::from_secs(60);

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
    Removed(Result<(), String>),
    Forgotten(Result<(), String>),
    Probed(String, u32, probes::Kind, Option<probes::Answer>),
    Refreshed(Vec<String>),
    Checked(u64, Result<(), String>),
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
    next_renewal: Timestamp,
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
        let (is_adopted, kept) = match folder.kept() {
            Some(kept) => (true, kept),
            None => (
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
            next_renewal: now,
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
        loop {
            let decision = self.decide();
            let wake = self.apply(decision);
            if self.is_forgotten {
                return;
            }
            let mut alarm = pin!(sleep_until(wake, self.now()));
            tokio::select! {
                Some(news) = self.news.1.recv() => self.hear(news).await,
                Some(done) = self.chores.join_next() => {
                    if let Ok((step, report)) = done {
                        self.take_report(step, report).await;
                    }
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
            while let Some(Ok((step, report))) = self.chores.try_join_next() {
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
        match client::find(self.context.folder.path()) {
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
                lose(&mut self.attempts, self.now());
                // With nothing left to start, no supervisor is needed to say so.
                if self.kept.ended.is_some() {
                    self.life = life::Supervisor::Over;
                }
            }
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
        let first = tokio::time::timeout(Duration::from_secs(5), states.next()).await;
        if let Ok(Some(Ok(state))) = first {
            self.take_state(state);
            self.life = life::Supervisor::Alive;
        }
        self.tasks.spawn(async move {
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
                if generation == self.generation && self.supervisor.is_some() && !self.under_way.contains(&Step::End) =>
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
        self.tend_probers(&decision.up);
        // Probers that began just now are part of what is said: one decision later.
        self.publisher.publish(&decision.status);
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
            if self.under_way.contains(&key) {
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
                && let Some(supervisor) = self.supervisor.clone()
            {
                self.next_check = later(now, CHECK + SignedDuration::from_secs(12));
                let (context, generation) = (self.context.clone(), self.generation);
                self.chores
                    .spawn(async move { (None, Report::Checked(generation, context.check(supervisor).await)) });
            }
            wake = earlier(wake, self.next_check);
            if self.next_renewal <= now {
                self.next_renewal = later(now, RENEWAL);
                self.refresh();
            }
            wake = earlier(wake, self.next_renewal);
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

    fn take(&mut self, key: Step, step: Step) {
        let pod = self.pod();
        let context = self.context.clone();
        let address = self.kept.address.map(|address| address.to_string()).unwrap_or_default();
        let container = |name: &str| -> Option<Container> { find(&pod, name).cloned() };
        match step {
            Step::Prepare => {
                let Some(address) = self.address(&pod) else {
                    return;
                };
                self.spawn(key, async move { Report::Prepared(context.prepare(pod, address).await) });
            }
            Step::Start { container: name, attempt } => {
                if self.asked.contains(&(name.clone(), attempt)) {
                    return;
                }
                if let (Some(container), Some(supervisor)) = (container(&name), self.supervisor.clone()) {
                    self.spawn(key, async move {
                        let started = context.start(supervisor, pod, container, attempt, address).await;
                        Report::Started(name, attempt, started)
                    });
                }
            }
            Step::PostStart { container: name, attempt } => {
                if let (Some(container), Some(supervisor)) = (container(&name), self.supervisor.clone()) {
                    self.spawn(key, async move {
                        let moment = Moment::PostStart;
                        let done = context.hook(supervisor, pod, container, attempt, moment, address, None);
                        Report::PostStart(name, attempt, done.await)
                    });
                }
            }
            Step::PreStop {
                container: name,
                attempt,
                within,
            } => {
                if let (Some(container), Some(supervisor)) = (container(&name), self.supervisor.clone()) {
                    self.spawn(key, async move {
                        let moment = Moment::PreStop;
                        let done = context.hook(supervisor, pod, container, attempt, moment, address, Some(within));
                        Report::PreStop(name, attempt, done.await)
                    });
                }
            }
            Step::Stop {
                container: name,
                attempt,
                grace,
            } => {
                if let (Some(container), Some(supervisor)) = (container(&name), self.supervisor.clone()) {
                    self.spawn(key, async move {
                        let signal = super::launch::stop_signal(&context.agent.machine, &container);
                        let stopped = supervisor.stop(&name, attempt, signal, grace).await;
                        Report::Stopped(stopped.map_err(|why| why.to_string()))
                    });
                }
            }
            Step::End => {
                if let Some(supervisor) = self.supervisor.clone() {
                    self.spawn(key, async move {
                        Report::Ended(supervisor.end().await.map_err(|why| why.to_string()))
                    });
                }
            }
            Step::Remove => {
                let flushed = self.publisher.flushed();
                self.spawn(key, async move {
                    flushed.await;
                    Report::Removed(context.agent.remove_object(&pod).await)
                });
            }
            Step::Forget => {
                self.spawn(key, async move {
                    let folder = context.folder.clone();
                    let removed = tokio::task::spawn_blocking(move || folder.remove()).await;
                    let removed = removed.map_err(|why| why.to_string());
                    Report::Forgotten(removed.and_then(|done| done.map_err(|why| why.to_string())))
                });
            }
        }
    }

    fn spawn(&mut self, key: Step, chore: impl Future<Output = Report> + Send + 'static) {
        self.under_way.insert(key.clone());
        self.chores.spawn(async move { (Some(key), chore.await) });
    }

    /// The pod's address, taken and kept before anything is told of it.
    fn address(&mut self, pod: &Pod) -> Option<std::net::Ipv4Addr> {
        if let Some(address) = self.kept.address {
            return Some(address);
        }
        let agent = self.agent();
        let on_host = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
        let taken = if on_host {
            Ok(agent.address)
        } else {
            agent.machine.take_address(&self.context.uid)
        };
        match taken {
            Ok(address) => {
                self.kept.address = Some(address);
                self.save();
                Some(address)
            }
            Err(why) => {
                agent.tell_pod(pod, true, "FailedCreatePodSandBox", why);
                self.pause(Step::Prepare);
                None
            }
        }
    }

    fn pause(&mut self, step: Step) {
        let now = self.now();
        let (until, failures) = self.pauses.entry(step).or_insert((now, 0));
        let wait = FIRST_RETRY.saturating_mul(1 << (*failures).min(16)).min(LONGEST_RETRY);
        *failures += 1;
        *until = later(now, wait);
    }

    async fn take_report(&mut self, step: Option<Step>, report: Report) {
        if let Some(step) = &step {
            self.under_way.remove(step);
        }
        let failed = match report {
            Report::Prepared(Ok(supervisor)) => {
                self.is_prepared = true;
                self.generation += 1;
                self.watch(supervisor).await;
                None
            }
            Report::Prepared(Err(errors)) => {
                let pod = self.pod();
                for error in errors {
                    self.agent().tell_pod(&pod, true, error.reason, error.message);
                }
                step.clone()
            }
            Report::Started(container, attempt, started) => {
                self.started(container, attempt, started).await;
                None
            }
            Report::PostStart(container, attempt, done) => {
                self.post_started(&container, attempt, done);
                None
            }
            Report::PreStop(container, attempt, done) => {
                if let Err(why) = done {
                    tracing::debug!(pod = self.context.uid, container, %why, "a preStop hook failed");
                    let moment = Moment::PreStop;
                    let (pod, message) = (self.pod(), moment.failed_message().to_owned());
                    self.context
                        .tell(&pod, &container, true, moment.failed_reason(), message);
                }
                self.kept.container(&container).pre_stop = Some(attempt);
                self.save();
                None
            }
            Report::Ended(Ok(())) => {
                self.supervisor = None;
                self.generation += 1;
                self.life = life::Supervisor::Over;
                if let Some(state) = self.context.folder.state() {
                    self.take_state(state);
                }
                lose(&mut self.attempts, self.now());
                None
            }
            Report::Ended(Err(why)) => {
                tracing::debug!(pod = self.context.uid, why, "a supervisor did not end by itself");
                if let Some(supervisor) = self.supervisor.take() {
                    let _ = client::put_down(&supervisor, &self.context.uid).await;
                }
                self.recover().await;
                None
            }
            Report::Stopped(Err(why)) | Report::Removed(Err(why)) => {
                tracing::debug!(pod = self.context.uid, why, "a step failed and is tried again");
                step.clone()
            }
            Report::Stopped(Ok(())) | Report::Removed(Ok(())) => None,
            Report::Forgotten(Err(why)) => {
                tracing::warn!(pod = self.context.uid, why, "a pod's folder cannot be removed");
                step.clone()
            }
            Report::Forgotten(Ok(())) => {
                self.agent().machine.forget_pod(&self.context.uid);
                self.is_forgotten = true;
                None
            }
            Report::Probed(container, attempt, kind, answer) => {
                self.probed(&container, attempt, kind, answer);
                None
            }
            Report::Refreshed(errors) => {
                self.is_refreshing = false;
                let pod = self.pod();
                for message in errors {
                    self.agent().tell_pod(&pod, true, "FailedMount", message);
                }
                None
            }
            Report::Checked(generation, alive) => {
                self.next_check = later(self.now(), CHECK);
                if let Err(why) = alive
                    && generation == self.generation
                    && self.supervisor.is_some()
                {
                    tracing::warn!(pod = self.context.uid, why, "a supervisor is gone");
                    self.recover().await;
                }
                None
            }
        };
        match failed {
            Some(step) => self.pause(step),
            None => {
                if let Some(step) = step {
                    self.pauses.remove(&step);
                }
            }
        }
    }

    async fn started(&mut self, container: String, attempt: u32, started: Started) {
        match started {
            Started::Accepted => {
                self.troubles.remove(&container);
                self.asked.insert((container, attempt));
            }
            Started::Refused(refusal) => {
                let failures = self.troubles.get(&container).map_or(0, |trouble| trouble.failures);
                let wait = FIRST_TROUBLE.saturating_mul(1 << failures.min(16)).min(LONGEST_TROUBLE);
                let trouble = Trouble {
                    reason: refusal.reason.to_owned(),
                    message: refusal.message,
                    retry_at: later(self.now(), wait),
                    failures: failures + 1,
                };
                self.troubles.insert(container, trouble);
            }
            Started::Lost(why) => {
                tracing::debug!(pod = self.context.uid, why, "a supervisor was lost while it was asked");
                self.recover().await;
            }
        }
    }

    fn post_started(&mut self, container: &str, attempt: u32, done: Result<(), HookFailure>) {
        let now = self.now();
        match done {
            Ok(()) => self.kept.container(container).post_start = Some(attempt),
            Err(HookFailure(message)) => {
                let (pod, moment) = (self.pod(), Moment::PostStart);
                let told = moment.failed_message().to_owned();
                self.context.tell(&pod, container, true, moment.failed_reason(), told);
                self.kept.container(container).doomed = Some(Doomed {
                    attempt,
                    since: now,
                    grace_seconds: None,
                    message: moment.failed_reason().to_owned(),
                    waiting: Some((POST_START_WAITING_REASON.to_owned(), message)),
                });
            }
        }
        self.save();
    }

    /// A prober for each attempt that runs, and the questions that are due.
    fn tend_probers(&mut self, up: &BTreeMap<String, (u32, Timestamp)>) {
        let pod = self.pod();
        let now = self.now();
        self.probers
            .retain(|name, (attempt, _)| up.get(name).is_some_and(|(current, _)| current == attempt));
        let Some(supervisor) = self.supervisor.clone() else {
            return;
        };
        let address = self.kept.address.map(|address| address.to_string()).unwrap_or_default();
        for (name, (attempt, since)) in up {
            let Some(container) = find(&pod, name) else {
                continue;
            };
            let adopted = self.is_adopted.then(|| said_before(&pod, name, *attempt)).flatten();
            let (_, prober) = self.probers.entry(name.clone()).or_insert_with(|| {
                let prober = match adopted {
                    Some((started, ready)) => Prober::adopted(container, *since, started, ready, now),
                    None => Prober::new(container, *since),
                };
                (*attempt, prober)
            });
            if self.kept.ended.is_some() {
                prober.stop();
            }
            for kind in prober.take_due(now) {
                let asked = (self.context.clone(), supervisor.clone(), pod.clone(), container.clone());
                let (name, attempt, address) = (name.clone(), *attempt, address.clone());
                self.chores.spawn(async move {
                    let (context, supervisor, pod, container) = asked;
                    let answer = context.probe(supervisor, pod, container, attempt, kind, address);
                    (None, Report::Probed(name, attempt, kind, answer.await))
                });
            }
        }
    }

    fn probed(&mut self, container: &str, attempt: u32, kind: probes::Kind, answer: Option<probes::Answer>) {
        let now = self.now();
        let Some((_, prober)) = self.probers.get_mut(container).filter(|(current, _)| *current == attempt) else {
            return;
        };
        let Some(answer) = answer else {
            return;
        };
        let change = prober.took(kind, &answer, now);
        let pod = self.pod();
        if let Some(event) = change.event {
            self.context.tell(&pod, container, true, event.reason, event.message);
        }
        if let Some(killing) = change.killing {
            self.kept.container(container).doomed = Some(Doomed {
                attempt,
                since: now,
                grace_seconds: killing.grace_seconds,
                message: killing.message,
                waiting: None,
            });
            self.save();
        }
    }

    /// What the pod names has perhaps changed: config volumes follow, and what was missing may be there.
    fn config_changed(&mut self) {
        let pod = self.pod();
        let versions = Surroundings::new(&self.agent().machine, &pod).versions(&pod);
        if versions == self.versions {
            return;
        }
        self.versions = versions;
        self.pauses.remove(&Step::Prepare);
        let now = self.now();
        for trouble in self.troubles.values_mut() {
            if trouble.reason == "CreateContainerConfigError" {
                trouble.retry_at = now;
            }
        }
        self.refresh();
    }

    fn refresh(&mut self) {
        let Some(address) = self.kept.address.filter(|_| self.is_prepared && !self.is_refreshing) else {
            return;
        };
        self.is_refreshing = true;
        let (context, pod) = (self.context.clone(), self.pod());
        self.chores.spawn(async move {
            let errors = context.refresh(pod, address.to_string()).await;
            (None, Report::Refreshed(errors.iter().map(ToString::to_string).collect()))
        });
    }

    fn names_changed(&mut self) {
        if let Some(address) = self.kept.address.filter(|_| self.is_prepared)
            && let Err(why) = self.context.write_names(&self.pod(), address)
        {
            tracing::warn!(pod = self.context.uid, %why, "a pod's /etc/hosts cannot be written");
        }
    }

    fn images_changed(&mut self) {
        let now = self.now();
        for trouble in self.troubles.values_mut() {
            if matches!(trouble.reason.as_str(), "ErrImageNeverPull" | "InvalidImageName") {
                trouble.retry_at = now;
            }
        }
    }
}

/// A step without its times: what tells whether it is under way.
fn key_of(step: &Step) -> Step {
    match step.clone() {
        Step::PreStop { container, attempt, .. } => Step::PreStop {
            container,
            attempt,
            within: Duration::ZERO,
        },
        Step::Stop { container, attempt, .. } => Step::Stop {
            container,
            attempt,
            grace: Duration::ZERO,
        },
        step => step,
    }
}

/// What had not ended has ended now, nobody knows how.
fn lose(attempts: &mut Attempts, now: Timestamp) {
    for attempt in attempts.values_mut().flat_map(BTreeMap::values_mut) {
        let started_at = match &attempt.phase {
            Phase::Exited { .. } => continue,
            Phase::Starting => None,
            Phase::Running { started_at, .. } => Some(*started_at),
        };
        attempt.phase = Phase::Exited {
            code: 137,
            signal: None,
            started_at,
            finished_at: now,
            reason: ExitReason::ContainerStatusUnknown,
            message: String::new(),
        };
    }
}

/// What the pod's status said of an attempt before we came.
fn said_before(pod: &Pod, name: &str, attempt: u32) -> Option<(bool, bool)> {
    let status = pod.status.as_ref()?;
    let all = status.init_container_statuses.iter().flatten();
    let mut all = all.chain(status.container_statuses.iter().flatten());
    let found = all.find(|status| status.name == name && u32::try_from(status.restart_count) == Ok(attempt))?;
    Some((found.started == Some(true), found.ready))
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
