//! What is, read from the view at the moment somebody asks. The figures are taken out under the lock and written down
//! after it: writing is the slow part.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use usher_engine::ObjectKey;
use usher_operator::metrics::WriteLabel;
use usher_operator::view::View;
use usher_operator::window::Window;

use super::{Outcome, PHASES, Phases, PoolTally, Tally, lock};
use crate::kinds::{CLAIM, POOL, POOL_CLAIM, SUBNET};
use crate::ledger::{Account, Ledger};
use crate::plan::request;
use crate::records::{Ask, CLAIMS, POOL_CLAIMS, POOLS, PoolRecord, SUBNETS};

/// Sizes of one pool that are shown (spec, section 9). An IPv6 pool may have 128.
const MOST_SIZES: u8 = 32;

/// Reads the view when asked.
#[derive(Debug)]
pub(super) struct Scrape(pub(super) Window);

/// The figures of one pool.
#[derive(Debug, Clone, PartialEq)]
struct Figures {
    key: ObjectKey,
    default: u8,
    free: Vec<(u8, f64)>,
    allocated: usize,
    overlaps: usize,
    out_of_range: usize,
    allocations: BTreeMap<(u8, Outcome), u64>,
    retries: BTreeMap<u32, u64>,
}

/// A queue; also of a pool that does not exist.
#[derive(Debug, Clone, PartialEq)]
struct Line {
    key: ObjectKey,
    waiting: usize,
    oldest_seconds: f64,
}

#[derive(Debug, Default)]
struct Snapshot {
    pools: Vec<Figures>,
    lines: Vec<Line>,
    claims: BTreeMap<String, Phases>,
}

impl Snapshot {
    fn take(view: &View, now: Timestamp) -> Self {
        let (Some(ledger), Some(tally)) = (view.derived::<Ledger>(), view.derived::<Tally>()) else {
            return Self::default();
        };
        let counted = lock(&tally.pools);
        let mut snapshot = Self {
            claims: tally.claims.clone(),
            ..Self::default()
        };
        for pool in view.all::<PoolRecord>() {
            if let Some(account) = ledger.account(&pool.meta.key) {
                let counted = counted.get(&pool.meta.key).cloned().unwrap_or_default();
                snapshot.pools.push(Figures::take(pool, account, counted));
            }
        }
        for (key, account) in ledger.accounts() {
            let pool = view.get::<PoolRecord>(key).map(AsRef::as_ref);
            let (waiting, oldest) = waiting(pool, account, ledger);
            // Claims may wait for a pool that is gone or not there yet; nobody else speaks of it then.
            if pool.is_some() || waiting > 0 {
                let wait = oldest.map_or(0.0, |since| now.duration_since(since).as_secs_f64().max(0.0));
                snapshot.lines.push(Line {
                    key: key.clone(),
                    waiting,
                    oldest_seconds: wait,
                });
            }
        }
        snapshot
    }
}

impl Figures {
    fn take(pool: &PoolRecord, account: &Account, counted: PoolTally) -> Self {
        // The default size is always among them: the alert looks at that one.
        let from = pool.shortest.max(pool.default.saturating_sub(MOST_SIZES - 1));
        let to = pool.longest.min(from.saturating_add(MOST_SIZES - 1));
        let counts = account.map.iter().flat_map(|map| map.counts());
        Self {
            key: pool.meta.key.clone(),
            default: pool.default,
            free: counts
                .filter(|(length, _)| (from..=to).contains(length))
                .map(|(length, count)| (length, count as f64))
                .collect(),
            allocated: account.settled,
            overlaps: account.overlaps,
            out_of_range: account.out_of_range,
            allocations: counted.allocations,
            retries: counted.retries,
        }
    }
}

