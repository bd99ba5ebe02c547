//! Whether an object is as rendered.
//!
//! An API server adds fields, orders nothing anew, and writes quantities its own way (`1000m` comes back as `1`). So an object
//! is as rendered if all that we say is there, in those words or in words that mean the same; and if it was made from just
//! this manifest, so that what we say no longer is gone.

use serde_json::Value;

use crate::api::annotations::APPLIED;
use crate::json::at;

/// Whether `live` (labels, annotations, spec) is as `rendered`.
pub fn settled(rendered: &Value, live: &Value) -> bool {
    let signature = |object: &Value| at(object, &["metadata", "annotations", APPLIED]).clone();
    signature(rendered) == signature(live)
        && ["labels", "annotations"]
            .iter()
            .all(|part| says(at(live, &["metadata", part]), at(rendered, &["metadata", part])))
        && says(&live["spec"], &rendered["spec"])
}

/// Whether all of `wanted` is in `found`.
fn says(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted.iter().all(|(name, wanted)| {
            // What is empty may be left out.
            found
                .get(name)
                .map_or_else(|| is_empty(wanted), |found| says(found, wanted))
        }),
        (Value::Array(found), Value::Array(wanted)) if wanted.iter().all(Value::is_object) => {
            // In this order, and perhaps with others' between them.
            let mut rest = found.iter();
            wanted.iter().all(|wanted| rest.any(|found| says(found, wanted)))
        }
        (Value::String(found), Value::String(wanted)) => found == wanted || same_quantity(found, wanted),
        (found, wanted) => found == wanted,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn same_quantity(one: &str, other: &str) -> bool {
    matches!((quantity(one), quantity(other)), (Some(one), Some(other)) if one == other)
}

/// An amount as Kubernetes writes it, in thousandths.
pub fn quantity(text: &str) -> Option<i128> {
    const SUFFIXES: [(&str, i128); 14] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("Pi", 1 << 50),
        ("Ei", 1 << 60),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
        ("P", 1_000_000_000_000_000),
        ("E", 1_000_000_000_000_000_000),
        ("m", 0),
        ("", 1),
    ];
    let (number, unit) = SUFFIXES
        .iter()
        .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)))?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    // Twelve digits behind the point are more than anybody means.
    if number.len() > 24 || part.len() > 12 || !digits(whole) || !digits(part) || (whole.is_empty() && part.is_empty())
    {
        return None;
    }
    let scale = 10_i128.checked_pow(u32::try_from(part.len()).ok()?)?;
    let value: i128 = format!("{whole}{part}").parse().ok()?;
    let thousandths = if unit == 0 {
        value
    } else {
        value.checked_mul(unit)?.checked_mul(1000)?
    };
    // Rounded up, as the API server does.
    Some((thousandths + scale - 1) / scale)
}
