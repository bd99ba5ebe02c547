//! Addresses of hollow nodes and of their pods, in 10/8. Nothing listens there. Each node has a block of 1,024 for its pods;
//! a pod gets the lowest that is free, so that the same happenings give the same addresses.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::super::entry::MOST_HOLLOW_PODS;

/// 10.64.0.0: blocks of pods begin here.
const PODS: u32 = 0x0a40_0000;
/// 10.0.0.0: addresses of nodes.
const NODES: u32 = 0x0a00_0000;
const BLOCK: u32 = 1_024;

/// The address of the hollow node with this number.
pub(super) fn node_address(number: usize) -> String {
    let number = u32::try_from(number).unwrap_or_default();
    Ipv4Addr::from_bits(NODES + 1 + number).to_string()
}

/// Who has which address.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// By node's number and place in its block: the pod's key.
    taken: BTreeMap<(usize, u32), String>,
    places: BTreeMap<String, (usize, u32)>,
}

fn block(number: usize) -> u32 {
    PODS + u32::try_from(number).unwrap_or_default() * BLOCK
}

impl Addresses {
    /// A pod of the node has an address, as its status says.
    pub(super) fn note(&mut self, number: usize, pod: &str, address: Option<&str>) {
        let offset = address
            .and_then(|address| address.parse::<Ipv4Addr>().ok())
            .and_then(|address| address.to_bits().checked_sub(block(number)));
        if let Some(offset) = offset.filter(|offset| *offset < BLOCK) {
            self.taken.insert((number, offset), pod.to_owned());
            self.places.insert(pod.to_owned(), (number, offset));
        }
    }

    pub(super) fn free(&mut self, pod: &str) {
        if let Some(place) = self.places.remove(pod) {
            self.taken.remove(&place);
        }
    }

    /// The pod's address, or the lowest that is free.
    pub(super) fn take(&mut self, number: usize, pod: &str) -> Option<String> {
        let offset = match self.places.get(pod) {
            Some((_, offset)) => *offset,
            None => (1..=MOST_HOLLOW_PODS).find(|offset| !self.taken.contains_key(&(number, *offset)))?,
        };
        self.taken.insert((number, offset), pod.to_owned());
        self.places.insert(pod.to_owned(), (number, offset));
        Some(Ipv4Addr::from_bits(block(number) + offset).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_gets_the_lowest_address_that_is_free() {
        let mut addresses = Addresses::default();
        assert_eq!(addresses.take(0, "a").unwrap(), "10.64.0.1");
        assert_eq!(addresses.take(0, "b").unwrap(), "10.64.0.2");
        assert_eq!(addresses.take(0, "a").unwrap(), "10.64.0.1");
        assert_eq!(addresses.take(1, "c").unwrap(), "10.64.4.1");
        addresses.free("a");
        assert_eq!(addresses.take(0, "d").unwrap(), "10.64.0.1");
        addresses.note(0, "e", Some("10.64.0.3"));
        assert_eq!(addresses.take(0, "f").unwrap(), "10.64.0.4");
        assert_eq!(node_address(299), "10.0.1.44");
    }
}
