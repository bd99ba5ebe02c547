//! The operator process: watches, dispatchers, lease, health, and how they stop.
//!
//! Tasks: one per watched type (feeds the view), one dispatcher per kind (starts passes), the lease, the HTTP server,
//! the event writer. Shutdown travels one way: the stop signal ends dispatching, passes under way finish, then the
//! lease is given back, then the rest is dropped.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kube::api::DynamicObject;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use usher_engine::{ErrorClass, ObjectKey};

use crate::clock::{Clock, SystemClock};
use crate::error::Failure;
use crate::events::{self, EventSettings, EventSink, EventWriter};
use crate::kind::Kind;
use crate::leadership::SharedLeadership;
use crate::lease::{self, LeaseConfig};
use crate::metrics::{KindLabel, Metrics, QueueLabel, ResultLabel};
use crate::pass::{self, Pass, Preview};
use crate::queue::{Finish, Job, Queue, QueueConfig, Why};
use crate::record::{self, ApiType, Unreadable};
use crate::serve::{self, Health};
use crate::shared::{Clients, Parts, QueueHandle, Shared};
use crate::view::{Event, View, Wake};
use crate::watch as watches;
use crate::written::Reader;

/// How often a standby looks whether it leads, besides being told.
const LEADER_LOOK: Duration = Duration::from_millis(200);
/// How long passes under way may take to finish after the stop signal. Less than Kubernetes' 30 s grace period.
const DRAIN: Duration = Duration::from_secs(20);

/// What the operator can be told; all have defaults that suit production.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Who this process is, in events and in the lease.
    pub identity: String,
    /// Only this namespace; all of them when `None`.
    pub namespace: Option<String>,
    /// Leadership by lease; without one this process acts at once.
    pub lease: Option<LeaseConfig>,
    /// Where `/healthz`, `/readyz` and `/metrics` answer.
    pub health_address: Option<SocketAddr>,
    /// Back-off and retry limits; passes at once where it is set.
    pub queue: QueueConfig,
    /// Passes at once per kind, over the kind's own default.
    pub passes_at_once: Option<usize>,
    /// Longest time of one pass.
    pub pass_timeout: Duration,
    /// API writes in flight.
    pub writes_at_once: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            identity: "usher".to_owned(),
            namespace: None,
            lease: None,
            health_address: None,
            queue: QueueConfig::default(),
            passes_at_once: None,
            pass_timeout: Duration::from_secs(90),
            writes_at_once: 64,
        }
    }
}

