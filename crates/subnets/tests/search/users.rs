//! What users do in the random search: claims, pools from pools, Subnets by hand, edits, deletions, and worse.

use serde_json::{Value, json};
use usher_engine::ObjectKey;
use usher_operator::record::{ApiType, Record};
use usher_subnets::kinds::{CLAIM, POOL, POOL_CLAIM, SUBNET};
use usher_subnets::records::{
    CLAIMS, ClaimRecord, POOL_CLAIMS, POOLS, PoolClaimRecord, PoolRecord, SUBNETS, SubnetRecord,
};

use super::Run;
use super::world::Server;

/// Everything there is, by kind and key.
pub fn keys(server: &Server) -> Vec<(&'static str, ObjectKey)> {
    fn of<R: Record>(server: &Server, kind: &'static str) -> Vec<(&'static str, ObjectKey)> {
        let all = server.all::<R>();
        all.iter().map(|r| (kind, r.meta().key.clone())).collect()
    }
    [
        of::<PoolRecord>(server, POOL),
        of::<SubnetRecord>(server, SUBNET),
        of::<ClaimRecord>(server, CLAIM),
        of::<PoolClaimRecord>(server, POOL_CLAIM),
    ]
    .concat()
}

impl Run {
    fn some_name<R: Record>(&mut self) -> Option<String> {
        let all = self.server.all::<R>();
        let at = self.dice.roll(all.len());
        all.get(at).map(|r| r.meta().key.name().to_owned())
    }

    fn create(&mut self, kind: ApiType, name: &str, labels: Value, spec: Value) {
        let object = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
        let _ = self.server.create(kind, object);
    }

    /// One deed of a user.
    pub fn user(&mut self) {
        let tight = self.tight;
        // The roots most of the time, and any pool there is where pools come from pools.
        let pool = match self.dice.roll(if self.trees { 4 } else { 2 }) {
            0 => "p".to_owned(),
            1 => if tight { "p" } else { "q" }.to_owned(),
            _ => self.some_name::<PoolRecord>().unwrap_or_else(|| "p".into()),
        };
        let six = self
            .server
            .get(POOLS, &pool)
            .is_some_and(|p| p["spec"]["cidr"].as_str().unwrap().contains(':'));
        self.names += 1;
        let name = format!("c{}", self.names);
        let id = match self.dice.roll(3) {
            0 => format!("id{}", self.dice.roll(4)),
            _ => name.clone(),
        };
        let size = if six { 124 } else { 28 } + self.dice.roll(5);
        let (length, slot) = (self.dice.roll(3), if tight { 0 } else { self.dice.roll(4) * 4 });
        let exact = match six {
            false => format!("10.0.0.{slot}/{}", 30 + length),
            true => format!("fd00::{slot:x}/{}", 126 + length),
        };
        let action = match tight && self.dice.one_in(2) {
            true => 5 + self.dice.roll(2),
            false => self.dice.roll(if self.trees { 22 } else { 14 }),
        };
        let parent = json!({"plexaubnet.io/parent": pool});
        match action {
            0..=3 => self.create(
                CLAIMS,
                &name,
                json!({}),
                json!({"poolRef": pool, "clusterID": id, "blockSize": size}),
            ),
            4 => self.create(CLAIMS, &name, json!({}), json!({"poolRef": pool, "clusterID": id})),
            5 => {
                let spec = json!({"poolRef": pool, "clusterID": id, "requestedCIDR": exact});
                self.create(CLAIMS, &name, json!({}), spec);
            }
            6 => {
                let spec = json!({"poolRef": pool, "clusterID": id, "cidr": exact});
                self.create(SUBNETS, &format!("hand-{name}"), json!({}), spec);
            }
            7..=8 => self.delete::<ClaimRecord>(CLAIMS),
            9 => self.delete::<SubnetRecord>(SUBNETS),
            10 => self.edit_claim(size),
            11 => self.edit_subnet(&exact),
            12 => self.edit_pool(six),
            13 => {
                let value = json!(name);
                self.server.edit(POOLS, &pool, |object| {
                    object["metadata"]["annotations"]["usher.dev/recalculate"] = value;
                });
            }
            14..=16 => {
                let spec = json!({"parentPoolRef": pool, "desiredBlockSize": size});
                self.create(POOL_CLAIMS, &format!("pc-{name}"), json!({}), spec);
            }
            17 => {
                let (longest, cidr) = (if six { 128 } else { 32 }, exact);
                let spec = json!({"cidr": cidr, "maxBlockSize": longest, "defaultBlockSize": longest - 1});
                self.create(POOLS, &format!("k-{name}"), parent, spec);
            }
            18 => self.delete::<PoolClaimRecord>(POOL_CLAIMS),
            19 => {
                let all = self.server.all::<PoolRecord>();
                let at = self.dice.roll(all.len());
                // The roots stay: everything would end with them.
                if let Some(pool) = all.get(at).filter(|pool| pool.is_child()) {
                    let _ = self.server.delete(POOLS, pool.meta.key.name(), None);
                }
            }
            20 => {
                let child = self.some_name::<PoolRecord>().filter(|child| child.starts_with('k'));
                if let Some(child) = child {
                    let labels = if self.dice.one_in(2) { json!({}) } else { parent };
                    self.server
                        .edit(POOLS, &child, |object| object["metadata"]["labels"] = labels);
                }
            }
            _ => {
                let child = self.some_name::<PoolRecord>().filter(|child| child.starts_with('k'));
                if let Some(child) = child {
                    self.server
                        .edit(POOLS, &child, |object| object["spec"]["cidr"] = json!(exact));
                }
            }
        }
        if self.force && self.dice.one_in(8) {
            self.take_away();
        }
    }

