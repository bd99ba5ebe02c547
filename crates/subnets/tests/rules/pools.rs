//! What a pool is, says, and holds against the records (R7, R38, R39, R42, R46-R51, I5).

use super::*;

#[test]
fn r7_the_size_asked_is_that_of_the_range_else_the_block_size_else_the_pools_default() {
    let four = record(json!({"cidr": "10.0.0.0/16"}));
    let six = record(json!({"cidr": "2001:db8::/32"}));
    let exact = "10.0.3.0/24".parse().unwrap();
    for (pool, ask, expected) in [
        (&four, Ask::Default, Ok(Request::Length(24))),
        (&six, Ask::Default, Ok(Request::Length(64))),
        (&four, Ask::Length(28), Ok(Request::Length(28))),
        (&four, Ask::Length(16), Ok(Request::Length(16))),
        (&four, Ask::Exact(exact), Ok(Request::Exact(exact))),
        (&six, Ask::Exact(exact), Err(())),
        (&four, Ask::Length(29), Err(())),
        (&four, Ask::Length(15), Err(())),
    ] {
        let answer = plan::request(ask, pool, pool.cidr).map_err(drop);
        assert_eq!(answer, expected, "R7, R8: {ask:?} of {}", pool.cidr);
    }
    let clamped = record(json!({"cidr": "10.0.0.0/26", "maxBlockSize": 28}));
    assert_eq!(clamped.default, 26, "R7: the default is never bigger than the pool");
}

#[test]
fn r39_the_first_state_that_applies_is_the_pools_state() {
    let mut lab = Lab::new();
    lab.pool("p", json!({"cidr": "10.0.0.0/24"}));
    lab.by_hand("hand", "p", "10.0.0.0/28");
    let state = |lab: &mut Lab| {
        lab.run();
        let reason = text(&lab.pool_status("p"), "/conditions/0/reason").to_owned();
        let state = lab.view(|view| observe::standing(view, view.get::<PoolRecord>(&key("p")).unwrap()).state());
        assert_eq!(reason, state.reason());
        state
    };
    let edit = |lab: &mut Lab, change: fn(&mut Value)| lab.server.edit(POOLS, "p", change);
    assert_eq!(state(&mut lab), PoolState::Serving);
    edit(&mut lab, |o| {
        o["metadata"]["annotations"]["usher.dev/paused"] = json!("true")
    });
    assert_eq!(state(&mut lab), PoolState::Paused);
    edit(&mut lab, |o| {
        o["metadata"]["labels"]["plexaubnet.io/parent"] = json!("nobody")
    });
    assert_eq!(state(&mut lab), PoolState::WaitingParent);
    edit(&mut lab, |o| o["spec"]["maxBlockSize"] = json!(20));
    assert_eq!(state(&mut lab), PoolState::Invalid);
    lab.server.delete(POOLS, "p", None).unwrap();
    assert_eq!(state(&mut lab), PoolState::Terminating, "R39");
}

#[test]
fn r42_two_root_pools_may_overlap_and_serve_the_same_range() {
    let mut lab = Lab::new();
    for pool in ["p", "q"] {
        lab.pool(pool, json!({"cidr": "10.0.0.0/24"}));
        lab.claim(
            &format!("of-{pool}"),
            json!({"poolRef": pool, "requestedCIDR": "10.0.0.0/26"}),
        );
    }
    lab.run();
    for claim in ["of-p", "of-q"] {
        assert_eq!(lab.claim_now(claim), ("Bound".into(), "10.0.0.0/26".into()), "R42");
    }
}

