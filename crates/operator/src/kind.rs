//! What a kind is to the runtime: one type per room, one method per move.
//!
//! The runtime knows nothing else of any kind. `docs/adding-a-kind.md` walks through an implementation.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::registry::Registry;
use serde::Serialize;
use usher_engine::{Moment, ObjectKey, Plan, Step};

use crate::error::Failure;
use crate::events::Within;
use crate::pass::Pass;
use crate::queue::Why;
use crate::record::Record;
use crate::turn::Rank;
use crate::view::{View, Wake};
use crate::window::Window;

/// A plan of a kind.
pub type PlanOf<K> = Plan<<K as Kind>::Step, <K as Kind>::Status>;

/// One kind of resource that Usher runs.
pub trait Kind: Send + Sync + 'static {
    /// What is planned for: the slim record of the custom resource (`api.rs`).
    type Resource: Record;
    /// What only I/O can tell (the data plane); `()` where the API is the whole world.
    type Fetched: Send + Sync;
    /// What a plan is made from: slices of the view and what was fetched (`observe.rs`).
    type Observation<'v>;
    /// The status, whole (`api.rs`).
    type Status: Serialize + Clone + Send + Sync;
    /// The steps this kind can take (`plan.rs`).
    type Step: Step;

    /// The kind's name in manifests, logs and `usher plan`.
    const NAME: &'static str;
    /// The queue's name in metrics.
    const QUEUE: &'static str;
    /// Passes at once. Few for kinds whose passes are long; many where a pass is one small write.
    const PASSES_AT_ONCE: usize = 5;

    /// Says which types the kind reads, how they are indexed, and whom their changes wake (`wake.rs`).
    fn register(&self, view: &mut View);

    /// I/O in: asks the data plane. Holds no lock; may take until the pass's time is over.
    fn fetch(
        &self,
        pass: &Pass,
        resource: &Self::Resource,
    ) -> impl Future<Output = Result<Self::Fetched, Failure>> + Send;

    /// Slices of the view, borrowed: what the plan is made from. No I/O.
    fn observe<'v>(
        &self,
        view: &'v View,
        resource: &'v Self::Resource,
        fetched: &'v Self::Fetched,
    ) -> Self::Observation<'v>;

    /// The decision. Pure: a function of its arguments.
    fn plan(
        &self,
        resource: &Self::Resource,
        observation: &Self::Observation<'_>,
        now: Timestamp,
    ) -> Plan<Self::Step, Self::Status>;

    /// I/O out: performs one step, guarded by what it expects to find.
    fn act(
        &self,
        pass: &Pass,
        resource: &Self::Resource,
        step: &Self::Step,
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// The status was written and the server answered with `revision`; in-memory consequences, if any.
    fn recorded(
        &self,
        _view: &mut View,
        _resource: &Self::Resource,
        _status: &Self::Status,
        _revision: u64,
    ) -> Vec<Wake> {
        Vec::new()
    }

    /// How urgent the writes of a step are, or (`None`) that of the status: when more wait than may be in flight, the
    /// smallest rank goes first.
    fn rank(&self, _step: Option<&Self::Step>, _status: &Self::Status) -> Rank {
        Rank::default()
    }

    /// The larger object on which events of this reason are summed up where there are too many to write each.
    fn within(&self, _view: &View, _resource: &Self::Resource, _reason: &'static str) -> Option<Within> {
        None
    }

    /// Puts the kind's own metrics into the registry, before anything runs. What follows from the view is best read through
    /// the window by a `Collector` when somebody asks: it costs events nothing, and a series goes with its object.
    fn measure(&self, _registry: &mut Registry, _window: &Window) {}

    /// A pass is over. For the kind's own metrics and log lines: it decides nothing.
    fn passed(&self, _view: &View, _pass: &Passed<'_, Self>)
    where
        Self: Sized,
    {
    }

    /// How often the status of one resource may be written.
    fn pace(&self) -> Pace {
        Pace::default()
    }

    /// Whether `new` must be written before the pace allows it (a condition changed). `old` is what was last written.
    fn urgent(&self, _resource: &Self::Resource, _new: &Self::Status) -> bool {
        true
    }

    /// How long writing `new` may be put off while all places for writes are taken; `None`: it takes its turn with the
    /// rest. For what the next write says anyway, and for what is merely older by then. A resource of which nothing was
    /// ever reported waits until there is a place.
    fn may_wait(&self, _resource: &Self::Resource, _new: &Self::Status) -> Option<Duration> {
        None
    }
}

/// Limits on status writes per resource: a busy resource reports its latest state, not every state it was in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace {
    /// At most one ordinary write in this time.
    pub ordinary: Duration,
    /// At most one urgent write in this time.
    pub urgent: Duration,
}

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it planned.
    Success,
    /// There was nothing to look at any more.
    Gone,
    /// The world changed under it: planned again.
    Moved,
    /// Put off until our own last write is in view.
    Stale,
    /// Put off: somebody else leads.
    NotLeader,
    /// Put off: the server asked for time.
    HeldBack,
    /// Something failed.
    Error,
    /// It took too long.
    Timeout,
    /// It panicked.
    Panic,
}

impl Outcome {
    /// The label of metrics.
    pub fn label(self) -> &'static str {
        match self {
            Outcome::Success => "success",
            Outcome::Gone => "gone",
            Outcome::Moved => "moved",
            Outcome::Stale => "stale",
            Outcome::NotLeader => "not_leader",
            Outcome::HeldBack => "held_back",
            Outcome::Error => "error",
            Outcome::Timeout => "timeout",
            Outcome::Panic => "panic",
        }
    }

    /// Whether what asked for this pass was served well, or not; `None` where another pass follows that serves it.
    pub fn verdict(self) -> Option<bool> {
        match self {
            Outcome::Success | Outcome::Gone => Some(true),
            Outcome::Error | Outcome::Timeout | Outcome::Panic => Some(false),
            Outcome::Moved | Outcome::Stale | Outcome::NotLeader | Outcome::HeldBack => None,
        }
    }
}

/// A pass that is over.
pub struct Passed<'p, K: Kind> {
    /// Of which resource.
    pub key: &'p ObjectKey,
    /// How it ended.
    pub outcome: Outcome,
    /// What asked for it, and for the passes before it that were put off, each with how often it did.
    pub whys: &'p [(Why, u32)],
    /// How long it took.
    pub took: Duration,
    /// When it ended.
    pub now: Moment,
    /// The resource as it was planned for, and the plan; `None` where it did not come to that, or both were lost.
    pub planned: Option<(&'p K::Resource, &'p PlanOf<K>)>,
    /// Whether the planned status was written.
    pub reported: bool,
}

impl<K: Kind> fmt::Debug for Passed<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passed")
            .field("key", self.key)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}
