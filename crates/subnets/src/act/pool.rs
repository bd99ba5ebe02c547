//! A pool's steps.

use std::sync::Arc;

use ipnet::IpNet;
use kube::api::DynamicObject;
use usher_engine::{ObjectKey, Text, Uid};
use usher_operator::error::Failure;
use usher_operator::hands::Hands;
use usher_operator::record::{self, Record};

use super::{add_finalizer, change, drop_finalizer, name_of, note, owned_by, wake};
use crate::answers::Answers;
use crate::kinds::{CLAIM, POOL};
use crate::ledger::{Asked, Cursor, Done, Ledger};
use crate::plan::holder;
use crate::plan::pool::PoolStep;
use crate::records::{CLAIMS, ClaimRecord, POOLS, PoolRecord, SUBNETS, SubnetRecord};
use crate::wake::BY_POOL;
use crate::{metrics, objects};

/// Records compared in one slice of a drift check (R51).
const SLICE: usize = 10_000;
/// Differences that are logged one by one (R50).
const LOGGED: usize = 20;

/// Performs a pool's step.
pub async fn step(hands: &impl Hands, pool: &PoolRecord, step: &PoolStep) -> Result<(), Failure> {
    let key = &pool.meta.key;
    let again = |why| vec![wake(POOL, key, why)];
    match step {
        PoolStep::AddFinalizer => add_finalizer(hands, POOLS, &pool.meta).await,
        PoolStep::Grant { uid, grant } => {
            // The plan decided on a copy; here the range is taken, if it is still free. A grant that fails now is
            // decided again in the pass that the change itself has caused.
            let woken = vec![wake(CLAIM, &grant.claim, "grant")];
            change(hands, key, woken, |account| account.grant(uid, grant.clone()));
            Ok(())
        }
        PoolStep::RevokeGrant { uid, cidr, sent } => {
            if *sent && exists(hands, key, uid, *cidr).await? {
                // It took effect after all: its watch event is on the way, and the Subnet's own plan deals with it.
                return Ok(());
            }
            change(hands, key, again("revoke"), |account| account.revoke(uid));
            Ok(())
        }
        PoolStep::KeepTarget { claim, target } => {
            let woken = vec![wake(CLAIM, claim, "target")];
            change(hands, key, woken, |account| account.target = Some(target.clone()));
            tracing::info!(pool = %key, %claim, cidr = %target.cidr, "a block is kept for the claim that waits longest");
            Ok(())
        }
        PoolStep::ConfirmTaken { name } => {
            let Some(subnet) = key.sibling(name) else { return Ok(()) };
            if hands.get(SUBNETS, &subnet).await?.is_none() {
                change(hands, key, again("confirmed"), |account| account.clear_unseen(name));
            }
            Ok(())
        }
        PoolStep::CreateHolder { parent } => create_holder(hands, pool, parent).await,
        PoolStep::ReplaceHolder { holder } => hands.delete(SUBNETS, holder).await.map(drop),
        PoolStep::ConfirmHolder { holder } => confirm_holder(hands, pool, holder).await,
        PoolStep::Adopt { subnets } => adopt(hands, subnets).await,
        PoolStep::ListForRecount { trigger } => list_for_recount(hands, pool, trigger).await,
        PoolStep::Recalculate { trigger } => {
            recalculate(hands, pool, trigger);
            Ok(())
        }
        PoolStep::CheckSlice => {
            check_slice(hands, pool);
            Ok(())
        }
        PoolStep::DropFinalizer => {
            // R25: only a quorum list taken after the deletion mark was seen proves that nothing is left.
            let subnets = hands.list(SUBNETS, key.namespace()).await?;
            if let Some(left) = subnets.iter().find(|object| keeps(object, key.name())) {
                return Err(Failure::Conflict {
                    object: format!("Subnet {}", name_of(left)),
                });
            }
            drop_finalizer(hands, POOLS, &pool.meta).await?;
            tracing::info!(pool = %key, "pool released");
            Ok(())
        }
        PoolStep::DeleteOrphan => hands.delete(POOLS, &pool.meta).await.map(drop),
    }
}

/// Whether a listed Subnet keeps its pool from going. One that cannot be read does: better stuck than lost.
fn keeps(object: &DynamicObject, pool: &str) -> bool {
    let names_it = object.data.pointer("/spec/poolRef").and_then(|p| p.as_str()) == Some(pool);
    names_it && record::read::<SubnetRecord>(object).map_or(true, |subnet| !subnet.withdrawn())
}

