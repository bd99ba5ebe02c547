//! Objects as they arrive, without what nobody reads.
//!
//! Half of an object's text is `managedFields`. kube's `DynamicObject` keeps them, and collects an object's other fields in
//! two detours; a start reads every object there is, so this is where its time goes. An [`Arrived`] is read straight into
//! the same `DynamicObject`, less than half as dear.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::api::{DynamicObject, ListMeta, TypeMeta};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};
use usher_engine::hash::CanonicalHash;

/// One object of a list or a watch.
#[derive(Debug, Clone)]
pub(crate) struct Arrived(pub(crate) Box<DynamicObject>);

/// One page of a list.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct Page {
    #[serde(default)]
    pub(crate) metadata: ListMeta,
    pub(crate) items: Vec<Arrived>,
}

/// What is read of the answer to a write.
#[derive(Debug, Clone, serde::Deserialize)]
pub(crate) struct Stored {
    #[serde(default)]
    metadata: Version,
    #[serde(default)]
    status: Option<Value>,
}

#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    resource_version: Option<String>,
}

impl Stored {
    /// The object's version; 0 where it has none.
    pub(crate) fn revision(&self) -> u64 {
        let version = self.metadata.resource_version.as_deref();
        version.and_then(|version| version.parse().ok()).unwrap_or(0)
    }

    /// Hash of the status as it is stored.
    pub(crate) fn status_hash(&self) -> Option<CanonicalHash> {
        self.status.as_ref().map(CanonicalHash::of_json)
    }
}

/// The metadata that records are made of, and what kinds may ask for besides.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
}

impl From<Metadata> for ObjectMeta {
    fn from(read: Metadata) -> Self {
        Self {
            name: read.name,
            namespace: read.namespace,
            uid: read.uid,
            resource_version: read.resource_version,
            generation: read.generation,
            creation_timestamp: read.creation_timestamp,
            deletion_timestamp: read.deletion_timestamp,
            deletion_grace_period_seconds: read.deletion_grace_period_seconds,
            labels: read.labels,
            annotations: read.annotations,
            owner_references: read.owner_references,
            finalizers: read.finalizers,
            ..Self::default()
        }
    }
}

impl<'de> Deserialize<'de> for Arrived {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Arrived;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Arrived, A::Error> {
        let (mut api_version, mut kind) = (None, None);
        let mut metadata = ObjectMeta::default();
        let mut data = Map::new();
        while let Some(field) = fields.next_key::<String>()? {
            match field.as_str() {
                "apiVersion" => api_version = fields.next_value()?,
                "kind" => kind = fields.next_value()?,
                "metadata" => metadata = fields.next_value::<Metadata>()?.into(),
                _ => drop(data.insert(field, fields.next_value()?)),
            }
        }
        let types = match (api_version, kind) {
            (Some(api_version), Some(kind)) => Some(TypeMeta { api_version, kind }),
            _ => None,
        };
        Ok(Arrived(Box::new(DynamicObject {
            types,
            metadata,
            data: Value::Object(data),
        })))
    }
}

#[cfg(test)]
mod tests {
    use kube::api::WatchEvent;
    use serde_json::json;

    use super::*;

    fn object() -> Value {
        json!({
            "apiVersion": "test.usher.dev/v1", "kind": "Thing",
            "metadata": {
                "name": "n", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 2,
                "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:04:06Z",
                "deletionGracePeriodSeconds": 0, "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["f"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pool", "name": "p", "uid": "u-0", "controller": true}],
            },
            "spec": {"x": [1, null, {"y": "z"}]}, "status": {"phase": "Bound"}, "extra": 7,
        })
    }

    /// Whatever a record may ask of an object is there as kube would read it.
    #[test]
    fn an_object_is_read_as_kube_reads_it_without_its_managed_fields() {
        let mut sent = object();
        let plain: DynamicObject = serde_json::from_value(sent.clone()).unwrap();
        let fields = json!([{"manager": "m", "operation": "Update", "fieldsV1": {"f:spec": {"f:x": {}}}}]);
        sent["metadata"]["managedFields"] = fields;
        for text in [sent.to_string(), json!({"type": "ADDED", "object": sent}).to_string()] {
            let read = match serde_json::from_str::<WatchEvent<Arrived>>(&text) {
                Ok(WatchEvent::Added(Arrived(object))) => object,
                _ => serde_json::from_str::<Arrived>(&text).unwrap().0,
            };
            assert_eq!(*read, plain);
        }
        let bare: DynamicObject = serde_json::from_value(json!({"metadata": {}})).unwrap();
        let read: Arrived = serde_json::from_value(json!({"metadata": {}})).unwrap();
        assert_eq!((read.0.types, read.0.metadata), (bare.types, bare.metadata));
    }

    #[test]
    fn a_page_has_its_items_and_where_it_goes_on() {
        let page = json!({"apiVersion": "v1", "kind": "List", "items": [object()],
                          "metadata": {"continue": "more", "resourceVersion": "9"}});
        let page: Page = serde_json::from_value(page).unwrap();
        assert_eq!(
            (page.items.len(), page.metadata.continue_.as_deref()),
            (1, Some("more"))
        );
    }

    #[test]
    fn an_answer_tells_version_and_status() {
        let stored: Stored = serde_json::from_value(object()).unwrap();
        let hash = CanonicalHash::of(&json!({"phase": "Bound"})).unwrap();
        assert_eq!((stored.revision(), stored.status_hash()), (7, Some(hash)));
        let bare: Stored = serde_json::from_value(json!({"kind": "Thing", "status": null})).unwrap();
        assert_eq!((bare.revision(), bare.status_hash()), (0, None));
    }

    #[test]
    fn nonsense_is_no_object() {
        for text in ["7", "[]", r#"{"metadata": 7}"#, r#"{"metadata": {"generation": "x"}}"#] {
            assert!(serde_json::from_str::<Arrived>(text).is_err(), "{text}");
        }
    }
}
