//! A23: what upstream left behind is adopted and reported, and nothing of it is changed.
//!
//! Upstream's objects are written by the tests while no operator runs: Subnets without finalizer whose status says
//! Allocated, some of which overlap, and two child pools of one pool claim.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use usher_subnets::api::{ClaimPhase, FINALIZER, SubnetPhase};

use crate::support::World;
use crate::support::history::Seen;
use crate::support::invariants::{Exceptions, held, net, overlap, phase};
use crate::support::world::manifest;

/// A claim that upstream bound: no subnetRef, no conditions, no finalizer anywhere.
async fn bound_by_upstream(world: &World, name: &str, pool: &str, cidr: &str) {
    let size = net(cidr).prefix_len();
    let claim = world
        .claim(name, json!({"poolRef": pool, "clusterID": name, "blockSize": size}))
        .await;
    let status = json!({"phase": "Bound", "allocatedCIDR": cidr, "observedGeneration": 1});
    world.scribble(&world.claims, name, status).await;
    let owner = json!({"kind": "SubnetClaim", "name": name, "uid": claim.uid()});
    allocated_by_upstream(world, &subnet_name(pool, cidr), pool, cidr, name, owner).await;
}

fn subnet_name(pool: &str, cidr: &str) -> String {
    format!("{pool}-{}", cidr.replace(['.', '/'], "-"))
}

