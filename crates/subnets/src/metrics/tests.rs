use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};
use usher_engine::{Moment, Plan};
use usher_operator::kind::{self, Kind};
use usher_operator::record::ApiType;
use usher_operator::view::Event;

use super::names::METRICS;
use super::*;
use crate::plan::claim::ClaimStep;
use crate::records::{CLAIMS, POOLS, SUBNETS, SubnetRecord};
use crate::wake;

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_000_000 + seconds)
}

/// A view as the operator has it, and a revision for each change.
struct World {
    view: View,
    revision: u64,
}

impl World {
    fn new() -> Self {
        let mut view = View::default();
        wake::register(&mut view);
        register(&mut view);
        Self { view, revision: 0 }
    }

    fn event(
        &mut self,
        of: ApiType,
        key: (&str, &str),
        body: &Value,
        wrap: impl FnOnce(Box<kube::api::DynamicObject>) -> Event,
    ) {
        self.revision += 1;
        let (namespace, name) = key;
        let mut object = json!({
            "apiVersion": of.api_version(), "kind": of.kind,
            "metadata": {"namespace": namespace, "name": name, "uid": format!("{namespace}/{name}"),
                "resourceVersion": self.revision.to_string(), "generation": 1, "creationTimestamp": at(0)},
        });
        for (field, value) in body.as_object().unwrap() {
            object[field] = value.clone();
        }
        self.view
            .apply(of, wrap(Box::new(serde_json::from_value(object).unwrap())));
    }

    fn put(&mut self, of: ApiType, key: (&str, &str), body: Value) {
        self.event(of, key, &body, Event::Applied);
    }

    fn gone(&mut self, of: ApiType, key: (&str, &str)) {
        self.event(of, key, &json!({"spec": {}}), Event::Deleted);
    }

    fn pool(&mut self, name: &str, spec: Value) {
        self.put(POOLS, ("ns", name), json!({"spec": spec}));
    }

    fn claim(&mut self, name: &str, pool: &str, status: Value) {
        let spec = json!({"poolRef": pool, "clusterID": name});
        self.put(CLAIMS, ("ns", name), json!({"spec": spec, "status": status}));
    }

    fn subnet(&mut self, name: &str, cidr: &str, status: Value) {
        let spec = json!({"poolRef": "p", "clusterID": name, "cidr": cidr});
        self.put(SUBNETS, ("ns", name), json!({"spec": spec, "status": status}));
    }

    fn text(&self) -> String {
        text(&self.view, at(100)).unwrap()
    }

    fn tally(&self) -> &Tally {
        self.view.derived().unwrap()
    }

    /// The value of the one series of this name with these labels.
    fn value(&self, series: &str) -> Option<f64> {
        let text = self.text();
        let line = text
            .lines()
            .find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
        line.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }

    fn claim_told(&mut self, name: &str, told: &SubnetClaimStatus, now: Moment) {
        let key = ObjectKey::new("ns", name).unwrap();
        let claim = self.view.get::<ClaimRecord>(&key).unwrap().clone();
        let plan: Plan<ClaimStep, _> = Plan::report(told.clone());
        claim_passed(
            &self.view,
            &passed::<Claims>(&key, kind::Outcome::Success, &[], now, Some((&*claim, &plan))),
        );
        self.put(
            CLAIMS,
            ("ns", name),
            json!({
                "spec": {"poolRef": &*claim.pool, "clusterID": name}, "status": told,
            }),
        );
    }
}

fn passed<'p, K: Kind>(
    key: &'p ObjectKey,
    outcome: kind::Outcome,
    whys: &'p [(Why, u32)],
    now: Moment,
    planned: Option<(&'p K::Resource, &'p kind::PlanOf<K>)>,
) -> Passed<'p, K> {
    Passed {
        key,
        outcome,
        whys,
        took: Duration::from_millis(20),
        now,
        planned,
        reported: planned.is_some(),
    }
}

