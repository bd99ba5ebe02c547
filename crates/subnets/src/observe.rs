//! What plans are made from: slices of the view, borrowed. The API is the whole world of subnets; nothing is asked here.

use jiff::SignedDuration;
use usher_engine::{ObjectKey, Uid};
use usher_operator::record::ApiType;
use usher_operator::view::View;

use crate::answers::Answers;
use crate::ledger::{Account, Ledger};
use crate::plan::claim::ClaimView;
use crate::plan::footing::{Footing, Ground, keeps_pool_claim};
use crate::plan::pool::{Limits, PoolView};
use crate::plan::pool_claim::PoolClaimView;
use crate::plan::subnet::{Owners, Rival, SubnetView, named_by_claim, uses};
use crate::plan::{Lineage, Standing};
use crate::records::{CLAIMS, ClaimRecord, Owner, POOLS, PoolClaimRecord, PoolRecord, SUBNETS, SubnetRecord};
use crate::wake::{BY_OWNER, BY_PARENT, BY_POOL};

/// Generations of pools that are looked at for a cycle; deeper trees are served, a longer cycle never gets its ranges.
const DEPTH: usize = 64;

fn ledger(view: &View) -> Option<&Ledger> {
    view.derived::<Ledger>()
}

/// A pool as it stands among others.
pub fn standing<'v>(view: &'v View, pool: &'v PoolRecord) -> Standing<'v> {
    let account = ledger(view).and_then(|ledger| ledger.account(&pool.meta.key));
    Standing {
        pool,
        lineage: lineage(view, pool),
        rebuilding: account.is_some_and(|account| account.recalculation.asked.is_some()),
    }
}

fn lineage<'v>(view: &'v View, pool: &'v PoolRecord) -> Lineage<'v> {
    if !pool.is_child() {
        return Lineage::Root;
    }
    if let Some(through) = cycle(view, pool) {
        return Lineage::Cycle { through };
    }
    if let Some(of) = chosen_before(view, pool) {
        return Lineage::Spare { of };
    }
    let holder = holders(view, pool).find(|holder| holder.settled() || holder.meta.deleting.is_none());
    let of_claim = || {
        let claim = view.get::<PoolClaimRecord>(&pool.meta.key.sibling(&pool.owner()?.name)?)?;
        Some(&*claim.parent)
    };
    // What it was taken from counts, once it was; before that, what it asks for.
    let taken_from = holder.filter(|holder| holder.settled()).map(|holder| &*holder.pool);
    let parent = taken_from.or(pool.parent.as_deref()).or_else(of_claim);
    let record = parent.and_then(|name| view.get::<PoolRecord>(&pool.meta.key.sibling(name)?));
    match (record, holder) {
        (Some(parent), holder) => Lineage::Child { parent, holder },
        (None, Some(holder)) if holder.settled() => Lineage::Left { holder },
        _ => Lineage::Orphan {
            parent: parent.unwrap_or("(unknown)"),
        },
    }
}

/// The pool that has the range of a pool claim, if it is another one than this: the one the claim is Bound to, else the
/// oldest, as [`PoolClaimView::child`] has it.
fn chosen_before<'v>(view: &'v View, pool: &'v PoolRecord) -> Option<&'v str> {
    let Owner { name, uid, .. } = pool.owner()?;
    let claim = view.get::<PoolClaimRecord>(&pool.meta.key.sibling(name)?);
    let bound = claim.and_then(|claim| claim.status.bound_pool_name.as_deref());
    let chosen = view
        .by::<PoolRecord>(BY_OWNER, pool.meta.key.namespace(), uid.into())
        .min_by_key(|pool| {
            let name = pool.meta.key.name();
            (Some(name) != bound, pool.meta.created, name)
        })?;
    (chosen.meta.uid != pool.meta.uid).then(|| chosen.meta.key.name())
}

/// Subnets of other pools that stand for this one, the one that counts first.
fn holders<'v>(view: &'v View, pool: &PoolRecord) -> impl Iterator<Item = &'v SubnetRecord> + use<'v> {
    let holders = ledger(view).map(|ledger| ledger.holders_of(pool));
    holders.into_iter().flatten().map(AsRef::as_ref)
}

/// The way from a pool to itself, by labels.
fn cycle<'v>(view: &'v View, pool: &'v PoolRecord) -> Option<Vec<&'v str>> {
    let mut through = vec![pool.meta.key.name()];
    let mut next = pool.parent.as_deref();
    while let Some(name) = next.filter(|_| through.len() < DEPTH) {
        through.push(name);
        if name == pool.meta.key.name() {
            return Some(through);
        }
        next = view.get::<PoolRecord>(&pool.meta.key.sibling(name)?)?.parent.as_deref();
    }
    None
}

