//! The store against a naive model, on a simulated disk that fails in every way, and under many writers and watchers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod crash;
mod disk;
mod durable;
mod failing;
mod file;
mod model;
mod property;
mod watchers;

use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use usher_embedded::store::{Change, Expect, Key, Options, Retention, Value, Write};

/// A clock that stands still until it is told to move.
#[derive(Clone, Debug, Default)]
struct Clock(Arc<AtomicI64>);

impl Clock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + self.0.load(Ordering::SeqCst)).unwrap()
    }

    fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }

    fn options(&self) -> Options {
        let clock = self.clone();
        Options::new(move || clock.now())
    }

    fn keeping(&self, retention: Retention) -> Options {
        Options {
            retention,
            ..self.options()
        }
    }
}

fn pod(name: &str) -> Key {
    Key::new("", "pods", Some("default"), name)
}

/// An object with some text in it.
fn value(name: &str, text: impl std::fmt::Display) -> Value {
    Value::from_json(&json!({"kind": "Pod", "metadata": {"name": name}, "text": text.to_string()})).unwrap()
}

fn put(key: &Key, text: impl std::fmt::Display) -> Write {
    Write {
        key: key.clone(),
        expect: Expect::Any,
        change: Change::Put(value(key.name(), text)),
    }
}

fn delete(key: &Key) -> Write {
    Write {
        key: key.clone(),
        expect: Expect::Any,
        change: Change::Delete,
    }
}
