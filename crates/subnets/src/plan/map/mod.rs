//! The address map of a pool: which ranges are held and by whom, what is free, and where the next block goes.
//!
//! **What lives here.** Rules R1 to R6 of the Subnets spec, as a plain data structure. It knows addresses and an
//! opaque *who*; it knows nothing of Kubernetes, of queues or of time, does no I/O and cannot fail but by saying no.
//!
//! **Who calls it.** Ingest applies every Subnet event with [`AddressMap::hold`] and [`AddressMap::release`]. The
//! pure planner never changes a map: it decides on an [`Overlay`]. `act` then applies the grants with
//! [`AddressMap::reserve_exact`], which checks again that the range is free. Pool status reads the counts.
//!
//! **What it promises.**
//! - Free means: inside the base, and overlapped by no holding. Holdings may overlap each other, lie outside the base
//!   or be of the other family; a range is free again only when the last holding over it is gone (R2).
//! - Free blocks are maximal, so the counts are exact for every size (R6, saturating at 2^128 - 1).
//! - An overlay answers exactly as a copy of the map would.
//! - With W = 32 or 128 and n holdings, everything on the path of an event or a claim is O(W log n) (R5), with two
//!   exceptions that pay for work already done or asked for: holding a range drops the free fragments inside it, and
//!   releasing a range looks at the holdings inside it. Both are none in a pool without overlaps.
//!   [`AddressMap::rebuild`] and [`AddressMap::check`] are O(n W log n) and off that path.
//!
//! **How.** `block` has the arithmetic, one for both families. `block_set` is R1's free\[l\] with its mask of lengths.
//! `free` has the rules over free space, shared by the map and by `overlay`. `holdings` is R1's prefix map. `check`
//! recounts everything the slow way. `target` finds the block to keep for a claim that fits nowhere. A map has one base range; `free` holds all that depends on it, so that more of
//! them (additionalCIDRs) become a list of `free` beside the one `holdings`.

mod block;
mod block_set;
mod check;
mod free;
mod holdings;
mod overlay;
mod target;
#[cfg(test)]
mod tests;

use std::fmt::{self, Debug};

use ipnet::IpNet;

use block::Block;
pub use check::Damage;
use free::{FreeBlocks, FreeSpace};
use holdings::{Departure, Holders, Holdings};
pub use overlay::Overlay;

/// Where a block of a wanted length is taken from (R3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The lowest address where it fits: strategy `Linear`.
    First,
    /// The smallest free block that it fits into, so that big ones stay whole: strategy `Buddy`, and whoever passes an
    /// older claim in the queue (R14).
    Best,
}

/// Why an exact range cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict<W: Debug> {
    /// The smallest holding around the range, or else the first one inside it.
    #[error("{net} is held by {holder:?}")]
    Held { net: IpNet, holder: W },
    /// Taken earlier on the same overlay. A map never answers this: there, every taken range has a holder.
    #[error("{net} is already taken in this plan")]
    Planned { net: IpNet },
    #[error("it is not inside {base}")]
    Outside { base: IpNet },
}

/// The new base of [`AddressMap::grow`] does not contain the old one; only [`AddressMap::rebuild`] can do that (R40).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{new} does not contain {old}")]
pub struct NotGrowth {
    pub old: IpNet,
    pub new: IpNet,
}

/// See the module's header. `W` is who holds a range; a small `Copy` value (a uid as 16 bytes) keeps a map of a
/// million blocks within its budget.
#[derive(Clone)]
pub struct AddressMap<W> {
    free: FreeBlocks,
    holdings: Holdings<W>,
}

impl<W: Clone + Ord + Debug> AddressMap<W> {
    /// A map of `base` with nothing held.
    pub fn new(base: IpNet) -> AddressMap<W> {
        let mut map = AddressMap {
            free: FreeBlocks::none(Block::of(base)),
            holdings: Holdings::new(),
        };
        map.rebuild(base);
        map
    }

    pub fn base(&self) -> IpNet {
        self.free.base().net()
    }

    /// Records that `who` holds `net`, whether or not others do, wherever it lies. False if that was known.
    pub fn hold(&mut self, net: IpNet, who: W) -> bool {
        let block = Block::of(net);
        let alone = self.free.withdraw(block);
        self.holdings.add(block, who, alone)
    }

    /// `who` no longer holds `net`. What no other holding covers is free again. False if it did not hold it.
    pub fn release(&mut self, net: IpNet, who: &W) -> bool {
        let block = Block::of(net);
        match self.holdings.remove(block, who) {
            Departure::NotHeld => false,
            Departure::StillHeld => true,
            Departure::Gone { inner } => {
                if let Some(inside) = block.clip(self.free.base()) {
                    self.free.give(inside);
                    if inner {
                        self.withdraw_inside(block);
                    }
                }
                true
            }
        }
    }

    /// Takes back what holdings inside `block` cover, after it was given as a whole.
    fn withdraw_inside(&mut self, block: Block) {
        for (inner, _) in self.holdings.inside(block) {
            self.free.withdraw(inner);
        }
    }

