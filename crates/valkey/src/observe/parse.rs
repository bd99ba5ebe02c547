//! Servers' answers into values. Total: whatever a server says is a value, or a sentence that tells what cannot be read.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;

use super::reply::Reply;
use super::seen::{Flags, Job, JobState, Link, OpenSlot, Peer, RoleSaid, Says};
use crate::words::{Epoch, NodeId, SLOTS, ServerVersion, ShardId, Slot, SlotRange, SlotSet};

/// Why an answer is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read its {what}: {why}")]
pub struct Unreadable {
    what: &'static str,
    why: String,
}

impl Unreadable {
    fn new(what: &'static str, why: impl Into<String>) -> Self {
        Self { what, why: why.into() }
    }
}

/// The lines `name:value` of `INFO` and `CLUSTER INFO`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Info<'t> {
    lines: BTreeMap<&'t str, &'t str>,
}

impl<'t> Info<'t> {
    /// Reads them; what is no such line is passed over.
    pub fn read(text: &'t str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Self {
            lines: lines.filter_map(|line| line.trim_end().split_once(':')).collect(),
        }
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&'t str> {
        self.lines.get(name).copied()
    }

    /// The same as a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    /// Whether it says so: `name:1`, `name:up`.
    pub fn is(&self, name: &str, value: &str) -> bool {
        self.get(name) == Some(value)
    }

    /// `valkey_version`; older servers and their forks have `redis_version` only.
    pub fn version(&self) -> Option<ServerVersion> {
        ServerVersion::parse(self.get("valkey_version").or_else(|| self.get("redis_version"))?)
    }
}

/// `CLUSTER NODES`: everybody that a server knows, and who it is itself.
pub fn nodes(text: &str) -> Result<(Option<NodeId>, BTreeMap<NodeId, Peer>), Unreadable> {
    let mut view = BTreeMap::new();
    let mut myself = None;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (id, peer, is_myself) =
            node(line).map_err(|why| Unreadable::new("CLUSTER NODES", format!("{why} in {line:?}")))?;
        if is_myself {
            myself = Some(id.clone());
        }
        view.insert(id, peer);
    }
    Ok((myself, view))
}

/// `id address flags primary ping pong epoch link slot…`
fn node(line: &str) -> Result<(NodeId, Peer, bool), String> {
    let mut words = line.split_ascii_whitespace();
    let mut next = |what: &str| words.next().ok_or_else(|| format!("there is no {what}"));
    let id = NodeId::parse(next("id")?).map_err(|error| error.to_string())?;
    let address = address(next("address")?);
    let (flags, is_myself) = flags(next("flags")?);
    let primary = match next("primary")? {
        "-" => None,
        primary => Some(NodeId::parse(primary).map_err(|error| error.to_string())?),
    };
    next("time of the last ping")?;
    next("time of the last pong")?;
    let epoch = next("epoch")?;
    let epoch = epoch.parse().map_err(|_| format!("the epoch {epoch:?} is no number"))?;
    let connected = next("link")? == "connected";
    let (mut ranges, mut open) = (Vec::new(), Vec::new());
    for word in words {
        match word.strip_prefix('[').and_then(|word| word.strip_suffix(']')) {
            Some(marker) => open.push(open_slot(marker).ok_or_else(|| format!("{word} is no open slot"))?),
            None => ranges.push(range(word).ok_or_else(|| format!("{word} is no range of slots"))?),
        }
    }
    let peer = Peer {
        address,
        flags,
        primary,
        connected,
        epoch: Epoch(epoch),
        slots: SlotSet::of(ranges),
        open,
    };
    Ok((id, peer, is_myself))
}

/// `ip:port@bus[,hostname][,name=value…]`, split from the right: an IPv6 address has colons itself. `None` where nobody
/// knows it.
fn address(word: &str) -> Option<IpAddr> {
    let place = word.split(',').next()?;
    let place = place.rsplit_once('@').map_or(place, |(place, _)| place);
    let (ip, _) = place.rsplit_once(':')?;
    ip.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// A set; what is not known is passed over.
fn flags(words: &str) -> (Flags, bool) {
    let (mut flags, mut is_myself) = (Flags::default(), false);
    for word in words.split(',') {
        match word {
            "myself" => is_myself = true,
            "master" => flags.primary = true,
            "slave" => flags.replica = true,
            "fail?" => flags.suspected = true,
            "fail" => flags.failed = true,
            "handshake" => flags.handshake = true,
            "noaddr" => flags.no_address = true,
            _ => {}
        }
    }
    (flags, is_myself)
}

/// `0-5460` or `7`.
fn range(word: &str) -> Option<SlotRange> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let (first, last) = (slot(first)?, slot(last)?);
    (first <= last).then_some(SlotRange { first, last })
}

fn slot(word: &str) -> Option<Slot> {
    word.parse().ok().filter(|slot| *slot < SLOTS).map(Slot)
}

/// `7->-id` or `7-<-id`.
fn open_slot(marker: &str) -> Option<OpenSlot> {
    if let Some((number, to)) = marker.split_once("->-") {
        let (slot, to) = (slot(number)?, NodeId::parse(to).ok()?);
        return Some(OpenSlot::Migrating { slot, to });
    }
    let (number, from) = marker.split_once("-<-")?;
    let (slot, from) = (slot(number)?, NodeId::parse(from).ok()?);
    Some(OpenSlot::Importing { slot, from })
}

