//! A map as a plan sees it while it decides: the map as it is, less what this plan has given away so far.
//!
//! Taking never merges free blocks, so the difference is small: the blocks of the map that were split (`gone`), and
//! what is left of them (`rest`). A pass of 512 grants costs that much and leaves the map alone; dropping the overlay
//! undoes it.

use std::collections::BTreeMap;
use std::fmt::Debug;

use ipnet::IpNet;

use super::block::{Block, Lengths, Slot};
use super::block_set::BlockSet;
use super::free::{FreeBlocks, FreeSpace};
use super::{AddressMap, Conflict, Fit};

/// Made by [`AddressMap::overlay`]. Answers as a copy of the map would to which the same was done.
#[derive(Clone, Debug)]
pub struct Overlay<'a, W> {
    map: &'a AddressMap<W>,
    free: Remainder<'a>,
    /// What was taken here; it has no holder yet.
    planned: BlockSet,
}

impl<'a, W: Clone + Ord + Debug> Overlay<'a, W> {
    pub(super) fn new(map: &'a AddressMap<W>) -> Overlay<'a, W> {
        let family = map.free.base().family;
        Overlay {
            map,
            free: Remainder::of(&map.free),
            planned: BlockSet::new(family),
        }
    }

    /// Takes a block of this length where `fit` says.
    pub fn take(&mut self, len: u8, fit: Fit) -> Option<IpNet> {
        let block = self.free.fit(len, fit)?;
        let from = self.free.container(block)?;
        self.free.carve(from, block);
        self.planned.insert(block);
        Some(block.net())
    }

    /// Nothing of `net` is given from now on, though nobody takes it.
    pub fn withhold(&mut self, net: IpNet) {
        let Some(inside) = Block::of(net).clip(self.free.base()) else {
            return;
        };
        match self.free.container(inside) {
            Some(from) => self.free.carve(from, inside),
            None => {
                for block in self.free.inside(inside) {
                    self.free.remove(block);
                }
            }
        }
    }

    /// Takes exactly `net`.
    pub fn reserve(&mut self, net: IpNet) -> Result<(), Conflict<W>> {
        let block = Block::of(net);
        let Some(from) = self.free.container(block) else {
            return Err(self.conflict(block));
        };
        self.free.carve(from, block);
        self.planned.insert(block);
        Ok(())
    }

    /// As the map names it, with planned ranges among the holdings. A planned range overlaps no holding, so at most
    /// one of the two can be around `block`; inside it, the lower address comes first.
    fn conflict(&self, block: Block) -> Conflict<W> {
        let planned = self
            .planned
            .covering(block)
            .or_else(|| self.planned.first_inside(block));
        match (planned, self.map.in_the_way(block)) {
            (Some(planned), held)
                if self.free.base().contains(block)
                    && held.is_none_or(|(held, _)| !held.contains(block) && planned.bits < held.bits) =>
            {
                Conflict::Planned { net: planned.net() }
            }
            _ => self.map.conflict(block),
        }
    }

    pub fn is_free(&self, net: IpNet) -> bool {
        self.free.container(Block::of(net)).is_some()
    }

    /// Whether [`Overlay::take`] of this length would succeed.
    pub fn fits(&self, len: u8) -> bool {
        self.free.fits(len)
    }

    /// As [`AddressMap::count`].
    pub fn count(&self, len: u8) -> u128 {
        self.free.count(len)
    }

    /// As [`AddressMap::largest_free`].
    pub fn largest_free(&self) -> Option<u8> {
        self.free.largest()
    }
}

/// Free space that remains of a map's: `under` without `gone`, plus `rest`.
#[derive(Clone, Debug)]
struct Remainder<'a> {
    under: &'a FreeBlocks,
    gone: BlockSet,
    rest: BlockSet,
    lengths: Lengths,
    /// For lengths that lost their first blocks: the first group of `under` with a block that is not gone. It only
    /// moves up, so all the searching of a plan is bounded by what the plan took.
    first_live: BTreeMap<u8, u128>,
}

impl<'a> Remainder<'a> {
    fn of(under: &'a FreeBlocks) -> Remainder<'a> {
        let family = under.base().family;
        Remainder {
            under,
            gone: BlockSet::new(family),
            rest: BlockSet::new(family),
            lengths: under.lengths(),
            first_live: BTreeMap::new(),
        }
    }

    /// What is left strictly inside `outer`.
    fn inside(&self, outer: Block) -> Vec<Block> {
        let of_map = self
            .under
            .set()
            .inside(outer)
            .filter(|block| !self.gone.contains(*block));
        of_map.chain(self.rest.inside(outer)).collect()
    }

    /// The first group of `under` with a block that is not gone, and those blocks.
    fn live_from(&self, len: u8) -> Option<(u128, u64)> {
        let from = self.first_live.get(&len).copied().unwrap_or(0);
        self.under
            .set()
            .words(len, from)
            .map(|(group, word)| (group, word & !self.gone.word(len, group)))
            .find(|(_, live)| *live != 0)
    }
}

impl FreeSpace for Remainder<'_> {
    fn base(&self) -> Block {
        self.under.base()
    }

    fn lengths(&self) -> Lengths {
        self.lengths
    }

    fn number(&self, len: u8) -> usize {
        self.under.number(len) - self.gone.number(len) + self.rest.number(len)
    }

    fn head(&self, len: u8) -> Option<Block> {
        let family = self.base().family;
        let of_map = self.live_from(len).map(|(group, live)| {
            Block::at(
                family,
                len,
                Slot {
                    group,
                    bit: live.trailing_zeros(),
                },
            )
        });
        let of_rest = self.rest.head(len);
        of_map.into_iter().chain(of_rest).min_by_key(|block| block.bits)
    }

    fn has(&self, block: Block) -> bool {
        self.rest.contains(block) || (self.under.has(block) && !self.gone.contains(block))
    }

    fn insert(&mut self, block: Block) {
        self.rest.insert(block);
        self.lengths.insert(block.len);
    }

    fn remove(&mut self, block: Block) {
        if !self.rest.remove(block) {
            self.gone.insert(block);
            let live = self.live_from(block.len).map_or(u128::MAX, |(group, _)| group);
            self.first_live.insert(block.len, live);
        }
        if self.number(block.len) == 0 {
            self.lengths.remove(block.len);
        }
    }
}
