//! Mappers: which event wakes which resource (spec section 7, M1-M4 and M7-M9). M5, M6 and M10 are the queue's own tests.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod world;

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};
use usher_operator::record::ApiType;
use usher_operator::view::Wake;
use usher_subnets::records::{CLAIMS, POOLS, SUBNETS};
use world::{Operator, Server};

fn names(wakes: &[Wake], kind: &str) -> BTreeSet<String> {
    wakes
        .iter()
        .filter(|w| w.kind == kind)
        .map(|w| w.key.name().to_owned())
        .collect()
}

fn names_of_pools(wakes: &[Wake]) -> BTreeSet<String> {
    names(wakes, "SubnetPool")
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

/// What one change of the server's state wakes, seen through a watch.
fn woken_by(server: &mut Server, change: impl FnOnce(&mut Server)) -> Vec<Wake> {
    let mut operator = Operator::start(server);
    operator.take_woken();
    change(server);
    operator.deliver_all(server);
    operator.take_woken()
}

/// The same, seen by a list that finds the difference.
fn woken_by_relist(server: &mut Server, kind: ApiType, change: impl FnOnce(&mut Server)) -> Vec<Wake> {
    let mut operator = Operator::start(server);
    operator.take_woken();
    change(server);
    operator.relist(server, kind);
    operator.take_woken()
}

fn with_pools() -> Server {
    let mut server = Server::default();
    server.create_pool("p", json!({"cidr": "10.0.0.0/16"}));
    server.create_pool("q", json!({"cidr": "10.1.0.0/16"}));
    server
}

fn by_hand(name: &str, pool: &str, cidr: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"poolRef": pool, "clusterID": "x", "cidr": cidr}})
}

#[test]
fn m1_a_subnet_wakes_exactly_its_pool() {
    let wakes = woken_by(&mut with_pools(), |s| {
        drop(s.create(SUBNETS, by_hand("s", "p", "10.0.0.0/24")))
    });
    assert_eq!(names(&wakes, "SubnetPool"), set(&["p"]));
    assert_eq!(names(&wakes, "Subnet"), set(&["s"]));
}

#[test]
fn m2_an_empty_reference_wakes_no_pool() {
    let wakes = woken_by(&mut with_pools(), |s| {
        drop(s.create(SUBNETS, by_hand("s", "", "10.0.0.0/24")))
    });
    assert_eq!(names(&wakes, "SubnetPool"), set(&[]));
}

#[test]
fn m3_a_deletion_found_only_by_a_list_wakes_the_last_known_pool() {
    let mut server = with_pools();
    server.create(SUBNETS, by_hand("s", "p", "10.0.0.0/24")).unwrap();
    let wakes = woken_by_relist(&mut server, SUBNETS, |s| drop(s.delete(SUBNETS, "s", None)));
    assert_eq!(names(&wakes, "SubnetPool"), set(&["p"]));
    assert!(
        wakes
            .iter()
            .filter(|w| w.kind == "SubnetPool")
            .all(|w| w.why.0 == "delete")
    );
}

#[test]
fn m8_an_edited_pool_reference_wakes_both_pools() {
    let mut server = with_pools();
    server.create(SUBNETS, by_hand("s", "p", "10.0.0.0/24")).unwrap();
    let wakes = woken_by(&mut server, |s| {
        s.edit(SUBNETS, "s", |o| o["spec"]["poolRef"] = json!("q"))
    });
    assert_eq!(names(&wakes, "SubnetPool"), set(&["p", "q"]));
}

#[test]
fn m9_a_status_alone_wakes_no_pool_but_makes_its_counters_due() {
    let mut server = with_pools();
    server.create(SUBNETS, by_hand("s", "p", "10.0.0.0/24")).unwrap();
    let wakes = woken_by(&mut server, |s| {
        s.edit(SUBNETS, "s", |o| o["status"] = json!({"phase": "Allocated"}))
    });
    let pools: Vec<_> = wakes.iter().filter(|w| w.kind == "SubnetPool").collect();
    assert!(
        pools.iter().all(|w| w.why.0 == "timer" && !w.after.is_zero()),
        "{pools:?}"
    );
}

