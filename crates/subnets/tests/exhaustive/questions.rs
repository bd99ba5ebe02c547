//! What the shipped code decides about a family: its `observe` on a real view, its `plan`, and its `act`, which asks past
//! the view and writes. Each question is put to it once.

use std::collections::HashMap;

use jiff::Timestamp;
use kube::api::DynamicObject;
use usher_engine::{ConditionStatus, ObjectKey, Uid};
use usher_operator::kind::Kind;
use usher_operator::record::{self, ApiType, Record};
use usher_operator::view::{Event, View};
use usher_subnets::answers::Answers;
use usher_subnets::api::SubnetPhase;
use usher_subnets::kinds::{Pools, Subnets};
use usher_subnets::plan::footing::{Footing, Ground};
use usher_subnets::plan::pool::PoolStep;
use usher_subnets::plan::pool_claim::PoolClaimStep;
use usher_subnets::plan::subnet::SubnetStep;
use usher_subnets::records::{
    CLAIMS, HELD, Owner, POOL_CLAIMS, POOLS, PoolClaimRecord, PoolRecord, SUBNETS, SubnetRecord,
};
use usher_subnets::{act, wake};

use super::family::{
    CHILD, Child, Family, HOLDER, LEAF, LIVES, Maker, Member, NAMES, POOL_CLAIM_UID, Pool, PoolClaim, PoolWrite,
    PoolWrites, RIVAL,
};
use super::probe::{Call, Probe};
use super::subnet::{Write, Writes};

/// What is read past the view, and what must be so for the answer to be yes.
#[derive(Debug, Clone, Copy)]
pub enum Read {
    /// R25: the child pool stands, in this life (child).
    PoolStands(u8),
    /// R25: nothing keeps the child pool from going (child, leaf).
    PoolMayGo,
    /// R26: the holder stands (child, holder).
    HolderStands,
    /// R26: nothing keeps the holder from going (holder, child).
    HolderMayGo,
    /// R35: the holder's owner is gone (holder, child).
    OwnerGone,
    /// R44: the pool claim stands (pool claim).
    PoolClaimStands(PoolClaim),
    /// R44: no pool keeps the pool claim from going (child).
    NoPoolOfClaim,
    /// R44: no Subnet keeps the pool claim from going (holder).
    NoSubnetOfClaim,
}

/// A family, and the shipped code's answers about it.
pub struct Questions {
    pub family: Family,
    subnet_writes: HashMap<(usize, [u8; 3], u8), [Writes; 2]>,
    pool_writes: HashMap<(u8, u8, u8), [PoolWrites; 2]>,
    /// By question, child pool and Subnet: 0 unknown, 1 no, 2 yes.
    reads: Vec<u8>,
    /// How often a plan was really asked.
    pub asked: usize,
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name).unwrap()
}

fn now() -> Timestamp {
    "2026-01-01T00:02:00Z".parse().unwrap()
}

fn read<R: Record>(object: &DynamicObject) -> R {
    record::read(object).unwrap()
}

impl Questions {
    pub fn new(family: Family) -> Self {
        Self {
            family,
            subnet_writes: HashMap::new(),
            pool_writes: HashMap::new(),
            reads: vec![0; 9 << 9],
            asked: 0,
        }
    }

    /// The view of an operator that saw the child pool up to `child` and these Subnets. Its first lists came before all of
    /// that, so that what is not there may be yet to come; the claims are listed last, so that a missing one is gone.
    fn view(&self, child: u8, subnets: [u8; 3], claims: &[DynamicObject]) -> View {
        let mut view = View::default();
        wake::register(&mut view);
        // Each event is newer than the one before, as in a watch.
        let mut revision = 1;
        let mut take = |kind, mut event| {
            if let Event::Applied(object) | Event::Deleted(object) = &mut event {
                revision += 1;
                object.metadata.resource_version = Some(revision.to_string());
            }
            let outcome = view.apply(kind, event);
            assert!(outcome.unreadable.is_none(), "{:?}", outcome.unreadable);
        };
        let list = |take: &mut dyn FnMut(ApiType, Event), kind: ApiType, objects: &[DynamicObject]| {
            take(kind, Event::ListStarted);
            for object in objects {
                take(kind, Event::Listed(Box::new(object.clone())));
            }
            take(kind, Event::ListDone { revision: 1 });
        };
        list(&mut take, SUBNETS, &[]);
        list(&mut take, POOLS, std::slice::from_ref(&self.family.parent));
        let lives = match self.family.child(child) {
            Child::None { after } => after,
            Child::Some(pool) => pool.life,
        };
        for life in 0..lives {
            let gone = self.family.pool_object(Pool {
                life,
                ours: true,
                held: true,
                marked: true,
            });
            take(POOLS, Event::Applied(Box::new(gone.clone())));
            take(POOLS, Event::Deleted(Box::new(gone)));
        }
        if let Some(object) = self.family.pools.get(&child) {
            take(POOLS, Event::Applied(Box::new(object.clone())));
        }
        for slot in 0..3 {
            if let Some(object) = self.family.subnets.get(&(slot, subnets[slot])) {
                take(SUBNETS, Event::Applied(Box::new(object.clone())));
            }
        }
        list(&mut take, CLAIMS, claims);
        let pool_claim = self.family.pool_claim_object(PoolClaim::Alive);
        list(&mut take, POOL_CLAIMS, pool_claim.as_slice());
        view
    }

