//! One of the clients: its own keys, its own connections, one command in flight.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::map::{SlotMap, slot_of};
use super::report::Tally;
use super::wire::{Broken, Connection};
use super::{Options, Shared};
use crate::observe::reply::Reply;
use crate::words::Slot;

/// A command is redirected this often at most.
const REDIRECTIONS: usize = 16;

/// One key, whose values count up.
#[derive(Debug, Clone)]
struct Key {
    name: String,
    slot: Slot,
    /// The highest value that a server has acknowledged.
    acknowledged: u64,
    /// The highest value that was sent.
    sent: u64,
}

/// What became of a command.
enum Outcome {
    Answered(Reply),
    Failed { kind: String, words: String },
}

#[derive(Debug)]
pub(super) struct Worker<'l> {
    options: &'l Options,
    shared: &'l Shared,
    map: Arc<SlotMap>,
    connections: BTreeMap<SocketAddr, Connection>,
    keys: Vec<Key>,
    tally: Tally,
    /// A walk over the keys in no order that servers would know.
    chance: u64,
}

impl<'l> Worker<'l> {
    pub(super) fn new(number: usize, options: &'l Options, shared: &'l Shared) -> Self {
        let own = (number..options.keys).step_by(options.connections);
        let keys = own.map(|key| {
            let name = format!("{}:{key}", options.prefix);
            Key {
                slot: slot_of(name.as_bytes()),
                name,
                acknowledged: 0,
                sent: 0,
            }
        });
        Self {
            options,
            shared,
            map: shared.map(),
            connections: BTreeMap::new(),
            keys: keys.collect(),
            tally: Tally::default(),
            chance: number as u64 + 1,
        }
    }

    /// Runs until it is told to stop, then reads everything once more.
    pub(super) async fn run(mut self) -> Tally {
        let began = Instant::now();
        let pause = self.options.rate.map(|rate| {
            let own = f64::from(rate.get()) / self.options.connections as f64;
            Duration::from_secs_f64(1.0 / own)
        });
        let mut commands = 0u32;
        while !self.shared.is_over() && !self.keys.is_empty() {
            if let Some(pause) = pause {
                tokio::time::sleep_until(began + pause * commands).await;
            }
            commands = commands.saturating_add(1);
            let at = self.pick();
            if self.toss() {
                self.write(at).await;
            } else {
                self.read(at, "stale read").await;
            }
        }
        for at in 0..self.keys.len() {
            self.read(at, "lost write").await;
        }
        self.tally
    }

    fn pick(&mut self) -> usize {
        usize::try_from(self.next()).unwrap_or_default() % self.keys.len().max(1)
    }

    fn toss(&mut self) -> bool {
        self.next() & 1 == 1
    }