/// `ROLE`, and from `INFO replication` what it leaves out.
pub fn role(role: &Reply, replication: &Info<'_>) -> Result<RoleSaid, Unreadable> {
    let wrong = || Unreadable::new("ROLE", format!("{role:?}"));
    let parts = role.list().ok_or_else(wrong)?;
    let part = |at: usize| parts.get(at);
    // -1 while nothing was read yet.
    let offset = |at: usize| {
        let offset = part(at).and_then(Reply::number);
        offset.map(|offset| u64::try_from(offset).unwrap_or(0))
    };
    match part(0).and_then(Reply::text).as_deref() {
        Some("master") => Ok(RoleSaid::Primary {
            offset: offset(1).ok_or_else(wrong)?,
            replicas: part(2)
                .and_then(Reply::list)
                .unwrap_or_default()
                .iter()
                .filter_map(replica)
                .collect(),
        }),
        Some("slave") => {
            let link = if replication.is("master_sync_in_progress", "1") {
                Link::Syncing
            } else if replication.is("master_link_status", "up") {
                Link::Up
            } else {
                Link::Down
            };
            let offset = offset(4).ok_or_else(wrong)?;
            Ok(RoleSaid::Replica { link, offset })
        }
        _ => Err(wrong()),
    }
}

/// `[ip, port, offset]`.
fn replica(reply: &Reply) -> Option<(IpAddr, u64)> {
    let parts = reply.list()?;
    let ip = parts.first()?.text()?.parse().ok()?;
    Some((ip, u64::try_from(parts.get(2)?.number()?).ok()?))
}

/// `CLUSTER GETSLOTMIGRATIONS`: each a list of names and values. One that lacks what makes it a job is passed over.
pub fn jobs(reply: &Reply) -> Result<Vec<Job>, Unreadable> {
    let listed = reply.list();
    let listed = listed.ok_or_else(|| Unreadable::new("CLUSTER GETSLOTMIGRATIONS", format!("{reply:?}")))?;
    Ok(listed.iter().filter_map(job).collect())
}

fn job(reply: &Reply) -> Option<Job> {
    let (pairs, _) = reply.list()?.as_chunks::<2>();
    let field = |wanted: &str| {
        pairs
            .iter()
            .find(|[name, _]| name.text().is_some_and(|name| name == wanted))
            .map(|[_, value]| value)
    };
    let text = |name: &str| Some(field(name)?.text()?.into_owned());
    let node = |name: &str| NodeId::parse(&text(name)?).ok();
    let ranges: Option<Vec<SlotRange>> = text("slot_ranges")?.split_ascii_whitespace().map(range).collect();
    let word = text("state")?;
    let state = match word.as_str() {
        "success" => JobState::Success,
        "failed" => JobState::Failed,
        "cancelled" | "canceled" => JobState::Cancelled,
        under_way => JobState::InFlight(under_way.into()),
    };
    Some(Job {
        name: text("name")?.as_str().into(),
        exports: text("operation")? == "EXPORT",
        source: node("source_node")?,
        target: node("target_node")?,
        slots: SlotSet::of(ranges?),
        state,
        message: text("message").unwrap_or_default(),
        updated: field("last_update_time")
            .and_then(Reply::number)
            .and_then(|seconds| Timestamp::from_second(seconds).ok()),
        remaining: field("remaining_repl_size")
            .and_then(Reply::number)
            .and_then(|bytes| u64::try_from(bytes).ok()),
    })
}

/// The number behind a setting's name, as `CONFIG GET` answers.
fn setting(reply: &Reply) -> Option<u16> {
    let [_, value] = reply.list()? else {
        return None;
    };
    u16::try_from(value.number()?).ok()
}

/// The answers to [`super::ask::QUESTIONS`], in their order.
pub fn says(replies: &[Reply]) -> Result<Says, Unreadable> {
    let [id, shard, state, view, info, role_reply, keys, migrations, config @ ..] = replies else {
        let why = format!("{} answers, which are too few", replies.len());
        return Err(Unreadable::new("answers", why));
    };
    let id_of = |reply: &Reply| reply.text().unwrap_or_default().into_owned();
    let id = NodeId::parse(&id_of(id)).map_err(|error| Unreadable::new("CLUSTER MYID", error.to_string()))?;
    let shard =
        ShardId::parse(&id_of(shard)).map_err(|error| Unreadable::new("CLUSTER MYSHARDID", error.to_string()))?;
    let told = |what, reply: &Reply| match reply.text() {
        Some(text) => Ok(text.into_owned()),
        None => Err(Unreadable::new(what, format!("{reply:?}"))),
    };
    let (state, view, info) = (
        told("CLUSTER INFO", state)?,
        told("CLUSTER NODES", view)?,
        told("INFO", info)?,
    );
    let (state, info) = (Info::read(&state), Info::read(&info));
    let (myself, view) = nodes(&view)?;
    if myself.as_ref() != Some(&id) {
        // Between two answers it was reset: what it says does not belong together.
        return Err(Unreadable::new(
            "CLUSTER NODES",
            format!("it does not call {id} itself"),
        ));
    }
    let version = info
        .version()
        .ok_or_else(|| Unreadable::new("INFO server", "no version"))?;
    Ok(Says {
        role: role(role_reply, &info)?,
        state_ok: state.is("cluster_state", "ok"),
        current_epoch: Epoch(state.number("cluster_current_epoch").unwrap_or_default()),
        keys: keys
            .number()
            .and_then(|keys| u64::try_from(keys).ok())
            .ok_or_else(|| Unreadable::new("DBSIZE", format!("{keys:?}")))?,
        min_replicas: config.first().and_then(setting),
        jobs: match migrations {
            Reply::Refusal(_) if !version.moves_slots_atomically() => Vec::new(),
            answer => jobs(answer)?,
        },
        id,
        shard,
        version,
        view,
    })
}

#[cfg(test)]
mod tests;
