//! `usher operator`: runs until SIGTERM or Ctrl-C, then stops in order.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args as ClapArgs;
use jiff::{SignedDuration, Timestamp};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use usher_engine::{Backoff, ObjectKey};
use usher_operator::leadership::LeaseTiming;
use usher_operator::lease::LeaseConfig;
use usher_operator::port::PortSettings;
use usher_operator::queue::QueueConfig;
use usher_operator::run::{Operator, RunError, Settings};
use usher_operator::webhook::Routes;
use usher_subnets::kinds::Pools;
use usher_subnets::ledger::Ledger;
use usher_subnets::plan::pool::Limits;

use crate::cluster::{ClusterArgs, dns_label, no_client};
use crate::install::objects::OPERATOR;
use crate::{Failed, WrongUsage};

/// How the operator runs.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Only this namespace. Without it: all namespaces.
    #[arg(long, short, env = "USHER_NAMESPACE", hide_env_values = true)]
    namespace: Option<String>,
    /// Acts at once, without a lease. For one operator on one cluster, never for two.
    #[arg(long)]
    no_lease: bool,
    /// Namespace of the lease, and of what --tls-name names. Default: the pod's own, or `usher-system`.
    #[arg(long, env = "POD_NAMESPACE", hide_env_values = true, default_value = "usher-system")]
    lease_namespace: String,
    /// Name of the lease.
    #[arg(long, default_value = "usher-operator")]
    lease_name: String,
    /// Who this process is in the lease. Default: host name and process id.
    #[arg(long, env = "POD_NAME", hide_env_values = true)]
    identity: Option<String>,
    /// A leader that says nothing for this long is taken for dead.
    #[arg(long, default_value_t = 15, value_name = "SECONDS")]
    lease_seconds: u64,
    /// The leader renews this often.
    #[arg(long, default_value_t = 2000, value_name = "MILLISECONDS")]
    lease_renew_ms: u64,
    /// The leader stops acting this long before its lease ends.
    #[arg(long, default_value_t = 5000, value_name = "MILLISECONDS")]
    lease_margin_ms: u64,
    /// Where /healthz, /readyz and /metrics answer.
    #[arg(long, default_value = "127.0.0.1:8080")]
    health_address: SocketAddr,
    /// Where triggers are taken over TLS, on every replica. Without it: nowhere.
    #[arg(long, value_name = "ADDRESS")]
    tls_address: Option<SocketAddr>,
    /// Name of the Service in front of --tls-address. Its certificates are kept in Secret NAME-tls; ConfigMap NAME-ca has
    /// what clients are to trust.
    #[arg(long, default_value = OPERATOR, value_name = "NAME", value_parser = dns_label)]
    tls_name: String,
    /// Passes at once per kind, instead of each kind's own number.
    #[arg(long)]
    passes_at_once: Option<usize>,
    /// Longest time of one pass.
    #[arg(long, default_value_t = 90, value_name = "SECONDS")]
    pass_seconds: u64,
    /// API writes in flight.
    #[arg(long, default_value_t = 64)]
    writes_at_once: usize,
    /// Wait after a first failure.
    #[arg(long, default_value_t = 50, value_name = "MILLISECONDS")]
    backoff_first_ms: u64,
    /// Longest wait after failures.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    backoff_cap_seconds: u64,
    /// Each wait is this many times the one before.
    #[arg(long, default_value_t = 1.5)]
    backoff_factor: f64,
    /// Retries that may start together, and per second after that.
    #[arg(long, default_value_t = 100)]
    retries: u32,
    /// A claim that waited this long while others were served gets a block kept for it.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    subnets_target_after: u32,
    /// Allocations listed one by one in a pool's status, up to this many (0 to 5000).
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(0..=5000), value_name = "NUMBER")]
    subnets_listed: u16,
    /// A pool's status is written at most this often, but for a change of a condition.
    #[arg(long, default_value_t = 1000, value_name = "MILLISECONDS")]
    subnets_status_every_ms: u64,
    /// Each address map is held against the records this often.
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    subnets_check_every: u32,
    /// Logs as JSON.
    #[arg(long)]
    log_json: bool,
    /// For tests: SIGUSR1 makes every address map forget one holding.
    #[arg(long, hide = true)]
    test_damage_on_signal: bool,
}

impl Args {
    fn pools(&self) -> Pools {
        Pools {
            status_every: Duration::from_millis(self.subnets_status_every_ms),
            limits: Limits {
                target_after: SignedDuration::from_secs(self.subnets_target_after.into()),
                listed_max: self.subnets_listed.into(),
                check_every: SignedDuration::from_secs(self.subnets_check_every.max(1).into()),
                checked_from: Some(Timestamp::now()),
            },
        }
    }

