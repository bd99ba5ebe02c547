//! Keeping the certificates: in a Secret all replicas share, or in memory where there is no cluster to ask.
//!
//! One *look* reads the Secret, publishes its bundle, decides, writes, and looks again until there is nothing left to
//! do. Every write is guarded (create, or replace with resourceVersion), so of two replicas that look at once one wins
//! and the other reads what it wrote. If we die between two writes, the next look finds the Secret ahead of the
//! published bundle, which is the safe way round.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};
use usher_engine::ObjectKey;

use super::decide::{Lifetimes, Verdict, Why, decide};
use super::error::TlsError;
use super::issue;
use super::material::Material;
use super::names::Names;
use super::publish;

/// Moves in one look. In quiet there are three at most; the rest is for losing to other replicas.
const MOVES: usize = 8;
/// On objects of ours. Others are not overwritten, whatever their name.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "usher");
const SECRET_TYPE: &str = "kubernetes.io/tls";

/// Whether we made it.
pub(super) fn is_ours(meta: &ObjectMeta) -> bool {
    let labels = meta.labels.as_ref();
    labels
        .and_then(|labels| labels.get(MANAGED_BY.0))
        .is_some_and(|by| by == MANAGED_BY.1)
}

pub(super) fn label_as_ours(meta: &mut ObjectMeta) {
    let labels = meta.labels.get_or_insert_default();
    labels.insert(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned());
}

/// The objects that certificates are in.
#[derive(Debug, Clone)]
pub(super) struct Places {
    /// All of it, keys too.
    pub(super) secret: ObjectKey,
    /// A ValidatingWebhookConfiguration with the bundle, for API servers.
    pub(super) configuration: Option<String>,
    /// A ConfigMap with the bundle, for everybody else.
    pub(super) config_map: Option<ObjectKey>,
}

/// Where certificates are kept and published.
pub(super) struct Custody {
    client: Option<kube::Client>,
    places: Places,
    names: Names,
    lifetimes: Lifetimes,
    /// What the last look ended with.
    remembered: Option<Material>,
    /// The bundle that is published, and since when as far as we saw.
    published: Option<(String, Timestamp)>,
}

/// What a look ended with.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) material: Material,
    /// The bundle could not be published; everything else is in order.
    pub(super) unpublished: Option<TlsError>,
}

/// How a guarded write ended.
enum Written {
    Yes,
    /// Somebody else was first: look again.
    Raced,
}

impl Custody {
    /// Without a client, in memory.
    pub(super) fn new(client: Option<kube::Client>, places: Places, names: Names, lifetimes: Lifetimes) -> Self {
        Self {
            client,
            places,
            names,
            lifetimes,
            remembered: None,
            published: None,
        }
    }

    /// Brings Secret and published bundle to where they should be at `now`.
    pub(super) async fn look(&mut self, now: Timestamp) -> Result<Look, TlsError> {
        for _ in 0..MOVES {
            let secret = self.read().await?;
            let found = match &secret {
                Some(secret) => secret.data.as_ref().and_then(Material::from_data),
                None if self.client.is_none() => self.remembered.clone(),
                None => None,
            };
            let unpublished = match &found {
                Some(material) => self.publish(&material.bundle(), now).await.err(),
                None => None,
            };
            let since = found
                .as_ref()
                .and_then(|material| self.published_since(&material.bundle()));
            let facts = found.as_ref().map(|material| material.facts(&self.names, since));
            let verdict = facts
                .as_ref()
                .map_or(Verdict::Create, |facts| decide(facts, &self.lifetimes, now));
            let next = match (verdict, &found, &self.remembered) {
                (Verdict::Keep { .. }, Some(material), _) => {
                    self.remembered = Some(material.clone());
                    return Ok(Look {
                        material: material.clone(),
                        unpublished,
                    });
                }
                (Verdict::RotateCa(why), Some(material), _) => {
                    self.log("a new certificate authority", Some(why));
                    issue::rotate_authority(material, &self.lifetimes, now)?
                }
                (Verdict::RotateServing(why), Some(material), _) => {
                    self.log("a new serving certificate", Some(why));
                    let span = facts
                        .and_then(|facts| facts.authority)
                        .ok_or(issue::IssueError::Unsound)?;
                    issue::rotate_serving(material, span, &self.names, &self.lifetimes, now)?
                }
                // The Secret was deleted, or emptied, under a server at work: API servers still trust the old authority
                // only, so this is a change of authority like any other, and what is presented stays for now.
                (_, _, Some(remembered)) if self.still_good(remembered, now) => {
                    self.log("a new certificate authority", Some(Why::Deleted));
                    issue::rotate_authority(remembered, &self.lifetimes, now)?
                }
                _ => {
                    self.log("the first certificates", None);
                    issue::create(&self.names, &self.lifetimes, now)?
                }
            };
            if let Written::Raced = self.write(secret, &next).await? {
                tracing::debug!(secret = %self.places.secret, "another replica was first; looking again");
            }
        }
        Err(TlsError::Contested { object: self.secret() })
    }