#[test]
fn r46_r49_the_status_is_counted_and_nothing_is_read_from_it() {
    let mut lab = Lab::new();
    lab.pool("p", json!({"cidr": "10.0.0.0/23", "maxBlockSize": 30}));
    lab.claim("a", json!({"poolRef": "p", "blockSize": 24}));
    lab.run();
    // Somebody writes nonsense: it is not believed (R49), and said anew as it is (R46).
    lab.server.edit(POOLS, "p", |o| {
        o["status"]["allocatedCIDRs"] = json!({"10.0.1.0/24": "somebody"});
        o["status"]["freeCountBySize"] = json!({"24": 0});
        o["status"]["allocatedCount"] = json!(99);
    });
    lab.claim("b", json!({"poolRef": "p", "blockSize": 25}));
    lab.run();
    lab.pass(POOL, &key("p"));
    assert_eq!(lab.claim_now("b"), ("Bound".into(), "10.0.1.0/25".into()), "R49");
    let status = lab.pool_status("p");
    assert_eq!(status["allocatedCount"], 2, "R46");
    let sizes: Vec<&str> = status["freeCountBySize"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        sizes,
        ["/24", "23", "24", "25", "26", "27", "28", "29", "30"],
        "R46: from its own length to hi"
    );
    assert_eq!(status["freeCountBySize"]["30"], 32, "R46");
    assert_eq!(
        status["allocatedCIDRs"],
        json!({"10.0.0.0/24": "a", "10.0.1.0/25": "b"}),
        "R47: complete"
    );
}

#[test]
fn r47_the_list_of_allocations_is_complete_or_absent_and_does_not_come_and_go() {
    let mut lab = Lab::new();
    lab.operator.pools.limits.listed_max = 10;
    lab.pool("p", json!({"cidr": "10.0.0.0/24"}));
    for n in 0..11 {
        lab.by_hand(&format!("s{n:02}"), "p", &format!("10.0.0.{n}/32"));
    }
    lab.run();
    lab.pass(POOL, &key("p"));
    let listed = |lab: &Lab| {
        let status = lab.pool_status("p");
        let omitted = status["allocatedCIDRsOmitted"].as_bool().unwrap_or(false);
        let map = status
            .get("allocatedCIDRs")
            .and_then(Value::as_object)
            .map(serde_json::Map::len);
        assert_eq!(omitted, map.is_none(), "R47: absent means omitted");
        map
    };
    assert_eq!(listed(&lab), None, "R47");
    for (n, expected) in [(0, None), (1, None), (2, Some(8))] {
        lab.server.delete(SUBNETS, &format!("s{n:02}"), None).unwrap();
        lab.run();
        lab.pass(POOL, &key("p"));
        assert_eq!(listed(&lab), expected, "R47: it returns at four fifths");
    }
}

#[test]
fn i5_no_range_is_committed_before_the_end_of_its_reuse_delay() {
    let mut lab = Lab::new();
    lab.pool(
        "p",
        json!({"cidr": "10.0.0.0/28", "reuseDelaySeconds": 60, "maxBlockSize": 28}),
    );
    lab.claim("a", json!({"poolRef": "p", "blockSize": 28}));
    lab.run();
    lab.server.delete(CLAIMS, "a", None).unwrap();
    lab.claim("b", json!({"poolRef": "p", "blockSize": 28}));
    let released = lab.server.now();
    lab.run();
    let mut bound = None;
    for _ in 0..80 {
        lab.server.pass_time(1);
        for (kind, name) in [(SUBNET, "p-10-0-0-0-28"), (POOL, "p"), (CLAIM, "b")] {
            lab.pass(kind, &key(name));
        }
        lab.run();
        if lab.claim_now("b").0 == "Bound" {
            bound.get_or_insert(lab.server.now());
        }
    }
    let waited = bound.expect("served in the end").duration_since(released);
    assert!(waited >= SignedDuration::from_secs(58), "I5, R36: after {waited:?}");
}

