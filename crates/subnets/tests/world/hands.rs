//! The hands of a pass in the model: each call waits at a desk until the schedule lets it take effect.
//!
//! `act` is the shipped code, a future like any other; here it is polled by the schedule instead of by tokio. Between two
//! calls everything happens at once, as between two awaits of a real pass.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use usher_engine::{Next, ObjectKey};
use usher_operator::api::Answer;
use usher_operator::error::Failure;
use usher_operator::hands::Hands;
use usher_operator::record::{ApiType, Meta};
use usher_operator::view::{View, Wake};
use usher_operator::written::{Expect, Reader, Written};
use usher_subnets::records::SUBNETS;

use super::server::{Refused, Server};

/// What one operator keeps in memory: lost in a crash.
#[derive(Default)]
pub struct Memory {
    pub view: View,
    pub written: Written,
    pub woken: Vec<Wake>,
}

/// A request that was sent and has not taken effect yet.
#[derive(Debug, Clone)]
pub enum Call {
    Create {
        kind: ApiType,
        key: ObjectKey,
        object: Value,
    },
    Status {
        kind: ApiType,
        meta: Meta,
        status: Value,
    },
    Finalizers {
        kind: ApiType,
        meta: Meta,
        finalizers: Vec<String>,
    },
    Owners {
        kind: ApiType,
        meta: Meta,
        owners: Vec<Value>,
    },
    Delete {
        kind: ApiType,
        meta: Meta,
    },
    Get {
        kind: ApiType,
        key: ObjectKey,
    },
    List {
        kind: ApiType,
    },
}

impl Call {
    pub fn is_read(&self) -> bool {
        matches!(self, Call::Get { .. } | Call::List { .. })
    }
}

/// What the server made of a call.
#[derive(Debug, Clone)]
enum Reply {
    Written(Option<u64>),
    Object(Option<Value>),
    Objects(Vec<Value>),
}

#[derive(Default)]
struct Desk {
    asked: Option<Call>,
    reply: Option<Result<Reply, Failure>>,
}

/// Hands for one pass.
pub struct SimHands {
    memory: Arc<Mutex<Memory>>,
    desk: Arc<Mutex<Desk>>,
    reader: Reader,
    now: Timestamp,
    renewed: Mutex<Vec<(ApiType, ObjectKey, u64, u64)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

impl SimHands {
    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }

    async fn call(&self, call: Call) -> Result<Reply, Failure> {
        lock(&self.desk).asked = Some(call);
        poll_fn(|_| match lock(&self.desk).reply.take() {
            Some(reply) => Poll::Ready(reply),
            None => Poll::Pending,
        })
        .await
    }

    /// As in `Pass`: a write of this very pass in between is no conflict.
    fn at_present(&self, kind: ApiType, meta: &Meta) -> Meta {
        let renewed = lock(&self.renewed);
        let mut meta = meta.clone();
        while let Some((.., new)) = renewed
            .iter()
            .find(|(k, key, old, _)| *k == kind && *key == meta.key && *old == meta.revision)
        {
            meta.revision = *new;
        }
        meta
    }

    async fn write(
        &self,
        kind: ApiType,
        key: &ObjectKey,
        based_on: Option<&Meta>,
        call: Call,
    ) -> Result<Answer, Failure> {
        let uid = self.memory().view.identity(kind, key).map(|(uid, _)| uid);
        let outcome = self.call(call).await;
        let expect = match (&outcome, based_on, uid) {
            (Ok(Reply::Written(Some(revision))), based_on, _) => {
                if let Some(meta) = based_on {
                    lock(&self.renewed).push((kind, key.clone(), meta.revision, *revision));
                }
                Some(Expect::Revision(*revision))
            }
            (Ok(_), _, uid) => uid.map(Expect::Gone),
            (Err(Failure::Conflict { .. }), Some(meta), _) => Some(Expect::Newer(meta.revision)),
            (Err(Failure::Gone { .. }), _, uid) => uid.map(Expect::Gone),
            _ => None,
        };
        let mut memory = self.memory();
        let memory = &mut *memory;
        if let Some(expect) = expect {
            memory.written.note(&self.reader, kind, key, expect, &memory.view);
        }
        match outcome? {
            Reply::Written(revision) => Ok(Answer {
                revision: revision.unwrap_or(0),
                status_hash: None,
            }),
            other => panic!("{other:?} is no answer to a write"),
        }
    }

