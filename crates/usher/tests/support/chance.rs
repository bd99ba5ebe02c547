//! Seeded randomness: a failure names its seed, and the seed brings it back (as far as other processes allow).

/// SplitMix64: small, good enough to choose moments and sizes.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// From `USHER_SEED`, else from the clock; printed, so that a failing run can be told apart and tried again.
    pub fn from_environment() -> Self {
        let seed = match std::env::var("USHER_SEED") {
            Ok(text) => text.parse().expect("USHER_SEED must be a whole number"),
            Err(_) => u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or(1),
        };
        println!("USHER_SEED={seed}");
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// At least `low`, at most `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    pub fn pick<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        let at = self.between(0, of.len() as u64 - 1);
        &of[usize::try_from(at).unwrap()]
    }

    /// Another source, for another task.
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }
}

/// How much of something: from the environment, else the usual.
pub fn number(variable: &str, usual: usize) -> usize {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable} must be a whole number")),
        Err(_) => usual,
    }
}
