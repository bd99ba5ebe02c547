//! A model of the API server, and operators that see it through watches of their own pace.
//!
//! The decisions are the shipped ones (`observe`, `plan`, ledger, view, written); only requests are modelled: each is
//! decided at one time and takes effect at another, which may be much later. Used by the scenarios and the random search.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod server;

use std::collections::BTreeMap;
use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;
use serde_json::Value;
use usher_engine::{Finding, Next, ObjectKey, Plan, Step};
use usher_operator::kind::Kind;
use usher_operator::record::{ApiType, Meta, Record};
use usher_operator::view::{Event, View, Wake};
use usher_operator::written::{Expect, Reader, Written};
use usher_subnets::api::FINALIZER;
use usher_subnets::kinds::{CLAIM, Claims, POOL, Pools, SUBNET, Subnets};
use usher_subnets::ledger::{Ledger, Refusal};
use usher_subnets::observe::Confirmed;
use usher_subnets::plan::claim::ClaimStep;
use usher_subnets::plan::pool::PoolStep;
use usher_subnets::plan::subnet::{SubnetStep, abandoned};
use usher_subnets::records::{CLAIMS, ClaimRecord, POOLS, PoolRecord, SUBNETS, SubnetRecord};
use usher_subnets::{objects, wake};

pub use server::{Entry, Refused, Server, text};

pub const NS: &str = "ns";

pub fn key(name: &str) -> ObjectKey {
    ObjectKey::new(NS, name).unwrap()
}

fn read<R: Record>(object: &Value) -> Result<R, usher_operator::record::Unreadable> {
    usher_operator::record::read::<R>(&serde_json::from_value(object.clone()).unwrap())
}

/// A write that was decided and has not taken effect yet.
#[derive(Debug, Clone)]
pub enum Request {
    Status {
        kind: ApiType,
        meta: Meta,
        status: Value,
    },
    CreateSubnet {
        pool: ObjectKey,
        claim: ClaimRecord,
        cidr: IpNet,
    },
    Finalizers {
        kind: ApiType,
        meta: Meta,
        finalizers: Vec<String>,
    },
    DeleteSubnet {
        meta: Meta,
    },
    GiveUp {
        subnet: SubnetRecord,
        claim: ObjectKey,
    },
    DropPoolFinalizer {
        pool: PoolRecord,
    },
    ConfirmOwner {
        subnet: ObjectKey,
        claim: ObjectKey,
        uid: Arc<str>,
    },
    RevokeSent {
        pool: ObjectKey,
        uid: Arc<str>,
        cidr: IpNet,
    },
    ConfirmTaken {
        pool: ObjectKey,
        name: Arc<str>,
    },
}

/// What one pass decided.
#[derive(Debug, Default)]
pub struct Decided {
    pub lines: Vec<String>,
    pub requests: Vec<Request>,
    pub next: Option<Next>,
}

/// One operator: its view, what it wrote, whom it must look at.
pub struct Operator {
    pub view: View,
    pub written: Written,
    pub woken: Vec<Wake>,
    cursor: BTreeMap<ApiType, usize>,
}

impl Operator {
    /// Lists everything, in order, as at start.
    pub fn start(server: &Server) -> Self {
        let mut view = View::default();
        wake::register(&mut view);
        view.keep::<Confirmed>();
        let mut operator = Self {
            view,
            written: Written::default(),
            woken: Vec::new(),
            cursor: BTreeMap::new(),
        };
        for kind in [SUBNETS, POOLS, CLAIMS] {
            operator.relist(server, kind);
        }
        operator
    }

    fn take_in(&mut self, kind: ApiType, event: Event) {
        let outcome = self.view.apply(kind, event);
        let readers: Vec<Reader> = if outcome.advanced {
            self.written.waiting_for_any(kind).into_iter().collect()
        } else {
            outcome
                .touched
                .iter()
                .flat_map(|key| self.written.waiting_for(kind, key))
                .cloned()
                .collect()
        };
        let why = usher_operator::queue::Why::ECHO;
        self.woken
            .extend(readers.into_iter().map(|r| Wake::now(r.kind, r.key, why)));
        self.woken.extend(outcome.wakes);
        assert!(outcome.unreadable.is_none(), "{:?}", outcome.unreadable);
    }