    fn delete<R: Record>(&mut self, kind: ApiType) {
        if let Some(name) = self.some_name::<R>() {
            let _ = self.server.delete(kind, &name, None);
        }
    }

    fn edit_claim(&mut self, size: usize) {
        let claims = self.server.all::<ClaimRecord>();
        let at = self.dice.roll(claims.len());
        // Those of pool claims are Usher's own; a Bound one cannot be edited.
        let editable = |claim: &&ClaimRecord| claim.phase() != Some(usher_subnets::api::ClaimPhase::Bound);
        if let Some(claim) = claims.get(at).filter(|claim| claim.owner().is_none()).filter(editable) {
            let name = claim.meta.key.name().to_owned();
            let (what, id) = (self.dice.roll(6), format!("id{}", self.dice.roll(4)));
            self.server.edit(CLAIMS, &name, |object| match what {
                0 => object["spec"]["clusterID"] = json!(id),
                1 => object["spec"]["poolRef"] = json!("p"),
                _ => {
                    object["spec"]["blockSize"] = json!(size);
                    object["spec"].as_object_mut().unwrap().remove("requestedCIDR");
                }
            });
        }
    }

    fn edit_subnet(&mut self, cidr: &str) {
        let subnets = self.server.all::<SubnetRecord>();
        if let Some(subnet) = subnets.iter().find(|s| s.by_hand()) {
            let name = subnet.meta.key.name().to_owned();
            let same_family = subnet.cidr.to_string().contains(':') == cidr.contains(':');
            if same_family {
                self.server
                    .edit(SUBNETS, &name, |object| object["spec"]["cidr"] = json!(cidr));
            }
        }
    }

    /// A root pool shrinks, grows back, excludes a part of itself, or gives smaller blocks or not.
    fn edit_pool(&mut self, six: bool) {
        let (name, whole, half, part) = match six {
            false => ("p", "10.0.0.0/28", "10.0.0.0/29", "10.0.0.4/31"),
            true => ("q", "fd00::/124", "fd00::/125", "fd00::4/127"),
        };
        let (small, excludes, coarse) = (self.dice.one_in(3), self.dice.one_in(3), self.dice.one_in(4));
        self.server.edit(POOLS, name, |object| {
            object["spec"]["cidr"] = json!(if small { half } else { whole });
            object["spec"]["exclude"] = if excludes { json!([part]) } else { json!([]) };
            let longest = if six { 128 } else { 32 };
            object["spec"]["maxBlockSize"] = json!(if coarse { longest - 2 } else { longest });
        });
    }

    /// Somebody takes a Subnet of a user's claim away, finalizer and all.
    fn take_away(&mut self) {
        let subnets = self.server.all::<SubnetRecord>();
        let at = self.dice.roll(subnets.len());
        if let Some(subnet) = subnets.get(at).filter(|s| s.child().is_none() && !s.may_hold_a_pool()) {
            let name = subnet.meta.key.name().to_owned();
            self.server
                .edit(SUBNETS, &name, |object| object["metadata"]["finalizers"] = json!([]));
            let _ = self.server.delete(SUBNETS, &name, None);
        }
    }
}
