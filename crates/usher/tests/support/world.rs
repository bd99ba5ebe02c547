//! One test's world: a namespace of its own on a real API server, with its history.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use usher_subnets::api::{ClaimPhase, Subnet, SubnetClaim, SubnetPool, SubnetPoolClaim};

use super::audit::Audit;
use super::control_plane::Server;
use super::history::{DEADLINE, History, Now};
use super::invariants::{Exceptions, Proof, settled};
use super::operator::Launch;
use super::recount;

/// Requests of the test itself under way at once.
const AT_ONCE: usize = 32;

/// Asks again and again until it holds: for what no watch tells.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) -> Duration {
    let begun = Instant::now();
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(DEADLINE, wait).await.is_err() {
        panic!("within {} s, this did not come about: {what}", DEADLINE.as_secs());
    }
    begun.elapsed()
}

/// See the module's header.
#[allow(missing_debug_implementations, reason = "a client has no Debug")]
pub struct World {
    pub server: Server,
    pub client: Client,
    pub namespace: String,
    pub history: History,
    pub pools: Api<SubnetPool>,
    pub claims: Api<SubnetClaim>,
    pub pool_claims: Api<SubnetPoolClaim>,
    pub subnets: Api<Subnet>,
    files: tempfile::TempDir,
}

impl World {
    /// On the test run's server.
    pub async fn new() -> Self {
        static CRDS: OnceCell<()> = OnceCell::const_new();
        let server = Server::shared();
        CRDS.get_or_init(|| async { server.apply_crds(&server.client().await).await })
            .await;
        Self::with_crds(server).await
    }

    /// On this server.
    pub async fn on(server: Server) -> Self {
        server.apply_crds(&server.client().await).await;
        Self::with_crds(server).await
    }

    async fn with_crds(server: Server) -> Self {
        let client = server.client().await;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let new = serde_json::from_value(json!({"metadata": {"generateName": "usher-e2e-"}})).unwrap();
        let namespace = namespaces
            .create(&PostParams::default(), &new)
            .await
            .unwrap()
            .name_any();
        Self {
            history: History::begin(server.client().await, &namespace).await,
            pools: Api::namespaced(client.clone(), &namespace),
            claims: Api::namespaced(client.clone(), &namespace),
            pool_claims: Api::namespaced(client.clone(), &namespace),
            subnets: Api::namespaced(client.clone(), &namespace),
            files: tempfile::tempdir().unwrap(),
            server,
            client,
            namespace,
        }
    }

    /// The operator of this namespace, ready to be started: with the admin's rights and without a lease.
    pub fn operator(&self) -> Launch {
        Launch::new(&self.server.kubeconfig, &self.namespace, self.file("operator"))
    }

    /// A new file's path, under this test's folder.
    pub fn file(&self, stem: &str) -> PathBuf {
        let number = std::fs::read_dir(self.files.path()).unwrap().count();
        let path = self.files.path().join(format!("{stem}-{number}"));
        std::fs::write(&path, "").unwrap();
        path
    }

    /// What the audit log says from now on about this namespace.
    pub fn audit(&self) -> Audit {
        Audit::from_now(&self.server, &self.namespace)
    }

    pub async fn try_pool(&self, name: &str, spec: Value) -> kube::Result<SubnetPool> {
        let pool = serde_json::from_value(manifest("SubnetPool", name, spec)).unwrap();
        self.pools.create(&PostParams::default(), &pool).await
    }

    pub async fn pool(&self, name: &str, spec: Value) -> SubnetPool {
        self.try_pool(name, spec).await.unwrap()
    }

    /// `spec` without clusterID gets the claim's name as one.
    pub async fn try_claim(&self, name: &str, mut spec: Value) -> kube::Result<SubnetClaim> {
        if spec.get("clusterID").is_none() {
            spec["clusterID"] = json!(name);
        }
        let claim = serde_json::from_value(manifest("SubnetClaim", name, spec)).unwrap();
        self.claims.create(&PostParams::default(), &claim).await
    }

    pub async fn claim(&self, name: &str, spec: Value) -> SubnetClaim {
        self.try_claim(name, spec).await.unwrap()
    }

    /// A pool that names a parent by label.
    pub async fn child_pool(&self, name: &str, parent: &str, spec: Value) -> SubnetPool {
        let mut pool = manifest("SubnetPool", name, spec);
        pool["metadata"]["labels"] = json!({"plexaubnet.io/parent": parent});
        let pool = serde_json::from_value(pool).unwrap();
        self.pools.create(&PostParams::default(), &pool).await.unwrap()
    }

