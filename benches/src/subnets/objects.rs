//! The objects of the bench, as texts and values: what Usher writes, without Usher.

use std::net::Ipv4Addr;

use ipnet::{IpNet, Ipv4Net};
use jiff::Timestamp;
use serde_json::{Value, json};
use usher_subnets::objects::subnet_name;

use crate::error::{Error, Result};
use crate::world::{API, World};

/// Length of all blocks: a /8 has a million of them.
pub(crate) const LENGTH: u8 = 28;
const FINALIZER: &str = usher_subnets::api::FINALIZER;
const API_VERSION: &str = "plexaubnet.io/v1alpha1";

/// The n-th block of 10.0.0.0/8.
pub(crate) fn block(n: usize) -> IpNet {
    let base = u32::from(Ipv4Addr::new(10, 0, 0, 0));
    let offset = u32::try_from(n).unwrap_or(0) << (32 - LENGTH);
    IpNet::V4(Ipv4Net::new_assert((base | offset).into(), LENGTH))
}

/// Claim number n, wherever it is.
pub(crate) fn claim_name(n: usize) -> String {
    format!("claim-{n:06}")
}

fn cluster_id(n: usize) -> String {
    format!("cluster-{n:06}")
}

/// A uid as the API server makes them, the same for the same number.
pub(crate) fn uid(kind: u16, n: usize) -> String {
    format!("{n:08x}-{kind:04x}-4bec-8000-{n:012x}")
}

/// Which pool claim n asks, of so many.
pub(crate) fn pool_name(n: usize, pools: usize) -> String {
    format!("pool-{:02}", n % pools.max(1))
}

/// A pool: the whole /8 where there is one, a /16 each where there are many.
pub(crate) fn pool(namespace: &str, n: usize, pools: usize) -> Value {
    let cidr = if pools == 1 {
        "10.0.0.0/8".to_owned()
    } else {
        format!("10.{n}.0.0/16")
    };
    json!({
        "apiVersion": API_VERSION,
        "kind": "SubnetPool",
        "metadata": {"namespace": namespace, "name": pool_name(n, pools)},
        "spec": {"cidr": cidr, "defaultBlockSize": LENGTH},
    })
}

pub(crate) fn claim(namespace: &str, n: usize, pools: usize) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "SubnetClaim",
        "metadata": {"namespace": namespace, "name": claim_name(n)},
        "spec": {"poolRef": pool_name(n, pools), "clusterID": cluster_id(n), "blockSize": LENGTH},
    })
}

/// The Subnet of claim n, in block n, as R19's first write has it.
pub(crate) fn subnet(namespace: &str, n: usize, pool: &str, claim_uid: &str) -> Value {
    let claim = claim_name(n);
    json!({
        "apiVersion": API_VERSION,
        "kind": "Subnet",
        "metadata": {
            "namespace": namespace,
            "name": subnet_name(pool, block(n)),
            "finalizers": [FINALIZER],
            "ownerReferences": [{
                "apiVersion": API_VERSION, "kind": "SubnetClaim", "name": claim, "uid": claim_uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "poolRef": pool,
            "cidr": block(n).to_string(),
            "clusterID": cluster_id(n),
            "claimRef": {"name": claim, "uid": claim_uid},
        },
    })
}

/// What R19's second write says.
pub(crate) fn allocated() -> Value {
    json!({"phase": "Allocated", "observedGeneration": 1, "allocatedAt": this_second().to_string()})
}

/// Whole seconds, as Usher writes them.
fn this_second() -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default()
}

/// What R19's third write says.
pub(crate) fn bound(n: usize, pool: &str) -> Value {
    let cidr = block(n).to_string();
    let now = this_second();
    json!({
        "phase": "Bound",
        "observedGeneration": 1,
        "allocatedCIDR": cidr,
        "subnetRef": subnet_name(pool, block(n)),
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Allocated", "observedGeneration": 1,
            "message": format!("{cidr} of pool {pool} is allocated"), "lastTransitionTime": now.to_string(),
        }],
    })
}

/// A status write, guarded by the object's version.
pub(crate) fn status_write(
    kind: &str,
    namespace: &str,
    name: &str,
    uid: &str,
    version: &str,
    status: &Value,
) -> String {
    json!({
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"namespace": namespace, "name": name, "uid": uid, "resourceVersion": version},
        "status": status,
    })
    .to_string()
}

pub(crate) fn path(namespace: &str, plural: &str) -> String {
    format!("{API}/namespaces/{namespace}/{plural}")
}

/// A claim that waits: its uid and version.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    pub(crate) uid: String,
    pub(crate) version: u64,
}

/// Objects by the thousand, put into etcd as the API server stored the first of each.
#[derive(Debug)]
pub(crate) struct Nursery<'w> {
    world: &'w World,
    namespace: String,
    pools: usize,
}

