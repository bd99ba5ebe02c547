//! Runs the lease protocol of [`crate::leadership`] against a `coordination.k8s.io/v1` Lease.
//!
//! One task per process, on a client of its own: a renewal must never stand behind other requests. It owns the
//! candidate and the Lease as last read; what others see is the [`SharedLeadership`]. Every write is a create or a
//! replace with resourceVersion, so that the server, not a clock, decides between two who try.
//!
//! How it ends: the caller turns `stop` true when its passes have ended; the lease is then given back, and the next one
//! need not wait for it. A caller that is dropped without a word gets no such courtesy, since nobody knows what it was
//! doing: the lease runs out.

mod error;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use tokio::sync::watch;

pub use self::error::{LeaseError, Verb};
use crate::clock::Clock;
use crate::leadership::{Candidate, Decision, Guard, LeaseTiming, LeaseView, SharedLeadership};

/// How often a release is tried: once, and again if a renewal of ours was still under way, and once for luck. After
/// that the lease runs out by itself.
const RELEASE_TRIES: u32 = 3;

/// Which Lease, for whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseConfig {
    /// Where the Lease is.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// This process's name as a holder. Must differ between processes.
    pub identity: String,
    /// How long it holds and how it is kept.
    pub timing: LeaseTiming,
}

/// Tries to hold the Lease, and keeps `shared` true to it, until `stop` turns true or an error that only a person can
/// mend shows up while we do not lead. Whatever the way out, `shared` no longer leads.
pub async fn run(
    client: kube::Client,
    config: LeaseConfig,
    shared: SharedLeadership,
    clock: Arc<dyn Clock>,
    stop: watch::Receiver<bool>,
) -> Result<(), LeaseError> {
    if config.identity.is_empty() {
        return Err(LeaseError::NoIdentity {
            lease: format!("{}/{}", config.namespace, config.name),
        });
    }
    let candidate = Candidate::new(config.identity.clone(), config.timing)?;
    let api = Api::namespaced(client, &config.namespace);
    let keeper = Keeper {
        api,
        config,
        shared: shared.clone(),
        clock: clock.clone(),
        candidate,
        last: None,
        troubled: false,
    };
    let ended = tokio::select! {
        ended = keeper.keep(stop) => ended,
        () = tell_when_over(&shared, clock.as_ref()) => Ok(()),
    };
    shared.lost();
    ended
}

/// Says when a hold has run out, also while a request hangs. Never ends.
async fn tell_when_over(shared: &SharedLeadership, clock: &dyn Clock) {
    let mut leads = shared.subscribe();
    loop {
        if leads.wait_for(|leads| *leads).await.is_err() {
            return std::future::pending().await;
        }
        let now = clock.monotonic();
        if shared.note_end(now) {
            tracing::warn!(
                "the lease could not be renewed in time: nothing is changed until it is ours again. Is the API server \
                 reachable?"
            );
            continue;
        }
        match shared.held_until() {
            // At least a millisecond: tokio's timers are no finer, and a zero would spin.
            Some(until) => tokio::time::sleep(until.since(now).max(Duration::from_millis(1))).await,
            None => return std::future::pending().await,
        }
    }
}

/// The task's own state.
struct Keeper {
    api: Api<Lease>,
    config: LeaseConfig,
    shared: SharedLeadership,
    clock: Arc<dyn Clock>,
    candidate: Candidate,
    /// The Lease as last read or stored: what a replace starts from, so that labels and such survive.
    last: Option<Lease>,
    /// The last request failed, and that was said: an outage is one line when it begins and one when it ends.
    troubled: bool,
}

