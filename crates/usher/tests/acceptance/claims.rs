//! Claims get ranges of the size they ask for, as the strategy predicts; who finds no room waits, and the oldest is served.

use std::time::{Duration, Instant};

use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use usher_subnets::api::{ClaimPhase, FINALIZER, SubnetPhase};

use crate::support::plane::left_out;
use crate::support::world::eventually;
use crate::support::{Now, World};

/// The next object is younger by at least a second: creation times have no finer grain.
async fn next_second() {
    let begun = jiff::Timestamp::now().as_second();
    eventually("a second passes", async || jiff::Timestamp::now().as_second() > begun).await;
}

fn spec(pool: &str, ask: Value) -> Value {
    let mut spec = json!({"poolRef": pool});
    spec.as_object_mut().unwrap().extend(ask.as_object().unwrap().clone());
    spec
}

/// A1 for one strategy: five claims one after the other, where R3 puts them, and back to the start.
async fn sizes_are_placed(strategy: &str, default_goes_to: &str) {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world
        .pool("pool", json!({"cidr": "10.0.0.0/16", "strategy": strategy}))
        .await;
    // A2: an empty pool says so at once.
    world.until_exact("pool").await;
    let empty = world.history.now(|now| now.pools["pool"].status.clone().unwrap());
    assert_eq!(empty.allocated_count, 0);

    let asks = [
        ("c24", json!({"blockSize": 24}), "10.0.0.0/24"),
        ("c20", json!({"blockSize": 20}), "10.0.16.0/20"),
        ("c28", json!({"blockSize": 28}), "10.0.1.0/28"),
        ("exact", json!({"requestedCIDR": "10.0.200.0/24"}), "10.0.200.0/24"),
        ("default", json!({}), default_goes_to),
    ];
    let mut times = Vec::new();
    for (name, ask, expected) in &asks {
        let begun = Instant::now();
        world.claim(name, spec("pool", ask.clone())).await;
        world.until_bound(&[name]).await;
        times.push(begun.elapsed());
        world
            .history
            .now(|now| assert_eq!(now.range(name), Some(*expected), "R3, {strategy}: claim {name}"));
    }
    times.sort();
    println!("{strategy}: Bound after {times:.0?}");
    assert!(
        times[2] < Duration::from_secs(1),
        "A1: Bound in less than a second: {times:?}"
    );

    for (name, _, cidr) in &asks {
        is_whole(&world, name, cidr);
        world.until_event("SubnetClaim", name, "Normal SubnetAllocated").await;
    }
    world.until_exact("pool").await;
    world.history.now(|now| assert_eq!(now.allocated("pool"), Some(5)));

    world
        .unclaim_all(asks.iter().map(|(name, ..)| (*name).to_owned()))
        .await;
    world
        .until("all ranges are given back", |now| now.subnets.is_empty())
        .await;
    world
        .until_event("Subnet", "pool-10-0-0-0-24", "Normal SubnetReleased")
        .await;
    world
        .until("the pool is as it was at the start", |now| {
            let status = now.pools["pool"].status.clone().unwrap();
            status.free_count_by_size == empty.free_count_by_size && status.allocated_count == 0
        })
        .await;
    world.until_exact("pool").await;
    let proof = world.history.check();
    assert_eq!((proof.claims_bound, proof.gaps), (5, 0));
}