fn told(reason: &str) -> SubnetClaimStatus {
    let mut conditions = usher_engine::Conditions::default();
    conditions.set("Ready", false, reason, "", 1, at(0));
    SubnetClaimStatus {
        phase: Some(if reason == "InvalidRequest" {
            ClaimPhase::Error
        } else {
            ClaimPhase::Pending
        }),
        conditions: conditions.into_vec(),
        ..SubnetClaimStatus::default()
    }
}

fn bound(cidr: &str) -> SubnetClaimStatus {
    SubnetClaimStatus {
        phase: Some(ClaimPhase::Bound),
        allocated_cidr: Some(cidr.to_owned()),
        ..SubnetClaimStatus::default()
    }
}

proptest! {
    /// The running count is what a recount of all claims gives, whatever came and went.
    #[test]
    fn claims_by_phase_are_what_a_recount_gives(
        changes in prop::collection::vec((0usize..3, 0usize..6, prop::option::of(0usize..4)), 0..200),
    ) {
        let mut world = World::new();
        for (namespace, name, phase) in changes {
            let key = (["a", "b", "c"][namespace], ["u", "v", "w", "x", "y", "z"][name]);
            match phase {
                Some(phase) => {
                    let status = [json!(null), json!({"phase": "Pending"}), json!({"phase": "Bound"}), json!({"phase": "Error"})];
                    let spec = json!({"poolRef": "p", "clusterID": "x"});
                    world.put(CLAIMS, key, json!({"spec": spec, "status": status[phase]}));
                }
                None => world.gone(CLAIMS, key),
            }
        }
        let mut recount: BTreeMap<String, Phases> = BTreeMap::new();
        for claim in world.view.all::<ClaimRecord>() {
            recount.entry(claim.meta.key.namespace().to_owned()).or_default()[phase(claim)] += 1;
        }
        prop_assert_eq!(&world.tally().claims, &recount);
    }
}

