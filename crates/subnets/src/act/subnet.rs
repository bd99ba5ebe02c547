//! A Subnet's steps.

use kube::api::DynamicObject;
use usher_engine::Uid;
use usher_operator::error::Failure;
use usher_operator::hands::Hands;
use usher_operator::record;
use usher_operator::view::{View, Wake};

use super::{drop_finalizer, name_of, note, owners_but, wake};
use crate::answers::Answers;
use crate::kinds::SUBNET;
use crate::ledger::Ledger;
use crate::plan::footing::{self, Ground};
use crate::plan::holder;
use crate::plan::subnet::{SubnetStep, uses};
use crate::records::{CLAIMS, ClaimRecord, Owner, POOL_CLAIMS, POOLS, PoolRecord, SUBNETS, SubnetRecord};

/// Performs a Subnet's step.
pub async fn step(hands: &impl Hands, subnet: &SubnetRecord, step: &SubnetStep) -> Result<(), Failure> {
    let key = &subnet.meta.key;
    match step {
        SubnetStep::Delete { .. } => hands.delete(SUBNETS, &subnet.meta).await.map(drop),
        SubnetStep::DropFinalizer => {
            let_go(hands, subnet).await?;
            tracing::info!(subnet = %key, pool = &*subnet.pool, cidr = %subnet.cidr, "released");
            Ok(())
        }
        SubnetStep::GiveUp { .. } => {
            for owner in subnet.claim_owners() {
                if is_used(hands, subnet, owner).await? {
                    return Ok(());
                }
            }
            match subnet.meta.deleting {
                Some(_) => let_go(hands, subnet).await,
                None => hands.delete(SUBNETS, &subnet.meta).await.map(drop),
            }
        }
        SubnetStep::DropOwner { claim } => {
            if is_used(hands, subnet, claim).await? {
                return Ok(());
            }
            let others = owners_but(hands, subnet, &claim.uid).await?;
            hands.set_owners(SUBNETS, &subnet.meta, others).await.map(drop)
        }
        SubnetStep::ConfirmOwner { kind, owner, uid } => {
            let there = hands.get(*kind, owner).await?;
            if there.is_some_and(|object| object.metadata.uid.as_deref().is_some_and(|there| uid.is(there))) {
                // It lives: its watch event is on the way and wakes this Subnet.
                return Ok(());
            }
            note(hands, vec![wake(SUBNET, key, "confirmed")], |answers| {
                answers.note_gone(uid.clone());
            });
            Ok(())
        }
        SubnetStep::Confirm { ground } => confirm(hands, subnet, ground).await,
    }
}

/// Whether a claim that owns a Subnet has a use for it. The view of claims may be behind that of Subnets: one that was bound
/// meanwhile keeps its range.
async fn is_used(hands: &impl Hands, subnet: &SubnetRecord, owner: &Owner) -> Result<bool, Failure> {
    let Some(key) = subnet.meta.key.sibling(&owner.name) else {
        return Ok(false);
    };
    let Some(object) = hands.get(CLAIMS, &key).await? else {
        return Ok(false);
    };
    // One that cannot be read keeps it: better stuck than lost.
    let claim = record::read::<ClaimRecord>(&object);
    Ok(claim.map_or(true, |claim| {
        claim.meta.uid == owner.uid && !claim.leaving() && uses(subnet, &claim)
    }))
}

/// Takes the finalizer off. A Subnet that may hold a pool goes only if a list, asked for after its deletion mark was seen,
/// shows no pool that it could hold (R26).
async fn let_go(hands: &impl Hands, subnet: &SubnetRecord) -> Result<(), Failure> {
    if subnet.settled() && subnet.may_hold_a_pool() {
        let pools = hands.list(POOLS, subnet.meta.key.namespace()).await?;
        // One that cannot be read keeps it: better stuck than lost.
        let keeps = |pool: Result<PoolRecord, _>| pool.map_or(true, |pool| holder::keeps(&pool, &subnet.cluster_id));
        if let Some(pool) = pools.iter().find(|object| keeps(record::read::<PoolRecord>(object))) {
            return Err(Failure::Conflict {
                object: format!("SubnetPool {}", name_of(pool)),
            });
        }
    }
    drop_finalizer(hands, SUBNETS, &subnet.meta).await
}

/// R25, R44: one question serves every Subnet that was seen before it went out.
async fn confirm(hands: &impl Hands, subnet: &SubnetRecord, ground: &Ground) -> Result<(), Failure> {
    let now = hands.now();
    let sent = hands.change(|view| {
        let seen = view.seen();
        if let Some(answers) = view.derived_mut::<Answers>() {
            answers.ask(ground.clone(), seen, now);
        }
        (seen, Vec::new())
    });
    let asked = match ground {
        Ground::Pool(pool) => hands.get(POOLS, pool).await,
        Ground::PoolClaim(claim) => hands.get(POOL_CLAIMS, claim).await,
    };
    let answer = asked
        .as_ref()
        .ok()
        .map(|object| object.as_ref().and_then(|object| standing(ground, object)));
    let waiting = hands.view(|view| waiting(view, subnet, ground));
    let now = hands.now();
    note(hands, waiting, |answers| answers.answer(ground, sent, answer, now));
    asked.map(drop)
}

/// The uid of what was read, if a Subnet may stand on it.
fn standing(ground: &Ground, object: &DynamicObject) -> Option<Uid> {
    match ground {
        Ground::Pool(_) => {
            let pool = record::read::<PoolRecord>(object).ok();
            pool.filter(footing::confirms).map(|pool| pool.meta.uid)
        }
        Ground::PoolClaim(_) => {
            let meta = &object.metadata;
            let alive = meta.uid.as_deref().filter(|_| meta.deletion_timestamp.is_none());
            alive.map(Uid::from)
        }
    }
}

/// Whom an answer concerns: all candidates of a pool; of a pool claim, the one there is.
fn waiting(view: &View, subnet: &SubnetRecord, ground: &Ground) -> Vec<Wake> {
    let woken = |subnet: &SubnetRecord| wake(SUBNET, &subnet.meta.key, "confirmed");
    let Ground::Pool(pool) = ground else {
        return vec![woken(subnet)];
    };
    let account = view.derived::<Ledger>().and_then(|ledger| ledger.account(pool));
    account
        .into_iter()
        .flat_map(|a| a.candidates.iter().filter_map(|uid| a.subnets.get(uid)))
        .map(|subnet| woken(subnet))
        .collect()
}
