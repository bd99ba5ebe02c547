//! The Secret `<cluster>-config`: what servers are configured by, and the password in force.
//!
//! The password is a copy, made once: an edit of the user's Secret cannot split the cluster. Each revision of the spec has
//! its own configuration, kept as long as a pod of it is there: a server that is restarted by chance in the middle of a roll
//! comes back with what it had.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use usher_engine::Text;

use super::{Map, conf, owned, revision, signed};
use crate::api::annotations::APPLIED;
use crate::json::{at, put};
use crate::records::secret::Digest;
use crate::records::{ClusterRecord, SECRETS, SecretRecord};

/// The key of the password.
pub const PASSWORD: &str = "password";
/// The key and the file of what servers are told of the password.
pub const AUTH: &str = "auth.conf";

/// The key of a revision's configuration.
pub fn conf_key(revision: &str) -> String {
    format!("{revision}.conf")
}

/// What a Secret holds, by key.
pub type Data = BTreeMap<String, ByteString>;

/// Without what is secret in it: what it is signed for, and what plans may know.
fn open(cluster: &ClusterRecord) -> Value {
    let mut secret = owned(cluster, SECRETS, &cluster.config_secret(), &[], &Map::new());
    put(&mut secret, &["type"], "Opaque");
    let rendered = json!({conf_key(&revision(cluster)): ByteString(conf::render(cluster).into_bytes())});
    put(&mut secret, &["data"], rendered);
    signed(secret)
}

/// The Secret. `found` is what it holds now, `in_use` the revisions whose pods are there, `password` the one in force.
pub fn secret(cluster: &ClusterRecord, found: &Data, in_use: &BTreeSet<Text>, password: Option<&[u8]>) -> Value {
    let mut secret = open(cluster);
    let mut put = |key: String, value: ByteString| {
        if let Some(data) = secret.get_mut("data").and_then(Value::as_object_mut) {
            data.entry(key).or_insert_with(|| json!(value));
        }
    };
    for key in in_use.iter().map(|revision| conf_key(revision)) {
        if let Some(kept) = found.get(&key) {
            put(key, kept.clone());
        }
    }
    if let Some(password) = password {
        put(PASSWORD.into(), ByteString(password.to_vec()));
        put(
            AUTH.into(),
            ByteString(conf::render_auth(cluster, password).into_bytes()),
        );
    }
    secret
}

/// Whether the Secret is as it should be, as far as can be told without looking at secrets.
pub fn is_settled(cluster: &ClusterRecord, found: &SecretRecord) -> bool {
    let wanted = open(cluster);
    let signature = at(&wanted, &["metadata", "annotations", APPLIED]).as_str();
    let conf = found.digest(&conf_key(&revision(cluster)));
    let conf_is = conf.is_some_and(|conf| conf.same(Digest::of(conf::render(cluster).as_bytes())));
    let auth = cluster.spec.auth.is_none() || [PASSWORD, AUTH].iter().all(|key| found.digest(key).is_some());
    found.meta.owned_by(&cluster.meta.uid) && found.applied.as_deref() == signature && conf_is && auth
}
