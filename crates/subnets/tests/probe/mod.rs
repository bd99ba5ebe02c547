//! Hands that answer at once: the shipped `act` is run on them, to learn what it asks and what it writes.

#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::Value;
use usher_engine::ObjectKey;
use usher_operator::api::Answer;
use usher_operator::error::Failure;
use usher_operator::hands::Hands;
use usher_operator::record::{ApiType, Meta};
use usher_operator::view::{View, Wake};

/// A write that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    Create {
        kind: ApiType,
        object: Value,
    },
    Finalizers {
        kind: ApiType,
        name: String,
        finalizers: Vec<String>,
    },
    Owners {
        kind: ApiType,
        name: String,
    },
    Delete {
        kind: ApiType,
        name: String,
    },
}

/// One operator's memory, and what the API server shows it at this moment.
pub struct Probe {
    view: Mutex<View>,
    server: Vec<(ApiType, DynamicObject)>,
    calls: Mutex<Vec<Call>>,
    now: Timestamp,
}

impl Probe {
    pub fn new(view: View, server: Vec<(ApiType, DynamicObject)>, now: Timestamp) -> Self {
        Self {
            view: Mutex::new(view),
            server,
            calls: Mutex::default(),
            now,
        }
    }

    /// Runs a step to its end: nothing here makes it wait. Says what it wrote; what it refuses to do, it does not do.
    pub fn run(&self, step: impl Future<Output = Result<(), Failure>>) -> Vec<Call> {
        match pin!(step).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(_) => std::mem::take(&mut self.calls.lock().unwrap()),
            Poll::Pending => panic!("a step waits for something"),
        }
    }

    /// The memory, after that.
    pub fn into_view(self) -> View {
        self.view.into_inner().unwrap()
    }

    fn write(&self, call: Call) -> Result<Answer, Failure> {
        self.calls.lock().unwrap().push(call);
        Ok(Answer {
            revision: 99,
            status_hash: None,
        })
    }
}

impl Hands for Probe {
    fn view<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        look(&self.view.lock().unwrap())
    }

    fn change<T>(&self, change: impl FnOnce(&mut View) -> (T, Vec<Wake>)) -> T {
        change(&mut self.view.lock().unwrap()).0
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    async fn create(&self, kind: ApiType, _: &ObjectKey, object: Value) -> Result<Answer, Failure> {
        self.write(Call::Create { kind, object })
    }

    async fn set_finalizers(&self, kind: ApiType, meta: &Meta, finalizers: &[&str]) -> Result<Answer, Failure> {
        let finalizers = finalizers.iter().map(ToString::to_string).collect();
        let name = meta.key.name().to_owned();
        self.write(Call::Finalizers { kind, name, finalizers })
    }

    async fn set_owners(&self, kind: ApiType, meta: &Meta, _: Vec<Value>) -> Result<Answer, Failure> {
        let name = meta.key.name().to_owned();
        self.write(Call::Owners { kind, name })
    }

    async fn delete(&self, kind: ApiType, meta: &Meta) -> Result<Answer, Failure> {
        let name = meta.key.name().to_owned();
        self.write(Call::Delete { kind, name })
    }

    async fn get(&self, kind: ApiType, key: &ObjectKey) -> Result<Option<DynamicObject>, Failure> {
        let mut of_type = self.server.iter().filter(|(of, _)| *of == kind);
        let found = of_type.find(|(_, object)| object.metadata.name.as_deref() == Some(key.name()));
        Ok(found.map(|(_, object)| object.clone()))
    }

    async fn list(&self, kind: ApiType, _: &str) -> Result<Vec<DynamicObject>, Failure> {
        let of_type = self.server.iter().filter(|(of, _)| *of == kind);
        Ok(of_type.map(|(_, object)| object.clone()).collect())
    }
}
