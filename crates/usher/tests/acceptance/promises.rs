//! What was promised is kept: Subnets deleted, stripped or taken by force (A9, R31), several claims of one clusterID and
//! Subnets made by hand that a claim imports (A10, R11), and nothing of the bad time left on a claim after it (A27).

use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use usher_subnets::api::{ClaimPhase, FINALIZER, SubnetPhase};

use crate::support::invariants::{Exceptions, phase};
use crate::support::{Now, World};

const SUBNET: &str = "pool-10-0-0-0-28";

/// A27: Bound, and nothing of what was before is left.
fn is_clean(now: &Now, claim: &str) {
    let status = now.claims[claim].status.clone().unwrap();
    let conditions: Vec<(&str, &str)> = status
        .conditions
        .iter()
        .map(|c| (c.type_.as_str(), c.reason.as_str()))
        .collect();
    assert_eq!(status.phase, Some(ClaimPhase::Bound), "claim {claim}");
    assert_eq!(status.message, None, "claim {claim}");
    assert_eq!(conditions, [("Ready", "Allocated")], "claim {claim}");
}

fn uid_of(now: &Now, subnet: &str) -> Option<String> {
    now.subnets.get(subnet)?.uid()
}

/// A pool of one block, which `user` has and `thief` wants.
async fn one_block(world: &World) {
    world.pool("pool", json!({"cidr": "10.0.0.0/28"})).await;
    world.claim("user", json!({"poolRef": "pool", "blockSize": 28})).await;
    world.until_bound(&["user"]).await;
    world.claim("thief", json!({"poolRef": "pool", "blockSize": 28})).await;
    world
        .until("the thief waits", |now| now.reason("thief") == Some("PoolExhausted"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a9_r31_a_subnet_taken_by_force_is_restored_and_its_range_is_never_given_away() {
    let world = World::new().await;
    let operator = world.operator().ready().await;
    one_block(&world).await;
    let audit = world.audit();
    let mut uids = vec![world.history.now(|now| uid_of(now, SUBNET).unwrap())];
    // While the operator looks on, and while nobody does.
    world.strip(SUBNET).await;
    let restored = |uids: &[String]| {
        let uids = uids.to_vec();
        move |now: &Now| {
            let subnet = now.subnets.get(SUBNET);
            subnet.is_some_and(|s| phase(s) == Some(SubnetPhase::Allocated) && !uids.contains(&s.uid().unwrap()))
        }
    };
    let took = world.until("the Subnet is restored", restored(&uids)).await;
    println!("restored after {took:.0?}");
    uids.push(world.history.now(|now| uid_of(now, SUBNET).unwrap()));
    operator.kill();
    world.strip(SUBNET).await;
    world.until("it is gone", |now| !now.subnets.contains_key(SUBNET)).await;
    let _operator = world.operator().ready().await;
    world
        .until("the Subnet is restored by the next one", restored(&uids))
        .await;
    world.history.now(|now| {
        let (subnet, claim) = (&now.subnets[SUBNET], &now.claims["user"]);
        assert_eq!(subnet.spec.cidr, "10.0.0.0/28");
        assert_eq!(subnet.finalizers(), [FINALIZER]);
        assert_eq!(Some(&subnet.owner_references()[0].uid), claim.metadata.uid.as_ref());
        assert_eq!((now.range("user"), now.is_bound("thief")), (Some("10.0.0.0/28"), false));
        is_clean(now, "user");
    });
    // Upstream's script deletes Subnets and wants to hear 200.
    let requests = audit.requests(&world).await;
    let deletes: Vec<u64> = requests
        .iter()
        .filter(|r| r.what() == "delete subnets" && !r.agent.starts_with("usher/"))
        .map(|r| r.code)
        .collect();
    assert_eq!(deletes, [200, 200]);
    world.until_exact("pool").await;
    world.unclaim("user").await;
    world.until_bound(&["thief"]).await;
    let proof = world
        .proof_but(&Exceptions {
            forced: &[SUBNET],
            ..Exceptions::default()
        })
        .await;
    // The thief was bound once, at the end; the range was the user's until then.
    assert_eq!((proof.claims_bound, proof.gaps), (2, 0));
    assert_eq!(world.history.bound_order(), ["user", "thief"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn r31_a_range_that_somebody_else_has_is_lost_and_comes_back_when_it_is_free() {
    let world = World::new().await;
    let operator = world.operator().ready().await;
    one_block(&world).await;
    operator.kill();
    // While nobody looks. One that somebody wrote Allocated by hand has the range, whatever is right.
    world.strip(SUBNET).await;
    world.subnet("squatter", "pool", "10.0.0.0/29").await;
    let allocated = json!({"phase": "Allocated", "allocatedAt": "2026-01-01T00:00:00Z"});
    world.scribble(&world.subnets, "squatter", allocated).await;
    let _operator = world.operator().ready().await;
    world
        .until("the claim is told", |now| now.reason("user") == Some("RangeLost"))
        .await;
    world.until_event("SubnetClaim", "user", "Warning RangeLost").await;
    world.history.now(|now| {
        let status = now.claims["user"].status.clone().unwrap();
        assert_eq!(status.phase, Some(ClaimPhase::Error));
        assert_eq!(
            status.allocated_cidr.as_deref(),
            Some("10.0.0.0/28"),
            "the promise stays on record"
        );
        let message = status.message.unwrap();
        assert!(
            message.contains("squatter") && message.contains("10.0.0.0/28"),
            "who has it: {message}"
        );
        let stalled = status.conditions.iter().find(|c| c.type_ == "Stalled").unwrap();
        assert_eq!(stalled.reason, "RangeLost");
        assert!(!now.is_bound("thief"));
    });
    world
        .subnets
        .delete("squatter", &DeleteParams::default())
        .await
        .unwrap();
    world.until_bound(&["user"]).await;
    world.history.now(|now| {
        is_clean(now, "user");
        assert_eq!((now.range("user"), now.is_bound("thief")), (Some("10.0.0.0/28"), false));
    });
    world.until_exact("pool").await;
    world
        .proof_but(&Exceptions {
            forced: &[SUBNET, "user"],
            legacy: &["squatter"],
            ..Exceptions::default()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a10_claims_of_one_cluster_id_share_a_range_until_the_last_is_gone() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world
        .pool("pool", json!({"cidr": "10.0.0.0/27", "defaultBlockSize": 28}))
        .await;
    let ask = |more: serde_json::Value| {
        let mut spec = json!({"poolRef": "pool", "clusterID": "tokyo"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    world.claim("first", ask(json!({"blockSize": 28}))).await;
    world.until_bound(&["first"]).await;
    world.claim("second", ask(json!({"blockSize": 28}))).await;
    world.claim("exact", ask(json!({"requestedCIDR": "10.0.0.0/28"}))).await;
    world.claim("default", ask(json!({}))).await;
    world.until_bound(&["second", "exact", "default"]).await;
    // Another size, and the right size elsewhere.
    world.claim("bigger", ask(json!({"blockSize": 27}))).await;
    world
        .claim("elsewhere", ask(json!({"requestedCIDR": "10.0.0.16/28"})))
        .await;
    for name in ["bigger", "elsewhere"] {
        world
            .until("it is refused", |now| now.reason(name) == Some("ClusterIDConflict"))
            .await;
        world.until_event("SubnetClaim", name, "Warning ValidationFailed").await;
        world.history.now(|now| {
            assert_eq!(now.phase(name), Some(ClaimPhase::Error));
            assert!(now.message(name).contains(SUBNET), "{}", now.message(name));
        });
    }
    world.until_exact("pool").await;
    world.history.now(|now| {
        for name in ["first", "second", "exact", "default"] {
            assert_eq!(now.range(name), Some("10.0.0.0/28"));
            assert_eq!(
                now.claims[name].status.as_ref().unwrap().subnet_ref.as_deref(),
                Some(SUBNET)
            );
            is_clean(now, name);
        }
        assert_eq!((now.subnets.len(), now.allocated("pool")), (1, Some(1)));
        let owners = now.subnets[SUBNET].owner_references();
        let controllers: Vec<&str> = owners
            .iter()
            .filter(|o| o.controller == Some(true))
            .map(|o| o.name.as_str())
            .collect();
        assert_eq!((owners.len(), controllers), (4, vec!["first"]));
    });
    // Whoever made it goes: the others keep it.
    let uid = world.history.now(|now| uid_of(now, SUBNET));
    world.unclaim_all(["first", "exact"].map(str::to_owned)).await;
    world
        .until("they are gone", |now| {
            !now.claims.contains_key("first") && !now.claims.contains_key("exact")
        })
        .await;
    world.claim("thief", json!({"poolRef": "pool", "blockSize": 28})).await;
    world.until_bound(&["thief"]).await;
    world.unclaim("default").await;
    // The pool is full now: whoever asks next shows that the range is not given away.
    world.claim("late", json!({"poolRef": "pool", "blockSize": 28})).await;
    world
        .until("no room", |now| now.reason("late") == Some("PoolExhausted"))
        .await;
    world.history.now(|now| {
        assert_eq!(now.range("thief"), Some("10.0.0.16/28"));
        assert_eq!(now.range("second"), Some("10.0.0.0/28"));
        is_clean(now, "second");
        assert_eq!(uid_of(now, SUBNET), uid, "the same Subnet all the time");
        assert_eq!(phase(&now.subnets[SUBNET]), Some(SubnetPhase::Allocated));
        assert_eq!(now.reason("bigger"), Some("ClusterIDConflict"));
    });
    // The last one goes: the range is free, and whoever asked for another size recovers.
    world
        .unclaim_all(["late", "thief", "elsewhere", "second"].map(str::to_owned))
        .await;
    world.until_bound(&["bigger"]).await;
    world.history.now(|now| {
        is_clean(now, "bigger");
        assert_eq!(now.range("bigger"), Some("10.0.0.0/27"));
    });
    world.until_exact("pool").await;
    world.proof().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a10_a_claim_binds_to_a_subnet_made_by_hand_and_leaves_it_behind() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world.pool("pool", json!({"cidr": "10.0.0.0/24"})).await;
    world.subnet("osaka", "pool", "10.0.0.64/28").await;
    // Failed ones do not count.
    world.subnet("kyoto", "pool", "10.9.0.0/28").await;
    world
        .until("one is Allocated, one is not", |now| {
            let phase_of = |name: &str| now.subnets.get(name).and_then(phase);
            phase_of("osaka") == Some(SubnetPhase::Allocated) && phase_of("kyoto") == Some(SubnetPhase::Failed)
        })
        .await;
    let ask = |id: &str, size: u8| json!({"poolRef": "pool", "clusterID": id, "blockSize": size});
    world.claim("import", ask("osaka", 28)).await;
    world.claim("own", ask("kyoto", 28)).await;
    world.claim("bigger", ask("osaka", 27)).await;
    world.until_bound(&["import", "own"]).await;
    world
        .until("another size is refused", |now| {
            now.reason("bigger") == Some("ClusterIDConflict")
        })
        .await;
    world.until_exact("pool").await;
    world.history.now(|now| {
        assert_eq!(
            (now.range("import"), now.range("own")),
            (Some("10.0.0.64/28"), Some("10.0.0.0/28"))
        );
        assert_eq!(
            now.claims["import"].status.as_ref().unwrap().subnet_ref.as_deref(),
            Some("osaka")
        );
        is_clean(now, "import");
        let by_hand = &now.subnets["osaka"];
        assert!(
            by_hand.owner_references().is_empty() && by_hand.finalizers().is_empty(),
            "R33"
        );
        assert_eq!(now.allocated("pool"), Some(2));
    });
    world.unclaim("bigger").await;
    world.unclaim("import").await;
    world
        .until("the claim is gone", |now| !now.claims.contains_key("import"))
        .await;
    // A second import after the first proves that it was looked at again; it is still there.
    world.claim("again", ask("osaka", 28)).await;
    world.until_bound(&["again"]).await;
    world.history.now(|now| {
        assert_eq!(now.range("again"), Some("10.0.0.64/28"));
        assert_eq!(phase(&now.subnets["osaka"]), Some(SubnetPhase::Allocated));
    });
    // R31: what was imported is deleted by its maker; the claim gets the same range again, as its own.
    world.subnets.delete("osaka", &DeleteParams::default()).await.unwrap();
    world
        .until("the range is restored", |now| {
            let subnet = now.subnets.get("pool-10-0-0-64-28");
            subnet.is_some_and(|s| phase(s) == Some(SubnetPhase::Allocated))
        })
        .await;
    world.history.now(|now| {
        assert_eq!(now.range("again"), Some("10.0.0.64/28"));
        assert!(!now.subnets.contains_key("osaka"));
        let owners = now.subnets["pool-10-0-0-64-28"].owner_references();
        assert_eq!(owners[0].name, "again");
    });
    world.unclaim("again").await;
    world
        .until("now it is released", |now| {
            !now.subnets.contains_key("pool-10-0-0-64-28")
        })
        .await;
    world.until_exact("pool").await;
    world
        .proof_but(&Exceptions {
            forced: &["osaka"],
            ..Exceptions::default()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a27_nothing_stale_is_left_on_whatever_waited_or_failed_and_then_succeeded() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    // Each of these fails or waits for another reason.
    world
        .claim("no-pool", json!({"poolRef": "later", "blockSize": 28}))
        .await;
    world.pool_claim("no-parent", "later", 26).await;
    world
        .pool("limits", json!({"cidr": "10.1.0.0/24", "maxBlockSize": 27}))
        .await;
    world
        .claim("too-small", json!({"poolRef": "limits", "blockSize": 28}))
        .await;
    world.pool("paused", json!({"cidr": "10.2.0.0/24"})).await;
    world.annotate_pool("paused", "usher.dev/paused", json!("true")).await;
    world
        .claim("paused", json!({"poolRef": "paused", "blockSize": 28}))
        .await;
    world
        .pool("wrong", json!({"cidr": "10.3.0.0/29", "maxBlockSize": 28}))
        .await;
    world
        .claim("in-wrong", json!({"poolRef": "wrong", "blockSize": 28}))
        .await;
    world.pool("full", json!({"cidr": "10.4.0.0/28"})).await;
    world.subnet("there", "full", "10.4.0.0/28").await;
    world
        .until("the full pool is full", |now| {
            now.subnets.get("there").and_then(phase) == Some(SubnetPhase::Allocated)
        })
        .await;
    world
        .claim("no-room", json!({"poolRef": "full", "blockSize": 28}))
        .await;
    world
        .claim(
            "taken",
            json!({"poolRef": "full", "clusterID": "taken", "requestedCIDR": "10.4.0.0/28"}),
        )
        .await;
    world.subnet("over", "full", "10.4.0.0/28").await;
    world
        .until("all of them say why", |now| {
            now.reason("no-pool") == Some("PoolNotFound")
                && now.reason("too-small") == Some("InvalidRequest")
                && now.reason("paused") == Some("PoolNotReady")
                && now.reason("in-wrong").is_some_and(|reason| reason != "Allocated")
                && now.reason("no-room") == Some("PoolExhausted")
                && now.reason("taken") == Some("RequestedCIDRInUse")
                && now.pool_claim("no-parent").1 == "ClaimPending"
                && now.subnets.get("over").and_then(phase) == Some(SubnetPhase::Failed)
                && now.condition("wrong", "Stalled").is_some()
        })
        .await;
    // And each is put right.
    world.pool("later", json!({"cidr": "10.0.0.0/24"})).await;
    world.edit_pool("limits", json!({"maxBlockSize": 28})).await;
    world.annotate_pool("paused", "usher.dev/paused", json!(null)).await;
    world.edit_pool("wrong", json!({"cidr": "10.3.0.0/28"})).await;
    world.edit_pool("full", json!({"cidr": "10.4.0.0/27"})).await;
    world
        .until_bound(&["no-pool", "too-small", "paused", "in-wrong", "no-room"])
        .await;
    world.until_pool("no-parent").await;
    world.subnets.delete("there", &DeleteParams::default()).await.unwrap();
    // `taken` and `over` want the same; R24: the Subnet is the one that asked first.
    world
        .until("the Subnet recovers", |now| {
            now.subnets.get("over").and_then(phase) == Some(SubnetPhase::Allocated)
        })
        .await;
    let moved = Patch::Merge(json!({"spec": {"cidr": "10.9.0.0/28"}}));
    world
        .subnets
        .patch("over", &PatchParams::default(), &moved)
        .await
        .unwrap();
    world.until_bound(&["taken"]).await;
    let back = Patch::Merge(json!({"spec": {"cidr": "10.4.0.32/28"}}));
    world
        .subnets
        .patch("over", &PatchParams::default(), &back)
        .await
        .unwrap();
    world.edit_pool("full", json!({"cidr": "10.4.0.0/26"})).await;
    world
        .until("the Subnet recovers once more", |now| {
            now.subnets.get("over").and_then(phase) == Some(SubnetPhase::Allocated)
        })
        .await;
    world.history.now(|now| {
        for name in ["no-pool", "too-small", "paused", "in-wrong", "no-room", "taken"] {
            is_clean(now, name);
        }
        let status = now.pool_claims["no-parent"].status.clone().unwrap();
        let conditions: Vec<&str> = status.conditions.iter().map(|c| c.reason.as_str()).collect();
        assert_eq!((status.message, conditions), (None, vec!["Bound"]));
        let over = now.subnets["over"].status.clone().unwrap();
        assert_eq!((over.reason, over.message), (None, None));
    });
    for pool in ["later", "limits", "paused", "wrong", "full"] {
        world.until_exact(pool).await;
        world
            .until("the pool has nothing to complain of", |now| {
                let conflicted = now.condition(pool, "Conflicted").map(|(_, reason, _)| reason);
                now.is_ready(pool)
                    && now.condition(pool, "Stalled").is_none()
                    && conflicted.as_deref() == Some("NoConflict")
            })
            .await;
    }
    world.proof().await;
}
