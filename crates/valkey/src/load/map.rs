//! Which server has which slot, as a client believes.

use std::net::SocketAddr;

use crate::observe::reply::Reply;
use crate::words::{SLOTS, Slot};

/// Primaries by slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlotMap {
    /// Grows with every reading: who has an older one sees that it is.
    pub(super) version: u64,
    owners: Vec<Option<SocketAddr>>,
}

impl SlotMap {
    pub(super) fn empty() -> Self {
        Self {
            version: 0,
            owners: vec![None; SLOTS.into()],
        }
    }

    /// Reads `CLUSTER SLOTS`: `[first, last, [ip, port, …], …]` each.
    pub(super) fn read(version: u64, reply: &Reply) -> Option<Self> {
        let mut map = Self::empty();
        map.version = version;
        for entry in reply.list()? {
            let parts = entry.list()?;
            let number = |at: usize| usize::try_from(parts.get(at)?.number()?).ok();
            let (first, last) = (number(0)?, number(1)?);
            let primary = parts.get(2)?.list()?;
            let ip = primary.first()?.text()?.parse().ok();
            let port = u16::try_from(primary.get(1)?.number()?).ok()?;
            let owner = ip.map(|ip| SocketAddr::new(ip, port));
            map.owners.get_mut(first..=last)?.fill(owner);
        }
        Some(map)
    }

    pub(super) fn owner(&self, slot: Slot) -> Option<SocketAddr> {
        self.owners.get(usize::from(slot.0)).copied().flatten()
    }

    /// Every server that has slots.
    pub(super) fn servers(&self) -> Vec<SocketAddr> {
        let mut servers: Vec<SocketAddr> = self.owners.iter().flatten().copied().collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    }
}

/// The slot of a key: CRC-16 (XMODEM) of what is between the first braces, else of all of it.
pub fn slot_of(key: &[u8]) -> Slot {
    let tagged = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let after = key.get(open + 1..)?;
        let close = after.iter().position(|byte| *byte == b'}')?;
        after.get(..close).filter(|tag| !tag.is_empty())
    });
    let mut crc: u16 = 0;
    for byte in tagged.unwrap_or(key) {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
        }
    }
    Slot(crc % SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_keys_are_those_of_servers() {
        // By CLUSTER KEYSLOT of a server.
        for (key, slot) in [
            ("123456789", 12_739),
            ("foo", 12_182),
            ("{foo}bar", 12_182),
            ("", 0),
            ("a{}b", 13_694),
        ] {
            assert_eq!(slot_of(key.as_bytes()), Slot(slot), "{key}");
        }
    }

    #[test]
    fn the_map_is_read_whole_or_not_at_all() {
        let server = |ip: &str| Reply::List(vec![Reply::of(ip), Reply::Number(6379), Reply::of("id")]);
        let entry = |first, last, ip| Reply::List(vec![Reply::Number(first), Reply::Number(last), server(ip)]);
        let reply = Reply::List(vec![entry(0, 8000, "127.0.0.1"), entry(8002, 16_383, "127.0.0.2")]);
        let map = SlotMap::read(3, &reply).unwrap();
        assert_eq!(map.owner(Slot(8000)), Some(SocketAddr::from(([127, 0, 0, 1], 6379))));
        assert_eq!((map.owner(Slot(8001)), map.version), (None, 3));
        assert_eq!(map.servers().len(), 2);
        assert_eq!(
            SlotMap::read(1, &Reply::List(vec![entry(0, 99_999, "127.0.0.1")])),
            None
        );
        assert_eq!(SlotMap::read(1, &Reply::Nil), None);
    }
}