    pub async fn replace_status(&self, kind: ApiType, meta: &Meta, status: Value) -> Result<Answer, Failure> {
        let meta = self.at_present(kind, meta);
        let call = Call::Status {
            kind,
            meta: meta.clone(),
            status,
        };
        self.write(kind, &meta.key, Some(&meta), call).await
    }
}

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

impl Hands for SimHands {
    fn view<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        look(&self.memory().view)
    }

    fn change<T>(&self, change: impl FnOnce(&mut View) -> (T, Vec<Wake>)) -> T {
        let mut memory = self.memory();
        let (value, wakes) = change(&mut memory.view);
        memory.woken.extend(wakes);
        value
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    async fn create(&self, kind: ApiType, key: &ObjectKey, object: Value) -> Result<Answer, Failure> {
        let call = Call::Create {
            kind,
            key: key.clone(),
            object,
        };
        self.write(kind, key, None, call).await
    }

    async fn set_finalizers(&self, kind: ApiType, meta: &Meta, finalizers: &[&str]) -> Result<Answer, Failure> {
        let meta = self.at_present(kind, meta);
        let call = Call::Finalizers {
            kind,
            meta: meta.clone(),
            finalizers: finalizers.iter().map(ToString::to_string).collect(),
        };
        self.write(kind, &meta.key, Some(&meta), call).await
    }

    async fn set_owners(&self, kind: ApiType, meta: &Meta, owners: Vec<Value>) -> Result<Answer, Failure> {
        let meta = self.at_present(kind, meta);
        let call = Call::Owners {
            kind,
            meta: meta.clone(),
            owners,
        };
        self.write(kind, &meta.key, Some(&meta), call).await
    }

    async fn delete(&self, kind: ApiType, meta: &Meta) -> Result<Answer, Failure> {
        let meta = self.at_present(kind, meta);
        let call = Call::Delete {
            kind,
            meta: meta.clone(),
        };
        self.write(kind, &meta.key, Some(&meta), call).await
    }

    async fn get(&self, kind: ApiType, key: &ObjectKey) -> Result<Option<DynamicObject>, Failure> {
        match self.call(Call::Get { kind, key: key.clone() }).await? {
            Reply::Object(found) => Ok(found.map(object)),
            other => panic!("{other:?} is no answer to a get"),
        }
    }

    async fn list(&self, kind: ApiType, _: &str) -> Result<Vec<DynamicObject>, Failure> {
        match self.call(Call::List { kind }).await? {
            Reply::Objects(found) => Ok(found.into_iter().map(object).collect()),
            other => panic!("{other:?} is no answer to a list"),
        }
    }
}

/// A call takes effect on the server.
fn take_effect(server: &mut Server, call: &Call) -> Result<Reply, Failure> {
    let named = |kind: ApiType, key: &ObjectKey| format!("{} {key}", kind.kind);
    let refused = |kind: ApiType, key: &ObjectKey, refused: Refused| match refused {
        Refused::Exists => Failure::Exists {
            object: named(kind, key),
        },
        Refused::Conflict => Failure::Conflict {
            object: named(kind, key),
        },
        Refused::Gone => Failure::Gone {
            object: named(kind, key),
        },
    };
    match call {
        Call::Create { kind, key, .. } if *kind == SUBNETS && server.refuses_subnets => Err(Failure::Forbidden {
            verb: "create",
            object: named(*kind, key),
            problem: "a policy says no".into(),
        }),
        Call::Create { kind, key, object } => server
            .create(*kind, object.clone())
            .map(|revision| Reply::Written(Some(revision)))
            .map_err(|r| refused(*kind, key, r)),
        Call::Status { kind, meta, status } => server
            .set_status(*kind, meta, status.clone())
            .map(|revision| Reply::Written(Some(revision)))
            .map_err(|r| refused(*kind, &meta.key, r)),
        Call::Finalizers { kind, meta, finalizers } => server
            .set_finalizers(*kind, meta, finalizers.clone())
            .map(Reply::Written)
            .map_err(|r| refused(*kind, &meta.key, r)),
        Call::Owners { kind, meta, owners } => server
            .set_metadata(*kind, meta, "ownerReferences", json!(owners))
            .map(|revision| Reply::Written(Some(revision)))
            .map_err(|r| refused(*kind, &meta.key, r)),
        Call::Delete { kind, meta } => server
            .delete(*kind, meta.key.name(), Some(meta))
            .map(Reply::Written)
            .map_err(|r| refused(*kind, &meta.key, r)),
        Call::Get { kind, key } => Ok(Reply::Object(server.get(*kind, key.name()).cloned())),
        Call::List { kind } => {
            let all = server.objects.iter().filter(|((of, _), _)| of == kind);
            Ok(Reply::Objects(all.map(|(_, object)| object.clone()).collect()))
        }
    }
}

