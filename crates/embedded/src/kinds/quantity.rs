//! Amounts such as `500m`, `1Gi` and `1e3`: read, compared, and written as the reference writes them.
//!
//! Kept in thousand-millionths in 128 bits: the reference rounds up to that precision and ends at 2^63-1, so nothing it
//! can hold is lost.

use std::cmp::Ordering;
use std::fmt;

const NANO: i128 = 1_000_000_000;
/// The largest amount, in whole units.
const MOST: i128 = i64::MAX as i128;

/// Sentences that decode errors quote.
const WRONG_FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const WRONG_SUFFIX: &str = "unable to parse quantity's suffix";

/// How an amount was written, which it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notation {
    /// `k`, `M`, `m`, …
    Decimal,
    /// `Ki`, `Mi`, …
    Binary,
    /// `e3`.
    Exponent,
}

/// An amount. Equal amounts are equal whatever their notation.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nano: i128,
    notation: Notation,
}

impl Quantity {
    pub const ZERO: Self = Self {
        nano: 0,
        notation: Notation::Decimal,
    };

    /// # Errors
    /// The reference's sentence on why the text is no amount.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, text.get(1..).unwrap_or_default()),
            Some(b'+') => (false, text.get(1..).unwrap_or_default()),
            _ => (false, text),
        };
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at_checked(end).unwrap_or((rest, ""));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(WRONG_FORMAT);
        }
        let (multiplier, notation) = multiplier(suffix)?;
        let magnitude = magnitude(whole, fraction, multiplier);
        Ok(Self {
            nano: if negative { -magnitude } else { magnitude },
            notation,
        })
    }

    /// An amount's text as the reference writes it again: as it came where it looks canonical, else canonical.
    ///
    /// # Errors
    /// The reference's sentence on why the text is no amount.
    pub fn rewrite(text: &str) -> Result<String, &'static str> {
        let amount = Self::parse(text)?;
        Ok(if looks_canonical(text) {
            text.to_owned()
        } else {
            amount.to_string()
        })
    }

    /// A JSON value that is an amount: a text or a number.
    #[must_use]
    pub fn of(value: &serde_json::Value) -> Option<Self> {
        match value {
            serde_json::Value::String(text) => Self::parse(text).ok(),
            serde_json::Value::Number(number) => Self::parse(&number.to_string()).ok(),
            _ => None,
        }
    }

    #[must_use]
    pub fn is_negative(self) -> bool {
        self.nano < 0
    }

    #[must_use]
    pub fn is_zero(self) -> bool {
        self.nano == 0
    }

    /// Whether it is a whole number of units.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self.nano % NANO == 0
    }

    /// Whether it is a whole number of thousandths.
    #[must_use]
    pub fn is_milli(self) -> bool {
        self.nano % 1_000_000 == 0
    }

    /// The next amount that is a whole number of thousandths.
    #[must_use]
    pub fn rounded_to_milli(self) -> Self {
        Self {
            nano: self.milli() * 1_000_000,
            ..self
        }
    }

    /// In thousandths, rounded up.
    #[must_use]
    pub fn milli(self) -> i128 {
        round_up(self.nano, 1_000_000)
    }

    /// In whole units, rounded up.
    #[must_use]
    pub fn units(self) -> i128 {
        round_up(self.nano, NANO)
    }
}

impl std::ops::Add for Quantity {
    type Output = Self;