/// The pool of that name, as it stands.
fn standing_of<'v>(view: &'v View, key: Option<&ObjectKey>) -> Option<Standing<'v>> {
    let pool = view.get::<PoolRecord>(key?)?;
    Some(standing(view, pool))
}

/// A pool's view; `None` only if the ledger has not heard of it, which its own watch event precludes.
pub fn pool<'v>(view: &'v View, pool: &'v PoolRecord, limits: Limits) -> Option<PoolView<'v>> {
    let key = &pool.meta.key;
    let account = ledger(view)?.account(key)?;
    let standing = standing(view, pool);
    let stale = |(uid, grant): &(&'v Uid, &'v crate::ledger::Grant)| {
        let claim = view.get::<ClaimRecord>(&grant.claim).map(AsRef::as_ref);
        !PoolView::wanted(grant, claim, uid, account, &standing)
    };
    let stale_grants = account.grants.iter().filter(stale).collect();
    // Only a pool that is being deleted asks what is left; the list is short for whoever deletes in order.
    let mut left = Vec::new();
    if pool.meta.deleting.is_some() {
        left = view
            .by::<SubnetRecord>(BY_POOL, key.namespace(), key.name().into())
            .filter(|s| !s.withdrawn())
            .collect();
    }
    let answers = view.derived::<Answers>();
    let confirmed = |holder: &SubnetRecord| answers.is_some_and(|a| a.is_held(&pool.meta.uid, &holder.meta.uid));
    let caught_up = account.recalculation.asked.as_ref().is_some_and(|asked| {
        let (subnets, claims) = asked.listed;
        view.has_seen(SUBNETS, subnets, asked.since) && view.has_seen(CLAIMS, claims, asked.since)
    });
    Some(PoolView {
        account,
        child_pools: view
            .by::<PoolRecord>(BY_PARENT, key.namespace(), key.name().into())
            .count(),
        holder_confirmed: standing.holder().is_some_and(confirmed),
        holder_leaving: holders(view, pool).any(|holder| holder.meta.deleting.is_some()),
        orphaned: orphaned(view, POOLS, key, pool.owner()),
        stale_grants,
        caught_up,
        interrupted: view.interrupted_since(),
        left: left.len(),
        example: left.first().map(|subnet| &subnet.meta.key),
        limits,
        standing,
    })
}

/// Whether the pool claim that something was made for is gone for good.
fn orphaned(view: &View, kind: ApiType, key: &ObjectKey, owner: Option<&Owner>) -> bool {
    let Some(Owner { name, uid, .. }) = owner else {
        return false;
    };
    let Some(owner) = key.sibling(name) else { return false };
    let since = match kind {
        POOLS => view.entry::<PoolRecord>(key).map(|entry| entry.first_seen),
        _ => view.entry::<ClaimRecord>(key).map(|entry| entry.first_seen),
    };
    view.absent_for_good::<PoolClaimRecord>(&owner, uid, since.unwrap_or(u64::MAX))
}

/// A claim's view.
pub fn claim<'v>(view: &'v View, claim: &'v ClaimRecord) -> ClaimView<'v> {
    let key = &claim.meta.key;
    let pool_key = key.sibling(&claim.pool);
    let account: Option<&Account> = pool_key.as_ref().and_then(|pool| ledger(view)?.account(pool));
    let bound = claim.bound();
    let owned = view
        .by::<SubnetRecord>(BY_OWNER, key.namespace(), (&claim.meta.uid).into())
        .map(AsRef::as_ref)
        // One that is Allocated and marked for deletion counts: it stays as long as its claim does (R37).
        .filter(|s: &&SubnetRecord| !s.withdrawn())
        // Before it is Bound, one that it shares is not its own yet: that is `namesake`'s part.
        .filter(|s| bound.is_some() || s.claim_uid() == Some(&claim.meta.uid));
    // Those of its clusterID: one made by hand may be what it is bound to.
    let of_cluster: Vec<&SubnetRecord> = account
        .into_iter()
        .flat_map(|account| account.of_cluster(key.namespace(), &claim.cluster_id))
        .map(AsRef::as_ref)
        .collect();
    let imported = of_cluster
        .iter()
        .copied()
        .filter(|s| s.by_hand() && s.settled() && Some(s.cidr) == bound);
    ClaimView {
        pool: standing_of(view, pool_key.as_ref()),
        account,
        subnet: owned
            .chain(imported)
            // The one it is Bound to, before any other.
            .min_by_key(|s| (Some(s.cidr) != bound, !s.settled(), s.meta.created, s.meta.key.name())),
        namesake: of_cluster
            .into_iter()
            .filter(|s| s.claim_uid() != Some(&claim.meta.uid))
            // The one it has joined already, before any other.
            .min_by_key(|s| {
                let joined = s.meta.owned_by(&claim.meta.uid);
                (
                    Some(s.cidr) != bound,
                    !joined,
                    !s.settled(),
                    s.meta.created,
                    s.meta.key.name(),
                )
            }),
        grant: account
            .and_then(|account| account.grants.get(&claim.meta.uid))
            .filter(|grant| grant.generation == claim.meta.generation),
        loss: view
            .derived::<Answers>()
            .and_then(|answers| answers.loss(&claim.meta.uid)),
        orphaned: orphaned(view, CLAIMS, key, claim.owner()),
        known_for: view
            .known_for::<ClaimRecord>(key)
            .try_into()
            .unwrap_or(SignedDuration::MAX),
    }
}

