//! Admission webhooks: an HTTPS server that keeps its own certificates.
//!
//! For what schema and CEL cannot say. Kinds register reviewers by path ([`Routes`]); this module gives them a server
//! that API servers trust, on every replica, through every change of certificates, without cert-manager.
//!
//! The rooms: [`decide`] is the pure rule of when to replace what; `material` is what there is, `issue` makes new;
//! `custody` keeps it in a Secret and publishes the bundle to the ValidatingWebhookConfiguration; `review` speaks
//! the admission protocol. Connections are those of [`crate::serve`].
//!
//! Promises: a certificate is replaced without closing the listener or a connection. Private keys are in the Secret and
//! in memory, never in a log, an event, an error or a `Debug`. Deleting the Secret makes a new authority, gracefully.

mod custody;
pub mod decide;
mod der;
mod error;
mod issue;
mod material;
mod names;
mod review;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use usher_engine::{Backoff, ObjectKey};

pub use decide::Lifetimes;
pub use error::WebhookError;
pub use issue::IssueError;
pub use names::{NameError, Names};
pub use review::{Reply, ReviewLimits, Reviewer, Routes};

use crate::clock::Clock;
use crate::serve::connections::{self, stopped};
use crate::serve::{self, Health};
use custody::{Custody, Look};

/// The part of [`Health`] this server reports as.
const PART: &str = "webhook";

const LIMITS: connections::Limits = connections::Limits {
    // Each API server opens as many as it has reviews under way, and keeps them.
    connections: 512,
    handshake: Duration::from_secs(10),
    // Go closes its idle connections after 90 s. Ours last longer, so that it is never us who closes one at the very
    // moment a review is sent on it.
    headers: Duration::from_secs(100),
    farewell: Duration::from_secs(10),
};

/// For one look at Secret and configuration: two reads and two writes.
const LOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// Where and how webhooks are served.
#[derive(Debug, Clone)]
pub struct WebhookConfig {
    /// `--webhook-address`.
    pub address: SocketAddr,
    /// What API servers call the server by.
    pub names: Names,
    /// Where certificates are kept: `--webhook-secret`.
    pub secret: ObjectKey,
    /// The ValidatingWebhookConfiguration whose `caBundle`s are kept up to date.
    pub configuration: Option<String>,
    /// How long certificates live.
    pub lifetimes: Lifetimes,
    /// How often Secret and configuration are looked at: how long a `caBundle` that somebody overwrote stays wrong.
    pub look_every: Duration,
    /// Bounds on one review.
    pub limits: ReviewLimits,
    /// Told when the server can be reached, and why not before.
    pub health: Health,
}

impl WebhookConfig {
    /// The defaults: serving certificates of 90 days, authorities of two years, a look every half minute.
    pub fn new(address: SocketAddr, names: Names, secret: ObjectKey) -> Self {
        Self {
            address,
            names,
            secret,
            configuration: None,
            lifetimes: Lifetimes::default(),
            look_every: Duration::from_secs(30),
            limits: ReviewLimits::default(),
            health: Health::new(),
        }
    }
}

/// Serves `routes` until `stop` is true or its sender is gone. Without a client, certificates live in memory and nothing
/// is published.
pub async fn run(
    config: WebhookConfig,
    routes: Routes,
    client: Option<kube::Client>,
    clock: Arc<dyn Clock>,
    stop: watch::Receiver<bool>,
) -> Result<(), WebhookError> {
    Webhooks::bind(config, routes, client, clock).await?.run(stop).await
}

/// A server that listens and does not answer yet.
pub struct Webhooks {
    config: WebhookConfig,
    routes: Routes,
    listener: TcpListener,
    custody: Custody,
    clock: Arc<dyn Clock>,
    bundle: watch::Sender<Option<String>>,
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhooks")
            .field("config", &self.config)
            .field("routes", &self.routes)
            .finish_non_exhaustive()
    }
}

impl Webhooks {
    /// Checks what can be checked and opens the address, so that a mistake is told at once.
    pub async fn bind(
        config: WebhookConfig,
        routes: Routes,
        client: Option<kube::Client>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, WebhookError> {
        if let Some(problem) = &routes.problem {
            return Err(WebhookError::Routes {
                problem: problem.clone(),
            });
        }
        if let Some(problem) = config.lifetimes.problem() {
            return Err(WebhookError::Lifetimes { problem });
        }
        let listener = serve::bind(config.address, "--webhook-address").await?;
        config.health.set(PART, Err("no certificates yet".to_owned()));
        let (secret, configuration, names) = (
            config.secret.clone(),
            config.configuration.clone(),
            config.names.clone(),
        );
        let custody = Custody::new(client, secret, configuration, names, config.lifetimes);
        Ok(Self {
            config,
            routes,
            listener,
            custody,
            clock,
            bundle: watch::Sender::new(None),
        })
    }

    /// Where it listens: tells the port when any was asked for.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap_or(self.config.address)
    }

