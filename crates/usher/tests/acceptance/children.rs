//! Pools from pools: pool claims to any depth (A12), taken down in order at every stage (A13), and pools that name their
//! parent by label (A14).

use std::time::{Duration, Instant};

use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use nix::sys::signal::Signal;
use serde_json::json;
use usher_subnets::api::{ClaimPhase, FINALIZER, PARENT_LABEL, SubnetPhase};

use crate::support::invariants::{held, net, owner, phase};
use crate::support::{Now, World};

/// The five characters that end a name: spec, section 3.
fn ends_in_five(name: &str, stem: &str) -> bool {
    let tail = name.strip_prefix(&format!("{stem}-"));
    tail.is_some_and(|tail| tail.len() == 5 && tail.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)))
}

fn internal_claim(now: &Now, pool_claim: &str) -> Option<String> {
    let uid = now.pool_claims.get(pool_claim)?.uid();
    let of_it = |claim: &&usher_subnets::api::SubnetClaim| owner(*claim, "SubnetPoolClaim") == uid;
    now.claims.values().find(of_it).map(ResourceExt::name_any)
}

fn child_of(now: &Now, pool_claim: &str) -> Option<String> {
    let uid = now.pool_claims.get(pool_claim)?.uid();
    let of_it = |pool: &&usher_subnets::api::SubnetPool| owner(*pool, "SubnetPoolClaim") == uid;
    now.pools.values().find(of_it).map(ResourceExt::name_any)
}

/// Section 3 and R44: every object of the chain is as it should be.
fn is_whole(now: &Now, pool_claim: &str, cidr: &str) {
    let claim = &now.pool_claims[pool_claim];
    let (uid, parent) = (claim.uid().unwrap(), &claim.spec.parent_pool_ref);
    let status = claim.status.clone().unwrap();
    assert_eq!(claim.finalizers(), [FINALIZER]);
    assert_eq!((status.phase, status.message), (Some(ClaimPhase::Bound), None));
    let reasons: Vec<_> = status.conditions.iter().map(|c| c.reason.as_str()).collect();
    assert_eq!(reasons, ["Bound"], "A27");

    let internal = &now.claims[&internal_claim(now, pool_claim).unwrap()];
    assert!(
        ends_in_five(&internal.name_any(), pool_claim),
        "{}",
        internal.name_any()
    );
    assert_eq!(internal.finalizers(), [FINALIZER]);
    assert_eq!((&internal.spec.pool_ref, &internal.spec.cluster_id), (parent, &uid));

    let holder = now.holder(&status.bound_pool_name.clone().unwrap()).unwrap();
    assert_eq!(status.subnet_ref, Some(holder.name_any()));
    assert_eq!((&holder.spec.pool_ref, holder.spec.cidr.as_str()), (parent, cidr));
    assert_eq!(owner(holder, "SubnetClaim"), internal.uid());
    assert_eq!(phase(holder), Some(SubnetPhase::Allocated));

    let pool = &now.pools[&status.bound_pool_name.unwrap()];
    assert!(ends_in_five(&pool.name_any(), pool_claim), "{}", pool.name_any());
    assert_eq!(pool.finalizers(), [FINALIZER]);
    assert_eq!(pool.labels()[PARENT_LABEL], *parent);
    assert_eq!(pool.labels()["plexaubnet.io/ipam"], "true");
    assert_eq!(pool.owner_references()[0].uid, uid);
    assert_eq!(pool.owner_references()[0].controller, Some(true));
    assert!(held(pool));
    assert_eq!(pool.spec.cidr, cidr);
    let of_parent = &now.pools[parent].spec;
    let length = i32::from(net(cidr).prefix_len());
    assert_eq!(pool.spec.strategy, of_parent.strategy, "inherited");
    assert_eq!(
        pool.spec.max_block_size,
        of_parent.max_block_size.or(Some(28)),
        "inherited"
    );
    assert_eq!(pool.spec.default_block_size, of_parent.default_block_size.max(length));
}

