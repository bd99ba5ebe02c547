//! What a pool says of itself: its status and conditions, from running counters (R46, R47).

use std::collections::BTreeMap;

use jiff::Timestamp;
use usher_engine::Conditions;
use usher_engine::condition::whole_seconds;

use super::map::Fit;
use super::pool::PoolView;
use super::{PoolState, Request, request};
use crate::api::{Recalculated, SubnetPoolStatus};
use crate::ledger::Account;
use crate::records::{Ask, HELD, PoolRecord};

/// … and again once there are no more than four fifths of the limit, so that the list does not come and go.
fn listed_again(listed_max: usize) -> usize {
    listed_max / 5 * 4
}

/// What the pool reports.
pub fn status(pool: &PoolRecord, seen: &PoolView<'_>, now: Timestamp) -> SubnetPoolStatus {
    let account = seen.account;
    let (mut by_size, mut exact) = (BTreeMap::new(), BTreeMap::new());
    let (mut largest, mut used_percent) = (String::new(), 0);
    if let Some(map) = &account.map {
        let reported = if pool.cidr.addr().is_ipv4() { 28 } else { 64 };
        for (length, count) in map.counts().filter(|(length, _)| *length <= pool.longest.max(reported)) {
            by_size.insert(length.to_string(), i64::try_from(count).unwrap_or(i64::MAX));
            if count > (1 << 53) - 1 {
                exact.insert(length.to_string(), count.to_string());
            }
        }
        // Upstream's dashboards read the count of /24 under this key as well.
        if let Some(count) = by_size.get("24").copied() {
            by_size.insert("/24".into(), count);
        }
        largest = map
            .largest_free()
            .map(|length| format!("/{length}"))
            .unwrap_or_default();
        used_percent = i64::from(map.used_percent());
    }
    let listed_max = seen.limits.listed_max;
    let most = match pool.status.allocated_cidrs_omitted {
        true => listed_again(listed_max),
        false => listed_max,
    };
    let omitted = account.settled > most;
    let listed = if omitted {
        BTreeMap::new()
    } else {
        let settled = account.subnets.iter().filter(|subnet| subnet.settled());
        settled
            .map(|subnet| (subnet.cidr.to_string(), subnet.cluster_id.to_string()))
            .collect()
    };
    let answered = account.recalculation.done.as_ref().map(|done| Recalculated {
        trigger: done.trigger.to_string(),
        at: whole_seconds(done.at),
        drift: count(done.drift),
    });
    SubnetPoolStatus {
        observed_generation: Some(pool.meta.generation),
        allocated_count: count(account.settled),
        free_count_by_size: by_size,
        free_count_exact: exact,
        allocated_cidrs: listed,
        allocated_cidrs_omitted: omitted,
        largest_free_block: largest,
        used_percent,
        waiting_claims: count(waiting(pool, seen)),
        child_pools: count(seen.child_pools),
        out_of_range: count(account.out_of_range),
        overlaps: count(account.overlaps),
        recalculated: newer(answered, pool.status.recalculated.clone(), pool),
        conditions: conditions(pool, seen, now),
    }
}

/// The later of two answers to a request to recalculate: another operator may have given one since. Times are whole
/// seconds; within one, the answer to what is asked now counts, then the one that found more. Every operator chooses alike.
fn newer(ours: Option<Recalculated>, told: Option<Recalculated>, pool: &PoolRecord) -> Option<Recalculated> {
    let rank = |answer: &Recalculated| {
        let asked = pool.recalculate.as_deref() == Some(answer.trigger.as_str());
        (answer.at, asked, answer.drift)
    };
    match (ours, told) {
        (Some(ours), Some(told)) if rank(&told) >= rank(&ours) => Some(told),
        (ours, told) => ours.or(told),
    }
}

/// Claims that wait for room. Those that ask for what the pool never grants do not wait, they are told so.
pub fn waiting(pool: &PoolRecord, seen: &PoolView<'_>) -> usize {
    let lines = seen.account.line.lines();
    lines
        .filter(|(ask, ..)| request(*ask, pool, seen.serving()).is_ok())
        .map(|(_, length, _)| length)
        .sum()
}