    /// The bundle of authorities as PEM, now and whenever it changes: for API servers in the same process.
    pub fn bundle(&self) -> watch::Receiver<Option<String>> {
        self.bundle.subscribe()
    }

    /// Serves until `stop` is true or its sender is gone.
    pub async fn run(self, mut stop: watch::Receiver<bool>) -> Result<(), WebhookError> {
        let presented = Arc::new(Presented::default());
        let acceptor = TlsAcceptor::from(Arc::new(tls(Arc::clone(&presented))?));
        let mut keeper = Keeper {
            custody: self.custody,
            clock: self.clock,
            presented,
            bundle: self.bundle,
            health: self.config.health,
            look_every: self.config.look_every,
            failures: 0,
            problem: None,
            published_once: false,
        };
        // Without a certificate every handshake would fail: callers wait in the backlog instead.
        while !keeper.look().await {
            if keeper.rest(&mut stop).await {
                return Ok(());
            }
        }
        let router = review::router(self.routes, self.config.limits);
        let keep = async {
            while !keeper.rest(&mut stop.clone()).await {
                keeper.look().await;
            }
        };
        tokio::join!(
            connections::serve(self.listener, Some(acceptor), router, LIMITS, stop.clone()),
            keep
        );
        Ok(())
    }
}

/// Looks after the certificates while the server runs.
struct Keeper {
    custody: Custody,
    clock: Arc<dyn Clock>,
    presented: Arc<Presented>,
    bundle: watch::Sender<Option<String>>,
    health: Health,
    look_every: Duration,
    failures: u32,
    /// What the last look failed with: told once, not at every look.
    problem: Option<String>,
    published_once: bool,
}

impl Keeper {
    /// One look. Says whether there is a certificate to present.
    async fn look(&mut self) -> bool {
        let look = tokio::time::timeout(LOOK_TIMEOUT, self.custody.look(self.clock.wall())).await;
        let problem = match look {
            Ok(Ok(Look { material, unpublished })) => {
                if let Some(presented) = material.presented() {
                    self.presented.set(presented);
                }
                let bundle = Some(material.bundle());
                self.bundle
                    .send_if_modified(|known| std::mem::replace(known, bundle.clone()) != bundle);
                unpublished.map(|error| error.to_string())
            }
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!(
                "the API server did not answer within {} s",
                LOOK_TIMEOUT.as_secs()
            )),
        };
        if problem != self.problem {
            match &problem {
                Some(problem) => tracing::warn!(problem, "webhook: certificates or their publication need attention"),
                None => tracing::info!("webhook: certificates and their publication are in order again"),
            }
            self.problem.clone_from(&problem);
        }
        match problem {
            None => {
                (self.failures, self.published_once) = (0, true);
                self.health.set(PART, Ok(()));
            }
            Some(problem) => {
                self.failures = self.failures.saturating_add(1);
                // A replica that once could be reached still can: to call it unready would take away what works.
                if !self.published_once {
                    self.health.set(PART, Err(problem));
                }
            }
        }
        self.presented.is_set()
    }

    /// Waits for the next look. Says whether to stop instead.
    async fn rest(&self, stop: &mut watch::Receiver<bool>) -> bool {
        let wait = match self.failures {
            0 => self.look_every,
            failures => Backoff::default().delay(failures).min(self.look_every),
        };
        tokio::select! {
            () = stopped(stop) => true,
            () = tokio::time::sleep(wait) => false,
        }
    }
}

/// The certificate of the next handshake. Connections that are open keep theirs.
#[derive(Default)]
struct Presented(RwLock<Option<Arc<CertifiedKey>>>);

impl Presented {
    fn set(&self, certificate: CertifiedKey) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(certificate));
    }

    fn is_set(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl fmt::Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Presented").field(&self.is_set()).finish()
    }
}

impl ResolvesServerCert for Presented {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn tls(presented: Arc<Presented>) -> Result<ServerConfig, WebhookError> {
    let mut config = ServerConfig::builder_with_provider(material::provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| WebhookError::Tls {
            problem: error.to_string(),
        })?
        .with_no_client_auth()
        .with_cert_resolver(presented);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
