//! Statuses that somebody wrote nonsense into: they are planned and written anew, nobody loses a range, and nobody else
//! notices.

use serde_json::json;
use usher_subnets::api::SubnetPhase;

use crate::support::World;
use crate::support::invariants::phase;

/// A bystander that must not notice, and one claim to do it to.
async fn scene() -> (World, crate::support::Operator) {
    let world = World::new().await;
    let operator = world.operator().ready().await;
    world.pool("pool", json!({"cidr": "10.0.0.0/24"})).await;
    world
        .claim("bystander", json!({"poolRef": "pool", "blockSize": 28}))
        .await;
    world.until_bound(&["bystander"]).await;
    world.claim("victim", json!({"poolRef": "pool", "blockSize": 28})).await;
    world.until_bound(&["victim"]).await;
    (world, operator)
}

/// Afterwards: both have what they had, the pool counts right, and the next claim is served.
async fn ends_right(world: &World, tampered: &[&str]) {
    world
        .until("both have what they had", |now| {
            now.range("bystander") == Some("10.0.0.0/28") && now.range("victim") == Some("10.0.0.16/28")
        })
        .await;
    world.claim("next", json!({"poolRef": "pool", "blockSize": 28})).await;
    world.until_bound(&["next"]).await;
    world
        .history
        .now(|now| assert_eq!(now.range("next"), Some("10.0.0.32/28")));
    world.until_exact("pool").await;
    world.history.check_but(tampered);
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_in_a_subnets_status_is_overwritten_and_its_range_is_kept() {
    let (world, _operator) = scene().await;
    let subnet = "pool-10-0-0-16-28";
    for nonsense in [
        json!({"observedGeneration": -7}),
        json!({"phase": "Pending"}),
        json!({"phase": "Failed", "reason": "Mood", "message": "I do not like it"}),
        json!(null),
    ] {
        world.scribble(&world.subnets, subnet, nonsense).await;
        world
            .until("it is Allocated again", |now| {
                phase(&now.subnets[subnet]) == Some(SubnetPhase::Allocated)
            })
            .await;
    }
    world
        .scribble(
            &world.subnets,
            subnet,
            json!({"phase": "Released", "releasedAt": "2020-01-01T00:00:00Z"}),
        )
        .await;
    ends_right(&world, &["victim", subnet]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_that_somebody_wrote_allocated_by_hand_is_reported_and_takes_nothing() {
    let (world, _operator) = scene().await;
    // Over the bystander's range, with a status that says it is ours: the overlap stays visible until it is deleted.
    world.subnet("liar", "pool", "10.0.0.0/27").await;
    world
        .until("it failed", |now| {
            now.subnets.get("liar").and_then(phase) == Some(SubnetPhase::Failed)
        })
        .await;
    world
        .scribble(
            &world.subnets,
            "liar",
            json!({"phase": "Allocated", "observedGeneration": 1}),
        )
        .await;
    world
        .until("the pool says so", |now| {
            let conflicted = now.condition("pool", "Conflicted");
            conflicted.is_some_and(|(status, reason, _)| status == "True" && reason == "Overlap")
        })
        .await;
    world.history.now(|now| {
        assert_eq!(now.pools["pool"].status.as_ref().unwrap().overlaps, 2);
        assert!(now.is_bound("bystander") && now.is_bound("victim"));
    });
    world.until_exact("pool").await;
    world
        .subnets
        .delete("liar", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    world
        .until("clean again", |now| {
            now.condition("pool", "Conflicted")
                .is_some_and(|(status, ..)| status == "False")
        })
        .await;
    ends_right(&world, &["liar"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_in_a_claims_status_is_overwritten_and_its_range_is_kept() {
    let (world, _operator) = scene().await;
    for nonsense in [
        json!({"allocatedCIDR": "banana"}),
        json!({"allocatedCIDR": null}),
        json!({"phase": "Pending", "message": "I say so"}),
        json!({"phase": "Error", "conditions": [{"type": "Ready", "status": "Unknown", "reason": "Mood",
            "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}),
        json!(null),
    ] {
        world.scribble(&world.claims, "victim", nonsense.clone()).await;
        world
            .until(&format!("after {nonsense}: Bound again"), |now| {
                now.range("victim") == Some("10.0.0.16/28")
                    && now.is_bound("victim")
                    && now.reason("victim") == Some("Allocated")
                    && now.message("victim").is_empty()
            })
            .await;
    }
    ends_right(&world, &["victim"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_in_a_pools_status_is_overwritten_and_gates_nothing() {
    let (world, _operator) = scene().await;
    let many: serde_json::Map<String, serde_json::Value> = (0..20_000)
        .map(|n| (format!("10.{}.{}.0/28", n / 256, n % 256), json!("x".repeat(40))))
        .collect();
    for nonsense in [
        json!({"allocatedCount": -3, "freeCountBySize": {"28": 0, "/24": 0, "x": 9}, "largestFreeBlock": "none"}),
        json!({"waitingClaims": 10_000, "overlaps": 5, "outOfRange": 5, "observedGeneration": 77, "usedPercent": 1000}),
        json!({"conditions": [{"type": "Ready", "status": "False", "reason": "Mood", "message": "closed",
            "lastTransitionTime": "2020-01-01T00:00:00Z"}]}),
        // More than a megabyte of it.
        json!({"allocatedCIDRs": many}),
        json!(null),
    ] {
        world.scribble(&world.pools, "pool", nonsense).await;
        world.until_exact("pool").await;
        world
            .until("it is Ready", |now| {
                now.condition("pool", "Ready")
                    .is_some_and(|(status, ..)| status == "True")
            })
            .await;
    }
    ends_right(&world, &[]).await;
}