#[test]
fn r38_subnets_made_before_usher_get_its_finalizer_in_batches() {
    let mut lab = Lab::new();
    lab.pool("p", json!({"cidr": "10.0.0.0/16"}));
    for n in 0..50 {
        let claim = format!("c{n:02}");
        lab.server
            .create_claim(&claim, json!({"poolRef": "p", "clusterID": claim, "blockSize": 24}));
        let uid = lab
            .server
            .all::<ClaimRecord>()
            .iter()
            .find(|c| c.meta.key.name() == claim)
            .unwrap()
            .meta
            .uid
            .to_string();
        let owner = json!([{"apiVersion": "plexaubnet.io/v1alpha1", "kind": "SubnetClaim", "name": claim, "uid": uid}]);
        let cidr = format!("10.0.{n}.0/24");
        let spec = json!({"poolRef": "p", "clusterID": claim, "cidr": cidr, "claimRef": {"name": claim, "uid": uid}});
        let name = format!("upstream-{n:02}");
        lab.server
            .create(
                SUBNETS,
                json!({"metadata": {"name": name, "ownerReferences": owner}, "spec": spec}),
            )
            .unwrap();
        lab.server
            .edit(SUBNETS, &name, |o| o["status"] = json!({"phase": "Allocated"}));
        lab.server.edit(CLAIMS, &claim, |o| {
            o["status"] = json!({"phase": "Bound", "allocatedCIDR": cidr, "subnetRef": name})
        });
    }
    // One that somebody else holds back from going takes no finalizer any more, and is in nobody's way.
    lab.server.edit(SUBNETS, "upstream-00", |o| {
        o["metadata"]["finalizers"] = json!(["other/one"])
    });
    lab.server.delete(SUBNETS, "upstream-00", None).unwrap();
    lab.claim("new", json!({"poolRef": "p", "blockSize": 24}));
    lab.operator = Operator::start(&lab.server);
    let adopted = |lab: &Lab| {
        let all = lab.server.all::<SubnetRecord>();
        all.iter()
            .filter(|s| s.meta.key.name().starts_with("upstream"))
            .filter(|s| s.meta.has_finalizer(usher_subnets::api::FINALIZER))
            .count()
    };
    lab.run();
    assert_eq!(adopted(&lab), 20, "R38: at most 20 per second");
    assert_eq!(lab.claim_now("new").0, "Bound");
    for expected in [40, 49] {
        lab.server.pass_time(1);
        lab.pass(POOL, &key("p"));
        lab.run();
        assert_eq!(adopted(&lab), expected, "R38");
    }
    let ranges: BTreeSet<String> = lab
        .server
        .all::<SubnetRecord>()
        .iter()
        .map(|s| s.cidr.to_string())
        .collect();
    assert_eq!(ranges.len(), 51, "no range changed");
}

#[test]
fn r51_a_damaged_map_is_found_in_slices_and_repaired_r50() {
    let forgets_a_subnet: fn(&mut Account) -> Option<IpNet> = Account::damage;
    for (damage, drift) in [(forgets_a_subnet, 1), (Account::damage_promise, 2)] {
        let mut lab = Lab::new();
        lab.pool("p", json!({"cidr": "10.0.0.0/24"}));
        lab.claim("a", json!({"poolRef": "p", "blockSize": 26}));
        lab.run();
        lab.operator.pools.limits.checked_from = Some(lab.server.now());
        let forgotten = {
            let mut memory = lab.operator.memory();
            let ledger = memory.view.derived_mut::<Ledger>().unwrap();
            damage(ledger.account_mut(&key("p")).unwrap())
        };
        assert_eq!(forgotten.unwrap().to_string(), "10.0.0.0/26");
        lab.server.pass_time(599);
        lab.pass(POOL, &key("p"));
        lab.run();
        assert!(!lab.account("p", |a| a.recalculation.suspected), "not due yet");
        lab.server.pass_time(1);
        lab.pass(POOL, &key("p"));
        lab.run();
        lab.operator.audit();
        let answer = lab.pool_status("p")["recalculated"].clone();
        assert_eq!(
            (answer["trigger"].as_str(), answer["drift"].as_i64()),
            (Some("drift-check"), Some(drift)),
            "R51, R50"
        );
        // Whole again: the range is not given twice.
        lab.claim("b", json!({"poolRef": "p", "blockSize": 26}));
        lab.run();
        assert_eq!(lab.claim_now("b").1, "10.0.0.64/26");
    }
}
