//! Subnets made by hand: they fail with a reason, recover by themselves, and their pool knows at once (A11).

use std::time::{Duration, Instant};

use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use usher_subnets::api::SubnetPhase;

use crate::support::invariants::phase;
use crate::support::{Now, World};

pub(crate) fn is(now: &Now, subnet: &str, wanted: SubnetPhase, reason: Option<&str>) -> bool {
    now.subnets.get(subnet).is_some_and(|subnet| {
        let said = subnet.status.as_ref().and_then(|status| status.reason.as_deref());
        phase(subnet) == Some(wanted) && said == reason
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a11_subnets_made_by_hand_fail_with_a_reason_and_recover_by_themselves() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world.subnet("early", "pool", "10.0.0.0/26").await;
    world
        .until("no pool", |now| {
            is(now, "early", SubnetPhase::Failed, Some("PoolNotFound"))
        })
        .await;
    world.pool("pool", json!({"cidr": "10.0.0.0/24"})).await;
    world
        .until("the pool came", |now| is(now, "early", SubnetPhase::Allocated, None))
        .await;
    world.subnet("over", "pool", "10.0.0.32/27").await;
    world
        .until("it overlaps", |now| {
            is(now, "over", SubnetPhase::Failed, Some("Overlap"))
        })
        .await;
    world.until_event("Subnet", "over", "Warning AllocationConflict").await;
    world.history.now(|now| {
        let message = now.subnets["over"].status.clone().unwrap().message.unwrap();
        assert!(
            message.contains("early") && message.contains("10.0.0.0/26"),
            "the other is named: {message}"
        );
    });
    world.subnet("outside", "pool", "10.9.0.0/24").await;
    world
        .until("it lies outside", |now| {
            is(now, "outside", SubnetPhase::Failed, Some("OutOfRange"))
        })
        .await;
    world.until_exact("pool").await;
    world.history.now(|now| assert_eq!(now.allocated("pool"), Some(1)));

    // Claims find their way around them.
    world.claim("claim", json!({"poolRef": "pool", "blockSize": 26})).await;
    world.until_bound(&["claim"]).await;
    world
        .history
        .now(|now| assert_eq!(now.range("claim"), Some("10.0.0.64/26")));

    // What was in the way goes, or moves: whoever waited has it.
    let begun = Instant::now();
    world.subnets.delete("early", &DeleteParams::default()).await.unwrap();
    world
        .until("resolved", |now| is(now, "over", SubnetPhase::Allocated, None))
        .await;
    println!("a Subnet made by hand recovers in {:.0?}", begun.elapsed());
    let inside = Patch::Merge(json!({"spec": {"cidr": "10.0.0.128/25"}}));
    world
        .subnets
        .patch("outside", &PatchParams::default(), &inside)
        .await
        .unwrap();
    world
        .until("edited", |now| is(now, "outside", SubnetPhase::Allocated, None))
        .await;
    world.until_exact("pool").await;
    let over_the_claim = Patch::Merge(json!({"spec": {"cidr": "10.0.0.64/27"}}));
    world
        .subnets
        .patch("outside", &PatchParams::default(), &over_the_claim)
        .await
        .unwrap();
    world
        .until("edited badly", |now| {
            is(now, "outside", SubnetPhase::Failed, Some("Overlap"))
        })
        .await;
    world.until_exact("pool").await;
    world.history.now(|now| {
        assert!(
            now.subnets
                .values()
                .filter(|s| s.spec.claim_ref.is_none())
                .all(|s| s.finalizers().is_empty())
        );
        assert!(now.is_bound("claim"));
    });
    world.history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn a11_whatever_happens_to_a_subnet_made_by_hand_its_pool_is_woken_and_knows_within_a_second() {
    let world = World::new().await;
    // The status is how the pool tells that it was woken; its usual pace would hide for how long it was not.
    let _operator = world.operator().flag("--subnets-status-every-ms", 20).ready().await;
    world.pool("pool", json!({"cidr": "10.0.0.0/24"})).await;
    world.pool("other", json!({"cidr": "10.0.0.0/24"})).await;
    world.until_exact("other").await;
    let mut times = Vec::new();
    // From the change to the parent's status: which Subnets have which ranges, of both pools.
    let until_listed = async |times: &mut Vec<Duration>, what: &str, here: &[&str], there: &[&str]| {
        let listed = |now: &Now, pool: &str, expected: &[&str]| {
            let status = now.pools[pool].status.clone().unwrap_or_default();
            status
                .allocated_cidrs
                .keys()
                .map(String::as_str)
                .eq(expected.iter().copied())
        };
        let begun = Instant::now();
        world
            .until(what, |now| listed(now, "pool", here) && listed(now, "other", there))
            .await;
        times.push(begun.elapsed());
        println!("{what}: {:.0?}", begun.elapsed());
        world.until_exact("pool").await;
    };
    let edit = async |name: &str, spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        world
            .subnets
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    };
    world.subnet("a", "pool", "10.0.0.0/26").await;
    until_listed(&mut times, "made", &["10.0.0.0/26"], &[]).await;
    world.subnet("b", "pool", "10.0.0.64/26").await;
    until_listed(&mut times, "a second", &["10.0.0.0/26", "10.0.0.64/26"], &[]).await;
    edit("b", json!({"cidr": "10.0.0.128/26"})).await;
    until_listed(&mut times, "moved", &["10.0.0.0/26", "10.0.0.128/26"], &[]).await;
    // R23, 5.5: edited into an overlap, it gives its old range up at once and has none.
    edit("b", json!({"cidr": "10.0.0.32/27"})).await;
    until_listed(&mut times, "moved over another", &["10.0.0.0/26"], &[]).await;
    world
        .until("it says so", |now| is(now, "b", SubnetPhase::Failed, Some("Overlap")))
        .await;
    edit("b", json!({"cidr": "10.9.0.0/27"})).await;
    world
        .until("outside", |now| is(now, "b", SubnetPhase::Failed, Some("OutOfRange")))
        .await;
    edit("b", json!({"cidr": "10.0.0.192/26"})).await;
    until_listed(&mut times, "moved back in", &["10.0.0.0/26", "10.0.0.192/26"], &[]).await;
    // M8: both pools are woken.
    edit("b", json!({"poolRef": "other"})).await;
    until_listed(&mut times, "to another pool", &["10.0.0.0/26"], &["10.0.0.192/26"]).await;
    edit("b", json!({"poolRef": "pool"})).await;
    until_listed(&mut times, "and back", &["10.0.0.0/26", "10.0.0.192/26"], &[]).await;
    // Renamed, that is deleted and made anew by another name: gone within a second, and the new one has its range.
    let mut deletions = Vec::new();
    for (old, new) in [("a", "a2"), ("a2", "a3"), ("a3", "a4")] {
        let begun = Instant::now();
        world.subnets.delete(old, &DeleteParams::default()).await.unwrap();
        world.until("it is gone", |now| !now.subnets.contains_key(old)).await;
        deletions.push(begun.elapsed());
        world.subnet(new, "pool", "10.0.0.0/26").await;
        let begun = Instant::now();
        world
            .until("the new one has it", |now| {
                let listed = now.pools["pool"].status.clone().unwrap_or_default().allocated_cidrs;
                is(now, new, SubnetPhase::Allocated, None) && listed.get("10.0.0.0/26").is_some_and(|id| id == new)
            })
            .await;
        times.push(begun.elapsed());
        world.until_exact("pool").await;
    }
    world.subnets.delete("a4", &DeleteParams::default()).await.unwrap();
    until_listed(&mut times, "deleted", &["10.0.0.192/26"], &[]).await;
    // A machine that does something else for a while is no fault of ours: most of them count.
    let within =
        |times: &[Duration]| times.iter().filter(|t| **t < Duration::from_secs(1)).count() * 4 >= times.len() * 3;
    assert!(within(&times), "A11: the parent is woken within a second: {times:?}");
    assert!(
        within(&deletions),
        "A11: gone within a second of the delete: {deletions:?}"
    );
    world.proof().await;
}