    fn still_good(&self, remembered: &Material, now: Timestamp) -> bool {
        let facts = remembered.facts(&self.names, None);
        facts.authority.is_some_and(|authority| authority.covers(now))
            && facts
                .serving
                .is_some_and(|serving| serving.names && serving.span.covers(now))
    }

    fn log(&self, what: &str, why: Option<Why>) {
        let why = why.map_or_else(|| "none were there".to_owned(), |why| format!("{why:?}"));
        tracing::info!(secret = %self.places.secret, why, "tls: making {what}");
    }

    async fn read(&self) -> Result<Option<Secret>, TlsError> {
        let Some(secrets) = self.secrets() else { return Ok(None) };
        let found = secrets
            .get_opt(self.places.secret.name())
            .await
            .map_err(|e| self.problem("read", &e))?;
        let foreign = found.as_ref().is_some_and(|secret| {
            !is_ours(&secret.metadata) && secret.data.iter().flatten().any(|(_, value)| !value.0.is_empty())
        });
        if foreign {
            Err(TlsError::Foreign { object: self.secret() })
        } else {
            Ok(found)
        }
    }

    async fn write(&mut self, found: Option<Secret>, next: &Material) -> Result<Written, TlsError> {
        let Some(secrets) = self.secrets() else {
            self.remembered = Some(next.clone());
            return Ok(Written::Yes);
        };
        let params = PostParams {
            field_manager: Some("usher".to_owned()),
            ..PostParams::default()
        };
        let there = found.is_some();
        let mut secret = found.unwrap_or_else(|| Secret {
            metadata: ObjectMeta {
                name: Some(self.places.secret.name().to_owned()),
                namespace: Some(self.places.secret.namespace().to_owned()),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            ..Secret::default()
        });
        label_as_ours(&mut secret.metadata);
        next.put_into(secret.data.get_or_insert_default());
        let written = if there {
            secrets.replace(self.places.secret.name(), &params, &secret).await
        } else {
            secrets.create(&params, &secret).await
        };
        match written {
            Ok(_) => Ok(Written::Yes),
            Err(kube::Error::Api(status)) if status.code == 409 || (there && status.code == 404) => Ok(Written::Raced),
            Err(error) => Err(self.problem(if there { "replace" } else { "create" }, &error)),
        }
    }

    /// Writes `bundle` where API servers read it, if it is not there yet.
    async fn publish(&mut self, bundle: &str, now: Timestamp) -> Result<(), TlsError> {
        let result = self.put_out(bundle).await;
        // Somebody may have overwritten what was published: then API servers have it only since now.
        match &result {
            Ok(changed) if *changed || self.published_since(bundle).is_none() => {
                self.published = Some((bundle.to_owned(), now));
            }
            Ok(_) => {}
            Err(_) => self.published = None,
        }
        result.map(|_| ())
    }

    /// Says whether there was anything to write.
    async fn put_out(&self, bundle: &str) -> Result<bool, TlsError> {
        let Some(client) = &self.client else { return Ok(false) };
        let mut changed = false;
        if let Some(configuration) = &self.places.configuration {
            changed |= publish::to_configuration(client, configuration, bundle).await?;
        }
        if let Some(config_map) = &self.places.config_map {
            changed |= publish::to_config_map(client, config_map, bundle).await?;
        }
        Ok(changed)
    }

    fn published_since(&self, bundle: &str) -> Option<Timestamp> {
        self.published
            .as_ref()
            .filter(|(published, _)| published == bundle)
            .map(|(_, since)| *since)
    }

    fn secrets(&self) -> Option<Api<Secret>> {
        self.client
            .clone()
            .map(|client| Api::namespaced(client, self.places.secret.namespace()))
    }

    fn problem(&self, verb: &'static str, error: &kube::Error) -> TlsError {
        TlsError::from_client(verb, self.secret(), error)
    }

    fn secret(&self) -> String {
        format!("Secret {}", self.places.secret)
    }
}

#[cfg(test)]
#[path = "custody_tests.rs"]
pub(super) mod tests;
