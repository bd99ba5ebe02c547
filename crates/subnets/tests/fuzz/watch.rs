//! One operator's memory under whatever its watches bring, and its plans and steps in between.

use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;
use kube::api::DynamicObject;
use usher_engine::Plan;
use usher_operator::kind::Kind;
use usher_operator::record::{ApiType, Record};
use usher_operator::view::{Event, View};
use usher_subnets::api::{ClaimPhase, SubnetPhase};
use usher_subnets::kinds::{Claims, PoolClaims, Pools, Subnets};
use usher_subnets::ledger::{Ledger, overlap};
use usher_subnets::plan::pool::PoolStep;
use usher_subnets::plan::subnet::SubnetStep;
use usher_subnets::records::{
    CLAIMS, ClaimRecord, POOL_CLAIMS, POOLS, PoolClaimRecord, PoolRecord, SUBNETS, SubnetRecord,
};
use usher_subnets::{act, wake};

use super::audit::audit;
use super::dice::Dice;
use super::forge;
use super::probe::Probe;

/// In the order of [`forge::KINDS`].
pub const TYPES: [ApiType; 4] = [SUBNETS, POOLS, CLAIMS, POOL_CLAIMS];
/// The most a status may have (R47).
const STATUS_BYTES: usize = 64 * 1024;

/// What one pass says: the kind's plan of one record.
type PlanOf<K> = Plan<<K as Kind>::Step, <K as Kind>::Status>;

/// One operator, as far as its memory goes.
pub struct Watcher<'d> {
    pub view: View,
    dice: &'d mut Dice,
    revision: u64,
    /// The last object that came, to come once more.
    last: Option<(ApiType, DynamicObject)>,
    /// What came of it.
    pub counts: Counts,
}

/// How much was tried: a search that tries nothing finds nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub events: u64,
    pub unreadable: u64,
    pub plans: u64,
    pub steps: u64,
    pub grants: u64,
    pub commits: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.events += other.events;
        self.unreadable += other.unreadable;
        self.plans += other.plans;
        self.steps += other.steps;
        self.grants += other.grants;
        self.commits += other.commits;
    }
}

impl<'d> Watcher<'d> {
    pub fn new(dice: &'d mut Dice) -> Self {
        let mut view = View::default();
        wake::register(&mut view);
        Self {
            view,
            dice,
            revision: 0,
            last: None,
            counts: Counts::default(),
        }
    }

    fn now(&mut self) -> Timestamp {
        let second = *self
            .dice
            .pick(&[0, 1_767_225_600, 1_767_225_660, 1_767_229_200, 4_000_000_000]);
        Timestamp::from_second(second).unwrap()
    }

    /// An object as a watch brings it: what only the API server sets is in order, the rest may be anything.
    fn object(&mut self, kind: usize) -> Option<DynamicObject> {
        // Versions mostly rise.
        self.revision += self.dice.roll(3) as u64;
        let good = forge::object(self.dice, forge::KINDS[kind], self.revision);
        let mut object = good.clone();
        if self.dice.one_in(4) {
            forge::spoil(self.dice, &mut object);
            object.as_object()?;
            for field in ["namespace", "name", "uid", "resourceVersion", "creationTimestamp"] {
                object
                    .get_mut("metadata")?
                    .as_object_mut()?
                    .insert(field.into(), good["metadata"][field].clone());
            }
        }
        serde_json::from_value(object).ok()
    }

    /// One thing that a watch may bring, however odd.
    pub fn event(&mut self) {
        let at = self.dice.roll(4);
        let kind = TYPES[at];
        match self.dice.roll(40) {
            0..=25 => {
                if let Some(object) = self.object(at) {
                    self.last = Some((kind, object.clone()));
                    self.take(kind, Event::Applied(Box::new(object)));
                }
            }
            26..=30 => {
                if let Some(object) = self.object(at) {
                    self.take(kind, Event::Deleted(Box::new(object)));
                }
            }
            31..=32 => {
                if let Some((kind, object)) = self.last.clone() {
                    let again = Box::new(object);
                    let event = if self.dice.one_in(3) {
                        Event::Deleted(again)
                    } else {
                        Event::Applied(again)
                    };
                    self.take(kind, event);
                }
            }
            33..=35 => self.list(at),
            36 => {
                // Out of the blue.
                let revision = self.revision;
                if let Some(object) = self.object(at) {
                    self.take(kind, Event::Listed(Box::new(object)));
                }
                self.take(kind, Event::ListDone { revision });
            }
            37 => self.take(
                kind,
                Event::Bookmark {
                    revision: self.revision,
                },
            ),
            38 if self.dice.one_in(8) => {
                let at = self.now();
                self.take(kind, Event::Interrupted { at });
            }
            _ => TYPES.iter().for_each(|kind| self.take(*kind, Event::Resumed)),
        }
    }

