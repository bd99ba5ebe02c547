//! An account held against the records it comes from (R50, R51).
//!
//! Every event changes the map by a little; this is the other way to the same map, from nothing. The two are compared
//! whole when somebody asks, and in slices every ten minutes; a difference is a bug of ours, repaired and reported.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;
use usher_engine::{ObjectKey, Text, Uid};

use super::Ledger;
use super::account::{Account, Holder};
use crate::records::{ClaimRecord, PoolRecord, SubnetRecord};

/// A pool's recalculations: the one under way, and the last.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recalculation {
    /// Under way: nothing is granted meanwhile.
    pub asked: Option<Asked>,
    /// Found different by a slice check: a whole recalculation is due.
    pub suspected: bool,
    /// What came of the last one, until the status says it.
    pub done: Option<Done>,
    /// Slice checks: when the last round ended, and where the present one stands.
    pub checked: Option<Timestamp>,
    /// Where the present round goes on; `None` between rounds.
    pub cursor: Option<Cursor>,
}

/// How far a round of slice checks is: first the Subnets, then the claims, each by key.
#[derive(Debug, Clone, PartialEq)]
pub enum Cursor {
    /// After this Subnet.
    Subnets(ObjectKey),
    /// After this claim; from the first one.
    Claims(Option<ObjectKey>),
}

/// A recalculation that waits for the view to have seen what the API server listed.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The request's value.
    pub trigger: Text,
    /// When it began.
    pub at: Timestamp,
    /// The newest listed version of a Subnet and of a claim.
    pub listed: (u64, u64),
    /// The view's event count when the lists were asked for: a whole list taken since then counts as well.
    pub since: u64,
}

/// What came of a recalculation.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// The request's value.
    pub trigger: Text,
    /// When.
    pub at: Timestamp,
    /// How many holdings differed.
    pub drift: usize,
}

/// One thing in which map and records differed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// The records say that it is held, the map did not.
    Missing {
        /// The range.
        cidr: IpNet,
        /// By whom.
        who: Holder,
    },
    /// The map held it, the records do not.
    Stray {
        /// The range.
        cidr: IpNet,
        /// By whom.
        who: Holder,
    },
    /// The free space was not what the holdings leave.
    Free(String),
    /// A counter was wrong.
    Count {
        /// Which.
        what: &'static str,
        /// As it was.
        was: usize,
        /// As it is.
        is: usize,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Missing { cidr, who } => write!(f, "{cidr} was not held by {who:?}"),
            Difference::Stray { cidr, who } => write!(f, "{cidr} was held by {who:?}, which is gone"),
            Difference::Free(damage) => write!(f, "free space: {damage}"),
            Difference::Count { what, was, is } => write!(f, "{what}: {was} instead of {is}"),
        }
    }
}