    pub fn relist(&mut self, server: &Server, kind: ApiType) {
        self.take_in(kind, Event::ListStarted);
        for ((of, _), object) in &server.objects {
            if *of == kind {
                self.take_in(
                    kind,
                    Event::Listed(Box::new(serde_json::from_value(object.clone()).unwrap())),
                );
            }
        }
        self.take_in(
            kind,
            Event::ListDone {
                revision: server.revision(),
            },
        );
        self.cursor.insert(kind, server.log.len());
    }

    /// Delivers the next event of one type; false if there is none.
    pub fn deliver(&mut self, server: &Server, kind: ApiType) -> bool {
        let from = self.cursor.get(&kind).copied().unwrap_or(0);
        let Some(at) = (from..server.log.len()).find(|at| server.log[*at].kind == kind) else {
            self.cursor.insert(kind, server.log.len());
            return false;
        };
        self.cursor.insert(kind, at + 1);
        let Entry { gone, object, .. } = &server.log[at];
        let object = Box::new(serde_json::from_value(object.clone()).unwrap());
        self.take_in(
            kind,
            if *gone {
                Event::Deleted(object)
            } else {
                Event::Applied(object)
            },
        );
        true
    }

    pub fn deliver_all(&mut self, server: &Server) {
        for kind in [SUBNETS, POOLS, CLAIMS] {
            while self.deliver(server, kind) {}
        }
    }

    /// One pass: observes and plans; in-memory steps are done at once, writes are returned.
    pub fn pass(&mut self, kind: &'static str, key: &ObjectKey, now: Timestamp) -> Decided {
        let reader = Reader { kind, key: key.clone() };
        if self.written.unseen(&reader, &self.view).is_some() {
            return Decided::default();
        }
        match kind {
            POOL => self.plan_with(&Pools::default(), key, now, |op, pool, step| op.pool_step(pool, step)),
            CLAIM => self.plan_with(&Claims, key, now, |op, claim, step| op.claim_step(claim, step)),
            SUBNET => self.plan_with(&Subnets, key, now, |_, subnet, step| Some(subnet_step(subnet, step))),
            other => panic!("no kind {other}"),
        }
    }

    fn plan_with<K: Kind<Fetched = ()>>(
        &mut self,
        kind: &K,
        key: &ObjectKey,
        now: Timestamp,
        mut perform: impl FnMut(&mut Self, &K::Resource, &K::Step) -> Option<Request>,
    ) -> Decided {
        let Some(resource) = self.view.get::<K::Resource>(key).cloned() else {
            return Decided::default();
        };
        let Plan {
            status,
            steps,
            findings,
            next,
        } = {
            let observation = kind.observe(&self.view, &resource, &());
            kind.plan(&resource, &observation, now)
        };
        let status = serde_json::to_value(&status).unwrap();
        let mut decided = Decided {
            next: Some(next),
            ..Decided::default()
        };
        let hash = usher_engine::hash::CanonicalHash::of(&status).ok();
        let empty = status.as_object().is_some_and(|s| s.values().all(Value::is_null));
        if hash != resource.meta().status_hash && !(empty && resource.meta().status_hash.is_none()) {
            decided.lines.push(format!("status: {}", summary(K::NAME, &status)));
            decided.requests.push(Request::Status {
                kind: K::Resource::TYPE,
                meta: resource.meta().clone(),
                status,
            });
        }
        decided.lines.extend(findings.iter().map(describe));
        for step in &steps {
            decided.lines.push(format!("step: {}", step.describe()));
            decided.requests.extend(perform(self, &resource, step));
        }
        decided
    }

    fn account<T>(
        &mut self,
        pool: &ObjectKey,
        act: impl FnOnce(&mut usher_subnets::ledger::Account) -> T,
    ) -> Option<T> {
        self.view.derived_mut::<Ledger>()?.account_mut(pool).map(act)
    }

    fn wake(&mut self, kind: &'static str, key: &ObjectKey) {
        self.woken
            .push(Wake::now(kind, key.clone(), usher_operator::queue::Why::UPDATE));
    }