    fn settings(&self) -> Result<Settings, WrongUsage> {
        let at_least_one = |flag: &str, value: usize| match value {
            0 => Err(WrongUsage(format!("{flag} must be at least 1"))),
            n => Ok(n),
        };
        let identity = match &self.identity {
            Some(identity) => identity.clone(),
            None => {
                let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
                let host = if host.trim().is_empty() { "usher" } else { host.trim() };
                format!("{host}-{}", std::process::id())
            }
        };
        let timing = LeaseTiming {
            duration: Duration::from_secs(self.lease_seconds),
            renew_every: Duration::from_millis(self.lease_renew_ms),
            margin: Duration::from_millis(self.lease_margin_ms),
        };
        timing.validate().map_err(|e| WrongUsage(e.to_string()))?;
        if !self.backoff_factor.is_finite() || self.backoff_factor < 1.0 {
            return Err(WrongUsage("--backoff-factor must be 1 or more".to_owned()));
        }
        let lease = (!self.no_lease).then(|| LeaseConfig {
            namespace: self.lease_namespace.clone(),
            name: self.lease_name.clone(),
            identity: identity.clone(),
            timing,
        });
        Ok(Settings {
            identity,
            namespace: self.namespace.clone(),
            lease,
            health_address: Some(self.health_address),
            port: self.port()?,
            queue: QueueConfig {
                backoff: Backoff {
                    first: Duration::from_millis(self.backoff_first_ms),
                    cap: Duration::from_secs(self.backoff_cap_seconds),
                    factor: self.backoff_factor,
                },
                retry_burst: self.retries,
                retry_per_second: self.retries,
                ..QueueConfig::default()
            },
            passes_at_once: self
                .passes_at_once
                .map(|n| at_least_one("--passes-at-once", n))
                .transpose()?,
            pass_timeout: Duration::from_secs(self.pass_seconds.max(1)),
            writes_at_once: at_least_one("--writes-at-once", self.writes_at_once)?,
        })
    }
}

impl Args {
    fn port(&self) -> Result<Option<PortSettings>, WrongUsage> {
        let Some(address) = self.tls_address else {
            return Ok(None);
        };
        let service = ObjectKey::new(&self.lease_namespace, &self.tls_name)
            .map_err(|_| WrongUsage("--tls-address needs a --lease-namespace that is not empty".to_owned()))?;
        Ok(Some(PortSettings {
            address,
            service,
            triggers: usher_subnets::triggers(),
            webhooks: Routes::default(),
            configuration: None,
        }))
    }
}

pub(crate) async fn run(cluster: &ClusterArgs, args: Args) -> Result<(), Failed> {
    start_logging(args.log_json, "info");
    let settings = args.settings()?;
    let located = cluster.locate().await?;
    let config = &located.config;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        server = %config.cluster_url,
        namespace = settings.namespace.as_deref().unwrap_or("(all)"),
        identity = settings.identity,
        lease = settings.lease.is_some(),
        "usher operator starts"
    );
    let operator =
        Operator::new(config, usher_subnets::kinds(args.pools()), settings).map_err(|problem| match problem {
            RunError::Client(problem) => no_client(&located, &problem),
            other => other.to_string(),
        })?;
    if args.test_damage_on_signal {
        damage_on_signal(&operator)?;
    }
    let (stop, stopped) = watch::channel(false);
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => tracing::info!("SIGTERM"),
            _ = interrupt.recv() => tracing::info!("Ctrl-C"),
        }
        stop.send_replace(true);
        // Held until the process ends: a dropped sender would look like a second signal.
        std::future::pending::<()>().await;
    });
    operator.run(stopped).await?;
    tracing::info!("stopped");
    Ok(())
}

/// What no bug should do to the maps, done on purpose: a test sees that it is found and repaired (R50, R51).
fn damage_on_signal(operator: &Operator) -> Result<(), Failed> {
    let meddle = operator.meddler();
    let mut signals = signal(SignalKind::user_defined1())?;
    tokio::spawn(async move {
        while signals.recv().await.is_some() {
            meddle(&|view| {
                let ledger = view.derived_mut::<Ledger>();
                let forgotten = ledger.map(Ledger::damage).unwrap_or_default();
                tracing::warn!(
                    ?forgotten,
                    "SIGUSR1: the maps are damaged, as --test-damage-on-signal asks"
                );
            });
        }
    });
    Ok(())
}

/// Logs go to standard error, from this level on unless `$USHER_LOG` says otherwise.
pub(crate) fn start_logging(json: bool, level: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("USHER_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let logs = tracing_subscriber::fmt()
        .with_ansi(colours)
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    if json { logs.json().init() } else { logs.init() }
}
