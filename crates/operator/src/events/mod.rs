//! Kubernetes events: what `kubectl describe` shows below an object.
//!
//! Three rooms. [`EventSink`] is what everybody holds: telling costs a copy and a place in a bounded queue, never a
//! wait and never an error. [`aggregate`] is the pure judge: which told thing becomes a new Event object, which adds to
//! the count of one that is there, which is left out. [`write`] is the one task that talks to the API server.
//!
//! Events are best effort by design: they must never cost the workload throughput. What is left out is counted
//! ([`EventSink::shed`]), logged, and summed up on a larger object where the teller named one
//! ([`EventSink::tell_within`]).

pub mod aggregate;
mod write;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use tokio::sync::mpsc;
use usher_engine::ObjectKey;

pub use aggregate::Limits;
pub use write::EventWriter;

use crate::clock::Clock;
use crate::record::{ApiType, Meta};

/// Longest note the API server takes, in bytes.
pub const NOTE_BYTES: usize = 1_024;

/// Which object an event is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct About {
    /// `plexaubnet.io/v1alpha1`.
    pub api_version: String,
    /// `SubnetPool`.
    pub kind: String,
    /// Where it is.
    pub key: ObjectKey,
    /// Events of a deleted object are not shown on its successor of the same name.
    pub uid: String,
    /// What was seen of it.
    pub resource_version: String,
}

impl About {
    /// Of an object in view.
    pub fn of(kind: ApiType, meta: &Meta) -> Self {
        Self {
            api_version: kind.api_version(),
            kind: kind.kind.to_owned(),
            key: meta.key.clone(),
            uid: meta.uid.to_string(),
            resource_version: meta.revision.to_string(),
        }
    }
}

/// A larger object, on which events about small ones are summed up where there are too many of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Within {
    /// The larger object.
    pub about: About,
    /// What happened, to one and to many: `["claim bound", "claims bound"]`.
    pub words: Option<[&'static str; 2]>,
}

/// How events are written.
#[derive(Debug, Clone)]
pub struct EventSettings {
    /// Which operator process tells: its pod's name, or the host's.
    pub instance: String,
    /// Told things that may wait to be written; past that they are shed. One second of a storm that is shed anyway.
    pub queue: usize,
    /// Rates and memory.
    pub limits: Limits,
}

impl EventSettings {
    /// The defaults: a queue of 1,024; 25 writes a second, 100 in a burst.
    pub fn new(instance: impl Into<String>) -> Self {
        Self {
            instance: instance.into(),
            queue: 1_024,
            limits: Limits::default(),
        }
    }
}

/// Where events are told. A clone is another handle on the same queue.
#[derive(Clone)]
pub struct EventSink {
    to: Option<(mpsc::Sender<Told>, Arc<dyn Clock>)>,
    counts: Arc<Counts>,
}

/// One thing told, on its way to the writer.
#[derive(Debug, Clone)]
struct Told {
    about: About,
    within: Option<Within>,
    reason: &'static str,
    note: String,
    warning: bool,
    action: &'static str,
    at: Timestamp,
}

#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    failed: AtomicU64,
    /// By the kind of the object.
    shed: Mutex<BTreeMap<String, u64>>,
    /// What found no place in the queue, until the writer sums it up.
    overflow: Mutex<Vec<Overflow>>,
}

/// Told things that never reached the writer.
#[derive(Debug)]
struct Overflow {
    kind: String,
    within: Option<Within>,
    reason: &'static str,
    count: u64,
}