    fn pool_step(&mut self, pool: &PoolRecord, step: &PoolStep) -> Option<Request> {
        let key = &pool.meta.key;
        match step {
            PoolStep::AddFinalizer => Some(finalizers(POOLS, &pool.meta, true)),
            PoolStep::Grant { uid, grant } => {
                self.account(key, |account| account.grant(uid, grant.clone()));
                self.wake(CLAIM, &grant.claim);
                None
            }
            PoolStep::RevokeGrant { uid, cidr, sent: true } => Some(Request::RevokeSent {
                pool: key.clone(),
                uid: uid.clone(),
                cidr: *cidr,
            }),
            PoolStep::RevokeGrant { uid, .. } => {
                self.account(key, |account| account.revoke(uid));
                self.wake(POOL, key);
                None
            }
            PoolStep::ConfirmTaken { name } => Some(Request::ConfirmTaken {
                pool: key.clone(),
                name: name.clone(),
            }),
            PoolStep::DropFinalizer => Some(Request::DropPoolFinalizer { pool: pool.clone() }),
        }
    }

    fn claim_step(&mut self, claim: &ClaimRecord, step: &ClaimStep) -> Option<Request> {
        let (pool, cidr) = match step {
            ClaimStep::CreateSubnet { pool, cidr } => (pool, cidr),
            ClaimStep::QueueAgain { pool } => {
                self.account(pool, |account| account.queue_again(&claim.meta.uid));
                self.wake(POOL, pool);
                return None;
            }
        };
        let granted = self.account(pool, |account| match account.grants.get_mut(&claim.meta.uid) {
            Some(grant) if grant.cidr == *cidr => {
                grant.sent = true;
                true
            }
            _ => false,
        });
        (granted == Some(true)).then(|| Request::CreateSubnet {
            pool: pool.clone(),
            claim: claim.clone(),
            cidr: *cidr,
        })
    }

    /// All requests of a pass, one after the other: as in `Pass`, a write of ours in between is no conflict.
    pub fn effects(&mut self, server: &mut Server, reader: &Reader, requests: &[Request]) {
        for request in requests {
            let mut request = request.clone();
            if let Request::Finalizers { meta, .. } | Request::DeleteSubnet { meta } = &mut request
                && let Some((Entry { object, .. }, Request::Status { meta: based_on, .. })) =
                    server.log.last().zip(requests.first())
                && based_on.key == meta.key
                && text(object, "/metadata/uid") == &*meta.uid
            {
                meta.revision = server.revision();
            }
            self.effect(server, reader, &request, true);
        }
    }

