//! Which addresses and ports Services have: what the store says, and what writes in flight have reserved.
//!
//! The store compares one key with itself, so two creates at once could both find an address free. Therefore whoever takes
//! one reserves it here first, under one lock, and holds the [`Reserved`] until its write is done or has failed. Nothing is
//! kept that the store does not say again after a restart.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::registry::object;
use crate::store::{Entry, Key, Revision, Store};

/// Ports that nodes give to Services.
pub(super) const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;
/// The lower part of each range is for those who choose themselves, as in the reference.
const CHOSEN_ADDRESSES: u32 = 256;
const CHOSEN_PORTS: u32 = 86;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Claim {
    Address(Ipv4Addr),
    Port(u16),
}

/// Why a claim cannot be had, in the reference's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("provided IP is already allocated")]
    AddressTaken,
    #[error("the provided IP ({0}) is not in the valid range. The range of valid IPs is {1}")]
    AddressOutside(Ipv4Addr, String),
    #[error("provided port is already allocated")]
    PortTaken,
    #[error("provided port is not in the valid range. The range of valid ports is {}-{}", NODE_PORTS.start(), NODE_PORTS.end())]
    PortOutside,
    #[error("range is full")]
    Full,
}

/// The book of a cluster. Clones are the same one.
#[derive(Debug, Clone)]
pub(in crate::admission) struct Book {
    /// The second number of 127.B.0.0/16 (W1).
    block: u8,
    pages: Arc<Mutex<Pages>>,
}

#[derive(Debug, Default)]
struct Pages {
    /// Claims of writes in flight.
    reserved: BTreeSet<Claim>,
    /// Services whose write may not yet be shown: asked by key until it is.
    unsettled: BTreeSet<Key>,
    /// Claims of stored Services, read once for each revision.
    read: HashMap<Key, (Revision, Vec<Claim>)>,
}

/// Claims of one write; free again when dropped, unless the store has them by then.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    book: Option<Book>,
    key: Option<Key>,
    claims: Vec<Claim>,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let Some(book) = &self.book else {
            return;
        };
        let mut pages = book.pages.lock().unwrap_or_else(PoisonError::into_inner);
        for claim in &self.claims {
            pages.reserved.remove(claim);
        }
        // A request that was given up may have left a write that waits for its commit.
        pages.unsettled.extend(self.key.take());
    }
}

/// One Service's turn at the book: nobody else takes anything meanwhile.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    book: &'a Book,
    pages: std::sync::MutexGuard<'a, Pages>,
    /// Of others, by what the store says.
    stored: HashSet<Claim>,
    mine: Vec<Claim>,
    key: Key,
    /// Where looking for a free one starts: without chance, but not always at the same place, so that what was just
    /// given back is not at once another's.
    start: u32,
    dry_run: bool,
}

impl Book {
    pub(in crate::admission) fn new(block: u8) -> Self {
        Self {
            block,
            pages: Arc::default(),
        }
    }

    fn first(&self) -> u32 {
        u32::from(Ipv4Addr::new(127, self.block, 224, 0))
    }

    fn last(&self) -> u32 {
        u32::from(Ipv4Addr::new(127, self.block, 255, 255))
    }

    pub(super) fn turn(&self, store: &Store, key: Key, seed: &str, dry_run: bool) -> Turn<'_> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = pages.stored(store, &key);
        Turn {
            book: self,
            pages,
            stored,
            mine: Vec::new(),
            key,
            start: scatter(seed),
            dry_run,
        }
    }
}

impl Pages {
    /// The claims of all Services but one.
    fn stored(&mut self, store: &Store, but: &Key) -> HashSet<Claim> {
        let mut entries: BTreeMap<Key, Entry> = match store.list(&Key::prefix("", "services", None), None, None, 0) {
            Ok(page) => page
                .entries
                .into_iter()
                .map(|entry| (entry.key.clone(), entry))
                .collect(),
            Err(_) => BTreeMap::new(),
        };
        self.unsettled.retain(|key| match (store.head(key), entries.get(key)) {
            (Some(head), Some(shown)) if head.revision == shown.revision => false,
            (Some(head), _) => {
                entries.insert(key.clone(), head);
                true
            }
            // Going, or gone.
            (None, shown) => shown.is_some(),
        });
        self.read.retain(|key, _| entries.contains_key(key));
        for (key, entry) in &entries {
            if self
                .read
                .get(key)
                .is_none_or(|(revision, _)| *revision != entry.revision)
            {
                let claims = object::decode(entry)
                    .map(|service| claims(&service))
                    .unwrap_or_default();
                self.read.insert(key.clone(), (entry.revision, claims));
            }
        }
        self.read
            .iter()
            .filter(|(key, _)| *key != but)
            .flat_map(|(_, (_, claims))| claims.iter().copied())
            .collect()
    }
}

