//! How long a container waits before it runs again (N10): the first time not at all, then 10 s doubling to 300 s, counted
//! from its end; and from the beginning again once it was left alone for twice the longest wait.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// The shortest and the longest wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub shortest: SignedDuration,
    pub longest: SignedDuration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            shortest: SignedDuration::from_secs(10),
            longest: SignedDuration::from_secs(300),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backoff {
    pub milliseconds: i64,
    /// Of the restart that set it.
    pub since: Timestamp,
}

impl Backoff {
    pub(super) fn delay(self) -> SignedDuration {
        SignedDuration::from_millis(self.milliseconds)
    }

    /// Until when a container that ended then has to wait; `None`: it need not.
    pub(super) fn until(self, ended: Timestamp, limits: Limits) -> Option<Timestamp> {
        if self.is_over(ended, limits) {
            return None;
        }
        ended.saturating_add(self.delay()).ok()
    }

    /// After a restart.
    pub(super) fn next(before: Option<Self>, now: Timestamp, limits: Limits) -> Self {
        let delay = match before {
            Some(before) if !before.is_over(now, limits) => (before.delay().saturating_mul(2)).min(limits.longest),
            _ => limits.shortest,
        };
        Self {
            milliseconds: i64::try_from(delay.as_millis()).unwrap_or(i64::MAX),
            since: now,
        }
    }

    fn is_over(self, at: Timestamp, limits: Limits) -> bool {
        at.duration_since(self.since) > limits.longest.saturating_mul(2)
    }
}

/// As Go prints it: `10s`, `1m20s`, `5m0s`, `250ms`.
pub(super) fn go_duration(duration: SignedDuration) -> String {
    let millis = duration.as_millis();
    if millis < 1_000 {
        return format!("{millis}ms");
    }
    let (seconds, rest) = (millis / 1_000, millis % 1_000);
    let fraction = if rest == 0 {
        String::new()
    } else {
        format!(".{rest:03}").trim_end_matches('0').to_owned()
    };
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}{fraction}s"),
        (0, _) => format!("{minutes}m{seconds}{fraction}s"),
        _ => format!("{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    #[test]
    fn n10_waits_double_from_ten_seconds_to_five_minutes() {
        let limits = Limits::default();
        let mut backoff = None;
        let mut waits = Vec::new();
        let mut now = 0;
        for _ in 0..7 {
            let next = Backoff::next(backoff, at(now), limits);
            waits.push(go_duration(next.delay()));
            now += next.milliseconds / 1_000;
            backoff = Some(next);
        }
        assert_eq!(waits, ["10s", "20s", "40s", "1m20s", "2m40s", "5m0s", "5m0s"]);
    }

    #[test]
    fn n10_ten_minutes_of_running_begin_anew() {
        let limits = Limits::default();
        let late = Backoff {
            milliseconds: 160_000,
            since: at(0),
        };
        assert_eq!(late.until(at(600), limits), Some(at(760)));
        assert_eq!(late.until(at(601), limits), None);
        assert_eq!(Backoff::next(Some(late), at(601), limits).milliseconds, 10_000);
        assert_eq!(Backoff::next(Some(late), at(600), limits).milliseconds, 300_000);
    }

    #[test]
    fn durations_read_as_in_the_reference() {
        for (millis, text) in [(250, "250ms"), (1_500, "1.5s"), (3_660_000, "1h1m0s"), (60_000, "1m0s")] {
            assert_eq!(go_duration(SignedDuration::from_millis(millis)), text);
        }
    }
}
