//! Whom a pool serves, what is promised, and what becomes of that (R15-R19, R29, R31, I9).

use super::*;

#[test]
fn r17_a_pass_grants_no_more_than_may_be_outstanding_and_goes_on_when_those_are_placed() {
    let mut lab = Lab::new();
    lab.pool("p", json!({"cidr": "10.0.0.0/16"}));
    for n in 0..GRANTS_OUTSTANDING + 44 {
        lab.claim(&format!("c{n:04}"), json!({"poolRef": "p", "blockSize": 28}));
    }
    lab.operator.deliver_all(&lab.server);
    lab.pass(POOL, &key("p"));
    lab.operator.deliver_all(&lab.server);
    let grants = |steps: &[PoolStep]| steps.iter().filter(|s| matches!(s, PoolStep::Grant { .. })).count();
    assert_eq!(grants(&lab.steps("p")), GRANTS_OUTSTANDING, "R17");
    lab.pass(POOL, &key("p"));
    assert_eq!(grants(&lab.steps("p")), 0, "R17: none while so many are under way");
    lab.run();
    assert_eq!(
        lab.pool_status("p")["waitingClaims"],
        0,
        "R17: all are served in the end"
    );
}

#[test]
fn r19_a_claim_in_a_queue_that_moves_says_nothing_before_its_turn() {
    let mut lab = Lab::new();
    lab.pool("p", json!({"cidr": "10.0.0.0/16"}));
    for n in 0..=GRANTS_OUTSTANDING {
        lab.server.create_claim(
            &format!("c{n:04}"),
            json!({"poolRef": "p", "blockSize": 28, "clusterID": n.to_string()}),
        );
    }
    for _ in 0..2 {
        lab.operator.deliver_all(&lab.server);
        lab.pass(POOL, &key("p"));
    }
    let last = key(&format!("c{GRANTS_OUTSTANDING:04}"));
    let says = |lab: &Lab| {
        let flight = lab.operator.pass(CLAIM, &last, lab.server.now()).unwrap();
        flight.lines.iter().any(|line| line.starts_with("status:"))
    };
    lab.server.pass_time(1);
    assert!(!says(&lab), "it has its turn soon");
    lab.server.pass_time(2);
    assert!(says(&lab), "nobody was granted anything for a while");
}

#[test]
fn r18_a_grant_whose_claim_vanished_or_changed_is_revoked_if_its_create_was_not_sent() {
    for change in ["delete", "edit", "pause"] {
        let mut lab = Lab::new();
        lab.pool("p", json!({"cidr": "10.0.0.0/24"}));
        lab.claim("c", json!({"poolRef": "p", "blockSize": 26}));
        lab.operator.deliver_all(&lab.server);
        lab.pass(POOL, &key("p"));
        lab.operator.deliver_all(&lab.server);
        lab.pass(POOL, &key("p"));
        assert_eq!(lab.account("p", |a| a.grants.len()), 1, "granted");
        match change {
            "delete" => drop(lab.server.delete(CLAIMS, "c", None).unwrap()),
            "edit" => lab.server.edit(CLAIMS, "c", |o| o["spec"]["blockSize"] = json!(27)),
            _ => lab.server.edit(POOLS, "p", |o| {
                o["metadata"]["annotations"]["usher.dev/paused"] = json!("true")
            }),
        }
        lab.operator.deliver_all(&lab.server);
        let revoked = lab
            .steps("p")
            .iter()
            .any(|s| matches!(s, PoolStep::RevokeGrant { sent: false, .. }));
        assert!(revoked, "R18: {change}");
        lab.run();
        assert_eq!(lab.account("p", |a| a.grants.len()), 0, "R18: {change}");
        lab.operator.audit();
    }
}

#[test]
fn r18_a_grant_of_what_the_pool_gives_no_more_is_revoked_and_the_claim_told() {
    let mut lab = Lab::new();
    lab.pool("p", json!({"cidr": "10.0.0.0/16"}));
    lab.claim("a", json!({"poolRef": "p", "blockSize": 26}));
    lab.operator.deliver_all(&lab.server);
    for _ in 0..2 {
        lab.pass(POOL, &key("p"));
        lab.operator.deliver_all(&lab.server);
    }
    assert_eq!(lab.account("p", |account| account.grants.len()), 1);
    lab.server.edit(POOLS, "p", |o| o["spec"]["maxBlockSize"] = json!(24));
    lab.run();
    assert_eq!(lab.account("p", |account| account.grants.len()), 0);
    assert_eq!(lab.claim_now("a").0, "Error");
    lab.server.edit(POOLS, "p", |o| o["spec"]["maxBlockSize"] = json!(28));
    lab.run();
    assert_eq!(lab.claim_now("a"), ("Bound".into(), "10.0.0.0/26".into()));
}

