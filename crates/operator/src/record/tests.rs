//! What every record begins with, and what is said of an object that lacks it.

use serde_json::{Value, json};

use super::*;

#[derive(Debug, PartialEq)]
struct Bare(Meta);

impl Record for Bare {
    const TYPE: ApiType = ApiType {
        group: "test.usher.dev",
        version: "v1",
        kind: "Bare",
        plural: "bares",
    };

    fn read(meta: Meta, _: &DynamicObject) -> Result<Self, String> {
        Ok(Self(meta))
    }

    fn meta(&self) -> &Meta {
        &self.0
    }
}

fn object(change: impl FnOnce(&mut Value)) -> DynamicObject {
    let mut object = json!({"apiVersion": "test.usher.dev/v1", "kind": "Bare", "metadata": {
        "namespace": "ns", "name": "x", "uid": "u-1", "resourceVersion": "42", "generation": 3,
        "creationTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["test.usher.dev/f"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pool", "name": "p", "uid": "u-0"}],
    }});
    change(&mut object);
    serde_json::from_value(object).unwrap()
}

#[test]
fn metadata_is_read_whole() {
    let Bare(meta) = read(&object(|_| {})).unwrap();
    assert_eq!(
        (
            meta.key.to_string().as_str(),
            meta.uid.to_string().as_str(),
            meta.revision
        ),
        ("ns/x", "u-1", 42)
    );
    assert_eq!(
        (meta.generation, meta.deleting, meta.status_hash.as_ref()),
        (3, None, None)
    );
    assert!(meta.has_finalizer("test.usher.dev/f") && !meta.has_finalizer("test.usher.dev/g"));
    assert!(
        meta.owned_by(&"u-0".into()) && !meta.owned_by(&"p".into()),
        "by uid, not by name"
    );
    let Bare(leaving) = read(&object(|o| {
        o["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:06Z")
    }))
    .unwrap();
    assert!(leaving.deleting.is_some());
}

#[test]
fn what_is_missing_is_named() {
    for (pointer, value, sentence) in [
        (
            "namespace",
            Value::Null,
            "Bare ?/x cannot be read: object \"x\" has no namespace",
        ),
        (
            "name",
            Value::Null,
            "Bare ns/? cannot be read: a reference in namespace \"ns\" is empty",
        ),
        ("uid", Value::Null, "Bare ns/x cannot be read: metadata.uid is missing"),
        (
            "resourceVersion",
            json!("abc"),
            "metadata.resourceVersion \"abc\" is no number",
        ),
        (
            "creationTimestamp",
            Value::Null,
            "metadata.creationTimestamp is missing",
        ),
    ] {
        let error = read::<Bare>(&object(|o| o["metadata"][pointer] = value))
            .unwrap_err()
            .to_string();
        assert!(error.contains(sentence), "{error}");
        assert!(error.ends_with("correct the object or delete it"), "{error}");
    }
}

/// Whether a planned status says something new is decided by this hash alone.
#[test]
fn a_status_is_known_by_what_it_says() {
    let hash = |status: Value| read::<Bare>(&object(|o| o["status"] = status)).unwrap().0.status_hash;
    assert_eq!(hash(Value::Null), None);
    assert_eq!(hash(json!({"a": 1, "b": null})), hash(json!({"a": 1})));
    assert_ne!(hash(json!({"a": 1})), hash(json!({"a": 2})));
    assert_eq!(
        hash(json!({"a": [1], "b": {"c": 1, "d": 2}})),
        hash(json!({"b": {"d": 2, "c": 1}, "a": [1]}))
    );
}

#[test]
fn a_type_is_named_as_the_api_names_it() {
    let core = ApiType {
        group: "",
        version: "v1",
        kind: "ConfigMap",
        plural: "configmaps",
    };
    assert_eq!(core.api_version(), "v1");
    assert_eq!(Bare::TYPE.api_version(), "test.usher.dev/v1");
    assert_eq!(Bare::TYPE.resource().plural, "bares");
}