#[test]
fn a_pools_own_status_wakes_nobody_so_our_writes_make_no_loop() {
    let mut server = with_pools();
    server.create_claim("c", json!({"poolRef": "p", "clusterID": "c"}));
    let wakes = woken_by(&mut server, |s| {
        s.edit(POOLS, "p", |o| o["status"] = json!({"allocatedCount": 3}))
    });
    assert!(wakes.is_empty(), "{wakes:?}");
}

#[test]
fn row_4_a_pool_wakes_itself_its_unsettled_subnets_and_its_queue() {
    let mut server = Server::default();
    server.create(SUBNETS, by_hand("s", "p", "10.0.0.0/24")).unwrap();
    server.create(SUBNETS, by_hand("held", "p", "10.0.1.0/24")).unwrap();
    server.edit(SUBNETS, "held", |o| o["status"] = json!({"phase": "Allocated"}));
    server.create_claim("waits", json!({"poolRef": "p", "clusterID": "c"}));
    server.create_claim("elsewhere", json!({"poolRef": "q", "clusterID": "c"}));
    let wakes = woken_by(&mut server, |s| s.create_pool("p", json!({"cidr": "10.0.0.0/16"})));
    assert_eq!(names(&wakes, "SubnetPool"), set(&["p"]));
    assert_eq!(names(&wakes, "Subnet"), set(&["s"]));
    assert_eq!(names(&wakes, "SubnetClaim"), set(&["waits"]));
    for change in ["annotation", "generation", "deletion"] {
        let mut server = with_pools();
        let wakes = woken_by(&mut server, |s| match change {
            "annotation" => s.edit(POOLS, "p", |o| {
                o["metadata"]["annotations"] = json!({"usher.dev/paused": "true"})
            }),
            "generation" => s.edit(POOLS, "p", |o| o["spec"]["cidr"] = json!("10.0.0.0/8")),
            _ => s.edit(POOLS, "p", |o| {
                o["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")
            }),
        });
        assert_eq!(names(&wakes, "SubnetPool"), set(&["p"]), "{change}");
    }
}

