//! Where clients find the bundle of authorities they are to trust.
//!
//! API servers read it in a ValidatingWebhookConfiguration. Everybody else reads it in a ConfigMap, since the Secret has
//! private keys beside it. Writes are guarded by resourceVersion, and none is sent where nothing would change.

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::core::{ApiResource, DynamicObject};
use usher_engine::ObjectKey;

use super::custody::{is_ours, label_as_ours};
use super::error::TlsError;
use super::material::AUTHORITIES;

/// Replicas publish the same bundle at about the same time; who loses reads what the other wrote.
const TRIES: usize = 4;

fn params() -> PostParams {
    PostParams {
        field_manager: Some("usher".to_owned()),
        ..PostParams::default()
    }
}

/// Says whether there was anything to write.
pub(super) async fn to_configuration(client: &kube::Client, name: &str, bundle: &str) -> Result<bool, TlsError> {
    let problem = |verb, error: &kube::Error| {
        TlsError::from_client(verb, format!("ValidatingWebhookConfiguration {name}"), error)
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
    configurations
        .replace(name, &params(), &configuration)
        .await
        .map_err(|e| problem("replace", &e))?;
    tracing::info!(configuration = name, "tls: the bundle of authorities was published");
    Ok(true)
}

/// Says whether there was anything to write.
pub(super) async fn to_config_map(client: &kube::Client, key: &ObjectKey, bundle: &str) -> Result<bool, TlsError> {
    let object = format!("ConfigMap {key}");
    let problem = |verb, error: &kube::Error| TlsError::from_client(verb, object.clone(), error);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), key.namespace());
    for _ in 0..TRIES {
        let found = maps.get_opt(key.name()).await.map_err(|e| problem("read", &e))?;
        let there = found.is_some();
        let mut map = found.unwrap_or_else(|| ConfigMap {
            metadata: ObjectMeta {
                name: Some(key.name().to_owned()),
                namespace: Some(key.namespace().to_owned()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        });
        let data = map.data.get_or_insert_with(BTreeMap::new);
        if !is_ours(&map.metadata) && !data.is_empty() {
            return Err(TlsError::Foreign { object });
        }
        if data.get(AUTHORITIES).is_some_and(|published| published == bundle) {
            return Ok(false);
        }
        data.insert(AUTHORITIES.to_owned(), bundle.to_owned());
        label_as_ours(&mut map.metadata);
        let written = if there {
            maps.replace(key.name(), &params(), &map).await
        } else {
            maps.create(&params(), &map).await
        };
        match written {
            Ok(_) => {
                tracing::info!(config_map = %key, "tls: the bundle of authorities was published");
                return Ok(true);
            }
            Err(kube::Error::Api(status)) if status.code == 409 || (there && status.code == 404) => {}
            Err(error) => return Err(problem(if there { "replace" } else { "create" }, &error)),
        }
    }
    Err(TlsError::Contested { object })
}
