//! Checks that many kinds share, each adding what it finds to a list.

use std::net::IpAddr;

use serde_json::Value;

use super::metadata::invalid;
use super::names;
use super::quantity::Quantity;
use super::reading::same;
use crate::fault::{FieldError, Path, Wrong};

pub(super) type Errors = Vec<FieldError>;

pub(super) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub(super) const IMMUTABLE: &str = "field is immutable";

pub(super) fn not_negative(errors: &mut Errors, path: &Path, value: Option<i64>) {
    if let Some(value) = value.filter(|value| *value < 0) {
        errors.push(FieldError::invalid(path, value, NOT_NEGATIVE));
    }
}

pub(super) fn at_least_one(errors: &mut Errors, path: &Path, value: Option<i64>) {
    if let Some(value) = value.filter(|value| *value <= 0) {
        errors.push(FieldError::invalid(path, value, "must be greater than 0"));
    }
}

/// A value of a closed set; absent is fine.
pub(super) fn among(errors: &mut Errors, path: &Path, value: Option<&Value>, supported: &[&str]) {
    if let Some(value) = value.filter(|value| !value.is_null())
        && !value.as_str().is_some_and(|word| supported.contains(&word))
    {
        errors.push(FieldError::not_supported(path, value.clone(), supported));
    }
}

/// The field must mean the same before and after.
pub(super) fn immutable(errors: &mut Errors, path: &Path, new: &Value, old: &Value) {
    if !same(new, old) {
        errors.push(FieldError::invalid(path, new.clone(), IMMUTABLE));
    }
}

pub(super) fn dns_label(errors: &mut Errors, path: &Path, text: &str) {
    invalid(errors, path, text, names::dns_label(text));
}

pub(super) fn dns_subdomain(errors: &mut Errors, path: &Path, text: &str) {
    invalid(errors, path, text, names::dns_subdomain(text));
}

pub(super) fn qualified(errors: &mut Errors, path: &Path, text: &str) {
    invalid(errors, path, text, names::label_key(text));
}

pub(super) fn port_number(errors: &mut Errors, path: &Path, port: i64) {
    for sentence in names::port_number(port) {
        errors.push(FieldError::invalid(path, port, sentence));
    }
}

/// A port by number, or by the name that a container gave it.
pub(super) fn port_number_or_name(errors: &mut Errors, path: &Path, port: &Value) {
    match port {
        Value::String(name) => invalid(errors, path, name, names::port_name(name)),
        other => port_number(errors, path, other.as_i64().unwrap_or(0)),
    }
}

/// `5` or `50%`.
pub(super) fn count_or_percent(errors: &mut Errors, path: &Path, value: &Value) {
    match value {
        Value::String(text) => invalid(errors, path, text, names::percent(text)),
        other => not_negative(errors, path, other.as_i64()),
    }
}

/// The number in `50%`.
pub(super) fn percent(value: &Value) -> Option<i64> {
    let text = value.as_str()?;
    if names::percent(text).is_empty() {
        text.strip_suffix('%')?.parse().ok()
    } else {
        None
    }
}

pub(super) fn at_most_100_percent(errors: &mut Errors, path: &Path, value: &Value) {
    if percent(value).is_some_and(|percent| percent > 100) {
        errors.push(FieldError::invalid(
            path,
            value.clone(),
            "must not be greater than 100%",
        ));
    }
}

pub(super) fn amount_not_negative(errors: &mut Errors, path: &Path, value: &Value) {
    if Quantity::of(value).is_some_and(Quantity::is_negative) {
        errors.push(FieldError::invalid(path, value.clone(), NOT_NEGATIVE));
    }
}

/// An address, in the spellings that old fields take: leading zeros and all.
pub(super) fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| {
        let octets: Vec<u8> = text
            .split('.')
            .map(|part| part.trim_start_matches('0'))
            .map(|part| if part.is_empty() { Some(0) } else { part.parse().ok() })
            .collect::<Option<_>>()?;
        let four: [u8; 4] = octets.try_into().ok()?;
        Some(IpAddr::from(four))
    })
}

/// An address in the one spelling that new objects may use.
pub(super) fn ip(errors: &mut Errors, path: &Path, text: &str) {
    let words = match parse_ip(text) {
        None => "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        Some(_) if text.parse::<IpAddr>().is_err() => "must not have leading 0s",
        Some(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => "must not be an IPv4-mapped IPv6 address",
        Some(_) => return,
    };
    errors.push(FieldError::invalid(path, text, words));
}

/// W1: pods and Services of an instance are on this machine, in one block 127.B.0.0/16 with B from 64 to 191.
fn is_of_a_block(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if matches!(address.octets(), [127, 64..=191, _, _]))
}

/// An address that others can reach.
pub(super) fn endpoint_ip(errors: &mut Errors, path: &Path, text: &str) {
    let Some(address) = parse_ip(text) else {
        errors.push(FieldError::invalid(path, text, "must be a valid IP address"));
        return;
    };
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(address) => (address.is_link_local(), address.octets().starts_with(&[224, 0, 0])),
        IpAddr::V6(address) => {
            let first = address.segments().first().copied().unwrap_or_default();
            (first & 0xffc0 == 0xfe80, first & 0xff0f == 0xff02)
        }
    };
    for (wrong, words) in [
        (address.is_unspecified(), format!("may not be unspecified ({text})")),
        (
            address.is_loopback() && !is_of_a_block(address),
            "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned(),
        ),
        (
            link_local,
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned(),
        ),
        (
            link_local_multicast,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned(),
        ),
    ] {
        if wrong {
            errors.push(FieldError::invalid(path, text, words));
        }
    }
}

/// A range, in the spellings that old fields take.
pub(super) fn parse_cidr(text: &str) -> Option<ipnet::IpNet> {
    let (address, length) = text.split_once('/')?;
    let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    ipnet::IpNet::new(parse_ip(address)?, length.parse().ok().filter(|_| digits)?).ok()
}

pub(super) fn cidr(errors: &mut Errors, path: &Path, text: &str) {
    let words = match parse_cidr(text) {
        None => "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        Some(range) => {
            let (address, length) = text.split_once('/').unwrap_or((text, ""));
            let mapped = matches!(range.addr(), IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
            if address.parse::<IpAddr>().is_err() || (length.len() > 1 && length.starts_with('0')) {
                "must not have leading 0s in IP or prefix length"
            } else if mapped {
                "must not have an IPv4-mapped IPv6 address"
            } else if range.addr() != range.network() {
                "must not have bits set beyond the prefix length"
            } else {
                return;
            }
        }
    };
    errors.push(FieldError::invalid(path, text, words));
}

/// A struct as the reference shows it in messages: fields under their Go names in Go's order, absent ones as null or as
/// the given empty value.
pub(super) fn go_struct(value: &Value, fields: &[(&str, &str, &str)]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|&(go, json, empty)| match value.get(json) {
            Some(field) if !field.is_null() => format!("\"{go}\":{field}"),
            _ => format!("\"{go}\":{empty}"),
        })
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// An error about a struct, shown as [`go_struct`] writes it: a JSON value would lose the order.
pub(super) fn about_struct(wrong: Wrong, path: &Path, shown: &str, words: &str) -> FieldError {
    FieldError {
        wrong,
        path: path.clone(),
        value: None,
        detail: if words.is_empty() {
            shown.to_owned()
        } else {
            format!("{shown}: {words}")
        },
    }
}
