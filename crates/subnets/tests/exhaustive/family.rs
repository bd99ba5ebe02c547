//! A parent pool, a child pool taken from it, and three Subnets: the holder that stands for the child in the parent, a
//! leaf in the child, and a rival in the parent that wants the same addresses.
//!
//! Two ways to be a child: by a label that somebody set (the holder is made for the pool), and by a pool claim (the holder is
//! the Subnet of the claim that was made for it).

use std::collections::HashMap;

use kube::api::DynamicObject;
use serde_json::{Value, json};
use usher_subnets::api::{FINALIZER, SubnetPhase};

use super::subnet::Write;

/// The Subnets' slots.
pub const HOLDER: usize = 0;
pub const LEAF: usize = 1;
pub const RIVAL: usize = 2;

pub const CHILD: &str = "child";
pub const PARENT: &str = "parent";
pub const NAMES: [&str; 3] = ["parent-10-0-0-0-31", "leaf", "rival"];
const RANGES: [&str; 3] = ["10.0.0.0/31", "10.0.0.0/32", "10.0.0.0/30"];
/// The two lives of the child pool: deleted and made again under the same name.
pub const LIVES: [&str; 2] = [
    "aaaaaaaa-0000-4000-8000-000000000000",
    "bbbbbbbb-0000-4000-8000-000000000000",
];
pub const POOL_CLAIM_UID: &str = "cccccccc-0000-4000-8000-000000000000";

/// How the child pool came to be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    Label,
    PoolClaim,
}

/// The child pool, as far as the rules look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pool {
    /// Which of its lives.
    pub life: u8,
    /// It has our finalizer.
    pub ours: bool,
    pub held: bool,
    pub marked: bool,
}

/// The child pool, or that there is none: before its first life, between the two, and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Child {
    None { after: u8 },
    Some(Pool),
}

/// The pool claim, where there is one: nobody deletes it, somebody did, it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolClaim {
    Alive,
    Marked,
    Gone,
}

/// Who made a Subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Maker {
    Claim,
    Hand,
    /// The child pool in this life.
    Pool(u8),
}

/// One of the three Subnets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Member {
    pub maker: Maker,
    pub phase: Option<SubnetPhase>,
    pub marked: bool,
    /// Created after the others: who yields depends on it.
    pub late: bool,
}

impl Member {
    pub fn settled(&self) -> bool {
        matches!(self.phase, Some(SubnetPhase::Allocated | SubnetPhase::Released))
    }

    /// After this write.
    pub fn written(self, write: Write) -> Option<Self> {
        match write {
            Write::Gone => None,
            Write::Mark => Some(Self { marked: true, ..self }),
            status => Some(Self {
                phase: status.phase(),
                ..self
            }),
        }
    }
}

/// What an operator may write to the child pool; also that it makes a holder for it. A set, one bit each.
pub type PoolWrites = u8;

/// A write to the child pool, or for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolWrite {
    AddFinalizer,
    Held,
    Mark,
    DropFinalizer,
    CreateHolder,
}

impl PoolWrite {
    pub const ALL: [PoolWrite; 5] = [
        PoolWrite::AddFinalizer,
        PoolWrite::Held,
        PoolWrite::Mark,
        PoolWrite::DropFinalizer,
        PoolWrite::CreateHolder,
    ];
}

/// Everything there can be, numbered.
pub struct Family {
    pub origin: Origin,
    children: Vec<Child>,
    members: [Vec<Member>; 3],
    /// As the API server would show them, by slot (a Subnet's) and number.
    pub subnets: HashMap<(usize, u8), DynamicObject>,
    pub pools: HashMap<u8, DynamicObject>,
    pub parent: DynamicObject,
}

pub fn dynamic(object: Value) -> DynamicObject {
    serde_json::from_value(object).unwrap()
}

