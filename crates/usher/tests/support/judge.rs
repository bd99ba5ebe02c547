//! What must be true of a [`super::load`] when the faults have stopped: everybody has what they asked for, or waits for the
//! right reason; nothing is left over; every count is exact; and all of it can be given back.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use usher_subnets::api::{ClaimPhase, PARENT_LABEL, Subnet, SubnetClaim, SubnetPhase, SubnetPool};

use super::history::{DEADLINE, Now, Seen};
use super::invariants::{Exceptions, Proof, bound, net, overlap, owner, phase, settled};
use super::load::{Ask, Live, PARENT, POOLS, insist_all};
use super::recount;
use super::world::World;

/// A claim that waited this long may have a block kept for it (R15), which nobody else gets.
const TARGET: SignedDuration = SignedDuration::from_secs(290);

/// Most of it is right by then.
const SOON: Duration = Duration::from_secs(3);

/// After all faults: see the module's header. Returns the proof over the whole history.
pub async fn ends_right(world: &World, live: Live) -> Proof {
    let begun = Instant::now();
    let (mut last, mut told) = (Ok(()), Ok(()));
    while begun.elapsed() < DEADLINE {
        last = world.history.now(|now| verdict(now, &live));
        if last.is_ok() {
            break;
        }
        // What takes long is worth a look, also where it comes right.
        if begun.elapsed() > SOON && last != told {
            println!("after {:.1?}, still: {}", begun.elapsed(), last.as_ref().unwrap_err());
            told = last.clone();
        }
        let more = world.history.len() + 1;
        world.history.until_heard(more, Duration::from_millis(500)).await;
    }
    if let Err(wrong) = last {
        panic!(
            "{} s after the last fault: {wrong}\n{}",
            DEADLINE.as_secs(),
            world.history.now(super::history::summary)
        );
    }
    let (bound, waiting, wrong, by_hand, refused) = world.history.now(|now| {
        let of = |phase| now.in_phase(phase).len();
        let failed = now
            .subnets
            .values()
            .filter(|s| phase(s) == Some(SubnetPhase::Failed))
            .count();
        (
            of(ClaimPhase::Bound),
            of(ClaimPhase::Pending),
            of(ClaimPhase::Error),
            live.subnets.len(),
            failed,
        )
    });
    println!(
        "everybody is served or waits with reason after {:.1?}: {bound} claims Bound, {waiting} wait, {wrong} ask in vain; \
         {by_hand} Subnets by hand ({refused} Failed), {} pool claims, {} labelled pools",
        begun.elapsed(),
        live.pool_claims.len(),
        live.labelled.len()
    );
    exact_and_without_drift(world).await;
    let begun = Instant::now();
    give_back(world, &live).await;
    println!("everything is given back: after {:.1?}", begun.elapsed());
    let forced = taken_away_by_hand(world);
    let forced: Vec<&str> = forced.iter().map(String::as_str).collect();
    let exceptions = Exceptions {
        forced: &forced,
        ..Exceptions::default()
    };
    world.proof_but(&exceptions).await
}

/// Subnets made by hand, which their users move and delete, and the claims that imported one: they are restored, and have
/// no Subnet for a while (R31). How they end is judged all the same.
fn taken_away_by_hand(world: &World) -> BTreeSet<String> {
    let entries = world.history.entries();
    let name = |object: &Seen| match object {
        Seen::Subnet(subnet) if subnet.owner_references().is_empty() => Some(subnet.name_any()),
        Seen::Claim(claim) if claim.spec.cluster_id.starts_with('h') => Some(claim.name_any()),
        _ => None,
    };
    entries.iter().filter_map(|entry| name(&entry.object)).collect()
}

/// Every pool's status is a recount's, and a recalculation finds nothing to repair (R50).
async fn exact_and_without_drift(world: &World) {
    let pools: Vec<String> = world.history.now(|now| now.pools.keys().cloned().collect());
    for pool in &pools {
        world.until_exact(pool).await;
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"usher.dev/recalculate": "the end"}}}));
        world.pools.patch(pool, &PatchParams::default(), &patch).await.unwrap();
    }
    for pool in &pools {
        let mut drift = None;
        world
            .until(&format!("pool {pool} is recalculated"), |now| {
                let done = now.pools[pool]
                    .status
                    .as_ref()
                    .and_then(|status| status.recalculated.as_ref());
                drift = done.filter(|done| done.trigger == "the end").map(|done| done.drift);
                drift.is_some()
            })
            .await;
        assert_eq!(drift, Some(0), "pool {pool} had drifted");
    }
}