    fn on_server(&self, child: u8, subnets: [u8; 3]) -> Vec<(ApiType, DynamicObject)> {
        let mut server = vec![(POOLS, self.family.parent.clone())];
        server.extend(self.family.pools.get(&child).map(|pool| (POOLS, pool.clone())));
        for slot in 0..3 {
            let object = self.family.subnets.get(&(slot, subnets[slot]));
            server.extend(object.map(|subnet| (SUBNETS, subnet.clone())));
        }
        server
    }

    /// What the shipped code may write to the Subnet in `slot`, on a view of the Subnets and of the child pool: without
    /// answers, and if what it asks past its view is answered as it hopes.
    pub fn subnet_writes(&mut self, slot: usize, mut subnets: [u8; 3], mut child: u8) -> [Writes; 2] {
        if subnets[slot] == 0 {
            return [0; 2];
        }
        // Who is in another pool does not matter to it; nor does the child pool to the rival.
        match slot {
            HOLDER => subnets[LEAF] = 0,
            LEAF => subnets[RIVAL] = 0,
            _ => (subnets[LEAF], child) = (0, 0),
        }
        if let Some(known) = self.subnet_writes.get(&(slot, subnets, child)) {
            return *known;
        }
        let member = self.family.member(slot, subnets[slot]).unwrap();
        let record = self.subnet_record(slot, subnets[slot]);
        let claims: Vec<Vec<DynamicObject>> = match member.maker {
            Maker::Claim => vec![
                vec![self.family.claim_object(slot, false)],
                vec![self.family.claim_object(slot, true)],
                vec![],
            ],
            _ => vec![vec![]],
        };
        let mut sets = [0; 2];
        for claims in &claims {
            let mut view = self.view(child, subnets, claims);
            for set in &mut sets {
                let (phase, steps) = self.plan_subnet(&view, slot);
                if let Some(phase) = phase.filter(|phase| Some(*phase) != member.phase) {
                    *set |= 1 << Write::of(phase) as u8;
                }
                for step in &steps {
                    // What it hopes to hear: that the pool or the pool claim stands, that the owner is gone, that no pool
                    // is left.
                    let server = match step {
                        SubnetStep::Confirm {
                            ground: Ground::Pool(_),
                        } => self.standing(child),
                        SubnetStep::Confirm {
                            ground: Ground::PoolClaim(_),
                        } => self.pool_claim(PoolClaim::Alive),
                        _ => vec![],
                    };
                    let probe = Probe::new(view, server, now());
                    for call in probe.run(act::subnet::step(&probe, &record, step)) {
                        *set |= 1 << as_write(&call, member) as u8;
                    }
                    view = probe.into_view();
                }
            }
        }
        self.subnet_writes.insert((slot, subnets, child), sets);
        sets
    }

    fn subnet_record(&self, slot: usize, number: u8) -> SubnetRecord {
        read(&self.family.subnets[&(slot, number)])
    }

    fn plan_subnet(&mut self, view: &View, slot: usize) -> (Option<SubnetPhase>, Vec<SubnetStep>) {
        self.asked += 1;
        let subnet = view.get::<SubnetRecord>(&key(NAMES[slot])).unwrap();
        let plan = Subnets.plan(subnet, &Subnets.observe(view, subnet, &()), now());
        (plan.status.phase, plan.steps)
    }

