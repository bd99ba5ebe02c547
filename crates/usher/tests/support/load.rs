//! A load for fault tests: claims of many sizes come and go over several pools, while something is being broken; and what
//! must be true when the breaking has stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use usher_subnets::api::{Subnet, SubnetClaim};

use super::chance::Chance;
use super::invariants::{Proof, settled};
use super::recount;
use super::world::{World, manifest};

/// Claims that are not Bound, at most: what a load without limit would pile up while nobody serves it.
const UNSERVED: usize = 40;
/// Live claims in the roomy pools, about.
const LIVE: usize = 160;
/// Blocks of the pool that is always full.
const TIGHT: usize = 16;

/// A user that hears nothing for this long asks again.
const PATIENCE: Duration = Duration::from_secs(5);

/// Five pools: both strategies, IPv6, one that is always full, one that keeps what is released for a while.
const POOLS: [(&str, &str, &[u64]); 5] = [
    ("linear", "10.0.0.0/16", &[22, 24, 26, 28]),
    ("buddy", "10.1.0.0/16", &[22, 24, 26, 28]),
    ("six", "2001:db8::/40", &[48, 56, 64]),
    ("tight", "10.2.0.0/24", &[28]),
    ("slow", "10.3.0.0/16", &[24, 28]),
];

/// Makes the pools of a load.
pub async fn pools(world: &World) {
    for (name, cidr, _) in POOLS {
        let mut spec = json!({"cidr": cidr});
        match name {
            "buddy" => spec["strategy"] = json!("Buddy"),
            "slow" => spec["reuseDelaySeconds"] = json!(1),
            _ => {}
        }
        world.pool(name, spec).await;
    }
}

/// Claims that must be there at the end, with their pool.
pub type Live = BTreeMap<String, &'static str>;

/// The load as it runs beside a test.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    issued: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<Live>,
}

impl Load {
    /// Begins; the pools must be there.
    pub fn begin(world: &Arc<World>, chance: Chance) -> Self {
        let (stop, issued) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let task = tokio::spawn(churn(world.clone(), chance, stop.clone(), issued.clone()));
        Self { stop, issued, task }
    }

    /// Claims and deletions asked for so far.
    pub fn issued(&self) -> usize {
        self.issued.load(Ordering::Relaxed)
    }

    /// No more comes; what is left of it.
    pub async fn end(self) -> Live {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

async fn churn(world: Arc<World>, mut chance: Chance, stop: Arc<AtomicBool>, issued: Arc<AtomicUsize>) -> Live {
    let (mut number, mut live) = (0, Live::new());
    while !stop.load(Ordering::Relaxed) {
        let bound = world
            .history
            .now(|now| live.keys().filter(|name| now.is_bound(name)).count());
        let mut asks = Vec::new();
        // While nobody serves, users wait: a queue that only grows, or is deleted unserved, tests nothing.
        if live.len() - bound < UNSERVED {
            for _ in 0..chance.between(1, 8) {
                let (pool, _, sizes) = *chance.pick(&POOLS);
                number += 1;
                asks.push(Ask::Claim(format!("c{number:05}"), pool, *chance.pick(sizes)));
            }
            let tight = live.values().filter(|pool| **pool == "tight").count();
            let surplus = live.len() > LIVE || tight > 2 * TIGHT;
            if !live.is_empty() && (surplus || chance.between(0, 3) == 0) {
                for _ in 0..chance.between(1, 8) {
                    let at = usize::try_from(chance.next() % live.len() as u64).unwrap();
                    asks.push(Ask::Unclaim(live.keys().nth(at).unwrap().clone()));
                }
            }
        }
        for ask in &asks {
            match ask {
                Ask::Claim(name, pool, _) => drop(live.insert(name.clone(), pool)),
                Ask::Unclaim(name) => drop(live.remove(name)),
            }
        }
        issued.fetch_add(asks.len(), Ordering::Relaxed);
        futures::stream::iter(asks)
            .for_each_concurrent(8, |ask| insist(&world, ask))
            .await;
        // Users come when they like; this is when.
        tokio::time::sleep(Duration::from_millis(chance.between(5, 60))).await;
    }
    live
}

/// One wish of a user.
#[derive(Debug, Clone)]
enum Ask {
    Claim(String, &'static str, u64),
    Unclaim(String),
}

/// Asks until the server has said yes, or that it is so already: it may be away.
async fn insist(world: &World, ask: Ask) {
    loop {
        let answer = match &ask {
            Ask::Claim(name, pool, size) => {
                let spec: Value = json!({"poolRef": pool, "clusterID": name, "blockSize": size});
                let claim: SubnetClaim = serde_json::from_value(manifest("SubnetClaim", name, spec)).unwrap();
                let params = PostParams::default();
                tokio::time::timeout(PATIENCE, world.claims.create(&params, &claim))
                    .await
                    .map(|a| a.map(drop))
            }
            Ask::Unclaim(name) => {
                let params = DeleteParams::default();
                tokio::time::timeout(PATIENCE, world.claims.delete(name, &params))
                    .await
                    .map(|a| a.map(drop))
            }
        };
        match answer {
            Ok(Ok(())) => return,
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => return,
            Ok(Err(kube::Error::Api(status))) if (400..500).contains(&status.code) && status.code != 429 => {
                panic!("{ask:?} was refused: {status:?}")
            }
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// After all faults: every claim that fits is Bound, each Subnet has its claim, every pool counts right; then everything
/// is given back, and the pools go. Returns the proof over the whole history.
pub async fn ends_right(world: &World, mut live: Live) -> Proof {
    // The full pool has more claims than blocks: the youngest would wait for ever, so they go.
    let tight: Vec<String> = live
        .iter()
        .filter(|(_, pool)| **pool == "tight")
        .map(|(name, _)| name.clone())
        .collect();
    let surplus: Vec<String> = tight.into_iter().skip(TIGHT).collect();
    live.retain(|name, _| !surplus.contains(name));
    futures::stream::iter(surplus)
        .for_each_concurrent(8, |name| insist(world, Ask::Unclaim(name)))
        .await;
    let what = format!(
        "all {} live claims are Bound, and each Subnet belongs to one of them",
        live.len()
    );
    let took = world
        .until(&what, |now| {
            let uids: BTreeSet<String> = now.claims.values().filter_map(ResourceExt::uid).collect();
            let owned = |subnet: &Subnet| {
                let claim = subnet.spec.claim_ref.as_ref();
                settled(subnet) && claim.is_some_and(|claim| uids.contains(&claim.uid))
            };
            now.claims.keys().eq(live.keys())
                && now.claims.keys().all(|name| now.is_bound(name))
                && now.subnets.len() == live.len()
                && now.subnets.values().all(owned)
        })
        .await;
    println!("{what}: after {took:.1?}");
    for (pool, ..) in POOLS {
        world.until_exact(pool).await;
    }
    futures::stream::iter(live.into_keys())
        .for_each_concurrent(8, |name| insist(world, Ask::Unclaim(name)))
        .await;
    let took = world
        .until("every range is given back", |now| {
            now.subnets.is_empty() && now.claims.is_empty()
        })
        .await;
    println!("every range is given back: after {took:.1?}");
    for (pool, ..) in POOLS {
        world.until_exact(pool).await;
        world
            .history
            .now(|now| assert_eq!(recount::status(now, pool).used_percent, 0, "{pool}"));
        world.pools.delete(pool, &DeleteParams::default()).await.unwrap();
    }
    let took = world.until("the pools are gone", |now| now.pools.is_empty()).await;
    println!("the pools are gone: after {took:.1?}");
    world.history.check()
}
