//! A claim's steps.

use ipnet::IpNet;
use usher_engine::ObjectKey;
use usher_operator::error::Failure;
use usher_operator::hands::Hands;
use usher_operator::record;

use super::{change, drop_finalizer, note, owners_but, wake};
use crate::kinds::{CLAIM, POOL};
use crate::ledger::{Ledger, Refusal, overlap};
use crate::plan::claim::{ClaimStep, Loss};
use crate::records::{CLAIMS, ClaimRecord, SUBNETS, SubnetRecord};
use crate::{metrics, objects};

/// Performs a claim's step.
pub async fn step(hands: &impl Hands, claim: &ClaimRecord, step: &ClaimStep) -> Result<(), Failure> {
    match step {
        ClaimStep::CreateSubnet { pool, cidr } => place(hands, claim, pool, *cidr).await,
        ClaimStep::QueueAgain { pool } => {
            let woken = vec![wake(POOL, pool, "again")];
            change(hands, pool, woken, |account| account.queue_again(&claim.meta.uid));
            Ok(())
        }
        ClaimStep::Share { subnet } => share(hands, claim, subnet).await,
        ClaimStep::ConfirmLoss { pool, cidr } => confirm_loss(hands, claim, pool, *cidr).await,
        ClaimStep::Restore { pool, cidr } => match create_named(hands, claim, pool, *cidr).await? {
            Taken::ByUs => Ok(()),
            // Looked at again from the start: who has it, and since when.
            Taken::ByOther { name } => Err(Failure::Conflict {
                object: format!("Subnet {name}"),
            }),
        },
        ClaimStep::DeleteOrphan => hands.delete(CLAIMS, &claim.meta).await.map(drop),
        ClaimStep::DropFinalizer => drop_finalizer(hands, CLAIMS, &claim.meta).await,
    }
}

/// Creates the Subnet for a grant.
async fn place(hands: &impl Hands, claim: &ClaimRecord, pool: &ObjectKey, cidr: IpNet) -> Result<(), Failure> {
    let uid = &claim.meta.uid;
    let granted = change(hands, pool, Vec::new(), |account| match account.grants.get_mut(uid) {
        Some(grant) if grant.cidr == cidr && grant.generation == claim.meta.generation => {
            grant.sent = true;
            true
        }
        _ => false,
    });
    if granted != Some(true) {
        return Ok(());
    }
    match create_named(hands, claim, pool, cidr).await {
        Ok(Taken::ByUs) => Ok(()),
        Ok(Taken::ByOther { name }) => {
            // R28: it is theirs; the claim has its old place again.
            let subnet = claim.meta.key.sibling(&name);
            let woken = vec![wake(POOL, pool, "again")];
            hands.change(|view| {
                // Where the view shows it by now, it holds its range itself.
                let unseen = subnet.is_some_and(|key| view.get::<SubnetRecord>(&key).is_none());
                if let Some(account) = super::account(view, pool) {
                    if unseen {
                        account.hold_unseen(&name, cidr);
                    }
                    account.revoke(uid);
                }
                metrics::retried(view, pool, uid);
                ((), woken)
            });
            Ok(())
        }
        // Nothing was sent, or the answer is a plain no: the range is nobody's.
        Err(Failure::NotLeader { object }) => {
            change(hands, pool, Vec::new(), |account| {
                if let Some(grant) = account.grants.get_mut(uid) {
                    grant.sent = false;
                }
            });
            Err(Failure::NotLeader { object })
        }
        Err(no @ (Failure::Invalid { .. } | Failure::Forbidden { .. } | Failure::NamespaceEnding { .. })) => {
            let refusal = Refusal {
                at: hands.now(),
                message: no.to_string(),
            };
            let woken = [(CLAIM, &claim.meta.key), (POOL, pool)].map(|(kind, key)| wake(kind, key, "refused"));
            change(hands, pool, woken.to_vec(), |account| account.refuse(uid, refusal));
            Err(no)
        }
        Err(other) => Err(other),
    }
}

/// Who has the name of the Subnet we wanted.
enum Taken {
    ByUs,
    ByOther { name: String },
}