    /// A claim for a pool.
    pub async fn pool_claim(&self, name: &str, parent: &str, length: u8) -> SubnetPoolClaim {
        let spec = json!({"parentPoolRef": parent, "desiredBlockSize": length});
        let claim = serde_json::from_value(manifest("SubnetPoolClaim", name, spec)).unwrap();
        self.pool_claims.create(&PostParams::default(), &claim).await.unwrap()
    }

    /// Waits until a pool claim is Bound to a pool that says it is Ready, and names that pool.
    pub async fn until_pool(&self, claim: &str) -> String {
        let what = format!("pool claim {claim} is Bound, and its pool is Ready");
        self.until(&what, |now| now.pool_of(claim).is_some_and(|pool| now.is_ready(pool)))
            .await;
        self.history.now(|now| now.pool_of(claim).unwrap().to_owned())
    }

    /// An object as its user wrote it, past our own types.
    pub async fn post(&self, plural: &str, object: &Value) -> kube::Result<Value> {
        let path = format!("/apis/plexaubnet.io/v1alpha1/namespaces/{}/{plural}", self.namespace);
        let request = http::Request::post(path).header("content-type", "application/json");
        self.client
            .request(request.body(object.to_string().into_bytes()).unwrap())
            .await
    }

    /// As [`World::post`], by kind, name and spec.
    pub async fn raw(&self, plural: &str, kind: &str, name: &str, spec: &Value) -> kube::Result<Value> {
        self.post(plural, &manifest(kind, name, spec.clone())).await
    }

    /// The invariants over the whole history, once that is as new as what the API server lists now.
    pub async fn proof(&self) -> Proof {
        self.proof_but(&Exceptions::default()).await
    }

    /// As [`World::proof`], excusing what is named.
    pub async fn proof_but(&self, exceptions: &Exceptions<'_>) -> Proof {
        let until = self.history.caught_up(&self.client, &self.namespace).await;
        self.history.check_with(exceptions, until)
    }

    /// Sets (or, with null, takes away) a label of a pool.
    pub async fn label_pool(&self, name: &str, key: &str, value: Value) {
        self.patch_pool(name, json!({"metadata": {"labels": {key: value}}}))
            .await;
    }

    /// Sets (or, with null, takes away) an annotation of a pool.
    pub async fn annotate_pool(&self, name: &str, key: &str, value: Value) {
        self.patch_pool(name, json!({"metadata": {"annotations": {key: value}}}))
            .await;
    }

    async fn patch_pool(&self, name: &str, patch: Value) {
        let params = PatchParams::default();
        let edited = self.pools.patch(name, &params, &Patch::Merge(patch)).await.unwrap();
        self.history.until_revision(&edited.resource_version().unwrap()).await;
    }

    /// Deletes a Subnet past its finalizer, as nobody should.
    pub async fn strip(&self, subnet: &str) {
        self.subnets.delete(subnet, &DeleteParams::default()).await.unwrap();
        let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        self.subnets
            .patch(subnet, &PatchParams::default(), &none)
            .await
            .unwrap();
    }

    /// Many claims, many at a time.
    pub async fn claim_all(&self, claims: impl IntoIterator<Item = (String, Value)>) {
        futures::stream::iter(claims)
            .for_each_concurrent(AT_ONCE, |(name, spec)| async move {
                self.claim(&name, spec).await;
            })
            .await;
    }

    /// A Subnet made by hand.
    pub async fn try_subnet(&self, name: &str, pool: &str, cidr: &str) -> kube::Result<Subnet> {
        let spec = json!({"poolRef": pool, "cidr": cidr, "clusterID": name});
        let subnet = serde_json::from_value(manifest("Subnet", name, spec)).unwrap();
        self.subnets.create(&PostParams::default(), &subnet).await
    }

    pub async fn subnet(&self, name: &str, pool: &str, cidr: &str) -> Subnet {
        self.try_subnet(name, pool, cidr).await.unwrap()
    }

    pub async fn unclaim(&self, name: &str) {
        self.claims.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn unclaim_all(&self, names: impl IntoIterator<Item = String>) {
        futures::stream::iter(names)
            .for_each_concurrent(AT_ONCE, |name| async move { self.unclaim(&name).await })
            .await;
    }

    /// Changes part of a pool's spec, and returns when it was heard of.
    pub async fn edit_pool(&self, name: &str, spec: Value) {
        self.patch_pool(name, json!({"spec": spec})).await;
    }

    /// Writes a status by hand, as nobody should, and returns when it was heard of.
    pub async fn scribble<K>(&self, api: &Api<K>, name: &str, status: Value)
    where
        K: Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let patch = Patch::Merge(json!({"status": status}));
        let written = api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
        self.history.until_revision(&written.resource_version().unwrap()).await;
    }