    /// A request takes effect; `answered`: its sender hears of it.
    pub fn effect(&mut self, server: &mut Server, reader: &Reader, request: &Request, answered: bool) {
        let mut noted: Option<(ApiType, ObjectKey, Expect)> = None;
        let guard = |meta: &Meta, outcome: Result<Option<u64>, Refused>| match outcome {
            Ok(Some(revision)) => Expect::Revision(revision),
            Ok(None) | Err(Refused::Gone) => Expect::Gone(meta.uid.clone()),
            Err(_) => Expect::Newer(meta.revision),
        };
        match request {
            Request::Status { kind, meta, status } => {
                let outcome = server.set_status(*kind, meta, status.clone()).map(Some);
                if answered && outcome.is_ok() && *kind == SUBNETS {
                    self.committed(&meta.key, status);
                }
                noted = Some((*kind, meta.key.clone(), guard(meta, outcome)));
            }
            Request::Finalizers { kind, meta, finalizers } => {
                let outcome = server.set_finalizers(*kind, meta, finalizers.clone());
                noted = Some((*kind, meta.key.clone(), guard(meta, outcome)));
            }
            Request::DeleteSubnet { meta } => {
                let outcome = server.delete(SUBNETS, meta.key.name(), Some(meta));
                noted = Some((SUBNETS, meta.key.clone(), guard(meta, outcome)));
            }
            Request::CreateSubnet { pool, claim, cidr } => {
                let name = objects::subnet_name(pool.name(), *cidr);
                if server.refuses_subnets {
                    let refusal = Refusal {
                        at: server.now(),
                        message: "a policy says no".into(),
                    };
                    self.account(pool, |account| account.refuse(&claim.meta.uid, refusal));
                    self.wake(CLAIM, &claim.meta.key);
                    self.wake(POOL, pool);
                    return;
                }
                match server.create(SUBNETS, objects::subnet(&name, claim, *cidr)) {
                    Ok(revision) => noted = Some((SUBNETS, key(&name), Expect::Revision(revision))),
                    Err(_) if answered => self.name_taken(server, pool, claim, &name, *cidr),
                    Err(_) => {}
                }
            }
            Request::GiveUp { subnet, claim } => {
                let present = server
                    .get(CLAIMS, claim.name())
                    .and_then(|o| read::<ClaimRecord>(o).ok());
                let wanted = present.is_some_and(|c| Some(&c.meta.uid) == subnet.claim_uid() && !abandoned(subnet, &c));
                if !wanted {
                    let outcome = match subnet.meta.deleting {
                        Some(_) => server.set_finalizers(SUBNETS, &subnet.meta, Vec::new()),
                        None => server.delete(SUBNETS, subnet.meta.key.name(), Some(&subnet.meta)),
                    };
                    noted = Some((SUBNETS, subnet.meta.key.clone(), guard(&subnet.meta, outcome)));
                }
            }
            Request::DropPoolFinalizer { pool } => {
                let left = server
                    .all::<SubnetRecord>()
                    .into_iter()
                    .any(|s| *s.pool == *pool.meta.key.name() && !s.withdrawn());
                if !left && let Request::Finalizers { meta, finalizers, .. } = finalizers(POOLS, &pool.meta, false) {
                    let outcome = server.set_finalizers(POOLS, &meta, finalizers);
                    noted = Some((POOLS, meta.key.clone(), guard(&meta, outcome)));
                }
            }
            Request::ConfirmOwner { subnet, claim, uid } => {
                let lives = server
                    .get(CLAIMS, claim.name())
                    .is_some_and(|o| text(o, "/metadata/uid") == &**uid);
                if answered && !lives {
                    self.view.derived_mut::<Confirmed>().unwrap().insert(uid.clone());
                    self.wake(SUBNET, subnet);
                }
            }
            Request::RevokeSent { pool, uid, cidr } => {
                let exists = server.get(SUBNETS, &objects::subnet_name(pool.name(), *cidr));
                if answered && exists.is_none_or(|o| text(o, "/spec/claimRef/uid") != &**uid) {
                    self.account(pool, |account| account.revoke(uid));
                    self.wake(POOL, pool);
                }
            }
            Request::ConfirmTaken { pool, name } => {
                if answered && server.get(SUBNETS, name).is_none() {
                    self.account(pool, |account| account.clear_unseen(name));
                    self.wake(POOL, pool);
                }
            }
        }
        if answered && let Some((kind, object, expect)) = noted {
            self.written.note(reader, kind, &object, expect, &self.view);
        }
        if !answered {
            // The pass failed: it is tried again.
            self.woken.push(Wake::now(
                reader.kind,
                reader.key.clone(),
                usher_operator::queue::Why::RETRY,
            ));
        }
    }

    fn committed(&mut self, subnet: &ObjectKey, status: &Value) {
        let Some(record) = self.view.get::<SubnetRecord>(subnet).cloned() else {
            return;
        };
        let status = serde_json::from_value(status.clone()).unwrap();
        let wakes = Subnets.recorded(&mut self.view, &record, &status, 0);
        self.woken.extend(wakes);
    }

    fn name_taken(&mut self, server: &Server, pool: &ObjectKey, claim: &ClaimRecord, name: &str, cidr: IpNet) {
        let theirs = server.get(SUBNETS, name).and_then(|o| read::<SubnetRecord>(o).ok());
        if theirs.is_some_and(|s| s.claim_uid() != Some(&claim.meta.uid)) {
            let unseen = self.view.get::<SubnetRecord>(&key(name)).is_none();
            self.account(pool, |account| {
                if unseen {
                    account.hold_unseen(name, cidr);
                }
                account.revoke(&claim.meta.uid);
            });
            self.wake(POOL, pool);
        }
    }

