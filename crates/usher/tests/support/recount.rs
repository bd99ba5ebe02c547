//! A pool's status, counted anew from the objects: slowly, by another way than the operator's, and with no code of it.

use std::collections::BTreeMap;

use ipnet::IpNet;
use kube::ResourceExt;
use usher_subnets::api::{ClaimPhase, PARENT_LABEL, SubnetClaim, SubnetPhase, SubnetPoolStatus};

use super::history::Now;
use super::invariants::{bound, net, overlap, phase, settled};

/// How many free blocks of this length there are inside `block`, by halving it until it is clearly free or clearly held.
pub fn free(block: IpNet, held: &[IpNet], length: u8) -> u128 {
    let touching: Vec<IpNet> = held.iter().copied().filter(|h| overlap(h, &block)).collect();
    if touching.is_empty() {
        return 1_u128
            .checked_shl(u32::from(length - block.prefix_len()))
            .unwrap_or(u128::MAX);
    }
    if block.prefix_len() == length || touching.iter().any(|h| h.contains(&block)) {
        return 0;
    }
    let halves = block.subnets(block.prefix_len() + 1).unwrap();
    halves.map(|half| free(half, &touching, length)).sum()
}

/// How many pairs overlap: each range lies inside those that are still open where it begins.
fn pairs(mut ranges: Vec<IpNet>) -> usize {
    ranges.sort_by_key(|range| (range.network(), range.prefix_len()));
    let (mut open, mut pairs): (Vec<IpNet>, usize) = (Vec::new(), 0);
    for range in ranges {
        open.retain(|around| around.contains(&range));
        pairs += open.len();
        open.push(range);
    }
    pairs
}

/// What a pool serves from (R39): its range, for a child cut to its holder.
fn base(now: &Now, pool_name: &str) -> IpNet {
    let cidr = net(&now.pools[pool_name].spec.cidr);
    let holder = now
        .holder(pool_name)
        .filter(|holder| settled(holder))
        .map(|h| net(&h.spec.cidr));
    holder.filter(|range| cidr.contains(range)).unwrap_or(cidr)
}

/// The range a claim was told it has, also if it was lost since: that stays promised (R31).
fn promised(claim: &SubnetClaim) -> Option<IpNet> {
    let status = claim.status.as_ref()?;
    let lost = status.phase == Some(ClaimPhase::Error);
    bound(claim).or_else(|| status.allocated_cidr.as_deref().filter(|_| lost).map(net))
}

/// Ranges of a pool that nothing may be granted in.
pub fn held(now: &Now, pool_name: &str) -> Vec<IpNet> {
    let withdrawn = |phase: Option<SubnetPhase>, deleting: bool| match phase {
        Some(SubnetPhase::Failed) => true,
        Some(SubnetPhase::Allocated | SubnetPhase::Released) => false,
        Some(SubnetPhase::Pending) | None => deleting,
    };
    let of_pool = now.subnets.values().filter(|s| s.spec.pool_ref == pool_name);
    let mut held: Vec<IpNet> = of_pool
        .filter(|s| !withdrawn(phase(s), s.metadata.deletion_timestamp.is_some()))
        .map(|s| net(&s.spec.cidr))
        .collect();
    let claims = now.claims.values().filter(|c| c.spec.pool_ref == pool_name);
    held.extend(claims.filter_map(promised));
    held.extend(now.pools[pool_name].spec.exclude.iter().map(|text| net(text)));
    held
}

/// How many blocks of this length a pool could grant now.
pub fn room(now: &Now, pool_name: &str, length: u8) -> u128 {
    let base = base(now, pool_name);
    if length < base.prefix_len() {
        return 0;
    }
    free(base, &held(now, pool_name), length)
}

/// What the status must say; the conditions are left out.
pub fn status(now: &Now, pool_name: &str) -> SubnetPoolStatus {
    let pool = &now.pools[pool_name];
    let base = base(now, pool_name);
    let (width, usual) = if base.addr().is_ipv4() {
        (32_u8, 28_u8)
    } else {
        (128, 64)
    };
    let longest = pool
        .spec
        .max_block_size
        .map_or(usual, |max| u8::try_from(max).unwrap().max(usual));
    let of_pool: Vec<_> = now.subnets.values().filter(|s| s.spec.pool_ref == pool_name).collect();
    let held = held(now, pool_name);
    let claims = || now.claims.values().filter(|c| c.spec.pool_ref == pool_name);

    let mut by_size = BTreeMap::new();
    let mut exact = BTreeMap::new();
    for length in base.prefix_len()..=longest.max(base.prefix_len()) {
        let count = free(base, &held, length);
        by_size.insert(length.to_string(), i64::try_from(count).unwrap_or(i64::MAX));
        if count > (1 << 53) - 1 {
            exact.insert(length.to_string(), count.to_string());
        }
    }
    if let Some(count) = by_size.get("24").copied() {
        by_size.insert("/24".to_owned(), count);
    }
    let largest = (base.prefix_len()..=width).find(|length| free(base, &held, *length) > 0);
    let total = 1_u128 << (width - base.prefix_len());
    let used = total - free(base, &held, width);
    let settled: Vec<_> = of_pool.iter().filter(|s| settled(s)).collect();
    let ranges: Vec<IpNet> = settled.iter().map(|s| net(&s.spec.cidr)).collect();
    let children = now.pools.values().filter(|child| {
        let parent = child.labels().get(PARENT_LABEL);
        parent.is_some_and(|parent| parent == pool_name)
    });
    let said = pool.status.clone().unwrap_or_default();
    // R47: from 500 down to 400 it stays as it was.
    let omitted = settled.len() > 500 || (settled.len() > 400 && said.allocated_cidrs_omitted);
    let waiting = claims().filter(|c| {
        let phase = c.status.as_ref().and_then(|status| status.phase);
        phase != Some(ClaimPhase::Bound) && phase != Some(ClaimPhase::Error)
    });
    let count = |n: usize| i64::try_from(n).unwrap();
    SubnetPoolStatus {
        observed_generation: pool.metadata.generation,
        allocated_count: count(settled.len()),
        free_count_by_size: by_size,
        free_count_exact: exact,
        allocated_cidrs: settled
            .iter()
            .filter(|_| !omitted)
            .map(|s| (net(&s.spec.cidr).to_string(), s.spec.cluster_id.clone()))
            .collect(),
        allocated_cidrs_omitted: omitted,
        largest_free_block: largest.map(|length| format!("/{length}")).unwrap_or_default(),
        used_percent: i64::try_from(used * 100 / total).unwrap(),
        waiting_claims: count(waiting.count()),
        child_pools: count(children.count()),
        out_of_range: count(ranges.iter().filter(|range| !base.contains(*range)).count()),
        overlaps: count(pairs(ranges.clone())),
        recalculated: said.recalculated,
        conditions: Vec::new(),
    }
}

/// Whether the status is what a recount gives; else the two, side by side.
pub fn compare(now: &Now, pool_name: &str) -> Result<(), String> {
    let Some(pool) = now.pools.get(pool_name) else {
        return Err(format!("pool {pool_name} is not there"));
    };
    let Some(said) = &pool.status else {
        return Err(format!("pool {pool_name} has no status"));
    };
    let said = SubnetPoolStatus {
        conditions: Vec::new(),
        ..said.clone()
    };
    let counted = status(now, pool_name);
    if said == counted {
        return Ok(());
    }
    Err(format!(
        "the status says\n  {said:?}\nand a recount gives\n  {counted:?}"
    ))
}