/// A Subnet's view.
pub fn subnet<'v>(view: &'v View, subnet: &'v SubnetRecord) -> SubnetView<'v> {
    let key = &subnet.meta.key;
    let pool_key = key.sibling(&subnet.pool);
    let account = pool_key.as_ref().and_then(|pool| ledger(view)?.account(pool));
    let pool = standing_of(view, pool_key.as_ref());
    let claim = claim_of(view, subnet);
    let rival = |other: &'v SubnetRecord| Rival {
        subnet: other,
        named: named_by_claim(other, claim_of(view, other)),
    };
    let rivals = account.map(|account| {
        account
            .overlapping(subnet.cidr, Some(&subnet.meta.uid))
            .map(|other| rival(other))
            .collect()
    });
    let twins = subnet.claim_uid().map(|uid| {
        view.by::<SubnetRecord>(BY_OWNER, key.namespace(), uid.into())
            .map(AsRef::as_ref)
            .filter(|other: &&SubnetRecord| {
                other.meta.uid != subnet.meta.uid && !other.withdrawn() && other.claim_uid() == Some(uid)
            })
            .map(rival)
            .collect()
    });
    SubnetView {
        grounds: grounds(view, subnet, pool.as_ref(), claim),
        pool,
        claim,
        shared: live_owners(view, subnet)
            .any(|(owner, claim)| Some(&owner.uid) != subnet.claim_uid() && uses(subnet, claim)),
        idle: live_owners(view, subnet)
            .filter(|(_, claim)| claim.bound().is_none() && !uses(subnet, claim))
            .map(|(owner, _)| owner)
            .collect(),
        owners: owners(view, subnet),
        children: match subnet.may_hold_a_pool() {
            true => ledger(view)
                .into_iter()
                .flat_map(|ledger| ledger.children(&subnet.cluster_id))
                .filter(|pool| pool.meta.key.namespace() == key.namespace())
                .map(AsRef::as_ref)
                .collect(),
            false => Vec::new(),
        },
        named: named_by_claim(subnet, claim),
        overlapping: rivals.unwrap_or_default(),
        twins: twins.unwrap_or_default(),
    }
}

/// The claim of that name and uid, unless it is gone or going.
fn live_claim<'v>(view: &'v View, key: &ObjectKey, uid: &Uid) -> Option<&'v ClaimRecord> {
    let claim = view.get::<ClaimRecord>(key)?;
    (claim.meta.uid == *uid && !claim.leaving()).then_some(claim.as_ref())
}

/// The claims that own a Subnet and live.
fn live_owners<'v>(view: &'v View, subnet: &'v SubnetRecord) -> impl Iterator<Item = (&'v Owner, &'v ClaimRecord)> {
    subnet.claim_owners().filter_map(|owner| {
        let key = subnet.meta.key.sibling(&owner.name)?;
        Some((owner, live_claim(view, &key, &owner.uid)?))
    })
}

/// Whether a claim that shares a Subnet (R11) is Bound to another range, and so has no use for this one, ever.
fn has_another(claim: &ClaimRecord, shared: &SubnetRecord) -> bool {
    shared.claim_uid() != Some(&claim.meta.uid) && claim.bound().is_some() && !uses(shared, claim)
}

/// The claim a Subnet was made for, while it lives.
fn claim_of<'v>(view: &'v View, subnet: &SubnetRecord) -> Option<&'v ClaimRecord> {
    let Owner { name, uid, .. } = subnet.claim()?;
    live_claim(view, &subnet.meta.key.sibling(name)?, uid)
}

