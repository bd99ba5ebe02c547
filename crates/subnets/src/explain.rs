//! Why an object is as it is, for people: what it waits for, who is before it, and what would end the wait.
//!
//! Read from the view alone, by `usher explain`; nothing is planned and nothing is asked. What only the running operator
//! knows (grants, the block kept for a claim) is told by the object's own status, which is shown as well.

use ipnet::IpNet;
use jiff::Timestamp;
use serde::Serialize;
use usher_engine::{Condition, ConditionStatus, ObjectKey};
use usher_operator::view::View;

use crate::kinds::{CLAIM, POOL, POOL_CLAIM, SUBNET};
use crate::ledger::{Account, Holder, Ledger};
use crate::observe;
use crate::plan::{PoolState, Request, request};
use crate::records::{Ask, ClaimRecord, PoolClaimRecord, PoolRecord, SubnetRecord};
use crate::wake::{BY_PARENT, BY_POOL};

/// How many of many are named.
const NAMED: usize = 5;

/// See the module's header.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What it is.
    pub kind: &'static str,
    /// Which.
    pub resource: ObjectKey,
    /// How it stands, in one sentence.
    pub summary: String,
    /// Its place among those who wait, where it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// What else there is to know, in order.
    pub facts: Vec<Fact>,
}

/// A place in a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Queue {
    /// From 1.
    pub place: usize,
    /// How many wait in all.
    pub of: usize,
    /// The first of those who are before it.
    pub ahead: Vec<String>,
}

/// One thing to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// What it is about.
    pub about: &'static str,
    /// In a sentence.
    pub text: String,
}

impl Explanation {
    fn new(kind: &'static str, resource: &ObjectKey, summary: String) -> Self {
        Self {
            kind,
            resource: resource.clone(),
            summary,
            queue: None,
            facts: Vec::new(),
        }
    }

    fn fact(&mut self, about: &'static str, text: impl Into<String>) {
        self.facts.push(Fact {
            about,
            text: text.into(),
        });
    }

    /// As people read it.
    pub fn text(&self) -> String {
        let mut lines = vec![format!("{} {}: {}", self.kind, self.resource, self.summary)];
        if let Some(queue) = &self.queue {
            let ahead = match queue.ahead.is_empty() {
                true => "nobody is before it".to_owned(),
                false => format!("before it: {}", named(&queue.ahead, queue.place - 1)),
            };
            lines.push(format!("  {:<9} {} of {}; {ahead}", "queue", queue.place, queue.of));
        }
        lines.extend(
            self.facts
                .iter()
                .map(|fact| format!("  {:<9} {}", fact.about, fact.text)),
        );
        lines.join("\n") + "\n"
    }
}

/// `a, b and 3 more`
fn named(names: &[String], of: usize) -> String {
    let more = of.saturating_sub(names.len());
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

fn account<'v>(view: &'v View, pool: &ObjectKey) -> Option<&'v Account> {
    view.derived::<Ledger>()?.account(pool)
}

/// Explains one object; `None` where it is not in view.
pub fn explain(view: &View, kind: &str, key: &ObjectKey, now: Timestamp) -> Option<Explanation> {
    match kind {
        CLAIM => view.get::<ClaimRecord>(key).map(|record| claim(view, record, now)),
        POOL => view.get::<PoolRecord>(key).map(|record| pool(view, record)),
        SUBNET => view.get::<SubnetRecord>(key).map(|record| subnet(view, record)),
        POOL_CLAIM => view.get::<PoolClaimRecord>(key).map(|record| pool_claim(view, record)),
        _ => None,
    }
}

/// The reason and message of Ready, where it is not True.
fn unready(conditions: &[Condition]) -> Option<(&str, &str)> {
    let ready = conditions.iter().find(|c| c.type_ == "Ready")?;
    (ready.status != ConditionStatus::True).then_some((ready.reason.as_str(), ready.message.as_str()))
}