pub fn metadata(name: &str, uid: &str, marked: bool) -> Value {
    let mut metadata = json!({
        "namespace": "ns", "name": name, "uid": uid, "resourceVersion": "7",
        "generation": 1 + i64::from(marked), "creationTimestamp": "2026-01-01T00:00:00Z",
    });
    if marked {
        metadata["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
    }
    metadata
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": "plexaubnet.io/v1alpha1", "kind": kind, "name": name, "uid": uid, "controller": true}])
}

impl Family {
    pub fn new(origin: Origin) -> Self {
        let mut family = Self {
            origin,
            children: children(origin),
            members: [holders(origin), others(false), others(true)],
            subnets: HashMap::new(),
            pools: HashMap::new(),
            parent: dynamic(json!({
                "metadata": metadata(PARENT, "parent-uid", false),
                "spec": {"cidr": RANGES[RIVAL], "maxBlockSize": 32},
            })),
        };
        family.parent.metadata.finalizers = Some(vec![FINALIZER.into()]);
        for number in 0..family.children.len() as u8 {
            if let Child::Some(pool) = family.child(number) {
                let object = family.pool_object(pool);
                family.pools.insert(number, object);
            }
        }
        for slot in 0..3 {
            for number in 1..=family.members[slot].len() as u8 {
                let object = family.subnet_object(slot, family.member(slot, number).unwrap());
                family.subnets.insert((slot, number), object);
            }
        }
        family
    }

    pub fn child(&self, number: u8) -> Child {
        self.children[usize::from(number)]
    }

    pub fn child_number(&self, child: Child) -> u8 {
        self.children
            .iter()
            .position(|c| *c == child)
            .expect("such a pool can be") as u8
    }

    /// How many there are.
    pub fn child_count(&self) -> u8 {
        self.children.len() as u8
    }

    pub fn member(&self, slot: usize, number: u8) -> Option<Member> {
        self.members[slot].get(usize::from(number).checked_sub(1)?).copied()
    }

    pub fn member_number(&self, slot: usize, member: Option<Member>) -> u8 {
        let Some(member) = member else { return 0 };
        let place = self.members[slot].iter().position(|m| *m == member);
        place.unwrap_or_else(|| panic!("no such Subnet in slot {slot}: {member:?}")) as u8 + 1
    }

    /// The clusterID of the holder of a pool.
    fn holder_id(&self, life: u8) -> &'static str {
        match self.origin {
            Origin::Label => LIVES[usize::from(life)],
            Origin::PoolClaim => POOL_CLAIM_UID,
        }
    }

    pub fn pool_object(&self, pool: Pool) -> DynamicObject {
        let mut metadata = metadata(CHILD, LIVES[usize::from(pool.life)], pool.marked);
        metadata["labels"] = json!({"plexaubnet.io/parent": PARENT});
        if pool.ours {
            metadata["finalizers"] = json!([FINALIZER]);
        }
        if self.origin == Origin::PoolClaim {
            metadata["ownerReferences"] = owner("SubnetPoolClaim", "pool-claim", POOL_CLAIM_UID);
        }
        let mut object = json!({"metadata": metadata, "spec": {"cidr": RANGES[HOLDER], "maxBlockSize": 32}});
        if pool.held {
            object["status"] = json!({"conditions": [{
                "type": "Held", "status": "True", "reason": "HolderAllocated", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:30Z", "observedGeneration": 1,
            }]});
        }
        dynamic(object)
    }

    /// The pool claim, as long as there is one.
    pub fn pool_claim_object(&self, claim: PoolClaim) -> Option<DynamicObject> {
        let mut metadata = metadata("pool-claim", POOL_CLAIM_UID, claim == PoolClaim::Marked);
        metadata["finalizers"] = json!([FINALIZER]);
        let spec = json!({"parentPoolRef": PARENT, "desiredBlockSize": 31});
        (claim != PoolClaim::Gone).then(|| dynamic(json!({"metadata": metadata, "spec": spec})))
    }

    pub fn subnet_object(&self, slot: usize, member: Member) -> DynamicObject {
        let name = NAMES[slot];
        let mut metadata = metadata(name, &format!("uid-{name}"), member.marked);
        if member.late {
            metadata["creationTimestamp"] = json!("2026-01-01T00:00:01Z");
        }
        let pool = if slot == LEAF { CHILD } else { PARENT };
        let mut spec = json!({"poolRef": pool, "cidr": RANGES[slot], "clusterID": format!("id-{name}")});
        match member.maker {
            Maker::Claim => {
                let (claim, uid) = (format!("claim-{name}"), format!("uid-claim-{name}"));
                metadata["finalizers"] = json!([FINALIZER]);
                metadata["ownerReferences"] = owner("SubnetClaim", &claim, &uid);
                spec["claimRef"] = json!({"name": claim, "uid": uid});
            }
            Maker::Pool(life) => {
                metadata["finalizers"] = json!([FINALIZER]);
                metadata["ownerReferences"] = owner("SubnetPool", CHILD, LIVES[usize::from(life)]);
            }
            Maker::Hand => {}
        }
        if slot == HOLDER {
            let life = if let Maker::Pool(life) = member.maker { life } else { 0 };
            spec["clusterID"] = json!(self.holder_id(life));
        }
        let mut object = json!({"metadata": metadata, "spec": spec});
        if let Some(phase) = member.phase {
            object["status"] = json!({"phase": phase, "observedGeneration": 1});
        }
        dynamic(object)
    }

    /// The claim of a Subnet: alive, or alive and Bound to it.
    pub fn claim_object(&self, slot: usize, bound: bool) -> DynamicObject {
        let name = NAMES[slot];
        let mut metadata = metadata(&format!("claim-{name}"), &format!("uid-claim-{name}"), false);
        let pool = if slot == LEAF { CHILD } else { PARENT };
        let mut id = format!("id-{name}");
        if slot == HOLDER {
            metadata["finalizers"] = json!([FINALIZER]);
            metadata["ownerReferences"] = owner("SubnetPoolClaim", "pool-claim", POOL_CLAIM_UID);
            id = POOL_CLAIM_UID.to_owned();
        }
        let spec = json!({"poolRef": pool, "clusterID": id, "requestedCIDR": RANGES[slot]});
        let mut object = json!({"metadata": metadata, "spec": spec});
        if bound {
            object["status"] = json!({"phase": "Bound", "allocatedCIDR": RANGES[slot], "subnetRef": name});
        }
        dynamic(object)
    }
}