#[test]
fn row_7_a_claim_wakes_its_pools_itself_and_its_subnets() {
    let mut server = with_pools();
    server.create_claim("c", json!({"poolRef": "p", "clusterID": "c"}));
    let uid = server.get(CLAIMS, "c").unwrap()["metadata"]["uid"].clone();
    let mut subnet = by_hand("s", "p", "10.0.0.0/24");
    subnet["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "SubnetClaim", "name": "c", "uid": uid}]);
    server.create(SUBNETS, subnet).unwrap();
    let wakes = woken_by(&mut server, |s| {
        s.edit(CLAIMS, "c", |o| o["spec"]["poolRef"] = json!("q"))
    });
    assert_eq!(names(&wakes, "SubnetPool"), set(&["p", "q"]));
    assert_eq!(names(&wakes, "Subnet"), set(&["s"]));
    let wakes = woken_by(&mut server, |s| drop(s.delete(CLAIMS, "c", None)));
    assert_eq!(names(&wakes, "Subnet"), set(&["s"]));
    assert_eq!(
        names(&wakes, "SubnetClaim"),
        set(&[]),
        "a claim that is gone has nothing to do"
    );
}

#[test]
fn a_range_promised_or_no_longer_wakes_the_pool_though_only_a_status_changed() {
    let mut server = with_pools();
    server.create_claim("c", json!({"poolRef": "p", "clusterID": "c"}));
    let bound = json!({"phase": "Bound", "allocatedCIDR": "10.0.0.0/24"});
    let wakes = woken_by(&mut server, |s| s.edit(CLAIMS, "c", |o| o["status"] = bound));
    assert_eq!(names(&wakes, "SubnetPool"), set(&["p"]));
    let wakes = woken_by(&mut server, |s| {
        s.edit(CLAIMS, "c", |o| o["status"] = json!({"phase": "Pending"}))
    });
    assert_eq!(names(&wakes, "SubnetPool"), set(&["p"]));
}

#[test]
fn r30_when_it_is_clear_which_of_two_subnets_a_claim_keeps_both_are_woken() {
    let mut server = with_pools();
    server.create_claim("c", json!({"poolRef": "p", "clusterID": "c"}));
    let uid = server.get(CLAIMS, "c").unwrap()["metadata"]["uid"].clone();
    for (name, cidr) in [("one", "10.0.0.0/24"), ("two", "10.0.9.0/24")] {
        let mut subnet = by_hand(name, "p", cidr);
        subnet["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "SubnetClaim", "name": "c", "uid": uid}]);
        subnet["spec"]["claimRef"] = json!({"name": "c", "uid": uid});
        server.create(SUBNETS, subnet).unwrap();
    }
    let bound = json!({"phase": "Bound", "allocatedCIDR": "10.0.0.0/24", "subnetRef": "one"});
    let wakes = woken_by(&mut server, |s| s.edit(CLAIMS, "c", |o| o["status"] = bound));
    assert_eq!(names(&wakes, "Subnet"), set(&["one", "two"]));
    let allocated = json!({"phase": "Allocated"});
    let wakes = woken_by(&mut server, |s| s.edit(SUBNETS, "one", |o| o["status"] = allocated));
    assert_eq!(names(&wakes, "Subnet"), set(&["one", "two"]));
}

#[test]
fn row_8_a_subnet_wakes_those_it_overlaps_or_overlapped_and_its_claim() {
    let mut server = with_pools();
    server.create_claim("c", json!({"poolRef": "p", "clusterID": "c"}));
    server.create(SUBNETS, by_hand("near", "p", "10.0.0.0/25")).unwrap();
    server.create(SUBNETS, by_hand("far", "p", "10.0.9.0/24")).unwrap();
    server.create(SUBNETS, by_hand("lost", "p", "10.0.0.128/25")).unwrap();
    server.edit(SUBNETS, "lost", |o| o["status"] = json!({"phase": "Failed"}));
    let mut subnet = by_hand("s", "p", "10.0.0.0/24");
    subnet["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "SubnetClaim", "name": "c", "uid": "u"}]);
    let wakes = woken_by(&mut server, |s| drop(s.create(SUBNETS, subnet)));
    assert_eq!(names(&wakes, "Subnet"), set(&["s", "near", "lost"]));
    assert_eq!(names(&wakes, "SubnetClaim"), set(&["c"]));
}

/// Words by which the pools are woken; timers (row 11) apart.
fn words(wakes: &[Wake]) -> BTreeSet<String> {
    let pools = wakes
        .iter()
        .filter(|wake| wake.kind == "SubnetPool" && wake.why.0 != "timer");
    pools.map(|wake| wake.why.0.to_owned()).collect()
}

/// `subnetpool_parent_requeue_total` counts rows 1 to 6 by these words, so nothing else may use them.
#[test]
fn rows_1_to_6_wake_pools_by_the_words_of_the_table_and_others_by_words_of_their_own() {
    let mut server = with_pools();
    let subnet = by_hand("s", "p", "10.0.0.0/24");
    let woken = [
        ("create", woken_by(&mut server, |s| drop(s.create(SUBNETS, subnet)))),
        (
            "update",
            woken_by(&mut server, |s| {
                s.edit(SUBNETS, "s", |o| o["spec"]["cidr"] = json!("10.0.1.0/24"))
            }),
        ),
        ("delete", woken_by(&mut server, |s| drop(s.delete(SUBNETS, "s", None)))),
        (
            "update",
            woken_by(&mut server, |s| {
                s.edit(POOLS, "p", |o| o["spec"]["cidr"] = json!("10.0.0.0/15"))
            }),
        ),
        (
            "external",
            woken_by(&mut server, |s| {
                s.edit(POOLS, "p", |o| {
                    o["metadata"]["annotations"] = json!({"usher.dev/recalculate": "now"})
                });
            }),
        ),
        (
            "claim",
            woken_by(&mut server, |s| {
                s.create_claim("c", json!({"poolRef": "p", "clusterID": "c"}))
            }),
        ),
    ];
    for (word, wakes) in woken {
        assert_eq!(words(&wakes), set(&[word]), "{wakes:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn m4_every_key_of_every_mapper_has_a_namespace_and_names_what_was_referenced(
        pools in prop::collection::vec("[a-c]?", 1..4), sizes in prop::collection::vec(20u8..32, 1..6),
    ) {
        let mut server = with_pools();
        let wakes = woken_by(&mut server, |s| {
            for (i, size) in sizes.iter().enumerate() {
                let pool = &pools[i % pools.len()];
                s.create(SUBNETS, by_hand(&format!("s{i}"), pool, &format!("10.0.0.0/{size}"))).unwrap();
                s.create_claim(&format!("c{i}"), json!({"poolRef": pool, "clusterID": "c"}));
            }
        });
        for wake in &wakes {
            prop_assert_eq!(wake.key.namespace(), world::NS);
            prop_assert!(!wake.key.name().is_empty());
        }
        let woken = names(&wakes, "SubnetPool");
        let named: BTreeSet<String> = pools.iter().take(sizes.len()).filter(|p| !p.is_empty()).cloned().collect();
        prop_assert_eq!(woken, named);
    }
}

#[test]
fn m7_a_child_wakes_its_parents_by_label_range_and_deletion_and_by_nothing_else() {
    let child = |server: &mut Server| {
        let labels = json!({"plexaubnet.io/parent": "p"});
        let spec = json!({"cidr": "10.0.4.0/24"});
        let object = json!({"metadata": {"name": "k", "labels": labels, "finalizers": ["ours"]}, "spec": spec});
        server.create(POOLS, object).unwrap();
    };
    let edit = |change: fn(&mut Value)| {
        let mut server = with_pools();
        child(&mut server);
        let wakes = woken_by(&mut server, |server| server.edit(POOLS, "k", change));
        names_of_pools(&wakes)
    };
    let mut server = with_pools();
    assert_eq!(
        names_of_pools(&woken_by(&mut server, child)),
        set(&["k", "p"]),
        "label set"
    );
    let labelled = edit(|o| o["metadata"]["labels"]["plexaubnet.io/parent"] = json!("q"));
    assert_eq!(labelled, set(&["k", "p", "q"]), "label changed");
    assert_eq!(
        edit(|o| o["metadata"]["labels"] = json!({})),
        set(&["k", "p"]),
        "label removed"
    );
    assert_eq!(
        edit(|o| o["spec"]["cidr"] = json!("10.0.8.0/24")),
        set(&["k", "p"]),
        "range changed"
    );
    assert_eq!(
        edit(|o| o["metadata"]["labels"]["team"] = json!("blue")),
        set(&[]),
        "another label"
    );
    assert_eq!(
        edit(|o| o["status"] = json!({"allocatedCount": 3})),
        set(&[]),
        "a status"
    );
    let mut server = with_pools();
    child(&mut server);
    let marked = woken_by(&mut server, |server| {
        server.delete(POOLS, "k", None).unwrap();
    });
    assert_eq!(names_of_pools(&marked), set(&["k", "p"]), "deletion marked");
    let mut server = with_pools();
    child(&mut server);
    server.edit(POOLS, "k", |o| o["metadata"]["finalizers"] = json!([]));
    let gone = woken_by(&mut server, |server| {
        server.delete(POOLS, "k", None).unwrap();
    });
    assert_eq!(names_of_pools(&gone), set(&["p"]), "row 2: gone");
}
