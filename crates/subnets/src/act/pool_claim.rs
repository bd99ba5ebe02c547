//! A pool claim's steps.

use serde_json::Value;
use usher_engine::ErrorClass;
use usher_operator::error::Failure;
use usher_operator::hands::Hands;
use usher_operator::record::ApiType;

use super::{add_finalizer, drop_finalizer, name_of, owned_by};
use crate::ledger::Ledger;
use crate::objects;
use crate::plan::pool_claim::PoolClaimStep;
use crate::records::{CLAIMS, POOL_CLAIMS, POOLS, PoolClaimRecord, PoolRecord};

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
            // Another operator may have made one that this view does not show yet.
            for kind in [POOLS, CLAIMS] {
                let objects = hands.list(kind, claim.meta.key.namespace()).await?;
                if let Some(left) = objects.iter().find(|object| owned_by(object, &claim.meta.uid)) {
                    return Err(Failure::Conflict {
                        object: format!("{} {}", kind.kind, name_of(left)),
                    });
                }
            }
            drop_finalizer(hands, POOL_CLAIMS, &claim.meta).await
        }
    }
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
