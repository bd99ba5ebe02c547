//! What probe results mean: thresholds, delays, periods, and which probe waits for which. No clock, no sockets.
//!
//! Readiness begins as failed, liveness as good, startup as open. Until the startup probe has succeeded the other two
//! are not asked; without one a container has started as soon as it runs. A container that failed liveness or startup is
//! asked nothing more: its next attempt has a prober of its own.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Probe};

use super::{Answer, Kind, Outcome};

/// The probes of one attempt of one container.
#[derive(Debug, Clone)]
pub struct Prober {
    container: String,
    running_since: Timestamp,
    tracks: Vec<Track>,
    started: bool,
    readiness: bool,
    stopping: bool,
    failed: bool,
}

#[derive(Debug, Clone)]
struct Track {
    kind: Kind,
    initial_delay: SignedDuration,
    period: SignedDuration,
    success_threshold: u32,
    failure_threshold: u32,
    grace_seconds: Option<i64>,
    due: Timestamp,
    asking: bool,
    last: Option<bool>,
    /// How often the last result came in a row.
    run: u32,
}

/// What a result changed. `started` and `ready` are asked of the prober itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// Whether the container's `started` or `ready` is another one now.
    pub status: bool,
    /// The container is to be stopped and started again.
    pub killing: Option<Killing>,
    pub event: Option<UnhealthyEvent>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Killing {
    /// The text of the event `Killing`.
    pub message: String,
    /// The probe's own grace, which goes over the pod's.
    pub grace_seconds: Option<i64>,
}

/// A Warning event about the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnhealthyEvent {
    /// `Unhealthy` or `ProbeWarning`.
    pub reason: &'static str,
    pub message: String,
}

impl Prober {
    /// For a container that just began to run.
    #[must_use]
    pub fn new(container: &Container, running_since: Timestamp) -> Self {
        let tracks: Vec<Track> = [Kind::Startup, Kind::Liveness, Kind::Readiness]
            .into_iter()
            .filter_map(|kind| kind.of(container).map(|probe| Track::new(kind, probe, running_since)))
            .collect();
        let has = |kind| tracks.iter().any(|track: &Track| track.kind == kind);
        Self {
            container: container.name.clone(),
            running_since,
            started: !has(Kind::Startup),
            readiness: !has(Kind::Readiness),
            tracks,
            stopping: false,
            failed: false,
        }
    }

    /// For a container found running after a restart of the node: what its status said last still holds, and every
    /// probe is due.
    #[must_use]
    pub fn adopted(
        container: &Container,
        running_since: Timestamp,
        started: bool,
        ready: bool,
        now: Timestamp,
    ) -> Self {
        let mut prober = Self::new(container, running_since);
        prober.started |= started;
        prober.readiness |= ready;
        for track in &mut prober.tracks {
            track.due = track.due.max(now);
        }
        prober
    }

    #[must_use]
    pub const fn started(&self) -> bool {
        self.started
    }

    #[must_use]
    pub const fn ready(&self) -> bool {
        self.started && self.readiness
    }

