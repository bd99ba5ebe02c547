//! What the shipped code decides about a Subnet of the small world. Each question is put to it once.

use std::collections::HashMap;

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use usher_engine::{ObjectKey, Step};
use usher_operator::kind::Kind;
use usher_operator::record::{self, ApiType, Record};
use usher_operator::view::{Event, View};
use usher_subnets::api::{FINALIZER, SubnetPhase, SubnetStatus};
use usher_subnets::kinds::Subnets;
use usher_subnets::plan::subnet::{self, Owners, Rival, SubnetStep, SubnetView, named_by_claim, uses};
use usher_subnets::plan::{Lineage, Standing};
use usher_subnets::records::{CLAIMS, ClaimRecord, POOL_CLAIMS, POOLS, PoolRecord, SUBNETS, SubnetRecord};
use usher_subnets::wake;

use super::mutant::Mutant;
use super::subnet::{Catalogue, Maker, RANGES, SLOTS, Subnet, Write, Writes, overlap};

/// What an operator may find around a Subnet at a decision. Pools and claims have watches of their own, so that any of
/// these may be combined with any view of the Subnets.
struct Surroundings {
    pools: Vec<Option<DynamicObject>>,
    claims: [Vec<Option<DynamicObject>>; 3],
}

fn dynamic(object: Value) -> DynamicObject {
    serde_json::from_value(object).unwrap()
}

fn read<R: Record>(object: &DynamicObject) -> R {
    record::read(object).unwrap()
}