/// What a Subnet stands on, and what was asked about that since this version of it was seen (R25, R44).
fn grounds(
    view: &View,
    subnet: &SubnetRecord,
    pool: Option<&Standing<'_>>,
    claim: Option<&ClaimRecord>,
) -> Vec<(Ground, Footing)> {
    let child = pool.map(|standing| standing.pool).filter(|pool| pool.is_child());
    let child = child.map(|pool| (Ground::Pool(pool.meta.key.clone()), &pool.meta.uid));
    let pool_claim = claim.and_then(|claim| {
        let Owner { name, uid, .. } = claim.owner()?;
        Some((Ground::PoolClaim(claim.meta.key.sibling(name)?), uid))
    });
    let entry = view.entry::<SubnetRecord>(&subnet.meta.key);
    let changed = entry.map_or(u64::MAX, |entry| entry.changed);
    let known = |ground: &Ground, uid: &Uid| match view.derived::<Answers>() {
        Some(answers) => answers.footing(ground, uid, changed),
        None => Footing::Unconfirmed,
    };
    let grounds = child.into_iter().chain(pool_claim);
    grounds
        .map(|(ground, uid)| {
            let footing = known(&ground, uid);
            (ground, footing)
        })
        .collect()
}

/// Whether those a Subnet belongs to are gone: claims, and the child pool of a holder. Absence from the view is proof only
/// as `View::absent_for_good` says.
fn owners(view: &View, subnet: &SubnetRecord) -> Owners {
    let key = &subnet.meta.key;
    // Since this version of it: a claim that shares it may be younger than the Subnet (R11).
    let since = view.entry::<SubnetRecord>(key).map_or(u64::MAX, |entry| entry.changed);
    let asked = view.derived::<Answers>();
    let (mut any, mut unknown) = (false, None);
    let child = subnet.child().map(|pool| &pool.uid);
    for owner in &subnet.meta.owners {
        let kind = match &*owner.kind {
            "SubnetClaim" => CLAIMS,
            "SubnetPool" if child == Some(&owner.uid) => POOLS,
            _ => continue,
        };
        let Some(at) = key.sibling(&owner.name) else { continue };
        any = true;
        let (there, leaving, absent) = if kind == CLAIMS {
            let claim = view.get::<ClaimRecord>(&at).filter(|claim| claim.meta.uid == owner.uid);
            (
                claim.is_some(),
                claim.is_some_and(|claim| claim.leaving() || has_another(claim, subnet)),
                view.absent_for_good::<ClaimRecord>(&at, &owner.uid, since),
            )
        } else {
            let pool = view.get::<PoolRecord>(&at).filter(|pool| pool.meta.uid == owner.uid);
            (
                pool.is_some(),
                pool.is_some_and(|pool| pool.leaving()),
                view.absent_for_good::<PoolRecord>(&at, &owner.uid, since),
            )
        };
        if there && !leaving {
            return Owners::Alive;
        }
        if !there && !absent && !asked.is_some_and(|asked| asked.is_gone(&owner.uid)) {
            unknown = Some(Owners::Unknown {
                kind,
                owner: at,
                uid: owner.uid.clone(),
            });
        }
    }
    match (unknown, any) {
        (Some(unknown), _) => unknown,
        (None, true) => Owners::Gone,
        (None, false) => Owners::None,
    }
}

/// A pool claim's view.
pub fn pool_claim<'v>(view: &'v View, claim: &'v PoolClaimRecord) -> PoolClaimView<'v> {
    let (namespace, uid) = (claim.meta.key.namespace(), &claim.meta.uid);
    let mut claims: Vec<&ClaimRecord> = view
        .by::<ClaimRecord>(BY_OWNER, namespace, uid.into())
        .map(AsRef::as_ref)
        .collect();
    claims.sort_by_key(|c| (c.meta.created, c.meta.key.name()));
    let mut pools: Vec<&PoolRecord> = view
        .by::<PoolRecord>(BY_OWNER, namespace, uid.into())
        .map(AsRef::as_ref)
        .collect();
    pools.sort_by_key(|p| (p.meta.created, p.meta.key.name()));
    let in_pool = |pool: &&PoolRecord| {
        let subnets = view.by::<SubnetRecord>(BY_POOL, namespace, pool.meta.key.name().into());
        subnets.filter(|subnet| !subnet.withdrawn()).count()
    };
    let holders = || {
        let holders = ledger(view).map(|ledger| ledger.holders(&uid.to_string()));
        let holders = holders.into_iter().flatten().map(AsRef::as_ref);
        holders.filter(|holder: &&SubnetRecord| holder.meta.key.namespace() == namespace)
    };
    PoolClaimView {
        subnets_in_pools: match claim.meta.deleting {
            Some(_) => pools.iter().map(in_pool).sum(),
            None => 0,
        },
        holder: holders()
            // What an earlier wish left in another parent goes by itself.
            .min_by_key(|s| (s.pool != claim.parent, !s.settled(), s.meta.created, s.meta.key.name())),
        kept_by: holders()
            .filter(|holder| keeps_pool_claim(holder, uid))
            .min_by_key(|s| (!s.settled(), s.meta.created, s.meta.key.name())),
        claims,
        pools,
    }
}