    /// When to ask next; `None`: nothing is to be asked until a result comes, or ever.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.tracks
            .iter()
            .filter(|track| self.is_open(track))
            .map(|track| track.due)
            .min()
    }

    /// The probes to ask now. Each is asked once, until [`took`](Self::took) brings its result.
    pub fn take_due(&mut self, now: Timestamp) -> Vec<Kind> {
        let due: Vec<Kind> = self
            .tracks
            .iter()
            .filter(|track| self.is_open(track) && track.due <= now)
            .map(|track| track.kind)
            .collect();
        for track in &mut self.tracks {
            if due.contains(&track.kind) {
                track.asking = true;
                // In step with the first one, unless we are late by more than a period.
                let in_step = later(track.due, track.period);
                track.due = if in_step > now {
                    in_step
                } else {
                    later(now, track.period)
                };
            }
        }
        due
    }

    /// A result came.
    pub fn took(&mut self, kind: Kind, answer: &Answer, now: Timestamp) -> Change {
        let before = (self.started, self.ready());
        let ignored = self.failed || (self.stopping && kind != Kind::Readiness);
        let container = self.container.clone();
        let Some(track) = self.tracks.iter_mut().find(|track| track.kind == kind) else {
            return Change::default();
        };
        track.asking = false;
        if ignored {
            return Change::default();
        }
        let event = event(kind, answer);
        let good = match answer.outcome {
            Outcome::Success | Outcome::Warning => true,
            Outcome::Failure => false,
            Outcome::Unknown => {
                return Change {
                    event,
                    ..Change::default()
                };
            }
        };
        let holds = track.count(good);
        let grace_seconds = track.grace_seconds;
        let mut killing = None;
        if holds {
            match (kind, good) {
                (Kind::Readiness, good) => self.readiness = good,
                (Kind::Startup, true) => self.start(now),
                (Kind::Liveness, true) => {}
                (Kind::Startup | Kind::Liveness, false) => {
                    self.failed = true;
                    killing = Some(Killing {
                        message: format!(
                            "Container {container} failed {} probe, will be restarted",
                            kind.title().to_lowercase()
                        ),
                        grace_seconds,
                    });
                }
            }
        }
        Change {
            status: before != (self.started, self.ready()),
            killing,
            event,
        }
    }

    /// The pod is being stopped: liveness and startup are asked no more, readiness is.
    pub const fn stop(&mut self) {
        self.stopping = true;
    }

    fn start(&mut self, now: Timestamp) {
        self.started = true;
        for track in &mut self.tracks {
            track.due = later(self.running_since, track.initial_delay).max(now);
        }
    }

    fn is_open(&self, track: &Track) -> bool {
        let gate = match track.kind {
            Kind::Startup => !self.started && !self.stopping,
            Kind::Liveness => self.started && !self.stopping,
            Kind::Readiness => self.started,
        };
        gate && !track.asking && !self.failed
    }
}

impl Track {
    fn new(kind: Kind, probe: &Probe, running_since: Timestamp) -> Self {
        let count =
            |value: Option<i32>, default: u32| value.and_then(|value| u32::try_from(value).ok()).unwrap_or(default);
        let initial_delay = SignedDuration::from_secs(count(probe.initial_delay_seconds, 0).into());
        Self {
            kind,
            initial_delay,
            period: SignedDuration::from_secs(count(probe.period_seconds, 10).max(1).into()),
            success_threshold: count(probe.success_threshold, 1).max(1),
            failure_threshold: count(probe.failure_threshold, 3).max(1),
            grace_seconds: probe.termination_grace_period_seconds,
            due: later(running_since, initial_delay),
            asking: false,
            last: None,
            run: 0,
        }
    }

    /// Whether so many in a row make the result hold.
    fn count(&mut self, good: bool) -> bool {
        if self.last == Some(good) {
            self.run = self.run.saturating_add(1);
        } else {
            self.last = Some(good);
            self.run = 1;
        }
        let threshold = if good {
            self.success_threshold
        } else {
            self.failure_threshold
        };
        self.run >= threshold
    }
}

fn event(kind: Kind, answer: &Answer) -> Option<UnhealthyEvent> {
    let title = kind.title();
    let message = &answer.message;
    let (reason, message) = match answer.outcome {
        Outcome::Success => return None,
        Outcome::Warning => ("ProbeWarning", format!("{title} probe warning: {message}")),
        Outcome::Failure => ("Unhealthy", format!("{title} probe failed: {message}")),
        Outcome::Unknown => (
            "Unhealthy",
            format!("{title} probe errored and resulted in unknown state: {message}"),
        ),
    };
    Some(UnhealthyEvent { reason, message })
}

/// Never beyond the end of time.
fn later(moment: Timestamp, by: SignedDuration) -> Timestamp {
    moment.saturating_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
