//! What is written down when somebody asks.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::Histogram;
use usher_engine::ObjectKey;

use super::{Figures, Sheet};

/// Asks, with the view at hand, which clusters there still are.
type Asking = dyn Fn(&mut dyn FnMut(&dyn Fn(&ObjectKey) -> bool)) + Send + Sync;

/// Reads the figures when asked.
pub(super) struct Scrape {
    figures: Figures,
    present: Box<Asking>,
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrape").finish_non_exhaustive()
    }
}

impl Scrape {
    pub(super) fn new(
        figures: Figures,
        present: impl Fn(&mut dyn FnMut(&dyn Fn(&ObjectKey) -> bool)) + Send + Sync + 'static,
    ) -> Self {
        Self {
            figures,
            present: Box::new(present),
        }
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        (self.present)(&mut |is_there| self.figures.lock().retain(|key, _| is_there(key)));
        let sheets = self.figures.lock();
        Page(&mut encoder).write(&sheets)
    }
}

/// A label's name and value.
type Label<'s> = (&'static str, Cow<'s, str>);

struct Page<'e, 'd>(&'e mut DescriptorEncoder<'d>);

fn of(key: &ObjectKey) -> [Label<'_>; 2] {
    [("namespace", key.namespace().into()), ("name", key.name().into())]
}

fn more<'k>(key: &'k ObjectKey, label: &'static str, value: &'k str) -> [Label<'k>; 3] {
    let [namespace, name] = of(key);
    [namespace, name, (label, value.into())]
}

impl Page<'_, '_> {
    fn gauge<'s, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        series: impl Iterator<Item = ([Label<'s>; N], f64)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in series {
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn counter<'s, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        series: impl Iterator<Item = ([Label<'s>; N], u64)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in series {
            metric
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, u64, f64>(&value, None)?;
        }
        Ok(())
    }

    fn histogram<'s>(
        &mut self,
        name: &str,
        help: &str,
        series: impl Iterator<Item = ([Label<'s>; 2], &'s Histogram)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, histogram) in series {
            histogram.encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn write(&mut self, sheets: &BTreeMap<ObjectKey, Sheet>) -> fmt::Result {
        let all = || sheets.iter();
        self.gauge(
            "usher_valkey_slots_unserved",
            "Slots without a live primary",
            all().map(|(key, sheet)| (of(key), f64::from(sheet.unserved))),
        )?;
        self.counter(
            "usher_valkey_slots_moved",
            "Slots that were moved",
            all().flat_map(|(key, sheet)| sheet.moved.iter().map(|(method, n)| (more(key, "method", method), *n))),
        )?;
        self.gauge(
            "usher_valkey_slot_moves_remaining",
            "Slots that the present scale has yet to move",
            all().map(|(key, sheet)| (of(key), f64::from(sheet.remaining))),
        )?;
        self.counter(
            "usher_valkey_slot_jobs",
            "Slot moves by how they ended",
            all().flat_map(|(key, sheet)| {
                sheet.jobs.iter().map(|((method, outcome), n)| {
                    let [namespace, name, method] = more(key, "method", method);
                    ([namespace, name, method, ("outcome", (*outcome).into())], *n)
                })
            }),
        )?;
        self.histogram(
            "usher_valkey_slot_job_seconds",
            "How long slot moves took, as passes saw them",
            all().map(|(key, sheet)| (of(key), &sheet.job_seconds)),
        )?;
        self.counter(
            "usher_valkey_failovers",
            "Changes of a shard's primary",
            all().flat_map(|(key, sheet)| sheet.failovers.iter().map(|(kind, n)| (more(key, "kind", kind), *n))),
        )?;
        self.histogram(
            "usher_valkey_failover_seconds",
            "From asking for it, or from the failure, until the new primary was seen",
            all().map(|(key, sheet)| (of(key), &sheet.failover_seconds)),
        )?;
        self.gauge(
            "usher_valkey_replica_lag_bytes",
            "How far a replica is behind its primary",
            all().flat_map(|(key, sheet)| sheet.lags.iter().map(|(pod, n)| (more(key, "pod", pod), *n as f64))),
        )?;
        self.gauge(
            "usher_valkey_members",
            "Members by how they stand",
            all().flat_map(|(key, sheet)| {
                sheet
                    .members
                    .iter()
                    .map(|(state, n)| (more(key, "state", state), *n as f64))
            }),
        )?;
        self.gauge(
            "usher_valkey_shards",
            "Shards: wanted, owning slots, and owning slots without an in-sync replica that the spec wants",
            all().flat_map(|(key, sheet)| {
                sheet
                    .shards
                    .iter()
                    .map(|(state, n)| (more(key, "state", state), *n as f64))
            }),
        )?;
        self.gauge(
            "usher_valkey_views_disagree_seconds",
            "For how long the servers' views have not agreed",
            all().map(|(key, sheet)| (of(key), sheet.disagree_seconds as f64)),
        )?;
        self.gauge(
            "usher_valkey_primaries_at_risk",
            "Primaries in one place whose loss would take the majority, where there are other places",
            all().map(|(key, sheet)| (of(key), sheet.at_risk as f64)),
        )?;
        self.gauge(
            "usher_valkey_stuck",
            "1 where a cluster is Failed, or its scale or roll stands still",
            all().flat_map(|(key, sheet)| {
                sheet
                    .stuck
                    .iter()
                    .map(|(how, is)| (more(key, "how", how), f64::from(u8::from(*is))))
            }),
        )
    }
}
