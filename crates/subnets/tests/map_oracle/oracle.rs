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

/// For each length from the unit's up to the base's: which blocks of the base are free, in order.
pub(crate) struct Recount {
    pub(crate) base: IpNet,
    pub(crate) unit: u8,
    pub(crate) by_length: Vec<(u8, Vec<bool>)>,
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
        let mut free: Vec<bool> = self.cover[self.units(self.base)]
            .iter()
            .map(|holdings| *holdings == 0)
            .collect();
        let mut by_length = Vec::new();
        for len in (self.base.prefix_len()..=self.unit).rev() {
            let bigger = free.chunks(2).map(|halves| halves.iter().all(|half| *half)).collect();
            by_length.push((len, std::mem::replace(&mut free, bigger)));
        }
        by_length.reverse();
        Recount {
            base: self.base,
            unit: self.unit,
            by_length,
        }
    }
}

impl Recount {
    pub(crate) fn free(&self, len: u8) -> &[bool] {
        self.by_length
            .iter()
            .find(|(l, _)| *l == len)
            .map_or(&[], |(_, free)| free)
    }

    pub(crate) fn count(&self, len: u8) -> u128 {
        if len > self.base.max_prefix_len() {
            return 0;
        }
        let counted = self.free(len.min(self.unit)).iter().filter(|free| **free).count() as u128;
        match 1u128.checked_shl(len.saturating_sub(self.unit).into()) {
            Some(each) => counted.saturating_mul(each),
            None => unreachable!("a unit is no /0"),
        }
    }

    pub(crate) fn largest(&self) -> Option<u8> {
        self.by_length
            .iter()
            .find(|(_, free)| free.contains(&true))
            .map(|(len, _)| *len)
    }

    pub(crate) fn net(&self, index: usize, of: u8, len: u8) -> IpNet {
        let size = self.base.max_prefix_len() - of;
        let offset = (index as u128).checked_shl(size.into()).unwrap_or(0);
        block_at(self.base, first_address(self.base) + offset, len)
    }

    /// R3 word by word: the lowest free block of this length; the tightest of the blocks that are free while what is
    /// around them is not.
    pub(crate) fn fit(&self, len: u8, fit: Fit) -> Option<IpNet> {
        if len > self.base.max_prefix_len() {
            return None;
        }
        let shown = len.min(self.unit);
        if fit == Fit::First {
            return self
                .free(shown)
                .iter()
                .position(|free| *free)
                .map(|index| self.net(index, shown, len));
        }
        (self.base.prefix_len()..=shown).rev().find_map(|l| {
            let around = l.checked_sub(1).map_or(&[] as &[bool], |shorter| self.free(shorter));
            let maximal = |(index, free): (usize, &bool)| *free && around.get(index / 2) != Some(&true);
            self.free(l)
                .iter()
                .enumerate()
                .position(maximal)
                .map(|index| self.net(index, l, len))
        })
    }
}
