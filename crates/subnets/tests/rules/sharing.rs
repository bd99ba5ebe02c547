//! Several claims of one Subnet: who joins, who keeps it, and until when (R11, R32, R34, R35, R37).

use super::*;

#[test]
fn r34_r35_a_range_is_given_up_only_when_its_last_owner_is_gone() {
    let mut lab = Lab::new();
    lab.pool("p", json!({"cidr": "10.0.0.0/24"}));
    for name in ["a", "b"] {
        lab.claim(name, json!({"poolRef": "p", "blockSize": 26, "clusterID": "both"}));
    }
    lab.by_hand("hand", "p", "10.0.0.128/26");
    lab.run();
    let there = |lab: &Lab| lab.server.all::<SubnetRecord>().len();
    assert_eq!(there(&lab), 2);
    // Nothing that is done to the pool takes a range from anybody.
    lab.server
        .edit(POOLS, "p", |o| o["spec"]["cidr"] = json!("10.9.0.0/24"));
    lab.run();
    lab.server
        .edit(POOLS, "p", |o| o["spec"]["exclude"] = json!(["10.0.0.0/8"]));
    lab.run();
    assert_eq!(there(&lab), 2, "R34");
    lab.server.delete(CLAIMS, "a", None).unwrap();
    lab.run();
    assert_eq!(there(&lab), 2, "R35: one owner lives");
    // Deleted in the foreground: the claim waits for its Subnet, and the Subnet does not wait for the claim.
    lab.server.edit(CLAIMS, "b", |o| {
        o["metadata"]["finalizers"] = json!(["foregroundDeletion"])
    });
    lab.server.delete(CLAIMS, "b", None).unwrap();
    lab.run();
    assert_eq!(there(&lab), 1, "R35: the last owner is going");
    // Made by hand: it names no owner, and goes when it is deleted and not before.
    lab.server.delete(SUBNETS, "hand", None).unwrap();
    lab.run();
    assert_eq!(there(&lab), 0);
}

/// Claim `a` has 10.0.0.0/26; `b`, of the same clusterID, has become a further owner of its Subnet and is not Bound yet; a
/// Subnet made by hand has the clusterID too, and is older.
fn joined() -> Lab {
    let mut lab = Lab::new();
    lab.pool("p", json!({"cidr": "10.0.0.0/24"}));
    lab.by_hand("both", "p", "10.9.0.0/26");
    lab.server.pass_time(1);
    lab.claim("a", json!({"poolRef": "p", "blockSize": 26, "clusterID": "both"}));
    lab.run();
    lab.claim("b", json!({"poolRef": "p", "blockSize": 26, "clusterID": "both"}));
    lab.operator.deliver_all(&lab.server);
    lab.pass(CLAIM, &key("b"));
    let owners = &lab.server.get(SUBNETS, "p-10-0-0-0-26").unwrap()["metadata"]["ownerReferences"];
    assert_eq!(owners.as_array().unwrap().len(), 2, "{owners}");
    lab
}

#[test]
fn r11_a_claim_that_joined_a_subnet_is_bound_to_that_one_whatever_comes_up_meanwhile() {
    let mut lab = joined();
    // The one made by hand is mended: it has a range now, and is the older of the two.
    lab.server
        .edit(SUBNETS, "both", |o| o["spec"]["cidr"] = json!("10.0.0.128/26"));
    for _ in 0..3 {
        lab.operator.deliver_all(&lab.server);
        lab.pass(SUBNET, &key("both"));
    }
    let mended = lab.server.get(SUBNETS, "both").unwrap();
    assert_eq!(text(mended, "/status/phase"), "Allocated");
    lab.run();
    assert_eq!(lab.claim_now("b"), ("Bound".into(), "10.0.0.0/26".into()));
    for claim in ["a", "b"] {
        lab.server.delete(CLAIMS, claim, None).unwrap();
        lab.run();
    }
    assert_eq!(names(&lab), ["both"], "nothing is left over");
}

