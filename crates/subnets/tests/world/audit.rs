//! The ledger, held against the records it comes from: by the shipped recount, and by hand.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipnet::IpNet;
use usher_operator::record::Meta;
use usher_operator::view::View;
use usher_subnets::ledger::{Holder, Ledger};
use usher_subnets::records::{ClaimRecord, PoolRecord, SubnetRecord};

/// Whether an object names this pool.
fn is(pool: &PoolRecord, of: &Meta, name: &str) -> bool {
    of.key.sibling(name).as_ref() == Some(&pool.meta.key)
}

/// The ledger equals a recount of the view: same holdings, same counters (I7).
pub fn audit(view: &View) {
    let ledger = view.derived::<Ledger>().unwrap();
    for pool in view.all::<PoolRecord>() {
        let account = ledger.account(&pool.meta.key).expect("a pool in view has an account");
        let map = account.map.as_ref().expect("a pool in view has a map");
        map.check()
            .unwrap_or_else(|damage| panic!("{}: {damage:?}", pool.meta.key));
        let base = map.base();
        assert_eq!(base, ledger.base(pool));
        let of_pool: Vec<_> = view
            .all::<SubnetRecord>()
            .filter(|s| is(pool, &s.meta, &s.pool))
            .collect();
        let claims: Vec<_> = view
            .all::<ClaimRecord>()
            .filter(|c| is(pool, &c.meta, &c.pool))
            .collect();
        // The other way to the same account.
        let fresh = account.rebuilt(pool, base, of_pool.iter().copied(), claims.iter().copied());
        let differences = account.differences(&fresh);
        assert!(differences.is_empty(), "I7: {}: {differences:?}", pool.meta.key);
        assert_eq!(account.check_count(), None, "R51");
        assert_eq!(account.check_slice(of_pool.iter().copied()), None, "R51");
        assert_eq!(account.check_claims(claims.iter().copied()), None, "R51");
        // And by hand, for what both could get wrong alike.
        let settled: Vec<_> = of_pool.iter().filter(|s| s.settled()).collect();
        assert_eq!(account.settled, settled.len(), "settled");
        let seats = of_pool.iter().filter(|s| !s.withdrawn()).count();
        assert_eq!(account.subnets.len(), seats, "seats");
        assert_eq!(account.withdrawn.len(), of_pool.len() - seats, "withdrawn");
        for subnet in &of_pool {
            let over = of_pool.iter().filter(|other| other.withdrawn());
            let over = over.filter(|other| usher_subnets::ledger::overlap(other.cidr, subnet.cidr));
            assert_eq!(
                account.withdrawn_over(subnet.cidr).count(),
                over.count(),
                "withdrawn over"
            );
        }
        assert_eq!(account.candidates.len(), seats - settled.len(), "candidates");
        let outside = settled.iter().filter(|s| !base.contains(&s.cidr)).count();
        assert_eq!(account.out_of_range, outside, "out of range");
        let overlap = usher_subnets::ledger::overlap;
        let excluded = |s: &&&&Arc<SubnetRecord>| pool.exclude.iter().any(|e| overlap(*e, s.cidr));
        assert_eq!(
            account.excluded_in_use,
            settled.iter().filter(excluded).count(),
            "excluded"
        );
        let pairs = settled
            .iter()
            .enumerate()
            .flat_map(|(i, a)| settled[i + 1..].iter().map(move |b| (a, b)));
        let overlaps = pairs.filter(|(a, b)| overlap(a.cidr, b.cidr)).count();
        assert_eq!(account.overlaps, overlaps, "overlaps");
        assert_eq!(account.a_double().is_some(), overlaps > 0, "an example");
        let mut holdings: BTreeSet<(IpNet, Holder)> = BTreeSet::new();
        let live = of_pool.iter().filter(|s| !s.withdrawn());
        holdings.extend(live.map(|s| (s.cidr, Holder::Subnet(s.meta.uid.clone()))));
        let bound = claims
            .iter()
            .filter_map(|c| Some((c.bound()?, Holder::Claim(c.meta.uid.clone()))));
        holdings.extend(bound);
        let granted = account.grants.iter();
        holdings.extend(granted.map(|(uid, grant)| (grant.cidr, Holder::Grant(uid.clone()))));
        let unseen = account.unseen.iter();
        holdings.extend(unseen.map(|(name, cidr)| (*cidr, Holder::Unseen(name.clone()))));
        holdings.extend(pool.exclude.iter().map(|cidr| (*cidr, Holder::Excluded)));
        let held: BTreeSet<_> = map.holdings().map(|(cidr, who)| (cidr, who.clone())).collect();
        assert_eq!(held, holdings, "{}", pool.meta.key);
        let waiting = claims.iter().filter(|claim| {
            let uid = &claim.meta.uid;
            let taken = of_pool
                .iter()
                .any(|s| s.cluster_id == claim.cluster_id && !s.withdrawn())
                || account.grants.values().any(|g| g.cluster_id == claim.cluster_id);
            claim.bound().is_none()
                && claim.meta.deleting.is_none()
                && !taken
                // Also where it asks for another clusterID by now: then its grant is about to be taken back.
                && !account.grants.contains_key(uid)
                && !account.refused.contains_key(uid)
                && !of_pool.iter().any(|s| s.claim_uid() == Some(uid))
        });
        assert_eq!(account.line.count(), waiting.count(), "waiting");
        let lines: usize = account.line.lines().map(|(_, length, _)| length).sum();
        assert_eq!(lines, account.line.count());
    }
}
