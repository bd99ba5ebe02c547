//! String formats (D3), with the meaning the reference gives them: often looser than their RFCs.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Type;

/// The format that a check uses: `None` where the reference does not know it for this type, and so does not check it.
pub(super) fn known(format: &str, kind: Option<Type>, int_or_string: bool) -> Option<&str> {
    let known = match kind {
        _ if int_or_string => is_string_format(format),
        None | Some(Type::String) => is_string_format(format),
        Some(Type::Integer) => matches!(format, "int32" | "int64"),
        Some(Type::Number) => matches!(format, "float" | "double"),
        Some(Type::Object | Type::Array | Type::Boolean) => false,
    };
    known.then_some(format)
}

fn is_string_format(format: &str) -> bool {
    checker(format).is_some()
}

/// Whether a text has a format. A format that nobody knows is had by all.
pub(super) fn has(format: &str, text: &str) -> bool {
    checker(format).is_none_or(|check| check(text))
}

fn checker(format: &str) -> Option<fn(&str) -> bool> {
    // Dashes in names of formats mean nothing to the reference.
    let plain;
    let name = if format.contains('-') {
        plain = format.replace('-', "");
        plain.as_str()
    } else {
        format
    };
    Some(match name {
        "datetime" => is_date_time,
        "date" => is_date,
        "duration" => is_duration,
        "byte" => is_base64,
        "password" => |_| true,
        "ipv4" => is_ipv4,
        "ipv6" => is_ipv6,
        "cidr" => is_cidr,
        "mac" => is_mac,
        "uri" => is_uri,
        "hostname" => is_hostname,
        "email" => is_email,
        "uuid" => |text| is_uuid(text, None),
        "uuid3" => |text| is_uuid(text, Some('3')),
        "uuid4" => |text| is_uuid(text, Some('4')),
        "uuid5" => |text| is_uuid(text, Some('5')),
        "bsonobjectid" => |text| text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "isbn" => |text| is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "creditcard" => is_credit_card,
        "ssn" => is_ssn,
        "hexcolor" => is_hex_color,
        "rgbcolor" => is_rgb_color,
        "k8sshortname" => is_short_name,
        "k8slongname" => is_long_name,
        _ => return None,
    })
}

fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn number(text: &str) -> Option<u32> {
    digits(text).then(|| text.parse().ok()).flatten()
}

/// `2006-01-02`.
fn is_date(text: &str) -> bool {
    let mut parts = text.split('-');
    let (Some(year), Some(month), Some(day), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    if (year.len(), month.len(), day.len()) != (4, 2, 2) {
        return false;
    }
    let (Some(year), Some(month), Some(day)) = (number(year), number(month), number(day)) else {
        return false;
    };
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// A date, `T`, a time to the second with any fraction, and an offset or `Z`; case does not matter.
fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let Some((date, time)) = lower.split_once('t') else {
        return false;
    };
    // A second `t` ends what is looked at.
    let time = time.split('t').next().unwrap_or_default();
    if !is_date(date) {
        return false;
    }
    let (Some(clock), Some(rest)) = (time.get(..8), time.get(8..)) else {
        return false;
    };
    let mut parts = clock.split(':');
    let (Some(hour), Some(minute), Some(second), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    if [hour, minute, second]
        .iter()
        .any(|part| part.len() != 2 || !digits(part))
    {
        return false;
    }
    if hour > "23" || minute > "59" || second > "59" {
        return false;
    }
    let offset = |text: &str| {
        text == "z"
            || text.strip_prefix(['+', '-']).is_some_and(|text| {
                text.split_once(':')
                    .is_some_and(|(h, m)| h.len() == 2 && m.len() == 2 && digits(h) && digits(m))
            })
    };
    if offset(rest) {
        return true;
    }
    // The fraction: one character, whatever it is, and digits.
    let mut characters = rest.chars();
    characters.next();
    let rest = characters.as_str();
    let fraction = rest.bytes().take_while(u8::is_ascii_digit).count();
    fraction > 0 && rest.get(fraction..).is_some_and(offset)
}

/// Go's durations (`1h2m`), or a sentence with a number and a unit in it (`3 weeks`).
fn is_duration(text: &str) -> bool {
    is_go_duration(text) || has_worded_duration(text)
}

fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let whole = rest.bytes().take_while(u8::is_ascii_digit).count();
        let after = rest.get(whole..).unwrap_or_default();
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => {
                let count = after.bytes().take_while(u8::is_ascii_digit).count();
                (count, after.get(count..).unwrap_or_default())
            }
            None => (0, after),
        };
        // Beyond 19 digits no 64-bit count of nanoseconds can hold it.
        if whole + fraction == 0 || whole > 19 {
            return false;
        }
        let unit: String = after.chars().take_while(|c| *c != '.' && !c.is_ascii_digit()).collect();
        if !matches!(unit.as_str(), "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h") {
            return false;
        }
        rest = after.get(unit.len()..).unwrap_or_default();
    }
    true
}