type Pending = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// A pass under way: what it decided, and the call it waits for.
pub struct Flight {
    pub reader: Reader,
    pub lines: Vec<String>,
    pub next: Option<Next>,
    future: Option<Pending>,
    desk: Arc<Mutex<Desk>>,
    memory: Arc<Mutex<Memory>>,
}

impl Flight {
    /// Hands for a pass, and the pass that will use them.
    pub fn new(memory: Arc<Mutex<Memory>>, reader: Reader, now: Timestamp) -> (Arc<SimHands>, Self) {
        let desk = Arc::new(Mutex::new(Desk::default()));
        let hands = SimHands {
            memory: memory.clone(),
            desk: desk.clone(),
            reader: reader.clone(),
            now,
            renewed: Mutex::default(),
        };
        let flight = Self {
            reader,
            lines: Vec::new(),
            next: None,
            future: None,
            desk,
            memory,
        };
        (Arc::new(hands), flight)
    }

    /// Sets out: runs to the first call.
    pub fn start(&mut self, future: Pending) {
        self.future = Some(future);
        self.go_on();
    }

    /// The call it waits for; `None`: it has ended.
    pub fn call(&self) -> Option<Call> {
        lock(&self.desk).asked.clone()
    }

    fn go_on(&mut self) {
        let Some(future) = &mut self.future else { return };
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(outcome) = future.as_mut().poll(&mut context) else {
            return;
        };
        self.future = None;
        let Err(failure) = outcome else { return };
        let mut memory = lock(&self.memory);
        let memory = &mut *memory;
        let awaited = memory.written.unseen(&self.reader, &memory.view).is_some();
        let again = match failure {
            Failure::Conflict { .. } | Failure::Exists { .. } | Failure::Gone { .. } => !awaited,
            Failure::Forbidden { .. } | Failure::Invalid { .. } => false,
            _ => true,
        };
        if again {
            let why = usher_operator::queue::Why::RETRY;
            memory
                .woken
                .push(Wake::now(self.reader.kind, self.reader.key.clone(), why));
        }
    }

    /// Its call takes effect; `answered`: it hears of it, and goes on to the next one.
    pub fn effect(&mut self, server: &mut Server, answered: bool) {
        let Some(call) = lock(&self.desk).asked.take() else {
            return;
        };
        let reply = take_effect(server, &call);
        let reply = match answered {
            true => reply,
            false => Err(Failure::Unknown {
                verb: "call",
                object: self.reader.key.to_string(),
                problem: "no answer".into(),
            }),
        };
        lock(&self.desk).reply = Some(reply);
        self.go_on();
    }

    /// Takes the rest of the pass at once.
    pub fn finish(&mut self, server: &mut Server) {
        while self.call().is_some() {
            self.effect(server, true);
        }
    }
}

/// What a crash leaves: a call that was sent takes effect though nobody waits for it.
pub fn orphan_effect(server: &mut Server, call: &Call) {
    let _ = take_effect(server, call);
}
