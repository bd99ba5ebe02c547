//! Rules of the spec, each on values: the shipped decisions on the model's API server, without faults.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod world;

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use jiff::SignedDuration;
use serde_json::{Value, json};
use usher_engine::ObjectKey;
use usher_operator::view::View;
use usher_subnets::api::{PARENT_LABEL, SubnetPhase};
use usher_subnets::kinds::{CLAIM, POOL, POOL_CLAIM, SUBNET};
use usher_subnets::ledger::{Account, Ledger};
use usher_subnets::observe;
use usher_subnets::plan::pool::{GRANTS_OUTSTANDING, Limits, PoolStep};
use usher_subnets::plan::{self, PoolState, Request};
use usher_subnets::records::{Ask, CLAIMS, ClaimRecord, POOL_CLAIMS, POOLS, PoolRecord, SUBNETS, SubnetRecord};
use world::{Call, Operator, Server, key, text};

struct Lab {
    server: Server,
    operator: Operator,
}

impl Lab {
    fn new() -> Self {
        let mut server = Server::default();
        server.pass_time(1_700_000_000);
        let operator = Operator::start(&server);
        Self { server, operator }
    }

    fn pool(&mut self, name: &str, spec: Value) {
        self.server.create_pool(name, spec);
    }

    /// A claim, a second younger than the one before.
    fn claim(&mut self, name: &str, spec: Value) {
        let mut spec = spec;
        if spec.get("clusterID").is_none() {
            spec["clusterID"] = json!(name);
        }
        self.server.create_claim(name, spec);
        self.server.pass_time(1);
    }

    fn by_hand(&mut self, name: &str, pool: &str, cidr: &str) {
        let object = json!({"metadata": {"name": name}, "spec": {"poolRef": pool, "clusterID": name, "cidr": cidr}});
        self.server.create(SUBNETS, object).unwrap();
    }

    fn label(&mut self, pool: &str, parent: Option<&str>) {
        let labels: BTreeMap<_, _> = parent.map(|parent| (PARENT_LABEL, parent)).into_iter().collect();
        self.server
            .edit(POOLS, pool, |o| o["metadata"]["labels"] = json!(labels));
    }

    /// Until nothing is left to do.
    fn run(&mut self) {
        for _ in 0..200 {
            let news = self.operator.news(&self.server);
            if news.is_empty() {
                return;
            }
            for (kind, key) in news {
                self.pass(kind, &key);
            }
        }
        panic!("no calm");
    }

    fn pass(&mut self, kind: &'static str, key: &ObjectKey) {
        if let Some(mut flight) = self.operator.pass(kind, key, self.server.now()) {
            flight.finish(&mut self.server);
        }
    }

    fn view<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        look(&self.operator.memory().view)
    }

    fn account<T>(&self, pool: &str, look: impl FnOnce(&Account) -> T) -> T {
        self.view(|view| look(view.derived::<Ledger>().unwrap().account(&key(pool)).unwrap()))
    }

    fn claim_now(&self, name: &str) -> (String, String) {
        let claim = self.server.get(CLAIMS, name).unwrap();
        (
            text(claim, "/status/phase").to_owned(),
            text(claim, "/status/allocatedCIDR").to_owned(),
        )
    }

    fn pool_status(&self, name: &str) -> Value {
        self.server.get(POOLS, name).unwrap()["status"].clone()
    }

    fn steps(&self, pool: &str) -> Vec<PoolStep> {
        let now = self.server.now();
        self.view(|view| {
            let record = view.get::<PoolRecord>(&key(pool)).unwrap();
            let seen = observe::pool(view, record, Limits::default()).unwrap();
            plan::pool::plan(record, &seen, now).steps
        })
    }
}

fn record(spec: Value) -> PoolRecord {
    let mut server = Server::default();
    server.create_pool("p", spec);
    server.all::<PoolRecord>().remove(0)
}

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

fn names(lab: &Lab) -> Vec<String> {
    let subnets = lab.server.all::<SubnetRecord>();
    subnets.iter().map(|subnet| subnet.meta.key.name().to_owned()).collect()
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
