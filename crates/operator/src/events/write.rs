//! The one task that writes events. It owns the judge and the queue's other end; nobody waits for it.
//!
//! A write that fails is dropped and counted: an event is not worth a second in anybody's pass. It is tried once more
//! only where the network or the server stumbled. When told to stop, it writes what is queued for two more seconds.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

use super::aggregate::{Aggregator, Summary, Verdict};
use super::{About, Counts, EventSettings, Told, cut};
use crate::clock::Clock;
use crate::serve::connections::stopped;

/// Who reports, on every event.
const REPORTING_CONTROLLER: &str = "usher.dev/operator";
/// Longest reporting instance, action and reason the API server takes.
const FIELD_BYTES: usize = 128;
/// For one request. A healthy server answers in milliseconds; the queue holds forty seconds of writes meanwhile.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3);
/// For the queue's rest when stopping.
const FAREWELL: Duration = Duration::from_secs(2);
/// How often due summaries are looked for while nothing is told.
const TICK: Duration = Duration::from_secs(1);

/// The writing half of a sink; see [`super::open`].
pub struct EventWriter {
    client: kube::Client,
    instance: String,
    clock: Arc<dyn Clock>,
    queue: mpsc::Receiver<Told>,
    counts: Arc<Counts>,
    judge: Aggregator,
    told_of_missing_right: bool,
}

impl std::fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventWriter")
            .field("instance", &self.instance)
            .field("counts", &self.counts)
            .finish()
    }
}

/// What the API server said to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Written,
    /// The object, or its namespace, is not there.
    Absent,
    /// The namespace is going: nothing new there, and nobody who would read it.
    Ending,
    /// No right to write events.
    Forbidden,
    /// The network or the server stumbled.
    Stumbled,
    Refused,
}

impl EventWriter {
    pub(super) fn new(
        client: kube::Client,
        settings: EventSettings,
        clock: Arc<dyn Clock>,
        queue: mpsc::Receiver<Told>,
        counts: Arc<Counts>,
    ) -> Self {
        // The process' start tells two lives of one pod apart.
        let salt = format!("{}/{}", settings.instance, clock.wall().as_nanosecond());
        let instance = if settings.instance.is_empty() {
            "usher"
        } else {
            settings.instance.as_str()
        };
        Self {
            client,
            instance: cut(instance, FIELD_BYTES),
            judge: Aggregator::new(settings.limits, salt),
            clock,
            queue,
            counts,
            told_of_missing_right: false,
        }
    }

    /// Writes until `stop` is true, its sender is gone, or the last sink is.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                told = self.queue.recv() => match told {
                    Some(told) => self.handle(told).await,
                    None => return,
                },
                _ = tick.tick() => self.sum_up().await,
            }
        }
        self.queue.close();
        let rest = async {
            while let Some(told) = self.queue.recv().await {
                self.handle(told).await;
            }
        };
        let _ = tokio::time::timeout(FAREWELL, rest).await;
    }

    async fn handle(&mut self, told: Told) {
        // Summaries first: in a storm every token goes to somebody who asks, and they would never ask in time.
        self.sum_up().await;
        let now = self.clock.monotonic();
        match self
            .judge
            .offer(&told.about, told.within.as_ref(), told.reason, &told.note, now)
        {
            Verdict::Shed => self.counts.shed(&told.about),
            Verdict::Create { name } => {
                let answer = self.create(&event(&told, &name, &self.instance, 1)).await;
                if answer != Answer::Written {
                    self.judge.forget(&told.about, told.reason, &told.note);
                }
                self.count(answer, &told.about);
            }
            Verdict::Bump { name, count } => {
                let mut answer = self.bump(&told, &name, count).await;
                if answer == Answer::Absent {
                    // Kept for an hour by default, or deleted by somebody: made again, with its count.
                    answer = self.create(&event(&told, &name, &self.instance, count)).await;
                }
                if answer == Answer::Absent {
                    self.judge.forget(&told.about, told.reason, &told.note);
                }
                self.count(answer, &told.about);
            }
        }
    }

    async fn sum_up(&mut self) {
        let now = self.clock.monotonic();
        for left in self.counts.take_overflow() {
            self.judge
                .leave_out(&left.kind, left.within.as_ref(), left.reason, left.count, now);
        }
        while let Some(summary) = self.judge.summary(self.clock.monotonic()) {
            tracing::info!(kind = summary.kind, reason = summary.reason, "{}", summary.note());
            if let Some((told, name)) = told(&summary, self.clock.wall()) {
                let answer = self.create(&event(&told, &name, &self.instance, 1)).await;
                self.count(answer, &told.about);
            }
        }
    }

    async fn create(&self, event: &Event) -> Answer {
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let answer = attempt(events.create(&PostParams::default(), event)).await;
        if answer != Answer::Stumbled {
            return answer;
        }
        attempt(events.create(&PostParams::default(), event)).await
    }

    async fn bump(&self, told: &Told, name: &str, count: u32) -> Answer {
        let events: Api<Event> = Api::namespaced(self.client.clone(), told.about.key.namespace());
        let patch = Patch::Merge(json!({ "series": series(count, told.at) }));
        let answer = attempt(events.patch(name, &PatchParams::default(), &patch)).await;
        if answer != Answer::Stumbled {
            return answer;
        }
        attempt(events.patch(name, &PatchParams::default(), &patch)).await
    }

    fn count(&mut self, answer: Answer, about: &About) {
        match answer {
            Answer::Written => Counts::one(&self.counts.written),
            // Nobody is left to read it.
            Answer::Absent | Answer::Ending => {}
            Answer::Forbidden => {
                Counts::one(&self.counts.failed);
                if !std::mem::replace(&mut self.told_of_missing_right, true) {
                    tracing::warn!(
                        namespace = about.key.namespace(),
                        "events cannot be written here: grant create and patch on events.k8s.io/events"
                    );
                }
            }
            Answer::Stumbled | Answer::Refused => Counts::one(&self.counts.failed),
        }
    }
}