impl Turn<'_> {
    fn is_free(&self, claim: Claim) -> bool {
        !self.stored.contains(&claim) && !self.pages.reserved.contains(&claim) && !self.mine.contains(&claim)
    }

    /// An address that the Service asked for, or had.
    pub(super) fn take_address(&mut self, address: Ipv4Addr) -> Result<(), Refusal> {
        let number = u32::from(address);
        if number <= self.book.first() || number >= self.book.last() {
            return Err(Refusal::AddressOutside(
                address,
                format!("{}/19", Ipv4Addr::from(self.book.first())),
            ));
        }
        self.take(Claim::Address(address), Refusal::AddressTaken)
    }

    pub(super) fn take_port(&mut self, port: i64) -> Result<(), Refusal> {
        let port = u16::try_from(port)
            .ok()
            .filter(|port| NODE_PORTS.contains(port))
            .ok_or(Refusal::PortOutside)?;
        self.take(Claim::Port(port), Refusal::PortTaken)
    }

    fn take(&mut self, claim: Claim, taken: Refusal) -> Result<(), Refusal> {
        if !self.is_free(claim) {
            return Err(taken);
        }
        self.mine.push(claim);
        Ok(())
    }

    pub(super) fn any_address(&mut self) -> Result<Ipv4Addr, Refusal> {
        let first = self.book.first();
        if self.dry_run {
            // As the reference: no address is looked for that is not to be had.
            return Ok(Ipv4Addr::from(first));
        }
        let count = self.book.last() - first - 1;
        let free = upper_first(count, CHOSEN_ADDRESSES, self.start)
            .map(|offset| Ipv4Addr::from(first + 1 + offset))
            .find(|address| self.is_free(Claim::Address(*address)))
            .ok_or(Refusal::Full)?;
        self.mine.push(Claim::Address(free));
        Ok(free)
    }

    pub(super) fn any_port(&mut self) -> Result<u16, Refusal> {
        let (first, last) = (u32::from(*NODE_PORTS.start()), u32::from(*NODE_PORTS.end()));
        let free = upper_first(last - first + 1, CHOSEN_PORTS, self.start)
            .filter_map(|offset| u16::try_from(first + offset).ok())
            .find(|port| self.is_free(Claim::Port(*port)))
            .ok_or(Refusal::Full)?;
        self.mine.push(Claim::Port(free));
        Ok(free)
    }

    /// The end of the turn: what was taken is held for the write.
    pub(super) fn hold(mut self) -> Reserved {
        if self.dry_run {
            return Reserved::default();
        }
        self.pages.reserved.extend(self.mine.iter().copied());
        Reserved {
            book: Some(self.book.clone()),
            key: Some(self.key),
            claims: self.mine,
        }
    }
}

/// Numbers below `count`, each once: from `start` on through the upper part, then through the `chosen` lowest.
fn upper_first(count: u32, chosen: u32, start: u32) -> impl Iterator<Item = u32> {
    let upper = count.saturating_sub(chosen).max(1);
    let lower = count - upper;
    let above = (0..upper).map(move |step| lower + (start % upper + step) % upper);
    above.chain((0..lower).map(move |step| (start % lower.max(1) + step) % lower.max(1)))
}

/// FNV-1a: the same for the same uid on every machine.
fn scatter(seed: &str) -> u32 {
    seed.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// What a Service has.
pub(super) fn claims(service: &Value) -> Vec<Claim> {
    let Some(spec) = service.get("spec") else {
        return Vec::new();
    };
    let list = |field: &str| spec.get(field).and_then(Value::as_array).into_iter().flatten();
    let addresses = list("clusterIPs")
        .filter_map(|address| address.as_str()?.parse().ok())
        .map(Claim::Address);
    let ports = list("ports")
        .filter_map(|port| port.get("nodePort"))
        .chain(spec.get("healthCheckNodePort"))
        .filter_map(|port| u16::try_from(port.as_u64()?).ok())
        .filter(|port| *port != 0)
        .map(Claim::Port);
    addresses.chain(ports).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_a_range_is_tried_once_and_the_lowest_last() {
        let mut tried: Vec<u32> = upper_first(10, 3, 25).collect();
        assert!(tried[..7].iter().all(|number| *number >= 3), "{tried:?}");
        tried.sort_unstable();
        assert_eq!(tried, (0..10).collect::<Vec<_>>());
    }
}
