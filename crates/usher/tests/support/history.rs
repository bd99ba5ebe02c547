//! The whole watch history of a namespace, from before its first object, and what there is now.
//!
//! One task per type lists once and then watches, on a connection of its own. Every change is kept with its revision
//! (`resourceVersion`: etcd's own order, across types). A watch that the server cut off goes on where it was; only where
//! the server has forgotten that point is there a *gap*, which is counted: the state after it is right, what happened
//! inside it was not seen.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;
use usher_subnets::api::{Subnet, SubnetClaim, SubnetPool, SubnetPoolClaim};

/// Longest wait for anything that must come. Far above what it takes; only a failure waits this long.
pub const DEADLINE: Duration = Duration::from_secs(90);
/// Between two tries while the server is away.
const AGAIN: Duration = Duration::from_millis(50);

/// What there is, by name.
#[derive(Debug, Default, Clone)]
pub struct Now {
    pub pools: BTreeMap<String, SubnetPool>,
    pub claims: BTreeMap<String, SubnetClaim>,
    pub pool_claims: BTreeMap<String, SubnetPoolClaim>,
    pub subnets: BTreeMap<String, Subnet>,
    pub leases: BTreeMap<String, Lease>,
}

/// One object as it was from some revision on.
#[derive(Debug, Clone)]
pub enum Seen {
    Pool(Box<SubnetPool>),
    Claim(Box<SubnetClaim>),
    PoolClaim(Box<SubnetPoolClaim>),
    Subnet(Box<Subnet>),
    Lease(Box<Lease>),
}

/// One change.
#[derive(Debug, Clone)]
pub struct Entry {
    pub revision: u64,
    /// When this process heard of it.
    pub heard: Instant,
    pub object: Seen,
    /// It is gone; `object` is its last state.
    pub gone: bool,
}

#[derive(Debug, Default)]
struct Recorded {
    now: Now,
    entries: Vec<Entry>,
    gaps: usize,
}

/// See the module's header.
#[derive(Debug)]
pub struct History {
    recorded: Arc<Mutex<Recorded>>,
    changed: watch::Receiver<usize>,
    _tasks: JoinSet<()>,
}

/// A type whose history is kept.
trait Kept: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static {
    fn seen(self) -> Seen;
    fn map(now: &mut Now) -> &mut BTreeMap<String, Self>;
}

macro_rules! kept {
    ($type:ty, $variant:ident, $map:ident) => {
        impl Kept for $type {
            fn seen(self) -> Seen {
                Seen::$variant(Box::new(self))
            }
            fn map(now: &mut Now) -> &mut BTreeMap<String, Self> {
                &mut now.$map
            }
        }
    };
}
kept!(SubnetPool, Pool, pools);
kept!(SubnetClaim, Claim, claims);
kept!(SubnetPoolClaim, PoolClaim, pool_claims);
kept!(Subnet, Subnet, subnets);
kept!(Lease, Lease, leases);

impl History {
    /// Begins, and returns when every type has its first list.
    pub async fn begin(client: Client, namespace: &str) -> Self {
        let recorded = Arc::new(Mutex::new(Recorded::default()));
        let (bell, mut changed) = watch::channel(0);
        let bell = Arc::new(bell);
        let mut tasks = JoinSet::new();
        let tape = |_| Tape {
            recorded: recorded.clone(),
            bell: bell.clone(),
        };
        tasks.spawn(record::<SubnetPool>(
            Api::namespaced(client.clone(), namespace),
            tape(()),
        ));
        tasks.spawn(record::<SubnetClaim>(
            Api::namespaced(client.clone(), namespace),
            tape(()),
        ));
        tasks.spawn(record::<SubnetPoolClaim>(
            Api::namespaced(client.clone(), namespace),
            tape(()),
        ));
        tasks.spawn(record::<Subnet>(Api::namespaced(client.clone(), namespace), tape(())));
        tasks.spawn(record::<Lease>(Api::namespaced(client, namespace), tape(())));
        // Each rings once when its list is there.
        changed.wait_for(|rings| *rings >= 5).await.unwrap();
        Self {
            recorded,
            changed,
            _tasks: tasks,
        }
    }

    /// Looks at the present state.
    pub fn now<T>(&self, look: impl FnOnce(&Now) -> T) -> T {
        look(&self.lock().now)
    }

