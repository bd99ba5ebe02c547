//! Looking after the certificates while the server runs: what is presented, what is published, and what to say of it.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use usher_engine::Backoff;

use super::custody::{Custody, Look};
use super::material::Material;
use crate::clock::Clock;
use crate::serve::Health;
use crate::serve::connections::stopped;

/// The part of [`Health`] this server reports as.
pub(super) const PART: &str = "tls";

/// For one look at Secret, configuration and ConfigMap: three reads and three writes.
const LOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// Looks after the certificates while the server runs.
pub(super) struct Keeper {
    custody: Custody,
    /// For as long as the other can keep nothing: certificates in memory.
    spare: Custody,
    clock: Arc<dyn Clock>,
    presented: Arc<Presented>,
    bundle: watch::Sender<Option<String>>,
    /// Told how it stands, if that is to count.
    health: Option<Health>,
    look_every: Duration,
    failures: u32,
    /// What the last look failed with: told once, not at every look.
    problem: Option<String>,
    kept_once: bool,
    published_once: bool,
}

impl Keeper {
    pub(super) fn new(
        custody: Custody,
        spare: Custody,
        clock: Arc<dyn Clock>,
        presented: Arc<Presented>,
        bundle: watch::Sender<Option<String>>,
        health: Option<Health>,
        look_every: Duration,
    ) -> Self {
        Self {
            custody,
            spare,
            clock,
            presented,
            bundle,
            health,
            look_every,
            failures: 0,
            problem: None,
            kept_once: false,
            published_once: false,
        }
    }

    /// One look. Says whether there is a certificate to present.
    pub(super) async fn look(&mut self) -> bool {
        let now = self.clock.wall();
        let problem = match tokio::time::timeout(LOOK_TIMEOUT, self.custody.look(now)).await {
            Ok(Ok(Look { material, unpublished })) => {
                self.present(&material);
                self.kept_once = true;
                unpublished.map(|error| error.to_string())
            }
            // Better a certificate that nobody can check than a port that does not answer: a client is told at once
            // what is wrong, and one on the same machine may do without the check.
            Ok(Err(error)) if error.needs_a_person() && !self.kept_once => {
                if let Ok(Look { material, .. }) = self.spare.look(now).await {
                    self.present(&material);
                }
                Some(format!(
                    "{error}; until then the certificate is kept in memory only: no client can check it, and it is new \
                     after each start"
                ))
            }
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!(
                "the API server did not answer within {} s",
                LOOK_TIMEOUT.as_secs()
            )),
        };
        if problem != self.problem {
            match &problem {
                Some(problem) => tracing::warn!(problem, "tls: certificates or their publication need attention"),
                None => tracing::info!("tls: certificates and their publication are in order again"),
            }
            self.problem.clone_from(&problem);
        }
        match problem {
            None => {
                (self.failures, self.published_once) = (0, true);
                self.report(Ok(()));
            }
            Some(problem) => {
                self.failures = self.failures.saturating_add(1);
                // A replica that once could be reached still can: to call it unready would take away what works.
                if !self.published_once {
                    self.report(Err(problem));
                }
            }
        }
        self.presented.is_set()
    }

    fn present(&self, material: &Material) {
        if let Some(presented) = material.presented() {
            self.presented.set(presented);
        }
        let bundle = Some(material.bundle());
        self.bundle
            .send_if_modified(|known| std::mem::replace(known, bundle.clone()) != bundle);
    }

    fn report(&self, standing: Result<(), String>) {
        if let Some(health) = &self.health {
            health.set(PART, standing);
        }
    }

    /// Waits for the next look. Says whether to stop instead.
    pub(super) async fn rest(&self, stop: &mut watch::Receiver<bool>) -> bool {
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
pub(super) struct Presented(RwLock<Option<Arc<CertifiedKey>>>);

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

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
