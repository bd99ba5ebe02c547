//! Each namespace has a ConfigMap `kube-root-ca.crt` (C2): whom a pod is to believe when it calls the API.
//!
//! The authority is the listener's, made before there is one ([`crate::serve::certificate::Authority`]).
//! [`crate::Cluster::listen`] calls [`republish`] when it had to make another; a sync that writes an old one meanwhile sees
//! its own write, and looks again.

use std::collections::BTreeMap;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::accounts::is_open;
use super::hand::{annotation, changed, made, name_of};
use super::tokens::{self, AUTHORITY};
use super::{Census, Control, Hand, Next, Wishes};
use crate::fault::Fault;
use crate::registry::object;
use crate::store::{Entry, Key, LogEntry};

const NAME: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
/// The reference's words, which users see in `kubectl describe`.
const WORDS: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as \
    the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes \
    clusters.";

/// Keys are names of namespaces.
#[derive(Debug, Default)]
pub(super) struct RootCertificates;

impl Control for RootCertificates {
    fn begin(&mut self, hand: &Hand, _: &[Entry], _: &Census, wishes: &mut Wishes) {
        for namespace in hand.mirror.namespaces.list(None) {
            wishes.sync(name_of(&namespace.metadata));
        }
    }

    fn see(&mut self, _: &Hand, line: &LogEntry, _: &Census, wishes: &mut Wishes) {
        match (line.key.group(), line.key.resource()) {
            ("", "namespaces") => wishes.sync(line.key.name()),
            ("", "configmaps") if line.key.name() == NAME => wishes.sync(line.key.namespace().unwrap_or_default()),
            _ => {}
        }
    }

    fn sync<'a>(&'a mut self, hand: &'a Hand, key: &'a str, _: &'a mut Wishes) -> BoxFuture<'a, Result<Next, Fault>> {
        async move {
            if !hand
                .mirror
                .namespaces
                .get(None, key)
                .is_some_and(|found| is_open(&found))
            {
                return Ok(Next::Done);
            }
            let found = hand.mirror.config_maps.get(Some(key), NAME);
            let authority = hand.settings.security.authority.pem();
            match found {
                None => made(hand.make(Some(key), &wanted(&authority)).await)?,
                Some(found) if is_right(&found, &authority) => {}
                Some(found) => changed(hand.put(Some(key), NAME, "", &mended(&found, &authority)).await)?,
            }
            Ok(Next::Done)
        }
        .boxed()
    }
}

fn wanted(authority: &str) -> ConfigMap {
    mended(&ConfigMap::default(), authority)
}

fn is_right(found: &ConfigMap, authority: &str) -> bool {
    let only = BTreeMap::from([(AUTHORITY.to_owned(), authority.to_owned())]);
    found.data.as_ref() == Some(&only)
        && found.binary_data.is_none()
        && annotation(&found.metadata, DESCRIPTION).is_some_and(|words| !words.is_empty())
}

fn mended(found: &ConfigMap, authority: &str) -> ConfigMap {
    let mut annotations = found.metadata.annotations.clone().unwrap_or_default();
    annotations.insert(DESCRIPTION.to_owned(), WORDS.to_owned());
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            annotations: Some(annotations),
            ..found.metadata.clone()
        },
        data: Some(BTreeMap::from([(AUTHORITY.to_owned(), authority.to_owned())])),
        ..ConfigMap::default()
    }
}

/// Puts the authority wherever an older one is told: in ConfigMaps and in token Secrets.
pub(crate) async fn republish(hand: &Hand) {
    let authority = hand.settings.security.authority.pem();
    let change = json!({"data": {AUTHORITY: &*authority}});
    for (key, told) in everywhere::<ConfigMap, _>(hand, "configmaps", |map| {
        let is_ours = name_of(&map.metadata) == NAME;
        is_ours.then(|| {
            map.data
                .and_then(|data| data.get(AUTHORITY).cloned())
                .unwrap_or_default()
        })
    }) {
        if told != *authority {
            say(hand, &key, change.clone()).await;
        }
    }
    let bytes = k8s_openapi::ByteString(authority.as_bytes().to_vec());
    let change = json!({"data": {AUTHORITY: bytes}});
    for (key, told) in everywhere::<Secret, _>(hand, "secrets", |secret| {
        tokens::is_token(&secret).then(|| secret.data.and_then(|data| data.get(AUTHORITY).cloned()))
    }) {
        // One that has none yet is filled as a whole.
        if told.is_some_and(|told| told.0 != bytes.0) {
            say(hand, &key, change.clone()).await;
        }
    }
}

/// What there is to know of all objects of a kind, read from the store: whoever listens has no mirror.
fn everywhere<K: serde::de::DeserializeOwned, T>(
    hand: &Hand,
    plural: &str,
    told: impl Fn(K) -> Option<T>,
) -> Vec<(Key, T)> {
    let Ok(page) = hand.registry.store.list(&Key::prefix("", plural, None), None, None, 0) else {
        return Vec::new();
    };
    page.entries
        .iter()
        .filter_map(|entry| {
            let object = object::decode(entry).ok()?;
            Some((entry.key.clone(), told(serde_json::from_value(object).ok()?)?))
        })
        .collect()
}

async fn say(hand: &Hand, key: &Key, change: serde_json::Value) {
    let Some(target) = hand.target(key) else { return };
    if let Err(why) = hand.patch(&target, "", change).await {
        tracing::warn!(%key, %why, "the new certificate authority could not be told");
    }
}