    /// Everything so far, in etcd's order.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = self.lock().entries.clone();
        entries.sort_by_key(|entry| entry.revision);
        entries
    }

    /// Waits until the present state is at least as new as what the API server lists now, type by type. Returns the
    /// revision up to which the history is whole across types.
    pub async fn caught_up(&self, client: &Client, namespace: &str) -> u64 {
        let pools = self
            .catch_up::<SubnetPool>(Api::namespaced(client.clone(), namespace))
            .await;
        let claims = self
            .catch_up::<SubnetClaim>(Api::namespaced(client.clone(), namespace))
            .await;
        let pool_claims = self
            .catch_up::<SubnetPoolClaim>(Api::namespaced(client.clone(), namespace))
            .await;
        let subnets = self
            .catch_up::<Subnet>(Api::namespaced(client.clone(), namespace))
            .await;
        pools.min(claims).min(pool_claims).min(subnets)
    }

    async fn catch_up<K: Kept>(&self, api: Api<K>) -> u64 {
        let list = api.list(&ListParams::default()).await.unwrap();
        let until: u64 = list
            .metadata
            .resource_version
            .clone()
            .unwrap_or_default()
            .parse()
            .unwrap();
        let listed: BTreeMap<String, u64> = list.items.iter().map(|o| (o.name_any(), revision(o))).collect();
        let mut changed = self.changed.clone();
        let wait = async {
            loop {
                changed.mark_unchanged();
                let whole = {
                    let mut recorded = self.lock();
                    let known = K::map(&mut recorded.now);
                    // An object that is newer than the list says nothing about what came before; one that is older and
                    // not listed went meanwhile.
                    let seen =
                        |(name, version): (&String, &u64)| known.get(name).is_some_and(|o| revision(o) >= *version);
                    let gone = |(name, o): (&String, &K)| listed.contains_key(name) || revision(o) > until;
                    listed.iter().all(seen) && known.iter().all(gone)
                };
                if whole {
                    return;
                }
                changed.changed().await.unwrap();
            }
        };
        let came = tokio::time::timeout(DEADLINE, wait).await;
        assert!(came.is_ok(), "the history did not come to revision {until}");
        until
    }

    /// Number of changes so far.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// How often something may have gone unseen.
    pub fn gaps(&self) -> usize {
        self.lock().gaps
    }

    /// Waits until the state is as wanted: how long that took, or `None` when it did not come about.
    pub async fn until(&self, deadline: Duration, mut holds: impl FnMut(&Now) -> bool) -> Option<Duration> {
        let begun = Instant::now();
        let mut changed = self.changed.clone();
        let wait = async {
            loop {
                changed.mark_unchanged();
                if self.now(&mut holds) {
                    return;
                }
                changed.changed().await.unwrap();
            }
        };
        let came = tokio::time::timeout(deadline, wait).await;
        came.ok().map(|()| begun.elapsed())
    }

    /// Waits until the change of this revision was heard of.
    pub async fn until_revision(&self, revision: &str) {
        let revision: u64 = revision.parse().unwrap();
        let mut changed = self.changed.clone();
        let wait = async {
            while !self.lock().entries.iter().any(|entry| entry.revision == revision) {
                changed.changed().await.unwrap();
            }
        };
        let heard = tokio::time::timeout(DEADLINE, wait).await;
        assert!(heard.is_ok(), "revision {revision} was not heard of");
    }

    /// Waits until so many changes were heard of, or until `at_most` has passed.
    pub async fn until_heard(&self, entries: usize, at_most: Duration) {
        let mut changed = self.changed.clone();
        let wait = async {
            while self.len() < entries {
                changed.changed().await.unwrap();
            }
        };
        let _ = tokio::time::timeout(at_most, wait).await;
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A state in few lines, for whoever reads a failure.
pub fn summary(now: &Now) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        if text.lines().count() < 150 {
            text.push_str(&words);
            text.push('\n');
        }
    };
    for (name, pool) in &now.pools {
        let status = serde_json::to_string(&pool.status).unwrap_or_default();
        line(format!("pool {name} {}: {status}", pool.spec.cidr));
    }
    for (name, claim) in &now.pool_claims {
        let status = serde_json::to_string(&claim.status).unwrap_or_default();
        let deleting = if claim.metadata.deletion_timestamp.is_some() {
            " deleting"
        } else {
            ""
        };
        line(format!(
            "pool claim {name} of {}{deleting}: {status}",
            claim.spec.parent_pool_ref
        ));
    }
    // Those that wait first: they are what a failure is about.
    let mut claims: Vec<_> = now.claims.iter().collect();
    claims.sort_by_key(|(name, _)| now.is_bound(name));
    for (name, claim) in claims {
        let status = claim.status.clone().unwrap_or_default();
        let deleting = if claim.metadata.deletion_timestamp.is_some() {
            " deleting"
        } else {
            ""
        };
        line(format!(
            "claim {name} of {}{deleting}: {:?} {} {}",
            claim.spec.pool_ref,
            status.phase,
            status.allocated_cidr.unwrap_or_default(),
            status.message.unwrap_or_default()
        ));
    }
    let mut subnets: Vec<_> = now.subnets.iter().collect();
    subnets.sort_by_key(|(_, subnet)| super::invariants::settled(subnet));
    for (name, subnet) in subnets {
        let status = subnet.status.clone().unwrap_or_default();
        let deleting = if subnet.metadata.deletion_timestamp.is_some() {
            " deleting"
        } else {
            ""
        };
        line(format!(
            "subnet {name} {}{deleting}: {:?} {}",
            subnet.spec.cidr,
            status.phase,
            status.message.unwrap_or_default()
        ));
    }
    text
}

