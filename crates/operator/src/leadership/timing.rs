//! The three durations of a lease, and which of them go together.

use std::time::Duration;

use usher_engine::ErrorClass;

/// How long a lease holds and how it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTiming {
    /// How long another must have seen the lease unchanged before it may take it. Whole seconds: that is what a Lease
    /// can say.
    pub duration: Duration,
    /// How often the holder renews, and how often others look.
    pub renew_every: Duration,
    /// How much sooner than `duration` the holder stops: covers drifting clocks and the last request's way.
    pub margin: Duration,
}

impl Default for LeaseTiming {
    /// client-go's numbers: 15 s, renewed every 2 s, given up after 10 s without a renewal.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_every: Duration::from_secs(2),
            margin: Duration::from_secs(5),
        }
    }
}

impl LeaseTiming {
    /// No lease is longer, and none that claims to be is believed: a typing error must not lock everybody out.
    pub const LONGEST: Duration = Duration::from_secs(3600);
    /// The margin is at least this part of the duration: 1/50, for two clocks each within 1 % of true time.
    pub(super) const MARGIN_PART: u32 = 50;

    /// Whether the three go together.
    pub fn validate(&self) -> Result<(), TimingError> {
        let Self {
            duration,
            renew_every,
            margin,
        } = *self;
        if duration.subsec_nanos() != 0 || duration.is_zero() || duration > Self::LONGEST {
            return Err(TimingError::Duration { duration });
        }
        let least = duration / Self::MARGIN_PART;
        if margin < least || margin >= duration {
            return Err(TimingError::Margin {
                margin,
                least,
                duration,
            });
        }
        if renew_every.is_zero() || renew_every >= duration - margin {
            return Err(TimingError::RenewEvery {
                renew_every,
                below: duration - margin,
            });
        }
        Ok(())
    }

    /// How long the holder may act after sending a renewal that was stored.
    pub fn valid_for(&self) -> Duration {
        self.duration.saturating_sub(self.margin)
    }

    /// After this long a request to the lease is given up. No longer than `renew_every`, so that a request that hangs
    /// costs one renewal and not the lease; no longer than `margin`, so that the last one ends before another begins.
    pub fn request_timeout(&self) -> Duration {
        self.renew_every.min(self.margin)
    }

    /// The duration as a Lease says it.
    pub(crate) fn duration_seconds(&self) -> u32 {
        u32::try_from(self.duration.min(Self::LONGEST).as_secs())
            .unwrap_or(u32::MAX)
            .max(1)
    }
}

/// Which flag is wrong, and what would be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// Not whole seconds, or none, or too many.
    #[error("--lease-seconds is {duration:?}; set it to whole seconds, from 1s to {}s", LeaseTiming::LONGEST.as_secs())]
    Duration {
        /// As given.
        duration: Duration,
    },
    /// Too small for drifting clocks, or nothing would be left to act in.
    #[error(
        "--lease-margin-ms is {margin:?}; set it to at least {least:?} (clocks drift) and less than --lease-seconds \
         ({duration:?})"
    )]
    Margin {
        /// As given.
        margin: Duration,
        /// The least that is safe.
        least: Duration,
        /// The lease's duration.
        duration: Duration,
    },
    /// The lease would end before its first renewal.
    #[error(
        "--lease-renew-ms is {renew_every:?}; set it above 0 and below {below:?}, which is --lease-seconds less \
         --lease-margin-ms"
    )]
    RenewEvery {
        /// As given.
        renew_every: Duration,
        /// It must be less than this.
        below: Duration,
    },
}

impl TimingError {
    /// A person must change a flag; no retry helps.
    pub fn class(&self) -> ErrorClass {
        ErrorClass::Validation
    }
}