/// Whether the Subnet of a grant exists, by a quorum read (R29).
async fn exists(hands: &impl Hands, pool: &ObjectKey, uid: &Uid, cidr: IpNet) -> Result<bool, Failure> {
    for name in objects::subnet_names(pool.name(), cidr, uid) {
        let Some(key) = pool.sibling(&name) else { continue };
        if hands
            .get(SUBNETS, &key)
            .await?
            .is_some_and(|object| owned_by(&object, uid))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// R45. The name is the same for every operator; one that is taken by somebody else's Subnet has another form.
async fn create_holder(hands: &impl Hands, pool: &PoolRecord, parent: &ObjectKey) -> Result<(), Failure> {
    let key = &pool.meta.key;
    for name in objects::subnet_names(parent.name(), pool.cidr, &pool.meta.uid) {
        let Some(subnet) = key.sibling(&name) else { continue };
        let object = objects::holder(&name, pool, parent.name());
        match hands.create(SUBNETS, &subnet, object).await {
            Err(Failure::Exists { .. }) => match hands.get(SUBNETS, &subnet).await? {
                Some(object) if owned_by(&object, &pool.meta.uid) => return Ok(()),
                _ => {}
            },
            other => return other.map(drop),
        }
    }
    // All are somebody else's: looked at again when one of them changes, and with back-off.
    Err(Failure::Conflict {
        object: format!("Subnet {}", objects::subnet_name(parent.name(), pool.cidr)),
    })
}

/// R26: a read that begins after the child was seen shows its holder Allocated and not on its way out.
async fn confirm_holder(hands: &impl Hands, pool: &PoolRecord, holder: &ObjectKey) -> Result<(), Failure> {
    let object = hands.get(SUBNETS, holder).await?;
    let subnet = object.and_then(|object| record::read::<SubnetRecord>(&object).ok());
    let Some(subnet) = subnet.filter(|subnet| holder::stands(subnet, &pool.meta, &pool.holder_id())) else {
        // The view is behind; its news wakes the pool.
        return Err(Failure::Conflict {
            object: format!("Subnet {holder}"),
        });
    };
    note(hands, vec![wake(POOL, &pool.meta.key, "confirmed")], |answers| {
        answers.note_held(pool.meta.uid.clone(), subnet.meta.uid);
    });
    Ok(())
}

/// R38: at most one batch per second over all pools; the others have their turn later.
async fn adopt(hands: &impl Hands, subnets: &[ObjectKey]) -> Result<(), Failure> {
    let now = hands.now();
    let may = hands.change(|view| {
        (
            view.derived_mut::<Answers>().is_some_and(|a| a.may_adopt(now)),
            Vec::new(),
        )
    });
    for key in subnets.iter().filter(|_| may) {
        let Some(subnet) = hands.view(|view| view.get::<SubnetRecord>(key).cloned()) else {
            continue;
        };
        match add_finalizer(hands, SUBNETS, &subnet.meta).await {
            // Somebody changed it meanwhile; it is looked at again.
            Ok(()) | Err(Failure::Conflict { .. } | Failure::Gone { .. }) => {}
            // A policy, say. It holds its range all the same; the others have their turn.
            Err(failure @ (Failure::Invalid { .. } | Failure::Forbidden { .. })) => {
                tracing::warn!(subnet = %key, "not adopted: {failure}");
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// R50, first half: what the API server has is what the view must have seen before the map is counted anew.
async fn list_for_recount(hands: &impl Hands, pool: &PoolRecord, trigger: &Text) -> Result<(), Failure> {
    let (key, at) = (&pool.meta.key, hands.now());
    let since = hands.view(|view| view.seen());
    let newest = |objects: Vec<DynamicObject>| {
        let versions = objects
            .iter()
            .filter_map(|o| o.metadata.resource_version.as_deref()?.parse::<u64>().ok());
        versions.max().unwrap_or(0)
    };
    let subnets = newest(hands.list(SUBNETS, key.namespace()).await?);
    let claims = newest(hands.list(CLAIMS, key.namespace()).await?);
    change(hands, key, vec![wake(POOL, key, "recount")], |account| {
        account.recalculation.asked = Some(Asked {
            trigger: trigger.clone(),
            at,
            listed: (subnets, claims),
            since,
        });
    });
    Ok(())
}

/// R50, second half: the map is counted anew from the records, compared, and put in the old one's place.
fn recalculate(hands: &impl Hands, pool: &PoolRecord, trigger: &Text) {
    let (key, at) = (&pool.meta.key, hands.now());
    let differences = hands.change(|view| {
        let fresh = view.derived::<Ledger>().and_then(|ledger| {
            let account = ledger.account(key)?;
            let pool = view.get::<PoolRecord>(key)?;
            let subnets = view.by::<SubnetRecord>(BY_POOL, key.namespace(), key.name().into());
            let claims = view.by::<ClaimRecord>(BY_POOL, key.namespace(), key.name().into());
            let fresh = account.rebuilt(pool, ledger.base(pool), subnets, claims);
            let differences = account.differences(&fresh);
            Some((fresh, differences))
        });
        let Some((mut fresh, differences)) = fresh else {
            return (Vec::new(), Vec::new());
        };
        fresh.recalculation.asked = None;
        fresh.recalculation.suspected = false;
        fresh.recalculation.done = Some(Done {
            trigger: trigger.clone(),
            at,
            drift: differences.len(),
        });
        if let Some(account) = super::account(view, key) {
            *account = fresh;
        }
        metrics::drifted(view, u64::try_from(differences.len()).unwrap_or(u64::MAX));
        (differences, vec![wake(POOL, key, "recalculated")])
    });
    for difference in differences.iter().take(LOGGED) {
        tracing::error!(pool = %key, "the map was wrong: {difference}; please report this as a bug");
    }
    tracing::info!(pool = %key, trigger = &**trigger, drift = differences.len(), "recalculated");
}

/// The next records of a pool after this key, and the last of them where there may be more.
fn slice_of<'v, R: Record>(
    of_pool: impl Iterator<Item = &'v Arc<R>>,
    after: Option<&ObjectKey>,
) -> (Vec<&'v Arc<R>>, Option<ObjectKey>) {
    let rest = of_pool.skip_while(|record| after.is_some_and(|after| record.meta().key <= *after));
    let slice: Vec<_> = rest.take(SLICE).collect();
    let last = slice.last().filter(|_| slice.len() == SLICE);
    let last = last.map(|record| record.meta().key.clone());
    (slice, last)
}

/// R51: the next slice of the map against the records; a difference asks for R50.
fn check_slice(hands: &impl Hands, pool: &PoolRecord) {
    let (key, now) = (&pool.meta.key, hands.now());
    let found = hands.change(|view| {
        let result = view.derived::<Ledger>().and_then(|ledger| {
            let account = ledger.account(key)?;
            let (namespace, name) = (key.namespace(), key.name());
            Some(match &account.recalculation.cursor {
                Some(Cursor::Claims(after)) => {
                    let (slice, last) =
                        slice_of(view.by::<ClaimRecord>(BY_POOL, namespace, name.into()), after.as_ref());
                    let found = account.check_claims(slice.into_iter());
                    let found = found.or_else(|| last.is_none().then(|| account.check_count()).flatten());
                    (found, last.map(|last| Cursor::Claims(Some(last))))
                }
                cursor => {
                    let after = match cursor {
                        Some(Cursor::Subnets(after)) => Some(after),
                        _ => None,
                    };
                    let (slice, last) = slice_of(view.by::<SubnetRecord>(BY_POOL, namespace, name.into()), after);
                    let found = account.check_slice(slice.into_iter());
                    (found, Some(last.map_or(Cursor::Claims(None), Cursor::Subnets)))
                }
            })
        });
        let (found, last) = result.unwrap_or_default();
        let more = last.is_some() || found.is_some();
        if let Some(account) = super::account(view, key) {
            let recalculation = &mut account.recalculation;
            recalculation.suspected |= found.is_some();
            recalculation.cursor = last.filter(|_| found.is_none());
            if recalculation.cursor.is_none() {
                recalculation.checked = Some(now);
            }
        }
        let wakes = more.then(|| wake(POOL, key, "check")).into_iter().collect();
        (found, wakes)
    });
    if let Some(difference) = found {
        tracing::error!(pool = %key, "the map differs from the records: {difference}; it is counted anew");
    }
}