    /// Written as the first is, as long as that is anything.
    fn add(self, other: Self) -> Self {
        let notation = if self.is_zero() { other.notation } else { self.notation };
        Self {
            nano: (self.nano + other.nano).min(MOST * NANO),
            notation,
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return formatter.write_str("0");
        }
        match self.notation {
            // Below a Ki, and for parts of a unit, the reference writes decimals.
            Notation::Binary if self.nano.abs() >= 1024 * NANO && self.is_whole() => {
                let (mut units, mut step) = (round_up(self.nano, NANO), 0usize);
                const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
                while units % 1024 == 0 && step + 1 < SUFFIXES.len() {
                    units /= 1024;
                    step += 1;
                }
                write!(formatter, "{units}{}", SUFFIXES.get(step).copied().unwrap_or_default())
            }
            notation => {
                let (mut amount, mut step) = (self.nano, 0usize);
                const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
                const EXPONENTS: [&str; 10] = ["e-9", "e-6", "e-3", "", "e3", "e6", "e9", "e12", "e15", "e18"];
                while amount % 1000 == 0 && step + 1 < SUFFIXES.len() {
                    amount /= 1000;
                    step += 1;
                }
                let table = if notation == Notation::Exponent {
                    EXPONENTS
                } else {
                    SUFFIXES
                };
                write!(formatter, "{amount}{}", table.get(step).copied().unwrap_or_default())
            }
        }
    }
}

/// What the reference takes for canonical, and so keeps: few enough digits, an exponent that is a multiple of three once
/// the point is moved out, no leading zero and no thousand at the end. Signs and needless points stay with it.
fn looks_canonical(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at_checked(end).unwrap_or((unsigned, ""));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.trim_start_matches('0');
    let digits = whole.len() + fraction.len();
    match multiplier(suffix) {
        Ok((Multiplier::PowerOfTen(power), _)) => {
            let scale = i64::from(power) - i64::try_from(fraction.len()).unwrap_or(i64::MAX);
            let thousands = if fraction.len() >= 3 {
                fraction.ends_with("000")
            } else {
                format!("{whole}{fraction}").ends_with("000")
            };
            digits <= 18 && scale >= -9 && scale % 3 == 0 && !whole.is_empty() && !thousands
        }
        Ok((Multiplier::PowerOf1024(power), _)) => {
            let most = 14 - i64::from(power) * 3;
            i64::try_from(digits).is_ok_and(|digits| digits <= most)
                && fraction.is_empty()
                && !number.contains('.')
                && whole.parse::<i64>().is_ok_and(|number| number % 8 != 0)
        }
        Err(_) => false,
    }
}

/// Towards more, as the reference rounds: who asked for something is given something.
fn round_up(nano: i128, unit: i128) -> i128 {
    let whole = nano / unit;
    match nano % unit {
        0 => whole,
        rest if rest > 0 => whole + 1,
        _ => whole - 1,
    }
}

#[derive(Debug, Clone, Copy)]
enum Multiplier {
    PowerOfTen(i32),
    PowerOf1024(u32),
}

fn multiplier(suffix: &str) -> Result<(Multiplier, Notation), &'static str> {
    let ten = |power| Ok((Multiplier::PowerOfTen(power), Notation::Decimal));
    let binary = |power| Ok((Multiplier::PowerOf1024(power), Notation::Binary));
    match suffix {
        "n" => ten(-9),
        "u" => ten(-6),
        "m" => ten(-3),
        "" => ten(0),
        "k" => ten(3),
        "M" => ten(6),
        "G" => ten(9),
        "T" => ten(12),
        "P" => ten(15),
        "E" => ten(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let known = |c: char| "eEinumkKMGTP".contains(c);
            let after_letters = suffix.trim_start_matches(known);
            let digits = after_letters.strip_prefix(['-', '+']).unwrap_or(after_letters);
            if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(WRONG_FORMAT);
            }
            match suffix.strip_prefix(['e', 'E']).map(str::parse::<i32>) {
                Some(Ok(power)) => Ok((Multiplier::PowerOfTen(power), Notation::Exponent)),
                _ => Err(WRONG_SUFFIX),
            }
        }
    }
}

