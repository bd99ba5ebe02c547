//! I/O out: performs one step, guarded by what it expects to find.

use std::sync::Arc;

use ipnet::IpNet;
use kube::api::DynamicObject;
use usher_engine::ObjectKey;
use usher_operator::error::Failure;
use usher_operator::pass::Pass;
use usher_operator::queue::Why;
use usher_operator::record;
use usher_operator::view::{View, Wake};

use crate::api::FINALIZER;
use crate::kinds::{CLAIM, POOL, SUBNET};
use crate::ledger::{Account, Ledger, Refusal};
use crate::objects;
use crate::observe::Confirmed;
use crate::plan::claim::ClaimStep;
use crate::plan::pool::PoolStep;
use crate::plan::subnet::{SubnetStep, abandoned};
use crate::records::{CLAIMS, ClaimRecord, POOLS, PoolRecord, SUBNETS, SubnetRecord};

/// Performs a pool's step.
pub async fn pool(pass: &Pass, pool: &PoolRecord, step: &PoolStep) -> Result<(), Failure> {
    let key = &pool.meta.key;
    match step {
        PoolStep::AddFinalizer => {
            let mut finalizers: Vec<&str> = pool.meta.finalizers.iter().map(AsRef::as_ref).collect();
            finalizers.push(FINALIZER);
            pass.set_finalizers(POOLS, &pool.meta, &finalizers).await?;
        }
        PoolStep::Grant { uid, grant } => {
            // The plan decided on a copy; here the range is taken, if it is still free. A grant that fails now is
            // decided again in the pass that the change itself has caused.
            change(pass, key, |account| account.grant(uid, grant.clone()));
            pass.change(|_| ((), vec![Wake::now(CLAIM, grant.claim.clone(), Why("grant"))]));
        }
        PoolStep::RevokeGrant { uid, cidr, sent } => {
            if *sent && exists(pass, key, uid, *cidr).await? {
                // It took effect after all: its watch event is on the way, and the Subnet's own plan deals with it.
                return Ok(());
            }
            change(pass, key, |account| account.revoke(uid));
            pass.change(|_| ((), vec![Wake::now(POOL, key.clone(), Why("revoke"))]));
        }
        PoolStep::ConfirmTaken { name } => {
            let Some(subnet) = key.sibling(name) else { return Ok(()) };
            if pass.get(SUBNETS, &subnet).await?.is_none() {
                change(pass, key, |account| account.clear_unseen(name));
                pass.change(|_| ((), vec![Wake::now(POOL, key.clone(), Why("confirmed"))]));
            }
        }
        PoolStep::DropFinalizer => {
            // R25: only a quorum list taken after the deletion mark was seen proves that nothing is left.
            let subnets = pass.list(SUBNETS, key.namespace()).await?;
            if let Some(left) = subnets.iter().find(|object| keeps(object, key.name())) {
                return Err(Failure::Conflict {
                    object: format!("Subnet {}", left.metadata.name.as_deref().unwrap_or("?")),
                });
            }
            drop_finalizer(pass, &pool.meta, POOLS).await?;
            tracing::info!(pool = %key, "pool released");
        }
    }
    Ok(())
}

/// Whether a listed Subnet keeps its pool from going. One that cannot be read does: better stuck than lost.
fn keeps(object: &DynamicObject, pool: &str) -> bool {
    let names_it = object.data.pointer("/spec/poolRef").and_then(|p| p.as_str()) == Some(pool);
    names_it && record::read::<SubnetRecord>(object).map_or(true, |subnet| !subnet.withdrawn())
}

/// Performs a claim's step.
pub async fn claim(pass: &Pass, claim: &ClaimRecord, step: &ClaimStep) -> Result<(), Failure> {
    let (pool, cidr) = match step {
        ClaimStep::CreateSubnet { pool, cidr } => (pool, cidr),
        ClaimStep::QueueAgain { pool } => {
            change(pass, pool, |account| account.queue_again(&claim.meta.uid));
            pass.change(|_| ((), vec![Wake::now(POOL, pool.clone(), Why("retry"))]));
            return Ok(());
        }
    };
    let uid = &claim.meta.uid;
    let granted = change(pass, pool, |account| match account.grants.get_mut(uid) {
        Some(grant) if grant.cidr == *cidr && grant.generation == claim.meta.generation => {
            grant.sent = true;
            true
        }
        _ => false,
    });
    if granted != Some(true) {
        return Ok(());
    }
    let name = objects::subnet_name(pool.name(), *cidr);
    match create(pass, claim, &name, *cidr).await {
        // R28: the name is taken. By us, in a pass that did not hear the answer: go on. By a stranger of another range
        // or pool: use the other name. By somebody else for this range: it is theirs, the claim queues again.
        Err(Failure::Exists { .. }) => match taken(pass, claim, &name, *cidr).await? {
            Taken::ByUs => Ok(()),
            Taken::Nobody => Err(Failure::Conflict {
                object: format!("Subnet {name}"),
            }),
            Taken::Unrelated => create(pass, claim, &objects::other_subnet_name(pool.name(), *cidr), *cidr).await,
            Taken::ByOther => {
                let subnet = claim.meta.key.sibling(&name);
                pass.change(|view| {
                    // Where the view shows it by now, it holds its range itself.
                    let unseen = subnet.is_some_and(|key| view.get::<SubnetRecord>(&key).is_none());
                    if let Some(account) = account(view, pool) {
                        if unseen {
                            account.hold_unseen(&name, *cidr);
                        }
                        account.revoke(uid);
                    }
                    ((), Vec::new())
                });
                pass.change(|_| ((), vec![Wake::now(POOL, pool.clone(), Why("retry"))]));
                Ok(())
            }
        },
        // Nothing was sent, or the answer is a plain no: the range is nobody's.
        Err(Failure::NotLeader { object }) => {
            change(pass, pool, |account| {
                if let Some(grant) = account.grants.get_mut(uid) {
                    grant.sent = false;
                }
            });
            Err(Failure::NotLeader { object })
        }
        Err(no @ (Failure::Invalid { .. } | Failure::Forbidden { .. } | Failure::NamespaceEnding { .. })) => {
            let refusal = Refusal {
                at: pass.now(),
                message: no.to_string(),
            };
            change(pass, pool, |account| account.refuse(uid, refusal));
            let wakes = [(CLAIM, &claim.meta.key), (POOL, pool)];
            let wakes = wakes.map(|(kind, key)| Wake::now(kind, key.clone(), Why("refused")));
            pass.change(|_| ((), wakes.to_vec()));
            Err(no)
        }
        other => other,
    }
}