fn has_worded_duration(text: &str) -> bool {
    // Per unit: names that must be whole, and a last one that may go on (`sec`, `seconds`).
    const UNITS: [(&[&str], &str); 8] = [
        (&["ns"], "nano"),
        (&["us", "µs"], "micro"),
        (&["ms"], "milli"),
        (&["s"], "sec"),
        (&["m"], "min"),
        (&["h", "hr"], "hour"),
        (&["d"], "day"),
        (&["w", "wk"], "week"),
    ];
    let mut found = false;
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = rest.get(start..).unwrap_or_default();
        let count = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number = rest.get(..count).unwrap_or_default();
        rest = rest.get(count..).unwrap_or_default();
        let after = rest.trim_start_matches(['\t', '\n', '\x0c', '\r', ' ']);
        let unit: String = after
            .chars()
            .take_while(|c| c.is_ascii_alphabetic() || *c == 'µ')
            .collect();
        if unit.is_empty() {
            continue;
        }
        rest = after.get(unit.len()..).unwrap_or_default();
        if number.parse::<i64>().is_err() {
            return false;
        }
        let unit = unit.to_lowercase();
        found |= UNITS
            .iter()
            .any(|(whole, open)| whole.contains(&unit.as_str()) || unit.starts_with(open));
    }
    found
}

fn is_base64(text: &str) -> bool {
    // Not even nothing is nothing in base64, here.
    if text.is_empty() || !text.len().is_multiple_of(4) {
        return false;
    }
    let body = text.trim_end_matches('=');
    text.len() - body.len() <= 2
        && body
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
}

/// Leading zeros are tolerated, as they were before Go 1.17.
fn parse_ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        let value = number(part)?;
        *octet = u8::try_from(value).ok()?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

fn parse_ipv6(text: &str) -> Option<Ipv6Addr> {
    if let Some((head, tail)) = text.rsplit_once(':')
        && tail.contains('.')
    {
        return format!("{head}:{}", parse_ipv4(tail)?).parse().ok();
    }
    text.parse().ok()
}

fn is_ipv4(text: &str) -> bool {
    // An IPv6 address that ends in an IPv4 one has dots too.
    parse_ipv4(text).is_some() || (text.contains('.') && parse_ipv6(text).is_some())
}

fn is_ipv6(text: &str) -> bool {
    text.contains(':') && text.parse::<Ipv6Addr>().is_ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let most = if parse_ipv4(address).is_some() {
        32
    } else if parse_ipv6(address).is_some() {
        128
    } else {
        return false;
    };
    number(bits).is_some_and(|bits| bits <= most)
}