impl Keeper {
    /// Until `stop`. Stops only between requests: one that is cut off may still take effect.
    async fn keep(mut self, mut stop: watch::Receiver<bool>) -> Result<(), LeaseError> {
        loop {
            if *stop.borrow_and_update() {
                self.release().await;
                return Ok(());
            }
            let now = self.clock.monotonic();
            let result = match self.candidate.decide(now) {
                Decision::Wait(wait) => {
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        changed = stop.changed() => if changed.is_err() {
                            tracing::warn!(lease = %self.lease(), "the operator ended without stopping: the lease is left to run out");
                            return Ok(());
                        },
                    }
                    continue;
                }
                Decision::Look => self.look().await,
                write @ (Decision::Acquire { .. } | Decision::Renew { .. }) => self.write(&write).await,
            };
            self.take_in(result)?;
        }
    }

    /// An error is a reason to try again, unless only a person can mend it and there is no lease left to lose.
    fn take_in(&mut self, result: Result<(), LeaseError>) -> Result<(), LeaseError> {
        let Err(error) = result else {
            if std::mem::take(&mut self.troubled) {
                tracing::info!(lease = %self.lease(), "the lease can be read and written again");
            }
            return Ok(());
        };
        let now = self.clock.monotonic();
        self.candidate.unanswered(now);
        if !error.class().retries() && !self.shared.may_act(now) {
            return Err(error);
        }
        if std::mem::replace(&mut self.troubled, true) {
            tracing::debug!(lease = %self.lease(), "{error}");
        } else {
            tracing::warn!(lease = %self.lease(), leads = self.candidate.is_holder(), "{error}");
        }
        Ok(())
    }

    async fn look(&mut self) -> Result<(), LeaseError> {
        let lease = self.ask(Verb::Get, self.api.get_opt(&self.config.name)).await?;
        self.candidate
            .observe(lease.as_ref().map(view).as_ref(), self.clock.monotonic());
        self.last = lease;
        self.tell_if_lost();
        Ok(())
    }

    async fn write(&mut self, write: &Decision) -> Result<(), LeaseError> {
        let (guard, transitions) = match write {
            Decision::Acquire { guard, transitions } | Decision::Renew { guard, transitions } => (guard, *transitions),
            Decision::Look | Decision::Wait(_) => return Ok(()),
        };
        let now = self.clock.wall();
        let lease = self.record(guard, now, |spec| {
            if spec.lease_transitions != Some(transitions) || spec.acquire_time.is_none() {
                spec.acquire_time = Some(MicroTime(now));
            }
            spec.lease_transitions = Some(transitions);
        });
        self.candidate.sending(write, self.clock.monotonic());
        let Some(stored) = self.put(guard, &lease).await? else {
            self.candidate.refused();
            return Ok(());
        };
        let renewal = self.candidate.stored(&view(&stored), self.clock.monotonic());
        self.last = Some(stored);
        if renewal.acquired {
            tracing::info!(lease = %self.lease(), holder = self.candidate.identity(), "leading");
        }
        self.shared.renewed(renewal);
        Ok(())
    }

    /// The Lease to write: ours, on top of what `guard` expects to find there.
    fn record(&self, guard: &Guard, now: Timestamp, change: impl FnOnce(&mut LeaseSpec)) -> Lease {
        let mut lease = match guard {
            Guard::Absent => Lease {
                metadata: ObjectMeta {
                    namespace: Some(self.config.namespace.clone()),
                    name: Some(self.config.name.clone()),
                    ..ObjectMeta::default()
                },
                spec: None,
            },
            Guard::Version(rv) => {
                let mut lease = self.last.clone().unwrap_or_default();
                lease.metadata.resource_version = Some(rv.clone());
                lease
            }
        };
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(self.candidate.identity().to_owned());
        spec.lease_duration_seconds = i32::try_from(self.config.timing.duration_seconds()).ok();
        spec.renew_time = Some(MicroTime(now));
        change(spec);
        lease
    }

    /// Creates or replaces; `None` when the server found something else than `guard` says.
    async fn put(&self, guard: &Guard, lease: &Lease) -> Result<Option<Lease>, LeaseError> {
        let params = PostParams {
            field_manager: Some("usher".to_owned()),
            ..PostParams::default()
        };
        let result = match guard {
            Guard::Absent => self.ask(Verb::Create, self.api.create(&params, lease)).await,
            Guard::Version(_) => {
                self.ask(Verb::Update, self.api.replace(&self.config.name, &params, lease))
                    .await
            }
        };
        match result {
            Ok(stored) => Ok(Some(stored)),
            Err(LeaseError::Moved { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// One request, with its time limit, and its error by what it means.
    async fn ask<T>(&self, verb: Verb, request: impl Future<Output = kube::Result<T>>) -> Result<T, LeaseError> {
        let limit = self.config.timing.request_timeout();
        match tokio::time::timeout(limit, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(LeaseError::from_client(verb, &self.config, error)),
            Err(_) => Err(LeaseError::NoAnswer {
                verb,
                lease: self.lease(),
                limit,
            }),
        }
    }

    fn tell_if_lost(&self) {
        if self.candidate.is_holder() || !self.shared.lost() {
            return;
        }
        let holder = self.candidate.other_holder().unwrap_or("nobody");
        tracing::warn!(lease = %self.lease(), holder, "no longer leading: the lease is another's, or was deleted");
    }

    /// Gives the lease back, if it is ours: no holder, and the shortest duration, for those who go by that alone.
    async fn release(&mut self) {
        self.shared.lost();
        for _ in 0..RELEASE_TRIES {
            let Some(guard) = self.candidate.releasable() else {
                return;
            };
            let lease = self.record(&guard, self.clock.wall(), |spec| {
                spec.holder_identity = None;
                spec.lease_duration_seconds = Some(1);
            });
            match self.put(&guard, &lease).await {
                Ok(Some(_)) => {
                    tracing::info!(lease = %self.lease(), "released");
                    return;
                }
                Ok(None) => {}
                Err(error) => tracing::warn!("releasing: {error}"),
            }
            if let Err(error) = self.look().await {
                tracing::warn!("releasing: {error}");
            }
        }
        tracing::warn!(lease = %self.lease(), "the lease could not be given back; it runs out in {:?}", self.config.timing.duration);
    }

    fn lease(&self) -> String {
        format!("{}/{}", self.config.namespace, self.config.name)
    }
}

/// What the protocol reads of a Lease. An empty holder is none; a duration that is no duration is not said.
fn view(lease: &Lease) -> LeaseView {
    let spec = lease.spec.as_ref();
    LeaseView {
        holder: spec
            .and_then(|s| s.holder_identity.clone())
            .filter(|holder| !holder.is_empty()),
        rv: lease.metadata.resource_version.clone().unwrap_or_default(),
        duration_seconds: spec
            .and_then(|s| s.lease_duration_seconds)
            .and_then(|seconds| u32::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0),
        transitions: spec.and_then(|s| s.lease_transitions).unwrap_or(0),
    }
}

#[cfg(test)]
mod server;
#[cfg(test)]
mod tests;
