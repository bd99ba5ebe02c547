//! A model of the API server, and operators that see it through watches of their own pace.
//!
//! The decisions are the shipped ones (`observe`, `plan`, ledger, view, written); only requests are modelled: each is
//! decided at one time and takes effect at another, which may be much later. Used by the scenarios and the random search.

#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod audit;
mod hands;
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use jiff::Timestamp;
use serde_json::Value;
use usher_engine::{Finding, Moment, ObjectKey, Plan, Step};
use usher_operator::error::Failure;
use usher_operator::kind::Kind;
use usher_operator::record::{ApiType, Record};
use usher_operator::view::{Event, Wake};
use usher_operator::written::Reader;
use usher_subnets::kinds::{CLAIM, Claims, POOL, POOL_CLAIM, PoolClaims, Pools, SUBNET, Subnets};
use usher_subnets::ledger::Ledger;
use usher_subnets::records::{CLAIMS, ClaimRecord, POOL_CLAIMS, POOLS, PoolRecord, SUBNETS, SubnetRecord};
use usher_subnets::{act, wake};

pub use hands::{Call, Flight, Memory, SimHands, orphan_effect};
pub use server::{Entry, Server, text};

pub const NS: &str = "ns";
/// The types, in the order they are listed at start.
pub const TYPES: [ApiType; 4] = [SUBNETS, POOLS, CLAIMS, POOL_CLAIMS];

pub fn key(name: &str) -> ObjectKey {
    ObjectKey::new(NS, name).unwrap()
}

fn read<R: Record>(object: &Value) -> Result<R, usher_operator::record::Unreadable> {
    usher_operator::record::read::<R>(&serde_json::from_value(object.clone()).unwrap())
}

type Done<'a> = std::pin::Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

/// A kind whose shipped `act` runs on the model's hands.
trait Acting: Kind<Fetched = ()> + Clone {
    fn step<'a>(hands: &'a SimHands, resource: &'a Self::Resource, step: &'a Self::Step) -> Done<'a>;
}

macro_rules! acting {
    ($($kind:ty => $room:ident),*) => {$(
        impl Acting for $kind {
            fn step<'a>(hands: &'a SimHands, resource: &'a Self::Resource, step: &'a Self::Step) -> Done<'a> {
                Box::pin(act::$room::step(hands, resource, step))
            }
        }
    )*};
}
acting!(Pools => pool, Claims => claim, Subnets => subnet, PoolClaims => pool_claim);

/// One operator: its memory, and how far its watches are.
pub struct Operator {
    memory: Arc<Mutex<Memory>>,
    pub pools: Pools,
    cursor: BTreeMap<ApiType, usize>,
}

impl Operator {
    /// Lists everything, in order, as at start.
    pub fn start(server: &Server) -> Self {
        let mut memory = Memory::default();
        wake::register(&mut memory.view);
        let mut operator = Self {
            memory: Arc::new(Mutex::new(memory)),
            pools: Pools::default(),
            cursor: BTreeMap::new(),
        };
        for kind in TYPES {
            operator.relist(server, kind);
        }
        operator
    }

    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap()
    }

    /// Whom to look at; they are asked for once.
    pub fn take_woken(&self) -> Vec<Wake> {
        std::mem::take(&mut self.memory().woken)
    }

    pub fn is_calm(&self) -> bool {
        self.memory().woken.is_empty()
    }

    fn take_in(&mut self, kind: ApiType, event: Event) {
        let mut memory = self.memory();
        let memory = &mut *memory;
        let outcome = memory.view.apply(kind, event);
        let readers: Vec<Reader> = if outcome.advanced {
            memory.written.waiting_for_any(kind).into_iter().collect()
        } else {
            outcome
                .touched
                .iter()
                .flat_map(|key| memory.written.waiting_for(kind, key))
                .cloned()
                .collect()
        };
        let why = usher_operator::queue::Why::ECHO;
        memory
            .woken
            .extend(readers.into_iter().map(|r| Wake::now(r.kind, r.key, why)));
        memory.woken.extend(outcome.wakes);
        assert!(outcome.unreadable.is_none(), "{:?}", outcome.unreadable);
    }

    /// The view's clock is the server's.
    fn tell_time(&self, now: Timestamp) {
        let since_epoch = now.duration_since(Timestamp::UNIX_EPOCH);
        let moment = Moment::after_start(since_epoch.try_into().unwrap());
        self.memory().view.tell_time(moment);
    }

    pub fn relist(&mut self, server: &Server, kind: ApiType) {
        self.tell_time(server.now());
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
        self.tell_time(server.now());
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
        for kind in TYPES {
            while self.deliver(server, kind) {}
        }
    }

    /// What is new, and whom to look at because of it, each once; empty when nothing is left to do.
    pub fn news(&mut self, server: &Server) -> BTreeSet<(&'static str, ObjectKey)> {
        self.deliver_all(server);
        self.take_woken()
            .into_iter()
            .map(|wake| (wake.kind, wake.key))
            .collect()
    }

    /// One pass: observes, plans, and runs to its first call.
    pub fn pass(&self, kind: &'static str, key: &ObjectKey, now: Timestamp) -> Option<Flight> {
        self.tell_time(now);
        match kind {
            POOL => self.set_out(self.pools, key, now),
            CLAIM => self.set_out(Claims, key, now),
            SUBNET => self.set_out(Subnets, key, now),
            POOL_CLAIM => self.set_out(PoolClaims, key, now),
            other => panic!("no kind {other}"),
        }
    }

    fn set_out<K: Acting>(&self, kind: K, key: &ObjectKey, now: Timestamp) -> Option<Flight> {
        let reader = Reader {
            kind: K::NAME,
            key: key.clone(),
        };
        let (resource, plan) = {
            let mut memory = self.memory();
            let memory = &mut *memory;
            if memory.written.unseen(&reader, &memory.view).is_some() {
                return None;
            }
            let resource = memory.view.get::<K::Resource>(key)?.clone();
            let observation = kind.observe(&memory.view, &resource, &());
            let plan = kind.plan(&resource, &observation, now);
            drop(observation);
            (resource, plan)
        };
        let Plan {
            status,
            steps,
            findings,
            next,
        } = plan;
        let (hands, mut flight) = Flight::new(self.memory.clone(), reader, now);
        flight.next = Some(next);
        let body = serde_json::to_value(&status).unwrap();
        let hash = usher_engine::hash::CanonicalHash::of(&body).ok();
        let empty = body.as_object().is_some_and(|s| s.values().all(Value::is_null));
        let says = hash != resource.meta().status_hash && !(empty && resource.meta().status_hash.is_none());
        if says {
            flight.lines.push(format!("status: {}", summary(K::NAME, &body)));
        }
        flight.lines.extend(findings.iter().map(describe));
        flight
            .lines
            .extend(steps.iter().map(|step| format!("step: {}", step.describe())));
        flight.start(Box::pin(async move {
            if says {
                let answer = hands.replace_status(K::Resource::TYPE, resource.meta(), body).await?;
                let mut memory = hands.memory();
                let wakes = kind.recorded(&mut memory.view, &resource, &status, answer.revision);
                memory.woken.extend(wakes);
            }
            for step in &steps {
                K::step(&hands, &resource, step).await?;
            }
            Ok(())
        }));
        Some(flight)
    }

    /// The ledger equals a recount of the view (I7).
    pub fn audit(&self) {
        audit::audit(&self.memory().view);
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
        POOL_CLAIM => format!("{} {}{ready}", text(status, "/phase"), text(status, "/boundPoolName")),
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