#[test]
fn r11_a_subnet_is_not_kept_by_a_sharer_that_is_bound_to_another_range() {
    let mut lab = joined();
    lab.server
        .edit(SUBNETS, "both", |o| o["spec"]["cidr"] = json!("10.0.0.128/26"));
    lab.server.edit(CLAIMS, "b", |o| {
        o["status"] = json!({"phase": "Bound", "allocatedCIDR": "10.0.0.128/26", "subnetRef": "both"});
    });
    lab.run();
    assert_eq!(names(&lab), ["both", "p-10-0-0-0-26"], "it has one that uses it");
    lab.server.delete(CLAIMS, "a", None).unwrap();
    lab.run();
    assert_eq!(names(&lab), ["both"]);
    assert_eq!(lab.claim_now("b"), ("Bound".into(), "10.0.0.128/26".into()));
}

#[test]
fn r37_a_subnet_deleted_between_joining_and_binding_is_kept_for_who_joined_it() {
    let mut lab = joined();
    lab.server.delete(SUBNETS, "p-10-0-0-0-26", None).unwrap();
    lab.run();
    assert_eq!(lab.claim_now("b"), ("Bound".into(), "10.0.0.0/26".into()));
    lab.server.delete(CLAIMS, "a", None).unwrap();
    lab.run();
    assert_eq!(names(&lab), ["both", "p-10-0-0-0-26"]);
    lab.server.delete(CLAIMS, "b", None).unwrap();
    lab.run();
    assert_eq!(names(&lab), ["both"]);
}

#[test]
fn r32_a_sharer_that_asks_for_something_else_before_it_is_bound_keeps_nothing() {
    let size = |lab: &mut Lab, claim: &str, size: u8| {
        lab.server.edit(CLAIMS, claim, |o| {
            o["spec"]["blockSize"] = json!(size);
            o["metadata"]["generation"] = json!(2);
        });
    };
    // The one that joined is edited: it is told, and served when the other is gone.
    let mut lab = joined();
    size(&mut lab, "b", 27);
    lab.run();
    assert_eq!(lab.claim_now("b").0, "Error", "R11: another size");
    lab.server.delete(CLAIMS, "a", None).unwrap();
    lab.run();
    assert_eq!(names(&lab), ["both", "p-10-0-0-0-27"]);
    assert_eq!(lab.claim_now("b"), ("Bound".into(), "10.0.0.0/27".into()));
    // The one it was made for is edited, before it was bound itself: the other keeps it.
    let mut lab = joined();
    lab.server.edit(CLAIMS, "a", |o| {
        o.as_object_mut().unwrap().remove("status");
    });
    size(&mut lab, "a", 27);
    lab.run();
    assert_eq!(lab.claim_now("b"), ("Bound".into(), "10.0.0.0/26".into()));
    assert_eq!(lab.claim_now("a").0, "Error", "R11: another size");
    lab.server.delete(CLAIMS, "b", None).unwrap();
    lab.run();
    assert_eq!(lab.claim_now("a"), ("Bound".into(), "10.0.0.0/27".into()));
}

#[test]
fn r35_a_claim_that_is_going_and_one_that_wants_something_else_keep_nothing_between_them() {
    let mut lab = joined();
    lab.server.edit(CLAIMS, "b", |o| {
        o["spec"]["blockSize"] = json!(27);
        o["metadata"]["generation"] = json!(2);
    });
    lab.server.edit(CLAIMS, "a", |o| {
        o["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
    });
    lab.server.delete(CLAIMS, "a", None).unwrap();
    lab.run();
    // What the one that is going was promised is free when it is gone.
    assert_eq!(names(&lab), ["both", "p-10-0-0-64-27"]);
    assert_eq!(lab.claim_now("b"), ("Bound".into(), "10.0.0.64/27".into()));
}
