//! Free TCP ports on loopback.
//!
//! Not "bind to 0 and see": the kernel then gives a port of the range it also draws outgoing connections from. While a
//! server is down (fault tests do that), any connection may take its port; a client that retries on loopback may even
//! connect to itself, and the server never gets its port back.

use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};

const CANDIDATES: RangeInclusive<u16> = 20_000..=32_000;
/// Linux's default, where /proc does not tell.
const OUTGOING_DEFAULT: RangeInclusive<u16> = 32_768..=60_999;

pub(crate) fn pick() -> Result<u16> {
    let outgoing = outgoing_range();
    let span = u32::from(CANDIDATES.end() - CANDIDATES.start()) + 1;
    // Runs that start together begin their search at different places.
    let clock = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .subsec_nanos();
    let first = (clock / 1000).wrapping_add(std::process::id().wrapping_mul(7919)) % span;
    (0..span)
        .filter_map(|step| u16::try_from((first + step) % span).ok())
        .map(|offset| CANDIDATES.start() + offset)
        .filter(|port| !outgoing.contains(port))
        .find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        .ok_or_else(|| Error::Machine(format!("no free port in {CANDIDATES:?} on 127.0.0.1")))
}

fn outgoing_range() -> RangeInclusive<u16> {
    let read = || {
        let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
        let (low, high) = text.trim().split_once(char::is_whitespace)?;
        Some(low.trim().parse().ok()?..=high.trim().parse().ok()?)
    };
    let range = read().unwrap_or(OUTGOING_DEFAULT);
    // A machine that uses nearly all ports for outgoing connections leaves us no better choice than to share.
    let covers_all = range.contains(CANDIDATES.start()) && range.contains(CANDIDATES.end());
    if covers_all { OUTGOING_DEFAULT } else { range }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picked_port_is_free_and_never_one_that_is_taken() {
        let port = pick().unwrap();
        let _taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
        assert_ne!(pick().unwrap(), port);
    }
}
