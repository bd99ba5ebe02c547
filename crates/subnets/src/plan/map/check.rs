//! Recounts a map the slow way (invariant I7). For tests, and for whoever suspects a map at run time; it is O(n W log n)
//! and never on the path of an event.

use std::fmt::Debug;

use ipnet::IpNet;

use super::AddressMap;
use super::block::{Block, Family};
use super::free::FreeSpace;

/// A map contradicts itself: a defect of this module, whatever was asked of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("free block {net} is outside the base")]
    Outside { net: IpNet },
    #[error("free block {net} and its buddy are not merged")]
    NotMaximal { net: IpNet },
    #[error("{net} is free twice")]
    FreeTwice { net: IpNet },
    #[error("{net} is held, yet something in it is free")]
    FreeAndHeld { net: IpNet },
    #[error("{lost} addresses are neither held nor free (modulo 2^128)")]
    Lost { lost: u128 },
    #[error("count(/{len}) is {counted}, a recount by address gives {recounted}")]
    Miscounted { len: u8, counted: u128, recounted: u128 },
}

/// Bits of address below which every single address is recounted as well.
const SMALL_POOL_BITS: u8 = 16;

impl<W: Clone + Ord + Debug> AddressMap<W> {
    /// That free blocks are inside the base, disjoint, maximal and held by nobody, that nothing is lost, and that the
    /// counts are right.
    pub fn check(&self) -> Result<(), Damage> {
        let base = self.free.base();
        let mut free: Vec<Block> = self.free.set().iter().collect();
        free.sort_by_key(|block| (block.bits, block.len));
        for block in &free {
            let net = block.net();
            if !base.contains(*block) {
                return Err(Damage::Outside { net });
            }
            if *block != base && block.buddy().is_some_and(|buddy| self.free.has(buddy)) {
                return Err(Damage::NotMaximal { net });
            }
        }
        for (block, next) in free.iter().zip(free.iter().skip(1)) {
            if block.contains(*next) {
                return Err(Damage::FreeTwice { net: next.net() });
            }
        }

        let mut held: Vec<Block> = self.holdings.iter().filter_map(|(block, _)| block.clip(base)).collect();
        held.sort_by_key(|block| (block.bits, block.len));
        for block in &held {
            if self.free.container(*block).is_some() || self.free.set().first_inside(*block).is_some() {
                return Err(Damage::FreeAndHeld { net: block.net() });
            }
        }
        held.dedup_by(|next, block| block.contains(*next));

        let all = addresses(base);
        let accounted = held
            .iter()
            .chain(&free)
            .fold(0u128, |sum, block| sum.wrapping_add(addresses(*block)));
        if all != accounted {
            return Err(Damage::Lost {
                lost: all.wrapping_sub(accounted),
            });
        }
        self.check_counts(&held)
    }

    fn check_counts(&self, held: &[Block]) -> Result<(), Damage> {
        for (len, swept) in self.counts() {
            if self.count(len) != swept {
                return Err(Damage::Miscounted {
                    len,
                    counted: self.count(len),
                    recounted: swept,
                });
            }
        }
        let base = self.free.base();
        let width = base.family.width();
        if width - base.len > SMALL_POOL_BITS {
            return Ok(());
        }
        let mut is_free: Vec<bool> = vec![true; 1 << (width - base.len)];
        for block in held {
            let first = usize::try_from(address(*block) - address(base)).unwrap_or(usize::MAX);
            is_free
                .iter_mut()
                .skip(first)
                .take(1 << (width - block.len))
                .for_each(|free| *free = false);
        }
        for len in (base.len..=width).rev() {
            let recounted = is_free.iter().filter(|free| **free).count() as u128;
            let counted = self.count(len);
            if counted != recounted {
                return Err(Damage::Miscounted {
                    len,
                    counted,
                    recounted,
                });
            }
            is_free = is_free
                .chunks(2)
                .map(|halves| halves.iter().all(|free| *free))
                .collect();
        }
        Ok(())
    }
}

/// Modulo 2^128.
fn addresses(block: Block) -> u128 {
    1u128
        .checked_shl(u32::from(block.family.width() - block.len))
        .unwrap_or(0)
}

fn address(block: Block) -> u128 {
    match block.family {
        Family::V4 => block.bits >> 96,
        Family::V6 => block.bits,
    }
}