async fn create(pass: &Pass, claim: &ClaimRecord, name: &str, cidr: IpNet) -> Result<(), Failure> {
    let Some(key) = claim.meta.key.sibling(name) else {
        return Ok(());
    };
    pass.create(SUBNETS, &key, objects::subnet(name, claim, cidr))
        .await
        .map(drop)
}

enum Taken {
    ByUs,
    ByOther,
    Unrelated,
    Nobody,
}

/// Who has the name of the Subnet we wanted.
async fn taken(pass: &Pass, claim: &ClaimRecord, name: &str, cidr: IpNet) -> Result<Taken, Failure> {
    let Some(key) = claim.meta.key.sibling(name) else {
        return Ok(Taken::Nobody);
    };
    let Some(object) = pass.get(SUBNETS, &key).await? else {
        return Ok(Taken::Nobody);
    };
    Ok(match record::read::<SubnetRecord>(&object) {
        Ok(subnet) if subnet.claim_uid() == Some(&claim.meta.uid) => Taken::ByUs,
        Ok(subnet) if subnet.cidr == cidr && subnet.pool == claim.pool && !subnet.withdrawn() => Taken::ByOther,
        _ => Taken::Unrelated,
    })
}

/// Whether the Subnet of a grant exists, by a quorum read (R29).
async fn exists(pass: &Pass, pool: &ObjectKey, uid: &str, cidr: IpNet) -> Result<bool, Failure> {
    for name in [
        objects::subnet_name(pool.name(), cidr),
        objects::other_subnet_name(pool.name(), cidr),
    ] {
        let Some(key) = pool.sibling(&name) else { continue };
        if let Some(object) = pass.get(SUBNETS, &key).await?
            && object
                .metadata
                .owner_references
                .iter()
                .flatten()
                .any(|owner| owner.uid == uid)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Performs a Subnet's step.
pub async fn subnet(pass: &Pass, subnet: &SubnetRecord, step: &SubnetStep) -> Result<(), Failure> {
    let key = &subnet.meta.key;
    match step {
        SubnetStep::Delete { .. } => pass.delete(SUBNETS, &subnet.meta).await.map(drop),
        SubnetStep::DropFinalizer => {
            drop_finalizer(pass, &subnet.meta, SUBNETS).await?;
            tracing::info!(subnet = %key, pool = &*subnet.pool, cidr = %subnet.cidr, "released");
            Ok(())
        }
        SubnetStep::GiveUp { claim } => {
            // The view of claims may be behind that of Subnets: a claim that was bound meanwhile keeps its range.
            let object = pass.get(CLAIMS, claim).await?;
            let present = object.and_then(|object| record::read::<ClaimRecord>(&object).ok());
            match present {
                Some(claim) if Some(&claim.meta.uid) == subnet.claim_uid() && !abandoned(subnet, &claim) => Ok(()),
                _ if subnet.meta.deleting.is_some() => drop_finalizer(pass, &subnet.meta, SUBNETS).await,
                _ => pass.delete(SUBNETS, &subnet.meta).await.map(drop),
            }
        }
        SubnetStep::ConfirmOwner { claim, uid } => {
            let there = pass.get(CLAIMS, claim).await?;
            if there.is_some_and(|object| object.metadata.uid.as_deref() == Some(uid)) {
                // It lives: its watch event is on the way and wakes this Subnet.
                return Ok(());
            }
            let uid: Arc<str> = uid.clone();
            pass.change(move |view| {
                if let Some(confirmed) = view.derived_mut::<Confirmed>() {
                    confirmed.insert(uid);
                }
                ((), vec![Wake::now(SUBNET, key.clone(), Why("confirmed"))])
            });
            Ok(())
        }
    }
}

async fn drop_finalizer(
    pass: &Pass,
    meta: &usher_operator::record::Meta,
    kind: usher_operator::record::ApiType,
) -> Result<(), Failure> {
    let left: Vec<&str> = meta
        .finalizers
        .iter()
        .map(AsRef::as_ref)
        .filter(|f| *f != FINALIZER)
        .collect();
    pass.set_finalizers(kind, meta, &left).await.map(drop)
}

fn account<'v>(view: &'v mut View, pool: &ObjectKey) -> Option<&'v mut Account> {
    view.derived_mut::<Ledger>().and_then(|ledger| ledger.account_mut(pool))
}

fn change<T>(pass: &Pass, pool: &ObjectKey, act: impl FnOnce(&mut Account) -> T) -> Option<T> {
    pass.change(|view| (account(view, pool).map(act), Vec::new()))
}