    /// A server on which the child pool stands, in the life it has here.
    fn standing(&self, child: u8) -> Vec<(ApiType, DynamicObject)> {
        let Child::Some(pool) = self.family.child(child) else {
            return vec![];
        };
        let stands = Pool {
            life: pool.life,
            ours: true,
            held: true,
            marked: false,
        };
        vec![(POOLS, self.family.pool_object(stands))]
    }

    /// A server with the pool claim, as long as there is one.
    fn pool_claim(&self, claim: PoolClaim) -> Vec<(ApiType, DynamicObject)> {
        let object = self.family.pool_claim_object(claim);
        object.map(|object| (POOL_CLAIMS, object)).into_iter().collect()
    }

    /// What the shipped code may write to the child pool, or create for it, on a view of it and of the Subnets: as above.
    pub fn pool_writes(&mut self, child: u8, holder: u8, leaf: u8) -> [PoolWrites; 2] {
        let Child::Some(pool) = self.family.child(child) else {
            return [0; 2];
        };
        if let Some(known) = self.pool_writes.get(&(child, holder, leaf)) {
            return *known;
        }
        let record: PoolRecord = read(&self.family.pools[&child]);
        let mut sets = [0; 2];
        // With a claim that waits for the pool, and without.
        for claims in [vec![], vec![self.family.claim_object(LEAF, false)]] {
            let mut view = self.view(child, [holder, leaf, 0], &claims);
            for set in &mut sets {
                let (held, steps) = self.plan_pool(&view);
                if held && !pool.held {
                    *set |= 1 << PoolWrite::Held as u8;
                }
                for step in steps.iter().filter(|step| !matches!(step, PoolStep::Grant { .. })) {
                    // What it hopes to hear: that the holder stands, that no Subnet is left.
                    let server = match step {
                        PoolStep::ConfirmHolder { .. } => {
                            let mut stands = self.family.member(HOLDER, holder).unwrap();
                            (stands.phase, stands.marked) = (Some(SubnetPhase::Allocated), false);
                            vec![(SUBNETS, self.family.subnet_object(HOLDER, stands))]
                        }
                        _ => vec![],
                    };
                    let probe = Probe::new(view, server, now());
                    for call in probe.run(act::pool::step(&probe, &record, step)) {
                        *set |= 1 << as_pool_write(&call) as u8;
                    }
                    view = probe.into_view();
                }
            }
        }
        self.pool_writes.insert((child, holder, leaf), sets);
        sets
    }

    fn plan_pool(&mut self, view: &View) -> (bool, Vec<PoolStep>) {
        self.asked += 1;
        let (pools, pool) = (Pools::default(), view.get::<PoolRecord>(&key(CHILD)).unwrap());
        let plan = pools.plan(pool, &pools.observe(view, pool, &()), now());
        let mut conditions = plan.status.conditions.iter();
        let held = conditions.any(|c| c.type_ == HELD && c.status == ConditionStatus::True);
        (held, plan.steps)
    }

    /// What the shipped code makes of an answer, if the API server gives it in this state.
    pub fn read(&mut self, what: Read, child: u8, subnets: [u8; 3]) -> bool {
        let other = match what {
            Read::PoolStands(_) => 0,
            Read::PoolMayGo => subnets[LEAF],
            Read::HolderStands | Read::HolderMayGo | Read::OwnerGone | Read::NoSubnetOfClaim => subnets[HOLDER],
            Read::PoolClaimStands(claim) => claim as u8,
            Read::NoPoolOfClaim => 0,
        };
        let question = match what {
            Read::PoolStands(life) => life,
            Read::PoolMayGo => 2,
            Read::HolderStands => 3,
            Read::HolderMayGo => 4,
            Read::OwnerGone => 5,
            Read::PoolClaimStands(_) => 6,
            Read::NoPoolOfClaim => 7,
            Read::NoSubnetOfClaim => 8,
        };
        let place = usize::from(question) << 9 | usize::from(child) << 5 | usize::from(other);
        if self.reads[place] == 0 {
            self.reads[place] = 1 + u8::from(self.ask(what, child, subnets));
        }
        self.reads[place] == 2
    }

    /// Whether the shipped code takes what it reads for a ground of this uid that stands.
    fn confirms(&self, probe: Probe, slot: usize, ground: Ground, uid: &Uid) -> bool {
        let step = SubnetStep::Confirm { ground: ground.clone() };
        probe.run(act::subnet::step(&probe, &self.subnet_record(slot, 1), &step));
        let answers = probe.into_view();
        answers.derived::<Answers>().unwrap().footing(&ground, uid, 0) == Footing::Confirmed
    }

