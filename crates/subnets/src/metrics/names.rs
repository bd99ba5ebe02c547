//! The metrics of the spec's section 9, by name: what the tests, the alert rules, the board and the documents are held to.

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

const POOL: &[&str] = &["namespace", "pool"];
const POOL_AND_SIZE: &[&str] = &["namespace", "pool", "size"];

/// Every row of the table.
pub const METRICS: [Metric; 23] = [
    metric(
        "subnetpool_parent_requeue_total",
        Shape::Counter,
        &["event_type", "result"],
    ),
    metric(
        "subnetpool_parent_reconcile_duration_seconds",
        Shape::Histogram,
        &["result"],
    ),
    metric(
        "subnetpool_parent_status_last_timestamp_seconds",
        Shape::Gauge,
        &["ns", "name"],
    ),
    metric("subnetpool_parent_reconcile_inflight", Shape::Gauge, &[]),
    metric("workqueue_depth", Shape::Gauge, &["name"]),
    metric("workqueue_adds_total", Shape::Counter, &["name"]),
    metric("workqueue_retries_total", Shape::Counter, &["name"]),
    metric(
        "aquanaut_subnet_alloc_total",
        Shape::Counter,
        &["namespace", "pool", "size", "result"],
    ),
    metric("aquanaut_subnet_alloc_latency_seconds", Shape::Histogram, &["result"]),
    metric(
        "aquanaut_subnet_alloc_retry_total",
        Shape::Counter,
        &["pool", "retries"],
    ),
    metric("aquanaut_subnet_free", Shape::Gauge, POOL_AND_SIZE),
    metric("usher_subnets_default_size", Shape::Gauge, POOL_AND_SIZE),
    metric("plexaubnet_pool_allocated_total", Shape::Gauge, POOL),
    metric("plexaubnet_claim_phase", Shape::Gauge, &["namespace", "phase"]),
    metric("usher_subnets_waiting_claims", Shape::Gauge, POOL),
    metric("usher_subnets_oldest_wait_seconds", Shape::Gauge, POOL),
    metric("usher_subnets_overlaps", Shape::Gauge, POOL),
    metric("usher_subnets_out_of_range", Shape::Gauge, POOL),
    metric(
        "usher_subnets_api_writes_total",
        Shape::Counter,
        &["verb", "resource", "result"],
    ),
    metric("usher_subnets_contests_total", Shape::Counter, &[]),
    metric("usher_subnets_drift_total", Shape::Counter, &[]),
    metric("usher_subnets_events_shed_total", Shape::Counter, &[]),
    metric("usher_subnets_rebuild_seconds", Shape::Gauge, &[]),
];