/// 6, 8 or 20 bytes, in pairs with `:` or `-`, in fours with `.`, or without anything between.
fn is_mac(text: &str) -> bool {
    if matches!(text.len(), 12 | 16 | 40) && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return true;
    }
    let separator = match text.as_bytes().get(2) {
        Some(b':') => ':',
        Some(b'-') => '-',
        _ if text.as_bytes().get(4) == Some(&b'.') => '.',
        _ => return false,
    };
    let width = if separator == '.' { 4 } else { 2 };
    let mut bytes = 0;
    for part in text.split(separator) {
        if part.len() != width || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
            return false;
        }
        bytes += width / 2;
    }
    matches!(bytes, 6 | 8 | 20)
}

/// An absolute URI or an absolute path, as the first line of an HTTP request has it.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let (scheme, rest) = match text.split_once(':') {
        Some((scheme, rest))
            if scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) =>
        {
            (Some(scheme), rest)
        }
        Some(("", _)) => return false,
        Some(_) | None => (None, text),
    };
    let before_query = rest.split('?').next().unwrap_or_default();
    if !rest.starts_with('/') {
        // `mailto:a@b` is opaque, and fine; a relative path is not.
        return scheme.is_some();
    }
    let path = match (scheme, before_query.strip_prefix("//")) {
        (Some(_), Some(after)) => {
            let end = after.find('/').unwrap_or(after.len());
            if !is_authority(after.get(..end).unwrap_or_default()) {
                return false;
            }
            after.get(end..).unwrap_or_default()
        }
        _ => before_query,
    };
    has_good_escapes(path)
}

fn has_good_escapes(text: &str) -> bool {
    let mut parts = text.split('%');
    parts.next();
    parts.all(|part| {
        part.as_bytes()
            .get(..2)
            .is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit))
    })
}

fn is_authority(text: &str) -> bool {
    let (user, host) = match text.rsplit_once('@') {
        Some((user, host)) => (user, host),
        None => ("", text),
    };
    let good_user = user
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b));
    if !good_user || !has_good_escapes(user) {
        return false;
    }
    let port = |text: &str| {
        text.is_empty()
            || text
                .strip_prefix(':')
                .is_some_and(|port| port.is_empty() || digits(port))
    };
    if let Some(inner) = host.strip_prefix('[') {
        return inner.rsplit_once(']').is_some_and(|(address, rest)| {
            let address = address.split("%25").next().unwrap_or_default();
            address.parse::<Ipv6Addr>().is_ok() && port(rest)
        });
    }
    let name_end = host.rfind(':').unwrap_or(host.len());
    port(host.get(name_end..).unwrap_or_default())
        && host
            .get(..name_end)
            .unwrap_or_default()
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b >= 0x80 || b"!$&'()*+,;=:[]<>\"-_.~%".contains(&b))
}

fn is_hostname(text: &str) -> bool {
    static HOSTNAME: std::sync::LazyLock<super::Pattern> = std::sync::LazyLock::new(|| {
        super::Pattern::from(
            r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
        )
    });
    text.len() <= 255
        && text.split('.').all(|label| label.len() <= 63)
        && HOSTNAME.regex().is_ok_and(|regex| regex.is_match(text))
}

/// An address as a mail's header has it: `a@b`, or `Name <a@b>`.
fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let bare = match text.strip_suffix('>') {
        Some(rest) => {
            let Some((name, address)) = rest.rsplit_once('<') else {
                return false;
            };
            if !is_phrase(name.trim_matches([' ', '\t'])) {
                return false;
            }
            address
        }
        None => text,
    };
    let Some((local, domain)) = bare.rsplit_once('@') else {
        return false;
    };
    let quoted = local.len() >= 2 && local.starts_with('"') && local.ends_with('"');
    (quoted || is_dot_atom(local)) && (is_dot_atom(domain) || is_domain_literal(domain))
}

fn is_atom(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii())
}

fn is_dot_atom(text: &str) -> bool {
    text.split('.').all(is_atom)
}

fn is_domain_literal(text: &str) -> bool {
    text.strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .is_some_and(|address| parse_ipv4(address).is_some() || address.parse::<Ipv6Addr>().is_ok())
}

