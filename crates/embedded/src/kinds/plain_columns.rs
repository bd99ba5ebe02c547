//! Name and age: the columns of kinds that have none of their own.

use jiff::Timestamp;
use serde_json::Value;

use crate::registry::row::Column;

pub const COLUMNS: &[Column] = &[
    Column {
        name: "Name",
        kind: "string",
        format: "name",
        description: "",
        priority: 0,
    },
    Column {
        name: "Age",
        kind: "string",
        format: "",
        description: "",
        priority: 0,
    },
];

/// The name, and the age as the reference shortens it.
#[must_use]
pub fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let meta = |field| object.pointer(field).and_then(Value::as_str);
    let age = meta("/metadata/creationTimestamp")
        .and_then(|text| text.parse::<Timestamp>().ok())
        .map_or_else(
            || "<unknown>".to_owned(),
            |time| short(now.as_second() - time.as_second()),
        );
    vec![meta("/metadata/name").unwrap_or_default().into(), age.into()]
}

/// Two units at most, and one where the second no longer matters.
fn short(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let pair = |whole: i64, unit: &str, rest: i64, rest_unit: &str| {
        if rest == 0 {
            format!("{whole}{unit}")
        } else {
            format!("{whole}{unit}{rest}{rest_unit}")
        }
    };
    match seconds {
        ..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ if days < 365 * 8 => pair(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}
