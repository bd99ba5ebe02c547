//! A state of [`super::tree`], packed into a number and unpacked.

use super::explore::State;
use super::family::PoolClaim;

/// Bits of a table's number.
pub const TABLE_BITS: u32 = 13;

/// A state, unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Here {
    pub child: u8,
    pub subnets: [u8; 3],
    /// Which states of the child pool there were.
    pub ever: u16,
    /// What may be written to each Subnet, by number of its table.
    pub tables: [u16; 3],
    /// What may be written to the pool, for each of its states, by number.
    pub pool_table: u16,
    /// Whether a question asked since the leaf was written found the pool standing, by life.
    pub stands: [bool; 2],
    /// Whether one asked since the pool was created found its holder standing, by life.
    pub held: [bool; 2],
    /// Whether a list asked for since the pool was written found nothing that keeps it.
    pub pool_may_go: bool,
    /// Whether a list asked for since the holder was written found nothing that keeps it.
    pub holder_may_go: bool,
    pub pool_claim: PoolClaim,
    /// Whether a question asked since the holder was written found the pool claim standing.
    pub claim_stands: bool,
    /// Whether a list asked for since the pool claim was marked found no pool of it, and whether one found no Subnet.
    pub claim_may_go: [bool; 2],
}

impl Here {
    pub fn unpack(state: State) -> Self {
        let mut state = state;
        let mut take = |bits: u32| {
            let value = (state & ((1 << bits) - 1)) as u16;
            state >>= bits;
            value
        };
        Self {
            child: take(4) as u8,
            subnets: std::array::from_fn(|_| take(5) as u8),
            ever: take(15),
            tables: std::array::from_fn(|_| take(TABLE_BITS)),
            pool_table: take(TABLE_BITS),
            stands: std::array::from_fn(|_| take(1) == 1),
            held: std::array::from_fn(|_| take(1) == 1),
            pool_may_go: take(1) == 1,
            holder_may_go: take(1) == 1,
            pool_claim: [PoolClaim::Alive, PoolClaim::Marked, PoolClaim::Gone][usize::from(take(2))],
            claim_stands: take(1) == 1,
            claim_may_go: std::array::from_fn(|_| take(1) == 1),
        }
    }

    pub fn pack(&self) -> State {
        let (mut state, mut at) = (0, 0);
        let mut put = |value: u16, bits: u32| {
            state |= u128::from(value) << at;
            at += bits;
        };
        put(self.child.into(), 4);
        self.subnets.iter().for_each(|number| put((*number).into(), 5));
        put(self.ever, 15);
        self.tables.iter().for_each(|table| put(*table, TABLE_BITS));
        put(self.pool_table, TABLE_BITS);
        for bit in self.stands.iter().chain(&self.held) {
            put((*bit).into(), 1);
        }
        put(self.pool_may_go.into(), 1);
        put(self.holder_may_go.into(), 1);
        put(self.pool_claim as u16, 2);
        put(self.claim_stands.into(), 1);
        self.claim_may_go.iter().for_each(|bit| put((*bit).into(), 1));
        state
    }
}