#[test]
fn r29_a_subnet_whose_creation_was_not_answered_is_found_and_not_made_twice() {
    let mut lab = Lab::new();
    lab.pool("p", json!({"cidr": "10.0.0.0/24"}));
    lab.claim("a", json!({"poolRef": "p", "blockSize": 26}));
    for _ in 0..2 {
        lab.operator.deliver_all(&lab.server);
        lab.pass(POOL, &key("p"));
    }
    let mut flight = lab.operator.pass(CLAIM, &key("a"), lab.server.now()).unwrap();
    assert!(matches!(flight.call(), Some(Call::Create { .. })));
    flight.effect(&mut lab.server, false);
    lab.run();
    assert_eq!(names(&lab), ["p-10-0-0-0-26"]);
    assert_eq!(lab.claim_now("a"), ("Bound".into(), "10.0.0.0/26".into()));
}

#[test]
fn r31_a_promise_is_restored_in_a_pool_that_was_made_again() {
    let mut lab = Lab::new();
    lab.pool("p", json!({"cidr": "10.0.0.0/24"}));
    lab.claim("a", json!({"poolRef": "p", "blockSize": 26}));
    lab.run();
    for (kind, name) in [(SUBNETS, "p-10-0-0-0-26"), (POOLS, "p")] {
        lab.server.edit(kind, name, |o| o["metadata"]["finalizers"] = json!([]));
        lab.server.delete(kind, name, None).unwrap();
    }
    lab.run();
    lab.pool("p", json!({"cidr": "10.0.0.0/24"}));
    lab.run();
    assert_eq!(names(&lab), ["p-10-0-0-0-26"]);
    assert_eq!(lab.claim_now("a"), ("Bound".into(), "10.0.0.0/26".into()));
}

#[test]
fn i9_nobody_is_served_before_an_older_claim_that_would_fit_nor_inside_a_target() {
    let mut lab = Lab::new();
    lab.pool("p", json!({"cidr": "10.0.0.0/24"}));
    for n in 0..4 {
        lab.claim(&format!("full{n}"), json!({"poolRef": "p", "blockSize": 26}));
    }
    lab.run();
    lab.claim("big", json!({"poolRef": "p", "blockSize": 25}));
    for n in 0..4 {
        lab.claim(&format!("small{n}"), json!({"poolRef": "p", "blockSize": 26}));
    }
    lab.run();
    // R13: the oldest that fits is the first of the small ones; the big one fits nowhere.
    lab.server.delete(CLAIMS, "full0", None).unwrap();
    lab.run();
    assert_eq!(lab.claim_now("small0").0, "Bound", "I9");
    assert_eq!(lab.claim_now("small1").0, "Pending", "I9");
    // R15: it has waited long enough. What is kept for it is nobody else's.
    lab.server.pass_time(300);
    lab.pass(POOL, &key("p"));
    let target = lab.account("p", |a| a.target.clone()).expect("R15").cidr;
    assert_eq!(target.to_string(), "10.0.0.0/25", "all are full: the lowest");
    lab.server.delete(CLAIMS, "small0", None).unwrap();
    lab.run();
    assert_eq!(
        lab.claim_now("small1").0,
        "Pending",
        "I9: it would lie inside the target"
    );
    lab.server.delete(CLAIMS, "full2", None).unwrap();
    lab.run();
    assert_eq!(
        lab.claim_now("small1"),
        ("Bound".into(), "10.0.0.128/26".into()),
        "I9: elsewhere it may"
    );
    lab.server.delete(CLAIMS, "full1", None).unwrap();
    lab.run();
    assert_eq!(
        lab.claim_now("big"),
        ("Bound".into(), "10.0.0.0/25".into()),
        "R15: served as its target empties"
    );
    let kept = lab.account("p", |a| a.target.as_ref().map(|target| target.cidr));
    assert_ne!(kept, Some(target), "dropped when served; the next one may have its own");
}

#[test]
fn r15_a_target_that_the_pool_gives_no_more_is_given_up_for_another() {
    let mut lab = Lab::new();
    lab.pool("p", json!({"cidr": "10.0.0.0/24"}));
    for n in 0..4 {
        lab.claim(&format!("full{n}"), json!({"poolRef": "p", "blockSize": 26}));
    }
    lab.run();
    lab.claim("big", json!({"poolRef": "p", "blockSize": 25}));
    lab.claim("small", json!({"poolRef": "p", "blockSize": 26}));
    lab.server.delete(CLAIMS, "full0", None).unwrap();
    lab.run();
    assert_eq!(lab.claim_now("small").0, "Bound", "over the head of the big one");
    lab.server.pass_time(300);
    lab.pass(POOL, &key("p"));
    let target = |lab: &Lab| lab.account("p", |a| a.target.as_ref().map(|target| target.cidr.to_string()));
    assert_eq!(target(&lab).as_deref(), Some("10.0.0.0/25"));
    lab.server
        .edit(POOLS, "p", |o| o["spec"]["exclude"] = json!(["10.0.0.0/28"]));
    lab.run();
    assert_eq!(target(&lab).as_deref(), Some("10.0.0.128/25"));
    for claim in ["full2", "full3"] {
        lab.server.delete(CLAIMS, claim, None).unwrap();
        lab.run();
    }
    assert_eq!(lab.claim_now("big"), ("Bound".into(), "10.0.0.128/25".into()));
}
