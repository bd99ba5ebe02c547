//! R15: the block to keep for a claim that fits nowhere.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Debug;

use ipnet::IpNet;

use super::AddressMap;
use super::block::Block;
use super::free::FreeSpace;

impl<W: Clone + Ord + Debug> AddressMap<W> {
    /// The aligned block of this length with the fewest held addresses, the lowest of those; never one that overlaps
    /// `never`, which nobody will give back.
    ///
    /// Costs as much as there are free blocks: it is asked once for a claim that has waited for minutes, never on the
    /// path of an event.
    pub fn emptiest(&self, len: u8, never: &[IpNet]) -> Option<IpNet> {
        let base = self.free.base();
        if len < base.len || len > base.family.width() {
            return None;
        }
        let never: Vec<Block> = never.iter().map(|net| Block::of(*net)).collect();
        let possible = |block: &Block| !never.iter().any(|n| n.contains(*block) || block.contains(*n));
        let mut room: BTreeMap<u128, u128> = BTreeMap::new();
        for free in self.free.set().iter() {
            if free.len <= len {
                // All of one is free. It is the emptiest there is, if it may be had at all.
                let block = free.lowest(len);
                room.insert(block.bits, u128::MAX);
            } else {
                // Addresses in units of the longest length there is; a block that is not all free never has 2^128.
                let size = 1u128 << (128 - free.len.min(128));
                let sum = room.entry(free.ancestor(len).bits).or_default();
                *sum = sum.saturating_add(size);
            }
        }
        let block = |bits: u128| Block { bits, len, ..base };
        room.iter()
            .filter(|(bits, _)| possible(&block(**bits)))
            .min_by_key(|(bits, free)| (Reverse(**free), **bits))
            .map(|(bits, _)| block(*bits))
            .or_else(|| lowest_possible(base, len, &never))
            .map(Block::net)
    }
}

/// The lowest block of this length that overlaps none of `never`: where nothing is free, all are equally full.
fn lowest_possible(base: Block, len: u8, never: &[Block]) -> Option<Block> {
    let after = |block: Block| match block.len {
        0 => None,
        len => block.bits.checked_add(1u128 << (128 - len.min(128))),
    };
    let mut block = base.lowest(len);
    loop {
        let Some(in_the_way) = never.iter().find(|n| n.contains(block) || block.contains(**n)) else {
            return Some(block);
        };
        // The bigger of the two ends at a boundary of this length.
        let next = if in_the_way.contains(block) {
            after(*in_the_way)
        } else {
            after(block)
        };
        block = Block { bits: next?, ..block };
        if !base.contains(block) {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn the_block_with_the_fewest_held_addresses_is_the_target() {
        let mut map = AddressMap::new(net("10.0.0.0/22"));
        for held in [
            "10.0.0.0/25",
            "10.0.1.0/26",
            "10.0.2.0/24",
            "10.0.3.0/25",
            "10.0.3.128/26",
        ] {
            map.hold(net(held), held);
        }
        assert_eq!(map.emptiest(24, &[]), Some(net("10.0.1.0/24")), "R15");
        assert_eq!(
            map.emptiest(24, &[net("10.0.1.64/28")]),
            Some(net("10.0.0.0/24")),
            "never in an exclusion"
        );
        assert_eq!(map.emptiest(21, &[]), None);
    }

    #[test]
    fn of_equally_full_blocks_the_lowest_is_the_target() {
        let mut map = AddressMap::new(net("10.0.0.0/24"));
        map.hold(net("10.0.0.0/24"), 1);
        assert_eq!(map.emptiest(26, &[]), Some(net("10.0.0.0/26")));
        assert_eq!(
            map.emptiest(26, &[net("10.0.0.0/25"), net("10.0.0.129/32")]),
            Some(net("10.0.0.192/26"))
        );
        assert_eq!(map.emptiest(26, &[net("10.0.0.0/24")]), None);
    }

    proptest! {
        /// R15 against counting by hand, in a pool of 64 addresses.
        #[test]
        fn the_target_is_what_counting_says(
            held in prop::collection::vec((0u8..64, 26u8..=32), 0..12),
            never in prop::collection::vec((0u8..64, 28u8..=32), 0..3),
            len in 26u8..=32,
        ) {
            let of = |(bit, len): (u8, u8)| IpNet::from(ipnet::Ipv4Net::new([10, 0, 0, bit].into(), len).unwrap()).trunc();
            let mut map = AddressMap::new(net("10.0.0.0/26"));
            let never: Vec<IpNet> = never.into_iter().map(of).collect();
            let held: Vec<IpNet> = held.into_iter().map(of).collect();
            for (who, cidr) in held.iter().chain(&never).enumerate() {
                map.hold(*cidr, who);
            }
            let address = |a: u8| IpNet::from(ipnet::Ipv4Net::new([10, 0, 0, a].into(), 32).unwrap());
            let taken = |block: &IpNet| (0..64).map(address).filter(|a| block.contains(a)
                && held.iter().chain(&never).any(|h| h.contains(a))).count();
            let best = net("10.0.0.0/26").subnets(len).unwrap()
                .filter(|block| !never.iter().any(|n| n.contains(block) || block.contains(n)))
                .min_by_key(|block| (taken(block), block.network()));
            prop_assert_eq!(map.emptiest(len, &never), best);
        }

        /// An overlay with a range withheld answers as a map that holds it.
        #[test]
        fn a_withheld_range_is_as_good_as_held(
            held in prop::collection::vec((0u8..64, 26u8..=32), 0..8),
            withheld in prop::collection::vec((0u8..64, 25u8..=32), 0..3),
            takes in prop::collection::vec(26u8..=32, 0..20),
        ) {
            let of = |(bit, len): (u8, u8)| IpNet::from(ipnet::Ipv4Net::new([10, 0, 0, bit].into(), len).unwrap()).trunc();
            let mut map = AddressMap::new(net("10.0.0.0/26"));
            for (who, cidr) in held.into_iter().map(of).enumerate() {
                map.hold(cidr, who);
            }
            let mut copy = map.clone();
            let mut overlay = map.overlay();
            for (who, cidr) in withheld.into_iter().map(of).enumerate() {
                overlay.withhold(cidr);
                copy.hold(cidr, 100 + who);
            }
            let mut reference = copy.overlay();
            for len in takes {
                prop_assert_eq!(overlay.take(len, super::super::Fit::Best), reference.take(len, super::super::Fit::Best));
                prop_assert_eq!(overlay.count(32), reference.count(32));
            }
        }
    }
}
