//! Who holds what: every holding of a pool, overlapping or not (R2), inside the base or not, of either family.
//!
//! # Why not a prefix trie
//!
//! `prefix-trie` 0.10 was measured with a million dense /28 and /64 and 24 bytes each, visited at random: 350-500 ns per
//! removal, 230-260 ns to ask what covers a block, 400-430 ns to ask what is inside it, and 27 MB grew to 55-60 MB once
//! all had been given back and granted anew. That leaves nothing of section 12's budget (1 us per release, 64 MB) for
//! free space. This one needs 380 ns per release and 27 MB, free space included (`usher-benches map`), because
//! of two facts about pools:
//!
//! - Neighbours are held together. Sixty-four of a length share a group, found by one look-up in a tree that is
//!   sixty-four times smaller; inside, the holders stand in a row without keys.
//! - Overlaps are rare. A holding that came out of free space overlaps nothing, so only the others are looked at
//!   when they arrive, and those seen to contain another are remembered as *coverers*. Giving back a range asks the
//!   coverers, not the holdings: in a pool without overlaps, there are none to ask.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::ops::Bound;

use super::block::{Block, Family, Slot, Span};
use super::block_set::bits_of;

#[derive(Clone, Debug)]
pub(super) struct Holdings<W> {
    by_length: BTreeMap<(Family, u8), Lane<W>>,
    /// Holdings that contain a smaller one, as far as known. Every live one that does is here. One whose inner
    /// holdings have all gone may stay until it goes itself; that costs one needless look inside, never a wrong answer.
    coverers: BTreeSet<Block>,
    /// Pairs of (prefix, who).
    number: usize,
}

/// The holdings of one length, by group. No group is empty.
type Lane<W> = BTreeMap<u128, Group<W>>;

/// What is left after a holder gave up a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// It did not hold this prefix.
    NotHeld,
    /// The prefix, or a bigger one around it, is still held.
    StillHeld,
    /// Nobody holds the prefix as a whole any more. `inner` says if smaller holdings inside are possible.
    Gone { inner: bool },
}

impl<W> Holdings<W> {
    pub(super) fn number(&self) -> usize {
        self.number
    }
}

impl<W: Clone + Ord + Debug> Holdings<W> {
    pub(super) fn new() -> Holdings<W> {
        Holdings {
            by_length: BTreeMap::new(),
            coverers: BTreeSet::new(),
            number: 0,
        }
    }

    pub(super) fn at(&self, block: Block) -> Option<&Holders<W>> {
        let slot = block.slot();
        self.by_length
            .get(&(block.family, block.len))?
            .get(&slot.group)?
            .get(slot.bit)
    }

    /// Records a holding. `alone` is the caller's word that nothing overlaps it, since all of it was free; it spares
    /// the search for what covers it and what it covers. True if it is new.
    pub(super) fn add(&mut self, block: Block, who: W, alone: bool) -> bool {
        let slot = block.slot();
        let group = self
            .by_length
            .entry((block.family, block.len))
            .or_default()
            .entry(slot.group)
            .or_default();
        let fresh_prefix = match group.get_mut(slot.bit) {
            Some(holders) => {
                let fresh = holders.add(who);
                self.number += usize::from(fresh);
                return fresh;
            }
            None => group.insert(slot, Holders::One(who)),
        };
        debug_assert!(fresh_prefix);
        self.number += 1;
        if alone {
            debug_assert!(self.covering(block).count() == 1 && self.inside(block).next().is_none());
        } else {
            self.note_coverers(block);
        }
        true
    }

    fn note_coverers(&mut self, block: Block) {
        let outer: Vec<Block> = self
            .covering(block)
            .map(|(outer, _)| outer)
            .filter(|outer| *outer != block)
            .collect();
        self.coverers.extend(outer);
        if self.inside(block).next().is_some() {
            self.coverers.insert(block);
        }
    }

