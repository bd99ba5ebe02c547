//! Chance with a seed: the same numbers on every machine and with every version of every crate.

/// Dice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dice(u64);

impl Dice {
    /// Dice that fall the same way for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// 0 to `below`, without it.
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0) % below.max(1)
    }

    /// `from` to `to`, both within.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.roll(to.saturating_sub(from) + 1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.roll(n) == 0
    }

    /// One of them.
    pub fn pick<'i, T>(&mut self, items: &'i [T]) -> Option<&'i T> {
        let at = self.roll(items.len() as u64);
        items.get(usize::try_from(at).unwrap_or_default())
    }
}

/// Spreads a number over all bits (the finish of SplitMix64).
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