async fn give_back(world: &World, live: &Live) {
    let asks = |kind, names: Vec<&String>| {
        names
            .into_iter()
            .map(move |name| Ask::delete(kind, name))
            .collect::<Vec<_>>()
    };
    let mut all = asks("SubnetPoolClaim", live.pool_claims.keys().collect());
    all.extend(asks("SubnetPool", live.labelled.keys().collect()));
    all.extend(asks("SubnetClaim", live.claims.keys().collect()));
    all.extend(asks("Subnet", live.subnets.keys().collect()));
    insist_all(world, all).await;
    let roots: BTreeSet<&str> = POOLS.iter().map(|(name, ..)| *name).chain([PARENT]).collect();
    world
        .until("everything is given back", |now| {
            let left = now.subnets.len() + now.claims.len() + now.pool_claims.len();
            left == 0 && now.pools.keys().map(String::as_str).eq(roots.iter().copied())
        })
        .await;
    let begun = Instant::now();
    for pool in &roots {
        if *pool == "buddy" {
            world.edit_pool(pool, json!({"exclude": []})).await;
        }
        world.until_exact(pool).await;
        world
            .history
            .now(|now| assert_eq!(recount::status(now, pool).used_percent, 0, "{pool}"));
        world.pools.delete(pool, &DeleteParams::default()).await.unwrap();
    }
    world.until("the pools are gone", |now| now.pools.is_empty()).await;
    println!("the pools are gone: after {:.1?}", begun.elapsed());
}

/// The clusterID of whatever stands for a pool in its parent.
fn holder_id(pool: &SubnetPool) -> String {
    owner(pool, "SubnetPoolClaim").or(pool.uid()).unwrap()
}

/// The Subnet that stands for a pool in its parent, if it has its range.
fn holder<'n>(now: &'n Now, pool: &SubnetPool) -> Option<&'n Subnet> {
    let id = holder_id(pool);
    let mut holders = now.subnets.values().filter(|s| s.spec.cluster_id == id && settled(s));
    holders.next()
}

fn is_internal(claim: &SubnetClaim) -> bool {
    claim
        .owner_references()
        .iter()
        .any(|owner| owner.kind == "SubnetPoolClaim")
}

/// Whether everything is as it must be; else the first thing that is not.
fn verdict(now: &Now, live: &Live) -> Result<(), String> {
    let users = now
        .claims
        .iter()
        .filter(|(_, claim)| !is_internal(claim))
        .map(|(name, _)| name);
    same("claims", users, live.claims.keys())?;
    same("pool claims", now.pool_claims.keys(), live.pool_claims.keys())?;
    for name in now.claims.keys() {
        claim(now, name).map_err(|wrong| format!("claim {name}: {wrong}"))?;
    }
    for name in now.pool_claims.keys() {
        pool_claim(now, name).map_err(|wrong| format!("pool claim {name}: {wrong}"))?;
    }
    let made = |pool: &&String| !live.labelled.contains_key(*pool);
    let children: Vec<&String> = now
        .pools
        .iter()
        .filter(|(_, p)| p.labels().contains_key(PARENT_LABEL))
        .map(|(n, _)| n)
        .collect();
    let bound_pools: BTreeSet<&String> = now
        .pool_claims
        .values()
        .filter_map(|c| c.status.as_ref()?.bound_pool_name.as_ref())
        .collect();
    same(
        "pools of pool claims",
        children.iter().copied().filter(made),
        bound_pools.into_iter(),
    )?;
    for name in live.labelled.keys() {
        let pool = now.pools.get(name).ok_or(format!("pool {name} is not there"))?;
        labelled(now, pool).map_err(|wrong| format!("pool {name}: {wrong}"))?;
    }
    for (name, one) in &now.subnets {
        subnet(now, one, live.subnets.contains_key(name)).map_err(|wrong| format!("Subnet {name}: {wrong}"))?;
    }
    let missing = live.subnets.keys().find(|name| !now.subnets.contains_key(*name));
    missing.map_or(Ok(()), |name| {
        Err(format!("Subnet {name} was made by hand and is gone"))
    })
}

fn same<'n>(
    what: &str,
    there: impl Iterator<Item = &'n String>,
    wanted: impl Iterator<Item = &'n String>,
) -> Result<(), String> {
    let (there, wanted): (BTreeSet<_>, BTreeSet<_>) = (there.collect(), wanted.collect());
    if there == wanted {
        return Ok(());
    }
    let (more, less): (Vec<_>, Vec<_>) = (there.difference(&wanted).collect(), wanted.difference(&there).collect());
    Err(format!("{what}: too many {more:?}, missing {less:?}"))
}

fn ensure(holds: bool, wrong: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(wrong()) }
}

