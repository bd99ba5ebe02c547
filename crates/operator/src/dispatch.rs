//! Starts passes as they come due, each within its time, and takes back how they ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use usher_engine::{Moment, ObjectKey};

use crate::boxed::{AnyKind, PassInput, PassOutput};
use crate::kind::Outcome;
use crate::metrics::{KindLabel, QueueLabel, ResultLabel};
use crate::pass;
use crate::queue::{Finish, Job};
use crate::record::ApiType;
use crate::shared::{QueueHandle, Shared};

/// How often a standby looks whether it leads, besides being told.
const LEADER_LOOK: Duration = Duration::from_millis(200);
/// Starts one kind's passes as they come due, and takes back their ends.
pub(crate) async fn dispatch(
    kind: Arc<dyn AnyKind>,
    shared: Arc<Shared>,
    pass_timeout: Duration,
    mut synced: watch::Receiver<Vec<ApiType>>,
    mut stop: watch::Receiver<bool>,
) {
    let Some(handle) = shared.queues.get(kind.name()).cloned() else {
        return;
    };
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => return,
        ready = synced.wait_for(Vec::is_empty) => if ready.is_err() { return },
    }
    let mut running: JoinSet<()> = JoinSet::new();
    let mut under_way: BTreeMap<Id, (Job<ObjectKey>, Moment)> = BTreeMap::new();
    while !*stop.borrow() {
        let leading = shared.may_act();
        shared.metrics.leader.set(i64::from(leading));
        while leading && let Some(job) = pop(&handle, &shared) {
            let begun = (job.clone(), shared.clock.monotonic());
            let task = running.spawn(one(kind.clone(), shared.clone(), handle.clone(), job, pass_timeout));
            under_way.insert(task.id(), begun);
        }
        let until_due = match handle.lock().next_due() {
            Some(due) if leading => due.since(shared.clock.monotonic()),
            _ => LEADER_LOOK,
        };
        tokio::select! {
            () = handle.bell.notified() => {}
            Some(ended) = running.join_next_with_id(), if !running.is_empty() => {
                take_back(ended, &mut under_way, &*kind, &handle, &shared);
            }
            () = tokio::time::sleep(until_due.min(Duration::from_secs(1))) => {}
            // Whoever could stop us is gone: so are we, as in `run`.
            changed = stop.changed() => if changed.is_err() { break },
        }
    }
    while let Some(ended) = running.join_next_with_id().await {
        take_back(ended, &mut under_way, &*kind, &handle, &shared);
    }
}

fn pop(handle: &QueueHandle, shared: &Shared) -> Option<Job<ObjectKey>> {
    let mut job = handle.lock().pop(shared.clock.monotonic());
    let label = QueueLabel { name: handle.name };
    if let Some(job) = &mut job {
        handle.add_unserved(job);
        shared
            .metrics
            .queue_latency
            .get_or_create(&label)
            .observe(job.waited.as_secs_f64());
        if job.attempt > 0 {
            shared.metrics.retries.get_or_create(&label).inc();
        }
    }
    job
}

/// One pass within its time, from start to the queue's being told how it ended.
async fn one(
    kind: Arc<dyn AnyKind>,
    shared: Arc<Shared>,
    handle: Arc<QueueHandle>,
    job: Job<ObjectKey>,
    pass_timeout: Duration,
) {
    let label = KindLabel { kind: kind.name() };
    shared.metrics.inflight.get_or_create(&label).inc();
    let begun = shared.clock.monotonic();
    let ended = match tokio::time::timeout(
        pass_timeout,
        kind.pass(PassInput {
            shared: &shared,
            job: &job,
        }),
    )
    .await
    {
        Ok(PassOutput(ended)) => ended,
        Err(_) => {
            tracing::error!(kind = kind.name(), key = %job.key, "the pass took longer than {} s; trying again", pass_timeout.as_secs());
            let (shared, job) = (&shared, &job);
            let took = shared.clock.monotonic().since(begun);
            kind.lost(PassInput { shared, job }, Outcome::Timeout, took);
            pass::Ended {
                finish: Finish::Failed,
                outcome: Outcome::Timeout,
            }
        }
    };
    let now = shared.clock.monotonic();
    let label = ResultLabel {
        kind: kind.name(),
        result: ended.outcome.label(),
    };
    shared.metrics.passes.get_or_create(&label).inc();
    shared
        .metrics
        .pass_duration
        .get_or_create(&label)
        .observe(now.since(begun).as_secs_f64());
    shared
        .metrics
        .inflight
        .get_or_create(&KindLabel { kind: kind.name() })
        .dec();
    if ended.outcome.verdict().is_none() {
        handle.keep_unserved(&job);
    }
    handle.lock().finish(&job.key, now, ended.finish);
}

/// A pass that panicked has not told the queue; nothing else may be lost by it.
fn take_back(
    ended: Result<(Id, ()), tokio::task::JoinError>,
    under_way: &mut BTreeMap<Id, (Job<ObjectKey>, Moment)>,
    kind: &dyn AnyKind,
    handle: &QueueHandle,
    shared: &Arc<Shared>,
) {
    match ended {
        Ok((id, ())) => drop(under_way.remove(&id)),
        Err(error) => {
            if let Some((job, begun)) = under_way.remove(&error.id()) {
                let (key, name, now) = (&job.key, kind.name(), shared.clock.monotonic());
                tracing::error!(kind = name, %key, "a pass panicked: {error}; please report this as a bug");
                let label = ResultLabel {
                    kind: name,
                    result: Outcome::Panic.label(),
                };
                shared.metrics.passes.get_or_create(&label).inc();
                shared.metrics.inflight.get_or_create(&KindLabel { kind: name }).dec();
                kind.lost(PassInput { shared, job: &job }, Outcome::Panic, now.since(begun));
                handle.lock().finish(key, now, Finish::Failed);
            }
        }
    }
}
