//! Whom a pool serves: the queue, oldest first (R13, R14), and what is kept for who waited too long (R15).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use usher_engine::{Finding, Stance, Step, Tell};

use super::map::Fit;
use super::pool::{GRANTS_OUTSTANDING, GRANTS_PER_PASS, PoolPlan, PoolStep, PoolView};
use super::pool_report::{is_stuck, some, waiting};
use super::{Request, gives, request};
use crate::api::Strategy;
use crate::ledger::{Grant, Place, Target, Unserved};
use crate::records::PoolRecord;

/// Serves the queue, oldest first (R13): among the heads of the lines, the oldest that fits, until none does. Whoever is
/// passed over because nothing fits it makes those behind it take the tightest place, so that no big block is split for
/// them without need (R14).
pub(super) fn serve(pool: &PoolRecord, seen: &PoolView<'_>, mut plan: PoolPlan, now: Timestamp) -> PoolPlan {
    let account = seen.account;
    let Some(map) = &account.map else { return plan };
    let room = GRANTS_OUTSTANDING
        .saturating_sub(account.grants.len())
        .min(GRANTS_PER_PASS);
    let mut overlay = map.overlay();
    let grant = |claim: &Unserved, cidr| PoolStep::Grant {
        uid: claim.uid.clone(),
        grant: Grant {
            cidr,
            claim: claim.place.claim.clone(),
            generation: claim.generation,
            cluster_id: claim.cluster_id.clone(),
            at: now,
            sent: false,
        },
    };
    // R16: what was promised to others is not there for the queue.
    for cidr in account.awaited.values() {
        overlay.withhold(*cidr);
    }
    let mut served: BTreeSet<&str> = BTreeSet::new();
    let mut granted = 0;
    // R15: a block that is kept is for its claim alone.
    if let Some((target, claim)) = kept(pool, seen)
        && room > 0
    {
        if overlay.reserve(target.cidr).is_ok() {
            plan = plan.step(grant(claim, target.cidr));
            served.insert(&claim.cluster_id);
            granted += 1;
        } else {
            overlay.withhold(target.cidr);
        }
    }
    // Everybody in a line asks the same, so only its head needs to be looked at.
    let mut lines: Vec<_> = account
        .line
        .lines()
        .map(|(ask, _, line)| (request(ask, pool, seen.serving()), line))
        .collect();
    let mut heads: BTreeMap<&Place, (Request, usize, &Unserved)> = BTreeMap::new();
    for (at, (asked, line)) in lines.iter_mut().enumerate() {
        if let Ok(asked) = asked
            && let Some(claim) = line.next()
        {
            heads.insert(&claim.place, (*asked, at, claim));
        }
    }
    let usual = match pool.strategy {
        Strategy::Linear => Fit::First,
        Strategy::Buddy => Fit::Best,
    };
    let mut passed_over = false;
    while granted < room
        && let Some((_, (asked, at, claim))) = heads.pop_first()
    {
        // R11: one range per clusterID; the other claims of it share that.
        if !served.contains(&*claim.cluster_id) {
            let taken = match asked {
                Request::Length(length) => overlay.take(length, if passed_over { Fit::Best } else { usual }),
                Request::Exact(cidr) => overlay.reserve(cidr).is_ok().then_some(cidr),
            };
            let Some(cidr) = taken else {
                // Room only shrinks while we serve: nobody in this line is served in this pass.
                passed_over = true;
                continue;
            };
            plan = plan.step(grant(claim, cidr));
            served.insert(&claim.cluster_id);
            granted += 1;
        }
        if let Some(claim) = lines.get_mut(at).and_then(|(_, line)| line.next()) {
            heads.insert(&claim.place, (asked, at, claim));
        }
    }
    if granted > 0 {
        plan = plan.finding(Finding::new(
            Stance::Doing,
            "Granting",
            format!("granting a range to {} now", some(granted, "waiting claim")),
        ));
    }
    let left = waiting(pool, seen).saturating_sub(granted);
    if granted == room && left > 0 {
        // More would fit, perhaps; go on when these are placed, and let others have their turn.
        let soon = if room > 0 {
            Duration::from_millis(20)
        } else {
            Duration::from_secs(1)
        };
        plan = plan.again_after(soon);
    } else if left > 0 {
        plan = plan.finding(Finding::new(
            Stance::Waiting,
            "ClaimsWaiting",
            format!(
                "waiting for room in pool {}: {}",
                pool.meta.key.name(),
                some(left, "claim")
            ),
        ));
        plan = choose_target(pool, seen, plan, now);
    }
    plan
}

/// The block that is kept, with the claim it is kept for: while that waits for such a block, and the pool may give it.
fn kept<'v>(pool: &PoolRecord, seen: &PoolView<'v>) -> Option<(&'v Target, &'v Unserved)> {
    let account = seen.account;
    let target = account.target.as_ref()?;
    let claim = account.line.waits(&target.uid)?;
    gives(pool, seen.serving(), claim.ask, target.cidr).then_some((target, claim))
}

/// R15: the claim that waits longest, if others were served over its head, gets a block kept for it.
fn choose_target(pool: &PoolRecord, seen: &PoolView<'_>, plan: PoolPlan, now: Timestamp) -> PoolPlan {
    let account = seen.account;
    if kept(pool, seen).is_some() {
        return plan;
    }
    let stuck = account
        .line
        .lines()
        .filter(|(ask, ..)| is_stuck(*ask, pool, seen, account));
    let Some(claim) = stuck
        .filter_map(|(_, _, mut line)| line.next())
        .min_by_key(|claim| &claim.place)
    else {
        return plan;
    };
    let created = claim.place.created.into();
    if account.last_grant.is_none_or(|last| last <= created) {
        return plan;
    }
    let rest = seen.limits.target_after.saturating_sub(now.duration_since(created));
    if let Some(rest) = Duration::try_from(rest).ok().filter(|rest| !rest.is_zero()) {
        return plan.again_after(rest);
    }
    let block = match request(claim.ask, pool, seen.serving()) {
        Ok(Request::Exact(cidr)) => Some(cidr),
        Ok(Request::Length(length)) => account.map.as_ref().and_then(|map| map.emptiest(length, &pool.exclude)),
        Err(_) => None,
    };
    match block {
        Some(cidr) => {
            let step = PoolStep::KeepTarget {
                claim: claim.place.claim.clone(),
                target: Target {
                    uid: claim.uid.clone(),
                    cidr,
                    since: now,
                },
            };
            let told = Finding::new(Stance::Doing, "BlockKept", step.describe()).told(Tell::Normal);
            plan.finding(told).step(step)
        }
        None => plan,
    }
}
