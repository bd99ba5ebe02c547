//! The operator's TLS port: an HTTPS server that keeps its own certificates.
//!
//! Behind it are admission webhooks ([`crate::webhook`]) for API servers, and triggers ([`crate::trigger`]) for
//! whoever holds a token. This module gives them a server that clients can check, on every replica, through every change of
//! certificates, without cert-manager.
//!
//! The rooms: [`decide`] is the pure rule of when to replace what; `material` is what there is, `issue` makes new;
//! `custody` keeps it in a Secret, `publish` puts the bundle of authorities where clients read it: into a
//! ValidatingWebhookConfiguration for API servers, into a ConfigMap for everybody else; `keeper` does all that while the
//! server runs. Connections are those of [`crate::serve`].
//!
//! Promises: a certificate is replaced without closing the listener or a connection. Private keys are in the Secret and
//! in memory, never in a log, an event, an error or a `Debug`. Deleting the Secret makes a new authority, gracefully.
//! Where the Secret may not be kept at all, a certificate in memory serves until it may.

mod custody;
pub mod decide;
mod der;
mod error;
mod issue;
mod keeper;
mod material;
mod names;
mod publish;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;
use usher_engine::ObjectKey;

pub use decide::Lifetimes;
pub use error::TlsError;
pub use issue::IssueError;
pub use names::{NameError, Names};

use crate::clock::Clock;
use crate::serve::{self, Health, connections};
use crate::trigger::Desk;
use crate::webhook::{self, ReviewLimits, Routes};
use custody::{Custody, Places};
use keeper::{Keeper, PART, Presented};

/// The flag that sets the address.
const FLAG: &str = "--tls-address";

const LIMITS: connections::Limits = connections::Limits {
    // Each API server opens as many as it has reviews under way, and keeps them.
    connections: 512,
    handshake: Duration::from_secs(10),
    first: Duration::from_secs(10),
    // A token of an identity provider with many groups has 8 KiB; all connections together stay within 16 MiB.
    header_bytes: 32 * 1024,
    // Go closes its idle connections after 90 s. Ours last longer, so that it is never us who closes one at the very
    // moment a review is sent on it.
    headers: Duration::from_secs(100),
    farewell: Duration::from_secs(10),
};

/// Where and how the port is served.
#[derive(Debug, Clone)]
pub struct TlsConfig {
    /// `--tls-address`.
    pub address: SocketAddr,
    /// What clients call the server by.
    pub names: Names,
    /// Where certificates are kept.
    pub secret: ObjectKey,
    /// The ValidatingWebhookConfiguration whose `caBundle`s are kept up to date.
    pub configuration: Option<String>,
    /// The ConfigMap whose `ca.crt` is kept up to date.
    pub config_map: Option<ObjectKey>,
    /// How long certificates live.
    pub lifetimes: Lifetimes,
    /// How often Secret and configuration are looked at: how long a `caBundle` that somebody overwrote stays wrong.
    pub look_every: Duration,
    /// Bounds on one review.
    pub limits: ReviewLimits,
    /// Told when the server can be reached, and why not before.
    pub health: Health,
}

impl TlsConfig {
    /// The defaults: serving certificates of 90 days, authorities of two years, a look every half minute.
    pub fn new(address: SocketAddr, names: Names, secret: ObjectKey) -> Self {
        Self {
            address,
            names,
            secret,
            configuration: None,
            config_map: None,
            lifetimes: Lifetimes::default(),
            look_every: Duration::from_secs(30),
            limits: ReviewLimits::default(),
            health: Health::new(),
        }
    }
}

/// A server that listens and does not answer yet.
pub struct TlsServer {
    config: TlsConfig,
    routes: Routes,
    desk: Option<Desk>,
    listener: TcpListener,
    health: Option<Health>,
    client: Option<kube::Client>,
    clock: Arc<dyn Clock>,
    bundle: watch::Sender<Option<String>>,
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServer")
            .field("config", &self.config)
            .field("routes", &self.routes)
            .finish_non_exhaustive()
    }
}

impl TlsServer {
    /// Checks what can be checked and opens the address, so that a mistake is told at once. Without a client,
    /// certificates live in memory and nothing is published.
    pub async fn bind(
        config: TlsConfig,
        routes: Routes,
        desk: Option<Desk>,
        client: Option<kube::Client>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TlsError> {
        if let Some(problem) = &routes.problem {
            return Err(TlsError::Routes {
                problem: problem.clone(),
            });
        }
        if let Some(problem) = config.lifetimes.problem() {
            return Err(TlsError::Lifetimes { problem });
        }
        let listener = serve::bind(config.address, FLAG).await?;
        // API servers must reach their webhooks; a trigger can be had in other ways, and keeps nobody from working.
        let health = (!routes.is_empty()).then(|| config.health.clone());
        if let Some(health) = &health {
            health.set(PART, Err("no certificates yet".to_owned()));
        }
        Ok(Self {
            config,
            routes,
            desk,
            listener,
            health,
            client,
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
    pub async fn run(self, mut stop: watch::Receiver<bool>) -> Result<(), TlsError> {
        let presented = Arc::new(Presented::default());
        let acceptor = TlsAcceptor::from(Arc::new(tls(Arc::clone(&presented))?));
        tracing::info!(address = %self.address(), "tls: listening");
        let config = self.config;
        let places = Places {
            secret: config.secret,
            configuration: config.configuration,
            config_map: config.config_map,
        };
        let custody = |client| Custody::new(client, places.clone(), config.names.clone(), config.lifetimes);
        let mut keeper = Keeper::new(
            custody(self.client),
            custody(None),
            self.clock,
            presented,
            self.bundle,
            self.health,
            config.look_every,
        );
        // Without a certificate every handshake would fail: callers wait in the backlog instead.
        while !keeper.look().await {
            if keeper.rest(&mut stop).await {
                return Ok(());
            }
        }
        let router = router(self.routes, config.limits, self.desk);
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

/// Webhooks have the paths they registered, the desk has all others.
pub(crate) fn router(routes: Routes, limits: ReviewLimits, desk: Option<Desk>) -> Router {
    let webhooks = webhook::router(routes.clone(), limits);
    let Some(desk) = desk else { return webhooks };
    let triggers = crate::trigger::router(desk);
    Router::new().fallback(move |request: Request| {
        let chosen = if routes.has(request.uri().path()) {
            webhooks.clone()
        } else {
            triggers.clone()
        };
        chosen.oneshot(request)
    })
}

fn tls(presented: Arc<Presented>) -> Result<ServerConfig, TlsError> {
    let mut config = ServerConfig::builder_with_provider(material::provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Setup {
            problem: error.to_string(),
        })?
        .with_no_client_auth()
        .with_cert_resolver(presented);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
