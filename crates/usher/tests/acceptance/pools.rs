//! Pools count exactly, grow, shrink, exclude, and go only when nothing is left of them; Subnets made by hand fit in.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use usher_subnets::api::{Subnet, SubnetPhase};

use super::by_hand::is;
use crate::support::invariants::net;
use crate::support::plane::left_out;
use crate::support::world::eventually;
use crate::support::{Chance, Now, World};

fn counts(now: &Now, pool: &str, sizes: std::ops::RangeInclusive<u8>) -> Vec<i64> {
    let by_size = &now.pools[pool].status.as_ref().unwrap().free_count_by_size;
    sizes.map(|size| by_size[&size.to_string()]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a2_an_empty_pool_says_at_once_what_it_is() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    let mut times = Vec::new();
    for name in ["a", "b", "c"] {
        let begun = Instant::now();
        world.pool(name, json!({"cidr": "10.0.0.0/16"})).await;
        world.until("it is Ready", |now| now.is_ready(name)).await;
        times.push(begun.elapsed());
        world.until_exact(name).await;
        world.history.now(|now| {
            let pool = &now.pools[name];
            let ready = now.condition(name, "Ready").unwrap();
            assert_eq!((ready.0.as_str(), ready.1.as_str()), ("True", "CIDRAssigned"));
            let status = pool.status.clone().unwrap();
            assert_eq!((status.allocated_count, status.observed_generation), (0, Some(1)));
            assert_eq!(status.largest_free_block, "/16");
            assert!(pool.finalizers().is_empty(), "nothing keeps a pool that was never used");
        });
    }
    times.sort();
    println!("an empty pool is Ready after {times:.0?}");
    assert!(times[1] < Duration::from_secs(1), "A2: at once: {times:?}");
    world.proof().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_free_counts_are_the_vectors_of_the_spec() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    let doubling: Vec<i64> = (0..=12).map(|n| 1 << n).collect();
    let one_24 = [0, 1, 3, 7, 15, 31, 63, 127, 255, 510, 1020, 2040, 4080];
    world.pool("p", json!({"cidr": "10.0.0.0/16"})).await;
    world.until_exact("p").await;
    world.history.now(|now| assert_eq!(counts(now, "p", 16..=28), doubling));
    world.claim("c", json!({"poolRef": "p", "blockSize": 24})).await;
    world.until_bound(&["c"]).await;
    world.until_exact("p").await;
    world.history.now(|now| {
        assert_eq!(counts(now, "p", 16..=28), one_24);
        let status = now.pools["p"].status.clone().unwrap();
        assert_eq!(status.free_count_by_size["/24"], 255, "upstream's alias");
        assert_eq!((status.largest_free_block.as_str(), status.used_percent), ("/17", 0));
        assert_eq!(
            status.allocated_cidrs.into_iter().collect::<Vec<_>>(),
            [("10.0.0.0/24".into(), "c".into())]
        );
    });
    // A /24 held twice counts once; with its inner /25 on top it is still one /24.
    world
        .pool("q", json!({"cidr": "10.1.0.0/16", "exclude": ["10.1.0.0/24"]}))
        .await;
    for (name, cidr) in [("twice", "10.1.0.0/24"), ("inner", "10.1.0.0/25")] {
        world.subnet(name, "q", cidr).await;
        world
            .until("it is Allocated", |now| is(now, name, SubnetPhase::Allocated, None))
            .await;
        world.until_exact("q").await;
        world
            .history
            .now(|now| assert_eq!(counts(now, "q", 24..=25), [255, 510]));
        world.subnets.delete(name, &DeleteParams::default()).await.unwrap();
        world.until("it is gone", |now| !now.subnets.contains_key(name)).await;
    }
    world.history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn a21_ipv6_counts_are_exact_where_numbers_end() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world
        .pool("six", json!({"cidr": "2001:db8::/32", "maxBlockSize": 128}))
        .await;
    world.until_exact("six").await;
    world.history.now(|now| {
        let status = now.pools["six"].status.clone().unwrap();
        assert_eq!(status.free_count_by_size["64"], 4_294_967_296);
        assert_eq!(status.free_count_by_size["128"], i64::MAX);
        assert_eq!(status.free_count_exact["128"], (1_u128 << 96).to_string());
        assert!(
            !status.free_count_exact.contains_key("84"),
            "2^53 is the first that needs text"
        );
        assert_eq!(status.free_count_exact["85"], (1_u128 << 53).to_string());
    });
    let asks = [
        ("a", 64, "2001:db8::/64"),
        ("b", 80, "2001:db8:0:1::/80"),
        ("c", 128, "2001:db8:0:1:1::/128"),
    ];
    for (name, size, expected) in asks {
        world.claim(name, json!({"poolRef": "six", "blockSize": size})).await;
        world.until_bound(&[name]).await;
        world.history.now(|now| assert_eq!(now.range(name), Some(expected)));
    }
    world.claim("default", json!({"poolRef": "six"})).await;
    world.until_bound(&["default"]).await;
    world
        .history
        .now(|now| assert!(now.range("default").unwrap().ends_with("/64"), "24 counts as unset"));
    world.until_exact("six").await;
    world.history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn a21_ipv6_pools_of_any_size_give_blocks_far_smaller_than_themselves() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    // A name so long that a Subnet's must be cut.
    let long = "a-pool-with-a-name-that-leaves-no-room-for-an-address-of-ipv6";
    let pools = [
        ("wide", "2001:db8::/32"),
        ("site", "fd00:1:2::/48"),
        (long, "fd00:1:3:4::/64"),
    ];
    for (pool, cidr) in pools {
        world.pool(pool, json!({"cidr": cidr, "maxBlockSize": 128})).await;
        for size in [64, 80, 128] {
            if pool == long && size == 64 {
                // The whole pool is one: it is asked for last.
                continue;
            }
            let name = format!("{}-{size}", &pool[..4]);
            world.claim(&name, json!({"poolRef": pool, "blockSize": size})).await;
            world.until_bound(&[&name]).await;
        }
        // And at the far end, exactly.
        let last = net(cidr).broadcast();
        let name = format!("{}-last", &pool[..4]);
        world
            .claim(&name, json!({"poolRef": pool, "requestedCIDR": format!("{last}/128")}))
            .await;
        world.until_bound(&[&name]).await;
        world.until_exact(pool).await;
    }
    world.history.now(|now| {
        assert_eq!(now.range("wide-64"), Some("2001:db8::/64"));
        assert_eq!(now.range("wide-80"), Some("2001:db8:0:1::/80"));
        assert_eq!(now.range("wide-128"), Some("2001:db8:0:1:1::/128"));
        assert_eq!(now.range("site-64"), Some("fd00:1:2::/64"));
        assert_eq!(now.range("site-80"), Some("fd00:1:2:1::/80"));
        assert_eq!(now.range("site-last"), Some("fd00:1:2:ffff:ffff:ffff:ffff:ffff/128"));
        assert_eq!(now.range("a-po-80"), Some("fd00:1:3:4::/80"));
        assert_eq!(now.range("a-po-128"), Some("fd00:1:3:4:1::/128"));
        let free = |pool: &str, size: &str| {
            let status = now.pools[pool].status.clone().unwrap();
            status
                .free_count_exact
                .get(size)
                .cloned()
                .unwrap_or_else(|| status.free_count_by_size[size].to_string())
        };
        // 2^32, less one that is given, one that is split, and the one of the last address.
        assert_eq!(free("wide", "64"), ((1_u64 << 32) - 3).to_string());
        assert_eq!(
            free("wide", "128"),
            ((1_u128 << 96) - (1 << 64) - (1 << 48) - 2).to_string()
        );
        assert_eq!(free(long, "128"), ((1_u128 << 64) - (1 << 48) - 2).to_string());
        for name in now.subnets.keys() {
            let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(name.len() <= 63 && name.chars().all(valid), "{name}");
            assert!(!name.starts_with('-') && !name.ends_with('-'), "{name}");
        }
    });
    world.proof().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i8_pool_status_equals_a_recount_while_claims_of_random_sizes_come_and_go() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    let mut chance = Chance::from_environment();
    world
        .pool(
            "four",
            json!({"cidr": "10.0.0.0/18", "exclude": ["10.0.3.0/24", "10.0.32.0/19"]}),
        )
        .await;
    world
        .pool("six", json!({"cidr": "fd00::/40", "strategy": "Buddy"}))
        .await;
    let mut names = Vec::new();
    for round in 0..3 {
        let claims: Vec<(String, Value)> = (0..40)
            .map(|n| {
                let (pool, low, high) = *chance.pick(&[("four", 22, 28), ("six", 44, 64)]);
                (
                    format!("r{round}-{n:02}"),
                    json!({"poolRef": pool, "blockSize": chance.between(low, high)}),
                )
            })
            .collect();
        names.extend(claims.iter().map(|(name, _)| name.clone()));
        world.claim_all(claims).await;
        world
            .until("every claim is Bound or waits for room", |now| {
                names
                    .iter()
                    .all(|name| matches!(now.reason(name), Some("Allocated" | "PoolExhausted")))
            })
            .await;
        world.until_exact("four").await;
        world.until_exact("six").await;
        let (gone, left): (Vec<_>, Vec<_>) = names.drain(..).partition(|_| chance.between(0, 1) == 0);
        world.unclaim_all(gone).await;
        names = left;
        world
            .until("what was deleted is gone", |now| {
                let live = |name: &String| now.claims.contains_key(name);
                let names_one = |s: &Subnet| s.spec.claim_ref.as_ref().is_some_and(|claim| live(&claim.name));
                now.claims.len() == names.len() && now.subnets.values().all(names_one)
            })
            .await;
    }
    world.until_exact("four").await;
    world.until_exact("six").await;
    let proof = world.history.check();
    println!("{proof:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a7_shrinking_excluding_or_moving_a_pool_takes_nothing_from_anybody() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world.pool("pool", json!({"cidr": "10.0.0.0/23"})).await;
    world
        .claim("low", json!({"poolRef": "pool", "requestedCIDR": "10.0.0.0/25"}))
        .await;
    world
        .claim("high", json!({"poolRef": "pool", "requestedCIDR": "10.0.1.0/25"}))
        .await;
    world.until_bound(&["low", "high"]).await;
    let outside = async |count: i64, expected: &str| {
        world
            .until("outOfRange is right", |now| {
                let conflicted = now.condition("pool", "Conflicted").map(|(_, reason, _)| reason);
                now.pools["pool"]
                    .status
                    .as_ref()
                    .is_some_and(|s| s.out_of_range == count)
                    && conflicted.as_deref() == Some(expected)
            })
            .await;
        world.until_exact("pool").await;
    };
    world.edit_pool("pool", json!({"cidr": "10.0.0.0/24"})).await;
    outside(1, "OutOfRange").await;
    world.edit_pool("pool", json!({"cidr": "172.16.0.0/24"})).await;
    outside(2, "OutOfRange").await;
    world.claim("moved", json!({"poolRef": "pool", "blockSize": 25})).await;
    world.until_bound(&["moved"]).await;
    world
        .history
        .now(|now| assert_eq!(now.range("moved"), Some("172.16.0.0/25"), "no grant outside"));
    world.unclaim("moved").await;
    world
        .edit_pool(
            "pool",
            json!({"cidr": "10.0.0.0/23", "exclude": ["10.0.0.128/25", "10.0.1.0/24"]}),
        )
        .await;
    world
        .until("the range is given back", |now| {
            !now.claims.contains_key("moved") && now.subnets.len() == 2
        })
        .await;
    // `high` has what is excluded now.
    outside(0, "ExcludedInUse").await;
    // All that is left is excluded: who has a range there keeps it, who asks waits, and is served when it is not.
    world.claim("waits", json!({"poolRef": "pool", "blockSize": 25})).await;
    world
        .until("it finds no room", |now| now.reason("waits") == Some("PoolExhausted"))
        .await;
    world.edit_pool("pool", json!({"exclude": ["10.0.1.0/24"]})).await;
    world.until_bound(&["waits"]).await;
    world
        .history
        .now(|now| assert_eq!(now.range("waits"), Some("10.0.0.128/25")));
    // And back: nothing was lost, and nothing is left of it all.
    world.edit_pool("pool", json!({"exclude": null})).await;
    outside(0, "NoConflict").await;
    world.history.now(|now| {
        assert_eq!(
            (now.range("low"), now.range("high")),
            (Some("10.0.0.0/25"), Some("10.0.1.0/25"))
        );
        assert_eq!(now.allocated("pool"), Some(3));
    });
    world.proof().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a8_a_pool_in_use_is_deleted_by_itself_once_its_claims_are_gone() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world.pool("pool", json!({"cidr": "10.0.0.0/27"})).await;
    for name in ["one", "two", "waits"] {
        world.claim(name, json!({"poolRef": "pool", "blockSize": 28})).await;
        if name != "waits" {
            world.until_bound(&[name]).await;
        }
    }
    world
        .until("the third waits", |now| now.reason("waits") == Some("PoolExhausted"))
        .await;
    world.pools.delete("pool", &DeleteParams::default()).await.unwrap();
    world
        .until("the pool says for what it waits", |now| {
            let ready = now.condition("pool", "Ready");
            ready.is_some_and(|(_, reason, message)| reason == "Terminating" && message.contains('2'))
        })
        .await;
    world
        .until_event("SubnetPool", "pool", "Warning PoolDeletionBlocked")
        .await;
    world
        .until("the waiting claim is told", |now| {
            now.reason("waits") == Some("PoolNotReady")
        })
        .await;
    world.unclaim("one").await;
    world.until("its Subnet is gone", |now| now.subnets.len() == 1).await;
    world.history.now(|now| {
        assert!(now.pools.contains_key("pool") && now.is_bound("two"));
        assert_eq!(now.reason("waits"), Some("PoolNotReady"), "nothing is granted any more");
    });
    world.unclaim("two").await;
    world
        .until("the pool is gone", |now| now.pools.is_empty() && now.subnets.is_empty())
        .await;
    world
        .until("the waiting claim is told", |now| {
            now.reason("waits") == Some("PoolNotFound")
        })
        .await;
    world.pool("pool", json!({"cidr": "10.9.0.0/24"})).await;
    world.until_bound(&["waits"]).await;
    world
        .history
        .now(|now| assert_eq!(now.range("waits"), Some("10.9.0.0/28"), "of the new pool"));
    world.history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn a9_r37_deleting_the_subnet_of_a_live_claim_keeps_it_until_the_claim_goes() {
    let world = World::new().await;
    let operator = world.operator().ready().await;
    world.pool("pool", json!({"cidr": "10.0.0.0/28"})).await;
    world.claim("user", json!({"poolRef": "pool", "blockSize": 28})).await;
    world.until_bound(&["user"]).await;
    world
        .subnets
        .delete("pool-10-0-0-0-28", &DeleteParams::default())
        .await
        .unwrap();
    world
        .until("it is marked", |now| {
            now.subnets["pool-10-0-0-0-28"].metadata.deletion_timestamp.is_some()
        })
        .await;
    world.claim("thief", json!({"poolRef": "pool", "blockSize": 28})).await;
    world
        .until("the range is not given away", |now| {
            now.reason("thief") == Some("PoolExhausted")
        })
        .await;
    // Nor by one that starts now and knows only what it lists.
    operator.kill();
    let _operator = world.operator().ready().await;
    world
        .claim("z-thief", json!({"poolRef": "pool", "blockSize": 28}))
        .await;
    world
        .until("nor now", |now| now.reason("z-thief") == Some("PoolExhausted"))
        .await;
    world.history.now(|now| {
        assert!(is(now, "pool-10-0-0-0-28", SubnetPhase::Allocated, None));
        assert_eq!(now.range("user"), Some("10.0.0.0/28"));
    });
    world.until_exact("pool").await;
    world.unclaim("user").await;
    world.until_bound(&["thief"]).await;
    world.history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_pool_grants_nothing_and_goes_on_where_it_was() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world.pool("pool", json!({"cidr": "10.0.0.0/24"})).await;
    world.claim("before", json!({"poolRef": "pool", "blockSize": 28})).await;
    world.until_bound(&["before"]).await;
    let pause = |value: Value| Patch::Merge(json!({"metadata": {"annotations": {"usher.dev/paused": value}}}));
    world
        .pools
        .patch("pool", &PatchParams::default(), &pause(json!("true")))
        .await
        .unwrap();
    world
        .until("it says so", |now| {
            now.condition("pool", "Ready")
                .is_some_and(|(_, reason, _)| reason == "Paused")
        })
        .await;
    world.claim("during", json!({"poolRef": "pool", "blockSize": 28})).await;
    world
        .until("the claim is told", |now| now.reason("during") == Some("PoolNotReady"))
        .await;
    world.unclaim("before").await;
    world.until("releases go on", |now| now.subnets.is_empty()).await;
    world
        .pools
        .patch("pool", &PatchParams::default(), &pause(Value::Null))
        .await
        .unwrap();
    world.until_bound(&["during"]).await;
    world.history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn a22_a_released_range_is_not_granted_before_its_delay_is_over_even_after_a_restart() {
    const DELAY: i64 = 60;
    let world = World::new().await;
    let operator = world.operator().ready().await;
    world
        .pool("pool", json!({"cidr": "10.0.0.0/28", "reuseDelaySeconds": DELAY}))
        .await;
    world.claim("first", json!({"poolRef": "pool", "blockSize": 28})).await;
    world.until_bound(&["first"]).await;
    world.unclaim("first").await;
    let subnet = "pool-10-0-0-0-28";
    world
        .until("it is Released", |now| is(now, subnet, SubnetPhase::Released, None))
        .await;
    let marked = world
        .history
        .now(|now| now.subnets[subnet].metadata.deletion_timestamp.clone().unwrap().0);
    operator.kill();
    let _operator = world.operator().ready().await;
    world.claim("second", json!({"poolRef": "pool", "blockSize": 28})).await;
    world
        .until("it waits", |now| now.reason("second") == Some("PoolExhausted"))
        .await;
    world
        .until("Released still counts", |now| now.allocated("pool") == Some(1))
        .await;
    let shown = world.kubectl(&["get", "subnets"]).await;
    assert!(shown.contains("Released"), "{shown}");
    world.until_bound(&["second"]).await;
    let bound = jiff::Timestamp::now();
    assert!(
        bound.duration_since(marked).as_secs() >= DELAY,
        "marked {marked}, granted again {bound}"
    );
    world.history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn a25_a_namespace_with_everything_in_it_can_be_deleted() {
    if left_out("a25_a_namespace_with_everything_in_it_can_be_deleted") {
        return;
    }
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world.pool("pool", json!({"cidr": "10.0.0.0/26"})).await;
    world.subnet("by-hand", "pool", "10.0.0.48/28").await;
    world
        .claim_all((0..6).map(|n| (format!("c{n}"), json!({"poolRef": "pool", "blockSize": 28}))))
        .await;
    world
        .until("three are Bound", |now| {
            now.subnets.len() == 4 && now.allocated("pool") == Some(4)
        })
        .await;
    // Pools from pools, three levels deep and by label, with claims in each, some of which wait.
    world
        .pool("root", json!({"cidr": "10.1.0.0/16", "reuseDelaySeconds": 3}))
        .await;
    let mut parent = "root".to_owned();
    for (level, length) in [("one", 18), ("two", 20), ("three", 27)] {
        world.pool_claim(level, &parent, length).await;
        parent = world.until_pool(level).await;
        let (name, spec) = (format!("in-{level}"), json!({"poolRef": &parent, "blockSize": 28}));
        world.claim(&name, spec).await;
        world.until_bound(&[&name]).await;
    }
    for name in ["in-three-2", "in-three-3"] {
        world.claim(name, json!({"poolRef": &parent, "blockSize": 28})).await;
    }
    world.pool_claim("waits", &parent, 27).await;
    world
        .child_pool("labelled", "root", json!({"cidr": "10.1.128.0/20"}))
        .await;
    world
        .claim("in-labelled", json!({"poolRef": "labelled", "blockSize": 24}))
        .await;
    world.until_bound(&["in-labelled"]).await;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    namespaces
        .delete(&world.namespace, &DeleteParams::default())
        .await
        .unwrap();
    let took = eventually("the namespace is gone", async || {
        namespaces.get_opt(&world.namespace).await.unwrap().is_none()
    })
    .await;
    println!("a namespace with everything is gone after {took:.1?}");
    assert!(took < Duration::from_secs(30));
    // Nobody can be asked any more; the watches have brought all that happened before the namespace went.
    world
        .until("the history is whole", |now| {
            now.pools.is_empty() && now.claims.is_empty() && now.subnets.is_empty() && now.pool_claims.is_empty()
        })
        .await;
    let proof = world.history.check();
    assert_eq!((proof.pool_claims_bound, proof.pools_held), (3, 4));
}
