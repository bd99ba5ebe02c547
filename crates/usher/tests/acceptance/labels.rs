//! Child pools by label (A14): held by their parent whatever happens to label and range, without room, in a circle.

use std::time::Instant;

use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;
use usher_subnets::api::{FINALIZER, PARENT_LABEL, Strategy, SubnetPhase};

use super::children::in_order;
use crate::support::invariants::{held, net, owner, phase};
use crate::support::plane::left_out;
use crate::support::{Now, World};

#[tokio::test(flavor = "multi_thread")]
async fn a14_a_labelled_pool_is_held_by_its_parent_whatever_happens_to_label_and_range() {
    let world = World::new().await;
    // So that a status tells of a wake at once.
    let _operator = world.operator().flag("--subnets-status-every-ms", 50).ready().await;
    world.pool("root", json!({"cidr": "10.0.0.0/16"})).await;
    world.child_pool("child", "root", json!({"cidr": "10.0.16.0/20"})).await;
    world
        .until("it has its range and serves", |now| now.is_ready("child"))
        .await;
    world.history.now(|now| {
        let holder = now.holder("child").unwrap();
        assert_eq!(holder.name_any(), "root-10-0-16-0-20");
        assert_eq!(
            (holder.spec.pool_ref.as_str(), phase(holder)),
            ("root", Some(SubnetPhase::Allocated))
        );
        assert_eq!(holder.finalizers(), [FINALIZER]);
        assert_eq!(owner(holder, "SubnetPool"), now.pools["child"].uid());
        assert_eq!(holder.spec.claim_ref, None);
        assert!(held(&now.pools["child"]));
    });
    let sums = |now: &Now| {
        let status = now.pools["root"].status.clone().unwrap();
        (status.allocated_count, status.child_pools)
    };
    world.until("the parent counts it", |now| sums(now) == (1, 1)).await;
    world
        .claim("in-child", json!({"poolRef": "child", "blockSize": 21}))
        .await;
    world.until_bound(&["in-child"]).await;
    world
        .history
        .now(|now| assert_eq!(now.range("in-child"), Some("10.0.16.0/21")));

    // Bigger than what the parent holds: cut to that.
    let mismatch = |now: &Now| {
        let conflicted = now.condition("child", "Conflicted");
        conflicted.is_some_and(|(status, reason, message)| {
            status == "True" && reason == "HolderMismatch" && message.contains("10.0.16.0/20")
        })
    };
    world
        .edit_pool("child", json!({"cidr": "10.0.0.0/18", "minBlockSize": 18}))
        .await;
    world.until("it says so", mismatch).await;
    world
        .claim("too-much", json!({"poolRef": "child", "requestedCIDR": "10.0.0.0/20"}))
        .await;
    world
        .until("nothing outside of the holder is granted", |now| {
            now.reason("too-much") == Some("InvalidRequest")
        })
        .await;
    world.claim("rest", json!({"poolRef": "child", "blockSize": 22})).await;
    world.until_bound(&["rest"]).await;
    world
        .history
        .now(|now| assert_eq!(now.range("rest"), Some("10.0.24.0/22")));
    // Smaller: what is outside stays with whoever has it.
    world
        .edit_pool("child", json!({"cidr": "10.0.28.0/22", "minBlockSize": null}))
        .await;
    world
        .until("two are outside", |now| {
            now.pools["child"].status.as_ref().is_some_and(|s| s.out_of_range == 2)
        })
        .await;
    world.until("it says so", mismatch).await;
    world
        .claim("inside", json!({"poolRef": "child", "blockSize": 22}))
        .await;
    world.until_bound(&["inside"]).await;
    world
        .history
        .now(|now| assert_eq!(now.range("inside"), Some("10.0.28.0/22")));
    // Elsewhere: nothing is served, nothing is lost, the parent still holds what it held.
    world.edit_pool("child", json!({"cidr": "10.0.64.0/20"})).await;
    world
        .until("it does not serve", |now| {
            now.condition("child", "Ready")
                .is_some_and(|(_, reason, message)| reason == "WaitingParent" && message.contains("10.0.16.0/20"))
        })
        .await;
    world
        .claim("elsewhere", json!({"poolRef": "root", "requestedCIDR": "10.0.64.0/20"}))
        .await;
    world.until_bound(&["elsewhere"]).await;
    world
        .claim("thief", json!({"poolRef": "root", "requestedCIDR": "10.0.16.0/20"}))
        .await;
    world
        .until("what the child has is not given away", |now| {
            now.reason("thief") == Some("RequestedCIDRInUse")
        })
        .await;
    world.edit_pool("child", json!({"cidr": "10.0.16.0/20"})).await;
    world
        .until("and back", |now| {
            let conflicted = now.condition("child", "Conflicted").map(|(_, reason, _)| reason);
            now.is_ready("child") && conflicted.as_deref() == Some("NoConflict")
        })
        .await;
    world.until_exact("child").await;

    // The label goes: the parent is woken (seed trigger 3), the holder stays.
    let begun = Instant::now();
    world.label_pool("child", PARENT_LABEL, json!(null)).await;
    world.until("the parent knows", |now| sums(now) == (2, 0)).await;
    println!("the parent knew of the lost label after {:.0?}", begun.elapsed());
    world.unclaim("rest").await;
    world.claim("after", json!({"poolRef": "child", "blockSize": 22})).await;
    world.until_bound(&["after"]).await;
    world.history.now(|now| {
        assert_eq!(phase(now.holder("child").unwrap()), Some(SubnetPhase::Allocated));
        assert_eq!(now.reason("thief"), Some("RequestedCIDRInUse"));
    });
    let begun = Instant::now();
    world.label_pool("child", PARENT_LABEL, json!("root")).await;
    world.until("the parent knows", |now| sums(now) == (2, 1)).await;
    println!("the parent knew of the new label after {:.0?}", begun.elapsed());

    // Deleted: it waits for its Subnets, its holder waits for it, and only then is the range free (seed trigger 2).
    world.pools.delete("child", &DeleteParams::default()).await.unwrap();
    world
        .until_event("SubnetPool", "child", "Warning PoolDeletionBlocked")
        .await;
    world
        .subnets
        .delete("root-10-0-16-0-20", &DeleteParams::default())
        .await
        .unwrap();
    world
        .unclaim_all(["in-child", "inside", "after", "too-much"].map(str::to_owned))
        .await;
    world.until_bound(&["thief"]).await;
    world
        .until("the parent knows", |now| {
            !now.pools.contains_key("child") && sums(now) == (2, 0)
        })
        .await;
    in_order(
        &world.history.departures(),
        &["pool child".to_owned(), "subnet root-10-0-16-0-20".to_owned()],
    );
    world.until_exact("root").await;
    let proof = world.proof().await;
    assert_eq!((proof.pools_held, proof.in_child_pools), (1, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a14_a_labelled_pool_without_room_waits_and_its_holder_follows_its_range() {
    let world = World::new().await;
    let _operator = world.operator().flag("--subnets-status-every-ms", 50).ready().await;
    // The parent comes later.
    world.child_pool("child", "root", json!({"cidr": "10.0.0.0/20"})).await;
    let waits = |now: &Now, words: &str| {
        let ready = now.condition("child", "Ready");
        ready.is_some_and(|(_, reason, message)| reason == "WaitingParent" && message.contains(words))
    };
    world
        .until("it waits for its parent", |now| {
            waits(now, "root, which does not exist")
        })
        .await;
    world.pool("root", json!({"cidr": "10.0.0.0/16"})).await;
    world.until("it has its range", |now| now.is_ready("child")).await;
    world.pools.delete("child", &DeleteParams::default()).await.unwrap();
    world
        .until("it is gone, and its holder", |now| {
            !now.pools.contains_key("child") && now.subnets.is_empty()
        })
        .await;

    // No room.
    world
        .claim("there", json!({"poolRef": "root", "requestedCIDR": "10.0.1.0/24"}))
        .await;
    world.until_bound(&["there"]).await;
    world.child_pool("child", "root", json!({"cidr": "10.0.0.0/20"})).await;
    world
        .until("it waits, and says for whom", |now| waits(now, "root-10-0-1-0-24"))
        .await;
    world
        .claim("in-child", json!({"poolRef": "child", "blockSize": 24}))
        .await;
    world.subnet("by-hand", "child", "10.0.32.0/28").await;
    world
        .until("nothing is granted in it, and it has no range", |now| {
            now.reason("in-child") == Some("PoolNotReady")
                && now.subnets.get("root-10-0-0-0-20").and_then(phase) == Some(SubnetPhase::Failed)
                && now
                    .subnets
                    .get("by-hand")
                    .is_some_and(|s| phase(s) != Some(SubnetPhase::Allocated))
        })
        .await;
    world.history.now(|now| {
        assert!(!held(&now.pools["child"]));
        assert!(
            now.message("in-child").contains("waits for 10.0.0.0/20 in parent root"),
            "{}",
            now.message("in-child")
        );
    });
    // Outside of the parent.
    world.edit_pool("child", json!({"cidr": "10.9.0.0/20"})).await;
    world
        .until("it says so", |now| {
            waits(now, "not inside its parent") && now.holder("child").is_none()
        })
        .await;
    // Where there is room: the holder follows.
    world.edit_pool("child", json!({"cidr": "10.0.32.0/20"})).await;
    world.until_bound(&["in-child"]).await;
    world
        .until("the Subnet made by hand is served as well", |now| {
            now.subnets.get("by-hand").and_then(phase) == Some(SubnetPhase::Allocated)
        })
        .await;
    world.history.now(|now| {
        assert_eq!(now.holder("child").unwrap().spec.cidr, "10.0.32.0/20");
        assert!(!now.subnets.contains_key("root-10-0-0-0-20"), "the old one is gone");
        assert!(net("10.0.32.0/20").contains(&net(now.range("in-child").unwrap())));
    });
    world.until_exact("root").await;
    world.until_exact("child").await;

    // The label goes while it waits: then it is a pool of its own, and asks its parent for nothing.
    world.child_pool("other", "root", json!({"cidr": "10.0.1.0/25"})).await;
    world
        .until("it waits", |now| {
            now.holder("other").and_then(phase) == Some(SubnetPhase::Failed)
        })
        .await;
    world.label_pool("other", PARENT_LABEL, json!(null)).await;
    world
        .until("it stands on its own", |now| {
            now.is_ready("other") && now.holder("other").is_none()
        })
        .await;
    world.unclaim("there").await;
    world
        .until("the range is free", |now| !now.subnets.contains_key("root-10-0-1-0-24"))
        .await;
    // Room in the parent wakes whoever waits for it there.
    world
        .claim("again", json!({"poolRef": "root", "requestedCIDR": "10.0.1.0/24"}))
        .await;
    world.until_bound(&["again"]).await;
    world.child_pool("third", "root", json!({"cidr": "10.0.0.0/20"})).await;
    world
        .until("it waits", |now| {
            now.holder("third").and_then(phase) == Some(SubnetPhase::Failed)
        })
        .await;
    world.unclaim("again").await;
    world
        .until("it is served without anybody asking", |now| now.is_ready("third"))
        .await;
    world.until_exact("root").await;
    world.proof().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a14_pools_that_name_each_other_as_parents_say_so_and_serve_once_that_is_mended() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world.child_pool("a", "b", json!({"cidr": "10.0.0.0/16"})).await;
    world.child_pool("b", "a", json!({"cidr": "10.0.0.0/20"})).await;
    world
        .until("both say so", |now| {
            ["a", "b"].iter().all(|pool| {
                let stalled = now.condition(pool, "Stalled").is_some();
                let ready = now.condition(pool, "Ready");
                stalled
                    && ready.is_some_and(|(_, reason, message)| reason == "Error" && message.contains("own ancestor"))
            })
        })
        .await;
    world.label_pool("a", PARENT_LABEL, json!(null)).await;
    world
        .until("both serve", |now| now.is_ready("a") && now.is_ready("b"))
        .await;
    world.history.now(|now| {
        assert!(now.condition("a", "Stalled").is_none() && now.condition("b", "Stalled").is_none());
        assert_eq!(now.holder("b").unwrap().spec.pool_ref, "a");
        assert_eq!(now.pools["b"].spec.strategy, Strategy::Linear);
    });
    world.proof().await;
}

/// The garbage collector holds a pool that is deleted in the foreground until what it owns is gone; its holder goes after it.
/// Neither may wait for the other.
#[tokio::test(flavor = "multi_thread")]
async fn a14_a_labelled_pool_deleted_in_the_foreground_goes_and_its_holder_after_it() {
    if left_out("a14_a_labelled_pool_deleted_in_the_foreground_goes_and_its_holder_after_it") {
        return;
    }
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world.pool("root", json!({"cidr": "10.0.0.0/16"})).await;
    world.child_pool("child", "root", json!({"cidr": "10.0.16.0/20"})).await;
    world.until("the child serves", |now| now.is_ready("child")).await;
    world.claim("claim", json!({"poolRef": "child", "blockSize": 24})).await;
    world.until_bound(&["claim"]).await;
    let foreground = DeleteParams::foreground();
    world.pools.delete("child", &foreground).await.unwrap();
    world
        .until("it is marked, and stays for its Subnet", |now| {
            let marked = now.pools["child"].metadata.deletion_timestamp.is_some();
            marked && now.subnets.contains_key("root-10-0-16-0-20")
        })
        .await;
    world.unclaim("claim").await;
    world
        .until("pool, Subnet and holder are gone", |now| {
            !now.pools.contains_key("child") && now.subnets.is_empty()
        })
        .await;
    world.until_exact("root").await;
    world.proof().await;
}
