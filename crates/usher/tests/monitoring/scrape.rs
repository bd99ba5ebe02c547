//! A scrape of a running operator.

use kube::api::DeleteParams;
use serde_json::json;
use usher_subnets::metrics::names::METRICS;

use super::exposition::Exposition;
use crate::support::plane::left_out;
use crate::support::world::eventually;
use crate::support::{Now, Operator, World, rights};

fn scrape(operator: &Operator) -> Exposition {
    Exposition::read(&operator.metrics())
}

/// A26, first half. The values are those of a small story that has something of everything.
#[tokio::test(flavor = "multi_thread")]
async fn a26_every_metric_of_section_9_is_there_with_its_labels_and_says_what_happened() {
    let world = World::new().await;
    let spec = json!({"cidr": "10.0.0.0/24", "defaultBlockSize": 26, "maxBlockSize": 28});
    world.pool("p", spec).await;
    let operator = world.operator().log_level("info,usher_subnets=debug").ready().await;
    let bound = ["a", "b", "c", "d"];
    for name in bound {
        world.claim(name, json!({"poolRef": "p"})).await;
    }
    world.until_bound(&bound).await;
    world.claim("waits", json!({"poolRef": "p"})).await;
    let exact = json!({"poolRef": "p", "requestedCIDR": "10.0.0.0/26"});
    world.claim("taken", exact).await;
    world.claim("impossible", json!({"poolRef": "p", "blockSize": 8})).await;
    // It yields to whoever was there first.
    world.subnet("by-hand", "p", "10.0.0.0/28").await;
    world
        .until("all were told", |now| {
            let reasons = ["waits", "taken", "impossible"].map(|name| now.reason(name));
            let failed = now
                .subnets
                .get("by-hand")
                .and_then(|s| s.status.as_ref()?.reason.as_deref());
            reasons
                == [
                    Some("PoolExhausted"),
                    Some("RequestedCIDRInUse"),
                    Some("InvalidRequest"),
                ]
                && failed == Some("Overlap")
        })
        .await;
    world.until_exact("p").await;

    let here = ("namespace", world.namespace.as_str());
    let of_p = [here, ("pool", "p")];
    // What a pass did is counted when it is over, a moment after its last write. Six creations: the pool, four Subnets of
    // claims and one made by hand (rows 1 and 4 of section 7).
    eventually("the contest and all creations are counted", async || {
        let shown = scrape(&operator);
        let created = shown.sum("subnetpool_parent_requeue_total", &[("event_type", "create")]);
        (shown.sum("usher_subnets_contests_total", &[]), created) == (1.0, 6.0)
    })
    .await;
    let shown = scrape(&operator);
    let faults: Vec<String> = METRICS.iter().filter_map(|metric| shown.fault(metric)).collect();
    assert!(faults.is_empty(), "{faults:#?}");

    let told = |result| {
        shown.sum(
            "aquanaut_subnet_alloc_total",
            &[here, ("pool", "p"), ("result", result)],
        )
    };
    assert_eq!(
        ["success", "exhausted", "conflict", "validation"].map(told),
        [4.0, 1.0, 1.0, 1.0]
    );
    assert_eq!(
        shown.sum("aquanaut_subnet_alloc_total", &[("size", "8")]),
        1.0,
        "by the size asked for"
    );
    assert_eq!(
        shown.sum("aquanaut_subnet_alloc_latency_seconds_count", &[("result", "success")]),
        4.0
    );
    let phase = |phase| shown.sum("plexaubnet_claim_phase", &[here, ("phase", phase)]);
    assert_eq!(["Bound", "Pending", "Error"].map(phase), [4.0, 2.0, 1.0]);
    assert_eq!(shown.sum("plexaubnet_pool_allocated_total", &of_p), 4.0);
    assert_eq!(shown.sum("usher_subnets_waiting_claims", &of_p), 2.0);
    assert!(shown.sum("usher_subnets_oldest_wait_seconds", &of_p) > 0.0);
    assert_eq!(
        shown.sum("aquanaut_subnet_free", &of_p),
        0.0,
        "a full pool has no block of any size"
    );
    assert_eq!(
        shown.sum("usher_subnets_default_size", &[here, ("pool", "p"), ("size", "26")]),
        1.0
    );
    let joined = shown
        .of("aquanaut_subnet_free", &[("pool", "p"), ("size", "26")])
        .count();
    assert_eq!(joined, 1, "the alert SubnetPoolExhausted finds the default size");

    let wrote = |verb, resource| {
        shown.sum(
            "usher_subnets_api_writes_total",
            &[("verb", verb), ("resource", resource), ("result", "success")],
        )
    };
    assert_eq!(wrote("create", "subnets"), 4.0, "I11, write 1 of R19");
    assert_eq!(wrote("update", "subnets"), 5.0, "write 2, and the one that failed");
    assert!(
        (7.0..=9.0).contains(&wrote("update", "subnetclaims")),
        "write 3, and three that were told why not"
    );
    assert_eq!(
        shown.sum("subnetpool_parent_requeue_total", &[("result", "error")]),
        0.0
    );
    assert!(
        shown.sum(
            "subnetpool_parent_reconcile_duration_seconds_count",
            &[("result", "success")]
        ) >= 1.0
    );
    let written = shown.sum(
        "subnetpool_parent_status_last_timestamp_seconds",
        &[("ns", here.1), ("name", "p")],
    );
    let now = jiff::Timestamp::now().as_second() as f64;
    assert!(
        (now - 60.0..=now + 1.0).contains(&written),
        "{written} is not now ({now})"
    );

    // Series of a pool go when the pool goes.
    world.subnets.delete("by-hand", &DeleteParams::default()).await.unwrap();
    // Those who wait go first, lest they are served.
    for names in [["waits", "taken", "impossible"].as_slice(), &bound] {
        world.unclaim_all(names.iter().map(ToString::to_string)).await;
        let left = |now: &Now| names.iter().any(|name| now.claims.contains_key(*name));
        world.until("they are gone", |now| !left(now)).await;
    }
    world.pools.delete("p", &DeleteParams::default()).await.unwrap();
    world
        .until("the pool is gone", |now| !now.pools.contains_key("p"))
        .await;
    eventually("its series are gone", async || {
        let shown = scrape(&operator);
        let names_it = |series: &&super::exposition::Series| {
            let is = |label: &str| series.labels.get(label).is_some_and(|value| value == "p");
            is("pool") || is("name")
        };
        shown.series.iter().find(names_it).is_none() && shown.of("plexaubnet_claim_phase", &[here]).next().is_none()
    })
    .await;
    let log = operator.log();
    let lines = |word: &str| log.lines().filter(|line| line.contains(word)).count();
    assert_eq!(lines("bound claim="), 4, "one info line per claim bound");
    assert_eq!(lines("released subnet="), 4, "and per release");
    let of_bound = |line: &&str| line.contains("bound claim=");
    let whole = |line: &str| [" pool=", " cidr=", " ms="].iter().all(|field| line.contains(field));
    assert!(log.lines().filter(of_bound).all(whole));
    let mapped = format!(
        r#"parent_pool_mapped ns="{}" pool="p" event="create" subnet="by-hand""#,
        here.1
    );
    assert_eq!(lines(&mapped), 1, "{mapped}");
    world.history.check();
}