/// Creates the Subnet of a claim under its name, or, where a stranger of another range or pool has that, under the other
/// one (R28).
async fn create_named(
    hands: &impl Hands,
    claim: &ClaimRecord,
    pool: &ObjectKey,
    cidr: IpNet,
) -> Result<Taken, Failure> {
    let mut last = String::new();
    for name in objects::subnet_names(pool.name(), cidr, &claim.meta.uid) {
        let Some(key) = claim.meta.key.sibling(&name) else {
            continue;
        };
        match hands.create(SUBNETS, &key, objects::subnet(&name, claim, cidr)).await {
            Ok(_) => return Ok(Taken::ByUs),
            Err(Failure::Exists { .. }) => {}
            Err(failure) => return Err(failure),
        }
        let Some(object) = hands.get(SUBNETS, &key).await? else {
            return Err(Failure::Conflict {
                object: format!("Subnet {name}"),
            });
        };
        match record::read::<SubnetRecord>(&object) {
            Ok(subnet) if subnet.claim_uid() == Some(&claim.meta.uid) => return Ok(Taken::ByUs),
            Ok(subnet) if subnet.cidr == cidr && subnet.pool == claim.pool && !subnet.withdrawn() => {
                return Ok(Taken::ByOther { name });
            }
            _ => last = name,
        }
    }
    Err(Failure::Conflict {
        object: format!("Subnet {last}"),
    })
}

/// R11: one more owner, on the version of the Subnet that was planned for.
async fn share(hands: &impl Hands, claim: &ClaimRecord, key: &ObjectKey) -> Result<(), Failure> {
    let Some(subnet) = hands.view(|view| view.get::<SubnetRecord>(key).cloned()) else {
        return Ok(());
    };
    let mut owners = owners_but(hands, &subnet, &claim.meta.uid).await?;
    owners.push(objects::sharer(claim));
    hands.set_owners(SUBNETS, &subnet.meta, owners).await.map(drop)
}

/// R31: whether the Subnet of a Bound claim is really gone, and who has its range if so. The view may be behind.
async fn confirm_loss(hands: &impl Hands, claim: &ClaimRecord, pool: &ObjectKey, cidr: IpNet) -> Result<(), Failure> {
    let uid = &claim.meta.uid;
    let ours = |subnet: &SubnetRecord| {
        let held = subnet.cidr == cidr && subnet.pool == claim.pool && !subnet.withdrawn();
        held && (subnet.meta.owned_by(uid) || (subnet.by_hand() && subnet.cluster_id == claim.cluster_id))
    };
    let known = claim.subnet_ref().map(str::to_owned);
    let names = known.into_iter().chain(objects::subnet_names(pool.name(), cidr, uid));
    let names: std::collections::BTreeSet<String> = names.collect();
    for key in names.iter().filter_map(|name| pool.sibling(name)) {
        let object = hands.get(SUBNETS, &key).await?;
        if object.is_some_and(|object| record::read::<SubnetRecord>(&object).is_ok_and(|subnet| ours(&subnet))) {
            // It is there: its watch event is on the way and wakes the claim.
            return Ok(());
        }
    }
    let rivals: Vec<ObjectKey> = hands.view(|view| {
        let account = view.derived::<Ledger>().and_then(|ledger| ledger.account(pool));
        let subnets = account.into_iter().flat_map(|account| account.overlapping(cidr, None));
        let settled = subnets.filter(|subnet| subnet.settled());
        settled.map(|subnet| subnet.meta.key.clone()).collect()
    });
    let mut taken_by = None;
    for key in rivals {
        let object = hands.get(SUBNETS, &key).await?;
        let subnet = object.and_then(|object| record::read::<SubnetRecord>(&object).ok());
        if subnet.is_some_and(|s| s.settled() && s.pool == claim.pool && overlap(s.cidr, cidr)) {
            taken_by = Some(key);
            break;
        }
    }
    let at = hands.now();
    note(hands, vec![wake(CLAIM, &claim.meta.key, "lost")], |answers| {
        answers.note_loss(uid.clone(), Loss { cidr, taken_by, at });
    });
    Ok(())
}
