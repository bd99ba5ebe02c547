//! Which pod has which address (W2). Pure: whoever calls says what time it is.
//!
//! A pod keeps its address for life. One that is given back rests, so that nobody who still knows it talks to another pod
//! by mistake. After a restart the agent says which pods have which ([`Addresses::keep`]); what rested then is forgotten,
//! which is why looking for a free one begins at another place at every start.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;

use jiff::{SignedDuration, Timestamp};

use crate::node::net::Block;

/// How long an address rests once its pod is gone (W2).
pub const REST: SignedDuration = SignedDuration::from_mins(10);

/// Why a pod cannot have an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("all addresses of pods in {0} are in use: delete some pods")]
    AllTaken(Block),
    #[error("{address} is held by the pod with uid {by}")]
    Taken { address: Ipv4Addr, by: String },
}

/// The addresses of a block, and the pods' uids that have them.
#[derive(Debug, Clone)]
pub struct Addresses {
    block: Block,
    held: BTreeMap<Ipv4Addr, String>,
    of: HashMap<String, Ipv4Addr>,
    /// Free ones that were in use, and since when they are free.
    resting: BTreeMap<Ipv4Addr, Timestamp>,
    /// Where to look for the next one: how far into the range.
    next: u32,
}

impl Addresses {
    /// All free. `start` says where looking begins, anywhere.
    #[must_use]
    pub fn new(block: Block, start: u64) -> Self {
        let next = u32::try_from(start % u64::from(count(block))).unwrap_or(0);
        Self {
            block,
            held: BTreeMap::new(),
            of: HashMap::new(),
            resting: BTreeMap::new(),
            next,
        }
    }

    /// The address of a pod.
    #[must_use]
    pub fn of(&self, uid: &str) -> Option<Ipv4Addr> {
        self.of.get(uid).copied()
    }

    /// A pod that was found with this address has it from now on. It may be of another block: the pod was started when
    /// this folder had that one.
    pub fn keep(&mut self, uid: &str, address: Ipv4Addr) -> Result<(), AddressError> {
        let by = match self.held.get(&address) {
            Some(by) if by == uid => return Ok(()),
            Some(by) => Some(by.clone()),
            // It has another one.
            None => self.of.contains_key(uid).then(|| uid.to_owned()),
        };
        if let Some(by) = by {
            return Err(AddressError::Taken { address, by });
        }
        self.resting.remove(&address);
        self.give(uid, address);
        Ok(())
    }

    /// The pod's address: what it has, else one that was never used or has rested, else the one that rested longest.
    pub fn take(&mut self, uid: &str, now: Timestamp) -> Result<Ipv4Addr, AddressError> {
        if let Some(address) = self.of(uid) {
            return Ok(address);
        }
        let count = count(self.block);
        let first = u32::from(*self.block.pods().start());
        let free = (0..count)
            .map(|step| (self.next + step) % count)
            .map(|offset| Ipv4Addr::from(first + offset))
            .find(|address| !self.held.contains_key(address) && !self.rests(*address, now));
        let longest = || {
            let resting = self.resting.iter().filter(|(address, _)| self.is_for_pods(**address));
            resting.min_by_key(|(_, since)| **since).map(|(address, _)| *address)
        };
        let address = free.or_else(longest).ok_or(AddressError::AllTaken(self.block))?;
        self.next = (u32::from(address) - first + 1) % count;
        self.resting.remove(&address);
        self.give(uid, address);
        debug_assert_eq!(
            self.held.len(),
            self.of.len(),
            "a pod has one address, and an address one pod"
        );
        Ok(address)
    }

    /// The pod is gone, and so are all its processes: its address rests.
    pub fn free(&mut self, uid: &str, now: Timestamp) {
        if let Some(address) = self.of.remove(uid) {
            self.held.remove(&address);
            self.resting.insert(address, now);
        }
        // No more than rest at a time.
        self.resting.retain(|_, since| now.duration_since(*since) < REST);
    }

    fn give(&mut self, uid: &str, address: Ipv4Addr) {
        self.held.insert(address, uid.to_owned());
        self.of.insert(uid.to_owned(), address);
    }

    fn rests(&self, address: Ipv4Addr, now: Timestamp) -> bool {
        self.resting
            .get(&address)
            .is_some_and(|since| now.duration_since(*since) < REST)
    }

    fn is_for_pods(&self, address: Ipv4Addr) -> bool {
        self.block.pods().contains(&address)
    }
}

