//! How long to wait, as arithmetic: no clock, no jitter from a random source.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on some monotonic clock, counted from that clock's start. The owner of the clock (the operator's edge, or
/// the simulator) decides what the start was; values of two clocks are never compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(Duration);

impl Moment {
    /// The clock's start.
    pub const START: Moment = Moment(Duration::ZERO);

    /// The moment this long after the clock's start.
    pub fn after_start(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// Time since `earlier`; zero when `earlier` is later.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;
    fn add(self, wait: Duration) -> Moment {
        Moment(self.0.saturating_add(wait))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;
    fn sub(self, wait: Duration) -> Moment {
        Moment(self.0.saturating_sub(wait))
    }
}

/// Exponential back-off for consecutive failures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// Wait after the first failure.
    pub first: Duration,
    /// No wait is longer.
    pub cap: Duration,
    /// Each wait is this many times the one before.
    pub factor: f64,
}

impl Default for Backoff {
    /// 50 ms to 30 s, times 1.5: prompt in a small cluster, bounded in a burst (requeue-strategy seed, section 11).
    fn default() -> Self {
        Self {
            first: Duration::from_millis(50),
            cap: Duration::from_secs(30),
            factor: 1.5,
        }
    }
}

impl Backoff {
    /// Wait after `failures` consecutive failures; none after none.
    pub fn delay(&self, failures: u32) -> Duration {
        if failures == 0 {
            return Duration::ZERO;
        }
        let exponent = i32::try_from(failures - 1).unwrap_or(i32::MAX);
        let seconds = self.first.as_secs_f64() * self.factor.powi(exponent);
        if !seconds.is_finite() || seconds >= self.cap.as_secs_f64() {
            return self.cap;
        }
        Duration::from_secs_f64(seconds.max(0.0)).min(self.cap)
    }
}

/// A bucket of tokens that refills at a steady rate: how many retries may start together, and how many per second after.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenBucket {
    size: f64,
    per_second: f64,
    tokens: f64,
    counted_at: Moment,
}

impl TokenBucket {
    /// A full bucket of `size` tokens, refilled with `per_second` tokens a second. Both are at least 1, so that a
    /// bucket can never be one that nobody passes.
    pub fn new(size: u32, per_second: u32) -> Self {
        let size = f64::from(size.max(1));
        Self {
            size,
            per_second: f64::from(per_second.max(1)),
            tokens: size,
            counted_at: Moment::START,
        }
    }

    /// Takes one token now and says how long its taker must wait for it: zero while the bucket has some. Takers queue
    /// behind one another, so waits grow by one interval each and nobody is passed.
    pub fn take(&mut self, now: Moment) -> Duration {
        self.refill(now);
        self.tokens -= 1.0;
        if self.tokens >= 0.0 {
            Duration::ZERO
        } else {
            Duration::from_secs_f64(-self.tokens / self.per_second)
        }
    }

    /// Takes one token only if it is there now.
    pub fn try_take(&mut self, now: Moment) -> bool {
        self.refill(now);
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }

    fn refill(&mut self, now: Moment) {
        let elapsed = now.since(self.counted_at);
        self.counted_at = self.counted_at.max(now);
        self.tokens = (self.tokens + elapsed.as_secs_f64() * self.per_second).min(self.size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn delays_are_those_of_the_seed() {
        let backoff = Backoff::default();
        let micros: Vec<u128> = (0..4).map(|n| backoff.delay(n).as_micros()).collect();
        assert_eq!(micros, [0, 50_000, 75_000, 112_500]);
        assert_eq!(backoff.delay(17).as_secs(), 30, "50 ms x 1.5^16 is past the cap");
        assert!(backoff.delay(16) < Duration::from_secs(30));
        assert_eq!(backoff.delay(u32::MAX), Duration::from_secs(30));
    }

    proptest! {
        #[test]
        fn delays_never_shrink_and_never_pass_the_cap(
            first in 1u64..5_000, cap in 1u64..100_000, factor in 1.0f64..10.0, n in 0u32..10_000,
        ) {
            let backoff = Backoff { first: Duration::from_millis(first), cap: Duration::from_millis(cap), factor };
            prop_assert!(backoff.delay(n) <= backoff.delay(n + 1));
            prop_assert!(backoff.delay(n + 1) <= backoff.cap);
        }

        #[test]
        fn a_bucket_never_lets_more_pass_than_its_size_and_rate(
            size in 1u32..50, rate in 1u32..50, gaps in prop::collection::vec(0u64..300, 1..200),
        ) {
            let mut bucket = TokenBucket::new(size, rate);
            let mut now = Moment::START;
            let mut passes: Vec<Moment> = Vec::new();
            for gap in gaps {
                now = now + Duration::from_millis(gap);
                passes.push(now + bucket.take(now));
            }
            passes.sort();
            for (i, start) in passes.iter().enumerate() {
                let within = passes[i..].iter().filter(|p| p.since(*start) < Duration::from_secs(1)).count();
                prop_assert!(within as u32 <= size + rate + 1, "{within} in one second");
            }
        }

        #[test]
        fn a_bucket_recovers_after_any_burst(burst in 1u32..500) {
            let mut bucket = TokenBucket::new(10, 10);
            for _ in 0..burst { bucket.take(Moment::START); }
            let later = Moment::START + Duration::from_secs(u64::from(burst / 10 + 2));
            prop_assert_eq!(bucket.take(later), Duration::ZERO);
        }
    }
}
