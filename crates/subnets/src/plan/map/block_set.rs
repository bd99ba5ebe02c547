//! An ordered set of blocks of one family, by length: R1's free[l] together with the mask of non-empty lengths.
//!
//! A plain set: it neither merges nor splits. Sixty-four neighbours share one word, so a fragmented pool with half a
//! million free /28 costs some hundred kilobytes, and a block and its buddy are found by the same look-up.

use std::collections::BTreeMap;

use super::block::{Block, Family, Lengths, Slot};

#[derive(Clone, Debug)]
pub(super) struct BlockSet {
    family: Family,
    /// One lane per length, as far as one was ever needed: an empty set allocates nothing.
    lanes: Vec<Lane>,
    lengths: Lengths,
}

/// The blocks of one length. No stored word is zero.
#[derive(Clone, Debug, Default)]
struct Lane {
    words: BTreeMap<u128, u64>,
    number: usize,
}

impl BlockSet {
    pub(super) fn new(family: Family) -> BlockSet {
        BlockSet {
            family,
            lanes: Vec::new(),
            lengths: Lengths::default(),
        }
    }

    fn lane(&self, len: u8) -> Option<&Lane> {
        self.lanes.get(usize::from(len))
    }

    pub(super) fn lengths(&self) -> Lengths {
        self.lengths
    }

    pub(super) fn number(&self, len: u8) -> usize {
        self.lane(len).map_or(0, |lane| lane.number)
    }

    pub(super) fn contains(&self, block: Block) -> bool {
        let slot = block.slot();
        block.family == self.family && self.word(block.len, slot.group) & slot.mask() != 0
    }

    /// The blocks of one group; zero when there are none.
    pub(super) fn word(&self, len: u8, group: u128) -> u64 {
        self.lane(len)
            .and_then(|lane| lane.words.get(&group))
            .copied()
            .unwrap_or(0)
    }

    /// The non-empty groups from `from` on, ascending.
    pub(super) fn words(&self, len: u8, from: u128) -> impl Iterator<Item = (u128, u64)> {
        self.lane(len)
            .into_iter()
            .flat_map(move |lane| lane.words.range(from..))
            .map(|(group, word)| (*group, *word))
    }

    /// Lowest block of this length.
    pub(super) fn head(&self, len: u8) -> Option<Block> {
        let (group, word) = self.lane(len)?.words.first_key_value()?;
        Some(Block::at(
            self.family,
            len,
            Slot {
                group: *group,
                bit: word.trailing_zeros(),
            },
        ))
    }

    /// True if the block was not there before.
    pub(super) fn insert(&mut self, block: Block) -> bool {
        debug_assert_eq!(block.family, self.family);
        let index = usize::from(block.len);
        if self.lanes.len() <= index {
            self.lanes.resize_with(index + 1, Lane::default);
        }
        let Some(lane) = self.lanes.get_mut(index) else {
            return false;
        };
        let slot = block.slot();
        let word = lane.words.entry(slot.group).or_insert(0);
        let fresh = *word & slot.mask() == 0;
        if fresh {
            *word |= slot.mask();
            lane.number += 1;
            self.lengths.insert(block.len);
        }
        fresh
    }

    /// True if the block was there.
    pub(super) fn remove(&mut self, block: Block) -> bool {
        block.family == self.family && self.clear(block.len, block.slot().group, block.slot().mask()) > 0
    }

    /// Removes every block strictly inside `outer`. Each of them was inserted once, so this is amortised.
    pub(super) fn remove_inside(&mut self, outer: Block) {
        for len in self.lengths.longer_than(outer.len).ascending() {
            let span = outer.span(len);
            if span.mask != u64::MAX {
                self.clear(len, *span.groups.start(), span.mask);
            } else if let Some(lane) = self.lanes.get_mut(usize::from(len)) {
                for (_, word) in lane.words.extract_if(span.groups, |_, _| true) {
                    lane.number -= word.count_ones() as usize;
                }
                self.note_emptied(len);
            }
        }
    }

    /// Takes the blocks in `mask` out of one group, and says how many there were.
    fn clear(&mut self, len: u8, group: u128, mask: u64) -> usize {
        let Some(lane) = self.lanes.get_mut(usize::from(len)) else {
            return 0;
        };
        let Some(word) = lane.words.get_mut(&group) else {
            return 0;
        };
        let cleared = (*word & mask).count_ones() as usize;
        *word &= !mask;
        if *word == 0 {
            lane.words.remove(&group);
        }
        lane.number -= cleared;
        self.note_emptied(len);
        cleared
    }

    fn note_emptied(&mut self, len: u8) {
        if self.number(len) == 0 {
            self.lengths.remove(len);
        }
    }

    /// The shortest block of the set that contains `block`, which may be itself.
    pub(super) fn covering(&self, block: Block) -> Option<Block> {
        self.lengths
            .up_to(block.len)
            .ascending()
            .map(|len| block.ancestor(len))
            .find(|outer| self.contains(*outer))
    }

    /// The block strictly inside `outer` that has the lowest address.
    pub(super) fn first_inside(&self, outer: Block) -> Option<Block> {
        let heads = self.lengths.longer_than(outer.len).ascending().filter_map(|len| {
            let span = outer.span(len);
            let (group, word) = self.words(len, *span.groups.start()).next()?;
            let word = word & span.mask;
            let inside = span.groups.contains(&group) && word != 0;
            inside.then(|| {
                Block::at(
                    self.family,
                    len,
                    Slot {
                        group,
                        bit: word.trailing_zeros(),
                    },
                )
            })
        });
        heads.min_by_key(|block| (block.bits, block.len))
    }

    /// Every block strictly inside `outer`, by length and address.
    pub(super) fn inside(&self, outer: Block) -> impl Iterator<Item = Block> {
        self.lengths.longer_than(outer.len).ascending().flat_map(move |len| {
            let span = outer.span(len);
            let (mask, last) = (span.mask, *span.groups.end());
            self.words(len, *span.groups.start())
                .take_while(move |(group, _)| *group <= last)
                .flat_map(move |(group, word)| {
                    bits_of(word & mask).map(move |bit| Block::at(self.family, len, Slot { group, bit }))
                })
        })
    }

    /// Every block, by length and address.
    pub(super) fn iter(&self) -> impl Iterator<Item = Block> {
        self.lengths.ascending().flat_map(move |len| {
            self.words(len, 0).flat_map(move |(group, word)| {
                bits_of(word).map(move |bit| Block::at(self.family, len, Slot { group, bit }))
            })
        })
    }
}

/// Positions of the bits that are set, ascending.
pub(super) fn bits_of(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(bit)
    })
}
