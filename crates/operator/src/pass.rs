//! One pass: the way of one resource through observe, plan, record, act.
//!
//! This file is the whole pipeline, in order; [`run`] reads from top to bottom. What a kind may do to the world is in
//! [`Pass`] (see `api.rs`); everything it writes goes through there, guarded and counted.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use usher_engine::hash::CanonicalHash;
use usher_engine::{ErrorClass, Finding, Next, ObjectKey, Plan, Step, Tell};

pub use crate::api::Pass;
use crate::error::Failure;
use crate::kind::{Kind, Outcome, Pace, Passed, PlanOf};
use crate::metrics::{KindLabel, StepLabel};
use crate::queue::{Finish, Job};
use crate::record::Record;
use crate::shared::{Reported, Shared};
use crate::view::View;
use crate::written::Reader;

/// After losing the lease: the key stays in the queue, so that nothing is forgotten if we lead again.
const NOT_LEADING_AGAIN: Duration = Duration::from_millis(200);
/// After a refusal that only a person can lift without our being told (rights, quota): look again this often.
const REFUSED_AGAIN: Duration = Duration::from_secs(30);

/// After a status was put off because all places for writes were taken. Seldom: where thousands wait so, looking costs
/// the same processors that the writes need.
const ROOM_AGAIN: Duration = Duration::from_secs(5);

/// How a pass ended, for the queue and for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) finish: Finish,
    pub(crate) outcome: Outcome,
}

impl Ended {
    fn new(finish: Finish, outcome: Outcome) -> Self {
        Self { finish, outcome }
    }
}

/// How far a pass came; what [`Kind::passed`] is told.
struct Trail<K: Kind> {
    planned: Option<(Arc<K::Resource>, PlanOf<K>)>,
    reported: bool,
}

/// Runs one pass of one resource, and tells its kind how it went.
pub(crate) async fn run<K: Kind>(kind: &K, shared: &Arc<Shared>, job: &Job<ObjectKey>) -> Ended {
    let begun = shared.clock.monotonic();
    let mut trail = Trail {
        planned: None,
        reported: false,
    };
    let ended = pipeline(kind, shared, job, &mut trail).await;
    let now = shared.clock.monotonic();
    let passed = Passed::<K> {
        key: &job.key,
        outcome: ended.outcome,
        whys: &job.whys,
        took: now.since(begun),
        now,
        planned: trail.planned.as_ref().map(|(resource, plan)| (&**resource, plan)),
        reported: trail.reported,
    };
    shared.view(|view| kind.passed(view, &passed));
    ended
}