fn children(origin: Origin) -> Vec<Child> {
    let mut children = Vec::new();
    for life in 0..2 {
        children.push(Child::None { after: life });
        for ours in [false, true] {
            for held in [false, true] {
                for marked in [false, true] {
                    // Without a finalizer it goes at once; a pool claim's has ours from the start.
                    if ours || (!marked && origin == Origin::Label) {
                        children.push(Child::Some(Pool {
                            life,
                            ours,
                            held,
                            marked,
                        }));
                    }
                }
            }
        }
    }
    children.push(Child::None { after: 2 });
    children
}

fn phases() -> impl Iterator<Item = Option<SubnetPhase>> {
    [
        None,
        Some(SubnetPhase::Pending),
        Some(SubnetPhase::Allocated),
        Some(SubnetPhase::Failed),
        Some(SubnetPhase::Released),
    ]
    .into_iter()
}

fn holders(origin: Origin) -> Vec<Member> {
    let makers = match origin {
        Origin::Label => vec![Maker::Pool(0), Maker::Pool(1)],
        Origin::PoolClaim => vec![Maker::Claim],
    };
    let mut members = Vec::new();
    for maker in makers {
        for phase in phases() {
            members.extend([false, true].map(|marked| Member {
                maker,
                phase,
                marked,
                late: false,
            }));
        }
    }
    members
}

fn others(either_time: bool) -> Vec<Member> {
    let mut members = Vec::new();
    for late in [false, true].into_iter().take(1 + usize::from(either_time)) {
        for phase in phases() {
            let of = |maker, marked| Member {
                maker,
                phase,
                marked,
                late,
            };
            members.extend([of(Maker::Claim, false), of(Maker::Claim, true)]);
            if phase != Some(SubnetPhase::Released) {
                members.push(of(Maker::Hand, false));
            }
        }
    }
    members
}
