//! The metrics of the spec's section 9, by name: what the tests, the alert rules, the board and the documents are held to.
//! Those of encryption and of upgrades come with them.

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Only ever grows.
    Counter,
    /// Is what it is.
    Gauge,
    /// Durations by bucket.
    Histogram,
}

/// One metric, as it is exposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name; a histogram's series add `_bucket`, `_sum` and `_count`.
    pub name: &'static str,
    /// What it is.
    pub shape: Shape,
    /// Its labels, all of them.
    pub labels: &'static [&'static str],
}

const fn metric(name: &'static str, shape: Shape, labels: &'static [&'static str]) -> Metric {
    Metric { name, shape, labels }
}

const CLUSTER: &[&str] = &["namespace", "name"];

/// Every row of the table.
pub const METRICS: [Metric; 13] = [
    metric("usher_valkey_slots_unserved", Shape::Gauge, CLUSTER),
    metric(
        "usher_valkey_slots_moved_total",
        Shape::Counter,
        &["namespace", "name", "method"],
    ),
    metric("usher_valkey_slot_moves_remaining", Shape::Gauge, CLUSTER),
    metric(
        "usher_valkey_slot_jobs_total",
        Shape::Counter,
        &["namespace", "name", "method", "outcome"],
    ),
    metric("usher_valkey_slot_job_seconds", Shape::Histogram, CLUSTER),
    metric(
        "usher_valkey_failovers_total",
        Shape::Counter,
        &["namespace", "name", "kind"],
    ),
    metric("usher_valkey_failover_seconds", Shape::Histogram, CLUSTER),
    metric(
        "usher_valkey_replica_lag_bytes",
        Shape::Gauge,
        &["namespace", "name", "pod"],
    ),
    metric("usher_valkey_members", Shape::Gauge, &["namespace", "name", "state"]),
    metric("usher_valkey_shards", Shape::Gauge, &["namespace", "name", "state"]),
    metric("usher_valkey_views_disagree_seconds", Shape::Gauge, CLUSTER),
    metric("usher_valkey_primaries_at_risk", Shape::Gauge, CLUSTER),
    metric("usher_valkey_stuck", Shape::Gauge, &["namespace", "name", "how"]),
];
