//! Two operators and a pool claim that is deleted while its range is being placed (R44, I10): each half of the rule in the very
//! order of events in which it is needed. All orders there are: `exhaustive`.

use usher_operator::record::ApiType;

use super::world::Flight;
use super::*;

/// Rounds in which everything is done that can be; whoever is refused tries again in each.
const ROUNDS: usize = 40;

struct Pair {
    server: Server,
    /// Paused: its view is old when it goes on.
    stale: Operator,
    other: Operator,
}

impl Pair {
    /// A pool claim that nobody has looked at yet.
    fn new() -> Self {
        let mut server = Server::default();
        server.pass_time(1_700_000_000);
        server.create_pool("root", json!({"cidr": "10.0.0.0/16"}));
        let object = json!({"metadata": {"name": "c"}, "spec": {"parentPoolRef": "root", "desiredBlockSize": 20}});
        server.create(POOL_CLAIMS, object).unwrap();
        let (stale, other) = (Operator::start(&server), Operator::start(&server));
        Self { server, stale, other }
    }

    fn pool_claim(&self) -> bool {
        self.server.get(POOL_CLAIMS, "c").is_some()
    }

    fn holder(&self) -> Option<SubnetRecord> {
        self.server.all::<SubnetRecord>().pop()
    }

    /// Both see everything, and nothing is left of the pool claim.
    fn ends_right(mut self) {
        for _ in 0..3 {
            work(&mut self.server, &mut self.stale, &[], &ALL, |_| false);
            work(&mut self.server, &mut self.other, &[], &ALL, |_| false);
        }
        assert!(!self.pool_claim());
        assert!(self.server.all::<ClaimRecord>().is_empty());
        assert_eq!(self.holder(), None);
        let calm = self.stale.news(&self.server).is_empty() && self.other.news(&self.server).is_empty();
        assert!(calm, "nobody asks for ever");
    }
}

const ALL: [&str; 4] = [POOL, CLAIM, SUBNET, POOL_CLAIM];

/// An operator that is blind to news of some types works on some kinds, until nothing is left to do or for so many rounds.
/// A pass is stopped before a call that is `held`; its flight is handed back.
fn work(
    server: &mut Server,
    operator: &mut Operator,
    blind: &[ApiType],
    kinds: &[&str],
    held: impl Fn(&Call) -> bool,
) -> Vec<Flight> {
    let mut stopped: Vec<Flight> = Vec::new();
    for _ in 0..ROUNDS {
        for kind in world::TYPES.into_iter().filter(|kind| !blind.contains(kind)) {
            while operator.deliver(server, kind) {}
        }
        let woken: BTreeSet<_> = operator.take_woken().into_iter().map(|w| (w.kind, w.key)).collect();
        for (kind, key) in woken.iter().filter(|(kind, _)| kinds.contains(kind)) {
            let busy = |flight: &Flight| flight.reader.kind == *kind && flight.reader.key == *key;
            if stopped.iter().any(busy) {
                continue;
            }
            let Some(mut flight) = operator.pass(kind, key, server.now()) else {
                continue;
            };
            while let Some(call) = flight.call().filter(|call| !held(call)) {
                drop(call);
                flight.effect(server, true);
            }
            if flight.call().is_some() {
                stopped.push(flight);
            }
        }
    }
    stopped
}

#[test]
fn i10_a_pool_claim_stays_while_a_subnet_of_it_may_still_be_committed() {
    let mut pair = Pair::new();
    // The Subnet is there, the pool claim was found standing; the commit is on its way.
    let commits = |call: &Call| matches!(call, Call::Status { kind: SUBNETS, .. });
    let mut commit = work(&mut pair.server, &mut pair.stale, &[], &ALL, commits);
    assert_eq!(commit.len(), 1);
    pair.server.delete(POOL_CLAIMS, "c", None).unwrap();
    // The other one has not heard of that Subnet, and takes everything down.
    let kinds = [CLAIM, POOL_CLAIM];
    work(&mut pair.server, &mut pair.other, &[SUBNETS], &kinds, |_| false);
    assert!(pair.server.all::<ClaimRecord>().is_empty());
    assert!(pair.pool_claim(), "a list shows what the view does not");
    commit.remove(0).finish(&mut pair.server);
    assert!(pair.holder().unwrap().settled());
    pair.ends_right();
}