    /// Holds exactly `net` for `who` if all of it is free (R4).
    pub fn reserve_exact(&mut self, net: IpNet, who: W) -> Result<(), Conflict<W>> {
        let block = Block::of(net);
        match self.free.container(block) {
            Some(from) => {
                self.free.carve(from, block);
                self.holdings.add(block, who, true);
                Ok(())
            }
            None => Err(self.conflict(block)),
        }
    }

    fn conflict(&self, block: Block) -> Conflict<W> {
        match self.in_the_way(block) {
            Some((held, holder)) if self.free.base().contains(block) => Conflict::Held {
                net: held.net(),
                holder: holder.clone(),
            },
            _ => Conflict::Outside { base: self.base() },
        }
    }

    /// The holding to name when `block` is wanted (R4).
    fn in_the_way(&self, block: Block) -> Option<(Block, &W)> {
        let (held, holders) = self.holdings.nearest(block)?;
        Some((held, holders.iter().next()?))
    }

    /// Where a block of this length goes. Changes nothing.
    pub fn fit(&self, len: u8, fit: Fit) -> Option<IpNet> {
        self.free.fit(len, fit).map(Block::net)
    }

    pub fn first_fit(&self, len: u8) -> Option<IpNet> {
        self.fit(len, Fit::First)
    }

    pub fn best_fit(&self, len: u8) -> Option<IpNet> {
        self.fit(len, Fit::Best)
    }

    /// All of `net` is inside the base and overlapped by no holding.
    pub fn is_free(&self, net: IpNet) -> bool {
        self.free.container(Block::of(net)).is_some()
    }

    pub fn holds(&self, net: IpNet, who: &W) -> bool {
        self.holdings
            .at(Block::of(net))
            .is_some_and(|holders| holders.contains(who))
    }

    /// Every holding that shares an address with `net`: first those around it or equal, biggest first, then those
    /// inside, by length and address.
    pub fn overlapping(&self, net: IpNet) -> impl Iterator<Item = (IpNet, &W)> {
        let block = Block::of(net);
        self.holdings
            .covering(block)
            .chain(self.holdings.inside(block))
            .flat_map(each_holder)
    }

    /// Every holding, by family, length, address and who: two maps with equal holdings list them alike.
    pub fn holdings(&self) -> impl Iterator<Item = (IpNet, &W)> {
        self.holdings.iter().flat_map(each_holder)
    }

    /// Number of holdings; a prefix with two holders counts twice.
    pub fn holding_count(&self) -> usize {
        self.holdings.number()
    }

    /// How many blocks of this length could be granted if nothing else were (R6), saturating.
    pub fn count(&self, len: u8) -> u128 {
        self.free.count(len)
    }

    /// [`AddressMap::count`] of every length from the base's own to the family's longest, in O(W) for all of them.
    pub fn counts(&self) -> impl Iterator<Item = (u8, u128)> {
        self.free.counts()
    }

    /// Length of the biggest free block; `None` when nothing is free.
    pub fn largest_free(&self) -> Option<u8> {
        self.free.largest()
    }

    /// Free addresses in the base, saturating.
    pub fn free_addresses(&self) -> u128 {
        self.free.count(self.free.base().family.width())
    }

    /// Addresses in the base that some holding covers, each once, saturating.
    pub fn held_addresses(&self) -> u128 {
        self.free.held_addresses()
    }

    /// Held addresses in percent of the base, rounded down; 100 only when nothing is free.
    pub fn used_percent(&self) -> u8 {
        self.free.used_percent()
    }

    /// R40, first half: widens the base by adding the blocks around it. Costs O(W log n), and the holdings in the new
    /// area on top.
    pub fn grow(&mut self, new_base: IpNet) -> Result<(), NotGrowth> {
        let (old, new) = (self.free.base(), Block::of(new_base));
        if !new.contains(old) {
            return Err(NotGrowth {
                old: old.net(),
                new: new.net(),
            });
        }
        for added in self.free.widen(new) {
            if self.holdings.covering(added).next().is_none() {
                self.free.give(added);
                self.withdraw_inside(added);
            }
        }
        Ok(())
    }

    /// R40, second half: any other base. Free space is computed anew from the holdings, all of which stay.
    pub fn rebuild(&mut self, new_base: IpNet) {
        let base = Block::of(new_base);
        self.free = FreeBlocks::none(base);
        if self.holdings.covering(base).next().is_none() {
            self.free.give(base);
            self.withdraw_inside(base);
        }
    }

    /// A plan's view of the map as it is now.
    pub fn overlay(&self) -> Overlay<'_, W> {
        Overlay::new(self)
    }
}

fn each_holder<W: Clone + Ord>((block, holders): (Block, &Holders<W>)) -> impl Iterator<Item = (IpNet, &W)> {
    holders.iter().map(move |who| (block.net(), who))
}

/// A million holdings do not belong into a log line.
impl<W> Debug for AddressMap<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressMap")
            .field("base", &self.free.base().net())
            .field("holdings", &self.holdings.number())
            .field("largest_free", &self.free.largest())
            .finish_non_exhaustive()
    }
}