impl<'w> Nursery<'w> {
    /// A namespace with its pools.
    pub(crate) async fn open(world: &'w World, pools: usize) -> Result<Self> {
        let namespace = world.namespace().await?;
        for n in 0..pools {
            let object = pool(&namespace, n, pools);
            world.client().create(&path(&namespace, "subnetpools"), &object).await?;
        }
        Ok(Self {
            world,
            namespace,
            pools,
        })
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// `count` claims that nobody has served, numbered from `first`.
    pub(crate) async fn waiting(&self, first: usize, count: usize) -> Result<Vec<Waiting>> {
        let template = self
            .stored(
                "SubnetClaim",
                "subnetclaims",
                &claim(&self.namespace, first, self.pools),
                None,
            )
            .await?;
        let make = |n| {
            let n = first + n;
            let mut object = template.clone();
            set(&mut object, "/metadata/name", claim_name(n));
            set(&mut object, "/metadata/uid", uid(1, n));
            set(&mut object, "/spec/clusterID", cluster_id(n));
            set(&mut object, "/spec/poolRef", pool_name(n, self.pools));
            (claim_name(n), object)
        };
        let versions = self.put("subnetclaims", count, make).await?;
        let waiting = versions.into_iter().enumerate();
        Ok(waiting
            .map(|(n, version)| Waiting {
                uid: uid(1, first + n),
                version,
            })
            .collect())
    }

    /// `count` Allocated Subnets made by hand, in the blocks from 0 on.
    pub(crate) async fn by_hand(&self, count: usize) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let pool = pool_name(0, self.pools);
        let mut first = subnet(&self.namespace, 0, &pool, "");
        remove(&mut first, "/metadata", "ownerReferences");
        remove(&mut first, "/metadata", "finalizers");
        remove(&mut first, "/spec", "claimRef");
        set(&mut first, "/spec/clusterID", "by-hand-000000".to_owned());
        let template = self.stored("Subnet", "subnets", &first, Some(allocated())).await?;
        let make = |n| {
            let mut object = template.clone();
            let name = subnet_name(&pool, block(n));
            set(&mut object, "/metadata/name", name.clone());
            set(&mut object, "/metadata/uid", uid(2, n));
            set(&mut object, "/spec/cidr", block(n).to_string());
            set(&mut object, "/spec/clusterID", format!("by-hand-{n:06}"));
            (name, object)
        };
        self.put("subnets", count, make).await.map(drop)
    }

    /// `count` Bound claims with their Allocated Subnets.
    pub(crate) async fn served(&self, count: usize) -> Result<()> {
        let pool = pool_name(0, self.pools);
        let asked = claim(&self.namespace, 0, self.pools);
        let claim = self
            .stored("SubnetClaim", "subnetclaims", &asked, Some(bound(0, &pool)))
            .await?;
        let object = subnet(&self.namespace, 0, &pool, &uid(1, 0));
        let subnet = self.stored("Subnet", "subnets", &object, Some(allocated())).await?;
        let make_claim = |n| {
            let mut object = claim.clone();
            set(&mut object, "/metadata/name", claim_name(n));
            set(&mut object, "/metadata/uid", uid(1, n));
            set(&mut object, "/spec/clusterID", cluster_id(n));
            set_value(&mut object, "/status", bound(n, &pool));
            (claim_name(n), object)
        };
        let make_subnet = |n| {
            let mut object = subnet.clone();
            let name = subnet_name(&pool, block(n));
            set(&mut object, "/metadata/name", name.clone());
            set(&mut object, "/metadata/uid", uid(2, n));
            set(&mut object, "/metadata/ownerReferences/0/name", claim_name(n));
            set(&mut object, "/metadata/ownerReferences/0/uid", uid(1, n));
            set(&mut object, "/spec/cidr", block(n).to_string());
            set(&mut object, "/spec/clusterID", cluster_id(n));
            set(&mut object, "/spec/claimRef/name", claim_name(n));
            set(&mut object, "/spec/claimRef/uid", uid(1, n));
            (name, object)
        };
        self.put("subnetclaims", count, make_claim).await?;
        self.put("subnets", count, make_subnet).await.map(drop)
    }

    /// Takes everything out again, so that what comes next finds the servers as this found them.
    pub(crate) async fn close(self) -> Result<()> {
        for plural in ["subnets", "subnetclaims", "subnetpools"] {
            let version = self.world.etcd().clear(&format!("{plural}/{}", self.namespace))?;
            self.world.caught_up(&self.namespace, plural, version).await?;
        }
        Ok(())
    }

    async fn put(
        &self,
        plural: &str,
        count: usize,
        object: impl Fn(usize) -> (String, Value) + Sync,
    ) -> Result<Vec<u64>> {
        let versions = self.world.etcd().put(count, |n| {
            let (name, object) = object(n);
            (format!("{plural}/{}/{name}", self.namespace), object)
        })?;
        if let Some(last) = versions.iter().max() {
            self.world.caught_up(&self.namespace, plural, *last).await?;
        }
        Ok(versions)
    }

    /// Creates one object through the API and returns it as the API server stores it.
    async fn stored(&self, kind: &str, plural: &str, object: &Value, status: Option<Value>) -> Result<Value> {
        let text = |object: &Value, at: &str| {
            object
                .pointer(at)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let mut stored = self
            .world
            .client()
            .create(&path(&self.namespace, plural), object)
            .await?;
        if let Some(status) = status {
            let (name, uid) = (text(&stored, "/metadata/name"), text(&stored, "/metadata/uid"));
            let version = text(&stored, "/metadata/resourceVersion");
            let body = status_write(kind, &self.namespace, &name, &uid, &version, &status);
            let at = format!("{}/{name}/status", path(&self.namespace, plural));
            let answer = self.world.client().send(http::Method::PUT, &at, body).await?;
            stored = serde_json::from_str(&answer).map_err(|e| Error::api(at, e))?;
        }
        // The version is etcd's own, not part of what is stored.
        remove(&mut stored, "/metadata", "resourceVersion");
        Ok(stored)
    }
}

fn set(object: &mut Value, at: &str, text: String) {
    set_value(object, at, Value::String(text));
}

fn set_value(object: &mut Value, at: &str, value: Value) {
    if let Some(place) = object.pointer_mut(at) {
        *place = value;
    }
}

fn remove(object: &mut Value, at: &str, field: &str) {
    if let Some(Value::Object(fields)) = object.pointer_mut(at) {
        fields.remove(field);
    }
}
