//! What the spec and the annotations say about how things are done.

use std::time::Duration;

use crate::words::ShardId;

/// The manner in which a cluster is changed and healed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// `cluster-node-timeout`.
    pub node_timeout: Duration,
    /// `usher.dev/drain-linger-seconds`: how long a member that gave its slots away still redirects clients.
    pub linger: Duration,
    /// `usher.dev/max-migrations`: jobs at a time.
    pub max_migrations: usize,
    /// `usher.dev/slot-balance` is not `manual`.
    pub balances: bool,
    /// `persistence.enabled`.
    pub persistent: bool,
    /// `usher.dev/accept-data-loss`: the shard whose slots may come back empty.
    pub accepted_loss: Option<ShardId>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            node_timeout: Duration::from_secs(5),
            linger: Duration::from_secs(5),
            max_migrations: 3,
            balances: true,
            persistent: true,
            accepted_loss: None,
        }
    }
}
