//! A client that notices everything: the load of the acceptance tests, and of `usher bench valkey`.
//!
//! It follows `MOVED` and `ASK`, reads the whole map again on `MOVED`, and tries nothing else again. Values count up per key,
//! so that what is read tells whether it is old. An error is any other error reply, a refused connection, one that is closed
//! or silent for 5 s with a command in flight, a stale read, and an acknowledged write that is missing in the end. Connections
//! that a server closes while nothing is asked are opened again, and are none.

mod map;
mod report;
mod wire;
mod worker;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

pub use map::slot_of;
pub use report::{Errors, Report};

use crate::observe::client::Password;
use crate::words::Slot;
use map::SlotMap;
use report::{PARTS, Tally};
use wire::Connection;
use worker::Worker;

/// What is asked, and how much.
#[derive(Debug, Clone)]
pub struct Options {
    /// Servers to read the first map from.
    pub seeds: Vec<SocketAddr>,
    /// Where servers want one.
    pub password: Option<Password>,
    /// Clients with one command each in flight.
    pub connections: usize,
    /// Keys, over all slots.
    pub keys: usize,
    /// Begin of the keys' names.
    pub prefix: String,
    /// Commands in a second, of all clients together; `None`: as fast as they are answered.
    pub rate: Option<NonZeroU32>,
}

impl Default for Options {
    /// Section 11's.
    fn default() -> Self {
        Self {
            seeds: Vec::new(),
            password: None,
            connections: 8,
            keys: 10_000,
            prefix: "load".to_owned(),
            rate: None,
        }
    }
}

/// Why a load cannot begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no slot map from {asked}: {why}")]
pub struct CannotBegin {
    asked: String,
    why: String,
}

/// When each part of the slots was last answered for, in nanoseconds from the start, and the longest time between two.
#[derive(Debug)]
struct Moments {
    parts: Vec<(AtomicU64, AtomicU64)>,
}

impl Moments {
    fn new() -> Self {
        Self {
            parts: (0..PARTS).map(|_| Default::default()).collect(),
        }
    }

    fn answered(&self, slot: Slot, at: Duration) {
        let at = nanoseconds(at);
        if let Some((last, longest)) = self.parts.get(report::part(slot)) {
            let before = last.fetch_max(at, Ordering::Relaxed);
            longest.fetch_max(at.saturating_sub(before), Ordering::Relaxed);
        }
    }

    /// The time since the last answer counts too. A part that was never asked is none: few keys do not reach all.
    fn longest_gap(&self, ran: Duration) -> Duration {
        let ran = nanoseconds(ran);
        let gaps = self.parts.iter().filter_map(|(last, longest)| {
            let last = last.load(Ordering::Relaxed);
            (last > 0).then(|| longest.load(Ordering::Relaxed).max(ran.saturating_sub(last)))
        });
        Duration::from_nanos(gaps.max().unwrap_or_default())
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What all workers share.
#[derive(Debug)]
struct Shared {
    began: Instant,
    stop: watch::Receiver<bool>,
    map: Mutex<Arc<SlotMap>>,
    /// One at a time reads a new map; the others use what it found.
    reading: tokio::sync::Mutex<()>,
    moments: Moments,
}

impl Shared {
    fn is_over(&self) -> bool {
        // Whoever would tell us to stop is gone: that is as good.
        *self.stop.borrow() || self.stop.has_changed().is_err()
    }

    fn map(&self) -> Arc<SlotMap> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the map again, unless somebody has since `known`. From whoever answers first.
    async fn read_map(&self, options: &Options, known: Option<u64>) {
        let now = self.map();
        let servers = now.servers().into_iter().chain(options.seeds.iter().copied());
        self.read_from(servers.collect(), options, known.unwrap_or(now.version))
            .await;
    }

    async fn read_map_from(&self, server: SocketAddr, options: &Options, known: u64) {
        self.read_from(vec![server], options, known).await;
    }

    async fn read_from(&self, servers: Vec<SocketAddr>, options: &Options, known: u64) {
        let _turn = self.reading.lock().await;
        if self.map().version > known {
            return;
        }
        for server in servers {
            if let Ok(map) = fetch_map(server, options, self.map().version + 1).await {
                *self.map.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(map);
                return;
            }
        }
    }
}

async fn fetch_map(server: SocketAddr, options: &Options, version: u64) -> Result<SlotMap, String> {
    let mut connection = Connection::open(server, options.password.as_ref())
        .await
        .map_err(|broken| broken.words)?;
    let reply = connection.ask(&[b"CLUSTER", b"SLOTS"]).await;
    let reply = reply.map_err(|broken| broken.words)?;
    SlotMap::read(version, &reply).ok_or_else(|| format!("{reply:?} is no slot map"))
}

/// Runs the load until `stop` is true, or whoever has its other end is gone.
pub async fn run(options: &Options, stop: watch::Receiver<bool>) -> Result<Report, CannotBegin> {
    let mut why = "no server was named".to_owned();
    let mut first = None;
    for seed in &options.seeds {
        match fetch_map(*seed, options, 1).await {
            Ok(map) => {
                first = Some(map);
                break;
            }
            Err(problem) => why = problem,
        }
    }
    let first = first.ok_or_else(|| CannotBegin {
        asked: options
            .seeds
            .iter()
            .map(SocketAddr::to_string)
            .collect::<Vec<_>>()
            .join(", "),
        why,
    })?;
    let shared = Shared {
        began: Instant::now(),
        stop,
        map: Mutex::new(Arc::new(first)),
        reading: tokio::sync::Mutex::new(()),
        moments: Moments::new(),
    };
    let workers = (0..options.connections).map(|number| Worker::new(number, options, &shared).run());
    let over = async {
        let mut stop = shared.stop.clone();
        // An end that is dropped is an end as well.
        let _ = stop.wait_for(|stop| *stop).await;
        shared.began.elapsed()
    };
    let (tallies, ran) = futures::join!(futures::future::join_all(workers), over);
    let tally = tallies.into_iter().fold(Tally::default(), Tally::with);
    Ok(tally.report(ran, &shared.moments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_is_that_of_the_part_that_waited_longest() {
        let moments = Moments::new();
        let seconds = Duration::from_secs;
        for at in 1..=10 {
            moments.answered(Slot(0), seconds(at));
        }
        moments.answered(Slot(16_383), seconds(1));
        moments.answered(Slot(16_383), seconds(5));
        moments.answered(Slot(16_383), seconds(9));
        assert_eq!(moments.longest_gap(seconds(10)), seconds(4));
        assert_eq!(moments.longest_gap(seconds(20)), seconds(11));
    }

    #[tokio::test]
    async fn a_load_without_servers_says_so() {
        let (_stop, stopped) = watch::channel(false);
        let error = run(&Options::default(), stopped).await.unwrap_err();
        assert!(error.to_string().contains("no server was named"), "{error}");
    }
}
