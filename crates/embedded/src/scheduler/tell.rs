//! What the scheduler tells of a pod: events in the newer style (`events.k8s.io`), as the reference writes them, and the
//! condition PodScheduled.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::controllers::hand::{Hand, reference, target};
use crate::controllers::pods::condition;
use crate::fault::Fault;
use crate::registry::object;

/// The same again within this time is one series: written when it begins, then as often as it is refreshed.
const SERIES: SignedDuration = SignedDuration::from_mins(6);
const REFRESH: SignedDuration = SignedDuration::from_mins(30);
/// The most that an event may say.
const MOST_TEXT: usize = 1_024;
/// More than that is forgotten, all of it: the next of each begins a new series.
const MOST_REMEMBERED: usize = 4_096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    Scheduled,
    FailedScheduling,
    /// A gang that does not fit.
    Unschedulable,
}

impl Reason {
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Scheduled => ("Normal", "Scheduled", "Binding"),
            Self::FailedScheduling => ("Warning", "FailedScheduling", "Scheduling"),
            Self::Unschedulable => ("Warning", "Unschedulable", "Scheduling"),
        }
    }
}

#[derive(Debug)]
struct Series {
    event: String,
    count: i64,
    last: Timestamp,
    written: Timestamp,
}

#[derive(Debug, Default)]
pub(super) struct Teller {
    /// By pod, its revision, and reason.
    series: BTreeMap<String, Series>,
}

impl Teller {
    pub(super) fn forget(&mut self) {
        self.series.clear();
    }

    /// Nobody waits for an event: a failure is only logged.
    pub(super) async fn event(&mut self, hand: &Hand, pod: &Pod, reason: Reason, note: &str) {
        if let Err(why) = self.try_event(hand, pod, reason, note).await {
            tracing::debug!(%why, note, "an event could not be written");
        }
    }

    async fn try_event(&mut self, hand: &Hand, pod: &Pod, reason: Reason, note: &str) -> Result<(), Fault> {
        let now = hand.now();
        let (kind, reason, action) = reason.words();
        let about = reference(pod);
        let word = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, name) = (word(&about.namespace), word(&about.name));
        let key = format!(
            "{namespace}/{name}/{}/{}/{reason}",
            word(&about.uid),
            word(&about.resource_version)
        );
        let catalog = hand.catalog();
        let Some(events) = catalog.find("events.k8s.io", "events") else {
            return Ok(());
        };
        let to = |event: &str| target(events, Some(&namespace), event);
        if let Some(series) = self.series.get_mut(&key)
            && now.duration_since(series.last) < SERIES
        {
            series.count += 1;
            series.last = now;
            if series.count > 2 && now.duration_since(series.written) < REFRESH {
                return Ok(());
            }
            series.written = now;
            let change = json!({"series": {"count": series.count, "lastObservedTime": micros(now)}});
            if let Some(event) = to(&series.event) {
                return hand.patch(&event, "", change).await.map(|_| ());
            }
        }
        if self.series.len() >= MOST_REMEMBERED {
            self.series.clear();
        }
        let mut stamp = now.as_nanosecond();
        let mut event = format!("{name}.{stamp:x}");
        // Two of one pod in one moment, of a clock that stands still.
        while to(&event).is_some_and(|event| hand.registry.store.head(&event.key()).is_some()) {
            stamp += 1;
            event = format!("{name}.{stamp:x}");
        }
        let Some(new) = to("") else { return Ok(()) };
        let component = scheduler_name(pod);
        let body = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": event, "namespace": namespace},
            "eventTime": micros(now), "reportingController": component,
            "reportingInstance": format!("{component}-usher"), "action": action, "reason": reason,
            "regarding": serde_json::to_value(&about).map_err(Fault::internal)?,
            "note": shortened(note), "type": kind,
        });
        hand.create(&new, body).await?;
        let series = Series {
            event,
            count: 1,
            last: now,
            written: now,
        };
        self.series.insert(key, series);
        Ok(())
    }
}

/// Who is to place the pod, and so who tells of it.
pub(super) fn scheduler_name(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.scheduler_name.as_deref())
        .filter(|name| !name.is_empty())
        .unwrap_or(super::DEFAULT)
}

fn micros(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

fn shortened(note: &str) -> String {
    const CUT: &str = " ...";
    if note.len() <= MOST_TEXT {
        return note.to_owned();
    }
    let mut end = MOST_TEXT - CUT.len();
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{CUT}", note.get(..end).unwrap_or_default())
}

/// Says in the pod's condition why it has no node. What it says already is not written again.
pub(super) async fn unschedulable(hand: &Hand, pod: &Pod, message: &str) -> Result<(), Fault> {
    const REASON: &str = "Unschedulable";
    let before = condition(pod, "PodScheduled");
    let generation = pod.metadata.generation;
    let says_so = before.is_some_and(|before| {
        before.status == "False"
            && before.reason.as_deref() == Some(REASON)
            && before.message.as_deref() == Some(message)
            && before.observed_generation == generation
    });
    if says_so {
        return Ok(());
    }
    let since = before
        .filter(|before| before.status == "False")
        .and_then(|before| before.last_transition_time.as_ref())
        .map_or(hand.now(), |time| time.0);
    let new = json!({"type": "PodScheduled", "status": "False", "lastProbeTime": null, "reason": REASON,
        "message": message, "lastTransitionTime": object::time(since), "observedGeneration": generation});
    let (namespace, name) = (
        pod.metadata.namespace.as_deref(),
        pod.metadata.name.as_deref().unwrap_or_default(),
    );
    let target = hand.target_of::<Pod>(namespace, name)?;
    let Some(live) = hand.read(&target)? else {
        return Ok(());
    };
    if object::text(&live, "uid") != pod.metadata.uid.as_deref().unwrap_or_default() {
        return Ok(());
    }
    let mut conditions = object::at(&live, "status.conditions")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    match conditions
        .iter_mut()
        .find(|condition| condition.get("type") == new.get("type"))
    {
        Some(condition) => *condition = new,
        None => conditions.push(new),
    }
    let change = json!({"status": {"conditions": conditions}});
    match hand.patch(&target, "status", change).await {
        Err(fault) if fault.code != 404 => Err(fault),
        _ => Ok(()),
    }
}
