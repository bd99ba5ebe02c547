//! Ages as people read them: two or three figures, coarser the longer ago.

use jiff::{SignedDuration, Timestamp};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;

/// The reference's steps: seconds below two minutes, minutes with seconds below ten, and so on up to years.
#[must_use]
pub fn human_duration(elapsed: SignedDuration) -> String {
    let seconds = elapsed.as_secs();
    // Clocks differ: up to two seconds in the future count as now.
    if seconds < -1 {
        return "<invalid>".into();
    }
    let (minutes, hours) = (seconds / MINUTE, seconds / HOUR);
    let days = hours / 24;
    let years = days / 365;
    match seconds {
        ..0 => "0s".into(),
        0..=119 => format!("{seconds}s"),
        _ if minutes < 10 => two((minutes, "m"), (seconds % 60, "s")),
        _ if minutes < 3 * 60 => format!("{minutes}m"),
        _ if hours < 8 => two((hours, "h"), (minutes % 60, "m")),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two((days, "d"), (hours % 24, "h")),
        _ if days < 2 * 365 => format!("{days}d"),
        _ if days < 8 * 365 => two((years, "y"), (days % 365, "d")),
        _ => format!("{years}y"),
    }
}

fn two(large: (i64, &str), small: (i64, &str)) -> String {
    if small.0 == 0 {
        format!("{}{}", large.0, large.1)
    } else {
        format!("{}{}{}{}", large.0, large.1, small.0, small.1)
    }
}

/// How long ago a time of the object was; `<unknown>` without one.
#[must_use]
pub fn age(time: Option<Timestamp>, now: Timestamp) -> String {
    match time {
        Some(time) => human_duration(now.duration_since(time)),
        None => "<unknown>".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_the_references_steps() {
        let (minute, hour, day, year) = (60, 3600, 86_400, 365 * 86_400);
        for (seconds, text) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (10 * minute - 1, "9m59s"),
            (10 * minute + 5, "10m"),
            (3 * hour - 1, "179m"),
            (3 * hour, "3h"),
            (8 * hour - 1, "7h59m"),
            (8 * hour, "8h"),
            (48 * hour - 1, "47h"),
            (48 * hour, "2d"),
            (7 * day, "7d"),
            (8 * day - 1, "7d23h"),
            (8 * day, "8d"),
            (2 * year - 1, "729d"),
            (2 * year, "2y"),
            (2 * year + 3 * day, "2y3d"),
            (8 * year - 1, "7y364d"),
            (8 * year, "8y"),
            (9 * year + 100 * day, "9y"),
        ] {
            assert_eq!(human_duration(SignedDuration::from_secs(seconds)), text, "{seconds}");
        }
        assert_eq!(human_duration(SignedDuration::from_millis(-1_900)), "0s");
    }
}