/// Where the tasks write.
#[derive(Clone)]
struct Tape {
    recorded: Arc<Mutex<Recorded>>,
    bell: Arc<watch::Sender<usize>>,
}

impl Tape {
    fn change(&self, change: impl FnOnce(&mut Recorded)) {
        change(&mut self.recorded.lock().unwrap_or_else(PoisonError::into_inner));
        self.bell.send_modify(|rings| *rings += 1);
    }

    fn put<K: Kept>(&self, object: K, gone: bool) {
        self.change(|recorded| put(recorded, object, gone));
    }
}

fn put<K: Kept>(recorded: &mut Recorded, object: K, gone: bool) {
    let name = object.name_any();
    let known = if gone {
        K::map(&mut recorded.now).remove(&name);
        false
    } else {
        let before = K::map(&mut recorded.now).insert(name, object.clone());
        before.is_some_and(|before| before.resource_version() == object.resource_version())
    };
    if !known {
        recorded.entries.push(Entry {
            revision: revision(&object),
            heard: Instant::now(),
            object: object.seen(),
            gone,
        });
    }
}

fn revision<K: Resource>(object: &K) -> u64 {
    object
        .meta()
        .resource_version
        .as_deref()
        .unwrap_or_default()
        .parse()
        .unwrap()
}

/// Lists, watches, and watches again; for ever.
async fn record<K: Kept>(api: Api<K>, tape: Tape) {
    let mut first = true;
    loop {
        let Ok(list) = api.list(&ListParams::default()).await else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        let mut resume = list.metadata.resource_version.clone().unwrap_or_default();
        tape.change(|recorded| {
            recorded.gaps += usize::from(!first);
            let listed: BTreeMap<String, K> = list.items.into_iter().map(|o| (o.name_any(), o)).collect();
            let missing: Vec<K> = K::map(&mut recorded.now)
                .iter()
                .filter(|(name, old)| listed.get(*name).is_none_or(|new| new.uid() != old.uid()))
                .map(|(_, old)| old.clone())
                .collect();
            for old in missing {
                // It went at some later revision; the earliest possible is noted, so that whoever took its place since
                // is not blamed.
                put(recorded, old, true);
            }
            for object in listed.into_values() {
                put(recorded, object, false);
            }
        });
        first = false;
        while follow(&api, &tape, &mut resume).await {
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// One watch; false when the server has forgotten where we were.
async fn follow<K: Kept>(api: &Api<K>, tape: &Tape, resume: &mut String) -> bool {
    let params = WatchParams::default().timeout(240);
    let forgotten = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 410);
    let stream = match api.watch(&params, resume).await {
        Ok(stream) => stream,
        Err(error) => return !forgotten(&error),
    };
    let mut stream = std::pin::pin!(stream);
    loop {
        match stream.try_next().await {
            Ok(Some(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                *resume = object.resource_version().unwrap();
                tape.put(object, false);
            }
            Ok(Some(WatchEvent::Deleted(object))) => {
                *resume = object.resource_version().unwrap();
                tape.put(object, true);
            }
            Ok(Some(WatchEvent::Bookmark(bookmark))) => *resume = bookmark.metadata.resource_version,
            Ok(Some(WatchEvent::Error(status))) => return status.code != 410,
            Ok(None) => return true,
            Err(error) => return !forgotten(&error),
        }
    }
}