impl Counts {
    fn one(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn shed(&self, about: &About) {
        let mut shed = self.shed.lock().unwrap_or_else(PoisonError::into_inner);
        match shed.get_mut(&about.kind) {
            Some(count) => *count += 1,
            None => drop(shed.insert(about.kind.clone(), 1)),
        }
    }

    /// Nobody takes it in at present; it is still to be summed up. Bounded as the summaries are.
    fn overflow(&self, about: &About, within: Option<&Within>, reason: &'static str) {
        self.shed(about);
        let uid = |within: Option<&Within>| within.map(|within| within.about.uid.clone());
        let mut overflow = self.overflow.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |left: &&mut Overflow| {
            left.reason == reason && left.kind == about.kind && uid(left.within.as_ref()) == uid(within)
        };
        if let Some(left) = overflow.iter_mut().find(same) {
            left.count += 1;
        } else if overflow.len() < aggregate::SUMMARIES {
            overflow.push(Overflow {
                kind: about.kind.clone(),
                within: within.cloned(),
                reason,
                count: 1,
            });
        }
    }

    fn take_overflow(&self) -> Vec<Overflow> {
        std::mem::take(&mut self.overflow.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A sink and the writer behind it. Nothing is written until [`EventWriter::run`] runs.
pub fn open(client: kube::Client, settings: EventSettings, clock: Arc<dyn Clock>) -> (EventSink, EventWriter) {
    let counts = Arc::new(Counts::default());
    let (to, from) = mpsc::channel(settings.queue.max(1));
    let writer = EventWriter::new(client, settings, Arc::clone(&clock), from, Arc::clone(&counts));
    (
        EventSink {
            to: Some((to, clock)),
            counts,
        },
        writer,
    )
}

impl EventSink {
    /// Tells that something happened to `about`. Never blocks, never fails: what finds no room is shed and counted.
    pub fn tell(&self, about: &About, reason: &'static str, note: &str, warning: bool, action: &'static str) {
        self.send(about, None, reason, note, warning, action);
    }

    /// As [`EventSink::tell`]; and where events of this reason must be left out, an event on `within` says how many,
    /// once in ten seconds. For many small objects in a large one: the claims of a pool.
    pub fn tell_within(
        &self,
        about: &About,
        within: &Within,
        reason: &'static str,
        note: &str,
        warning: bool,
        action: &'static str,
    ) {
        self.send(about, Some(within), reason, note, warning, action);
    }

    /// Told, and not written to keep within the rate or the queue.
    pub fn shed(&self) -> u64 {
        let shed = self.counts.shed.lock().unwrap_or_else(PoisonError::into_inner);
        shed.values().sum()
    }

    /// The same, of objects of these kinds.
    pub fn shed_of(&self, kinds: &[&str]) -> u64 {
        let shed = self.counts.shed.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.iter().filter_map(|kind| shed.get(*kind)).sum()
    }

    /// Written: Event objects made, and counts added to one.
    pub fn written(&self) -> u64 {
        self.counts.written.load(Ordering::Relaxed)
    }

    /// Told, tried, and refused by the API server or lost on the way.
    pub fn failed(&self) -> u64 {
        self.counts.failed.load(Ordering::Relaxed)
    }

    /// Swallows everything: for tests and `usher plan`.
    pub fn null() -> Self {
        Self {
            to: None,
            counts: Arc::default(),
        }
    }

    fn send(
        &self,
        about: &About,
        within: Option<&Within>,
        reason: &'static str,
        note: &str,
        warning: bool,
        action: &'static str,
    ) {
        let Some((to, clock)) = &self.to else { return };
        // The place first: when there is none, not even the copy is made.
        let Ok(place) = to.try_reserve() else {
            return self.counts.overflow(about, within, reason);
        };
        place.send(Told {
            about: about.clone(),
            within: within.cloned(),
            reason,
            note: cut(note, NOTE_BYTES),
            warning,
            action,
            at: clock.wall(),
        });
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSink")
            .field("null", &self.to.is_none())
            .field("counts", &self.counts)
            .finish()
    }
}

/// `text`, or as much of its beginning as fits `bytes` whole, with an ellipsis.
fn cut(text: &str, bytes: usize) -> String {
    const ELLIPSIS: &str = "…";
    if text.len() <= bytes {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(bytes.saturating_sub(ELLIPSIS.len()));
    let (head, _) = text.split_at_checked(end).unwrap_or_default();
    format!("{head}{ELLIPSIS}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_note_fits_and_says_as_much_as_it_can(note in ".{0,600}", bytes in 3usize..200) {
            let cut = cut(&note, bytes);
            prop_assert!(cut.len() <= bytes);
            if note.len() <= bytes {
                prop_assert_eq!(cut, note);
            } else {
                let head = cut.strip_suffix('…').unwrap();
                prop_assert!(note.starts_with(head));
                prop_assert!(cut.len() + 4 > bytes, "at most one character less than fits: {}", cut);
            }
        }
    }

    #[test]
    fn the_null_sink_takes_everything_and_counts_nothing() {
        let sink = EventSink::null();
        let about = About {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            key: ObjectKey::new("default", "x").unwrap(),
            uid: "u".into(),
            resource_version: "1".into(),
        };
        sink.tell(&about, "Tested", "a note", false, "Test");
        assert_eq!((sink.shed(), sink.written(), sink.failed()), (0, 0, 0));
        assert_eq!(
            format!("{sink:?}"),
            "EventSink { null: true, counts: Counts { written: 0, failed: 0, shed: Mutex { data: {}, poisoned: false, .. }, overflow: Mutex { data: [], poisoned: false, .. } } }"
        );
    }
}