/// Of a pool, with a range, for whom.
fn of_pool<'n>(now: &'n Now, pool: &'n str) -> impl Iterator<Item = &'n Subnet> {
    now.subnets
        .values()
        .filter(move |s| s.spec.pool_ref == pool && settled(s))
}

fn claim(now: &Now, name: &str) -> Result<(), String> {
    let claim = &now.claims[name];
    let (pool, id) = (&claim.spec.pool_ref, &claim.spec.cluster_id);
    let reason = now.reason(name).unwrap_or_default();
    ensure(claim.metadata.deletion_timestamp.is_none(), || {
        "is on its way out".into()
    })?;
    let status = claim.status.clone().unwrap_or_default();
    ensure(status.observed_generation == claim.metadata.generation, || {
        "its status is of an older spec".into()
    })?;
    match status.phase {
        Some(ClaimPhase::Bound) => bound_to_its_subnet(now, claim),
        Some(ClaimPhase::Error) => {
            let mut namesakes = of_pool(now, pool).filter(|s| s.spec.cluster_id == *id);
            let conflict = namesakes.any(|s| Some(i32::from(net(&s.spec.cidr).prefix_len())) != claim.spec.block_size);
            let range = status.allocated_cidr.as_deref().map(net);
            let lost = range.is_some_and(|range| {
                let mut others = of_pool(now, pool).filter(|s| s.spec.cluster_id != *id);
                others.any(|s| overlap(&net(&s.spec.cidr), &range))
            });
            match reason {
                "ClusterIDConflict" => ensure(conflict, || "no Subnet of its clusterID has another size".into()),
                // A /29, or a /65: nobody grants that.
                "InvalidRequest" => {
                    let longest = if net(&now.pools[pool].spec.cidr).addr().is_ipv4() {
                        28
                    } else {
                        64
                    };
                    ensure(claim.spec.block_size.is_some_and(|size| size > longest), || {
                        now.message(name).to_owned()
                    })
                }
                // Only a Subnet that was made by hand can be taken from under a claim.
                "RangeLost" => ensure(lost && id.starts_with('h'), || {
                    format!("its range is not taken: {}", now.message(name))
                }),
                _ => Err(format!("{reason}: {}", now.message(name))),
            }
        }
        _ => waits_with_reason(now, claim, reason),
    }
}

fn bound_to_its_subnet(now: &Now, claim: &SubnetClaim) -> Result<(), String> {
    let named = claim
        .status
        .as_ref()
        .and_then(|status| status.subnet_ref.clone())
        .unwrap_or_default();
    let Some(subnet) = now.subnets.get(&named) else {
        return Err(format!("is Bound to Subnet {named}, which is not there"));
    };
    let (spec, range) = (&subnet.spec, net(&subnet.spec.cidr));
    let owners = subnet.owner_references();
    let owned = owners.is_empty()
        || owners
            .iter()
            .any(|owner| Some(&owner.uid) == claim.metadata.uid.as_ref());
    let size = match (&claim.spec.block_size, &claim.spec.requested_cidr) {
        (Some(size), _) => *size == i32::from(range.prefix_len()),
        (_, Some(exact)) => net(exact) == range,
        _ => true,
    };
    let ours = spec.pool_ref == claim.spec.pool_ref && spec.cluster_id == claim.spec.cluster_id;
    ensure(
        settled(subnet) && bound(claim) == Some(range) && owned && size && ours,
        || {
            format!(
                "is Bound to {:?}, and Subnet {named} is {:?} {spec:?}, owned: {owned}",
                bound(claim),
                phase(subnet)
            )
        },
    )
}

/// No claim waits for what there is.
fn waits_with_reason(now: &Now, claim: &SubnetClaim, reason: &str) -> Result<(), String> {
    let pool = &claim.spec.pool_ref;
    match (reason, &claim.spec.requested_cidr, claim.spec.block_size) {
        ("PoolExhausted", None, Some(size)) => {
            let free = recount::room(now, pool, u8::try_from(size).unwrap());
            let long = |c: &SubnetClaim| {
                let created = c.metadata.creation_timestamp.as_ref().unwrap().0;
                Timestamp::now().duration_since(created) > TARGET && bound(c).is_none()
            };
            let kept = now.claims.values().any(|c| c.spec.pool_ref == *pool && long(c));
            ensure(free == 0 || kept, || {
                format!("waits for room, and {free} blocks of /{size} are free in {pool}")
            })
        }
        ("RequestedCIDRInUse", Some(exact), _) => {
            let taken = recount::held(now, pool).iter().any(|held| overlap(held, &net(exact)));
            ensure(taken, || format!("waits for {exact}, which nobody has"))
        }
        ("PoolNotReady", ..) => {
            let ready = now.condition(pool, "Ready").map(|(_, reason, _)| reason);
            ensure(ready.as_deref() == Some("WaitingParent"), || {
                format!("waits for pool {pool}, which is {ready:?}")
            })
        }
        _ => Err(format!("waits: {reason:?}: {}", now.message(&claim.name_any()))),
    }
}

