//! The operator process: watches, dispatchers, lease, health, and how they stop.
//!
//! Tasks: one per watched type (feeds the view), one dispatcher per kind (starts passes), the lease, the HTTP server, the
//! TLS port, the event writer. Shutdown travels one way: the stop signal ends dispatching, passes under way finish, then the
//! lease is given back, then the rest is dropped.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use usher_engine::{ErrorClass, ObjectKey};

use crate::boxed::PreviewInput;
pub use crate::boxed::{AnyKind, boxed};
use crate::client::MaySend;
use crate::clock::{Clock, SystemClock};
use crate::dispatch::dispatch;
use crate::error::Failure;
use crate::events::{self, EventSettings, EventSink, EventWriter};
use crate::feed::feed_in_order;
use crate::leadership::SharedLeadership;
use crate::lease::{self, LeaseConfig};
use crate::metrics::{Metrics, Present};
use crate::pass::Preview;
use crate::port::{Port, PortSettings};
use crate::queue::{Queue, QueueConfig};
use crate::serve::{self, Health};
use crate::shared::{Clients, Parts, QueueHandle, Shared};
use crate::tls::TlsError;
use crate::view::View;
use crate::window::Window;

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
    /// The TLS port; none without it.
    pub port: Option<PortSettings>,
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
            port: None,
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
    /// The TLS port.
    #[error(transparent)]
    Tls(#[from] TlsError),
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
            RunError::Tls(e) => e.class(),
            RunError::NotSynced { .. } => ErrorClass::Transient,
            RunError::Observe(e) => e.class(),
        }
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
    port: Option<Port>,
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
        let may_send: MaySend = {
            let (leadership, clock) = (leadership.clone(), clock.clone());
            Arc::new(move || leadership.may_act(clock.monotonic()))
        };
        let telling = crate::client::telling(config, may_send.clone())?;
        let clients = Clients {
            watch: crate::client::reading(config, "watch")?,
            write: crate::client::fenced(config, may_send)?,
        };
        let lease_client = crate::client::reading(config, "lease")?;
        let port = settings.port.clone().map(|port| Port::new(config, port)).transpose()?;
        let instance = EventSettings::new(settings.identity.clone());
        let (events, writer) = events::open(telling, instance, clock.clone());
        let mut operator = Self::assemble(kinds, settings, clients, lease_client, clock, leadership, events);
        operator.event_writer = Some(writer);
        operator.port = port;
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
            let handle = QueueHandle::new(name, kind.resource(), Queue::new(config));
            queues.insert(kind.name(), Arc::new(handle));
        }
        let mut registry = Registry::default();
        let metrics = Metrics::register(
            &mut registry,
            queues.values().map(|handle: &Arc<QueueHandle>| handle.name),
        );
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
        let shared = Arc::new(shared);
        registry.register_collector(Box::new(Present(shared.clone())));
        let window = Window::new(shared.clone());
        for kind in &kinds {
            kind.measure(&mut registry, &window);
        }
        Self {
            kinds,
            settings,
            shared,
            registry: Arc::new(registry),
            health,
            lease_client,
            event_writer: None,
            port: None,
        }
    }

    /// A way into the view while the operator runs: for tests of what finds and mends damage there.
    #[doc(hidden)]
    pub fn meddler(&self) -> impl Fn(&dyn Fn(&mut View)) + Send + Sync + 'static {
        let shared = self.shared.clone();
        move |meddle| shared.change(|view| meddle(view))
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
            port,
        } = self;
        let mut tasks: JoinSet<Result<(), RunError>> = JoinSet::new();
        // Events and the health server outlive the dispatchers: they stop when those have drained. The lease outlives
        // the events, which only its holder writes.
        let (late_stop, late) = watch::channel(false);
        let (last_stop, last) = watch::channel(false);
        let (telling, told) = oneshot::channel::<()>();
        if let Some(address) = settings.health_address {
            let (health, registry, late) = (health.clone(), registry.clone(), late.clone());
            let listener = serve::bind(address, "--health-address").await?;
            tasks.spawn(async move { Ok(serve::run(listener, health, registry, late).await?) });
        }
        if let Some(port) = port {
            let server = port
                .open(&shared, &health, settings.namespace.clone(), stop.clone())
                .await?;
            let late = late.clone();
            tasks.spawn(async move { Ok(server.run(late).await?) });
        }
        if let Some(writer) = event_writer {
            let late = late.clone();
            tasks.spawn(async move {
                writer.run(late).await;
                drop(telling);
                Ok(())
            });
        } else {
            drop(telling);
        }
        if let Some(config) = settings.lease.clone() {
            let (leadership, clock) = (shared.leadership.clone(), shared.clock.clone());
            tasks.spawn(async move { Ok(lease::run(lease_client, config, leadership, clock, last).await?) });
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
                    Err(panic) => ended_badly(&health, &panic),
                },
                Some(Err(panic)) = dispatching.join_next() => ended_badly(&health, &panic),
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
        let _ = tokio::time::timeout(Duration::from_secs(3), told).await;
        last_stop.send_replace(true);
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
        self.fill(wait).await?;
        let mut previews = Vec::with_capacity(resources.len());
        for (kind, key) in resources {
            let shared = &self.shared;
            let preview = match self.kinds.iter().find(|k| k.name() == *kind) {
                Some(kind) => kind.preview(PreviewInput { shared, key }).await?,
                None => None,
            };
            previews.push(preview);
        }
        Ok(previews)
    }

    /// Lists everything, once, and looks at it; reads only.
    pub async fn look<T>(self, wait: Duration, look: impl FnOnce(&View) -> T) -> Result<T, RunError> {
        self.fill(wait).await?;
        Ok(self.shared.view(look))
    }

    /// Waits for the first list of every type.
    async fn fill(&self, wait: Duration) -> Result<(), RunError> {
        let (shared, health) = (&self.shared, &self.health);
        let (synced, mut done) = watch::channel(shared.view(View::unsynced));
        let feeding = feed_in_order(shared.clone(), self.settings.namespace.clone(), health.clone(), synced);
        let ready = tokio::select! {
            () = feeding => false,
            answer = tokio::time::timeout(wait, done.wait_for(Vec::is_empty)) => answer.is_ok(),
        };
        if ready {
            return Ok(());
        }
        let what: Vec<_> = shared.view(View::unsynced).into_iter().map(|t| t.plural).collect();
        let problem = health.ready().err().unwrap_or_default().join("; ");
        Err(RunError::NotSynced {
            what: what.join(", "),
            seconds: wait.as_secs(),
            problem,
        })
    }
}

/// A task that everything rests on panicked: only a restart helps, and `/healthz` asks for it.
fn ended_badly(health: &Health, panic: &tokio::task::JoinError) {
    let sentence = format!("a task of the operator ended badly ({panic}); restart, and please report this as a bug");
    tracing::error!("{sentence}");
    health.end(sentence);
}
