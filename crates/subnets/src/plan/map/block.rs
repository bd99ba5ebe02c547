//! Aligned address blocks of either family, and sets of prefix lengths.
//!
//! Every address is kept *left-aligned* in a `u128`: bit 127 is the first bit of the address, for IPv4 too. A prefix
//! of length `l` then occupies the top `l` bits whatever its family, so one arithmetic serves both and only address
//! totals need to know how wide the family is. No shift here can overflow: a shift by 128 yields 0.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    /// W of rule R5: the longest length a prefix of this family can have.
    pub(super) fn width(self) -> u8 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }
}

/// An aligned block: a CIDR with its host bits cleared. Ordered by family, then length, then address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Block {
    pub(super) family: Family,
    pub(super) len: u8,
    pub(super) bits: u128,
}

/// Where a block sits among the blocks of its length: 64 neighbours form a group, so that sets of blocks are bitmaps
/// and the keys of neighbours need not be stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) group: u128,
    pub(super) bit: u32,
}

impl Slot {
    pub(super) fn mask(self) -> u64 {
        1u64.checked_shl(self.bit).unwrap_or(0)
    }
}

/// The slots of all blocks of one length inside a bigger block: either whole groups, or a part of a single one.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) groups: RangeInclusive<u128>,
    pub(super) mask: u64,
}

/// log2 of the number of blocks in a group.
const GROUP_BITS: u8 = 6;

fn left_mask(len: u8) -> u128 {
    u128::MAX.checked_shl(u32::from(128 - len.min(128))).unwrap_or(0)
}

impl Block {
    /// Host bits are cleared, as the API promises for every CIDR it reads (`10.3.7.0/16` means `10.3.0.0/16`).
    pub(super) fn of(net: IpNet) -> Block {
        let (family, bits) = match net {
            IpNet::V4(net) => (Family::V4, u128::from(net.network().to_bits()) << 96),
            IpNet::V6(net) => (Family::V6, net.network().to_bits()),
        };
        Block {
            family,
            len: net.prefix_len(),
            bits,
        }
    }

    pub(super) fn net(self) -> IpNet {
        debug_assert!(self.len <= self.family.width(), "no family has a /{}", self.len);
        // The lengths of blocks come from nets, so the fallback to a single address is never taken.
        match self.family {
            Family::V4 => {
                let addr = Ipv4Addr::from_bits(u32::try_from(self.bits >> 96).unwrap_or(u32::MAX));
                IpNet::V4(Ipv4Net::new(addr, self.len).unwrap_or(Ipv4Net::from(addr)))
            }
            Family::V6 => {
                let addr = Ipv6Addr::from_bits(self.bits);
                IpNet::V6(Ipv6Net::new(addr, self.len).unwrap_or(Ipv6Net::from(addr)))
            }
        }
    }

    /// True for equal blocks, too. Blocks of different families contain nothing of each other.
    pub(super) fn contains(self, other: Block) -> bool {
        self.family == other.family && self.len <= other.len && other.bits & left_mask(self.len) == self.bits
    }

    /// The part of `self` inside `base`. Aligned blocks are nested or disjoint, so it is one of the two, or nothing.
    pub(super) fn clip(self, base: Block) -> Option<Block> {
        if base.contains(self) {
            Some(self)
        } else {
            self.contains(base).then_some(base)
        }
    }

    /// The block of length `len` (at most its own) that contains this one.
    pub(super) fn ancestor(self, len: u8) -> Block {
        debug_assert!(len <= self.len, "a /{len} is not an ancestor of a /{}", self.len);
        Block {
            len,
            bits: self.bits & left_mask(len),
            ..self
        }
    }

    /// The first block of length `len` (at least its own) inside this one: splits keep the lower half.
    pub(super) fn lowest(self, len: u8) -> Block {
        debug_assert!(len >= self.len, "a /{len} does not fit into a /{}", self.len);
        Block { len, ..self }
    }

    /// The other half of the parent; a /0 has none.
    pub(super) fn buddy(self) -> Option<Block> {
        let bit = 1u128.checked_shl(u32::from(128u8.checked_sub(self.len)?))?;
        Some(Block {
            bits: self.bits ^ bit,
            ..self
        })
    }

    fn index(self) -> u128 {
        self.bits.checked_shr(u32::from(128 - self.len.min(128))).unwrap_or(0)
    }

    pub(super) fn slot(self) -> Slot {
        let index = self.index();
        Slot {
            group: index >> GROUP_BITS,
            bit: u32::try_from(index & 63).unwrap_or(0),
        }
    }

    pub(super) fn at(family: Family, len: u8, slot: Slot) -> Block {
        let index = (slot.group << GROUP_BITS) | u128::from(slot.bit);
        Block {
            family,
            len,
            bits: index.checked_shl(u32::from(128 - len.min(128))).unwrap_or(0),
        }
    }

    /// The blocks of length `len` (at least its own) inside this one.
    pub(super) fn span(self, len: u8) -> Span {
        let first = self.lowest(len).slot();
        let doublings = len.saturating_sub(self.len);
        match doublings.checked_sub(GROUP_BITS) {
            Some(group_doublings) => {
                let last = first.group + ((1u128 << group_doublings) - 1); // at most 2^122 groups
                Span {
                    groups: first.group..=last,
                    mask: u64::MAX,
                }
            }
            None => {
                let blocks = 1u32 << doublings; // at most 32: it is less than a group
                Span {
                    groups: first.group..=first.group,
                    mask: ((1u64 << blocks) - 1) << first.bit,
                }
            }
        }
    }
}

/// A set of prefix lengths 0..=128. That is 129 of them, one more than a u128 has bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lengths {
    below: u128,
    full: bool,
}

impl Lengths {
    pub(super) fn insert(&mut self, len: u8) {
        match 1u128.checked_shl(u32::from(len)) {
            Some(bit) => self.below |= bit,
            None => self.full = true,
        }
    }

    pub(super) fn remove(&mut self, len: u8) {
        match 1u128.checked_shl(u32::from(len)) {
            Some(bit) => self.below &= !bit,
            None => self.full = false,
        }
    }

    pub(super) fn up_to(self, len: u8) -> Lengths {
        let keep = u128::MAX
            .checked_shr(127u32.saturating_sub(u32::from(len)))
            .unwrap_or(0);
        Lengths {
            below: self.below & keep,
            full: self.full && len >= 128,
        }
    }

    pub(super) fn longer_than(self, len: u8) -> Lengths {
        let drop = self.up_to(len);
        Lengths {
            below: self.below & !drop.below,
            full: self.full && !drop.full,
        }
    }

    pub(super) fn is_empty(self) -> bool {
        self.below == 0 && !self.full
    }

    pub(super) fn shortest(self) -> Option<u8> {
        match u8::try_from(self.below.trailing_zeros()) {
            Ok(len) if len < 128 => Some(len),
            _ => self.full.then_some(128),
        }
    }

    pub(super) fn longest(self) -> Option<u8> {
        if self.full {
            return Some(128);
        }
        u8::try_from(self.below.checked_ilog2()?).ok()
    }

    pub(super) fn ascending(mut self) -> impl Iterator<Item = u8> {
        std::iter::from_fn(move || {
            let len = self.shortest()?;
            self.remove(len);
            Some(len)
        })
    }

    pub(super) fn descending(mut self) -> impl Iterator<Item = u8> {
        std::iter::from_fn(move || {
            let len = self.longest()?;
            self.remove(len);
            Some(len)
        })
    }
}
