//! What the runtime measures, for every kind alike. Kinds add their own to the same registry.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// A queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct QueueLabel {
    /// Its name.
    pub name: &'static str,
}

/// A kind and how something ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ResultLabel {
    /// Kind's name.
    pub kind: &'static str,
    /// How it ended.
    pub result: &'static str,
}

/// A step and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StepLabel {
    /// Kind's name.
    pub kind: &'static str,
    /// Step's name.
    pub step: &'static str,
    /// How it ended.
    pub result: &'static str,
}

/// A kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabel {
    /// Kind's name.
    pub kind: &'static str,
}

/// A write to the API.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WriteLabel {
    /// What was asked.
    pub verb: &'static str,
    /// Of which resource.
    pub resource: &'static str,
    /// How it ended.
    pub result: &'static str,
}

/// A request for a trigger.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TriggerLabel {
    /// What was to be triggered.
    pub resource: &'static str,
    /// The answer's HTTP code.
    pub code: String,
}

const SECONDS: [f64; 13] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 90.0,
];

fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}

/// All of the runtime's metrics.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Keys waiting.
    pub depth: Family<QueueLabel, Gauge>,
    /// Wakes taken in.
    pub adds: Family<QueueLabel, Counter>,
    /// Passes after a failure.
    pub retries: Family<QueueLabel, Counter>,
    /// From due to started.
    pub queue_latency: Family<QueueLabel, Histogram>,
    /// Passes under way.
    pub inflight: Family<KindLabel, Gauge>,
    /// Passes by result.
    pub passes: Family<ResultLabel, Counter>,
    /// Time of a pass.
    pub pass_duration: Family<ResultLabel, Histogram>,
    /// Steps by outcome.
    pub steps: Family<StepLabel, Counter>,
    /// Passes put off until our own write was seen.
    pub stale_skips: Family<KindLabel, Counter>,
    /// Writes to the API.
    pub writes: Family<WriteLabel, Counter>,
    /// Reads past the watches.
    pub reads: Family<WriteLabel, Counter>,
    /// Objects in view.
    pub records: Family<KindLabel, Gauge>,
    /// Objects that could not be read.
    pub unreadable: Family<KindLabel, Counter>,
    /// Watches that broke.
    pub watch_breaks: Family<KindLabel, Counter>,
    /// Lists taken.
    pub lists: Family<KindLabel, Counter>,
    /// Events not written, to keep within their rate.
    pub events_shed: Gauge,
    /// Requests for triggers.
    pub triggers: Family<TriggerLabel, Counter>,
    /// 1 while this process leads.
    pub leader: Gauge,
}

impl Metrics {
    /// Makes the metrics and puts them into the registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            queue_latency: Family::new_with_constructor(seconds),
            inflight: Family::default(),
            passes: Family::default(),
            pass_duration: Family::new_with_constructor(seconds),
            steps: Family::default(),
            stale_skips: Family::default(),
            writes: Family::default(),
            reads: Family::default(),
            records: Family::default(),
            unreadable: Family::default(),
            watch_breaks: Family::default(),
            lists: Family::default(),
            events_shed: Gauge::default(),
            triggers: Family::default(),
            leader: Gauge::default(),
        };
        let m = &metrics;
        registry.register("workqueue_depth", "Keys waiting in the queue", m.depth.clone());
        registry.register("workqueue_adds", "Wakes taken in by the queue", m.adds.clone());
        registry.register(
            "workqueue_retries",
            "Passes repeated after a failure",
            m.retries.clone(),
        );
        registry.register(
            "workqueue_latency_seconds",
            "From due to started",
            m.queue_latency.clone(),
        );
        registry.register("usher_passes_inflight", "Passes under way", m.inflight.clone());
        registry.register("usher_passes", "Passes by result", m.passes.clone());
        registry.register(
            "usher_pass_duration_seconds",
            "Duration of a pass",
            m.pass_duration.clone(),
        );
        registry.register("usher_steps", "Steps by outcome", m.steps.clone());
        registry.register(
            "usher_stale_skips",
            "Passes put off until our own write was in view",
            m.stale_skips.clone(),
        );
        registry.register("usher_api_writes", "Writes to the API", m.writes.clone());
        registry.register("usher_api_reads", "Reads past the watches", m.reads.clone());
        registry.register("usher_view_records", "Objects in view", m.records.clone());
        registry.register(
            "usher_unreadable_objects",
            "Objects that could not be read",
            m.unreadable.clone(),
        );
        registry.register("usher_watch_breaks", "Watches that broke", m.watch_breaks.clone());
        registry.register("usher_lists", "Whole lists taken", m.lists.clone());
        registry.register(
            "usher_events_shed",
            "Events left out to keep within their rate",
            m.events_shed.clone(),
        );
        registry.register("usher_triggers", "Requests for triggers by answer", m.triggers.clone());
        registry.register("usher_leader", "1 while this process leads", m.leader.clone());
        metrics
    }
}