impl Account {
    /// The account as the records have it; what is only in memory is carried over.
    pub fn rebuilt<'r>(
        &self,
        pool: &PoolRecord,
        base: IpNet,
        subnets: impl Iterator<Item = &'r Arc<SubnetRecord>>,
        claims: impl Iterator<Item = &'r Arc<ClaimRecord>>,
    ) -> Account {
        let mut fresh = Account {
            grants: self.grants.clone(),
            last_grant: self.last_grant,
            target: self.target.clone(),
            committed: self.committed.clone(),
            refused: self.refused.clone(),
            unseen: self.unseen.clone(),
            recalculation: self.recalculation.clone(),
            ..Account::default()
        };
        for (uid, grant) in &self.grants {
            fresh.take(&grant.cluster_id, uid);
        }
        for subnet in subnets {
            fresh.enter(subnet);
        }
        for claim in claims {
            fresh.remember_claim(claim);
        }
        fresh.open(pool, base);
        fresh
    }

    /// In what this account differs from the one made anew.
    pub fn differences(&self, fresh: &Account) -> Vec<Difference> {
        let holdings = |account: &Account| -> BTreeSet<(IpNet, Holder)> {
            let map = account.map.iter();
            map.flat_map(|map| {
                map.holdings()
                    .map(|(cidr, who)| (cidr, who.clone()))
                    .collect::<Vec<_>>()
            })
            .collect()
        };
        let (was, is) = (holdings(self), holdings(fresh));
        let mut found = Vec::new();
        for (cidr, who) in is.difference(&was).cloned() {
            found.push(Difference::Missing { cidr, who });
        }
        for (cidr, who) in was.difference(&is).cloned() {
            found.push(Difference::Stray { cidr, who });
        }
        if found.is_empty()
            && let Some(Err(damage)) = self.map.as_ref().map(|map| map.check())
        {
            found.push(Difference::Free(format!("{damage:?}")));
        }
        let counts = |account: &Account| {
            [
                ("allocated", account.settled),
                ("overlaps", account.overlaps),
                ("out of range", account.out_of_range),
                ("waiting", account.line.count()),
                ("withdrawn", account.withdrawn.len()),
            ]
        };
        for ((what, was), (_, is)) in counts(self).into_iter().zip(counts(fresh)) {
            if was != is {
                found.push(Difference::Count { what, was, is });
            }
        }
        found
    }

    /// R51, one slice: the first of these records that the map does not have as it should.
    pub fn check_slice<'r>(&self, mut subnets: impl Iterator<Item = &'r Arc<SubnetRecord>>) -> Option<Difference> {
        let map = self.map.as_ref()?;
        subnets.find_map(|subnet| {
            let (cidr, who) = (subnet.cidr, Holder::Subnet(subnet.meta.uid.clone()));
            match (map.holds(cidr, &who), !subnet.withdrawn()) {
                (false, true) => Some(Difference::Missing { cidr, who }),
                (true, false) => Some(Difference::Stray { cidr, who }),
                _ => None,
            }
        })
    }

    /// The same, of claims.
    pub fn check_claims<'r>(&self, mut claims: impl Iterator<Item = &'r Arc<ClaimRecord>>) -> Option<Difference> {
        let map = self.map.as_ref()?;
        claims.find_map(|claim| {
            let (cidr, who) = (claim.bound()?, Holder::Claim(claim.meta.uid.clone()));
            (!map.holds(cidr, &who)).then_some(Difference::Missing { cidr, who })
        })
    }

    /// R51, at the end of a round: nothing is held but what the account knows of.
    pub fn check_count(&self) -> Option<Difference> {
        let map = self.map.as_ref()?;
        let excluded: BTreeSet<_> = self.excluded.iter().collect();
        let is = self.subnets.len() + self.claims.len() + self.grants.len() + self.unseen.len() + excluded.len();
        let was = map.holding_count();
        (was != is).then_some(Difference::Count {
            what: "holdings",
            was,
            is,
        })
    }

    /// For tests of the above: the map forgets what a Bound claim holds, and takes somebody who is gone for a holder: as many
    /// as before.
    #[doc(hidden)]
    pub fn damage_promise(&mut self) -> Option<IpNet> {
        let (uid, cidr) = self
            .claims
            .iter()
            .find_map(|claim| Some((claim.meta.uid.clone(), claim.bound()?)))?;
        let map = self.map.as_mut()?;
        map.hold(cidr, Holder::Claim(Uid::NIL));
        map.release(cidr, &Holder::Claim(uid)).then_some(cidr)
    }

    /// For tests of the above: the map forgets one Subnet's holding. Says which range. One whose claim holds the range too
    /// comes first: of what is promised, the loss of one record alone gives nothing away.
    #[doc(hidden)]
    pub fn damage(&mut self) -> Option<IpNet> {
        let promised: BTreeSet<IpNet> = self.claims.iter().filter_map(|claim| claim.bound()).collect();
        let seats = self.subnets.iter().map(|subnet| (subnet.meta.uid.clone(), subnet.cidr));
        let (uid, cidr) = seats.min_by_key(|(_, cidr)| !promised.contains(cidr))?;
        let forgotten = self.map.as_mut()?.release(cidr, &Holder::Subnet(uid));
        forgotten.then_some(cidr)
    }
}

impl Ledger {
    /// For tests: every map forgets one holding. Says which ranges.
    #[doc(hidden)]
    pub fn damage(&mut self) -> Vec<IpNet> {
        self.accounts.values_mut().filter_map(Account::damage).collect()
    }
}