async fn pipeline<K: Kind>(kind: &K, shared: &Arc<Shared>, job: &Job<ObjectKey>, trail: &mut Trail<K>) -> Ended {
    let reader = Reader {
        kind: K::NAME,
        key: job.key.clone(),
    };
    let pass = Pass::new(shared.clone(), reader.clone());

    // 1. Only the leader acts.
    if !shared.may_act() {
        return Ended::new(Finish::Again(NOT_LEADING_AGAIN), Outcome::NotLeader);
    }

    // And only when the server is ready for it: neither news nor the echo of what did get through ends a wait it asked for.
    if let Some(wait) = shared.held_back(&reader) {
        return Ended::new(Finish::Again(wait), Outcome::HeldBack);
    }

    // 2. Read your own writes. The echo wakes us again.
    if let Some((of, object)) = shared.unseen(&reader) {
        tracing::debug!(kind = K::NAME, key = %job.key, waits_for = %object, of = of.kind, "own write not in view yet");
        shared
            .metrics
            .stale_skips
            .get_or_create(&KindLabel { kind: K::NAME })
            .inc();
        return Ended::new(Finish::Done, Outcome::Stale);
    }

    // 3. Observe: first what needs I/O, then a consistent slice of the view.
    let Some(resource) = shared.view(|view| view.get::<K::Resource>(&job.key).cloned()) else {
        shared.forget(&reader);
        return Ended::new(Finish::Done, Outcome::Gone);
    };
    let fetched = match kind.fetch(&pass, &resource).await {
        Ok(fetched) => fetched,
        Err(failure) => return failed(&pass, &*resource, K::NAME, "observing", &failure),
    };

    // 4. Plan, on the view as it is now; the resource itself may have moved on while we fetched.
    let now = shared.clock.wall();
    let planned = shared.view(|view| {
        let resource = view.get::<K::Resource>(&job.key)?;
        let observation = kind.observe(view, resource, &fetched);
        Some((resource.clone(), kind.plan(resource, &observation, now)))
    });
    let Some(planned) = planned else {
        shared.forget(&reader);
        return Ended::new(Finish::Done, Outcome::Gone);
    };
    let (resource, plan) = &*trail.planned.insert(planned);

    // 5. Record: one status write, if it says something new.
    let mut again = plan.next;
    let recorded = match record(kind, &pass, resource, &plan.status).await {
        Ok(recorded) => recorded,
        Err(failure) => return failed(&pass, &**resource, K::NAME, "status", &failure),
    };
    trail.reported = matches!(recorded, Recorded::Written);
    match recorded {
        // 6. Tell: events for what is new, only after what they speak of is on record.
        Recorded::Written | Recorded::Unchanged => tell(kind, &pass, resource, &plan.findings),
        Recorded::Later(wait) => again = again.sooner(Next::After(wait)),
    }

    // 7. Act, in order; the first failure ends the pass.
    for step in &plan.steps {
        pass.set_rank(kind.rank(Some(step), &plan.status));
        let outcome = kind.act(&pass, resource, step).await;
        let result = outcome.as_ref().map_or_else(Failure::label, |()| "done");
        shared
            .metrics
            .steps
            .get_or_create(&StepLabel {
                kind: K::NAME,
                step: step.name(),
                result,
            })
            .inc();
        match outcome {
            Ok(()) => tracing::debug!(kind = K::NAME, key = %job.key, step = step.name(), "{}", step.describe()),
            Err(failure) => return failed(&pass, &**resource, K::NAME, step.name(), &failure),
        }
    }

    // 8. And again, when something changes or the plan's time is up.
    shared.succeeded(&reader);
    match again {
        Next::OnChange => Ended::new(Finish::Done, Outcome::Success),
        Next::After(wait) => Ended::new(Finish::Again(wait), Outcome::Success),
    }
}

/// What a failure means for the queue, the log and the user.
fn failed<R: Record>(pass: &Pass, resource: &R, kind: &'static str, doing: &'static str, failure: &Failure) -> Ended {
    let key = &resource.meta().key;
    let finish = match failure {
        // Nothing went wrong: the world moved. Its echo wakes us; where it came before the answer, nobody would.
        Failure::Conflict { .. } | Failure::Exists { .. } | Failure::Gone { .. } => {
            tracing::debug!(kind, %key, doing, "{failure}");
            let awaited = pass.shared().unseen(pass.reader()).is_some();
            return Ended::new(if awaited { Finish::Done } else { Finish::Failed }, Outcome::Moved);
        }
        Failure::NotLeader { .. } => return Ended::new(Finish::Again(NOT_LEADING_AGAIN), Outcome::NotLeader),
        Failure::TooMany { wait, .. } => {
            pass.shared().hold_back(pass.reader(), *wait);
            Finish::RetryAfter(*wait)
        }
        // Rights, quotas and admission policies change without our being told.
        Failure::Forbidden { .. } | Failure::Invalid { .. } => Finish::RetryAfter(REFUSED_AGAIN),
        other if other.class() == ErrorClass::Transient => Finish::Failed,
        // What a kind itself finds wrong is tried again only when something changes.
        _ => Finish::Done,
    };
    tracing::warn!(kind, %key, doing, class = failure.class().label(), "{failure}");
    if !matches!(
        failure,
        Failure::Unknown { .. } | Failure::TooMany { .. } | Failure::NamespaceEnding { .. }
    ) {
        pass.shared()
            .tell_failure(pass.reader(), R::TYPE, resource.meta(), &failure.to_string());
    }
    Ended::new(finish, Outcome::Error)
}

enum Recorded {
    Written,
    Unchanged,
    Later(Duration),
}

