//! A cluster that runs nothing by itself: whoever holds it decides what happens next, and when. The simulator and most
//! tests use it.
//!
//! Two clusters with the same options that are given the same calls in the same order hold the same bytes and answer the
//! same bytes (E1). A [`Snapshot`] is all there is: going back to one and doing the same again gives the same again.

use jiff::Timestamp;

use crate::api::ApiService;
use crate::clock::ManualClock;
use crate::cluster::Cluster;
use crate::controllers::driver::{Driver, Pending, Work, WorkId};
use crate::store::{self, StoreError};

/// See [`Cluster::manual`].
#[derive(Debug)]
pub struct Manual {
    cluster: Cluster,
    clock: ManualClock,
    driver: Driver,
}

/// A manual cluster as it was at some moment: objects, history, time, chance, and what the controllers had still to do.
#[derive(Debug, Clone)]
pub struct Snapshot {
    store: store::Snapshot,
    now: Timestamp,
    dice: [u64; 4],
    pending: Pending,
}

impl Manual {
    pub(crate) fn new(cluster: Cluster, clock: ManualClock, driver: Driver) -> Self {
        Self { cluster, clock, driver }
    }

    /// What could run now. The order depends on nothing but what there is to do; [`Manual::settle`] follows it.
    pub fn ready(&mut self) -> Vec<Work> {
        self.driver.ready()
    }

    /// Runs one of them; in memory it completes at its first poll. False: it is not ready (any more).
    pub async fn run(&mut self, id: &WorkId) -> bool {
        self.driver.run(id).await
    }

    /// Runs what is ready, in order, until nothing is. Gives back how many syncs that were.
    pub async fn settle(&mut self) -> usize {
        self.driver.settle().await
    }

    /// When something comes due next: of the controllers, or of an open watch.
    pub fn next_timer(&mut self) -> Option<Timestamp> {
        let alarm = self.clock.next_alarm();
        self.driver.next_timer().into_iter().chain(alarm).min()
    }

    /// Time goes on to a moment, never back. What comes due is ready afterwards; nothing has run yet.
    pub fn advance(&self, to: Timestamp) {
        self.clock.set(to);
    }

    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    pub fn snapshot(&mut self) -> Snapshot {
        let registry = self.cluster.registry();
        Snapshot {
            pending: self.driver.pending(),
            store: registry.store.snapshot(),
            now: self.clock.now(),
            dice: registry.dice.positions(),
        }
    }

    /// Goes back to a snapshot, time too. Watches that are open are told that they are too old (410).
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), StoreError> {
        let registry = self.cluster.registry();
        registry.store.restore(&snapshot.store)?;
        registry.reread_definitions();
        registry.dice.put_back(snapshot.dice);
        self.clock.put_back(snapshot.now);
        self.driver.resume(snapshot.pending.clone());
        Ok(())
    }

    /// Kills the controllers and starts them again: what they knew is made anew from the objects.
    pub fn restart_controllers(&mut self) {
        self.driver.forget();
    }

    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// See [`Cluster::client`].
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.cluster.client()
    }

    /// See [`Cluster::service`].
    #[must_use]
    pub fn service(&self) -> ApiService {
        self.cluster.service()
    }
}