/// A number of things, for people.
pub fn some(n: usize, thing: &str) -> String {
    if n == 1 {
        format!("1 {thing}")
    } else {
        format!("{n} {thing}s")
    }
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn conditions(pool: &PoolRecord, seen: &PoolView<'_>, now: Timestamp) -> Vec<usher_engine::Condition> {
    let (account, generation) = (seen.account, pool.meta.generation);
    let mut conditions = Conditions::from_existing(&pool.status.conditions);
    let state = seen.reported_state(now);
    let ready = match state {
        PoolState::Terminating => format!("waiting for {} to go; delete who has them", some(seen.left, "Subnet")),
        PoolState::Serving => format!("pool {} serves {}", pool.meta.key.name(), seen.serving()),
        _ => seen.standing.sentence(),
    };
    conditions.set(
        "Ready",
        state == PoolState::Serving,
        state.reason(),
        ready,
        generation,
        now,
    );
    if pool.held || seen.holder_confirmed {
        let range = seen.standing.holder().map(|holder| holder.cidr.to_string());
        let message = format!(
            "{} is held in the parent for this pool",
            range.unwrap_or_else(|| "its range".into())
        );
        conditions.set(HELD, true, "HolderAllocated", message, generation, now);
    }
    let (exhausted, reason, message) = exhaustion(pool, seen, account);
    conditions.set("Exhausted", exhausted, reason, message, generation, now);
    let (conflicted, reason, message) = conflict(pool, seen, account);
    conditions.set("Conflicted", conflicted, reason, message, generation, now);
    if state == PoolState::Invalid {
        conditions.set("Stalled", true, "Error", seen.standing.sentence(), generation, now);
    } else {
        conditions.remove("Stalled");
    }
    conditions.into_vec()
}

fn exhaustion(pool: &PoolRecord, seen: &PoolView<'_>, account: &Account) -> (bool, &'static str, String) {
    let room = account
        .map
        .as_ref()
        .is_some_and(|map| map.fit(pool.default, Fit::First).is_some());
    // A queue that is about to be served is no exhaustion: only who fits nowhere counts.
    let stuck = || account.line.lines().any(|(ask, ..)| is_stuck(ask, pool, seen, account));
    if waiting(pool, seen) > 0 && stuck() {
        (true, "ClaimsWaiting", "claims wait for room".into())
    } else if room {
        (false, "Room", String::new())
    } else {
        let message = format!("no free block of the default size /{}", pool.default);
        (true, "NoBlockOfDefaultSize", message)
    }
}

/// Whether what is asked for is nowhere to be had at present.
pub fn is_stuck(ask: Ask, pool: &PoolRecord, seen: &PoolView<'_>, account: &Account) -> bool {
    match (request(ask, pool, seen.serving()), &account.map) {
        (Ok(Request::Length(length)), Some(map)) => map.fit(length, Fit::First).is_none(),
        (Ok(Request::Exact(cidr)), Some(map)) => !map.is_free(cidr),
        _ => false,
    }
}

/// What is wrong with what is allocated; the worst first.
pub fn conflict(pool: &PoolRecord, seen: &PoolView<'_>, account: &Account) -> (bool, &'static str, String) {
    if account.overlaps > 0 {
        let named = account.a_double().map(|(a, b)| {
            format!(
                ": {} ({}) and {} ({})",
                a.meta.key.name(),
                a.cidr,
                b.meta.key.name(),
                b.cidr
            )
        });
        let message = format!(
            "{} of Subnets overlap{}; delete one of each",
            some(account.overlaps, "pair"),
            named.unwrap_or_default()
        );
        return (true, "Overlap", message);
    }
    if let Some(holder) = seen.standing.holder()
        && holder.cidr != pool.cidr
    {
        let message = format!(
            "spec.cidr is {}, but the parent holds {} for this pool; set spec.cidr to that",
            pool.cidr, holder.cidr
        );
        return (true, "HolderMismatch", message);
    }
    if account.out_of_range > 0 {
        let message = format!(
            "outside {}: {}; nothing is taken from them",
            seen.serving(),
            some(account.out_of_range, "Subnet")
        );
        return (true, "OutOfRange", message);
    }
    if account.excluded_in_use > 0 {
        let message = format!(
            "in what spec.exclude names: {}; nothing is taken from them",
            some(account.excluded_in_use, "Subnet")
        );
        return (true, "ExcludedInUse", message);
    }
    (false, "NoConflict", String::new())
}
