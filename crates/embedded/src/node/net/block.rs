//! The plan of a block 127.B.0.0/16 (W1): who has which part of it. Pure.

use std::fmt;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Service};

/// The second number of a block's addresses. Below are other programs' favourites (127.0.0.0/16, 127.53.0.0/16).
pub const NUMBERS: RangeInclusive<u8> = 64..=191;
/// Where pods find the API, at [`Block::api`].
pub const API_PORT: u16 = 6443;
/// The first node's last number; more follow it.
const FIRST_NODE: u8 = 16;

/// One 127.B.0.0/16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(u8);

impl Default for Block {
    /// The one of clusters that run no processes, for which nothing is taken.
    fn default() -> Self {
        Self(*NUMBERS.start())
    }
}

impl Block {
    /// `None` outside of [`NUMBERS`].
    #[must_use]
    pub fn new(number: u8) -> Option<Self> {
        NUMBERS.contains(&number).then_some(Self(number))
    }

    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// Every block once, beginning with the one that the hash of a data folder's path points at.
    pub fn from_path(path: &std::path::Path) -> impl Iterator<Item = Self> {
        // FNV-1a: the same for the same path on every machine and in every version.
        let hash = path
            .as_os_str()
            .as_encoded_bytes()
            .iter()
            .fold(0x811c_9dc5_u32, |hash, byte| {
                (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
            });
        let count = u32::from(NUMBERS.end() - NUMBERS.start()) + 1;
        (0..count)
            .filter_map(move |step| u8::try_from((hash % count + step) % count).ok())
            .filter_map(|offset| Self::new(NUMBERS.start() + offset))
    }

    fn address(self, third: u8, fourth: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.0, third, fourth)
    }

    /// The API for pods: 127.B.0.1.
    #[must_use]
    pub fn api(self) -> Ipv4Addr {
        self.address(0, 1)
    }

    /// The address of the n-th node, from 0: 127.B.0.16 up. `None` beyond the 240th.
    #[must_use]
    pub fn node(self, index: usize) -> Option<Ipv4Addr> {
        let last = FIRST_NODE.checked_add(u8::try_from(index).ok()?)?;
        Some(self.address(0, last))
    }

    /// 127.B.1.0 to 127.B.223.255.
    #[must_use]
    pub fn pods(self) -> RangeInclusive<Ipv4Addr> {
        self.address(1, 0)..=self.address(223, 255)
    }

    /// 127.B.224.0 to 127.B.255.255, from which `admission` gives Services theirs.
    #[must_use]
    pub fn services(self) -> RangeInclusive<Ipv4Addr> {
        self.address(224, 0)..=self.address(255, 255)
    }

    /// The Service `kubernetes` in `default`: the first of its range, as in the reference.
    #[must_use]
    pub fn kubernetes_service(self) -> Ipv4Addr {
        self.address(224, 1)
    }

    #[must_use]
    pub fn contains(self, address: Ipv4Addr) -> bool {
        let [first, second, _, _] = address.octets();
        first == 127 && second == self.0
    }
}

impl fmt::Display for Block {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "127.{}.0.0/16", self.0)
    }
}

/// The status that a Service of type LoadBalancer is to have (W5): its cluster IP is the way in. `None`: none.
#[must_use]
pub fn load_balancer(service: &Service) -> Option<LoadBalancerStatus> {
    let spec = service.spec.as_ref()?;
    let address: Ipv4Addr = spec.cluster_ip.as_deref()?.parse().ok()?;
    // One that names a class is somebody else's.
    if spec.type_.as_deref() != Some("LoadBalancer") || spec.load_balancer_class.is_some() {
        return None;
    }
    Some(LoadBalancerStatus {
        ingress: Some(vec![LoadBalancerIngress {
            ip: Some(address.to_string()),
            ip_mode: Some("VIP".to_owned()),
            ..LoadBalancerIngress::default()
        }]),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn w1_a_folder_begins_at_its_own_block_and_comes_to_every_block_once() {
        let one: Vec<Block> = Block::from_path(Path::new("/home/a/usher")).collect();
        let again: Vec<Block> = Block::from_path(Path::new("/home/a/usher")).collect();
        assert_eq!(one, again);
        assert_eq!(one.len(), 128);
        assert_eq!(one.iter().collect::<BTreeSet<_>>().len(), 128);
        let other = Block::from_path(Path::new("/home/b/usher")).next();
        assert_ne!(one.first().copied(), other);
    }

    #[test]
    fn w1_the_parts_of_a_block_do_not_meet() {
        let block = Block::new(70).unwrap();
        assert_eq!(Block::new(63), None);
        assert_eq!(Block::new(192), None);
        assert_eq!(block.api().to_string(), "127.70.0.1");
        assert_eq!(block.node(0).unwrap().to_string(), "127.70.0.16");
        assert_eq!(block.node(239).unwrap().to_string(), "127.70.0.255");
        assert_eq!(block.node(240), None);
        assert!(block.node(239).unwrap() < *block.pods().start());
        assert_eq!(block.pods().end().to_string(), "127.70.223.255");
        assert_eq!(u32::from(*block.pods().end()) + 1, u32::from(*block.services().start()));
        assert!(block.services().contains(&block.kubernetes_service()));
        assert!(!block.contains("127.71.0.1".parse().unwrap()));
    }

    #[test]
    fn w5_a_load_balancer_is_reached_at_its_cluster_ip() {
        let service = |spec: serde_json::Value| -> Service {
            serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}, "spec": spec})).unwrap()
        };
        let status = load_balancer(&service(
            serde_json::json!({"type": "LoadBalancer", "clusterIP": "127.64.224.9"}),
        ));
        assert_eq!(
            serde_json::to_value(status).unwrap(),
            serde_json::json!({"ingress": [{"ip": "127.64.224.9", "ipMode": "VIP"}]})
        );
        for spec in [
            serde_json::json!({"type": "ClusterIP", "clusterIP": "127.64.224.9"}),
            serde_json::json!({"type": "LoadBalancer", "clusterIP": "None"}),
            serde_json::json!({"type": "LoadBalancer", "clusterIP": "127.64.224.9", "loadBalancerClass": "a/b"}),
        ] {
            assert_eq!(load_balancer(&service(spec)), None);
        }
    }
}