#[test]
fn free_blocks_are_those_of_the_map_and_the_default_size_is_among_them() {
    let mut world = World::new();
    world.pool("p", json!({"cidr": "10.0.0.0/16"}));
    world.subnet(
        "s",
        "10.0.0.0/24",
        json!({"phase": "Allocated", "observedGeneration": 1}),
    );
    assert_eq!(
        world.value(r#"aquanaut_subnet_free{namespace="ns",pool="p",size="16"}"#),
        Some(0.0)
    );
    assert_eq!(
        world.value(r#"aquanaut_subnet_free{namespace="ns",pool="p",size="24"}"#),
        Some(255.0)
    );
    assert_eq!(
        world.value(r#"aquanaut_subnet_free{namespace="ns",pool="p",size="28"}"#),
        Some(4080.0)
    );
    assert_eq!(
        world.value(r#"usher_subnets_default_size{namespace="ns",pool="p",size="24"}"#),
        Some(1.0)
    );
    assert_eq!(
        world.value(r#"plexaubnet_pool_allocated_total{namespace="ns",pool="p"}"#),
        Some(1.0)
    );
}

/// At most 32 sizes, and always the one the alert SubnetPoolExhausted joins on.
#[test]
fn a_pool_with_many_sizes_shows_32_of_them_with_the_default_one() {
    for (default, longest) in [(40, 128), (64, 128), (120, 128), (128, 128), (33, 64)] {
        let mut world = World::new();
        let spec = json!({"cidr": "2001:db8::/32", "defaultBlockSize": default, "maxBlockSize": longest});
        world.pool("p", spec);
        let text = world.text();
        let sizes: Vec<u8> = text
            .lines()
            .filter_map(|line| line.strip_prefix(r#"aquanaut_subnet_free{namespace="ns",pool="p",size=""#))
            .map(|rest| rest.split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(sizes.len(), 32, "default /{default}, longest /{longest}");
        assert!(sizes.contains(&default), "default /{default} is not in {sizes:?}");
    }
}

#[test]
fn waiting_claims_are_counted_with_the_age_of_the_oldest_also_where_the_pool_is_missing() {
    let mut world = World::new();
    world.pool("p", json!({"cidr": "10.0.0.0/24", "maxBlockSize": 28}));
    for name in ["a", "b"] {
        world.claim(name, "p", json!({}));
    }
    world.claim("c", "missing", json!({}));
    // What the pool never grants does not wait for it.
    let impossible = json!({"poolRef": "p", "clusterID": "d", "blockSize": 8});
    world.put(CLAIMS, ("ns", "d"), json!({"spec": impossible}));
    assert_eq!(
        world.value(r#"usher_subnets_waiting_claims{namespace="ns",pool="p"}"#),
        Some(2.0)
    );
    assert_eq!(
        world.value(r#"usher_subnets_oldest_wait_seconds{namespace="ns",pool="p"}"#),
        Some(100.0)
    );
    assert_eq!(
        world.value(r#"usher_subnets_waiting_claims{namespace="ns",pool="missing"}"#),
        Some(1.0)
    );
    for name in ["a", "b", "c"] {
        world.gone(CLAIMS, ("ns", name));
    }
    assert_eq!(
        world.value(r#"usher_subnets_oldest_wait_seconds{namespace="ns",pool="p"}"#),
        Some(0.0)
    );
    assert_eq!(
        world.value(r#"usher_subnets_waiting_claims{namespace="ns",pool="missing"}"#),
        None
    );
}

#[test]
fn overlaps_and_subnets_out_of_range_are_shown() {
    let mut world = World::new();
    world.pool("p", json!({"cidr": "10.0.0.0/16"}));
    let allocated = json!({"phase": "Allocated", "observedGeneration": 1});
    for (name, cidr) in [("a", "10.0.0.0/24"), ("b", "10.0.0.0/25"), ("c", "10.9.0.0/24")] {
        world.subnet(name, cidr, allocated.clone());
    }
    assert_eq!(
        world.value(r#"usher_subnets_overlaps{namespace="ns",pool="p"}"#),
        Some(1.0)
    );
    assert_eq!(
        world.value(r#"usher_subnets_out_of_range{namespace="ns",pool="p"}"#),
        Some(1.0)
    );
}

#[test]
fn a_claim_counts_once_for_each_thing_it_is_told() {
    let mut world = World::new();
    world.pool("p", json!({"cidr": "10.0.0.0/16"}));
    world.view.tell_time(Moment::after_start(Duration::from_secs(5)));
    world.claim("c", "p", json!({}));
    let now = Moment::after_start(Duration::from_millis(5_300));
    for status in [
        told("PoolExhausted"),
        told("PoolExhausted"),
        told("PoolNotReady"),
        told("PoolExhausted"),
        told("RequestedCIDRInUse"),
        told("InvalidRequest"),
        bound("10.0.7.0/26"),
    ] {
        world.claim_told("c", &status, now);
    }
    let count = |size: u8, result: &str| {
        world.value(&format!(
            r#"aquanaut_subnet_alloc_total{{namespace="ns",pool="p",size="{size}",result="{result}"}}"#
        ))
    };
    assert_eq!(
        count(24, "exhausted"),
        Some(2.0),
        "a message that stays is no second one"
    );
    assert_eq!((count(24, "conflict"), count(24, "validation")), (Some(1.0), Some(1.0)));
    assert_eq!(
        (count(26, "success"), count(24, "success")),
        (Some(1.0), Some(0.0)),
        "by the size it got"
    );
    let label = ResultLabel { result: "success" };
    let mut registry = Registry::default();
    registry.register("latency", "", world.tally().latency.get_or_create_owned(&label));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(
        text.contains("latency_sum 0.3\n") || text.contains("latency_sum 0.29"),
        "from when it was seen: {text}"
    );
    assert!(text.contains("latency_count 1\n"), "{text}");
}

#[test]
fn nothing_is_counted_for_a_pass_that_wrote_nothing() {
    let mut world = World::new();
    world.pool("p", json!({"cidr": "10.0.0.0/16"}));
    world.claim("c", "p", json!({}));
    let key = ObjectKey::new("ns", "c").unwrap();
    let claim = world.view.get::<ClaimRecord>(&key).unwrap().clone();
    let plan: Plan<ClaimStep, _> = Plan::report(bound("10.0.0.0/24"));
    let mut pass = passed::<Claims>(&key, kind::Outcome::Moved, &[], Moment::START, Some((&*claim, &plan)));
    pass.reported = false;
    claim_passed(&world.view, &pass);
    assert!(lock(&world.tally().pools).is_empty());
}

#[test]
fn rows_1_to_6_are_counted_when_their_pass_is_over_and_others_are_not() {
    let world = World::new();
    let key = ObjectKey::new("ns", "p").unwrap();
    let pass = |outcome, whys: &[(Why, u32)]| {
        pool_passed(&world.view, &passed::<Pools>(&key, outcome, whys, Moment::START, None));
    };
    let count = |event_type, result| {
        world
            .tally()
            .requeues
            .get_or_create(&RequeueLabel { event_type, result })
            .get()
    };
    let whys = [
        (Why::CREATE, 7),
        (Why::DELETE, 1),
        (Why("claim"), 5),
        (Why::TIMER, 3),
        (Why::ECHO, 2),
    ];
    pass(kind::Outcome::Success, &whys);
    pass(kind::Outcome::Error, &[(Why::CREATE, 2)]);
    pass(kind::Outcome::Timeout, &[(Why::RETRY, 1)]);
    pass(kind::Outcome::Gone, &[(Why::EXTERNAL, 1)]);
    // Put off: the pass that follows serves them, and is told of them.
    for outcome in [
        kind::Outcome::Stale,
        kind::Outcome::Moved,
        kind::Outcome::NotLeader,
        kind::Outcome::HeldBack,
    ] {
        pass(outcome, &[(Why::UPDATE, 1)]);
    }
    assert_eq!((count("create", "success"), count("create", "error")), (7, 2));
    assert_eq!(
        (
            count("delete", "success"),
            count("retry", "error"),
            count("external", "success")
        ),
        (1, 1, 1)
    );
    assert_eq!((count("update", "success"), count("update", "error")), (0, 0));
    let mut registry = Registry::default();
    registry.register("r", "", world.tally().requeues.clone());
    registry.register("d", "", world.tally().durations.clone());
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for other in ["claim", "timer", "echo"] {
        assert!(!text.contains(other), "{other} is no row of 1 to 6: {text}");
    }
    assert!(
        text.contains(r#"d_count{result="success"} 2"#) && text.contains(r#"d_count{result="error"} 2"#),
        "{text}"
    );
    for bucket in [
        "0.001", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "10.0", "30.0", "90.0",
    ] {
        assert!(
            text.contains(&format!(r#"le="{bucket}""#)),
            "no bucket {bucket}: {text}"
        );
    }
}

/// R28: the label counts up per claim, and is the pool's name alone.
#[test]
fn r28_retries_count_up_per_claim_and_start_over_when_it_is_bound() {
    let mut world = World::new();
    world.pool("p", json!({"cidr": "10.0.0.0/16"}));
    let pool = ObjectKey::new("ns", "p").unwrap();
    world.claim("c", "p", json!({}));
    let uid: usher_engine::Uid = "ns/c".into();
    for _ in 0..3 {
        retried(&world.view, &pool, &uid);
    }
    world.claim("c", "p", json!({"phase": "Bound", "allocatedCIDR": "10.0.0.0/24"}));
    retried(&world.view, &pool, &uid);
    let count = |times: u32| {
        world.value(&format!(
            r#"aquanaut_subnet_alloc_retry_total{{pool="p",retries="{times}"}}"#
        ))
    };
    assert_eq!([1, 2, 3, 4].map(count), [Some(2.0), Some(1.0), Some(1.0), None]);
    for _ in 0..40 {
        retried(&world.view, &pool, &uid);
    }
    assert!(
        count(MOST_RETRIES).is_some() && count(MOST_RETRIES + 1).is_none(),
        "labels are bounded"
    );
}

#[test]
fn r24_a_candidate_that_yields_to_another_is_a_contest() {
    let mut world = World::new();
    world.pool("p", json!({"cidr": "10.0.0.0/16"}));
    world.subnet(
        "first",
        "10.0.0.0/24",
        json!({"phase": "Allocated", "observedGeneration": 1}),
    );
    world.subnet("second", "10.0.0.0/25", json!({}));
    world.subnet("third", "10.0.1.0/24", json!({}));
    let failed = crate::api::SubnetStatus {
        phase: Some(SubnetPhase::Failed),
        ..Default::default()
    };
    for (name, outcome) in [
        ("second", kind::Outcome::Success),
        ("second", kind::Outcome::Moved),
        ("third", kind::Outcome::Success),
        ("first", kind::Outcome::Success),
    ] {
        let key = ObjectKey::new("ns", name).unwrap();
        let subnet = world.view.get::<SubnetRecord>(&key).unwrap().clone();
        let plan: Plan<SubnetStep, _> = Plan::report(failed.clone());
        subnet_passed(
            &world.view,
            &passed::<Subnets>(&key, outcome, &[], Moment::START, Some((&*subnet, &plan))),
        );
    }
    assert_eq!(world.tally().contests.get(), 1);
    drifted(&world.view, 3);
    assert_eq!(world.tally().drift.get(), 3);
}

#[test]
fn series_of_a_pool_go_when_the_pool_goes_and_stay_gone() {
    let mut world = World::new();
    world.pool("p", json!({"cidr": "10.0.0.0/16"}));
    world.pool("q", json!({"cidr": "10.1.0.0/16"}));
    world.claim("c", "p", json!({}));
    world.claim_told("c", &told("PoolExhausted"), Moment::START);
    retried(&world.view, &ObjectKey::new("ns", "p").unwrap(), &"ns/c".into());
    assert!(world.text().contains(r#"pool="p""#));
    world.gone(CLAIMS, ("ns", "c"));
    world.gone(POOLS, ("ns", "p"));
    // A pass that was under way when the pool went must not bring it back.
    retried(&world.view, &ObjectKey::new("ns", "p").unwrap(), &"ns/c".into());
    assert!(!world.text().contains(r#"pool="p""#), "{}", world.text());
    assert!(world.text().contains(r#"pool="q""#));
    assert!(lock(&world.tally().pools).is_empty() && world.tally().claims.is_empty());
}

/// Names, types and labels are those of the table; a counter's name is its name, with one `_total`.
#[test]
fn what_is_read_from_the_view_has_the_names_types_and_labels_of_the_table() {
    let mut world = World::new();
    world.pool("p", json!({"cidr": "10.0.0.0/16"}));
    world.claim("c", "p", json!({}));
    let text = world.text();
    let mut shown = BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        let name = if kind == "counter" {
            format!("{name}_total")
        } else {
            name.to_owned()
        };
        let metric = METRICS.iter().find(|metric| metric.name == name);
        let metric = metric.unwrap_or_else(|| panic!("{name} is not in the table"));
        assert_eq!(format!("{:?}", metric.shape).to_lowercase(), kind, "{name}");
        if let Some(series) = text.lines().find(|line| line.starts_with(&format!("{name}{{"))) {
            let labels: Vec<&str> = series
                .split(['{', ','])
                .skip(1)
                .map(|part| part.split('=').next().unwrap())
                .collect();
            assert_eq!(labels, metric.labels, "{series}");
        }
        shown.insert(name);
    }
    assert!(shown.len() >= 15, "{shown:?}");
    assert!(
        text.contains("\nplexaubnet_pool_allocated_total{"),
        "a gauge with a counter's name: {text}"
    );
}