fn pool_claim(now: &Now, name: &str) -> Result<(), String> {
    let claim = &now.pool_claims[name];
    let uid = claim.uid().unwrap();
    let status = claim.status.clone().unwrap_or_default();
    ensure(claim.metadata.deletion_timestamp.is_none(), || {
        "is on its way out".into()
    })?;
    let internal: Vec<&SubnetClaim> = now
        .claims
        .values()
        .filter(|c| c.owner_references().iter().any(|owner| owner.uid == uid))
        .collect();
    ensure(internal.len() == 1, || {
        format!("has {} internal claims", internal.len())
    })?;
    let served = bound(internal[0]).is_some();
    let Some(pool) = status
        .bound_pool_name
        .filter(|_| status.phase == Some(ClaimPhase::Bound))
    else {
        return ensure(!served && status.phase == Some(ClaimPhase::Pending), || {
            format!("is {:?}, and its claim has {:?}", status.phase, bound(internal[0]))
        });
    };
    let Some(child) = now.pools.get(&pool) else {
        return Err(format!("is Bound to pool {pool}, which is not there"));
    };
    let ready = now.condition(&pool, "Ready").map(|(_, reason, _)| reason);
    let range = net(&child.spec.cidr);
    ensure(
        Some(range) == bound(internal[0]) && ready.as_deref() == Some("CIDRAssigned") && holder_id(child) == uid,
        || {
            format!(
                "pool {pool} is {ready:?} with {range}, and its claim has {:?}",
                bound(internal[0])
            )
        },
    )
}

/// A pool labelled by hand has its range, or somebody else has.
fn labelled(now: &Now, pool: &SubnetPool) -> Result<(), String> {
    let ready = now
        .condition(&pool.name_any(), "Ready")
        .map(|(_, reason, _)| reason)
        .unwrap_or_default();
    let range = net(&pool.spec.cidr);
    let id = holder_id(pool);
    match holder(now, pool) {
        Some(_) => ensure(ready == "CIDRAssigned", || format!("is held, and {ready}")),
        None => {
            let mut others = of_pool(now, PARENT).filter(|s| s.spec.cluster_id != id);
            let taken = others.any(|s| overlap(&net(&s.spec.cidr), &range));
            ensure(ready == "WaitingParent" && taken, || {
                format!("{ready}, and nobody else has {range}")
            })
        }
    }
}

/// A Subnet belongs to somebody, or was made by hand; and is what it must be.
fn subnet(now: &Now, subnet: &Subnet, by_hand: bool) -> Result<(), String> {
    let (pool, range) = (&subnet.spec.pool_ref, net(&subnet.spec.cidr));
    let mut others = of_pool(now, pool).filter(|other| other.metadata.uid != subnet.metadata.uid);
    let failed_for = subnet
        .status
        .as_ref()
        .and_then(|status| status.reason.clone())
        .unwrap_or_default();
    ensure(subnet.metadata.deletion_timestamp.is_none(), || {
        "is on its way out".into()
    })?;
    let may_fail = by_hand
        || !subnet
            .owner_references()
            .iter()
            .any(|owner| owner.kind == "SubnetClaim");
    match phase(subnet) {
        Some(SubnetPhase::Allocated) => {}
        Some(SubnetPhase::Failed) if may_fail => {
            let outside = !net(&now.pools[pool].spec.cidr).contains(&range);
            let right = match failed_for.as_str() {
                "OutOfRange" => outside,
                "Overlap" => others.any(|other| overlap(&net(&other.spec.cidr), &range)),
                _ => false,
            };
            ensure(right, || format!("{range} is Failed for {failed_for}, which is not so"))?;
        }
        other => return Err(format!("is {other:?} {failed_for}")),
    }
    let owned_by = |uid: &str| subnet.owner_references().iter().any(|owner| owner.uid == uid);
    let claimed = now.claims.values().any(|c| {
        let names = c.status.as_ref().and_then(|status| status.subnet_ref.clone());
        owned_by(&c.uid().unwrap()) && names == Some(subnet.name_any())
    });
    let holds = now.pools.values().any(|p| owned_by(&p.uid().unwrap()));
    ensure(by_hand || claimed || holds, || "belongs to nobody".into())
}