/// How many wait, and since when the oldest does. Those who ask for what the pool never grants do not wait (R46). All in
/// one line ask the same, so this looks at each line and not at each claim.
fn waiting(pool: Option<&PoolRecord>, account: &Account, ledger: &Ledger) -> (usize, Option<Timestamp>) {
    let possible = |ask: Ask| pool.is_none_or(|pool| request(ask, pool, ledger.base(pool)).is_ok());
    let (mut number, mut oldest) = (0, None);
    for (_, length, mut line) in account.line.lines().filter(|(ask, ..)| possible(*ask)) {
        number += length;
        let head = line.next().map(|claim| claim.place.created);
        oldest = [oldest, head].into_iter().flatten().min();
    }
    (number, oldest.map(Into::into))
}

/// What the runtime knows and the view does not.
#[derive(Debug, Default)]
struct Runtime {
    /// When the status of each pool was last written, in the order of the pools.
    reported: Vec<Option<Timestamp>>,
    running: usize,
    first_sync: Option<Duration>,
    writes: Vec<(WriteLabel, u64)>,
    shed: u64,
}

impl Runtime {
    fn take(window: &Window, pools: &[Figures]) -> Self {
        let ours = [POOLS.plural, CLAIMS.plural, SUBNETS.plural, POOL_CLAIMS.plural];
        let mut writes = window.writes();
        writes.retain(|(label, _)| ours.contains(&label.resource));
        Self {
            reported: pools.iter().map(|pool| window.reported(POOL, &pool.key)).collect(),
            running: window.running(POOL),
            first_sync: window.first_sync(),
            writes,
            shed: window.events_shed(&[POOL, CLAIM, SUBNET, POOL_CLAIM]),
        }
    }
}

/// All figures of one moment.
#[derive(Debug)]
struct Sheet {
    snapshot: Snapshot,
    runtime: Runtime,
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = self.0.now();
        let snapshot = self.0.view(|view| Snapshot::take(view, now));
        let runtime = Runtime::take(&self.0, &snapshot.pools);
        Sheet { snapshot, runtime }.encode(encoder)
    }
}

impl Collector for Sheet {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(&mut encoder);
        page.pools(&self.snapshot.pools)?;
        page.lines(&self.snapshot.lines)?;
        page.claims(&self.snapshot.claims)?;
        page.runtime(&self.runtime, &self.snapshot.pools)
    }
}

/// What a scrape says of this view, as text.
pub fn text(view: &View, now: Timestamp) -> Result<String, fmt::Error> {
    let (snapshot, runtime) = (Snapshot::take(view, now), Runtime::default());
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Sheet { snapshot, runtime }));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

fn float(count: usize) -> f64 {
    count as f64
}

/// A label's name and value.
type Label<'s> = (&'static str, Cow<'s, str>);

/// Writes series of one name after the other, as the format wants it.
struct Page<'e, 'd>(&'e mut DescriptorEncoder<'d>);

