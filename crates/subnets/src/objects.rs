//! Pure builders of the Kubernetes objects Usher owns, and their names.

use ipnet::IpNet;
use serde_json::{Value, json};
use usher_engine::{Uid, name};

use crate::api::{FINALIZER, GROUP, IPAM_LABEL, PARENT_LABEL, VERSION};
use crate::records::{ClaimRecord, Meta, PoolClaimRecord, PoolRecord};

/// How much of the pool's name stays in a Subnet's name that is too long.
const POOL_NAME_KEPT: usize = 40;

/// Name of the Subnet that holds `cidr` in `pool`: the same for every operator at every time, so that two of them cannot
/// create the same Subnet twice.
pub fn subnet_name(pool: &str, cidr: IpNet) -> String {
    let tail: String = cidr
        .to_string()
        .chars()
        .map(|c| if matches!(c, '.' | '/' | ':') { '-' } else { c })
        .collect();
    // An IPv6 prefix like `2001:db8::/32` would give `2001-db8---32`: fine inside a name, not at its start.
    name::bounded(&format!("{pool}-{tail}"), pool, POOL_NAME_KEPT)
}

/// The names to try for the Subnet of `cidr` in `pool`, made for the object of this uid: the plain one; another where that
/// is taken by an unrelated object; and one that nobody else can have.
pub fn subnet_names(pool: &str, cidr: IpNet, uid: &Uid) -> [String; 3] {
    let plain = subnet_name(pool, cidr);
    let other = format!("{}-x", name::hashed(&plain, pool, POOL_NAME_KEPT));
    let own = format!("{}-x", name::hashed(&format!("{plain}/{uid}"), pool, POOL_NAME_KEPT));
    [plain, other, own]
}

/// Name of the claim and of the pool that are made for a pool claim: the same for every operator at every time.
pub fn pool_claim_name(claim: &PoolClaimRecord) -> String {
    name::suffixed(claim.meta.key.name(), &claim.meta.uid.to_string())
}

/// The name to take when that one is taken by an unrelated object.
pub fn other_pool_claim_name(claim: &PoolClaimRecord) -> String {
    let plain = pool_claim_name(claim);
    format!("{}-x", name::hashed(&plain, claim.meta.key.name(), POOL_NAME_KEPT))
}

/// An owner reference. What is owned goes before its owner, where that is deleted in the foreground.
fn owned_by(kind: &str, owner: &Meta, controller: bool) -> Value {
    reference(kind, owner, controller, true)
}

/// The reference of a holder. It goes after its pool (R26), so a pool that is deleted in the foreground must not wait for it.
fn holder_of(child: &Meta) -> Value {
    reference("SubnetPool", child, true, false)
}

fn reference(kind: &str, owner: &Meta, controller: bool, blocks: bool) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": kind,
        "name": owner.key.name(),
        "uid": owner.uid,
        "controller": controller,
        "blockOwnerDeletion": blocks,
    })
}

/// The reference by which a claim shares a Subnet that was made for another (R11).
pub fn sharer(claim: &ClaimRecord) -> Value {
    owned_by("SubnetClaim", &claim.meta, false)
}

/// The Subnet of a claim. Owner, claim reference and finalizer are inside from the start: it is whole, or it is not there.
pub fn subnet(name: &str, claim: &ClaimRecord, cidr: IpNet) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "Subnet",
        "metadata": {
            "namespace": claim.meta.key.namespace(),
            "name": name,
            "finalizers": [FINALIZER],
            "ownerReferences": [owned_by("SubnetClaim", &claim.meta, true)],
        },
        "spec": {
            "poolRef": &*claim.pool,
            "cidr": cidr.to_string(),
            "clusterID": &*claim.cluster_id,
            "claimRef": {"name": claim.meta.key.name(), "uid": claim.meta.uid},
        },
    })
}

/// The Subnet that stands for a child pool in its parent.
pub fn holder(name: &str, child: &PoolRecord, parent: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "Subnet",
        "metadata": {
            "namespace": child.meta.key.namespace(),
            "name": name,
            "finalizers": [FINALIZER],
            "ownerReferences": [holder_of(&child.meta)],
        },
        "spec": {
            "poolRef": parent,
            "cidr": child.cidr.to_string(),
            "clusterID": child.meta.uid,
        },
    })
}

/// The claim in the parent that is made for a pool claim.
pub fn internal_claim(name: &str, claim: &PoolClaimRecord) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "SubnetClaim",
        "metadata": {
            "namespace": claim.meta.key.namespace(),
            "name": name,
            "finalizers": [FINALIZER],
            "ownerReferences": [owned_by("SubnetPoolClaim", &claim.meta, true)],
        },
        "spec": {
            "poolRef": &*claim.parent,
            "blockSize": claim.length,
            "clusterID": claim.meta.uid,
        },
    })
}

/// The pool that is made for a pool claim. It grants what its parent would, as far as that fits into it.
pub fn child_pool(name: &str, claim: &PoolClaimRecord, cidr: IpNet, parent: &PoolRecord) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "SubnetPool",
        "metadata": {
            "namespace": claim.meta.key.namespace(),
            "name": name,
            "labels": {PARENT_LABEL: &*claim.parent, IPAM_LABEL: "true"},
            "finalizers": [FINALIZER],
            "ownerReferences": [owned_by("SubnetPoolClaim", &claim.meta, true)],
        },
        "spec": {
            "cidr": cidr.to_string(),
            "strategy": parent.strategy,
            "maxBlockSize": parent.longest.max(cidr.prefix_len()),
            "defaultBlockSize": parent.default.max(cidr.prefix_len()),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_upstreams() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        assert_eq!(subnet_name("test-pool", net("10.0.0.0/24")), "test-pool-10-0-0-0-24");
        assert_eq!(subnet_name("v6", net("2001:db8::/64")), "v6-2001-db8---64");
        let [plain, other, own] = subnet_names("p", net("10.0.0.0/24"), &"uid".into());
        assert!(plain != other && other != own && own != plain);
        assert_ne!(own, subnet_names("p", net("10.0.0.0/24"), &"another".into())[2]);
    }

    proptest! {
        #[test]
        fn names_are_valid_and_differ_by_range(
            pool in "[a-z]([a-z0-9-]{0,80}[a-z0-9])?", a in any::<u128>(), b in any::<u128>(), len in 1u8..=128,
        ) {
            let net = |bits: u128| IpNet::from(ipnet::Ipv6Net::new(bits.into(), len).unwrap()).trunc();
            let name = subnet_name(&pool, net(a));
            prop_assert!(name.len() <= 63);
            prop_assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
            prop_assert_eq!(net(a) == net(b), name == subnet_name(&pool, net(b)));
        }
    }
}
