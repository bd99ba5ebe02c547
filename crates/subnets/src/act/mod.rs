//! I/O out: performs one step, guarded by what it expects to find. One file per kind; what they share is here.

pub mod claim;
pub mod pool;
pub mod pool_claim;
pub mod subnet;

use kube::api::DynamicObject;
use serde_json::Value;
use usher_engine::{ObjectKey, Uid};
use usher_operator::error::Failure;
use usher_operator::hands::Hands;
use usher_operator::queue::Why;
use usher_operator::record::{ApiType, Meta};
use usher_operator::view::{View, Wake};

use crate::answers::Answers;
use crate::api::FINALIZER;
use crate::ledger::{Account, Ledger};
use crate::records::{SUBNETS, SubnetRecord};

/// Puts our finalizer on an object.
async fn add_finalizer(hands: &impl Hands, kind: ApiType, meta: &Meta) -> Result<(), Failure> {
    let mut finalizers: Vec<&str> = meta.finalizers.iter().map(AsRef::as_ref).collect();
    finalizers.push(FINALIZER);
    hands.set_finalizers(kind, meta, &finalizers).await.map(drop)
}

/// Takes our finalizer off an object.
async fn drop_finalizer(hands: &impl Hands, kind: ApiType, meta: &Meta) -> Result<(), Failure> {
    let left: Vec<&str> = meta
        .finalizers
        .iter()
        .map(AsRef::as_ref)
        .filter(|f| *f != FINALIZER)
        .collect();
    hands.set_finalizers(kind, meta, &left).await.map(drop)
}

fn account<'v>(view: &'v mut View, pool: &ObjectKey) -> Option<&'v mut Account> {
    view.derived_mut::<Ledger>().and_then(|ledger| ledger.account_mut(pool))
}

/// Changes a pool's account, and wakes whom that concerns.
fn change<T>(hands: &impl Hands, pool: &ObjectKey, wakes: Vec<Wake>, act: impl FnOnce(&mut Account) -> T) -> Option<T> {
    hands.change(|view| (account(view, pool).map(act), wakes))
}

/// Notes what the API server said, and wakes whoever asked.
fn note(hands: &impl Hands, wakes: Vec<Wake>, answer: impl FnOnce(&mut Answers)) {
    hands.change(|view| {
        if let Some(answers) = view.derived_mut::<Answers>() {
            answer(answers);
        }
        ((), wakes)
    });
}

fn wake(kind: &'static str, key: &ObjectKey, why: &'static str) -> Wake {
    Wake::now(kind, key.clone(), Why(why))
}

/// Whether an object names an owner of this uid.
fn owned_by(object: &DynamicObject, uid: &Uid) -> bool {
    object
        .metadata
        .owner_references
        .iter()
        .flatten()
        .any(|owner| uid.is(&owner.uid))
}

fn name_of(object: &DynamicObject) -> &str {
    object.metadata.name.as_deref().unwrap_or("?")
}

/// The owners of a Subnet but for one, as the API server has them: a record keeps only a part of each, and what is written is
/// whole. Only where the Subnet is still the version that is in view.
async fn owners_but(hands: &impl Hands, subnet: &SubnetRecord, uid: &Uid) -> Result<Vec<Value>, Failure> {
    let key = &subnet.meta.key;
    let moved = || Failure::Conflict {
        object: format!("Subnet {key}"),
    };
    let object = hands.get(SUBNETS, key).await?.ok_or_else(moved)?;
    let version = object.metadata.resource_version.as_deref();
    if version.and_then(|v| v.parse().ok()) != Some(subnet.meta.revision) {
        return Err(moved());
    }
    let others = object.metadata.owner_references.iter().flatten();
    let others = others.filter(|owner| !uid.is(&owner.uid));
    Ok(others.filter_map(|owner| serde_json::to_value(owner).ok()).collect())
}