impl Surroundings {
    fn new() -> Self {
        let pool = |delay: u32, marked: bool| {
            let mut object = json!({
                "metadata": {"namespace": "ns", "name": "p", "uid": "pool", "resourceVersion": "1", "generation": 1,
                             "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FINALIZER]},
                "spec": {"cidr": RANGES[2], "maxBlockSize": 32, "reuseDelaySeconds": delay},
            });
            if marked {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
            }
            Some(dynamic(object))
        };
        let claims = std::array::from_fn(|slot| {
            let claim = |cidr: &str, status: Value| {
                let name = SLOTS[slot];
                Some(dynamic(json!({
                    "metadata": {"namespace": "ns", "name": format!("claim-{name}"), "uid": format!("claim-uid-{name}"),
                                 "resourceVersion": "2", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
                    "spec": {"poolRef": "p", "clusterID": name, "requestedCIDR": cidr}, "status": status,
                })))
            };
            let bound = json!({"phase": "Bound", "allocatedCIDR": RANGES[slot], "subnetRef": SLOTS[slot]});
            vec![
                claim(RANGES[slot], Value::Null),
                claim(RANGES[slot], bound),
                // It asks for something else now.
                claim("10.0.0.0/32", Value::Null),
                None,
            ]
        });
        Self {
            pools: vec![None, pool(0, false), pool(3600, false), pool(0, true)],
            claims,
        }
    }
}

/// The shipped decision, asked once for every question.
pub struct Decisions {
    pub catalogue: Catalogue,
    mutant: Option<Mutant>,
    surroundings: Surroundings,
    pools: Vec<Option<PoolRecord>>,
    claims: [Vec<Option<ClaimRecord>>; 3],
    records: HashMap<(usize, u8), SubnetRecord>,
    /// Who asks for no range, by slot and number.
    withdrawn: [Vec<bool>; 3],
    /// By slot and view; the highest bit says that it is known.
    known: Vec<u8>,
    /// The same, with all that cannot matter left out of the view.
    essence: HashMap<u32, Writes>,
    /// How often the plan was really asked.
    pub asked: usize,
}

impl Decisions {
    pub fn new(mutant: Option<Mutant>) -> Self {
        let catalogue = Catalogue::new();
        let mut records = HashMap::new();
        for (slot, number) in (0..3).flat_map(|slot| catalogue.numbers().map(move |n| (slot, n))) {
            let subnet = catalogue.subnet(slot, number).unwrap();
            records.insert((slot, number), read(&dynamic(subnet.object(slot))));
        }
        let withdrawn = std::array::from_fn(|slot| {
            let gone = |number: u8| records.get(&(slot, number)).is_none_or(SubnetRecord::withdrawn);
            std::iter::once(0).chain(catalogue.numbers()).map(gone).collect()
        });
        let surroundings = Surroundings::new();
        Self {
            catalogue,
            mutant,
            pools: surroundings.pools.iter().map(|pool| pool.as_ref().map(read)).collect(),
            claims: std::array::from_fn(|slot| {
                let claims = surroundings.claims[slot].iter();
                claims.map(|claim| claim.as_ref().map(read)).collect()
            }),
            surroundings,
            records,
            withdrawn,
            known: vec![0; 3 << 24],
            essence: HashMap::new(),
            asked: 0,
        }
    }

    /// The writes that the shipped code may decide on for the Subnet in `slot`, on this view of the three.
    pub fn of(&mut self, view: [u8; 3], slot: usize) -> Writes {
        let place = u32::from_le_bytes([view[0], view[1], view[2], slot as u8]) as usize;
        if self.known[place] == 0 {
            self.known[place] = 0x80 | self.decide(view, slot);
        }
        self.known[place] & 0x7F
    }

    fn decide(&mut self, mut view: [u8; 3], slot: usize) -> Writes {
        let Some(own) = self.catalogue.subnet(slot, view[slot]) else {
            return 0;
        };
        // Who is withdrawn or elsewhere is not shown to the plan at all.
        for other in (0..3).filter(|other| *other != slot) {
            let meets = |subnet: Subnet| overlap(subnet.range, own.range);
            if self.withdrawn[other][usize::from(view[other])]
                || !self.catalogue.subnet(other, view[other]).is_some_and(meets)
            {
                view[other] = 0;
            }
        }
        let key = u32::from_le_bytes([slot as u8, view[0], view[1], view[2]]);
        if let Some(known) = self.essence.get(&key) {
            return *known;
        }
        let decided = self.ask(view, slot, own);
        self.essence.insert(key, decided);
        decided
    }

    fn ask(&mut self, view: [u8; 3], slot: usize, own: Subnet) -> Writes {
        let mut set = 0;
        for pool in 0..self.pools.len() {
            // One made by hand has no claim, as if it were gone.
            let claims = if own.maker == Maker::Claim {
                0..self.claims[slot].len()
            } else {
                3..4
            };
            for claim in claims {
                self.asked += 1;
                let record = &self.records[&(slot, view[slot])];
                let shown = match self.mutant {
                    Some(mutant) => &mutant.shown(record),
                    None => record,
                };
                let plan = self.plan(shown, view, slot, pool, claim);
                set |= writes(&own, shown, &plan.status, &plan.steps);
                if let Some(Mutant::ReopenSkipped) = self.mutant
                    && plan.status.phase == Some(SubnetPhase::Pending)
                    && shown.phase() == Some(SubnetPhase::Failed)
                {
                    let mut reopened = shown.clone();
                    reopened.set_status(SubnetStatus {
                        phase: Some(SubnetPhase::Pending),
                        ..shown.status()
                    });
                    let plan = self.plan(&reopened, view, slot, pool, claim);
                    set |= writes(&own, shown, &plan.status, &plan.steps);
                }
            }
        }
        set
    }

    /// The shipped plan of one Subnet, on values made here: three hundred times as fast as through a view. That the values
    /// are those that `observe` would make is what [`Decisions::observed`] is for.
    fn plan(&self, own: &SubnetRecord, view: [u8; 3], slot: usize, pool: usize, claim: usize) -> SubnetPlan {
        let claim = self.claims[slot][claim].as_ref().filter(|_| own.claim().is_some());
        let others = (0..3).filter(|other| *other != slot && view[*other] != 0);
        let others = others.map(|other| &self.records[&(other, view[other])]);
        let in_the_way = |other: &&SubnetRecord| {
            (own.cidr.contains(&other.cidr) || other.cidr.contains(&own.cidr))
                && !other.withdrawn()
                && self.mutant.is_none_or(|mutant| mutant.sees(other))
        };
        let seen = SubnetView {
            pool: self.pools[pool].as_ref().map(|pool| Standing {
                pool,
                lineage: Lineage::Root,
                rebuilding: false,
            }),
            grounds: Vec::new(),
            claim,
            shared: false,
            idle: match (own.claim(), claim) {
                (Some(owner), Some(claim)) if claim.bound().is_none() && !uses(own, claim) => vec![owner],
                _ => Vec::new(),
            },
            owners: match (own.claim(), claim) {
                (None, _) => Owners::None,
                (Some(_), Some(_)) => Owners::Alive,
                (Some(_), None) => Owners::Gone,
            },
            children: Vec::new(),
            named: named_by_claim(own, claim),
            overlapping: others
                .filter(in_the_way)
                .map(|subnet| Rival { subnet, named: false })
                .collect(),
            twins: Vec::new(),
        };
        subnet::plan(own, &seen, now())
    }

    /// The same through a view and the shipped `observe`. Other Subnets' claims are not in it: they would only be named.
    fn observed(&self, view: [u8; 3], slot: usize, pool: usize, claim: usize) -> SubnetPlan {
        let mut seen = View::default();
        wake::register(&mut seen);
        let mut list = |kind: ApiType, objects: Vec<DynamicObject>| {
            seen.apply(kind, Event::ListStarted);
            for object in objects {
                seen.apply(kind, Event::Listed(Box::new(object)));
            }
            seen.apply(kind, Event::ListDone { revision: 9 });
        };
        let subnet = |slot: usize| Some(dynamic(self.catalogue.subnet(slot, view[slot])?.object(slot)));
        list(SUBNETS, (0..3).filter_map(subnet).collect());
        list(POOLS, self.surroundings.pools[pool].clone().into_iter().collect());
        list(
            CLAIMS,
            self.surroundings.claims[slot][claim].clone().into_iter().collect(),
        );
        list(POOL_CLAIMS, Vec::new());
        let own = seen
            .get::<SubnetRecord>(&ObjectKey::new("ns", SLOTS[slot]).unwrap())
            .unwrap();
        Subnets.plan(own, &Subnets.observe(&seen, own, &()), now())
    }

    /// Holds the two ways to a plan against each other, for a view; says how many there were.
    pub fn compare_with_observe(&self, view: [u8; 3]) -> usize {
        let mut compared = 0;
        for slot in (0..3).filter(|slot| view[*slot] != 0) {
            for pool in 0..self.pools.len() {
                for claim in 0..self.claims[slot].len() {
                    let record = &self.records[&(slot, view[slot])];
                    let direct = self.plan(record, view, slot, pool, claim);
                    let through = self.observed(view, slot, pool, claim);
                    assert_eq!(
                        gist(&direct),
                        gist(&through),
                        "{} with pool {pool}, claim {claim}",
                        SLOTS[slot]
                    );
                    compared += 1;
                }
            }
        }
        compared
    }
}

/// What a plan does and says, without its sentences: of several rivals, any may be named in them.
fn gist(plan: &SubnetPlan) -> (SubnetStatus, Vec<&'static str>) {
    let steps = plan.steps.iter().map(Step::name).collect();
    let message = None;
    (
        SubnetStatus {
            message,
            ..plan.status.clone()
        },
        steps,
    )
}

type SubnetPlan = usher_engine::Plan<SubnetStep, SubnetStatus>;

fn now() -> Timestamp {
    "2026-01-01T00:02:00Z".parse().unwrap()
}

/// A plan's status and steps as writes. A status that only says the same in other words is none: it moves nothing but
/// the version, and who is refused for that may as well never have come.
fn writes(own: &Subnet, shown: &SubnetRecord, status: &SubnetStatus, steps: &[SubnetStep]) -> Writes {
    let mut set = 0;
    let mut add = |write: Write| set |= 1 << write as u8;
    let current = shown.meta.generation - i64::from(shown.meta.deleting.is_some());
    let reading = |status: &SubnetStatus| (status.phase, status.observed_generation.is_none_or(|of| of >= current));
    let (phase, speaks) = reading(status);
    if let Some(phase) = phase.filter(|_| (phase, speaks) != reading(&shown.status())) {
        assert!(
            speaks,
            "a phase for another generation is written: {status:?} on {own:?}"
        );
        add(Write::of(phase));
    }
    for step in steps {
        let held = own.maker != Maker::Hand;
        match step {
            SubnetStep::Delete { .. } | SubnetStep::GiveUp { .. } if own.marked => add(Write::Gone),
            SubnetStep::Delete { .. } | SubnetStep::GiveUp { .. } => {
                add(if held { Write::Mark } else { Write::Gone });
            }
            SubnetStep::DropFinalizer => add(Write::Gone),
            SubnetStep::DropOwner { .. } => panic!("nobody shares in this world"),
            // Questions, not writes.
            SubnetStep::ConfirmOwner { .. } | SubnetStep::Confirm { .. } => {}
        }
    }
    set
}