/// In thousand-millionths; what is finer is rounded up, what is larger than the most becomes the most.
fn magnitude(whole: &str, fraction: &str, multiplier: Multiplier) -> i128 {
    let (power, binary) = match multiplier {
        Multiplier::PowerOfTen(power) => (power, 1),
        Multiplier::PowerOf1024(power) => (0, 1024i128.pow(power)),
    };
    // digits * 10^(power - fraction.len() + 9) thousand-millionths.
    let digits = whole
        .trim_start_matches('0')
        .bytes()
        .chain(fraction.bytes())
        .map(|byte| i128::from(byte.wrapping_sub(b'0')));
    let mut amount: i128 = 0;
    let mut dropped = 0i64;
    let mut rest = false;
    for digit in digits {
        // 37 digits hold any amount in thousand-millionths; what follows only moves the point.
        if amount < 10i128.pow(36) {
            amount = amount * 10 + digit;
        } else {
            dropped += 1;
            rest |= digit != 0;
        }
    }
    if amount == 0 {
        return 0;
    }
    // A binary suffix needs room: the last digits of very long numbers go.
    while amount.checked_mul(binary).is_none() {
        rest |= amount % 10 != 0;
        amount /= 10;
        dropped += 1;
    }
    let exponent = i64::from(power) - i64::try_from(fraction.len()).unwrap_or(i64::MAX) + 9 + dropped;
    // Only amounts with binary suffixes end at the most; decimal ones at what 128 bits hold, cut to a round number.
    let most = match multiplier {
        Multiplier::PowerOfTen(_) => 10i128.pow(38),
        Multiplier::PowerOf1024(_) => MOST * NANO,
    };
    let scaled = amount.saturating_mul(binary);
    let value = if exponent >= 0 {
        let factor = u32::try_from(exponent)
            .ok()
            .and_then(|exponent| 10i128.checked_pow(exponent));
        factor.and_then(|factor| scaled.checked_mul(factor)).unwrap_or(most)
    } else {
        let divisor = u32::try_from(-exponent)
            .ok()
            .and_then(|exponent| 10i128.checked_pow(exponent));
        match divisor {
            None => 1,
            Some(divisor) => scaled / divisor + i128::from(scaled % divisor != 0 || rest),
        }
    };
    value.min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        Quantity::parse(text).map_or_else(str::to_owned, |quantity| quantity.to_string())
    }

    #[test]
    fn o20_amounts_are_written_as_the_reference_writes_them() {
        for (text, expected) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1024Ki", "1Mi"),
            ("1.5Gi", "1536Mi"),
            ("100000", "100k"),
            ("1e3", "1e3"),
            ("1000e3", "1e6"),
            ("0", "0"),
            ("0.0", "0"),
            ("+1", "1"),
            ("-5m", "-5m"),
            ("0.5Ki", "512"),
            ("1.1Ki", "1126400m"),
            ("1000Ki", "1000Ki"),
            ("0.0000000001", "1n"),
            ("1E", "1E"),
            ("100E", "100E"),
            ("123456789012345678901Ki", "9223372036854775807"),
            ("010", "10"),
            (".5", "500m"),
            ("1.", "1"),
            ("2000000u", "2"),
        ] {
            assert_eq!(canonical(text), expected, "{text}");
        }
    }

    #[test]
    fn o20_what_is_no_amount_is_refused_with_the_reference_s_sentence() {
        for text in ["", "a", "1.2.3", "--1", "1 Gi", "m"] {
            assert_eq!(canonical(text), WRONG_FORMAT, "{text}");
        }
        for text in ["1kk", "1ee", "1iK"] {
            assert_eq!(canonical(text), WRONG_SUFFIX, "{text}");
        }
    }

    #[test]
    fn o20_what_looks_canonical_is_written_as_it_came() {
        for text in [
            "1.5e10",
            "010",
            "1.",
            "+1",
            "1.5e-2",
            "1001Ki",
            "1500m",
            "0",
            "999999999999999999",
        ] {
            assert_eq!(Quantity::rewrite(text).unwrap(), text);
        }
        for (text, expected) in [
            ("1500e7", "15e9"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1024Mi", "1Gi"),
            ("1000", "1k"),
        ] {
            assert_eq!(Quantity::rewrite(text).unwrap(), expected);
        }
    }

    #[test]
    fn amounts_compare_across_notations() {
        let parse = |text| Quantity::parse(text).unwrap();
        assert!(parse("1Ki") > parse("1k"));
        assert_eq!(parse("1000m"), parse("1"));
        assert!(parse("0.1").milli() == 100 && parse("1500m").units() == 2);
    }
}
