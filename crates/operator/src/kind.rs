//! What a kind is to the runtime: one type per room, one method per move.
//!
//! The runtime knows nothing else of any kind. `docs/adding-a-kind.md` walks through an implementation.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use usher_engine::{Plan, Step};

use crate::error::Failure;
use crate::pass::Pass;
use crate::record::Record;
use crate::turn::Rank;
use crate::view::{View, Wake};

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

    /// How often the status of one resource may be written.
    fn pace(&self) -> Pace {
        Pace::default()
    }

    /// Whether `new` must be written before the pace allows it (a condition changed). `old` is what was last written.
    fn urgent(&self, _resource: &Self::Resource, _new: &Self::Status) -> bool {
        true
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