    pub(super) fn remove(&mut self, block: Block, who: &W) -> Departure {
        let slot = block.slot();
        let key = (block.family, block.len);
        let Some(lane) = self.by_length.get_mut(&key) else {
            return Departure::NotHeld;
        };
        let Some(group) = lane.get_mut(&slot.group) else {
            return Departure::NotHeld;
        };
        let Some(holders) = group.get_mut(slot.bit) else {
            return Departure::NotHeld;
        };
        match holders.remove(who) {
            Remaining::All => return Departure::NotHeld,
            Remaining::Some => {
                self.number -= 1;
                return Departure::StillHeld;
            }
            Remaining::None => group.remove(slot),
        }
        if group.present == 0 {
            lane.remove(&slot.group);
            if lane.is_empty() {
                self.by_length.remove(&key);
            }
        }
        self.number -= 1;
        let inner = self.coverers.remove(&block);
        if self.is_covered(block) {
            Departure::StillHeld
        } else {
            Departure::Gone { inner }
        }
    }

    /// Whether a bigger holding contains `block`, which is or just was a holding itself: only then are all those that
    /// contain it among the coverers.
    fn is_covered(&self, block: Block) -> bool {
        let shorter = self.by_length.range((block.family, 0)..(block.family, block.len));
        !self.coverers.is_empty()
            && shorter
                .into_iter()
                .any(|((_, len), _)| self.coverers.contains(&block.ancestor(*len)))
    }

    /// The holdings that contain `block`, itself included, biggest first.
    pub(super) fn covering(&self, block: Block) -> impl DoubleEndedIterator<Item = (Block, &Holders<W>)> {
        self.by_length
            .range((block.family, 0)..=(block.family, block.len))
            .filter_map(move |((_, len), lane)| {
                let outer = block.ancestor(*len);
                let slot = outer.slot();
                Some((outer, lane.get(&slot.group)?.get(slot.bit)?))
            })
    }

    /// The holdings strictly inside `block`, by length and then address: what contains comes before what it contains.
    pub(super) fn inside(&self, block: Block) -> impl Iterator<Item = (Block, &Holders<W>)> {
        self.longer_than(block)
            .flat_map(move |(len, lane)| within(lane, block, len))
    }

    /// Of the holdings strictly inside `block` the one with the lowest address, the biggest of these.
    pub(super) fn first_inside(&self, block: Block) -> Option<(Block, &Holders<W>)> {
        self.longer_than(block)
            .filter_map(|(len, lane)| within(lane, block, len).next())
            .min_by_key(|(inner, _)| (inner.bits, inner.len))
    }

    /// R4's longest match: the smallest holding around `block`, else the first inside.
    pub(super) fn nearest(&self, block: Block) -> Option<(Block, &Holders<W>)> {
        self.covering(block).next_back().or_else(|| self.first_inside(block))
    }

    /// Everything, by family, length and address.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Block, &Holders<W>)> {
        self.by_length.iter().flat_map(|((family, len), lane)| {
            let everywhere = Block {
                family: *family,
                len: 0,
                bits: 0,
            };
            within(lane, everywhere, *len)
        })
    }

    fn longer_than(&self, block: Block) -> impl Iterator<Item = (u8, &Lane<W>)> {
        let longer = (
            Bound::Excluded((block.family, block.len)),
            Bound::Included((block.family, u8::MAX)),
        );
        self.by_length.range(longer).map(|((_, len), lane)| (*len, lane))
    }
}

fn within<W>(lane: &Lane<W>, block: Block, len: u8) -> impl Iterator<Item = (Block, &Holders<W>)> {
    let Span { groups, mask } = block.span(len);
    lane.range(groups).flat_map(move |(group, held)| {
        bits_of(held.present & mask).filter_map(move |bit| {
            let slot = Slot { group: *group, bit };
            Some((Block::at(block.family, len, slot), held.get(bit)?))
        })
    })
}

/// Up to 64 neighbouring prefixes of one length.
#[derive(Clone, Debug)]
struct Group<W> {
    /// Bit i: the i-th prefix of the group is held.
    present: u64,
    /// The holders of those that are, in order.
    holders: Vec<Holders<W>>,
}

