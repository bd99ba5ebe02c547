//! Keeping the certificates: in a Secret all replicas share, or in memory where there is no cluster to ask.
//!
//! One *look* reads the Secret, publishes its bundle, decides, writes, and looks again until there is nothing left to
//! do. Every write is guarded (create, or replace with resourceVersion), so of two replicas that look at once one wins
//! and the other reads what it wrote. If we die between two writes, the next look finds the Secret ahead of the
//! published bundle, which is the safe way round.

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::core::{ApiResource, DynamicObject};
use usher_engine::ObjectKey;

use super::decide::{Lifetimes, Verdict, Why, decide};
use super::error::WebhookError;
use super::issue;
use super::material::Material;
use super::names::Names;

/// Moves in one look. In quiet there are three at most; the rest is for losing to other replicas.
const MOVES: usize = 8;
/// On Secrets of ours. Others are not overwritten, whatever their name.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "usher");
const SECRET_TYPE: &str = "kubernetes.io/tls";

/// Where certificates are kept and published.
pub(super) struct Custody {
    client: Option<kube::Client>,
    secret: ObjectKey,
    configuration: Option<String>,
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
    pub(super) unpublished: Option<WebhookError>,
}

/// How a guarded write ended.
enum Written {
    Yes,
    /// Somebody else was first: look again.
    Raced,
}

impl Custody {
    pub(super) fn new(
        client: Option<kube::Client>,
        secret: ObjectKey,
        configuration: Option<String>,
        names: Names,
        lifetimes: Lifetimes,
    ) -> Self {
        Self {
            client,
            secret,
            configuration,
            names,
            lifetimes,
            remembered: None,
            published: None,
        }
    }

    /// Brings Secret and published bundle to where they should be at `now`.
    pub(super) async fn look(&mut self, now: Timestamp) -> Result<Look, WebhookError> {
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
                tracing::debug!(secret = %self.secret, "another replica was first; looking again");
            }
        }
        Err(WebhookError::Contested {
            secret: self.secret.clone(),
        })
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
        tracing::info!(secret = %self.secret, why, "webhook: making {what}");
    }

    async fn read(&self) -> Result<Option<Secret>, WebhookError> {
        let Some(secrets) = self.secrets() else { return Ok(None) };
        let found = secrets
            .get_opt(self.secret.name())
            .await
            .map_err(|e| self.problem("read", &e))?;
        let foreign = found.as_ref().is_some_and(|secret| {
            let labels = secret.metadata.labels.as_ref();
            let ours = labels
                .and_then(|l| l.get(MANAGED_BY.0))
                .is_some_and(|by| by == MANAGED_BY.1);
            !ours && secret.data.iter().flatten().any(|(_, value)| !value.0.is_empty())
        });
        if foreign {
            Err(WebhookError::Foreign {
                secret: self.secret.clone(),
            })
        } else {
            Ok(found)
        }
    }

    async fn write(&mut self, found: Option<Secret>, next: &Material) -> Result<Written, WebhookError> {
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
                name: Some(self.secret.name().to_owned()),
                namespace: Some(self.secret.namespace().to_owned()),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            ..Secret::default()
        });
        let labels = secret.metadata.labels.get_or_insert_default();
        labels.insert(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned());
        next.put_into(secret.data.get_or_insert_default());
        let written = if there {
            secrets.replace(self.secret.name(), &params, &secret).await
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
    async fn publish(&mut self, bundle: &str, now: Timestamp) -> Result<(), WebhookError> {
        let result = match (&self.client, &self.configuration) {
            (Some(client), Some(configuration)) => publish(client, configuration, bundle).await,
            _ => Ok(false),
        };
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

    fn published_since(&self, bundle: &str) -> Option<Timestamp> {
        self.published
            .as_ref()
            .filter(|(published, _)| published == bundle)
            .map(|(_, since)| *since)
    }

    fn secrets(&self) -> Option<Api<Secret>> {
        self.client
            .clone()
            .map(|client| Api::namespaced(client, self.secret.namespace()))
    }

    fn problem(&self, verb: &'static str, error: &kube::Error) -> WebhookError {
        WebhookError::from_client(verb, format!("Secret {}", self.secret), error)
    }
}

/// Says whether there was anything to write.
async fn publish(client: &kube::Client, name: &str, bundle: &str) -> Result<bool, WebhookError> {
    let problem = |verb, error: &kube::Error| {
        WebhookError::from_client(verb, format!("ValidatingWebhookConfiguration {name}"), error)
    };
    // As a dynamic object: a replace must carry every field, those of newer API servers too.
    let kind = ApiResource::erase::<ValidatingWebhookConfiguration>(&());
    let configurations: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let mut configuration = configurations.get(name).await.map_err(|e| problem("read", &e))?;
    let wanted = serde_json::to_value(k8s_openapi::ByteString(bundle.as_bytes().to_vec()));
    let wanted = wanted.map_err(|e| problem("replace", &kube::Error::SerdeError(e)))?;
    let mut changed = false;
    let webhooks = configuration
        .data
        .get_mut("webhooks")
        .and_then(|webhooks| webhooks.as_array_mut());
    for config in webhooks
        .into_iter()
        .flatten()
        .filter_map(|webhook| webhook.get_mut("clientConfig"))
    {
        if let Some(config) = config
            .as_object_mut()
            .filter(|config| config.get("caBundle") != Some(&wanted))
        {
            config.insert("caBundle".to_owned(), wanted.clone());
            changed = true;
        }
    }
    if !changed {
        return Ok(false);
    }
    let params = PostParams {
        field_manager: Some("usher".to_owned()),
        ..PostParams::default()
    };
    configurations
        .replace(name, &params, &configuration)
        .await
        .map_err(|e| problem("replace", &e))?;
    tracing::info!(configuration = name, "webhook: the bundle of authorities was published");
    Ok(true)
}

#[cfg(test)]
#[path = "custody_tests.rs"]
mod tests;