    /// A list: whole, broken off, with changes in between, of what is there and of what is not.
    fn list(&mut self, at: usize) {
        let kind = TYPES[at];
        self.take(kind, Event::ListStarted);
        for _ in 0..self.dice.roll(8) {
            if let Some(object) = self.object(at) {
                let object = Box::new(object);
                let event = match self.dice.roll(10) {
                    0 => Event::Deleted(object),
                    1 => Event::Applied(object),
                    _ => Event::Listed(object),
                };
                self.take(kind, event);
            }
        }
        if !self.dice.one_in(5) {
            let revision = self.revision;
            self.take(kind, Event::ListDone { revision });
        }
    }

    fn take(&mut self, kind: ApiType, event: Event) {
        self.counts.events += 1;
        let outcome = self.view.apply(kind, event);
        for wake in outcome.wakes {
            let key = wake.key;
            assert!(!key.namespace().is_empty() && !key.name().is_empty(), "M4: {key:?}");
        }
        if let Some(problem) = outcome.unreadable {
            self.counts.unreadable += 1;
            assert!(!problem.problem.is_empty() && !problem.object.is_empty(), "{problem}");
        }
    }

    /// The ledger is what the records say (I7).
    pub fn audit(&self) {
        audit(&self.view);
    }

    /// Plans one of what is there, and perhaps does what the plan says.
    pub fn pass(&mut self) {
        match self.dice.roll(4) {
            0 => self.pool(),
            1 => self.subnet(),
            2 => self.claim(),
            _ => self.pool_claim(),
        }
    }

    fn one<R: Record>(&mut self) -> Option<Arc<R>> {
        let all: Vec<&Arc<R>> = self.view.all::<R>().collect();
        let count = all.len();
        (count > 0).then(|| all[self.dice.roll(count)].clone())
    }

    fn planned<K: Kind<Fetched = ()>>(&mut self, kind: &K, resource: &K::Resource) -> PlanOf<K> {
        self.counts.plans += 1;
        let now = self.now();
        let plan = kind.plan(resource, &kind.observe(&self.view, resource, &()), now);
        let status = serde_json::to_vec(&plan.status).unwrap();
        assert!(status.len() <= STATUS_BYTES, "R47: a status of {} bytes", status.len());
        plan
    }

    /// Whether steps are to be done; and what the API server is like meanwhile.
    fn acts(&mut self) -> Option<Vec<(ApiType, DynamicObject)>> {
        if self.dice.one_in(2) {
            return None;
        }
        let mut server = Vec::new();
        for _ in 0..self.dice.roll(5) {
            let at = self.dice.roll(4);
            server.extend(self.object(at).map(|object| (TYPES[at], object)));
        }
        Some(server)
    }

    fn hands(&mut self, server: Vec<(ApiType, DynamicObject)>) -> Probe {
        let now = self.now();
        Probe::new(std::mem::take(&mut self.view), server, now)
    }

