//! Free space of one base range: where a block may go (R3, R4), and how many would fit (R6).

use super::Fit;
use super::block::{Block, Lengths};
use super::block_set::BlockSet;

/// What the rules need to know of free space. The map and the overlay of a plan both provide it and share the rules
/// below; that is why a plan decides exactly as the map would.
///
/// The free blocks are disjoint, lie inside the base, and are *maximal*: no two buddies are both free, so every free
/// aligned block lies inside exactly one of them.
pub(super) trait FreeSpace {
    fn base(&self) -> Block;
    /// The lengths that have a maximal free block.
    fn lengths(&self) -> Lengths;
    /// |free[l]|
    fn number(&self, len: u8) -> usize;
    /// Lowest maximal free block of this length.
    fn head(&self, len: u8) -> Option<Block>;
    /// Whether this very block is a maximal free one.
    fn has(&self, block: Block) -> bool;
    fn insert(&mut self, block: Block);
    fn remove(&mut self, block: Block);

    /// R3: `First` is the lowest of all heads of sufficient size, `Best` the head of the smallest sufficient size.
    fn fit(&self, len: u8, fit: Fit) -> Option<Block> {
        if len > self.base().family.width() {
            return None;
        }
        let sufficient = self.lengths().up_to(len);
        let from = match fit {
            Fit::First => sufficient
                .ascending()
                .filter_map(|l| self.head(l))
                .min_by_key(|head| head.bits),
            Fit::Best => sufficient.longest().and_then(|l| self.head(l)),
        }?;
        Some(from.lowest(len))
    }

    fn fits(&self, len: u8) -> bool {
        len <= self.base().family.width() && !self.lengths().up_to(len).is_empty()
    }

    /// R4: the maximal free block around `block`, if the whole of `block` is free. Longest first, because that is
    /// where best fit takes from.
    fn container(&self, block: Block) -> Option<Block> {
        if !self.base().contains(block) {
            return None;
        }
        self.lengths()
            .up_to(block.len)
            .descending()
            .map(|len| block.ancestor(len))
            .find(|outer| self.has(*outer))
    }

    /// Takes `block` out of the maximal free block `from`; what is left of that are the siblings along the way down.
    fn carve(&mut self, from: Block, block: Block) {
        debug_assert!(from.contains(block), "{block:?} is not inside {from:?}");
        self.remove(from);
        for len in from.len + 1..=block.len {
            if let Some(rest) = block.ancestor(len).buddy() {
                self.insert(rest);
            }
        }
    }

    /// R6, for one size. Sizes that the family does not have never fit.
    fn count(&self, len: u8) -> u128 {
        if len > self.base().family.width() {
            return 0;
        }
        self.lengths().up_to(len).ascending().fold(0u128, |count, l| {
            let number = self.number(l) as u128;
            let blocks = match 1u128.checked_shl(u32::from(len - l)) {
                Some(each) => number.saturating_mul(each),
                None => u128::MAX, // a free /0 seen as /128: there is one, and 2^128 saturates
            };
            count.saturating_add(blocks)
        })
    }

    /// R6 for every size from the base's own on, in one sweep: each size has twice what the one before had.
    fn counts(&self) -> impl Iterator<Item = (u8, u128)> {
        let base = self.base();
        (base.len..=base.family.width()).scan(0u128, |count, len| {
            *count = count.saturating_mul(2).saturating_add(self.number(len) as u128);
            Some((len, *count))
        })
    }

    fn largest(&self) -> Option<u8> {
        self.lengths().shortest()
    }
}

/// The free space of a map.
#[derive(Clone, Debug)]
pub(super) struct FreeBlocks {
    base: Block,
    set: BlockSet,
}

impl FreeBlocks {
    /// Nothing free yet.
    pub(super) fn none(base: Block) -> FreeBlocks {
        FreeBlocks {
            base,
            set: BlockSet::new(base.family),
        }
    }

    pub(super) fn set(&self) -> &BlockSet {
        &self.set
    }

    /// Makes `block`, of which nothing was free, free, and merges buddies up to the base.
    pub(super) fn give(&mut self, mut block: Block) {
        debug_assert!(self.base.contains(block), "{block:?} is outside the base");
        debug_assert!(self.container(block).is_none(), "{block:?} is free already");
        while block.len > self.base.len && block.buddy().is_some_and(|buddy| self.set.remove(buddy)) {
            block = block.ancestor(block.len - 1);
        }
        self.set.insert(block);
    }

    /// Whatever of `block` is free (all, parts, nothing) is so no longer. True if all of it was: then no holding
    /// overlaps it.
    pub(super) fn withdraw(&mut self, block: Block) -> bool {
        let Some(inside) = block.clip(self.base) else {
            return false;
        };
        match self.container(inside) {
            Some(from) => {
                self.carve(from, inside);
                inside == block
            }
            None => {
                self.set.remove_inside(inside);
                false
            }
        }
    }

    /// Moves the base up to `base`, which contains it, and returns the blocks that are new. They count as held until
    /// given. Nearest first, so that each finds its buddy merged.
    pub(super) fn widen(&mut self, base: Block) -> Vec<Block> {
        debug_assert!(base.contains(self.base), "{base:?} is no growth of {:?}", self.base);
        let old = std::mem::replace(&mut self.base, base);
        (base.len + 1..=old.len)
            .rev()
            .filter_map(|len| old.ancestor(len).buddy())
            .collect()
    }

    /// Addresses that are not free; 2^128, which only a full `::/0` has, saturates.
    pub(super) fn held_addresses(&self) -> u128 {
        let width = self.base.family.width();
        let free = self.count(width);
        match 1u128.checked_shl(u32::from(width - self.base.len)) {
            Some(all) => all.saturating_sub(free),
            None if self.has(self.base) => 0,
            None if free == 0 => u128::MAX,
            None => free.wrapping_neg(),
        }
    }

    /// Held addresses in percent of the base, rounded down: 100 means that nothing at all is free.
    pub(super) fn used_percent(&self) -> u8 {
        if self.set.lengths().is_empty() {
            return 100;
        }
        let held = self.held_addresses();
        let exponent = u32::from(self.base.family.width() - self.base.len);
        let percent = match exponent.checked_sub(64) {
            None => (held * 100) >> exponent,
            // 128 bits times 100 does not fit, so the halves are multiplied apart.
            Some(upper) => {
                let (high, low) = (held >> 64, held & u128::from(u64::MAX));
                (high * 100 + ((low * 100) >> 64)) >> upper
            }
        };
        u8::try_from(percent).unwrap_or(100)
    }
}

impl FreeSpace for FreeBlocks {
    fn base(&self) -> Block {
        self.base
    }

    fn lengths(&self) -> Lengths {
        self.set.lengths()
    }

    fn number(&self, len: u8) -> usize {
        self.set.number(len)
    }

    fn head(&self, len: u8) -> Option<Block> {
        self.set.head(len)
    }

    fn has(&self, block: Block) -> bool {
        self.set.contains(block)
    }

    fn insert(&mut self, block: Block) {
        self.set.insert(block);
    }

    fn remove(&mut self, block: Block) {
        self.set.remove(block);
    }
}