    /// SplitMix64: spread well enough, and the same every time.
    fn next(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.chance;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) >> 1
    }

    async fn write(&mut self, at: usize) {
        let Some(key) = self.keys.get_mut(at) else { return };
        key.sent += 1;
        let key = key.clone();
        let value = key.sent.to_string();
        let words: [&[u8]; 3] = [b"SET", key.name.as_bytes(), value.as_bytes()];
        match self.command(key.slot, &words).await {
            Some(Reply::Bytes(_)) => {
                if let Some(written) = self.keys.get_mut(at) {
                    written.acknowledged = key.sent;
                }
            }
            Some(other) => self.fail("odd answer", &format!("{other:?} to SET {}", key.name), key.slot),
            None => {}
        }
    }

    /// What is read must be no older than what was acknowledged, and not newer than what was sent.
    async fn read(&mut self, at: usize, older: &str) {
        let Some(key) = self.keys.get(at).cloned() else { return };
        let words: [&[u8]; 2] = [b"GET", key.name.as_bytes()];
        let Some(reply) = self.command(key.slot, &words).await else {
            return;
        };
        let value = match &reply {
            Reply::Nil => Some(0),
            other => other.number().and_then(|value| u64::try_from(value).ok()),
        };
        let Key { acknowledged, sent, .. } = key;
        match value {
            Some(value) if (acknowledged..=sent).contains(&value) => {
                if let Some(key) = self.keys.get_mut(at) {
                    // Once seen, a write whose answer was lost may not vanish any more.
                    key.acknowledged = value;
                }
            }
            Some(value) if value < acknowledged => {
                let words = format!("{} is {value}, and {acknowledged} was acknowledged", key.name);
                self.fail(older, &words, key.slot);
                // Told once.
                if let Some(key) = self.keys.get_mut(at) {
                    key.acknowledged = value;
                }
            }
            _ => self.fail("odd answer", &format!("{reply:?} to GET {}", key.name), key.slot),
        }
    }

    fn fail(&mut self, kind: &str, words: &str, slot: Slot) {
        let at = self.shared.began.elapsed();
        self.tally.failed(kind, words, slot, at);
    }

    /// One command, through all redirections; `None`: an error, which was counted.
    async fn command(&mut self, slot: Slot, words: &[&[u8]]) -> Option<Reply> {
        let began = Instant::now();
        match self.directed(slot, words).await {
            Outcome::Answered(reply) => {
                self.tally.answered(began.elapsed());
                self.shared.moments.answered(slot, self.shared.began.elapsed());
                Some(reply)
            }
            Outcome::Failed { kind, words } => {
                self.fail(&kind, &words, slot);
                // Nobody hammers a server that refuses.
                tokio::time::sleep(Duration::from_millis(10)).await;
                None
            }
        }
    }

    async fn directed(&mut self, slot: Slot, words: &[&[u8]]) -> Outcome {
        self.map = self.shared.map();
        let Some(mut server) = self.map.owner(slot) else {
            self.shared.read_map(self.options, None).await;
            return failed("no owner", format!("slot {} has no owner in the map", slot.0));
        };
        let mut asking = false;
        for _ in 0..REDIRECTIONS {
            let reply = match self.ask(server, asking, words).await {
                Ok(reply) => reply,
                Err(broken) => {
                    self.connections.remove(&server);
                    self.shared.read_map(self.options, Some(self.map.version)).await;
                    return failed(broken.kind, format!("{server}: {}", broken.words));
                }
            };
            let Some(refusal) = reply.refusal() else {
                return Outcome::Answered(reply);
            };
            match redirection(refusal) {
                Some((true, to)) => {
                    self.tally.asked += 1;
                    (server, asking) = (to, true);
                }
                Some((false, to)) => {
                    self.tally.moved += 1;
                    (server, asking) = (to, false);
                    self.shared.read_map_from(to, self.options, self.map.version).await;
                }
                None => {
                    let code = refusal.split(' ').next().unwrap_or_default().to_owned();
                    return failed(&code, format!("{server}: {refusal}"));
                }
            }
        }
        failed("redirections", format!("slot {}: sent on {REDIRECTIONS} times", slot.0))
    }

    async fn ask(&mut self, server: SocketAddr, asking: bool, words: &[&[u8]]) -> Result<Reply, Broken> {
        if self.connections.get(&server).is_some_and(Connection::is_closed) {
            self.connections.remove(&server);
            self.tally.reopened += 1;
        }
        let connection = match self.connections.entry(server) {
            std::collections::btree_map::Entry::Occupied(open) => open.into_mut(),
            std::collections::btree_map::Entry::Vacant(none) => {
                none.insert(Connection::open(server, self.options.password.as_ref()).await?)
            }
        };
        if asking {
            connection.ask(&[b"ASKING"]).await?;
        }
        connection.ask(words).await
    }
}

fn failed(kind: &str, words: String) -> Outcome {
    Outcome::Failed {
        kind: kind.to_owned(),
        words,
    }
}

/// `MOVED slot ip:port` or `ASK slot ip:port`: whether it is for this command only, and whereto.
fn redirection(refusal: &str) -> Option<(bool, SocketAddr)> {
    let mut words = refusal.split(' ');
    let only_this = match words.next()? {
        "ASK" => true,
        "MOVED" => false,
        _ => return None,
    };
    let (ip, port) = words.nth(1)?.rsplit_once(':')?;
    let ip = ip.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
    Some((only_this, SocketAddr::new(ip, port.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_are_followed_and_nothing_else_is() {
        let place = SocketAddr::from(([127, 0, 0, 2], 6379));
        assert_eq!(redirection("MOVED 7 127.0.0.2:6379"), Some((false, place)));
        assert_eq!(redirection("ASK 7 127.0.0.2:6379"), Some((true, place)));
        assert_eq!(
            redirection("ASK 7 ::1:6379")
                .map(|(_, place)| place.to_string())
                .as_deref(),
            Some("[::1]:6379")
        );
        for other in [
            "TRYAGAIN Multiple keys",
            "CLUSTERDOWN Hash slot not served",
            "MOVED 7 :6379",
            "",
        ] {
            assert_eq!(redirection(other), None, "{other}");
        }
    }
}
