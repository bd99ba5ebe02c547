//! Times of built-in kinds: RFC 3339, written in UTC with seconds (`Time`) or microseconds (`MicroTime`).

use jiff::Timestamp;
use jiff::fmt::strtime;

const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
const MICROS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// The time as the reference writes it, without parts of a second.
///
/// # Errors
/// The reference's sentence.
pub fn seconds(text: &str) -> Result<String, String> {
    let time = parse(text, SECONDS)?;
    Ok(format_seconds(time))
}

/// The time as the reference writes it, with six digits.
///
/// # Errors
/// The reference's sentence.
pub fn micros(text: &str) -> Result<String, String> {
    let time = parse(text, MICROS)?;
    Ok(format_micros(time))
}

/// A moment as `Time` is written.
#[must_use]
pub fn format_seconds(time: Timestamp) -> String {
    strtime::format("%Y-%m-%dT%H:%M:%SZ", time).unwrap_or_default()
}

/// A moment as `MicroTime` is written.
#[must_use]
pub fn format_micros(time: Timestamp) -> String {
    strtime::format("%Y-%m-%dT%H:%M:%S.%6fZ", time).unwrap_or_default()
}

fn parse(text: &str, layout: &str) -> Result<Timestamp, String> {
    // jiff takes more than RFC 3339; what the layout has no place for is refused first.
    let shape = |index: usize, byte: u8| text.as_bytes().get(index) == Some(&byte);
    if !(shape(4, b'-') && shape(7, b'-') && shape(10, b'T') && shape(13, b':') && shape(16, b':'))
        || text.contains('[')
    {
        return Err(cannot(text, layout));
    }
    let after = text.get(19..).unwrap_or_default();
    if layout == MICROS && (!after.starts_with('.') || fraction_digits(after) != 6) {
        return Err(cannot(text, layout));
    }
    text.parse().map_err(|_| cannot(text, layout))
}

fn cannot(text: &str, layout: &str) -> String {
    // Go names the first part that does not fit; for what is no time at all that is the year.
    let (rest, part) = first_misfit(text, layout == MICROS);
    format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {part:?}")
}

/// Digits after the point of `.123Z`.
fn fraction_digits(text: &str) -> usize {
    text.bytes().skip(1).take_while(u8::is_ascii_digit).count()
}

fn first_misfit(text: &str, micros: bool) -> (&str, &'static str) {
    let mut rest = text;
    for (digits, part) in [
        (4, "2006"),
        (0, "-"),
        (2, "01"),
        (0, "-"),
        (2, "02"),
        (0, "T"),
        (2, "15"),
        (0, ":"),
        (2, "04"),
        (0, ":"),
        (2, "05"),
    ] {
        if digits == 0 {
            match rest.strip_prefix(part) {
                Some(after) => rest = after,
                None => return (rest, part),
            }
        } else {
            let head = rest
                .get(..digits)
                .filter(|head| head.bytes().all(|byte| byte.is_ascii_digit()));
            match head {
                Some(_) => rest = rest.get(digits..).unwrap_or_default(),
                None => return (rest, part),
            }
        }
    }
    if micros {
        if !rest.starts_with('.') || fraction_digits(rest) < 6 {
            return (rest, ".000000");
        }
        rest = rest.get(7..).unwrap_or_default();
    } else if rest.starts_with('.') {
        rest = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    }
    (rest, "Z07:00")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_with_as_many_digits_as_their_type_has() {
        assert_eq!(
            seconds("2024-02-03T04:05:06.789+02:00").unwrap(),
            "2024-02-03T02:05:06Z"
        );
        assert_eq!(
            micros("2024-02-03T04:05:06.789000Z").unwrap(),
            "2024-02-03T04:05:06.789000Z"
        );
        for (text, part) in [
            ("2024-01-01T00:00:00Z", r#"cannot parse "Z" as ".000000""#),
            ("2024-01-01T00:00:00.1234567Z", r#"cannot parse "7Z" as "Z07:00""#),
        ] {
            let error = micros(text).unwrap_err();
            assert!(error.ends_with(part), "{error}");
        }
        assert_eq!(
            seconds("soon").unwrap_err(),
            r#"parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006""#
        );
        assert_eq!(
            seconds("2024-02-03").unwrap_err(),
            r#"parsing time "2024-02-03" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#
        );
    }
}