    fn ask(&self, what: Read, child: u8, subnets: [u8; 3]) -> bool {
        let server = match what {
            Read::PoolClaimStands(claim) => self.pool_claim(claim),
            // Each list is taken at a time of its own: here the other one finds nothing.
            Read::NoPoolOfClaim => self.on_server(child, [0; 3]),
            Read::NoSubnetOfClaim => self.on_server(0, subnets),
            _ => self.on_server(child, subnets),
        };
        let holder = || (subnets[HOLDER] != 0).then(|| self.subnet_record(HOLDER, subnets[HOLDER]));
        let pool = || self.family.pools.get(&child).map(read::<PoolRecord>);
        let probe = Probe::new(self.view(child, subnets, &[]), server, now());
        match what {
            Read::PoolStands(life) => {
                let Some(pool) = pool() else { return false };
                let (ground, uid) = (Ground::Pool(pool.meta.key), LIVES[usize::from(life)].into());
                self.confirms(probe, LEAF, ground, &uid)
            }
            Read::PoolClaimStands(_) => {
                let ground = Ground::PoolClaim(key("pool-claim"));
                self.confirms(probe, HOLDER, ground, &POOL_CLAIM_UID.into())
            }
            Read::NoPoolOfClaim | Read::NoSubnetOfClaim => {
                let claim = self.family.pool_claim_object(PoolClaim::Marked).unwrap();
                let claim: PoolClaimRecord = read(&claim);
                let step = PoolClaimStep::DropFinalizer;
                !probe.run(act::pool_claim::step(&probe, &claim, &step)).is_empty()
            }
            Read::PoolMayGo => {
                let Some(pool) = pool() else { return false };
                !probe
                    .run(act::pool::step(&probe, &pool, &PoolStep::DropFinalizer))
                    .is_empty()
            }
            Read::HolderStands => {
                let (Some(pool), Some(holder)) = (pool(), holder()) else {
                    return false;
                };
                let step = PoolStep::ConfirmHolder {
                    holder: holder.meta.key.clone(),
                };
                probe.run(act::pool::step(&probe, &pool, &step));
                let answers = probe.into_view();
                answers
                    .derived::<Answers>()
                    .unwrap()
                    .is_held(&pool.meta.uid, &holder.meta.uid)
            }
            Read::HolderMayGo => {
                let Some(holder) = holder() else { return false };
                !probe
                    .run(act::subnet::step(&probe, &holder, &SubnetStep::DropFinalizer))
                    .is_empty()
            }
            Read::OwnerGone => {
                let Some(Owner { name, uid, .. }) = holder().and_then(|holder| holder.child().cloned()) else {
                    return false;
                };
                let step = SubnetStep::ConfirmOwner {
                    kind: POOLS,
                    owner: key(&name),
                    uid: uid.clone(),
                };
                probe.run(act::subnet::step(
                    &probe,
                    &self.subnet_record(HOLDER, subnets[HOLDER]),
                    &step,
                ));
                let answers = probe.into_view();
                answers.derived::<Answers>().unwrap().is_gone(&uid)
            }
        }
    }
}

/// What a call does to the Subnet it was planned for.
fn as_write(call: &Call, member: Member) -> Write {
    match call {
        Call::Delete { kind: SUBNETS, .. } if member.maker == Maker::Hand => Write::Gone,
        Call::Delete { kind: SUBNETS, .. } => Write::Mark,
        Call::Finalizers {
            kind: SUBNETS,
            finalizers,
            ..
        } if finalizers.is_empty() && member.marked => Write::Gone,
        other => panic!("a Subnet does {other:?}"),
    }
}

/// What a call does to the child pool it was planned for.
fn as_pool_write(call: &Call) -> PoolWrite {
    match call {
        Call::Create { kind: SUBNETS, .. } => PoolWrite::CreateHolder,
        Call::Delete { kind: POOLS, .. } => PoolWrite::Mark,
        Call::Finalizers {
            kind: POOLS,
            finalizers,
            ..
        } if finalizers.is_empty() => PoolWrite::DropFinalizer,
        Call::Finalizers { kind: POOLS, .. } => PoolWrite::AddFinalizer,
        other => panic!("a pool does {other:?}"),
    }
}