/// A26, "failures injected": the right to write a pool's status is missing, then it is granted.
#[tokio::test(flavor = "multi_thread")]
async fn a26_passes_that_fail_are_counted_as_errors_with_what_asked_for_them() {
    if left_out("a26_passes_that_fail_are_counted_as_errors_with_what_asked_for_them") {
        return;
    }
    let world = World::new().await;
    let mut lacking = rights::all();
    lacking[0] = json!({"apiGroups": ["plexaubnet.io"],
        "resources": ["subnets", "subnets/status", "subnetclaims", "subnetclaims/status", "subnetpools", "subnetpoolclaims"],
        "verbs": ["*"]});
    world.grant(lacking).await;
    let account = world.account("operator").await;
    let operator = world.operator().with(&account).ready().await;
    world.pool("p", json!({"cidr": "10.0.0.0/24"})).await;
    let failed = |shown: &Exposition| {
        shown.sum(
            "subnetpool_parent_requeue_total",
            &[("event_type", "create"), ("result", "error")],
        )
    };
    eventually("a pass of the pool failed", async || failed(&scrape(&operator)) == 1.0).await;
    let shown = scrape(&operator);
    assert_eq!(
        shown.sum(
            "subnetpool_parent_reconcile_duration_seconds_count",
            &[("result", "error")]
        ),
        1.0
    );
    assert!(
        shown.sum(
            "usher_subnets_api_writes_total",
            &[("resource", "subnetpools"), ("result", "forbidden")]
        ) >= 1.0
    );
    world.grant(rights::all()).await;
    world.edit_pool("p", json!({"cidr": "10.0.0.0/23"})).await;
    eventually("and then one went well", async || {
        let shown = scrape(&operator);
        shown.sum("subnetpool_parent_requeue_total", &[("result", "success")]) >= 2.0
            && shown.sum("workqueue_retries_total", &[("name", "PoolStatus")]) >= 1.0
    })
    .await;
    assert_eq!(failed(&scrape(&operator)), 1.0, "what was served is not counted again");
}