#[tokio::test(flavor = "multi_thread")]
async fn a12_a_pool_claim_waits_for_room_and_gets_a_pool_three_levels_deep() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    let spec = json!({"cidr": "10.0.0.0/16", "strategy": "Buddy", "maxBlockSize": 30, "defaultBlockSize": 22});
    world.pool("root", spec).await;
    world.claim("all", json!({"poolRef": "root", "blockSize": 16})).await;
    world.until_bound(&["all"]).await;
    // Fields that upstream's scripts send and nobody knows are no harm.
    let spec = json!({"parentPoolRef": "root", "desiredBlockSize": 20, "description": "upstream's"});
    world
        .raw("subnetpoolclaims", "SubnetPoolClaim", "tokyo", &spec)
        .await
        .unwrap();
    world
        .until("the pool claim waits, and says why", |now| {
            let (phase, reason, message) = now.pool_claim("tokyo");
            phase == Some(ClaimPhase::Pending)
                && reason == "ClaimPending"
                && message.contains("no free /20 in pool root")
        })
        .await;
    world
        .history
        .now(|now| assert_eq!(child_of(now, "tokyo"), None, "no pool without a range"));
    world.until_exact("root").await;
    let begun = Instant::now();
    world.unclaim("all").await;
    let tokyo = world.until_pool("tokyo").await;
    let took = begun.elapsed();
    println!("from room in the parent to a Ready pool: {took:.0?}");
    assert!(took < Duration::from_secs(2), "A12: without polling: {took:?}");
    world
        .until_event("SubnetPoolClaim", "tokyo", "Normal ChildPoolCreated")
        .await;
    world.history.now(|now| is_whole(now, "tokyo", "10.0.0.0/20"));

    // Claims in the child, and two more levels below.
    world.claim("in-tokyo", json!({"poolRef": &tokyo})).await;
    world.until_bound(&["in-tokyo"]).await;
    world.history.now(|now| {
        assert_eq!(
            now.range("in-tokyo"),
            Some("10.0.0.0/22"),
            "its default is its parent's"
        )
    });
    world.pool_claim("shibuya", &tokyo, 22).await;
    let shibuya = world.until_pool("shibuya").await;
    world.pool_claim("hachiko", &shibuya, 24).await;
    let hachiko = world.until_pool("hachiko").await;
    world.history.now(|now| {
        is_whole(now, "shibuya", "10.0.4.0/22");
        is_whole(now, "hachiko", "10.0.4.0/24");
    });
    let names: Vec<String> = (0..8).map(|n| format!("deep-{n}")).collect();
    let ask = |name: &String| (name.clone(), json!({"poolRef": &hachiko, "blockSize": 27}));
    world.claim_all(names.iter().map(ask)).await;
    world
        .until_bound(&names.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
    world
        .claim("one-more", json!({"poolRef": &hachiko, "blockSize": 27}))
        .await;
    world
        .until("the third level is full", |now| {
            now.reason("one-more") == Some("PoolExhausted")
        })
        .await;
    // The parents' sums are right: a child is one Subnet of its parent.
    for pool in ["root", &tokyo, &shibuya, &hachiko] {
        world.until_exact(pool).await;
    }
    world.history.now(|now| {
        let sums = |pool: &str| {
            let status = now.pools[pool].status.clone().unwrap();
            (status.allocated_count, status.child_pools)
        };
        assert_eq!(sums("root"), (1, 1));
        assert_eq!(sums(&tokyo), (2, 1), "a claim and a child");
        assert_eq!(sums(&shibuya), (1, 1));
        assert_eq!(sums(&hachiko), (8, 0));
    });
    let proof = world.proof().await;
    assert_eq!((proof.pool_claims_bound, proof.pools_held, proof.gaps), (3, 3, 0));
    assert_eq!(
        proof.in_child_pools,
        1 + 1 + 1 + 8,
        "I2: holders of deeper levels among them"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a12_a_pool_claim_that_cannot_be_served_says_so_and_recovers_with_its_claim() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world
        .pool("root", json!({"cidr": "10.0.0.0/16", "minBlockSize": 20}))
        .await;
    world.pool_claim("big", "root", 18).await;
    world.pool_claim("orphan", "missing", 20).await;
    world
        .until("both are told", |now| {
            let (phase, reason, message) = now.pool_claim("big");
            let (other, _, sentence) = now.pool_claim("orphan");
            phase == Some(ClaimPhase::Error)
                && reason == "Error"
                && message.contains("/20 to /28")
                && other == Some(ClaimPhase::Pending)
                && sentence.contains("pool missing does not exist")
        })
        .await;
    // R44: what is asked for may change before it is Bound.
    let edit = Patch::Merge(json!({"spec": {"parentPoolRef": "root"}}));
    let params = PatchParams::default();
    world.pool_claims.patch("orphan", &params, &edit).await.unwrap();
    world.until_pool("orphan").await;
    world.edit_pool("root", json!({"minBlockSize": 18})).await;
    world.until_pool("big").await;
    world.history.now(|now| {
        is_whole(now, "orphan", "10.0.0.0/20");
        is_whole(now, "big", "10.0.64.0/18");
    });
    // And not after.
    let edit = Patch::Merge(json!({"spec": {"desiredBlockSize": 21}}));
    let refused = world.pool_claims.patch("orphan", &params, &edit).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("delete and re-create the claim"), "{refused}");
    // R44: a child pool deleted by hand is made again, same name and CIDR.
    let (child, uid) = world.history.now(|now| {
        let name = child_of(now, "big").unwrap();
        let uid = now.pools[&name].uid();
        (name, uid)
    });
    world.pools.delete(&child, &DeleteParams::default()).await.unwrap();
    world
        .until("it is made again", |now| {
            let again = now.pools.get(&child).is_some_and(|pool| pool.uid() != uid);
            again && now.is_ready(&child)
        })
        .await;
    world.history.now(|now| is_whole(now, "big", "10.0.64.0/18"));
    world.until_exact("root").await;
    world.proof().await;
}