async fn allocated_by_upstream(world: &World, name: &str, pool: &str, cidr: &str, id: &str, owner: Value) {
    let mut subnet = manifest("Subnet", name, json!({"poolRef": pool, "cidr": cidr, "clusterID": id}));
    subnet["spec"]["claimRef"] = json!({"name": owner["name"], "uid": owner["uid"]});
    subnet["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "plexaubnet.io/v1alpha1", "kind": owner["kind"], "name": owner["name"], "uid": owner["uid"],
        "controller": true, "blockOwnerDeletion": true,
    }]);
    world.post("subnets", &subnet).await.unwrap();
    let status = json!({"phase": "Allocated", "allocatedAt": "2026-01-01T00:00:00Z"});
    world.scribble(&world.subnets, name, status).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a23_overlapping_subnets_of_upstream_are_adopted_and_reported_and_keep_their_ranges() {
    const MANY: u8 = 48;
    let world = World::new().await;
    world.pool("pool", json!({"cidr": "10.0.0.0/16"})).await;
    // Two that overlap, and enough others to see how fast they are adopted.
    bound_by_upstream(&world, "wide", "pool", "10.0.0.0/24").await;
    bound_by_upstream(&world, "inner", "pool", "10.0.0.64/28").await;
    for n in 0..MANY {
        bound_by_upstream(&world, &format!("c{n:02}"), "pool", &format!("10.0.{}.0/24", 2 + n)).await;
    }
    let ranges = |world: &World| -> BTreeMap<String, (String, Option<SubnetPhase>, Option<String>)> {
        world.history.now(|now| {
            let of = |s: &usher_subnets::api::Subnet| (s.spec.cidr.clone(), phase(s), s.uid());
            now.subnets.iter().map(|(name, s)| (name.clone(), of(s))).collect()
        })
    };
    let before = ranges(&world);
    assert_eq!(before.len(), 2 + usize::from(MANY));
    let begun = Instant::now();
    let _operator = world.operator().ready().await;
    world
        .until("the overlap is reported", |now| {
            let conflicted = now.condition("pool", "Conflicted");
            conflicted.is_some_and(|(status, reason, message)| {
                status == "True"
                    && reason == "Overlap"
                    && message.contains("pool-10-0-0-0-24")
                    && message.contains("pool-10-0-0-64-28")
            })
        })
        .await;
    world.until_event("SubnetPool", "pool", "Warning SubnetOverlap").await;
    world
        .until("all are adopted", |now| {
            now.subnets.values().all(|subnet| subnet.finalizers() == [FINALIZER])
        })
        .await;
    let took = begun.elapsed();
    // R38: at most 20 per second. Three batches have two seconds between the first and the last.
    println!("{} Subnets adopted in {took:.1?}", before.len());
    assert!(took >= Duration::from_secs(2), "{took:?}");
    let mut adopted: Vec<Instant> = Vec::new();
    let mut known = BTreeMap::new();
    for entry in world.history.entries() {
        if let Seen::Subnet(subnet) = &entry.object {
            let has = !subnet.finalizers().is_empty();
            let had = known.insert(subnet.uid(), has).unwrap_or(has);
            if has && !had {
                adopted.push(entry.heard);
            }
        }
    }
    adopted.sort();
    assert_eq!(adopted.len(), before.len());
    // In any second 20, and 20 more where the second begins in the middle of a batch.
    for window in adopted.windows(41) {
        let apart = window[40].duration_since(window[0]);
        assert!(apart > Duration::from_millis(900), "41 within {apart:?}");
    }
    assert_eq!(ranges(&world), before, "no range changed");
    world.until_exact("pool").await;
    world.history.now(|now| {
        let status = now.pools["pool"].status.clone().unwrap();
        assert_eq!((status.overlaps, status.allocated_count), (1, 2 + i64::from(MANY)));
        for (name, claim) in &now.claims {
            let status = claim.status.clone().unwrap();
            assert_eq!(status.phase, Some(ClaimPhase::Bound), "{name}");
        }
    });
    // Later grants avoid both.
    let names: Vec<String> = (0..30).map(|n| format!("later-{n:02}")).collect();
    let ask = |name: &String| (name.clone(), json!({"poolRef": "pool", "blockSize": 28}));
    world.claim_all(names.iter().map(ask)).await;
    world
        .until_bound(&names.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
    world
        .claim("whole", json!({"poolRef": "pool", "requestedCIDR": "10.0.0.128/25"}))
        .await;
    world
        .until("what is inside of one of them is taken", |now| {
            now.reason("whole") == Some("RequestedCIDRInUse")
        })
        .await;
    world.history.now(|now| {
        for name in &names {
            let range = net(now.range(name).unwrap());
            assert!(!overlap(&range, &net("10.0.0.0/24")), "{name} got {range}");
        }
    });
    // One of the two goes: what the other has is still taken, and the pool is well again.
    world.unclaim("wide").await;
    world
        .until("the overlap is gone", |now| {
            let conflicted = now.condition("pool", "Conflicted").map(|(_, reason, _)| reason);
            conflicted.as_deref() == Some("NoConflict") && now.is_bound("whole")
        })
        .await;
    world
        .history
        .now(|now| assert_eq!(phase(&now.subnets["pool-10-0-0-64-28"]), Some(SubnetPhase::Allocated)));
    world.until_exact("pool").await;
    let legacy: Vec<&str> = before.keys().map(String::as_str).collect();
    let proof = world
        .proof_but(&Exceptions {
            legacy: &legacy,
            // Bound before its Subnet was there: so the tests wrote it.
            forced: &world
                .history
                .now(|now| now.claims.keys().cloned().collect::<Vec<_>>())
                .iter()
                .map(String::as_str)
                .chain(["wide"])
                .filter(|name| !name.starts_with("later") && *name != "whole")
                .collect::<Vec<_>>(),
            ..Exceptions::default()
        })
        .await;
    assert_eq!(proof.gaps, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a23_of_two_child_pools_of_one_pool_claim_both_stay_and_only_one_gives_out_the_range() {
    let world = World::new().await;
    world.pool("root", json!({"cidr": "10.0.0.0/16"})).await;
    let claim = world.pool_claim("tokyo", "root", 20).await;
    let uid = claim.uid().unwrap();
    let owner = json!({
        "apiVersion": "plexaubnet.io/v1alpha1", "kind": "SubnetPoolClaim", "name": "tokyo", "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    });
    // Upstream crashed between making the pool and saying so, and made another.
    let mut internal = manifest(
        "SubnetClaim",
        "tokyo-x7k2p",
        json!({"poolRef": "root", "clusterID": uid, "blockSize": 20}),
    );
    internal["metadata"]["ownerReferences"] = json!([owner]);
    let internal = world.post("subnetclaims", &internal).await.unwrap();
    let status = json!({"phase": "Bound", "allocatedCIDR": "10.0.0.0/20", "observedGeneration": 1});
    world.scribble(&world.claims, "tokyo-x7k2p", status).await;
    let of_claim = json!({"kind": "SubnetClaim", "name": "tokyo-x7k2p", "uid": internal["metadata"]["uid"]});
    allocated_by_upstream(&world, "root-10-0-0-0-20", "root", "10.0.0.0/20", &uid, of_claim).await;
    for name in ["tokyo-aaaaa", "tokyo-zzzzz"] {
        let mut pool = manifest("SubnetPool", name, json!({"cidr": "10.0.0.0/20"}));
        pool["metadata"]["ownerReferences"] = json!([owner]);
        pool["metadata"]["labels"] = json!({"plexaubnet.io/parent": "root"});
        world.post("subnetpools", &pool).await.unwrap();
    }
    // It is Bound to the younger one, which has a Subnet in it; and so has the other.
    let status = json!({"phase": "Bound", "boundPoolName": "tokyo-zzzzz", "observedGeneration": 1});
    world.scribble(&world.pool_claims, "tokyo", status).await;
    bound_by_upstream(&world, "in-z", "tokyo-zzzzz", "10.0.0.0/24").await;
    bound_by_upstream(&world, "in-a", "tokyo-aaaaa", "10.0.1.0/24").await;
    let operator = world.operator().ready().await;
    world
        .until("the one it is Bound to serves", |now| {
            now.is_ready("tokyo-zzzzz") && held(&now.pools["tokyo-zzzzz"])
        })
        .await;
    world
        .until("all is adopted", |now| {
            now.subnets.values().all(|subnet| subnet.finalizers() == [FINALIZER])
        })
        .await;
    // Reported: whoever looks at the pool claim sees that there is one too many.
    world.until_event("SubnetPoolClaim", "tokyo", "tokyo-aaaaa").await;
    world.history.now(|now| {
        assert_eq!(now.pool_of("tokyo"), Some("tokyo-zzzzz"));
        assert_eq!(now.pools.len(), 3, "not deleted");
        for (claim, range) in [("in-z", "10.0.0.0/24"), ("in-a", "10.0.1.0/24")] {
            assert_eq!(now.range(claim), Some(range), "no range changed");
        }
    });
    // One of them gives out the range, the other does not: two who do would give it out twice (I4).
    world
        .claim("new-z", json!({"poolRef": "tokyo-zzzzz", "blockSize": 24}))
        .await;
    world
        .claim("new-a", json!({"poolRef": "tokyo-aaaaa", "blockSize": 24}))
        .await;
    world.until_bound(&["new-z"]).await;
    world
        .until("the other one does not serve", |now| {
            now.reason("new-a") == Some("PoolNotReady")
        })
        .await;
    // The spare one goes as everything else: after its Subnets, and without the holder.
    world
        .pools
        .delete("tokyo-aaaaa", &DeleteParams::default())
        .await
        .unwrap();
    world.unclaim_all(["in-a", "new-a"].map(str::to_owned)).await;
    world
        .until("it is gone", |now| !now.pools.contains_key("tokyo-aaaaa"))
        .await;
    world.history.now(|now| {
        assert_eq!(phase(&now.subnets["root-10-0-0-0-20"]), Some(SubnetPhase::Allocated));
        assert_eq!(now.pool_of("tokyo"), Some("tokyo-zzzzz"));
    });
    world.until_exact("root").await;
    world.until_exact("tokyo-zzzzz").await;
    drop(operator);
    world
        .proof_but(&Exceptions {
            legacy: &["root-10-0-0-0-20", "tokyo-zzzzz-10-0-0-0-24", "tokyo-aaaaa-10-0-1-0-24"],
            forced: &["tokyo-x7k2p", "in-z", "in-a"],
            ..Exceptions::default()
        })
        .await;
}
