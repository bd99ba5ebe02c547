//! A pool claim's steps.

use kube::api::DynamicObject;
use serde_json::Value;
use usher_engine::{ErrorClass, Uid};
use usher_operator::error::Failure;
use usher_operator::hands::Hands;
use usher_operator::record::{self, ApiType};

use super::{add_finalizer, drop_finalizer, name_of, owned_by};
use crate::ledger::Ledger;
use crate::objects;
use crate::plan::footing::keeps_pool_claim;
use crate::plan::pool_claim::PoolClaimStep;
use crate::records::{CLAIMS, POOL_CLAIMS, POOLS, PoolClaimRecord, PoolRecord, SUBNETS, SubnetRecord};

/// Performs a pool claim's step.
pub async fn step(hands: &impl Hands, claim: &PoolClaimRecord, step: &PoolClaimStep) -> Result<(), Failure> {
    match step {
        PoolClaimStep::AddFinalizer => add_finalizer(hands, POOL_CLAIMS, &claim.meta).await,
        PoolClaimStep::CreateInternalClaim => {
            create(hands, claim, CLAIMS, |name| objects::internal_claim(name, claim)).await
        }
        PoolClaimStep::CreateChildPool => create_child(hands, claim).await,
        PoolClaimStep::DeleteChildPool { pool } => hands.delete(POOLS, pool).await.map(drop),
        PoolClaimStep::DeleteInternalClaim { claim } => hands.delete(CLAIMS, claim).await.map(drop),
        PoolClaimStep::DropInternalClaimFinalizer { claim } => drop_finalizer(hands, CLAIMS, claim).await,
        PoolClaimStep::DropFinalizer => {
            // Another operator may have made one that this view does not show yet. Of the Subnets, one that was there
            // before the deletion mark; the others are never committed (see `plan::footing`). The pools last: one that somebody
            // creates after that is never Held, for its holder is gone, and goes as an orphan.
            for kind in [SUBNETS, CLAIMS, POOLS] {
                let objects = hands.list(kind, claim.meta.key.namespace()).await?;
                let keeps = |object: &&DynamicObject| match kind {
                    SUBNETS => holds(object, &claim.meta.uid),
                    _ => owned_by(object, &claim.meta.uid),
                };
                if let Some(left) = objects.iter().find(keeps) {
                    return Err(Failure::Conflict {
                        object: format!("{} {}", kind.kind, name_of(left)),
                    });
                }
            }
            drop_finalizer(hands, POOL_CLAIMS, &claim.meta).await
        }
    }
}

/// Whether a listed Subnet keeps the pool claim of this uid from going. One that cannot be read does: better stuck than lost.
fn holds(object: &DynamicObject, claim: &Uid) -> bool {
    let id = object.data.pointer("/spec/clusterID").and_then(Value::as_str);
    let names_it = id.is_some_and(|id| claim.is(id));
    names_it && record::read::<SubnetRecord>(object).map_or(true, |subnet| keeps_pool_claim(&subnet, claim))
}

/// Makes the pool of what the internal claim got: the range of its holder, in the parent's way of serving.
async fn create_child(hands: &impl Hands, claim: &PoolClaimRecord) -> Result<(), Failure> {
    let found = hands.view(|view| {
        let ledger = view.derived::<Ledger>()?;
        let namespace = claim.meta.key.namespace();
        let cidr = ledger
            .holders(&claim.meta.uid.to_string())
            .filter(|holder| holder.meta.key.namespace() == namespace && holder.pool == claim.parent)
            .find(|holder| holder.settled())
            .map(|holder| holder.cidr)?;
        let parent = view.get::<PoolRecord>(&claim.meta.key.sibling(&claim.parent)?)?;
        Some((cidr, parent.clone()))
    });
    // Either went since the plan was made; its news wakes the pool claim.
    let Some((cidr, parent)) = found else { return Ok(()) };
    create(hands, claim, POOLS, |name| {
        objects::child_pool(name, claim, cidr, &parent)
    })
    .await
}

/// Creates what is made for a pool claim, under its name or, where a stranger has that, under the other one.
async fn create(
    hands: &impl Hands,
    claim: &PoolClaimRecord,
    kind: ApiType,
    object: impl Fn(&str) -> Value,
) -> Result<(), Failure> {
    for name in [objects::pool_claim_name(claim), objects::other_pool_claim_name(claim)] {
        let Some(key) = claim.meta.key.sibling(&name) else {
            continue;
        };
        match hands.create(kind, &key, object(&name)).await {
            Err(Failure::Exists { .. }) => match hands.get(kind, &key).await? {
                Some(object) if owned_by(&object, &claim.meta.uid) => return Ok(()),
                _ => {}
            },
            other => return other.map(drop),
        }
    }
    Err(Failure::Kind {
        class: ErrorClass::Transient,
        message: format!(
            "{} {} and {} exist and were not made for SubnetPoolClaim {}; delete or rename one of them",
            kind.kind,
            objects::pool_claim_name(claim),
            objects::other_pool_claim_name(claim),
            claim.meta.key
        ),
    })
}
