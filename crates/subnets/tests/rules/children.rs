//! Pools from pools: circles, pool claims, holders (R39, R44, R45).

use super::*;

#[test]
fn r39_a_circle_that_is_broken_lets_the_subnets_of_all_its_pools_go_on() {
    let mut lab = Lab::new();
    lab.pool("a", json!({"cidr": "10.0.0.0/16"}));
    for (name, parent, cidr) in [
        ("b", "a", "10.0.0.0/18"),
        ("c", "b", "10.0.0.0/20"),
        ("d", "c", "10.0.0.0/22"),
    ] {
        lab.pool(name, json!({"cidr": cidr}));
        lab.label(name, Some(parent));
        lab.run();
    }
    lab.label("a", Some("d"));
    lab.run();
    for pool in ["b", "c", "d"] {
        lab.by_hand(&format!("in-{pool}"), pool, "10.0.3.0/24");
        lab.run();
    }
    let phase = |lab: &Lab, name: &str| text(lab.server.get(SUBNETS, name).unwrap(), "/status/phase").to_owned();
    assert_eq!(phase(&lab, "in-d"), "Pending");
    lab.label("a", None);
    lab.run();
    assert_eq!(phase(&lab, "in-d"), "Allocated");
}

#[test]
fn r44_a_pool_claim_whose_pool_and_range_were_both_deleted_by_hand_has_both_again() {
    let mut lab = Lab::new();
    lab.pool("root", json!({"cidr": "10.0.0.0/16"}));
    let object = json!({"metadata": {"name": "c"}, "spec": {"parentPoolRef": "root", "desiredBlockSize": 20}});
    lab.server.create(POOL_CLAIMS, object).unwrap();
    lab.run();
    let status = |lab: &Lab| lab.server.get(POOL_CLAIMS, "c").unwrap()["status"].clone();
    let bound = status(&lab);
    assert_eq!(bound["phase"], json!("Bound"));
    let (child, holder) = (text(&bound, "/boundPoolName").to_owned(), names(&lab).remove(0));
    lab.server.delete(SUBNETS, &holder, None).unwrap();
    lab.run();
    assert_eq!(status(&lab)["phase"], json!("Bound"), "R37: it is in use");
    lab.server.delete(POOLS, &child, None).unwrap();
    lab.run();
    let again = status(&lab);
    assert_eq!(again["phase"], json!("Bound"), "{again}");
    let child = lab.server.get(POOLS, text(&again, "/boundPoolName")).unwrap();
    assert!(child["metadata"].get("deletionTimestamp").is_none());
    let holders = lab.server.all::<SubnetRecord>();
    assert!(holders.len() == 1 && holders[0].meta.deleting.is_none() && holders[0].settled());
}

#[test]
fn r44_what_a_pool_claim_left_in_another_parent_does_not_stop_it_in_the_new_one() {
    let mut lab = Lab::new();
    lab.pool("one", json!({"cidr": "10.0.0.0/16", "reuseDelaySeconds": 3600}));
    lab.pool("two", json!({"cidr": "10.1.0.0/16"}));
    let object = json!({"metadata": {"name": "c"}, "spec": {"parentPoolRef": "one", "desiredBlockSize": 20}});
    lab.server.create(POOL_CLAIMS, object).unwrap();
    // It has its range, and no pool yet: from then on nobody looks at it.
    for _ in 0..40 {
        let has_range = names(&lab).len() == 1 && lab.server.all::<SubnetRecord>()[0].settled();
        for (kind, key) in lab.operator.news(&lab.server) {
            if kind != POOL_CLAIM || !has_range {
                lab.pass(kind, &key);
            }
        }
    }
    assert_eq!(lab.server.all::<PoolRecord>().len(), 2, "no child yet");
    lab.server
        .edit(POOL_CLAIMS, "c", |o| o["spec"]["parentPoolRef"] = json!("two"));
    lab.run();
    let status = lab.server.get(POOL_CLAIMS, "c").unwrap()["status"].clone();
    assert_eq!(status["phase"], json!("Bound"), "{status}");
    let subnets = lab.server.all::<SubnetRecord>();
    let phases: Vec<_> = subnets.iter().map(|s| (&*s.pool, s.phase())).collect();
    let expected = [("one", SubnetPhase::Released), ("two", SubnetPhase::Allocated)];
    assert_eq!(phases, expected.map(|(pool, phase)| (pool, Some(phase))));
}

#[test]
fn r45_a_child_serves_from_its_holder_whatever_either_is_called() {
    let mut lab = Lab::new();
    lab.pool("root", json!({"cidr": "10.0.0.0/16"}));
    let child = "root-10-0-16-0-20";
    lab.pool(child, json!({"cidr": "10.0.16.0/20"}));
    lab.label(child, Some("root"));
    lab.run();
    assert_eq!(names(&lab), [child], "its holder has its name");
    lab.server
        .edit(POOLS, child, |o| o["spec"]["cidr"] = json!("10.0.0.0/18"));
    lab.run();
    lab.claim("c", json!({"poolRef": child, "blockSize": 22}));
    lab.run();
    assert_eq!(lab.claim_now("c"), ("Bound".into(), "10.0.16.0/22".into()));
}