    /// Waits until the state is as wanted, and says how long that took.
    pub async fn until(&self, what: &str, holds: impl FnMut(&Now) -> bool) -> Duration {
        self.until_within(DEADLINE, what, holds).await
    }

    /// As [`World::until`], with another deadline.
    pub async fn until_within(&self, deadline: Duration, what: &str, holds: impl FnMut(&Now) -> bool) -> Duration {
        if let Some(took) = self.history.until(deadline, holds).await {
            return took;
        }
        let claims = self.claims.list(&ListParams::default()).await.unwrap().items;
        let stale = self.history.now(|now| {
            let known = |c: &SubnetClaim| now.claims.get(&c.name_any()).and_then(ResourceExt::resource_version);
            claims.iter().filter(|c| known(c) != c.resource_version()).count()
        });
        panic!(
            "within {} s, this did not come about: {what}; ({stale} claims of the history are out of date)\n{}",
            deadline.as_secs(),
            self.history.now(super::history::summary)
        );
    }

    /// Waits until all of these claims are Bound, and their Subnets were heard of, which come by another watch.
    pub async fn until_bound(&self, names: &[&str]) -> Duration {
        let what = format!("{} claims are Bound: {names:?}", names.len());
        let has_its_subnet = |now: &Now, name: &str| {
            let status = now.claims.get(name).and_then(|claim| claim.status.as_ref());
            let subnet = status.and_then(|status| now.subnets.get(status.subnet_ref.as_deref()?));
            now.is_bound(name) && subnet.is_some_and(settled)
        };
        self.until(&what, |now| names.iter().all(|name| has_its_subnet(now, name)))
            .await
    }

    /// Waits until the pool's status is exactly what a recount of the Subnets and claims gives.
    pub async fn until_exact(&self, pool: &str) {
        let what = format!("the status of pool {pool} is exact");
        let mut last = Err("nothing was looked at".to_owned());
        let mut holds = |now: &Now| {
            last = recount::compare(now, pool);
            last.is_ok()
        };
        let begun = Instant::now();
        while begun.elapsed() < DEADLINE {
            if self.history.now(&mut holds) {
                return;
            }
            self.history
                .until_heard(self.history.len() + 1, Duration::from_millis(500))
                .await;
        }
        panic!(
            "{what}: {}\n{}",
            last.unwrap_err(),
            self.history.now(super::history::summary)
        );
    }

    /// Events about an object, `Type Reason: note`, oldest first.
    pub async fn events(&self, kind: &str, name: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = ListParams::default().fields(&format!("involvedObject.kind={kind},involvedObject.name={name}"));
        let mut found = events.list(&params).await.unwrap().items;
        found.sort_by_key(|event| event.metadata.creation_timestamp.clone());
        let line = |event: Event| {
            format!(
                "{} {}: {}",
                event.type_.unwrap_or_default(),
                event.reason.unwrap_or_default(),
                event.message.unwrap_or_default()
            )
        };
        found.into_iter().map(line).collect()
    }

    /// Waits for an event about an object that contains these words.
    pub async fn until_event(&self, kind: &str, name: &str, words: &str) {
        let what = format!("an event about {kind} {name} says {words:?}");
        let mut last = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < DEADLINE {
            last = self.events(kind, name).await;
            if last.iter().any(|line| line.contains(words)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{what}; there were {last:#?}");
    }
}

impl Drop for World {
    /// The namespace goes, with or without an operator: on a server of a test run it would only be in the way, on a
    /// developer's own it would stay for ever.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "namespace {}:\n{}",
                self.namespace,
                self.history.now(super::history::summary)
            );
        }
        let (server, namespace) = (self.server.clone(), self.namespace.clone());
        let sweep = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let sweep = async { tokio::time::timeout(Duration::from_secs(20), sweep(server, namespace)).await };
            let _ = runtime.block_on(sweep);
        });
        let _ = sweep.join();
    }
}