    /// The ledger equals a recount of the view: same holdings, same counters (I7).
    pub fn audit(&self) {
        let ledger = self.view.derived::<Ledger>().unwrap();
        for pool in self.view.all::<PoolRecord>() {
            let account = ledger.account(&pool.meta.key).expect("a pool in view has an account");
            let map = account.map.as_ref().expect("a pool in view has a map");
            map.check()
                .unwrap_or_else(|damage| panic!("{}: {damage:?}", pool.meta.key));
            assert_eq!(map.base(), pool.cidr);
            let of_pool: Vec<_> = self
                .view
                .all::<SubnetRecord>()
                .filter(|s| *s.pool == *pool.meta.key.name())
                .collect();
            let settled: Vec<_> = of_pool.iter().filter(|s| s.settled()).collect();
            assert_eq!(account.settled, settled.len(), "settled");
            assert_eq!(
                account.subnets.len(),
                of_pool.iter().filter(|s| !s.withdrawn()).count(),
                "seats"
            );
            assert_eq!(
                account.withdrawn.len(),
                of_pool.iter().filter(|s| s.withdrawn()).count(),
                "withdrawn"
            );
            let outside = settled.iter().filter(|s| !pool.cidr.contains(&s.cidr)).count();
            assert_eq!(account.out_of_range, outside, "out of range");
            let pairs = settled
                .iter()
                .enumerate()
                .flat_map(|(i, a)| settled[i + 1..].iter().map(move |b| (a, b)));
            let overlaps = pairs
                .filter(|(a, b)| a.cidr.contains(&b.cidr) || b.cidr.contains(&a.cidr))
                .count();
            assert_eq!(account.overlaps, overlaps, "overlaps");
            for subnet in &of_pool {
                let holder = usher_subnets::ledger::Holder::Subnet(subnet.meta.uid.clone());
                assert_eq!(
                    map.holds(subnet.cidr, &holder),
                    !subnet.withdrawn(),
                    "{} holds its range",
                    subnet.meta.key
                );
            }
            let waiting = self.view.all::<ClaimRecord>().filter(|claim| {
                let uid = &claim.meta.uid;
                *claim.pool == *pool.meta.key.name()
                    && claim.bound().is_none()
                    && claim.meta.deleting.is_none()
                    && !account.grants.contains_key(uid)
                    && !account.refused.contains_key(uid)
                    && !of_pool.iter().any(|s| s.claim_uid() == Some(uid))
            });
            assert_eq!(account.waiting_count(), waiting.count(), "waiting");
            assert_eq!(
                account.waiting.values().map(BTreeMap::len).sum::<usize>(),
                account.waiting_count()
            );
        }
    }
}

fn finalizers(kind: ApiType, meta: &Meta, ours: bool) -> Request {
    let mut finalizers: Vec<String> = meta
        .finalizers
        .iter()
        .map(ToString::to_string)
        .filter(|f| f != FINALIZER)
        .collect();
    if ours {
        finalizers.push(FINALIZER.into());
    }
    Request::Finalizers {
        kind,
        meta: meta.clone(),
        finalizers,
    }
}

fn subnet_step(subnet: &SubnetRecord, step: &SubnetStep) -> Request {
    match step {
        SubnetStep::Delete { .. } => Request::DeleteSubnet {
            meta: subnet.meta.clone(),
        },
        SubnetStep::DropFinalizer => finalizers(SUBNETS, &subnet.meta, false),
        SubnetStep::GiveUp { claim } => Request::GiveUp {
            subnet: subnet.clone(),
            claim: claim.clone(),
        },
        SubnetStep::ConfirmOwner { claim, uid } => Request::ConfirmOwner {
            subnet: subnet.meta.key.clone(),
            claim: claim.clone(),
            uid: uid.clone(),
        },
    }
}

fn describe(finding: &Finding) -> String {
    format!("why: {:?} {}: {}", finding.stance, finding.reason, finding.message)
}

fn summary(kind: &str, status: &Value) -> String {
    let ready = status
        .get("conditions")
        .and_then(Value::as_array)
        .and_then(|c| c.iter().find(|c| c["type"] == "Ready"));
    let ready = ready
        .map(|c| format!(" Ready={} {}", text(c, "/status"), text(c, "/reason")))
        .unwrap_or_default();
    match kind {
        POOL => format!(
            "allocated {} waiting {} largest {:?} used {}%{ready}",
            status["allocatedCount"],
            status["waitingClaims"],
            text(status, "/largestFreeBlock"),
            status["usedPercent"]
        ),
        _ => format!(
            "{} {}{ready}",
            text(status, "/phase"),
            text(status, "/allocatedCIDR").to_owned() + text(status, "/reason")
        ),
    }
}