#[test]
fn i10_a_subnet_is_not_committed_for_a_pool_claim_that_is_being_deleted() {
    let mut pair = Pair::new();
    let creates = |call: &Call| matches!(call, Call::Create { kind: SUBNETS, .. });
    let mut create = work(&mut pair.server, &mut pair.stale, &[], &ALL, creates);
    assert_eq!(create.len(), 1);
    pair.server.delete(POOL_CLAIMS, "c", None).unwrap();
    // The other one has listed everything, found nothing, and is about to let the pool claim go.
    let kinds = [CLAIM, POOL_CLAIM];
    let lets_go = |call: &Call| {
        let Call::Finalizers { kind, finalizers, .. } = call else {
            return false;
        };
        *kind == POOL_CLAIMS && finalizers.is_empty()
    };
    let mut letting_go = work(&mut pair.server, &mut pair.other, &[], &kinds, lets_go);
    assert_eq!(letting_go.len(), 1);
    // Only now the Subnet comes to be. Its maker still sees its claim, and no deletion.
    create.remove(0).finish(&mut pair.server);
    let blind = [CLAIMS, POOL_CLAIMS];
    work(&mut pair.server, &mut pair.stale, &blind, &ALL, |_| false);
    let holder = pair.holder().unwrap();
    assert!(
        !holder.settled() && holder.meta.deleting.is_none(),
        "it waits: {holder:?}"
    );
    letting_go.remove(0).finish(&mut pair.server);
    assert!(!pair.pool_claim());
    pair.ends_right();
}

/// A claim that is younger than the Subnet it shares: that a list from before the claim did not bring it proves nothing.
#[test]
fn i3_a_range_is_not_given_up_for_want_of_a_sharer_that_was_not_heard_of_yet() {
    let mut server = Server::default();
    server.pass_time(1_700_000_000);
    server.create_pool("p", json!({"cidr": "10.0.0.0/24"}));
    let claim = |name: &str| json!({"metadata": {"name": name}, "spec": {"poolRef": "p", "blockSize": 26, "clusterID": "both"}});
    server.create(CLAIMS, claim("a")).unwrap();
    let (mut stale, mut other) = (Operator::start(&server), Operator::start(&server));
    work(&mut server, &mut stale, &[], &ALL, |_| false);
    while other.deliver(&server, SUBNETS) {}
    // Its watch of claims broke, and it has listed them anew.
    stale.relist(&server, CLAIMS);
    server.delete(CLAIMS, "a", None).unwrap();
    while stale.deliver(&server, CLAIMS) {}
    // Before anybody has released the range, another claim of the clusterID comes, joins, and is bound by the other one.
    server.create(CLAIMS, claim("b")).unwrap();
    work(&mut server, &mut other, &[], &[CLAIM], |_| false);
    let bound = server.get(CLAIMS, "b").unwrap();
    assert_eq!(text(bound, "/status/allocatedCIDR"), "10.0.0.0/26");
    // It sees the Subnet with both owners; the first is gone, and of the second it has not heard.
    work(&mut server, &mut stale, &[CLAIMS], &ALL, |_| false);
    let subnet = server.get(SUBNETS, "p-10-0-0-0-26").expect("b is Bound to it");
    assert!(subnet.pointer("/metadata/deletionTimestamp").is_none(), "{subnet}");
    // And when everything was heard, all is as it should be.
    work(&mut server, &mut stale, &[], &ALL, |_| false);
    work(&mut server, &mut other, &[], &ALL, |_| false);
    assert!(server.get(SUBNETS, "p-10-0-0-0-26").is_some());
    server.delete(CLAIMS, "b", None).unwrap();
    work(&mut server, &mut stale, &[], &ALL, |_| false);
    work(&mut server, &mut other, &[], &ALL, |_| false);
    assert!(server.all::<SubnetRecord>().is_empty(), "nothing is left over");
}

#[test]
fn r44_a_subnet_made_by_hand_with_the_id_of_a_pool_claim_does_not_keep_it() {
    let mut lab = Lab::new();
    lab.pool("root", json!({"cidr": "10.0.0.0/16"}));
    let object = json!({"metadata": {"name": "c"}, "spec": {"parentPoolRef": "root", "desiredBlockSize": 20}});
    lab.server.create(POOL_CLAIMS, object).unwrap();
    let uid = text(lab.server.get(POOL_CLAIMS, "c").unwrap(), "/metadata/uid").to_owned();
    let spec = json!({"poolRef": "root", "clusterID": uid, "cidr": "10.0.64.0/20"});
    let object = json!({"metadata": {"name": "imported"}, "spec": spec});
    lab.server.create(SUBNETS, object).unwrap();
    lab.run();
    lab.server.delete(POOL_CLAIMS, "c", None).unwrap();
    lab.run();
    assert!(
        lab.server.get(POOL_CLAIMS, "c").is_none(),
        "nobody but its maker deletes that Subnet"
    );
    assert_eq!(names(&lab), ["imported"]);
}