/// Section 3: name, owner, finalizer; section 2: what claim and Subnet say of each other.
fn is_whole(world: &World, claim: &str, cidr: &str) {
    world.history.now(|now| {
        let claim = &now.claims[claim];
        let status = claim.status.as_ref().unwrap();
        let name = format!("pool-{}", cidr.replace(['.', '/'], "-"));
        assert_eq!(status.subnet_ref.as_ref(), Some(&name));
        assert_eq!((status.message.clone(), status.observed_generation), (None, Some(1)));
        assert_eq!(now.reason(&claim.name_any()), Some("Allocated"));
        assert!(claim.finalizers().is_empty(), "user claims get no finalizer");

        let subnet = &now.subnets[&name];
        assert_eq!(subnet.spec.cidr, cidr);
        assert_eq!(subnet.spec.cluster_id, claim.spec.cluster_id);
        assert_eq!(subnet.finalizers(), [FINALIZER]);
        let owner = &subnet.owner_references()[0];
        assert_eq!((owner.kind.as_str(), owner.controller), ("SubnetClaim", Some(true)));
        assert_eq!(
            (Some(&owner.uid), &owner.name),
            (claim.metadata.uid.as_ref(), &claim.name_any())
        );
        let claim_ref = subnet.spec.claim_ref.as_ref().unwrap();
        assert_eq!((&claim_ref.name, &claim_ref.uid), (&owner.name, &owner.uid));
        let status = subnet.status.as_ref().unwrap();
        assert_eq!(status.phase, Some(SubnetPhase::Allocated));
        assert!(status.allocated_at.is_some() && status.observed_generation == Some(1));
        assert_eq!(now.pools["pool"].finalizers(), [FINALIZER]);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a1_linear_places_every_size_at_the_lowest_address_and_gives_it_back() {
    sizes_are_placed("Linear", "10.0.2.0/24").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a1_buddy_places_every_size_in_the_smallest_block_that_fits_and_gives_it_back() {
    sizes_are_placed("Buddy", "10.0.201.0/24").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r3_the_vectors_of_the_spec_hold_for_both_strategies() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    for (strategy, expected) in [("Linear", "10.0.0.0/24"), ("Buddy", "10.0.3.0/24")] {
        let pool = strategy.to_lowercase();
        world
            .pool(&pool, json!({"cidr": "10.0.0.0/22", "strategy": strategy}))
            .await;
        world
            .claim(
                &format!("{pool}-held"),
                spec(&pool, json!({"requestedCIDR": "10.0.2.0/24"})),
            )
            .await;
        world.until_bound(&[&format!("{pool}-held")]).await;
        world.claim(&pool, spec(&pool, json!({"blockSize": 24}))).await;
        world.until_bound(&[&pool]).await;
        world.history.now(|now| assert_eq!(now.range(&pool), Some(expected)));
    }
    world.pool("two", json!({"cidr": "192.168.1.0/27"})).await;
    for name in ["first", "second"] {
        world.claim(name, spec("two", json!({"blockSize": 28}))).await;
        world.until_bound(&[name]).await;
    }
    world.claim("third", spec("two", json!({"blockSize": 28}))).await;
    world
        .until("the third finds no room", |now| {
            now.reason("third") == Some("PoolExhausted")
        })
        .await;
    world.history.now(|now| {
        assert_eq!(now.range("first"), Some("192.168.1.0/28"));
        assert_eq!(now.range("second"), Some("192.168.1.16/28"));
    });
    world.history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_pool_makes_claims_wait_and_a_release_serves_the_oldest() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world
        .pool("pool", json!({"cidr": "10.0.0.0/27", "defaultBlockSize": 28}))
        .await;
    for name in ["have-1", "have-2"] {
        world.claim(name, spec("pool", json!({}))).await;
    }
    world.until_bound(&["have-1", "have-2"]).await;
    // R12: by age, then by name; here the names go the other way.
    for name in ["z-oldest", "m-middle", "a-youngest"] {
        next_second().await;
        world.claim(name, spec("pool", json!({}))).await;
    }
    let waiting = ["z-oldest", "m-middle", "a-youngest"];
    world
        .until("all three wait for room", |now| {
            waiting.iter().all(|name| now.reason(name) == Some("PoolExhausted"))
        })
        .await;
    world.history.now(|now| {
        let message = now.message("z-oldest");
        assert!(
            message.contains("no free /28 in pool") && message.contains("waiting since"),
            "{message}"
        );
    });
    world
        .until_event("SubnetClaim", "z-oldest", "Warning SubnetPoolExhausted")
        .await;
    world
        .until("the pool says that claims wait", |now| {
            let exhausted = now.condition("pool", "Exhausted");
            let waiting = now.pools["pool"].status.as_ref().map(|s| s.waiting_claims);
            waiting == Some(3) && exhausted.is_some_and(|(s, r, _)| s == "True" && r == "ClaimsWaiting")
        })
        .await;
    for (gives, gets) in [
        ("have-1", "z-oldest"),
        ("z-oldest", "m-middle"),
        ("have-2", "a-youngest"),
    ] {
        let range = world.history.now(|now| now.range(gives).unwrap().to_owned());
        world.unclaim(gives).await;
        world.until_bound(&[gets]).await;
        world
            .history
            .now(|now| assert_eq!(now.range(gets), Some(range.as_str())));
    }
    assert_eq!(world.history.bound_order()[2..], waiting, "R12: oldest first");
    // A27: nothing of the waiting is left on the claim.
    world.history.now(|now| {
        let claim = now.claims["m-middle"].status.clone().unwrap();
        let types: Vec<_> = claim.conditions.iter().map(|c| c.type_.as_str()).collect();
        assert_eq!((claim.message, types), (None, vec!["Ready"]));
    });
    let told = world.events("SubnetClaim", "a-youngest").await;
    let exhausted = told.iter().filter(|line| line.contains("SubnetPoolExhausted")).count();
    assert_eq!(exhausted, 1, "once per wait: {told:?}");
    world.until_exact("pool").await;
    world.history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn r14_a_small_claim_passes_a_big_one_that_fits_nowhere_and_an_exact_one_waits_for_its_range() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world.pool("pool", json!({"cidr": "10.0.0.0/24"})).await;
    world
        .claim("holder", spec("pool", json!({"requestedCIDR": "10.0.0.128/25"})))
        .await;
    world.until_bound(&["holder"]).await;
    world.claim("big", spec("pool", json!({"blockSize": 24}))).await;
    world
        .until("the big one waits", |now| now.reason("big") == Some("PoolExhausted"))
        .await;
    world
        .claim("exact", spec("pool", json!({"requestedCIDR": "10.0.0.192/28"})))
        .await;
    world
        .until("the exact one waits", |now| {
            now.reason("exact") == Some("RequestedCIDRInUse")
        })
        .await;
    world.history.now(|now| {
        assert!(
            now.message("big").contains("the largest free block is /25"),
            "{}",
            now.message("big")
        );
        let message = now.message("exact");
        assert!(message.contains("pool-10-0-0-128-25"), "the holder is named: {message}");
    });
    world
        .until_event("SubnetClaim", "exact", "Warning AllocationConflict")
        .await;
    next_second().await;
    world.claim("small", spec("pool", json!({"blockSize": 28}))).await;
    world.until_bound(&["small"]).await;
    world.unclaim("holder").await;
    world.until_bound(&["exact"]).await;
    world.history.now(|now| {
        assert_eq!(now.range("exact"), Some("10.0.0.192/28"));
        assert_eq!(now.reason("big"), Some("PoolExhausted"));
    });
    world.unclaim_all(["small".to_owned(), "exact".to_owned()]).await;
    world.until_bound(&["big"]).await;
    world.history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn a3_two_hundred_claims_on_sixteen_blocks_are_served_by_age_to_the_last() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world.pool("pool", json!({"cidr": "10.0.0.0/20"})).await;
    let ask = || spec("pool", json!({"blockSize": 24}));
    world.claim_all((0..200).map(|n| (format!("c{n:03}"), ask()))).await;
    let begun = Instant::now();
    let is_served = |bound: usize, waiting: usize| {
        move |now: &Now| {
            let pending = now.in_phase(ClaimPhase::Pending);
            now.in_phase(ClaimPhase::Bound).len() == bound
                && pending.len() == waiting
                && pending.iter().all(|name| now.reason(name) == Some("PoolExhausted"))
                && now.allocated("pool") == Some(i64::try_from(bound).unwrap())
        }
    };
    world
        .until("16 are Bound, 184 wait, allocatedCount is 16", is_served(16, 184))
        .await;
    let mut rounds = 0;
    loop {
        let (bound, mut waiting) = world.history.now(|now| {
            let age = |name: &String| (now.claims[name].creation_timestamp().unwrap(), name.clone());
            let waiting: Vec<_> = now.in_phase(ClaimPhase::Pending).iter().map(age).collect();
            (now.in_phase(ClaimPhase::Bound), waiting)
        });
        if waiting.is_empty() {
            break;
        }
        waiting.sort();
        let mut next: Vec<String> = waiting.iter().take(16).map(|(_, name)| name.clone()).collect();
        world.unclaim_all(bound).await;
        let left = waiting.len() - next.len();
        let what = format!("the next {} by age are Bound, {left} wait", next.len());
        world.until(&what, is_served(next.len(), left)).await;
        next.sort();
        world
            .history
            .now(|now| assert_eq!(now.in_phase(ClaimPhase::Bound), next, "R12: by age"));
        rounds += 1;
    }
    println!("200 claims on 16 blocks: {rounds} rounds in {:.1?}", begun.elapsed());
    world.until_exact("pool").await;
    let proof = world.history.check();
    assert_eq!((proof.claims_bound, proof.most_at_once, proof.gaps), (200, 16, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a6_claims_before_their_pool_are_served_when_it_comes_and_when_it_grows() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    for name in ["d-first", "c-second", "b-third", "a-fourth"] {
        world.claim(name, spec("later", json!({"blockSize": 25}))).await;
        next_second().await;
    }
    world
        .until("they know that the pool is missing", |now| {
            now.reason("a-fourth") == Some("PoolNotFound")
        })
        .await;
    world.history.now(|now| {
        let message = now.message("a-fourth");
        assert!(message.contains("later") && message.contains("create it"), "{message}");
    });
    world.pool("later", json!({"cidr": "10.0.0.0/24"})).await;
    world.until_bound(&["d-first", "c-second"]).await;
    world
        .until("the others find no room", |now| {
            now.reason("a-fourth") == Some("PoolExhausted")
        })
        .await;
    world.edit_pool("later", json!({"cidr": "10.0.0.0/22"})).await;
    world.until_bound(&["b-third", "a-fourth"]).await;
    world.history.now(|now| {
        assert_eq!(
            (now.range("b-third"), now.range("a-fourth")),
            (Some("10.0.1.0/25"), Some("10.0.1.128/25")),
            "in order the second time, too"
        );
    });
    // R13: the oldest was granted first, hence the lowest range.
    world.history.now(|now| {
        assert_eq!(
            (now.range("d-first"), now.range("c-second")),
            (Some("10.0.0.0/25"), Some("10.0.0.128/25"))
        );
    });
    world.until_exact("later").await;
    world.history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_changed_before_it_is_bound_is_served_as_it_is_now() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world.pool("full", json!({"cidr": "10.0.0.0/28"})).await;
    world.pool("roomy", json!({"cidr": "10.1.0.0/24"})).await;
    world.claim("holder", spec("full", json!({"blockSize": 28}))).await;
    world.until_bound(&["holder"]).await;
    world.claim("mover", spec("full", json!({"blockSize": 28}))).await;
    world
        .until("it waits", |now| now.reason("mover") == Some("PoolExhausted"))
        .await;
    let moved = Patch::Merge(json!({"spec": {"poolRef": "roomy", "blockSize": 26}}));
    world
        .claims
        .patch("mover", &PatchParams::default(), &moved)
        .await
        .unwrap();
    world.until_bound(&["mover"]).await;
    world
        .history
        .now(|now| assert_eq!(now.range("mover"), Some("10.1.0.0/26")));
    world.until_exact("full").await;
    world.until_exact("roomy").await;
    world.history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn a28_a_claim_deleted_in_any_way_gives_its_range_back_when_its_subnet_is_gone() {
    if left_out("a28_a_claim_deleted_in_any_way_gives_its_range_back_when_its_subnet_is_gone") {
        return;
    }
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world
        .pool("pool", json!({"cidr": "10.0.0.0/24", "defaultBlockSize": 28}))
        .await;
    let ways = [
        ("background", DeleteParams::background()),
        ("foreground", DeleteParams::foreground()),
        ("orphan", DeleteParams::orphan()),
    ];
    for (way, params) in ways {
        world.claim(way, spec("pool", json!({}))).await;
        world.until_bound(&[way]).await;
        let subnet = world
            .history
            .now(|now| now.claims[way].status.clone().unwrap().subnet_ref.unwrap());
        world.claims.delete(way, &params).await.unwrap();
        world
            .until("the claim is gone", |now| !now.claims.contains_key(way))
            .await;
        if way == "orphan" {
            // Orphaned on purpose: it stays until somebody deletes it.
            world
                .until("its Subnet has no owner", |now| {
                    now.subnets[&subnet].owner_references().is_empty()
                })
                .await;
            world.until_exact("pool").await;
            world.history.now(|now| assert_eq!(now.allocated("pool"), Some(1)));
            world.subnets.delete(&subnet, &DeleteParams::default()).await.unwrap();
        }
        world
            .until("its Subnet is gone", |now| !now.subnets.contains_key(&subnet))
            .await;
    }
    world.until_exact("pool").await;
    world.history.check();
}