async fn record<K: Kind>(
    kind: &K,
    pass: &Pass,
    resource: &K::Resource,
    status: &K::Status,
) -> Result<Recorded, Failure> {
    let object = || format!("{} {}", K::NAME, resource.meta().key);
    let unserialisable = |e: serde_json::Error| Failure::Kind {
        class: ErrorClass::Permanent,
        message: format!(
            "the status of {} has no JSON form: {e}; please report this as a bug",
            object()
        ),
    };
    let body = serde_json::to_value(status).map_err(unserialisable)?;
    let planned = CanonicalHash::of(&body).map_err(unserialisable)?;
    let (shared, reader, meta) = (pass.shared(), pass.reader(), resource.meta());

    if meta.status_hash.as_ref() == Some(&planned) || (meta.status_hash.is_none() && is_empty(&body)) {
        return Ok(Recorded::Unchanged);
    }
    let now = shared.clock.monotonic();
    let mut due = now;
    if let Some(last) = shared.reported(reader) {
        // The server may store less than we said (an older CRD drops unknown fields). Saying it again changes nothing.
        if last.planned == planned && last.stored == meta.status_hash {
            return Ok(Recorded::Unchanged);
        }
        let pace = if kind.urgent(resource, status) {
            kind.pace().urgent
        } else {
            kind.pace().ordinary
        };
        due = last.at + pace;
        if due > now {
            return Ok(Recorded::Later(due.since(now)));
        }
    }
    if let Some(at_most) = kind.may_wait(resource, status)
        && now.since(due) < at_most
        && shared.writes_are_many()
    {
        return Ok(Recorded::Later(ROOM_AGAIN.min(at_most)));
    }
    pass.set_rank(kind.rank(None, status));
    let answer = pass.replace_status(K::Resource::TYPE, meta, body).await?;
    shared.note_reported(
        reader,
        K::Resource::TYPE,
        Reported {
            planned,
            stored: answer.status_hash,
            at: now,
            paced: kind.pace() != Pace::default(),
        },
    );
    let wakes = shared.change(|view| kind.recorded(view, resource, status, answer.revision));
    shared.wake(wakes);
    Ok(Recorded::Written)
}

/// Whether a status says nothing: then it need not be written where there is none.
fn is_empty(body: &Value) -> bool {
    match body {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        _ => false,
    }
}

/// Events for findings that were not there in the pass before.
fn tell<K: Kind>(kind: &K, pass: &Pass, resource: &K::Resource, findings: &[Finding]) {
    let shared = pass.shared();
    for finding in shared.news(pass.reader(), resource.meta().generation, findings) {
        let (of, reason) = (K::Resource::TYPE, finding.reason);
        let within = shared.view(|view| kind.within(view, resource, reason));
        let warning = finding.tell == Tell::Warning;
        shared.emit(of, resource.meta(), within.as_ref(), reason, &finding.message, warning);
    }
}

/// What a kind would do next, for `usher plan`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// Which kind.
    pub kind: &'static str,
    /// Which resource.
    pub resource: ObjectKey,
    /// The steps of the next pass, in order.
    pub steps: Vec<PreviewStep>,
    /// Why.
    pub findings: Vec<Finding>,
    /// Whether the status would be written, and what it would say.
    pub status_changes: bool,
    /// The status as planned.
    pub status: Value,
    /// When it looks again by itself, in seconds; absent: only when something changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again_after_seconds: Option<f64>,
}

/// One step of a preview.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreviewStep {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub description: String,
    /// Whether somebody can notice.
    pub disruptive: bool,
}

/// Plans without acting, from a view and what was fetched.
pub(crate) fn preview<K: Kind>(
    kind: &K,
    view: &View,
    key: &ObjectKey,
    fetched: &K::Fetched,
    now: Timestamp,
) -> Option<Preview> {
    let resource = view.get::<K::Resource>(key)?;
    let observation = kind.observe(view, resource, fetched);
    let Plan {
        status,
        steps,
        findings,
        next,
    } = kind.plan(resource, &observation, now);
    let status = serde_json::to_value(&status).unwrap_or_default();
    let planned = CanonicalHash::of(&status).ok();
    Some(Preview {
        kind: K::NAME,
        resource: key.clone(),
        steps: steps
            .iter()
            .map(|s| PreviewStep {
                name: s.name(),
                description: s.describe(),
                disruptive: s.disruptive(),
            })
            .collect(),
        findings,
        status_changes: planned != resource.meta().status_hash && !is_empty(&status),
        status,
        again_after_seconds: match next {
            Next::OnChange => None,
            Next::After(wait) => Some(wait.as_secs_f64()),
        },
    })
}

#[cfg(test)]
mod tests;