async fn sweep(server: Server, namespace: String) {
    // A control plane of one test may be gone already.
    if !server.kubeconfig.exists() {
        return;
    }
    let client = server.client().await;
    let _ = Api::<Namespace>::all(client.clone())
        .delete(&namespace, &DeleteParams::default())
        .await;
    let pools: Api<SubnetPool> = Api::namespaced(client.clone(), &namespace);
    let claims: Api<SubnetClaim> = Api::namespaced(client.clone(), &namespace);
    let pool_claims: Api<SubnetPoolClaim> = Api::namespaced(client.clone(), &namespace);
    let subnets: Api<Subnet> = Api::namespaced(client, &namespace);
    let at_once = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    let all = ListParams::default();
    let _ = pool_claims.delete_collection(&at_once, &all).await;
    let _ = claims.delete_collection(&at_once, &all).await;
    let _ = subnets.delete_collection(&at_once, &all).await;
    let _ = pools.delete_collection(&at_once, &all).await;
    set_free(&pool_claims).await;
    set_free(&claims).await;
    set_free(&subnets).await;
    set_free(&pools).await;
}

/// Takes the finalizers of all that is left.
async fn set_free<K>(api: &Api<K>)
where
    K: Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let left: Vec<String> = api
        .list(&ListParams::default())
        .await
        .into_iter()
        .flatten()
        .map(|o| o.name_any())
        .collect();
    futures::stream::iter(left)
        .for_each_concurrent(AT_ONCE, |name| {
            let free = &free;
            async move {
                let _ = api.patch(&name, &PatchParams::default(), free).await;
            }
        })
        .await;
}

pub fn manifest(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "plexaubnet.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Words for looking at a state.
impl Now {
    pub fn is_bound(&self, claim: &str) -> bool {
        self.phase(claim) == Some(ClaimPhase::Bound)
    }

    pub fn phase(&self, claim: &str) -> Option<ClaimPhase> {
        self.claims.get(claim)?.status.as_ref()?.phase
    }

    /// The range a claim has.
    pub fn range(&self, claim: &str) -> Option<&str> {
        self.claims.get(claim)?.status.as_ref()?.allocated_cidr.as_deref()
    }

    /// Reason of a claim's Ready condition.
    pub fn reason(&self, claim: &str) -> Option<&str> {
        let conditions = &self.claims.get(claim)?.status.as_ref()?.conditions;
        conditions
            .iter()
            .find(|c| c.type_ == "Ready")
            .map(|c| c.reason.as_str())
    }

    pub fn message(&self, claim: &str) -> &str {
        let status = self.claims.get(claim).and_then(|claim| claim.status.as_ref());
        status.and_then(|status| status.message.as_deref()).unwrap_or_default()
    }

    /// Claims of a phase, by name.
    pub fn in_phase(&self, phase: ClaimPhase) -> Vec<String> {
        let of_phase = |(name, _): &(&String, &SubnetClaim)| self.phase(name) == Some(phase);
        self.claims
            .iter()
            .filter(of_phase)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Status, reason and message of a pool's condition.
    pub fn condition(&self, pool: &str, type_: &str) -> Option<(String, String, String)> {
        let conditions = &self.pools.get(pool)?.status.as_ref()?.conditions;
        let condition = conditions.iter().find(|c| c.type_ == type_)?;
        Some((
            format!("{:?}", condition.status),
            condition.reason.clone(),
            condition.message.clone(),
        ))
    }

    /// The pool that a Bound pool claim got.
    pub fn pool_of(&self, pool_claim: &str) -> Option<&str> {
        let status = self.pool_claims.get(pool_claim)?.status.as_ref()?;
        let bound = status.phase == Some(ClaimPhase::Bound);
        status.bound_pool_name.as_deref().filter(|_| bound)
    }

    /// Phase, and reason and message of the Ready condition of a pool claim.
    pub fn pool_claim(&self, name: &str) -> (Option<ClaimPhase>, String, String) {
        let status = self.pool_claims.get(name).and_then(|claim| claim.status.clone());
        let status = status.unwrap_or_default();
        let ready = status.conditions.iter().find(|c| c.type_ == "Ready");
        let reason = ready.map(|c| c.reason.clone()).unwrap_or_default();
        (status.phase, reason, status.message.unwrap_or_default())
    }

    /// Whether a pool says that it is Ready.
    pub fn is_ready(&self, pool: &str) -> bool {
        self.condition(pool, "Ready")
            .is_some_and(|(status, ..)| status == "True")
    }

    /// The Subnet that stands for a pool in its parent.
    pub fn holder(&self, pool: &str) -> Option<&Subnet> {
        let pool = self.pools.get(pool)?;
        let id = super::invariants::owner(pool, "SubnetPoolClaim").or(pool.uid())?;
        self.subnets.values().find(|subnet| subnet.spec.cluster_id == id)
    }

    pub fn allocated(&self, pool: &str) -> Option<i64> {
        Some(self.pools.get(pool)?.status.as_ref()?.allocated_count)
    }
}
