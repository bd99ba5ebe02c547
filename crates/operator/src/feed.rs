//! Watches into the view: every event is applied, and wakes whom it concerns.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use usher_engine::Moment;

use crate::metrics::KindLabel;
use crate::queue::Why;
use crate::record::ApiType;
use crate::serve::Health;
use crate::shared::Shared;
use crate::view::{Event, View, Wake};
use crate::watch as watches;

/// Fewer passes than this due, and the next slice is looked at: the passes never run dry in between.
const FEW: usize = 200;
/// How long that many passes take at least.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// While another leads, nothing of the queue is done.
const LOOK_AGAIN_STANDBY: Duration = Duration::from_millis(200);

/// Starts the watches one after the other, each when the one before has its first list: a kind may rely on a later
/// type's list being newer than an earlier one's.
pub(crate) async fn feed_in_order(
    shared: Arc<Shared>,
    namespace: Option<String>,
    health: Health,
    synced: watch::Sender<Vec<ApiType>>,
) {
    let mut running = JoinSet::new();
    let begun = shared.clock.monotonic();
    for kind in shared.view(|view| view.types().to_vec()) {
        let feed = Feed {
            shared: shared.clone(),
            health: health.clone(),
            synced: synced.clone(),
            begun,
        };
        running.spawn(watches::run(
            shared.clients.watch.clone(),
            kind,
            namespace.clone(),
            feed,
        ));
        let mut now_synced = synced.subscribe();
        if now_synced.wait_for(|unsynced| !unsynced.contains(&kind)).await.is_err() {
            return;
        }
    }
    look_through(&shared).await;
    while running.join_next().await.is_some() {}
}

/// Wakes what the first lists brought, slice by slice, each when hardly anything of the one before is left to do: a
/// start with a million objects needs no longer a queue than one with a thousand. A standby waits here, with short queues.
async fn look_through(shared: &Shared) {
    loop {
        while shared.due_at_least(FEW) {
            let leads = shared.may_act();
            tokio::time::sleep(if leads { LOOK_AGAIN } else { LOOK_AGAIN_STANDBY }).await;
        }
        let Some(wakes) = shared.change(View::next_slice) else {
            return;
        };
        shared.wake(wakes);
    }
}

/// Feeds the view and wakes whom that concerns.
struct Feed {
    shared: Arc<Shared>,
    health: Health,
    synced: watch::Sender<Vec<ApiType>>,
    /// When the first list began.
    begun: Moment,
}

/// A mapper or a derived value panicked: what it missed cannot be made up for in this process, only by reading all anew.
impl Drop for Feed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let sentence =
                "a watch ended badly, its type is no longer followed; restart, and please report this as a bug";
            tracing::error!("{sentence}");
            self.health.end(sentence);
        }
    }
}

impl watches::Sink for Feed {
    fn event(&mut self, kind: ApiType, event: Event) {
        let healed = matches!(event, Event::ListDone { .. } | Event::Resumed);
        let listed = matches!(event, Event::ListDone { .. });
        let label = KindLabel { kind: kind.kind };
        let now = self.shared.clock.monotonic();
        let (outcome, unsynced, count) = self.shared.change(|view| {
            view.tell_time(now);
            let outcome = view.apply(kind, event);
            let count = view.counts().find(|(t, _)| *t == kind).map_or(0, |(_, n)| n);
            (outcome, if listed { view.unsynced() } else { Vec::new() }, count)
        });
        if let Some(unreadable) = &outcome.unreadable {
            tracing::error!(kind = kind.kind, object = unreadable.object, "{unreadable}");
            self.shared.metrics.unreadable.get_or_create(&label).inc();
        }
        self.shared
            .metrics
            .records
            .get_or_create(&label)
            .set(i64::try_from(count).unwrap_or(i64::MAX));
        let waiting = self.shared.waiting_for(kind, &outcome.touched, outcome.advanced);
        let echoes = waiting.into_iter().map(|r| Wake::now(r.kind, r.key, Why("echo")));
        let overwritten = self.shared.overwritten(kind, &outcome.restated);
        self.shared.wake(echoes.chain(outcome.wakes).chain(overwritten));
        if healed {
            self.health.set(kind.plural, Ok(()));
        }
        if listed {
            tracing::info!(kind = kind.kind, objects = count, "list complete");
            self.shared.metrics.lists.get_or_create(&label).inc();
            if unsynced.is_empty() {
                // Only the first time counts: later lists mend a broken watch.
                let _ = self.shared.first_sync.set(now.since(self.begun));
            }
            self.synced.send_replace(unsynced);
        }
    }

    fn broke(&mut self, kind: ApiType, problem: &str, wait: Duration) {
        let at = self.shared.clock.wall();
        self.shared.change(|view| view.apply(kind, Event::Interrupted { at }));
        self.shared
            .metrics
            .watch_breaks
            .get_or_create(&KindLabel { kind: kind.kind })
            .inc();
        let hint = hint(problem);
        let sentence = format!("watch of {} broke: {problem}{hint}", kind.plural);
        tracing::warn!(kind = kind.kind, again_in_ms = wait.as_millis(), "{sentence}");
        self.health.set(kind.plural, Err(sentence));
    }
}

/// What to do about the two problems that do not go away by themselves.
fn hint(problem: &str) -> &'static str {
    if problem.contains("404") || problem.contains("could not find the requested resource") {
        "; the CRD is not installed: `usher crds | kubectl apply --server-side -f -`"
    } else if problem.contains("403") || problem.contains("forbidden") {
        "; the operator lacks the right to list and watch it: `usher install`, or see deploy/rbac.yaml"
    } else {
        ""
    }
}