impl Page<'_, '_> {
    fn gauge<'s, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        series: impl Iterator<Item = ([Label<'s>; N], f64)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in series {
            if N == 0 {
                metric.encode_gauge(&value)?;
            } else {
                metric.encode_family(&labels)?.encode_gauge(&value)?;
            }
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
            if N == 0 {
                metric.encode_counter::<NoLabelSet, u64, f64>(&value, None)?;
            } else {
                metric
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, u64, f64>(&value, None)?;
            }
        }
        Ok(())
    }

    fn pools(&mut self, pools: &[Figures]) -> fmt::Result {
        self.gauge(
            "aquanaut_subnet_free",
            "Blocks of this length that could be granted",
            pools
                .iter()
                .flat_map(|pool| pool.free.iter().map(move |(size, count)| (sized(pool, *size), *count))),
        )?;
        self.gauge(
            "usher_subnets_default_size",
            "1 for the length of claims that name none",
            pools.iter().map(|pool| (sized(pool, pool.default), 1.0)),
        )?;
        self.gauge(
            "plexaubnet_pool_allocated_total",
            "Subnets of the pool that are Allocated or Released",
            pools.iter().map(|pool| (in_pool(&pool.key), float(pool.allocated))),
        )?;
        self.gauge(
            "usher_subnets_overlaps",
            "Pairs of allocated Subnets that overlap",
            pools.iter().map(|pool| (in_pool(&pool.key), float(pool.overlaps))),
        )?;
        self.gauge(
            "usher_subnets_out_of_range",
            "Allocated Subnets outside the pool",
            pools.iter().map(|pool| (in_pool(&pool.key), float(pool.out_of_range))),
        )?;
        self.counter(
            "aquanaut_subnet_alloc",
            "Claims by what they were told",
            pools.iter().flat_map(|pool| {
                // Those of the default size are there from the start, so that the first one is seen as an increase.
                let mut counts: BTreeMap<_, _> = Outcome::ALL.map(|outcome| ((pool.default, outcome), 0)).into();
                counts.extend(&pool.allocations);
                counts.into_iter().map(move |((size, outcome), count)| {
                    let [namespace, name, size] = sized(pool, size);
                    ([namespace, name, size, ("result", outcome.label().into())], count)
                })
            }),
        )?;
        // The label has no namespace: pools of one name count together.
        let mut retries: BTreeMap<(&str, u32), u64> = BTreeMap::new();
        for pool in pools {
            retries.entry((pool.key.name(), 1)).or_default();
            for (times, count) in &pool.retries {
                *retries.entry((pool.key.name(), *times)).or_default() += count;
            }
        }
        self.counter(
            "aquanaut_subnet_alloc_retry",
            "Claims whose Subnet's name was taken, by how often that happened to the claim",
            retries
                .into_iter()
                .map(|((pool, times), count)| ([("pool", pool.into()), ("retries", times.to_string().into())], count)),
        )
    }

    fn lines(&mut self, lines: &[Line]) -> fmt::Result {
        self.gauge(
            "usher_subnets_waiting_claims",
            "Claims that wait for room",
            lines.iter().map(|line| (in_pool(&line.key), float(line.waiting))),
        )?;
        self.gauge(
            "usher_subnets_oldest_wait_seconds",
            "How long the oldest of them has waited",
            lines.iter().map(|line| (in_pool(&line.key), line.oldest_seconds)),
        )
    }

    fn claims(&mut self, claims: &BTreeMap<String, Phases>) -> fmt::Result {
        self.gauge(
            "plexaubnet_claim_phase",
            "Claims by phase",
            claims.iter().flat_map(|(namespace, phases)| {
                phases.iter().zip(PHASES).map(move |(count, phase)| {
                    let labels = [("namespace", namespace.into()), ("phase", phase.into())];
                    (labels, *count as f64)
                })
            }),
        )
    }

    fn runtime(&mut self, runtime: &Runtime, pools: &[Figures]) -> fmt::Result {
        let written = pools.iter().zip(&runtime.reported).filter_map(|(pool, at)| {
            let labels = [("ns", pool.key.namespace().into()), ("name", pool.key.name().into())];
            Some((labels, at.as_ref()?.as_duration().as_secs_f64()))
        });
        self.gauge(
            "subnetpool_parent_status_last_timestamp_seconds",
            "When this process last wrote the pool's status",
            written,
        )?;
        self.gauge(
            "subnetpool_parent_reconcile_inflight",
            "Passes of pools under way",
            [([], float(runtime.running))].into_iter(),
        )?;
        self.gauge(
            "usher_subnets_rebuild_seconds",
            "How long reading all and building all address maps took at the start",
            runtime.first_sync.map(|took| ([], took.as_secs_f64())).into_iter(),
        )?;
        self.counter(
            "usher_subnets_api_writes",
            "Writes of pools, claims and Subnets",
            runtime.writes.iter().map(|(label, count)| {
                let labels = [
                    ("verb", label.verb.into()),
                    ("resource", label.resource.into()),
                    ("result", label.result.into()),
                ];
                (labels, *count)
            }),
        )?;
        self.counter(
            "usher_subnets_events_shed",
            "Events left out to keep within their rate",
            [([], runtime.shed)].into_iter(),
        )
    }
}

fn sized(pool: &Figures, size: u8) -> [Label<'_>; 3] {
    let [namespace, name] = in_pool(&pool.key);
    [namespace, name, ("size", size.to_string().into())]
}

fn in_pool(key: &ObjectKey) -> [Label<'_>; 2] {
    [("namespace", key.namespace().into()), ("pool", key.name().into())]
}
