//! Events, as the reference's controllers write them: one object per source, subject, reason and message; the same again
//! within an hour counts up. What says too much about one subject is quiet for a while.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Map, Value, json};

use super::hand::Hand;
use crate::fault::Fault;
use crate::registry::object::seconds;

/// How many events one source may write about one subject at once, and how long until it may write one more: the
/// reference's numbers.
const BURST: u32 = 25;
const REFILL: SignedDuration = SignedDuration::from_secs(300);
/// An event goes after an hour (see `events`), and a count with it.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(1);
/// More than that is forgotten, oldest first is not worth the bookkeeping: all of it.
const MOST_REMEMBERED: usize = 4_096;

/// Who tells it, about whom, what.
#[derive(Debug, Clone)]
pub(crate) struct Happening<'a> {
    /// For example `replicaset-controller`.
    pub(crate) component: &'a str,
    /// The node, for a node's own events; else empty.
    pub(crate) host: &'a str,
    pub(crate) about: ObjectReference,
    /// `Normal` or `Warning`.
    pub(crate) kind: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: String,
}

#[derive(Debug, Default)]
pub(crate) struct Recorder {
    said: Mutex<Said>,
}

#[derive(Debug, Default)]
struct Said {
    /// By everything but the time: the event's name, how often, the first and the last time.
    events: HashMap<String, Told>,
    /// Tokens left by source and subject, and when that was.
    tokens: HashMap<String, (u32, Timestamp)>,
}

#[derive(Debug, Clone)]
struct Told {
    name: String,
    count: u32,
    first: Timestamp,
    last: Timestamp,
}

impl Recorder {
    /// Writes it, or counts it up. Nobody waits for an event: a failure is only logged.
    pub(crate) async fn tell(&self, hand: &Hand, happening: Happening<'_>) {
        if let Err(why) = self.try_tell(hand, &happening).await {
            tracing::debug!(%why, reason = happening.reason, "an event could not be written");
        }
    }

    async fn try_tell(&self, hand: &Hand, happening: &Happening<'_>) -> Result<(), Fault> {
        let now = hand.now();
        let about = &happening.about;
        let word = |text: &Option<String>| text.clone().unwrap_or_default();
        let subject = format!(
            "{}|{}|{}|{}|{}|{}|{}",
            happening.component,
            happening.host,
            word(&about.kind),
            word(&about.namespace),
            word(&about.name),
            word(&about.uid),
            word(&about.api_version),
        );
        let key = format!(
            "{subject}|{}|{}|{}|{}",
            word(&about.field_path),
            happening.kind,
            happening.reason,
            happening.message
        );
        let Some(told) = self.count(&subject, &key, happening, now) else {
            return Ok(());
        };
        let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let Some(target) = hand
            .catalog()
            .find("", "events")
            .and_then(|resource| super::hand::target(resource, Some(&namespace), &told.name))
        else {
            return Ok(());
        };
        if told.count > 1 {
            let change = json!({"count": told.count, "lastTimestamp": seconds(told.last)});
            match hand.patch(&target, "", change).await {
                Err(fault) if fault.code == 404 => {}
                result => return result.map(|_| ()),
            }
        }
        let mut source = Map::new();
        source.insert("component".to_owned(), json!(happening.component));
        if !happening.host.is_empty() {
            source.insert("host".to_owned(), json!(happening.host));
        }
        let body = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": told.name, "namespace": namespace},
            "involvedObject": serde_json::to_value(about).map_err(Fault::internal)?,
            "reason": happening.reason, "message": happening.message, "type": happening.kind,
            "source": Value::Object(source),
            "firstTimestamp": seconds(told.first), "lastTimestamp": seconds(told.last), "count": told.count,
            "reportingComponent": happening.component, "reportingInstance": happening.host,
        });
        hand.create(&target, body).await.map(|_| ())
    }

    /// What the event is to say; `None`: nothing, its source has said too much.
    fn count(&self, subject: &str, key: &str, happening: &Happening<'_>, now: Timestamp) -> Option<Told> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.tokens.len() > MOST_REMEMBERED {
            said.tokens.clear();
        }
        let (tokens, since) = said.tokens.entry(subject.to_owned()).or_insert((BURST, now));
        let refills = u32::try_from(now.duration_since(*since).as_secs() / REFILL.as_secs()).unwrap_or_default();
        if refills > 0 {
            *tokens = tokens.saturating_add(refills).min(BURST);
            *since = now;
        }
        *tokens = tokens.checked_sub(1)?;
        if said.events.len() > MOST_REMEMBERED {
            said.events.clear();
        }
        let name = about_name(happening);
        let told = said
            .events
            .entry(key.to_owned())
            .and_modify(|told| {
                if now.duration_since(told.last) >= REMEMBERED {
                    (told.count, told.first) = (0, now);
                    told.name = format!("{name}.{:x}", now.as_nanosecond());
                }
                told.count += 1;
                told.last = now;
            })
            .or_insert_with(|| Told {
                name: format!("{name}.{:x}", now.as_nanosecond()),
                count: 1,
                first: now,
                last: now,
            })
            .clone();
        // Two in one moment, of a clock that stands still: the second one's name differs.
        let taken = said
            .events
            .iter()
            .any(|(other, kept)| other != key && kept.name == told.name);
        if taken && told.count == 1 {
            let mut renamed = told;
            renamed.name = format!("{}-{}", renamed.name, said.events.len());
            said.events.insert(key.to_owned(), renamed.clone());
            return Some(renamed);
        }
        Some(told)
    }
}

fn about_name(happening: &Happening<'_>) -> String {
    happening.about.name.clone().unwrap_or_default()
}
