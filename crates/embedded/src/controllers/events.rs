//! Objects of kinds with a time to live: Events go an hour after their last write, whatever finalizers they have, as the
//! reference's leases in etcd do it.

use std::collections::HashMap;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::census::{GroupResource, kind_of};
use super::{Census, Control, Hand, Next, Wishes};
use crate::fault::Fault;
use crate::registry::row::Rules;
use crate::store::{Entry, Key, Kind, LogEntry, Value};

#[derive(Debug, Default)]
pub(super) struct Events {
    /// Seconds to live, by kind. Built-in kinds alone have any.
    lives: HashMap<GroupResource, u32>,
}

/// The times in an object's metadata: what a restart can still know of its last write.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Times {
    metadata: Written,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Written {
    creation_timestamp: Option<Timestamp>,
    managed_fields: Vec<Entered>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Entered {
    time: Option<Timestamp>,
}

impl Events {
    /// When the object of a key goes; `None` for kinds that stay.
    fn end(&self, key: &Key, value: &Value) -> Option<Timestamp> {
        let seconds = *self.lives.get(&kind_of(key))?;
        let times: Times = serde_json::from_slice(value.json()).unwrap_or_default();
        let written = times.metadata.managed_fields.iter().filter_map(|entry| entry.time);
        let last = written.chain(times.metadata.creation_timestamp).max()?;
        last.checked_add(SignedDuration::from_secs(seconds.into())).ok()
    }
}

impl Control for Events {
    fn begin(&mut self, hand: &Hand, state: &[Entry], _: &Census, wishes: &mut Wishes) {
        let catalog = hand.catalog();
        self.lives = catalog
            .iter()
            .filter_map(|resource| match resource.row.rules {
                Rules::BuiltIn(rules) => {
                    let (group, plural) = resource.place();
                    Some(((group.into(), plural.into()), rules.ttl_seconds?))
                }
                Rules::Custom => None,
            })
            .collect();
        for entry in state {
            if let Some(end) = self.end(&entry.key, &entry.value) {
                wishes.sync_at(entry.key.as_str(), end);
            }
        }
    }

    fn see(&mut self, _: &Hand, line: &LogEntry, _: &Census, wishes: &mut Wishes) {
        if let Some(end) = self.end(&line.key, &line.value) {
            match line.kind {
                Kind::Delete => wishes.no_more(line.key.as_str()),
                Kind::Create | Kind::Update => wishes.sync_at(line.key.as_str(), end),
            }
        }
    }

    fn sync<'a>(&'a mut self, hand: &'a Hand, key: &'a str, _: &'a mut Wishes) -> BoxFuture<'a, Result<Next, Fault>> {
        async move {
            let Some(entry) = Key::parse(key).and_then(|key| hand.registry.store.head(&key)) else {
                return Ok(Next::Done);
            };
            match self.end(&entry.key, &entry.value) {
                None => Ok(Next::Done),
                Some(end) if end > hand.now() => Ok(Next::At(end)),
                Some(_) => hand.registry.expire(&entry).await.map(|()| Next::Done),
            }
        }
        .boxed()
    }
}
