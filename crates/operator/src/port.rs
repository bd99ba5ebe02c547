//! The TLS port as the operator opens it: which clients, names and objects it has, and what is behind it.
//!
//! Opened on every replica. Nothing of it goes through the fence: certificates are kept by whoever looks first (guarded by
//! resourceVersion), and a trigger is only written down here ([`crate::trigger`] says why that is safe).

use std::net::SocketAddr;

use tokio::sync::watch;
use usher_engine::ObjectKey;

use crate::client::{self, ClientError};
use crate::serve::Health;
use crate::shared::Shared;
use crate::tls::{Names, TlsConfig, TlsError, TlsServer};
use crate::trigger::{Desk, Surroundings, Trigger};
use crate::webhook::Routes;

/// Where the TLS port is, and what can be had there.
#[derive(Debug, Clone)]
pub struct PortSettings {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its Service. Certificates are in the Secret of that name with `-tls`, what clients are to trust in the ConfigMap
    /// with `-ca`, both in the Service's namespace.
    pub service: ObjectKey,
    /// What may be triggered.
    pub triggers: Vec<Trigger>,
    /// What API servers may ask.
    pub webhooks: Routes,
    /// The ValidatingWebhookConfiguration by which they do, kept up to date.
    pub configuration: Option<String>,
}

impl PortSettings {
    /// The Secret with the certificates and their keys.
    pub fn secret(&self) -> Option<ObjectKey> {
        self.service.sibling(&format!("{}-tls", self.service.name()))
    }

    /// The ConfigMap with what clients are to trust.
    pub fn config_map(&self) -> Option<ObjectKey> {
        self.service.sibling(&format!("{}-ca", self.service.name()))
    }
}

/// The port with its clients, before it is opened.
pub(crate) struct Port {
    settings: PortSettings,
    keeping: kube::Client,
    triggering: kube::Client,
}

impl Port {
    pub(crate) fn new(config: &kube::Config, settings: PortSettings) -> Result<Self, ClientError> {
        Ok(Self {
            settings,
            keeping: client::unfenced(config, "tls")?,
            triggering: client::unfenced(config, "trigger")?,
        })
    }

    /// Listens. `scope` is the one namespace this operator looks after; `stop` ends waiting for answers.
    pub(crate) async fn open(
        self,
        shared: &Shared,
        health: &Health,
        scope: Option<String>,
        stop: watch::Receiver<bool>,
    ) -> Result<TlsServer, TlsError> {
        let PortSettings {
            address,
            service,
            triggers,
            webhooks,
            configuration,
        } = &self.settings;
        let names = Names::of_service(service.name(), service.namespace())?.and_local();
        let secret = self.settings.secret().unwrap_or_else(|| service.clone());
        let mut config = TlsConfig::new(*address, names, secret);
        config.config_map = self.settings.config_map();
        config.configuration.clone_from(configuration);
        config.health = health.clone();
        let surroundings = Surroundings {
            scope,
            health: health.clone(),
            counted: shared.metrics.triggers.clone(),
            stop,
        };
        let desk = Desk::new(triggers.clone(), self.triggering, shared.clock.clone(), surroundings);
        TlsServer::bind(
            config,
            webhooks.clone(),
            Some(desk),
            Some(self.keeping),
            shared.clock.clone(),
        )
        .await
    }
}