fn is_phrase(text: &str) -> bool {
    text.is_empty()
        || (text.len() >= 2 && text.starts_with('"') && text.ends_with('"'))
        || text.split([' ', '\t']).filter(|word| !word.is_empty()).all(is_dot_atom)
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    let mut groups = text.chars().peekable();
    let mut hex = String::with_capacity(32);
    for (index, width) in [8usize, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            groups.next_if_eq(&'-');
        }
        for _ in 0..width {
            match groups.next() {
                Some(c) if c.is_ascii_hexdigit() => hex.push(c.to_ascii_lowercase()),
                _ => return false,
            }
        }
    }
    let at = |index: usize| hex.as_bytes().get(index).copied().map(char::from);
    groups.next().is_none()
        && version.is_none_or(|version| {
            // Version 3 says nothing about the variant, here.
            at(12) == Some(version) && (version == '3' || at(16).is_some_and(|c| "89ab".contains(c)))
        })
}

fn without_space_and_dash(text: &str) -> Vec<u8> {
    text.bytes().filter(|b| !b" \t\n\x0c\r-".contains(b)).collect()
}

fn is_isbn10(text: &str) -> bool {
    let text = without_space_and_dash(text);
    let [first @ .., last] = text.as_slice() else {
        return false;
    };
    if first.len() != 9 || !first.iter().all(u8::is_ascii_digit) || !(last.is_ascii_digit() || *last == b'X') {
        return false;
    }
    let sum: u32 = (1u32..)
        .zip(first)
        .map(|(place, digit)| place * u32::from(digit - b'0'))
        .sum();
    let check = if *last == b'X' { 10 } else { u32::from(last - b'0') };
    (sum + 10 * check).is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let text = without_space_and_dash(text);
    if text.len() != 13 || !text.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let sum: u32 = [1u32, 3]
        .into_iter()
        .cycle()
        .zip(&text)
        .map(|(factor, digit)| factor * u32::from(digit - b'0'))
        .sum();
    sum.is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let prefix = |count: usize| digits.iter().take(count).fold(0, |sum, digit| sum * 10 + digit);
    let known = match digits.len() {
        13 => prefix(1) == 4,
        14 => matches!(prefix(3), 300..=305) || matches!(prefix(2), 36 | 38),
        15 => matches!(prefix(2), 34 | 37) || matches!(prefix(4), 2131 | 1800),
        16 => prefix(1) == 4 || matches!(prefix(2), 51..=55 | 65 | 35) || prefix(4) == 6011,
        _ => false,
    };
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, digit)| match (place % 2, digit * 2) {
            (0, _) => *digit,
            (_, doubled) if doubled >= 10 => doubled % 10 + 1,
            (_, doubled) => doubled,
        })
        .sum();
    known && sum.is_multiple_of(10)
}

fn is_ssn(text: &str) -> bool {
    let bytes = text.as_bytes();
    let group =
        |range: std::ops::Range<usize>| bytes.get(range).is_some_and(|part| part.iter().all(u8::is_ascii_digit));
    let gap = |at: usize| matches!(bytes.get(at), Some(b'-' | b' '));
    bytes.len() == 11 && group(0..3) && gap(3) && group(4..6) && gap(6) && group(7..11)
}

fn is_hex_color(text: &str) -> bool {
    let hex = text.strip_prefix('#').unwrap_or(text);
    matches!(hex.len(), 3 | 6) && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_rgb_color(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("rgb(").and_then(|text| text.strip_suffix(')')) else {
        return false;
    };
    let mut parts = 0;
    for part in inner.split(',') {
        parts += 1;
        let part = part.trim_matches(['\t', '\n', '\x0c', '\r', ' ']);
        let plain = part == "0" || (digits(part) && !part.starts_with('0'));
        if !plain || !part.parse::<u32>().is_ok_and(|value| value <= 255) {
            return false;
        }
    }
    parts == 3
}

fn is_label(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

fn is_short_name(text: &str) -> bool {
    text.len() <= 63 && is_label(text)
}

fn is_long_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}
