//! A load for fault tests: what users of one namespace do all day, while something is being broken. Claims of many sizes,
//! exact claims, claims that share a clusterID or import a Subnet made by hand, Subnets made by hand (some where others
//! are already), pool claims on two levels with claims in their pools, labelled child pools, deletions of all of these,
//! edits of claims that wait, pools that grow and exclude. What must be true when the breaking has stopped: [`super::judge`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use super::chance::Chance;
use super::history::Now;
use super::world::{World, manifest};

pub use super::judge::ends_right;

/// Claims that are not served, at most: what a load without limit would pile up while nobody serves it.
const UNSERVED: usize = 40;
/// Live claims in the roomy pools, about.
const LIVE: usize = 160;
/// Blocks of the pool that is always full.
pub const TIGHT: usize = 16;
/// Pool claims, labelled pools and Subnets made by hand at a time, at most.
const POOL_CLAIMS: usize = 8;
const LABELLED: usize = 4;
const BY_HAND: usize = 24;
/// Claims in one child pool, at most.
const IN_CHILD: usize = 8;

/// How long a load may take, at most, to do enough.
pub const PROOF: Duration = Duration::from_secs(120);

/// A user that hears nothing for this long asks again.
const PATIENCE: Duration = Duration::from_secs(5);

/// The root pools: both strategies, IPv6, one that is always full, one that keeps what is released for a while, one that
/// grows, and one that other pools are taken from.
pub const POOLS: [(&str, &str, &[u64]); 6] = [
    ("linear", "10.0.0.0/16", &[22, 24, 26, 28]),
    ("buddy", "10.1.0.0/16", &[22, 24, 26, 28]),
    ("six", "2001:db8::/40", &[48, 56, 64]),
    ("tight", "10.2.0.0/24", &[28]),
    ("slow", "10.3.0.0/16", &[24, 28]),
    ("grow", "10.4.0.0/24", &[26, 28]),
];
pub const PARENT: &str = "parent";
const PARENT_RANGE: &str = "10.8.0.0/16";

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
    world.pool(PARENT, json!({"cidr": PARENT_RANGE})).await;
}

/// A claim as its user remembers it.
#[derive(Debug, Clone)]
pub struct Wish {
    pub pool: String,
    cluster_id: String,
    size: Option<u64>,
}

/// What must be there at the end.
#[derive(Debug, Clone, Default)]
pub struct Live {
    pub claims: BTreeMap<String, Wish>,
    /// Subnets made by hand, with their length.
    pub subnets: BTreeMap<String, u64>,
    /// Pool claims, with their parent.
    pub pool_claims: BTreeMap<String, String>,
    /// Pools labelled by hand.
    pub labelled: BTreeMap<String, ()>,
}