/// Why the operator could not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No client.
    #[error(transparent)]
    Client(#[from] crate::client::ClientError),
    /// The lease.
    #[error(transparent)]
    Lease(#[from] lease::LeaseError),
    /// The health server.
    #[error(transparent)]
    Serve(#[from] serve::ServeError),
    /// `usher plan`: the API did not answer in time.
    #[error("the API server did not give a complete list of {what} within {seconds} s: {problem}")]
    NotSynced {
        /// Which types are missing.
        what: String,
        /// How long we waited.
        seconds: u64,
        /// The last problem seen.
        problem: String,
    },
    /// `usher plan`: no such object.
    #[error("{kind} {key} does not exist; `kubectl get {plural} -n {namespace}` lists what does")]
    NotFound {
        /// Which kind.
        kind: &'static str,
        /// Which object.
        key: ObjectKey,
        /// Its plural.
        plural: &'static str,
        /// Its namespace.
        namespace: String,
    },
    /// `usher plan`: the data plane could not be asked.
    #[error(transparent)]
    Observe(#[from] Failure),
}

impl RunError {
    /// What it means.
    pub fn class(&self) -> ErrorClass {
        match self {
            RunError::Client(_) | RunError::Serve(_) | RunError::NotFound { .. } => ErrorClass::Permanent,
            RunError::Lease(e) => e.class(),
            RunError::NotSynced { .. } => ErrorClass::Transient,
            RunError::Observe(e) => e.class(),
        }
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A kind whose types are not known at this point: what a kind's crate hands to the binary.
pub trait AnyKind: Send + Sync {
    /// The kind's name.
    fn name(&self) -> &'static str;
    /// The resource it plans for.
    fn resource(&self) -> ApiType;
    /// Whether an object can be read into the view; one that cannot is left out of it, and no plan is made for it.
    fn read(&self, object: &DynamicObject) -> Result<(), Unreadable>;
    #[doc(hidden)]
    fn queue(&self, settings: &Settings) -> (&'static str, QueueConfig);
    #[doc(hidden)]
    fn register(&self, view: &mut View);
    #[doc(hidden)]
    fn pass<'a>(&'a self, pass: PassInput<'a>) -> Boxed<'a, PassOutput>;
    #[doc(hidden)]
    fn preview<'a>(&'a self, pass: PreviewInput<'a>) -> Boxed<'a, Result<Option<Preview>, Failure>>;
}

/// Inside of [`AnyKind::pass`].
#[derive(Debug)]
pub struct PassInput<'a> {
    shared: &'a Arc<Shared>,
    job: &'a Job<ObjectKey>,
}

/// Inside of [`AnyKind::pass`].
#[derive(Debug)]
pub struct PassOutput(pass::Ended);

/// Inside of [`AnyKind::preview`].
#[derive(Debug)]
pub struct PreviewInput<'a> {
    shared: &'a Arc<Shared>,
    key: &'a ObjectKey,
}

struct Boxing<K>(K);

/// Makes a kind ready to be run beside others.
pub fn boxed<K: Kind>(kind: K) -> Box<dyn AnyKind> {
    Box::new(Boxing(kind))
}

impl<K: Kind> AnyKind for Boxing<K> {
    fn name(&self) -> &'static str {
        K::NAME
    }

    fn resource(&self) -> ApiType {
        <K::Resource as crate::record::Record>::TYPE
    }

    fn read(&self, object: &DynamicObject) -> Result<(), Unreadable> {
        record::read::<K::Resource>(object).map(drop)
    }

    fn queue(&self, settings: &Settings) -> (&'static str, QueueConfig) {
        let passes_at_once = settings.passes_at_once.unwrap_or(K::PASSES_AT_ONCE);
        (
            K::QUEUE,
            QueueConfig {
                passes_at_once,
                ..settings.queue
            },
        )
    }

    fn register(&self, view: &mut View) {
        self.0.register(view);
    }

    fn pass<'a>(&'a self, input: PassInput<'a>) -> Boxed<'a, PassOutput> {
        Box::pin(async move { PassOutput(pass::run(&self.0, input.shared, input.job).await) })
    }

    fn preview<'a>(&'a self, input: PreviewInput<'a>) -> Boxed<'a, Result<Option<Preview>, Failure>> {
        Box::pin(async move {
            let reader = Reader {
                kind: K::NAME,
                key: input.key.clone(),
            };
            let hands = Pass::new(input.shared.clone(), reader);
            let Some(resource) = input.shared.view(|view| view.get::<K::Resource>(input.key).cloned()) else {
                return Ok(None);
            };
            let fetched = self.0.fetch(&hands, &resource).await?;
            let now = input.shared.clock.wall();
            Ok(input
                .shared
                .view(|view| pass::preview(&self.0, view, input.key, &fetched, now)))
        })
    }
}

/// Feeds the view and wakes whom that concerns.
struct Feed {
    shared: Arc<Shared>,
    health: Health,
    synced: watch::Sender<Vec<ApiType>>,
    problem: watch::Sender<String>,
}

impl watches::Sink for Feed {
    fn event(&mut self, kind: ApiType, event: Event) {
        let healed = matches!(event, Event::ListDone { .. } | Event::Resumed);
        let listed = matches!(event, Event::ListDone { .. });
        let label = KindLabel { kind: kind.kind };
        let (outcome, unsynced, count) = self.shared.change(|view| {
            let outcome = view.apply(kind, event);
            let count = view.counts().find(|(t, _)| *t == kind).map_or(0, |(_, n)| n);
            (outcome, if listed { view.unsynced() } else { Vec::new() }, count)
        });
        if let Some(unreadable) = &outcome.unreadable {
            tracing::error!(kind = kind.kind, object = unreadable.object, "{unreadable}");
            self.shared.metrics.unreadable.get_or_create(&label).inc();
        }
        self.shared
            .metrics
            .records
            .get_or_create(&label)
            .set(i64::try_from(count).unwrap_or(i64::MAX));
        let waiting = self.shared.waiting_for(kind, &outcome.touched, outcome.advanced);
        let echoes = waiting.into_iter().map(|r| Wake::now(r.kind, r.key, Why("echo")));
        self.shared.wake(echoes.chain(outcome.wakes));
        if healed {
            self.health.set(kind.plural, Ok(()));
        }
        if listed {
            tracing::info!(kind = kind.kind, objects = count, "list complete");
            self.shared.metrics.lists.get_or_create(&label).inc();
            self.synced.send_replace(unsynced);
        }
    }

    fn broke(&mut self, kind: ApiType, problem: &str, wait: Duration) {
        let at = self.shared.clock.wall();
        self.shared.change(|view| view.apply(kind, Event::Interrupted { at }));
        self.shared
            .metrics
            .watch_breaks
            .get_or_create(&KindLabel { kind: kind.kind })
            .inc();
        let hint = hint(problem);
        let sentence = format!("watch of {} broke: {problem}{hint}", kind.plural);
        tracing::warn!(kind = kind.kind, again_in_ms = wait.as_millis(), "{sentence}");
        self.health.set(kind.plural, Err(sentence.clone()));
        self.problem.send_replace(sentence);
    }
}

/// What to do about the two problems that do not go away by themselves.
fn hint(problem: &str) -> &'static str {
    if problem.contains("404") || problem.contains("could not find the requested resource") {
        "; the CRD is not installed: `usher crds | kubectl apply --server-side -f -`"
    } else if problem.contains("403") || problem.contains("forbidden") {
        "; the operator lacks the right to list and watch it: `usher install`, or see deploy/rbac.yaml"
    } else {
        ""
    }
}

/// Everything that runs, before it runs.
pub struct Operator {
    kinds: Vec<Arc<dyn AnyKind>>,
    settings: Settings,
    shared: Arc<Shared>,
    registry: Arc<Registry>,
    health: Health,
    lease_client: kube::Client,
    event_writer: Option<EventWriter>,
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Operator {
    /// Connects; nothing runs yet.
    pub fn new(config: &kube::Config, kinds: Vec<Box<dyn AnyKind>>, settings: Settings) -> Result<Self, RunError> {
        let clock = Arc::new(SystemClock::default());
        let leadership = match &settings.lease {
            Some(_) => SharedLeadership::never_held(),
            None => SharedLeadership::without_lease(),
        };
        let may_send = {
            let (leadership, clock) = (leadership.clone(), clock.clone());
            Arc::new(move || leadership.may_act(clock.monotonic()))
        };
        let clients = Clients {
            watch: crate::client::reading(config, "watch")?,
            write: crate::client::fenced(config, may_send)?,
        };
        let lease_client = crate::client::reading(config, "lease")?;
        let instance = EventSettings::new(settings.identity.clone());
        let (events, writer) = events::open(crate::client::reading(config, "events")?, instance, clock.clone());
        let mut operator = Self::assemble(kinds, settings, clients, lease_client, clock, leadership, events);
        operator.event_writer = Some(writer);
        Ok(operator)
    }

    fn assemble(
        kinds: Vec<Box<dyn AnyKind>>,
        settings: Settings,
        clients: Clients,
        lease_client: kube::Client,
        clock: Arc<dyn Clock>,
        leadership: SharedLeadership,
        events: EventSink,
    ) -> Self {
        let kinds: Vec<Arc<dyn AnyKind>> = kinds.into_iter().map(Arc::from).collect();
        let mut view = View::default();
        let mut queues = BTreeMap::new();
        for kind in &kinds {
            kind.register(&mut view);
            let (name, config) = kind.queue(&settings);
            queues.insert(kind.name(), Arc::new(QueueHandle::new(name, Queue::new(config))));
        }
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let health = Health::new();
        for kind in view.types() {
            health.set(kind.plural, Err(format!("{} are not listed yet", kind.plural)));
        }
        let shared = Shared::new(Parts {
            view,
            queues,
            clients,
            clock,
            leadership,
            metrics,
            events,
            writes_at_once: settings.writes_at_once,
        });
        Self {
            kinds,
            settings,
            shared: Arc::new(shared),
            registry: Arc::new(registry),
            health,
            lease_client,
            event_writer: None,
        }
    }

    /// Runs until `stop` turns true, then stops in order.
    pub async fn run(self, mut stop: watch::Receiver<bool>) -> Result<(), RunError> {
        let Self {
            kinds,
            settings,
            shared,
            registry,
            health,
            lease_client,
            event_writer,
        } = self;
        let mut tasks: JoinSet<Result<(), RunError>> = JoinSet::new();
        // The lease and the health server outlive the dispatchers: they stop when those have drained.
        let (late_stop, late) = watch::channel(false);
        if let Some(address) = settings.health_address {
            let (health, registry, late) = (health.clone(), registry.clone(), late.clone());
            let listener = serve::bind(address, "--health-address").await?;
            tasks.spawn(async move { Ok(serve::run(listener, health, registry, late).await?) });
        }
        if let Some(writer) = event_writer {
            let late = late.clone();
            tasks.spawn(async move {
                writer.run(late).await;
                Ok(())
            });
        }
        if let Some(config) = settings.lease.clone() {
            let (leadership, clock, late) = (shared.leadership.clone(), shared.clock.clone(), late.clone());
            tasks.spawn(async move { Ok(lease::run(lease_client, config, leadership, clock, late).await?) });
        }
        let (synced, _) = watch::channel(shared.view(View::unsynced));
        let mut feeding = JoinSet::new();
        feeding.spawn(feed_in_order(
            shared.clone(),
            settings.namespace.clone(),
            health.clone(),
            synced.clone(),
        ));
        let mut dispatching = JoinSet::new();
        for kind in kinds {
            let (shared, synced, stop) = (shared.clone(), synced.subscribe(), stop.clone());
            dispatching.spawn(dispatch(kind, shared, settings.pass_timeout, synced, stop));
        }
        let failure = loop {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break None,
                Some(ended) = tasks.join_next() => match ended {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => break Some(error),
                    Err(panic) => tracing::error!("a task ended badly: {panic}"),
                },
            }
        };
        tracing::info!("stopping: passes under way finish, no new ones start");
        health.set("stopping", Err("the operator is stopping".to_owned()));
        if failure.is_none() {
            let drained = tokio::time::timeout(DRAIN, async { while dispatching.join_next().await.is_some() {} }).await;
            if drained.is_err() {
                tracing::warn!("passes still under way after {} s; they are dropped", DRAIN.as_secs());
            }
        }
        dispatching.abort_all();
        feeding.abort_all();
        late_stop.send_replace(true);
        let _ = tokio::time::timeout(Duration::from_secs(5), async {
            while tasks.join_next().await.is_some() {}
        })
        .await;
        match failure {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// What `kind` would do next for one resource; reads only.
    pub async fn preview(self, kind: &'static str, key: &ObjectKey, wait: Duration) -> Result<Preview, RunError> {
        let plural = self
            .kinds
            .iter()
            .find(|k| k.name() == kind)
            .map_or("api-resources", |k| k.resource().plural);
        let mut previews = self.previews(&[(kind, key.clone())], wait).await?;
        previews.pop().flatten().ok_or_else(|| RunError::NotFound {
            kind,
            key: key.clone(),
            plural,
            namespace: key.namespace().to_owned(),
        })
    }

    /// What would be done next for several resources, all seen in one view; reads only. `None` where there is no such
    /// resource.
    pub async fn previews(
        self,
        resources: &[(&'static str, ObjectKey)],
        wait: Duration,
    ) -> Result<Vec<Option<Preview>>, RunError> {
        let Self {
            kinds,
            settings,
            shared,
            health,
            ..
        } = self;
        let (synced, mut done) = watch::channel(shared.view(View::unsynced));
        let feeding = feed_in_order(shared.clone(), settings.namespace.clone(), health.clone(), synced);
        let ready = tokio::select! {
            () = feeding => false,
            answer = tokio::time::timeout(wait, done.wait_for(Vec::is_empty)) => answer.is_ok(),
        };
        if !ready {
            let what: Vec<_> = shared.view(View::unsynced).into_iter().map(|t| t.plural).collect();
            let problem = health.ready().err().unwrap_or_default().join("; ");
            return Err(RunError::NotSynced {
                what: what.join(", "),
                seconds: wait.as_secs(),
                problem,
            });
        }
        let mut previews = Vec::with_capacity(resources.len());
        for (kind, key) in resources {
            let preview = match kinds.iter().find(|k| k.name() == *kind) {
                Some(kind) => kind.preview(PreviewInput { shared: &shared, key }).await?,
                None => None,
            };
            previews.push(preview);
        }
        Ok(previews)
    }
}

/// Starts the watches one after the other, each when the one before has its first list: a kind may rely on a later
/// type's list being newer than an earlier one's.
async fn feed_in_order(
    shared: Arc<Shared>,
    namespace: Option<String>,
    health: Health,
    synced: watch::Sender<Vec<ApiType>>,
) {
    let mut running = JoinSet::new();
    let (problem, _) = watch::channel(String::new());
    for kind in shared.view(|view| view.types().to_vec()) {
        let feed = Feed {
            shared: shared.clone(),
            health: health.clone(),
            synced: synced.clone(),
            problem: problem.clone(),
        };
        running.spawn(watches::run(
            shared.clients.watch.clone(),
            kind,
            namespace.clone(),
            feed,
        ));
        let mut now_synced = synced.subscribe();
        if now_synced.wait_for(|unsynced| !unsynced.contains(&kind)).await.is_err() {
            return;
        }
    }
    while running.join_next().await.is_some() {}
}

/// Starts one kind's passes as they come due, and takes back their ends.
async fn dispatch(
    kind: Arc<dyn AnyKind>,
    shared: Arc<Shared>,
    pass_timeout: Duration,
    mut synced: watch::Receiver<Vec<ApiType>>,
    mut stop: watch::Receiver<bool>,
) {
    let Some(handle) = shared.queues.get(kind.name()).cloned() else {
        return;
    };
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => return,
        ready = synced.wait_for(Vec::is_empty) => if ready.is_err() { return },
    }
    let mut running: JoinSet<()> = JoinSet::new();
    let mut keys: BTreeMap<Id, ObjectKey> = BTreeMap::new();
    while !*stop.borrow() {
        let leading = shared.may_act();
        shared.metrics.leader.set(i64::from(leading));
        while leading && let Some(job) = pop(&handle, &shared) {
            let key = job.key.clone();
            let task = running.spawn(one(kind.clone(), shared.clone(), handle.clone(), job, pass_timeout));
            keys.insert(task.id(), key);
        }
        let until_due = match handle.lock().next_due() {
            Some(due) if leading => due.since(shared.clock.monotonic()),
            _ => LEADER_LOOK,
        };
        tokio::select! {
            () = handle.bell.notified() => {}
            Some(ended) = running.join_next_with_id(), if !running.is_empty() => {
                take_back(ended, &mut keys, kind.name(), &handle, &shared);
            }
            () = tokio::time::sleep(until_due.min(Duration::from_secs(1))) => {}
            // Whoever could stop us is gone: so are we, as in `run`.
            changed = stop.changed() => if changed.is_err() { break },
        }
    }
    while let Some(ended) = running.join_next_with_id().await {
        take_back(ended, &mut keys, kind.name(), &handle, &shared);
    }
}

fn pop(handle: &QueueHandle, shared: &Shared) -> Option<Job<ObjectKey>> {
    let mut queue = handle.lock();
    let job = queue.pop(shared.clock.monotonic());
    let label = QueueLabel { name: handle.name };
    shared
        .metrics
        .depth
        .get_or_create(&label)
        .set(i64::try_from(queue.len()).unwrap_or(i64::MAX));
    drop(queue);
    if let Some(job) = &job {
        shared
            .metrics
            .queue_latency
            .get_or_create(&label)
            .observe(job.waited.as_secs_f64());
        if job.attempt > 0 {
            shared.metrics.retries.get_or_create(&label).inc();
        }
    }
    job
}

/// One pass within its time, from start to the queue's being told how it ended.
async fn one(
    kind: Arc<dyn AnyKind>,
    shared: Arc<Shared>,
    handle: Arc<QueueHandle>,
    job: Job<ObjectKey>,
    pass_timeout: Duration,
) {
    let label = KindLabel { kind: kind.name() };
    shared.metrics.inflight.get_or_create(&label).inc();
    let begun = shared.clock.monotonic();
    let ended = match tokio::time::timeout(
        pass_timeout,
        kind.pass(PassInput {
            shared: &shared,
            job: &job,
        }),
    )
    .await
    {
        Ok(PassOutput(ended)) => ended,
        Err(_) => {
            tracing::error!(kind = kind.name(), key = %job.key, "the pass took longer than {} s; trying again", pass_timeout.as_secs());
            pass::Ended {
                finish: Finish::Failed,
                result: "timeout",
            }
        }
    };
    let now = shared.clock.monotonic();
    let label = ResultLabel {
        kind: kind.name(),
        result: ended.result,
    };
    shared.metrics.passes.get_or_create(&label).inc();
    shared
        .metrics
        .pass_duration
        .get_or_create(&label)
        .observe(now.since(begun).as_secs_f64());
    shared
        .metrics
        .inflight
        .get_or_create(&KindLabel { kind: kind.name() })
        .dec();
    handle.lock().finish(&job.key, now, ended.finish);
}

/// A pass that panicked has not told the queue; nothing else may be lost by it.
fn take_back(
    ended: Result<(Id, ()), tokio::task::JoinError>,
    keys: &mut BTreeMap<Id, ObjectKey>,
    kind: &'static str,
    handle: &QueueHandle,
    shared: &Shared,
) {
    match ended {
        Ok((id, ())) => drop(keys.remove(&id)),
        Err(error) => {
            if let Some(key) = keys.remove(&error.id()) {
                tracing::error!(kind, %key, "a pass panicked: {error}; please report this as a bug");
                let label = ResultLabel { kind, result: "panic" };
                shared.metrics.passes.get_or_create(&label).inc();
                shared.metrics.inflight.get_or_create(&KindLabel { kind }).dec();
                handle.lock().finish(&key, shared.clock.monotonic(), Finish::Failed);
            }
        }
    }
}
