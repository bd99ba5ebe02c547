//! What works beside the API server: the loops that bring a cluster back to what its objects say (E3).
//!
//! - [`driver`]: one queue for all of them. It watches the store, tells every controller of every change, and runs one
//!   `sync` after the other; [`crate::Manual`] does so by hand, [`crate::Cluster::start`] in one task.
//! - [`garbage`]: dependents go with their owners (C1). [`namespaces`]: contents go with their namespace (O15).
//!   [`definitions`]: instances go with their CRD (D6). [`events`]: Events go after an hour. [`compaction`]: history goes
//!   after five minutes (S7).
//!
//! - [`accounts`], [`certificates`], [`tokens`]: what each namespace and each account has (C2). [`endpoints`]: whom a
//!   Service leads to (C6). [`volumes`], [`protection`]: claims and their volumes (C7). [`disruption`]: how many pods may
//!   go (C8). [`nodes`], [`pod_garbage`]: nodes that are lost, and their pods (C9).
//! - [`deployments`], [`replica_sets`], [`stateful_sets`]: workloads and their pods (C4, C3, C5). They share [`pods`] (what
//!   pods are asked), [`ownership`] (adoption and release), [`templates`] and [`batches`].
//! - The scheduler and the hollow nodes are controllers too: [`crate::scheduler`], [`crate::node::hollow`].
//! - [`mirror`]: the objects they look at, decoded once. [`recorder`]: the events they write. [`glimpse`]: what those who
//!   follow all pods have to know of each.
//!
//! A controller is level-triggered: `sync(key)` looks at what is there and does what is missing. What it keeps in memory
//! comes from the log alone and is made anew from a list ([`Control::begin`]), so it can be killed between any two
//! writes. None of them polls; when nothing is written and nothing is due, nothing runs.

mod accounts;
mod batches;
pub(crate) mod census;
pub(crate) mod certificates;
mod compaction;
mod definitions;
mod deployments;
mod disruption;
pub(crate) mod driver;
mod endpoints;
mod events;
mod garbage;
mod glimpse;
pub(crate) mod hand;
#[cfg(test)]
mod killed_workloads;
pub(crate) mod mirror;
mod namespaces;
mod nodes;
mod ownership;
mod pod_garbage;
pub(crate) mod pods;
mod protection;
pub(crate) mod recorder;
mod replica_sets;
mod revisions;
mod stateful_sets;
mod templates;
#[cfg(test)]
mod tests;
mod tokens;
pub(crate) mod volumes;
mod workloads;

use std::collections::BTreeSet;
use std::fmt;

use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::fault::Fault;
use crate::store::{Entry, LogEntry};

pub(crate) use census::Census;
pub(crate) use hand::Hand;

/// Which controllers there are. Work is offered in this order: dependents are collected before the namespace or the
/// definition that they need goes; and what happens to many pods at once happens before those who count them look, who
/// then write one status for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    GarbageCollector,
    Namespaces,
    /// Gives pods their nodes (K1, K2).
    Scheduler,
    /// The nodes of `Options.nodes` that run nothing (11.1).
    HollowNodes,
    /// Makes the account `default` in each namespace.
    ServiceAccounts,
    /// Makes the ConfigMap `kube-root-ca.crt` in each namespace.
    RootCertificates,
    /// Fills token Secrets, and takes them away with their account.
    Tokens,
    Deployments,
    ReplicaSets,
    StatefulSets,
    Endpoints,
    EndpointSlices,
    /// Binds claims, makes and takes away the volumes of `usher.dev/directory`.
    Volumes,
    /// Keeps claims and volumes that are in use.
    Protection,
    Disruption,
    Nodes,
    /// Takes away pods whose node is gone, and finished ones beyond 12,500.
    PodGarbage,
    Definitions,
    /// Takes away Events an hour after their last write.
    Events,
    /// Takes away the store's old history.
    Compaction,
}

impl Controller {
    pub const ALL: [Self; 20] = [
        Self::GarbageCollector,
        Self::Namespaces,
        Self::Scheduler,
        Self::HollowNodes,
        Self::ServiceAccounts,
        Self::RootCertificates,
        Self::Tokens,
        Self::Deployments,
        Self::ReplicaSets,
        Self::StatefulSets,
        Self::Endpoints,
        Self::EndpointSlices,
        Self::Volumes,
        Self::Protection,
        Self::Disruption,
        Self::Nodes,
        Self::PodGarbage,
        Self::Definitions,
        Self::Events,
        Self::Compaction,
    ];