impl Live {
    pub fn len(&self) -> usize {
        self.claims.len() + self.subnets.len() + self.pool_claims.len() + self.labelled.len()
    }
}

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
        let user = User {
            world: world.clone(),
            chance,
            live: Live::default(),
            number: 0,
            grown: 24,
            asks: Vec::new(),
        };
        let task = tokio::spawn(user.churn(stop.clone(), issued.clone()));
        Self { stop, issued, task }
    }

    /// Wishes so far.
    pub fn issued(&self) -> usize {
        self.issued.load(Ordering::Relaxed)
    }

    /// Waits until more claims than this were bound, ever: a busy machine takes longer to prove as much. Gives up in
    /// silence; whoever needs them counts them.
    pub async fn until_bound(&self, world: &World, claims: usize) {
        let begun = Instant::now();
        while world.history.bound_order().len() <= claims && begun.elapsed() < PROOF {
            let more = world.history.len() + 20;
            world.history.until_heard(more, Duration::from_secs(1)).await;
        }
    }

    /// No more comes; what is left of it.
    pub async fn end(self) -> Live {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// One wish of a user.
#[derive(Debug, Clone)]
pub enum Ask {
    Create(Value),
    Delete(&'static str, String, DeleteParams),
    /// Kind, name, merge patch. May come too late.
    Edit(&'static str, String, Value),
}

impl Ask {
    pub fn delete(kind: &'static str, name: &str) -> Self {
        Ask::Delete(kind, name.to_owned(), DeleteParams::default())
    }
}

struct User {
    world: Arc<World>,
    chance: Chance,
    live: Live,
    number: usize,
    /// Length of the pool that grows.
    grown: u64,
    asks: Vec<Ask>,
}

impl User {
    async fn churn(mut self, stop: Arc<AtomicBool>, issued: Arc<AtomicUsize>) -> Live {
        while !stop.load(Ordering::Relaxed) {
            // While nobody serves, users wait: a queue that only grows, or is deleted unserved, tests nothing.
            if self.unserved() < UNSERVED {
                self.claim_some();
                self.share();
                self.by_hand();
                self.children();
                self.give_back();
                self.edit();
            }
            let asks = std::mem::take(&mut self.asks);
            issued.fetch_add(asks.len(), Ordering::Relaxed);
            // What is given back in the same breath was there before.
            let (new, rest): (Vec<_>, Vec<_>) = asks.into_iter().partition(|ask| matches!(ask, Ask::Create(_)));
            insist_all(&self.world, new).await;
            insist_all(&self.world, rest).await;
            // Users come when they like; this is when.
            tokio::time::sleep(Duration::from_millis(self.chance.between(5, 60))).await;
        }
        self.live
    }

    fn unserved(&self) -> usize {
        self.world.history.now(|now| {
            let served = |name: &&String| {
                now.phase(name)
                    .is_some_and(|phase| phase != usher_subnets::api::ClaimPhase::Pending)
            };
            let claims = &self.live.claims;
            claims.len() - claims.keys().filter(served).count()
        })
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.chance.between(1, many) == 1
    }

    fn name(&mut self, letter: char) -> String {
        self.number += 1;
        format!("{letter}{:05}", self.number)
    }

    fn any<T: Clone>(&mut self, of: Vec<T>) -> Option<T> {
        if of.is_empty() {
            return None;
        }
        Some(self.chance.pick(&of).clone())
    }

    fn create(&mut self, kind: &str, name: &str, spec: Value) {
        self.asks.push(Ask::Create(manifest(kind, name, spec)));
    }

    fn claim(&mut self, pool: &str, cluster_id: Option<&str>, size: u64) {
        let name = self.name('c');
        let cluster_id = cluster_id.unwrap_or(&name).to_owned();
        self.create(
            "SubnetClaim",
            &name,
            json!({"poolRef": pool, "clusterID": cluster_id, "blockSize": size}),
        );
        let wish = Wish {
            pool: pool.to_owned(),
            cluster_id,
            size: Some(size),
        };
        self.live.claims.insert(name, wish);
    }

    fn claim_some(&mut self) {
        for _ in 0..self.chance.between(1, 8) {
            let (pool, _, sizes) = *self.chance.pick(&POOLS);
            let size = *self.chance.pick(sizes);
            self.claim(pool, None, size);
        }
        if self.one_in(6) {
            // An exact one, where the pool is crowded.
            let name = self.name('c');
            let cidr = format!(
                "10.0.{}.{}/26",
                self.chance.between(0, 15),
                64 * self.chance.between(0, 3)
            );
            self.create(
                "SubnetClaim",
                &name,
                json!({"poolRef": "linear", "clusterID": name, "requestedCIDR": cidr}),
            );
            let wish = Wish {
                pool: "linear".to_owned(),
                cluster_id: name.clone(),
                size: None,
            };
            self.live.claims.insert(name, wish);
        }
    }

    /// R11: the same clusterID again, mostly with the same size.
    fn share(&mut self) {
        if !self.one_in(3) {
            return;
        }
        let wishes: Vec<Wish> = self.live.claims.values().cloned().collect();
        if let Some(Wish {
            pool,
            cluster_id,
            size: Some(size),
        }) = self.any(wishes)
        {
            let other = pool != "tight" && self.one_in(4);
            self.claim(&pool, Some(&cluster_id), if other { size + 1 } else { size });
        }
    }

    fn by_hand(&mut self) {
        if self.live.subnets.len() < BY_HAND && self.one_in(4) {
            let name = self.name('h');
            let cidr = match self.chance.between(0, 7) {
                0 => format!("10.99.{}.0/26", self.chance.between(0, 255)),
                1..4 => self.crowded(),
                _ => format!(
                    "10.0.{}.{}/26",
                    self.chance.between(128, 255),
                    64 * self.chance.between(0, 3)
                ),
            };
            self.create(
                "Subnet",
                &name,
                json!({"poolRef": "linear", "clusterID": name, "cidr": cidr}),
            );
            self.live.subnets.insert(name, 26);
        }
        let names: Vec<String> = self.live.subnets.keys().cloned().collect();
        let Some(name) = self.any(names) else { return };
        match self.chance.between(0, 30) {
            // Imported by a claim of its clusterID.
            0..6 => self.claim("linear", Some(&name), 26),
            6 | 7 => {
                let cidr = self.crowded();
                self.asks
                    .push(Ask::Edit("Subnet", name, json!({"spec": {"cidr": cidr}})));
            }
            8 | 9 => {
                self.live.subnets.remove(&name);
                self.asks.push(Ask::delete("Subnet", &name));
            }
            _ => {}
        }
    }

    /// A place that others may have already.
    fn crowded(&mut self) -> String {
        format!(
            "10.0.{}.{}/26",
            self.chance.between(0, 31),
            64 * self.chance.between(0, 3)
        )
    }

    fn children(&mut self) {
        let world = self.world.clone();
        let pools = |now: &Now, live: &Live| -> Vec<(String, bool)> {
            let bound = |(name, parent): (&String, &String)| {
                let status = now.pool_claims.get(name)?.status.as_ref()?;
                Some((status.bound_pool_name.clone()?, parent == PARENT))
            };
            live.pool_claims.iter().filter_map(bound).collect()
        };
        let bound = world.history.now(|now| pools(now, &self.live));
        if self.live.pool_claims.len() < POOL_CLAIMS && self.one_in(5) {
            let first_level = bound
                .iter()
                .filter(|(_, first)| *first)
                .map(|(pool, _)| pool.clone())
                .collect();
            let (parent, size) = match self.any(first_level).filter(|_| self.chance.between(0, 1) == 0) {
                Some(pool) => (pool, 24),
                None => (PARENT.to_owned(), 22),
            };
            let name = self.name('p');
            self.create(
                "SubnetPoolClaim",
                &name,
                json!({"parentPoolRef": parent, "desiredBlockSize": size}),
            );
            self.live.pool_claims.insert(name, parent);
        }
        if self.live.labelled.len() < LABELLED && self.one_in(8) {
            let name = self.name('l');
            let spec = json!({"cidr": format!("10.8.{}.0/24", self.chance.between(0, 40))});
            let mut pool = manifest("SubnetPool", &name, spec);
            pool["metadata"]["labels"] = json!({"plexaubnet.io/parent": PARENT});
            self.asks.push(Ask::Create(pool));
            self.live.labelled.insert(name, ());
        }
        let labelled = self.live.labelled.keys().cloned();
        let pools: Vec<String> = bound.into_iter().map(|(pool, _)| pool).chain(labelled).collect();
        for pool in pools {
            let there = self.live.claims.values().filter(|wish| wish.pool == pool).count();
            if there < IN_CHILD && self.one_in(4) {
                let size = self.chance.between(26, 28);
                self.claim(&pool, None, size);
            }
        }
    }

    fn give_back(&mut self) {
        let tight = self.live.claims.values().filter(|wish| wish.pool == "tight").count();
        let surplus = self.live.claims.len() > LIVE || tight > 2 * TIGHT;
        if surplus || self.one_in(4) {
            for _ in 0..self.chance.between(1, 8) {
                let names: Vec<String> = self.live.claims.keys().cloned().collect();
                if let Some(name) = self.any(names) {
                    self.unclaim(&name);
                }
            }
        }
        if self.one_in(25) {
            let names: Vec<String> = self.live.pool_claims.keys().cloned().collect();
            if let Some(name) = self.any(names) {
                self.give_back_pool(&name);
            }
        }
        if self.one_in(25) {
            let names: Vec<String> = self.live.labelled.keys().cloned().collect();
            if let Some(name) = self.any(names) {
                self.live.labelled.remove(&name);
                self.asks.push(Ask::delete("SubnetPool", &name));
                self.empty(&name);
            }
        }
    }

    fn unclaim(&mut self, name: &str) {
        self.live.claims.remove(name);
        let params = match self.one_in(8) {
            true => DeleteParams::foreground(),
            false => DeleteParams::default(),
        };
        self.asks.push(Ask::Delete("SubnetClaim", name.to_owned(), params));
    }

    /// A pool claim with all that was taken from its pool; the requests go out together, in no order.
    fn give_back_pool(&mut self, name: &str) {
        self.live.pool_claims.remove(name);
        self.asks.push(Ask::delete("SubnetPoolClaim", name));
        let prefix = format!("{name}-");
        let of = |pool: &str| pool.starts_with(&prefix);
        let inner: Vec<String> = self
            .live
            .pool_claims
            .iter()
            .filter(|(_, p)| of(p))
            .map(|(n, _)| n.clone())
            .collect();
        let pools: Vec<String> = self
            .live
            .claims
            .values()
            .filter(|w| of(&w.pool))
            .map(|w| w.pool.clone())
            .collect();
        for inner in inner {
            self.give_back_pool(&inner);
        }
        for pool in pools {
            self.empty(&pool);
        }
    }

    fn empty(&mut self, pool: &str) {
        let names = self.live.claims.iter().filter(|(_, wish)| wish.pool == pool);
        let names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.unclaim(&name);
        }
    }

    fn edit(&mut self) {
        if self.one_in(2) {
            let waiting = self.world.history.now(|now| {
                let waits = |name: &&String| now.reason(name) == Some("PoolExhausted");
                let of_tight = self.live.claims.iter().filter(|(_, wish)| wish.pool == "tight");
                of_tight
                    .map(|(name, _)| name)
                    .filter(waits)
                    .cloned()
                    .collect::<Vec<_>>()
            });
            if let Some(name) = self.any(waiting) {
                // Bound by now, the edit is refused; either way it is still in a root pool.
                let spec = match self.one_in(2) {
                    true => json!({"poolRef": "linear"}),
                    false => json!({"blockSize": 27}),
                };
                self.asks.push(Ask::Edit("SubnetClaim", name, json!({"spec": spec})));
            }
        }
        if self.grown > 18 && self.one_in(30) {
            self.grown -= 1;
            let cidr = format!("10.4.0.0/{}", self.grown);
            self.asks.push(Ask::Edit(
                "SubnetPool",
                "grow".to_owned(),
                json!({"spec": {"cidr": cidr}}),
            ));
        }
        if self.one_in(20) {
            let exclude = match self.one_in(3) {
                true => json!([]),
                false => json!([format!("10.1.{}.0/24", self.chance.between(0, 31))]),
            };
            self.asks.push(Ask::Edit(
                "SubnetPool",
                "buddy".to_owned(),
                json!({"spec": {"exclude": exclude}}),
            ));
        }
    }
}

fn api(world: &World, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("plexaubnet.io", "v1alpha1", kind);
    Api::namespaced_with(world.client.clone(), &world.namespace, &ApiResource::from_gvk(&kind))
}

/// Many wishes, some at a time.
pub async fn insist_all(world: &World, asks: impl IntoIterator<Item = Ask>) {
    futures::stream::iter(asks)
        .for_each_concurrent(8, |ask| insist(world, ask))
        .await;
}

/// Asks until the server has said yes, or that it is so already: it may be away.
pub async fn insist(world: &World, ask: Ask) {
    loop {
        let once = async {
            match &ask {
                Ask::Create(object) => {
                    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
                    let kind = object.types.clone().unwrap().kind;
                    api(world, &kind)
                        .create(&PostParams::default(), &object)
                        .await
                        .map(drop)
                }
                Ask::Delete(kind, name, params) => api(world, kind).delete(name, params).await.map(drop),
                Ask::Edit(kind, name, patch) => {
                    let patch = Patch::Merge(patch);
                    api(world, kind)
                        .patch(name, &PatchParams::default(), &patch)
                        .await
                        .map(drop)
                }
            }
        };
        let too_late = |code: u16| match ask {
            Ask::Edit(..) => matches!(code, 404 | 409 | 422),
            _ => matches!(code, 404 | 409),
        };
        match tokio::time::timeout(PATIENCE, once).await {
            Ok(Ok(())) => return,
            Ok(Err(kube::Error::Api(status))) if too_late(status.code) => return,
            Ok(Err(kube::Error::Api(status))) if (400..500).contains(&status.code) && status.code != 429 => {
                panic!("{ask:?} was refused: {status:?}")
            }
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