fn ago(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn claim(view: &View, claim: &ClaimRecord, now: Timestamp) -> Explanation {
    let key = &claim.meta.key;
    let asks = match claim.ask {
        Ask::Default => "a block of the default size".to_owned(),
        Ask::Length(length) => format!("a /{length}"),
        Ask::Exact(cidr) => format!("just {cidr}"),
    };
    let status = claim.status();
    let summary = match (claim.bound(), unready(&status.conditions)) {
        (Some(range), None) => format!("Bound to {range} of pool {}", claim.pool),
        (_, Some((reason, message))) => format!("{reason}: {message}"),
        (None, None) => "nothing was said about it yet".to_owned(),
    };
    let mut explanation = Explanation::new(CLAIM, key, summary);
    explanation.fact(
        "asks",
        format!("{asks} of pool {} for clusterID {}", claim.pool, claim.cluster_id),
    );
    if let Some(subnet) = claim.subnet_ref() {
        explanation.fact("has", format!("Subnet {subnet}"));
    }
    if claim.bound().is_some() {
        return explanation;
    }
    explanation.fact(
        "since",
        format!("{}, {} ago", claim.meta.created, ago(claim.meta.created.into(), now)),
    );
    let Some(pool_key) = key.sibling(&claim.pool) else {
        return explanation;
    };
    let Some(pool) = view.get::<PoolRecord>(&pool_key) else {
        explanation.fact("ends", format!("when pool {} is created", claim.pool));
        return explanation;
    };
    let standing = observe::standing(view, pool);
    if standing.state() != PoolState::Serving {
        explanation.fact("pool", standing.sentence());
        return explanation;
    }
    let Some(account) = account(view, &pool_key) else {
        return explanation;
    };
    if let Some(ahead) = account.line.ahead_of(&claim.meta.uid) {
        explanation.queue = Some(Queue {
            place: ahead + 1,
            of: account.line.count(),
            ahead: before(account, claim),
        });
    }
    let serving = standing.serving().unwrap_or(pool.cidr);
    match request(claim.ask, pool, serving) {
        Ok(Request::Exact(cidr)) => in_the_way(account, cidr, &mut explanation),
        Ok(Request::Length(length)) => {
            let map = account.map.as_ref();
            let fits = map.is_some_and(|map| map.first_fit(length).is_some());
            if fits {
                explanation.fact("room", format!("there is a free /{length}; it is served next"));
            } else if let Some(block) = map.and_then(|map| map.emptiest(length, &pool.exclude)) {
                explanation.fact("nearest", format!("{block} is the emptiest block of that size"));
                in_the_way(account, block, &mut explanation);
            }
        }
        Err(problem) => explanation.fact("never", problem),
    }
    explanation
}

/// The oldest of those who are served before this claim.
fn before(account: &Account, claim: &ClaimRecord) -> Vec<String> {
    let mine = (claim.meta.created, &claim.meta.key);
    let mut ahead: Vec<_> = account
        .line
        .lines()
        .flat_map(|(_, _, line)| line.map(|other| &other.place).take(NAMED))
        .filter(|place| (place.created, &place.claim) < mine)
        .collect();
    ahead.sort();
    ahead
        .iter()
        .take(NAMED)
        .map(|place| place.claim.name().to_owned())
        .collect()
}

/// Who has what somebody waits for.
fn in_the_way(account: &Account, cidr: IpNet, explanation: &mut Explanation) {
    let Some(map) = &account.map else { return };
    let mut holders: Vec<String> = Vec::new();
    let mut count = 0;
    for (range, holder) in map.overlapping(cidr) {
        let name = match holder {
            Holder::Subnet(uid) => account.subnets.get(uid).map(|subnet| whose(subnet, range)),
            Holder::Excluded => Some(format!("the pool's exclusion {range}")),
            // Their Subnets are named.
            Holder::Claim(_) | Holder::Grant(_) | Holder::Unseen(_) => None,
        };
        if let Some(name) = name {
            count += 1;
            if holders.len() < NAMED {
                holders.push(name);
            }
        }
    }
    if !holders.is_empty() {
        explanation.fact("held by", named(&holders, count));
    }
}

/// A Subnet, and for whom it is.
fn whose(subnet: &SubnetRecord, range: IpNet) -> String {
    let claims = subnet.claim_owners().map(|owner| format!("claim {}", owner.name));
    let child = subnet.child().map(|pool| format!("pool {}", pool.name));
    let by = claims.chain(child).collect::<Vec<_>>().join(", ");
    match by.is_empty() {
        true => format!("Subnet {} ({range}), made by hand", subnet.meta.key.name()),
        false => format!("Subnet {} ({range}) of {by}", subnet.meta.key.name()),
    }
}

fn pool(view: &View, pool: &PoolRecord) -> Explanation {
    let key = &pool.meta.key;
    let standing = observe::standing(view, pool);
    let mut explanation = Explanation::new(POOL, key, standing.sentence());
    let status = &pool.status;
    explanation.fact(
        "has",
        format!(
            "{} allocated, {} % used, largest free block {}",
            status.allocated_count,
            status.used_percent,
            if status.largest_free_block.is_empty() {
                "none"
            } else {
                &status.largest_free_block
            }
        ),
    );
    for (type_, about) in [("Exhausted", "room"), ("Conflicted", "conflict")] {
        let condition = status.conditions.iter().find(|c| c.type_ == type_);
        if let Some(condition) = condition.filter(|c| c.status == ConditionStatus::True) {
            explanation.fact(about, format!("{}: {}", condition.reason, condition.message));
        }
    }
    if let Some(account) = account(view, key) {
        let mut waiting: Vec<_> = account
            .line
            .lines()
            .flat_map(|(_, _, line)| line.map(|claim| &claim.place).take(NAMED))
            .collect();
        waiting.sort();
        let names: Vec<String> = waiting.iter().take(NAMED).map(|p| p.claim.name().to_owned()).collect();
        if !names.is_empty() {
            explanation.fact("queue", named(&names, account.line.count()));
        }
    }
    let children: Vec<String> = view
        .by::<PoolRecord>(BY_PARENT, key.namespace(), key.name().into())
        .map(|child| child.meta.key.name().to_owned())
        .collect();
    if !children.is_empty() {
        let first: Vec<String> = children.iter().take(NAMED).cloned().collect();
        explanation.fact("children", named(&first, children.len()));
    }
    if let Some(holder) = standing.holder() {
        explanation.fact(
            "held by",
            format!(
                "Subnet {} ({}) of pool {}",
                holder.meta.key.name(),
                holder.cidr,
                holder.pool
            ),
        );
    }
    if pool.meta.deleting.is_some() {
        let left: Vec<_> = view
            .by::<SubnetRecord>(BY_POOL, key.namespace(), key.name().into())
            .filter(|subnet| !subnet.withdrawn())
            .collect();
        let first: Vec<String> = left
            .iter()
            .take(NAMED)
            .map(|subnet| whose(subnet, subnet.cidr))
            .collect();
        explanation.fact("ends", format!("when these are gone: {}", named(&first, left.len())));
    }
    explanation
}

fn subnet(view: &View, subnet: &SubnetRecord) -> Explanation {
    let key = &subnet.meta.key;
    let phase = match subnet.phase() {
        Some(phase) => format!("{phase:?}"),
        None => "no phase yet".to_owned(),
    };
    let message = subnet.message().map(|message| format!(": {message}"));
    let summary = format!(
        "{} of pool {}, {phase}{}",
        subnet.cidr,
        subnet.pool,
        message.unwrap_or_default()
    );
    let mut explanation = Explanation::new(SUBNET, key, summary);
    explanation.fact("whose", whose(subnet, subnet.cidr));
    let children: Vec<&str> = view
        .derived::<Ledger>()
        .into_iter()
        .flat_map(|ledger| ledger.children(&subnet.cluster_id))
        .map(|pool| pool.meta.key.name())
        .collect();
    if !children.is_empty() {
        explanation.fact("holds", format!("the range of pool {}", children.join(", ")));
    }
    if let Some(marked) = subnet.meta.deleting {
        explanation.fact(
            "deleted",
            format!("at {marked}; it goes when nobody has its range any more"),
        );
    }
    explanation
}

fn pool_claim(view: &View, claim: &PoolClaimRecord) -> Explanation {
    let key = &claim.meta.key;
    let summary = match (&claim.status.bound_pool_name, unready(&claim.status.conditions)) {
        (_, Some((reason, message))) => format!("{reason}: {message}"),
        (Some(pool), None) => format!("Bound to pool {pool}"),
        (None, None) => "nothing was said about it yet".to_owned(),
    };
    let mut explanation = Explanation::new(POOL_CLAIM, key, summary);
    explanation.fact(
        "asks",
        format!("a pool of a /{} of pool {}", claim.length, claim.parent),
    );
    let seen = observe::pool_claim(view, claim);
    for internal in &seen.claims {
        let phase = internal
            .phase()
            .map_or("no phase yet".to_owned(), |phase| format!("{phase:?}"));
        explanation.fact("claim", format!("{}, {phase}", internal.meta.key.name()));
    }
    if let Some(holder) = seen.holder {
        explanation.fact("holder", format!("Subnet {} ({})", holder.meta.key.name(), holder.cidr));
    }
    for pool in &seen.pools {
        let state = observe::standing(view, pool).sentence();
        explanation.fact("pool", state);
    }
    explanation
}