impl<W> Default for Group<W> {
    fn default() -> Group<W> {
        // One, not the usual four: scattered blocks stay alone in their group.
        Group {
            present: 0,
            holders: Vec::with_capacity(1),
        }
    }
}

impl<W> Group<W> {
    fn rank(&self, bit: u32) -> Option<usize> {
        let mask = Slot { group: 0, bit }.mask();
        (self.present & mask != 0).then(|| (self.present & (mask - 1)).count_ones() as usize)
    }

    fn get(&self, bit: u32) -> Option<&Holders<W>> {
        self.holders.get(self.rank(bit)?)
    }

    fn get_mut(&mut self, bit: u32) -> Option<&mut Holders<W>> {
        let rank = self.rank(bit)?;
        self.holders.get_mut(rank)
    }

    /// True, unless the slot was taken.
    fn insert(&mut self, slot: Slot, holders: Holders<W>) -> bool {
        if self.present & slot.mask() != 0 {
            return false;
        }
        self.present |= slot.mask();
        if let Some(rank) = self.rank(slot.bit) {
            self.holders.insert(rank, holders);
        }
        true
    }

    fn remove(&mut self, slot: Slot) {
        if let Some(rank) = self.rank(slot.bit) {
            self.holders.remove(rank);
            self.present &= !slot.mask();
        }
        // Room for twice as many stays, so that a block that comes and goes does not reallocate each time.
        if self.holders.len() * 4 <= self.holders.capacity() {
            self.holders.shrink_to(self.holders.len() * 2);
        }
    }
}

/// The holders of one prefix, at least one. One or two (a Subnet, and the claim that is Bound to it) are ordinary and kept
/// small; more are not.
#[derive(Clone, Debug)]
pub(super) enum Holders<W> {
    One(W),
    /// In order.
    Two(Box<[W; 2]>),
    Several(Box<Several<W>>),
}

#[derive(Clone, Debug)]
pub(super) struct Several<W>(BTreeSet<W>);

enum Remaining {
    All,
    Some,
    None,
}

impl<W: Clone + Ord> Holders<W> {
    fn add(&mut self, who: W) -> bool {
        match self {
            Holders::One(one) if *one == who => false,
            Holders::One(one) => {
                let mut both = [one.clone(), who];
                both.sort();
                *self = Holders::Two(Box::new(both));
                true
            }
            Holders::Two(two) if two.contains(&who) => false,
            Holders::Two(two) => {
                let mut all = BTreeSet::from((**two).clone());
                all.insert(who);
                *self = Holders::Several(Box::new(Several(all)));
                true
            }
            Holders::Several(several) => several.0.insert(who),
        }
    }

    fn remove(&mut self, who: &W) -> Remaining {
        match self {
            Holders::One(one) if one == who => Remaining::None,
            Holders::One(_) => Remaining::All,
            Holders::Two(two) => {
                let [first, second] = &**two;
                let other = match (first == who, second == who) {
                    (true, _) => second.clone(),
                    (_, true) => first.clone(),
                    _ => return Remaining::All,
                };
                *self = Holders::One(other);
                Remaining::Some
            }
            Holders::Several(several) => {
                if !several.0.remove(who) {
                    return Remaining::All;
                }
                if several.0.len() == 2
                    && let (Some(first), Some(second)) = (several.0.pop_first(), several.0.pop_first())
                {
                    *self = Holders::Two(Box::new([first, second]));
                }
                Remaining::Some
            }
        }
    }

    pub(super) fn contains(&self, who: &W) -> bool {
        match self {
            Holders::One(one) => one == who,
            Holders::Two(two) => two.contains(who),
            Holders::Several(several) => several.0.contains(who),
        }
    }

    /// In order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &W> {
        let (few, several) = match self {
            Holders::One(one) => (std::slice::from_ref(one), None),
            Holders::Two(two) => (two.as_slice(), None),
            Holders::Several(several) => ([].as_slice(), Some(several.0.iter())),
        };
        few.iter().chain(several.into_iter().flatten())
    }
}