    fn control(self) -> Box<dyn Control> {
        match self {
            Self::GarbageCollector => Box::<garbage::Garbage>::default(),
            Self::Namespaces => Box::<namespaces::Namespaces>::default(),
            Self::ServiceAccounts => Box::<accounts::ServiceAccounts>::default(),
            Self::RootCertificates => Box::<certificates::RootCertificates>::default(),
            Self::Tokens => Box::<tokens::Tokens>::default(),
            Self::Deployments => Box::<deployments::Deployments>::default(),
            Self::ReplicaSets => Box::<replica_sets::ReplicaSets>::default(),
            Self::StatefulSets => Box::<stateful_sets::StatefulSets>::default(),
            Self::Endpoints => Box::<endpoints::Endpoints>::default(),
            Self::EndpointSlices => Box::<endpoints::EndpointSlices>::default(),
            Self::Volumes => Box::<volumes::Volumes>::default(),
            Self::Protection => Box::<protection::Protection>::default(),
            Self::Disruption => Box::<disruption::Disruption>::default(),
            Self::Nodes => Box::<nodes::Nodes>::default(),
            Self::PodGarbage => Box::<pod_garbage::PodGarbage>::default(),
            Self::Scheduler => Box::<crate::scheduler::Scheduler>::default(),
            Self::HollowNodes => Box::<crate::node::hollow::HollowNodes>::default(),
            Self::Definitions => Box::<definitions::Definitions>::default(),
            Self::Events => Box::<events::Events>::default(),
            Self::Compaction => Box::<compaction::Compaction>::default(),
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GarbageCollector => "garbage-collector",
            Self::Namespaces => "namespaces",
            Self::ServiceAccounts => "service-accounts",
            Self::RootCertificates => "root-certificates",
            Self::Tokens => "tokens",
            Self::Deployments => "deployments",
            Self::ReplicaSets => "replica-sets",
            Self::StatefulSets => "stateful-sets",
            Self::Endpoints => "endpoints",
            Self::EndpointSlices => "endpoint-slices",
            Self::Volumes => "volumes",
            Self::Protection => "protection",
            Self::Disruption => "disruption",
            Self::Nodes => "nodes",
            Self::PodGarbage => "pod-garbage",
            Self::Scheduler => "scheduler",
            Self::HollowNodes => "hollow-nodes",
            Self::Definitions => "definitions",
            Self::Events => "events",
            Self::Compaction => "compaction",
        })
    }
}

/// Those that run (E1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controllers(BTreeSet<Controller>);

impl Controllers {
    #[must_use]
    pub fn all() -> Self {
        Self(Controller::ALL.into())
    }

    #[must_use]
    pub fn none() -> Self {
        Self(BTreeSet::new())
    }

    #[must_use]
    pub fn with(mut self, controller: Controller) -> Self {
        self.0.insert(controller);
        self
    }

    #[must_use]
    pub fn without(mut self, controller: Controller) -> Self {
        self.0.remove(&controller);
        self
    }

    #[must_use]
    pub fn has(&self, controller: Controller) -> bool {
        self.0.contains(&controller)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Controller> + '_ {
        self.0.iter().copied()
    }
}

impl Default for Controllers {
    fn default() -> Self {
        Self::all()
    }
}

/// When a key is to be looked at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// When something about it changes.
    Done,
    At(Timestamp),
}

/// What a controller asks the driver for while it looks at changes.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    now: Vec<String>,
    at: Vec<(String, Timestamp)>,
    by: Vec<(String, Timestamp)>,
    never: Vec<String>,
    rest: Vec<String>,
}

impl Wishes {
    pub(crate) fn sync(&mut self, key: impl Into<String>) {
        self.now.push(key.into());
    }

    /// Then, and not at the time that was wished for before.
    pub(crate) fn sync_at(&mut self, key: impl Into<String>, when: Timestamp) {
        self.at.push((key.into(), when));
    }

    /// Then, unless it is already waited for.
    pub(crate) fn sync_by(&mut self, key: impl Into<String>, when: Timestamp) {
        self.by.push((key.into(), when));
    }

    /// Not at the time that was wished for before, and without the rest that it took.
    pub(crate) fn no_more(&mut self, key: impl Into<String>) {
        self.never.push(key.into());
    }

    /// It was of no use now. Whoever wishes for it again gets it once, then after a rest, which grows with each that it
    /// takes.
    pub(crate) fn rest(&mut self, key: impl Into<String>) {
        self.rest.push(key.into());
    }
}

/// One controller. Keys are its own business: most use the store's.
pub(crate) trait Control: fmt::Debug + Send {
    /// Forgets everything and starts from the whole state, which `census` has counted.
    fn begin(&mut self, hand: &Hand, state: &[Entry], census: &Census, wishes: &mut Wishes);

    /// Sees one change, in the order of the log; `census` has counted it.
    fn see(&mut self, hand: &Hand, line: &LogEntry, census: &Census, wishes: &mut Wishes);

    /// Does what is missing for one key. A fault is tried again later, ever more slowly.
    fn sync<'a>(
        &'a mut self,
        hand: &'a Hand,
        key: &'a str,
        wishes: &'a mut Wishes,
    ) -> BoxFuture<'a, Result<Next, Fault>>;
}

/// How workloads name their work: by namespace and name.
fn work_key(namespace: Option<&str>, name: &str) -> String {
    format!("{}/{name}", namespace.unwrap_or_default())
}

fn split(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

/// Nothing can be made there any more, and nothing needs to be.
fn is_namespace_terminating(fault: &Fault) -> bool {
    let causes = fault
        .details
        .as_ref()
        .and_then(|details| details.get("causes")?.as_array());
    causes.into_iter().flatten().any(|cause| {
        cause
            .get("reason")
            .is_some_and(|reason| reason == "NamespaceTerminating")
    })
}

/// A number of things as statuses say it.
fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// The same where zero is left out.
fn some_count(number: usize) -> Option<i32> {
    Some(count(number)).filter(|count| *count > 0)
}

/// This second: statuses know no smaller unit, and what was written must compare equal when it is read again.
fn this_second(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}
