//! Where the walks happen: stretches of address space cut into units.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

#[derive(Clone, Copy, Debug)]
pub(crate) struct World {
    pub(crate) range: &'static str,
    /// The pool's first base.
    pub(crate) base: &'static str,
    /// Length of a unit, the smallest block that is ever held.
    pub(crate) unit: u8,
    /// Its share of all steps, in percent.
    pub(crate) share: usize,
}

/// Ten bits wide or less, where random operations meet; two of sixteen bits; both ends of both address spaces.
pub(crate) const WORLDS: &[World] = &[
    world("10.0.0.0/22", "10.0.1.0/24", 32, 28),
    world("2001:db8::/54", "2001:db8::/56", 64, 26),
    world("2001:db8::/119", "2001:db8::100/120", 128, 14),
    world("255.255.254.0/23", "255.255.255.0/25", 32, 9),
    world("0.0.0.0/0", "192.0.0.0/3", 9, 9),
    world("::/0", "e000::/3", 9, 9),
    world(
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00/120",
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffc0/122",
        128,
        3,
    ),
    world("172.16.0.0/16", "172.16.0.0/16", 32, 1),
    world("2001:db8::/48", "2001:db8::/48", 64, 1),
];

const fn world(range: &'static str, base: &'static str, unit: u8, share: usize) -> World {
    World {
        range,
        base,
        unit,
        share,
    }
}

pub(crate) fn parse(cidr: &str) -> IpNet {
    cidr.parse().expect("a CIDR")
}

pub(crate) fn first_address(net: IpNet) -> u128 {
    match net {
        IpNet::V4(net) => net.network().to_bits().into(),
        IpNet::V6(net) => net.network().to_bits(),
    }
}

pub(crate) fn last_address(net: IpNet) -> u128 {
    match net {
        IpNet::V4(net) => net.broadcast().to_bits().into(),
        IpNet::V6(net) => net.broadcast().to_bits(),
    }
}

pub(crate) fn same_family(a: IpNet, b: IpNet) -> bool {
    a.max_prefix_len() == b.max_prefix_len()
}

pub(crate) fn contains(outer: IpNet, inner: IpNet) -> bool {
    same_family(outer, inner)
        && first_address(outer) <= first_address(inner)
        && last_address(inner) <= last_address(outer)
}

/// The block of this length at an address of `like`'s family.
pub(crate) fn block_at(like: IpNet, address: u128, len: u8) -> IpNet {
    let net = match like {
        IpNet::V4(_) => IpNet::new(Ipv4Addr::from_bits(address as u32).into(), len),
        IpNet::V6(_) => IpNet::new(Ipv6Addr::from_bits(address).into(), len),
    };
    net.expect("a length of the family").trunc()
}
