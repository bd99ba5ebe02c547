//! What the scheduler tells of a pod: events in the newer style (`events.k8s.io`), as the reference writes them, and the
//! condition PodScheduled.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use serde_json::{Value, json};

use crate::controllers::hand::{Hand, reference, target};
use crate::controllers::pods::condition;
use crate::fault::Fault;
use crate::registry::object;
use crate::store::Key;

/// The same again within this time is one series, and is not told again before it is refreshed: the reference's numbers.
const SERIES: SignedDuration = SignedDuration::from_mins(6);
const REFRESH: SignedDuration = SignedDuration::from_mins(30);
/// The most that an event may say.
const MOST_TEXT: usize = 1_024;
/// How many events about a pod are looked through for one of the same kind: it has a handful.
const MOST_LOOKED_AT: usize = 50;

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

/// Nobody waits for an event: a failure is only logged.
pub(super) async fn event(hand: &Hand, pod: &Pod, reason: Reason, note: &str) {
    if let Err(why) = try_event(hand, pod, reason, note).await {
        tracing::debug!(%why, note, "an event could not be written");
    }
}

async fn try_event(hand: &Hand, pod: &Pod, reason: Reason, note: &str) -> Result<(), Fault> {
    let now = hand.now();
    let (kind, reason, action) = reason.words();
    let about = reference(pod);
    let word = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name) = (word(&about.namespace), word(&about.name));
    let catalog = hand.catalog();
    let Some(events) = catalog.find("events.k8s.io", "events") else {
        return Ok(());
    };
    let to = |event: &str| target(events, Some(&namespace), event);
    let Some(first) = to(&format!("{name}.")) else {
        return Ok(());
    };
    if let Some(series) = Series::find(hand, &first.key(), &about, reason)?
        && now.duration_since(series.last) < REFRESH
    {
        if series.count >= 2 {
            return Ok(());
        }
        if now.duration_since(series.last) < SERIES
            && let Some(event) = to(&series.event)
        {
            let change = json!({"series": {"count": series.count + 1, "lastObservedTime": micros(now)}});
            return hand.patch(&event, "", change).await.map(|_| ());
        }
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
    hand.create(&new, body).await.map(|_| ())
}

/// The newest event of its kind about a pod as it is now. It is read off the events themselves, so that nothing is to be
/// remembered; who counts beyond two is nobody's business, as the reference writes no more either.
#[derive(Debug)]
struct Series {
    event: String,
    count: i64,
    last: Timestamp,
}

impl Series {
    /// `first` sorts before the names of all events about the pod.
    fn find(hand: &Hand, first: &Key, about: &ObjectReference, reason: &str) -> Result<Option<Self>, Fault> {
        let prefix = Key::prefix(first.group(), first.resource(), first.namespace());
        let page = hand.registry.store.list(&prefix, None, Some(first), MOST_LOOKED_AT);
        let mut newest = None;
        for entry in page.map_err(Fault::internal)?.entries {
            if !entry.key.name().starts_with(first.name()) {
                break;
            }
            let event = object::decode(&entry)?;
            let text = |path: &str| object::at(&event, path).and_then(Value::as_str).unwrap_or_default();
            let is_it = text("reason") == reason
                && Some(text("involvedObject.uid")) == about.uid.as_deref()
                && Some(text("involvedObject.resourceVersion")) == about.resource_version.as_deref();
            let last = match text("series.lastObservedTime") {
                "" => text("eventTime"),
                last => last,
            };
            if let (true, Ok(last)) = (is_it, last.parse()) {
                newest = Some(Self {
                    event: entry.key.name().to_owned(),
                    count: object::at(&event, "series.count").and_then(Value::as_i64).unwrap_or(1),
                    last,
                });
            }
        }
        Ok(newest)
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