/// Where each of these stands among the departures.
pub(crate) fn in_order(departures: &[String], expected: &[String]) {
    let at = |what: &String| {
        let found = departures.iter().position(|gone| gone == what);
        found.unwrap_or_else(|| panic!("{what} did not go: {departures:#?}"))
    };
    let places: Vec<usize> = expected.iter().map(at).collect();
    assert!(places.is_sorted(), "expected {expected:#?}, went {departures:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a13_a_tree_in_use_is_taken_down_from_its_leaves_and_the_range_is_free_only_at_the_end() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world.pool("root", json!({"cidr": "10.0.0.0/16"})).await;
    world.pool_claim("top", "root", 17).await;
    let top = world.until_pool("top").await;
    world.pool_claim("mid", &top, 20).await;
    let mid = world.until_pool("mid").await;
    world.pool_claim("low", &mid, 24).await;
    let low = world.until_pool("low").await;
    world.claim("leaf", json!({"poolRef": &low, "blockSize": 28})).await;
    world.until_bound(&["leaf"]).await;
    let (holders, claims) = world.history.now(|now| {
        let holder = |pool: &str| now.holder(pool).unwrap().name_any();
        let claim = |name: &str| internal_claim(now, name).unwrap();
        (
            [&top, &mid, &low].map(|pool| holder(pool)),
            ["top", "mid", "low"].map(claim),
        )
    });
    // Everything is asked to go at once, the top first.
    for name in ["top", "mid", "low"] {
        world.pool_claims.delete(name, &DeleteParams::default()).await.unwrap();
    }
    world
        .until("each says what it waits for", |now| {
            let waits = |claim: &str, pool: &str| {
                now.pool_claim(claim)
                    .2
                    .contains(&format!("waiting for pool {pool} to go, which has 1 Subnet"))
            };
            waits("top", &top) && waits("mid", &mid) && waits("low", &low)
        })
        .await;
    world
        .until("the lowest pool says what keeps it", |now| {
            let ready = now.condition(&low, "Ready");
            ready.is_some_and(|(_, reason, message)| reason == "Terminating" && message.contains("1 Subnet"))
        })
        .await;
    world
        .until_event("SubnetPool", &low, "Warning PoolDeletionBlocked")
        .await;
    // Nothing new is granted in what is on its way out, and the range is not free.
    world.claim("late", json!({"poolRef": &low, "blockSize": 28})).await;
    world.claim("thief", json!({"poolRef": "root", "blockSize": 16})).await;
    world
        .until("both are told", |now| {
            now.reason("late") == Some("PoolNotReady") && now.reason("thief") == Some("PoolExhausted")
        })
        .await;
    world.history.now(|now| {
        assert_eq!(now.range("leaf"), Some("10.0.0.0/28"), "whoever has a range keeps it");
        assert_eq!((now.pools.len(), now.subnets.len()), (4, 4));
    });
    world.unclaim("leaf").await;
    world.until_bound(&["thief"]).await;
    world
        .until("the tree is gone", |now| {
            now.pool_claims.is_empty() && now.pools.len() == 1
        })
        .await;
    let departures = world.history.departures();
    let pair = |kind: &str, name: &str| format!("{kind} {name}");
    for (at, (pool, name)) in [(&top, "top"), (&mid, "mid"), (&low, "low")].into_iter().enumerate() {
        // Child, then holder, then pool claim.
        in_order(
            &departures,
            &[
                pair("pool", pool),
                pair("claim", &claims[at]),
                pair("subnet", &holders[at]),
                pair("pool claim", name),
            ],
        );
    }
    in_order(
        &departures,
        &[
            pair("claim", "leaf"),
            pair("pool", &low),
            pair("subnet", &holders[2]),
            pair("pool", &mid),
            pair("subnet", &holders[1]),
            pair("pool", &top),
            pair("subnet", &holders[0]),
        ],
    );
    world.until_exact("root").await;
    world.proof().await;
}

/// How far the making of a pool claim is.
type Stage = (&'static str, fn(&Now) -> bool);

#[tokio::test(flavor = "multi_thread")]
async fn a13_a_pool_claim_deleted_at_any_stage_of_its_making_leaves_nothing_behind() {
    let stages: [Stage; 7] = [
        ("it was made", |now| now.pool_claims.contains_key("c")),
        ("it has its finalizer", |now| {
            now.pool_claims.get("c").is_some_and(|c| !c.finalizers().is_empty())
        }),
        ("its claim was made", |now| internal_claim(now, "c").is_some()),
        ("its range asks to be allocated", |now| {
            let uid = now.pool_claims.get("c").and_then(ResourceExt::uid);
            now.subnets.values().any(|s| Some(&s.spec.cluster_id) == uid.as_ref())
        }),
        ("its claim is Bound", |now| {
            internal_claim(now, "c").is_some_and(|name| now.is_bound(&name))
        }),
        ("its pool was made", |now| child_of(now, "c").is_some()),
        ("it is Bound", |now| now.pool_of("c").is_some()),
    ];
    let world = World::new().await;
    let operator = world.operator().ready().await;
    world.pool("root", json!({"cidr": "10.0.0.0/20"})).await;
    world.until_exact("root").await;
    for (stage, come) in stages {
        for stopped in [true, false] {
            world.pool_claim("c", "root", 20).await;
            world.until(stage, come).await;
            // Stopped, the operator stays at that stage until the deletion is there, and a little behind of what it did
            // last; running, it is surprised by it.
            if stopped {
                operator.signal(Signal::SIGSTOP);
            }
            world.pool_claims.delete("c", &DeleteParams::default()).await.unwrap();
            if stopped {
                operator.signal(Signal::SIGCONT);
            }
            let what = format!("everything is gone, deleted when {stage}");
            world
                .until(&what, |now| {
                    now.pool_claims.is_empty()
                        && now.claims.is_empty()
                        && now.subnets.is_empty()
                        && now.pools.len() == 1
                })
                .await;
            world.until_exact("root").await;
        }
    }
    // A parent with no room: the same.
    world.subnet("there", "root", "10.0.0.0/28").await;
    world
        .until("no room", |now| {
            now.subnets.get("there").and_then(phase) == Some(SubnetPhase::Allocated)
        })
        .await;
    world.pool_claim("c", "root", 20).await;
    world
        .until("it waits", |now| now.pool_claim("c").2.contains("no free /20"))
        .await;
    world.pool_claims.delete("c", &DeleteParams::default()).await.unwrap();
    world
        .until("it is gone", |now| now.pool_claims.is_empty() && now.claims.is_empty())
        .await;
    world.until_exact("root").await;
    let proof = world.proof().await;
    println!("{proof:?}");
    assert!(proof.pool_claims_bound >= 2, "the last stage at least: {proof:?}");
}