    fn pool(&mut self) {
        let Some(pool) = self.one::<PoolRecord>() else { return };
        let plan = self.planned(&Pools::default(), &pool);
        let account = self.view.derived::<Ledger>().unwrap().account(&pool.meta.key).unwrap();
        let map = account.map.as_ref().unwrap();
        let mut granted: Vec<IpNet> = Vec::new();
        for step in &plan.steps {
            if let PoolStep::Grant { grant, .. } = step {
                assert!(map.base().contains(&grant.cidr), "granted outside: {}", grant.cidr);
                let held = map.holdings().find(|(cidr, _)| overlap(*cidr, grant.cidr));
                assert!(held.is_none(), "R1: {} is granted, {held:?} is held", grant.cidr);
                assert!(
                    !granted.iter().any(|other| overlap(*other, grant.cidr)),
                    "granted twice"
                );
                assert_eq!(self.view.interrupted_since(), None, "granted on old news");
                granted.push(grant.cidr);
            }
        }
        self.counts.grants += granted.len() as u64;
        if self.view.interrupted_since().is_none() {
            assert_eq!(plan.status.allocated_count, account.settled as i64, "I8");
        }
        let Some(server) = self.acts() else { return };
        let hands = self.hands(server);
        for step in &plan.steps {
            hands.run(act::pool::step(&hands, &pool, step));
            self.counts.steps += 1;
        }
        self.view = hands.into_view();
    }

    fn subnet(&mut self) {
        let Some(subnet) = self.one::<SubnetRecord>() else {
            return;
        };
        let plan = self.planned(&Subnets, &subnet);
        let (was, is) = (subnet.phase(), plan.status.phase);
        let rival = self.view.all::<SubnetRecord>().find(|other| {
            !other.withdrawn()
                && other.meta.uid != subnet.meta.uid
                && other.pool == subnet.pool
                && other.meta.key.namespace() == subnet.meta.key.namespace()
                && overlap(other.cidr, subnet.cidr)
        });
        if is == Some(SubnetPhase::Allocated) && was != is && plan.status != subnet.status() {
            self.counts.commits += 1;
            assert_eq!(subnet.meta.deleting, None, "R21: committed on its way out");
            assert_ne!(was, Some(SubnetPhase::Failed), "R23: committed without Pending");
            assert_eq!(rival, None, "R21: {} is committed over it", subnet.meta.key);
        }
        if subnet.settled() {
            let kept = matches!(is, Some(SubnetPhase::Allocated | SubnetPhase::Released));
            assert!(kept, "I6: {} was {was:?} and is to be {is:?}", subnet.meta.key);
        }
        let takes = |step: &SubnetStep| !matches!(step, SubnetStep::ConfirmOwner { .. } | SubnetStep::Confirm { .. });
        let lets_go = |step: &SubnetStep| matches!(step, SubnetStep::DropFinalizer);
        if subnet.by_hand() {
            let harm = plan.steps.iter().find(|step| takes(step) && !lets_go(step));
            assert_eq!(harm, None, "R33: {} was made by hand", subnet.meta.key);
        }
        let Some(server) = self.acts() else { return };
        let hands = self.hands(server);
        for step in &plan.steps {
            hands.run(act::subnet::step(&hands, &subnet, step));
            self.counts.steps += 1;
        }
        self.view = hands.into_view();
    }

    fn claim(&mut self) {
        let Some(claim) = self.one::<ClaimRecord>() else { return };
        let plan = self.planned(&Claims, &claim);
        if let Some(range) = claim.bound() {
            let text = plan.status.allocated_cidr.as_deref();
            assert_eq!(
                text.and_then(|text| text.parse().ok()),
                Some(range),
                "I6: the range of a Bound claim"
            );
            assert_ne!(
                plan.status.phase,
                Some(ClaimPhase::Pending),
                "I6: Bound becomes Pending"
            );
        }
        let Some(server) = self.acts() else { return };
        let hands = self.hands(server);
        for step in &plan.steps {
            hands.run(act::claim::step(&hands, &claim, step));
            self.counts.steps += 1;
        }
        self.view = hands.into_view();
    }

    fn pool_claim(&mut self) {
        let Some(claim) = self.one::<PoolClaimRecord>() else {
            return;
        };
        let plan = self.planned(&PoolClaims, &claim);
        if claim.status.phase == Some(ClaimPhase::Bound) {
            assert_eq!(plan.status.phase, Some(ClaimPhase::Bound), "I6: {}", claim.meta.key);
        }
        let Some(server) = self.acts() else { return };
        let hands = self.hands(server);
        for step in &plan.steps {
            hands.run(act::pool_claim::step(&hands, &claim, step));
            self.counts.steps += 1;
        }
        self.view = hands.into_view();
    }
}
