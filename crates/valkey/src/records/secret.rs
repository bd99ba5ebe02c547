//! A Secret: which keys it has, and whether two of them say the same. What they say is never kept.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::ByteString;
use kube::api::DynamicObject;
use serde_json::Value;
use usher_engine::Text;
use usher_engine::hash::CanonicalHash;
use usher_operator::record::{ApiType, Meta, Record};

use super::{SECRETS, made_for, text};
use crate::api::annotations::APPLIED;
use crate::json::at;

/// Values beyond this are no passwords and no configurations of ours; releases of package managers are.
const LONGEST: usize = 256 * 1024;

/// A Secret.
#[derive(Debug, Clone, PartialEq)]
pub struct SecretRecord {
    /// Metadata.
    pub meta: Meta,
    /// The cluster it says it is of, where Usher made it.
    pub cluster: Option<Text>,
    /// What it was made as, where Usher made it.
    pub applied: Option<Text>,
    keys: BTreeMap<Text, Digest>,
}

/// Tells whether two values are the same, and nothing else of them; not in logs either.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest(Option<CanonicalHash>);

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(…)")
    }
}

impl Digest {
    /// Of a value as Secrets hold it.
    pub fn of(value: &[u8]) -> Self {
        let encoded = serde_json::to_value(ByteString(value.to_vec()));
        Self(encoded.ok().map(|encoded| CanonicalHash::of_json(&encoded)))
    }

    fn of_encoded(value: &Value) -> Self {
        let short = value.as_str().is_some_and(|text| text.len() <= LONGEST);
        Self(short.then(|| CanonicalHash::of_json(value)))
    }

    /// Whether both are known, and the same.
    pub fn same(self, other: Self) -> bool {
        self.0.is_some() && self == other
    }
}

impl Record for SecretRecord {
    const TYPE: ApiType = SECRETS;

    fn read(meta: Meta, object: &DynamicObject) -> Result<Self, String> {
        let data = at(&object.data, &["data"]).as_object().into_iter().flatten();
        Ok(Self {
            cluster: made_for(object).map(Into::into),
            applied: text(&object.metadata.annotations, APPLIED).map(Into::into),
            keys: data
                .map(|(key, value)| (key.as_str().into(), Digest::of_encoded(value)))
                .collect(),
            meta,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl SecretRecord {
    /// What stands for a key's value; `None` where there is no such key.
    pub fn digest(&self, key: &str) -> Option<Digest> {
        self.keys.get(key).copied()
    }

    /// Its keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(Text::as_str)
    }
}
