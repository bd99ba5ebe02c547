//! The oracle: it keeps, for each unit of a world, how many holdings cover it, and looks at all of them for every answer.

use std::collections::BTreeSet;
use std::ops::Range;

use ipnet::IpNet;
use usher_subnets::plan::map::{Conflict, Fit};

use crate::world::{World, block_at, contains, first_address, last_address, parse, same_family};

pub(crate) type Who = u8;

/// Holds what a plan has taken, in the maps that an overlay is compared with.
pub(crate) const PLANNED: Who = Who::MAX;

#[derive(Clone)]
pub(crate) struct Oracle {
    pub(crate) range: IpNet,
    pub(crate) unit: u8,
    pub(crate) base: IpNet,
    pub(crate) holdings: BTreeSet<(IpNet, Who)>,
    /// For each unit of the range, how many holdings cover it.
    pub(crate) cover: Vec<u32>,
}

/// What there is to know of free space, from the base's length to the unit's.
pub(crate) struct Recount {
    base: IpNet,
    unit: u8,
    by_length: Vec<Tally>,
}

/// The blocks of one length inside the base.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) blocks: usize,
    pub(crate) free: usize,
    first_free: Option<usize>,
    /// First of those that are free while the block twice their size is not.
    first_maximal: Option<usize>,
}

impl Oracle {
    pub(crate) fn new(world: World) -> Oracle {
        let range = parse(world.range);
        let cover = vec![0; 1 << (world.unit - range.prefix_len())];
        Oracle {
            range,
            unit: world.unit,
            base: parse(world.base),
            holdings: BTreeSet::new(),
            cover,
        }
    }

    pub(crate) fn units(&self, net: IpNet) -> Range<usize> {
        let first = first_address(net).max(first_address(self.range));
        let last = last_address(net).min(last_address(self.range));
        if !same_family(net, self.range) || first > last {
            return 0..0;
        }
        let index = |address: u128| {
            let offset = address - first_address(self.range);
            (offset >> (self.range.max_prefix_len() - self.unit)) as usize
        };
        index(first)..index(last) + 1
    }

    pub(crate) fn hold(&mut self, net: IpNet, who: Who) -> bool {
        let fresh = self.holdings.insert((net, who));
        if fresh {
            let units = self.units(net);
            self.cover[units].iter_mut().for_each(|holdings| *holdings += 1);
        }
        fresh
    }

    pub(crate) fn release(&mut self, net: IpNet, who: Who) -> bool {
        let held = self.holdings.remove(&(net, who));
        if held {
            let units = self.units(net);
            self.cover[units].iter_mut().for_each(|holdings| *holdings -= 1);
        }
        held
    }

    /// For nets of whole units.
    pub(crate) fn is_free(&self, net: IpNet) -> bool {
        contains(self.base, net) && self.cover[self.units(net)].iter().all(|holdings| *holdings == 0)
    }

    pub(crate) fn reserve(&mut self, net: IpNet, who: Who) -> Result<(), Conflict<Who>> {
        if self.is_free(net) {
            self.hold(net, who);
            return Ok(());
        }
        if !contains(self.base, net) {
            return Err(Conflict::Outside { base: self.base });
        }
        let around = self.holdings.iter().filter(|(held, _)| contains(*held, net));
        let inside = self.holdings.iter().filter(|(held, _)| contains(net, *held));
        let (held, holder) = *around
            .max_by_key(|(held, who)| (held.prefix_len(), std::cmp::Reverse(*who)))
            .or_else(|| inside.min_by_key(|(held, who)| (first_address(*held), held.prefix_len(), *who)))
            .expect("what is not free has a holder");
        Err(if holder == PLANNED {
            Conflict::Planned { net: held }
        } else {
            Conflict::Held { net: held, holder }
        })
    }

    pub(crate) fn recount(&self) -> Recount {
        let units = &self.cover[self.units(self.base)];
        let mut is_free = Bits::new(units.len());
        for (index, holdings) in units.iter().enumerate() {
            if *holdings == 0 {
                is_free.words[index / 64] |= 1 << (index % 64);
            }
        }
        let mut by_length = Vec::new();
        for _ in self.base.prefix_len()..=self.unit {
            let (tally, bigger) = is_free.tally();
            by_length.push(tally);
            is_free = bigger;
        }
        by_length.reverse();
        Recount {
            base: self.base,
            unit: self.unit,
            by_length,
        }
    }
}

/// Which blocks of one length are free. A bitset, so that a recount at every step takes seconds and not minutes.
struct Bits {
    blocks: usize,
    words: Vec<u64>,
}

impl Bits {
    fn new(blocks: usize) -> Bits {
        Bits {
            blocks,
            words: vec![0; blocks.div_ceil(64)],
        }
    }

    /// What to know of these blocks, and the same for blocks of twice the size: those are free whose halves are.
    fn tally(&self) -> (Tally, Bits) {
        let mut tally = Tally {
            blocks: self.blocks,
            ..Tally::default()
        };
        let mut bigger = Bits::new(self.blocks / 2);
        for (index, word) in self.words.iter().enumerate() {
            let pairs = word & (word >> 1) & 0x5555_5555_5555_5555;
            let maximal = word & !(pairs | (pairs << 1));
            let position = |word: u64| (word != 0).then(|| index * 64 + word.trailing_zeros() as usize);
            tally.free += word.count_ones() as usize;
            tally.first_free = tally.first_free.or(position(*word));
            tally.first_maximal = tally.first_maximal.or(position(maximal));
            if let Some(half) = bigger.words.get_mut(index / 2) {
                *half |= squeeze(pairs) << (index % 2 * 32);
            }
        }
        (tally, bigger)
    }
}

/// The 32 bits at even places, side by side.
fn squeeze(word: u64) -> u64 {
    let mut word = word & 0x5555_5555_5555_5555;
    for (shift, keep) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ] {
        word = (word | (word >> shift)) & keep;
    }
    word
}

impl Recount {
    pub(crate) fn tally(&self, len: u8) -> Option<&Tally> {
        self.by_length
            .get(usize::from(len.checked_sub(self.base.prefix_len())?))
    }

    pub(crate) fn count(&self, len: u8) -> u128 {
        if len > self.base.max_prefix_len() {
            return 0;
        }
        let counted = self.tally(len.min(self.unit)).map_or(0, |tally| tally.free as u128);
        match 1u128.checked_shl(len.saturating_sub(self.unit).into()) {
            Some(each) => counted.saturating_mul(each),
            None => unreachable!("a unit is no /0"),
        }
    }

    pub(crate) fn largest(&self) -> Option<u8> {
        (self.base.prefix_len()..=self.unit).find(|len| self.count(*len) > 0)
    }

    fn net(&self, index: usize, of: u8, len: u8) -> IpNet {
        let size = self.base.max_prefix_len() - of;
        let offset = (index as u128).checked_shl(size.into()).unwrap_or(0);
        block_at(self.base, first_address(self.base) + offset, len)
    }

    /// R3 word by word: the lowest free block of this length; the lowest maximal one of the tightest length.
    pub(crate) fn fit(&self, len: u8, fit: Fit) -> Option<IpNet> {
        if len > self.base.max_prefix_len() {
            return None;
        }
        let shown = len.min(self.unit);
        match fit {
            Fit::First => Some(self.net(self.tally(shown)?.first_free?, shown, len)),
            Fit::Best => (self.base.prefix_len()..=shown)
                .rev()
                .find_map(|l| Some(self.net(self.tally(l)?.first_maximal?, l, len))),
        }
    }
}
