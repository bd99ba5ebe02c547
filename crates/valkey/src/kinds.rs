//! ValkeyClusters as the runtime sees them: a few lines that name the rooms.

use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::registry::Registry;
use usher_engine::{ErrorClass, Plan, Step as _};
use usher_operator::error::Failure;
use usher_operator::kind::{Kind, Outcome, Passed};
use usher_operator::pass::Pass;
use usher_operator::view::View;
use usher_operator::window::Window;

use crate::api::ValkeyClusterStatus;
use crate::metrics::Figures;
use crate::observe::client::Clients;
use crate::observe::fetch::{self, Fetched, Kept};
use crate::observe::{Observation, Rules};
use crate::plan::step::ClusterStep;
use crate::records::ClusterRecord;
use crate::{act, metrics, plan, wake};

/// Name of the kind.
pub const CLUSTER: &str = "ValkeyCluster";

/// What people may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// What is asked of every cluster.
    pub rules: Rules,
    /// For connecting to a server.
    pub connect_timeout: Duration,
    /// For one command.
    pub command_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            connect_timeout: Duration::from_secs(2),
            command_timeout: Duration::from_secs(2),
        }
    }
}

/// Runs ValkeyClusters.
#[derive(Debug, Default)]
pub struct Clusters {
    rules: Rules,
    kept: Kept,
    figures: Figures,
}

impl Clusters {
    /// With these settings.
    pub fn new(settings: Settings) -> Self {
        Self {
            rules: settings.rules,
            kept: Kept::with(Clients::new(settings.connect_timeout, settings.command_timeout)),
            figures: Figures::default(),
        }
    }
}

impl Kind for Clusters {
    type Resource = ClusterRecord;
    type Fetched = Fetched;
    type Observation<'v> = Observation;
    type Status = ValkeyClusterStatus;
    type Step = ClusterStep;
    const NAME: &'static str = CLUSTER;
    const QUEUE: &'static str = CLUSTER;
    /// A pass waits for servers most of its time, for those that do not answer for seconds.
    const PASSES_AT_ONCE: usize = 20;

    fn register(&self, view: &mut View) {
        wake::register(view);
    }

    fn measure(&self, registry: &mut Registry, window: &Window) {
        metrics::measure(registry, window, &self.figures);
    }

    fn passed(&self, _: &View, pass: &Passed<'_, Self>) {
        match (pass.outcome, pass.planned) {
            (Outcome::Gone, _) => self.figures.forget(pass.key),
            (_, Some((cluster, plan))) => self.figures.planned(cluster, plan),
            _ => {}
        }
        if pass.outcome == Outcome::Success {
            self.figures.succeeded(pass.key);
        }
    }

    async fn fetch(&self, pass: &Pass, cluster: &ClusterRecord) -> Result<Fetched, Failure> {
        let fetched = fetch::fetch(&self.kept, pass, cluster).await?;
        let seen = pass.view(|view| fetch::observe(view, cluster, &fetched));
        self.figures.seen(cluster, &seen, pass.now());
        Ok(fetched)
    }

    fn observe<'v>(&self, view: &'v View, cluster: &'v ClusterRecord, fetched: &'v Fetched) -> Observation {
        Observation {
            rules: self.rules,
            ..fetch::observe(view, cluster, fetched)
        }
    }

    fn plan(
        &self,
        cluster: &ClusterRecord,
        seen: &Observation,
        now: Timestamp,
    ) -> Plan<ClusterStep, ValkeyClusterStatus> {
        plan::plan(cluster, seen, now)
    }

    async fn act(&self, pass: &Pass, cluster: &ClusterRecord, step: &ClusterStep) -> Result<(), Failure> {
        self.figures.begun(cluster, step, pass.now());
        let done = act::step(&self.kept, pass, cluster, step).await;
        if let Err(failure) = &done
            && failure.class() == ErrorClass::Transient
        {
            let (retry, next) = self.figures.failed(&cluster.meta.key);
            let phase = cluster.status.phase.unwrap_or_default();
            tracing::info!(
                cluster = %cluster.meta.key,
                %phase,
                step = step.name(),
                retry,
                next_ms = next.as_millis(),
                error = %failure,
                "transient error"
            );
        }
        done
    }
}