async fn attempt(request: impl Future<Output = kube::Result<Event>>) -> Answer {
    let error = match tokio::time::timeout(WRITE_TIMEOUT, request).await {
        Ok(Ok(_)) => return Answer::Written,
        Ok(Err(error)) => error,
        Err(_) => return Answer::Stumbled,
    };
    tracing::debug!(%error, "an event was not written");
    let kube::Error::Api(status) = error else {
        return Answer::Stumbled;
    };
    let ending = status
        .details
        .iter()
        .flat_map(|d| &d.causes)
        .any(|cause| cause.reason == "NamespaceTerminating");
    match status.code {
        404 => Answer::Absent,
        // Our own, from an attempt that took effect without an answer: nobody else makes this name.
        409 => Answer::Written,
        403 if ending => Answer::Ending,
        401 | 403 => Answer::Forbidden,
        500..=599 => Answer::Stumbled,
        _ => Answer::Refused,
    }
}

fn told(summary: &Summary, at: Timestamp) -> Option<(Told, String)> {
    let (about, name) = summary.on.clone()?;
    let (reason, note) = (summary.reason, summary.note());
    Some((
        Told {
            about,
            within: None,
            reason,
            note,
            warning: false,
            action: "SumUp",
            at,
        },
        name,
    ))
}

fn event(told: &Told, name: &str, instance: &str, count: u32) -> Event {
    let about = &told.about;
    let action = if told.action.is_empty() {
        told.reason
    } else {
        told.action
    };
    Event {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(about.key.namespace().to_owned()),
            ..ObjectMeta::default()
        },
        regarding: Some(ObjectReference {
            api_version: Some(about.api_version.clone()),
            kind: Some(about.kind.clone()),
            namespace: Some(about.key.namespace().to_owned()),
            name: Some(about.key.name().to_owned()),
            uid: Some(about.uid.clone()),
            resource_version: Some(about.resource_version.clone()),
            field_path: None,
        }),
        action: Some(cut(action, FIELD_BYTES)),
        reason: Some(cut(told.reason, FIELD_BYTES)),
        note: Some(told.note.clone()),
        type_: Some(if told.warning { "Warning" } else { "Normal" }.to_owned()),
        event_time: Some(MicroTime(told.at)),
        reporting_controller: Some(REPORTING_CONTROLLER.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        series: (count > 1).then(|| series(count, told.at)),
        ..Event::default()
    }
}

fn series(count: u32, at: Timestamp) -> EventSeries {
    EventSeries {
        count: i32::try_from(count).unwrap_or(i32::MAX),
        last_observed_time: MicroTime(at),
    }
}
