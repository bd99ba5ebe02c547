//! What a kind's own metrics are made from, at the moment somebody asks for them.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use usher_engine::ObjectKey;

use crate::metrics::WriteLabel;
use crate::shared::Shared;
use crate::view::View;
use crate::written::Reader;

/// A look at the running operator. Cheap to clone; looking locks the view for as long as the look takes, so take out the
/// figures and write them down afterwards.
#[derive(Debug, Clone)]
pub struct Window(Arc<Shared>);

impl Window {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Looks at the view.
    pub fn view<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        self.0.view(look)
    }

    /// This process's wall clock.
    pub fn now(&self) -> Timestamp {
        self.0.clock.wall()
    }

    /// Passes of a kind under way.
    pub fn running(&self, kind: &str) -> usize {
        self.0.queues.get(kind).map_or(0, |handle| handle.lock().running())
    }

    /// When the status of a resource was last written by this process.
    pub fn reported(&self, kind: &'static str, key: &ObjectKey) -> Option<Timestamp> {
        let reader = Reader { kind, key: key.clone() };
        let ago = self.0.clock.monotonic().since(self.0.reported(&reader)?.at);
        let ago = SignedDuration::try_from(ago).ok()?;
        self.0.clock.wall().checked_sub(ago).ok()
    }

    /// Writes to the API so far.
    pub fn writes(&self) -> Vec<(WriteLabel, u64)> {
        self.0.metrics.writes.read()
    }

    /// Events about objects of these kinds that were left out so far.
    pub fn events_shed(&self, kinds: &[&str]) -> u64 {
        self.0.events.shed_of(kinds)
    }

    /// How long the first lists took, and with them everything derived from them; `None` until all are in.
    pub fn first_sync(&self) -> Option<Duration> {
        self.0.first_sync.get().copied()
    }
}