/// How many pods a block has addresses for.
fn count(block: Block) -> u32 {
    u32::from(*block.pods().end()) - u32::from(*block.pods().start()) + 1
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    /// With all but `left` addresses in use.
    fn nearly_full(left: u32) -> Addresses {
        let mut addresses = Addresses::new(Block::default(), 0);
        for number in 0..count(Block::default()) - left {
            addresses.take(&format!("filler-{number}"), at(0)).unwrap();
        }
        addresses
    }

    #[test]
    fn w2_a_pod_asks_twice_and_has_one_address() {
        let mut addresses = Addresses::new(Block::default(), 7);
        let first = addresses.take("a", at(0)).unwrap();
        assert_eq!(addresses.take("a", at(99)).unwrap(), first);
        assert_eq!(first.to_string(), "127.64.1.7");
        assert_ne!(addresses.take("b", at(0)).unwrap(), first);
    }

    #[test]
    fn w2_a_freed_address_rests_for_ten_minutes() {
        let mut addresses = nearly_full(1);
        let address = addresses.take("a", at(0)).unwrap();
        addresses.free("filler-3", at(0));
        addresses.free("a", at(5));
        assert_eq!(addresses.take("b", at(601)).unwrap().to_string(), "127.64.1.3");
        assert_eq!(addresses.take("c", at(606)).unwrap(), address);
        assert_eq!(
            addresses.take("d", at(606)),
            Err(AddressError::AllTaken(Block::default()))
        );
    }

    #[test]
    fn w2_if_all_rest_the_one_that_rested_longest_is_given() {
        let mut addresses = nearly_full(0);
        addresses.free("filler-9", at(20));
        addresses.free("filler-5", at(10));
        addresses.free("filler-7", at(30));
        assert_eq!(addresses.take("a", at(31)).unwrap().to_string(), "127.64.1.5");
        assert_eq!(addresses.take("b", at(31)).unwrap().to_string(), "127.64.1.9");
    }

    #[test]
    fn w2_at_a_start_pods_keep_what_they_have_and_nobody_else_is_given_it() {
        let mut addresses = Addresses::new(Block::default(), 0);
        let kept = Ipv4Addr::new(127, 64, 1, 0);
        addresses.keep("a", kept).unwrap();
        addresses.keep("a", kept).unwrap();
        assert_eq!(addresses.take("b", at(0)).unwrap().to_string(), "127.64.1.1");
        let error = addresses.keep("c", kept).unwrap_err();
        assert_eq!(error.to_string(), "127.64.1.0 is held by the pod with uid a");
        addresses.keep("c", Ipv4Addr::new(127, 99, 1, 0)).unwrap();
        addresses.free("c", at(1));
        assert!(addresses.take("c", at(2)).unwrap() < Ipv4Addr::new(127, 65, 0, 0));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Take(u8),
        Free(u8),
        Wait(u16),
        Restart,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..40_u8).prop_map(Step::Take),
            3 => (0..40_u8).prop_map(Step::Free),
            2 => (0..900_u16).prop_map(Step::Wait),
            1 => Just(Step::Restart),
        ]
    }

    proptest! {
        #[test]
        fn w2_no_address_has_two_pods_changes_under_one_or_comes_back_before_it_rested(
            steps in proptest::collection::vec(step(), 1..200), start in any::<u64>()
        ) {
            let mut addresses = Addresses::new(Block::default(), start);
            let mut has: BTreeMap<u8, Ipv4Addr> = BTreeMap::new();
            let mut freed: BTreeMap<Ipv4Addr, i64> = BTreeMap::new();
            let mut now = 0;
            for step in steps {
                match step {
                    Step::Take(pod) => {
                        let address = addresses.take(&pod.to_string(), at(now)).unwrap();
                        if let Some(before) = has.insert(pod, address) {
                            prop_assert_eq!(before, address);
                        } else if let Some(since) = freed.remove(&address) {
                            prop_assert!(now - since >= 600, "after {} s", now - since);
                        }
                    }
                    Step::Free(pod) => {
                        addresses.free(&pod.to_string(), at(now));
                        if let Some(address) = has.remove(&pod) {
                            freed.insert(address, now);
                        }
                    }
                    Step::Wait(seconds) => now += i64::from(seconds),
                    Step::Restart => {
                        addresses = Addresses::new(Block::default(), start ^ now.unsigned_abs());
                        for (pod, address) in &has {
                            addresses.keep(&pod.to_string(), *address).unwrap();
                        }
                        freed.clear();
                    }
                }
                prop_assert_eq!(has.values().collect::<BTreeSet<_>>().len(), has.len());
                for (pod, address) in &has {
                    prop_assert_eq!(addresses.of(&pod.to_string()), Some(*address));
                }
            }
        }
    }
}
