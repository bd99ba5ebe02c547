use serde_json::{Value, json};
use usher_embedded::registry::row::Columns;
use usher_embedded::schema::Schema;
use usher_embedded::schema::crd::{check_crd, default_crd, rows_of, warn_crd};

#[test]
fn d1_crds_are_answered_as_the_reference_answers_them() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("crds.json")).unwrap();
    let mut differences = Vec::new();
    for case in &cases {
        let mut crd = case["crd"].clone();
        default_crd(&mut crd);
        let mut errors: Vec<String> = check_crd(&crd, None).iter().map(ToString::to_string).collect();
        errors.sort();
        errors.dedup();
        let ours = if errors.is_empty() {
            let row = rows_of(&crd);
            assert!(row.is_ok(), "{}: {row:?}", case["name"]);
            let mut ours = json!({"code": 200});
            let warnings = warn_crd(&crd, None);
            if !warnings.is_empty() {
                ours["warnings"] = warnings.into();
            }
            ours
        } else {
            json!({"code": 422, "errors": errors})
        };
        let mut theirs = case["answer"].clone();
        if let Some(errors) = theirs.get_mut("errors").and_then(Value::as_array_mut) {
            // What a name may be is the registry's business.
            errors.retain(|error| {
                !(error.as_str().unwrap().starts_with("metadata.name:") && error.as_str().unwrap().contains("RFC 1123"))
            });
        }
        // Shown by the reference as its own type's fields, some hundred words for each node.
        let whole_schema = case["name"] == "status root keywords";
        if ours != theirs && !whole_schema {
            differences.push(format!("{}\n  theirs {theirs}\n  ours   {ours}", case["name"]));
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {} differ:\n{}",
        differences.len(),
        cases.len(),
        differences.join("\n")
    );
}

#[test]
fn d6_a_schema_is_published_as_the_reference_publishes_it() {
    let recorded: Value = serde_json::from_str(include_str!("published.json")).unwrap();
    let schema = Schema::parse(&recorded["schema"]).unwrap();
    assert_eq!(usher_embedded::api::openapi::published(&schema), recorded["published"]);
}

#[test]
fn d1_a_change_of_a_crd_keeps_its_identity() {
    let crd = |scope: &str, kind: &str, stored: Value, established: &str| {
        let mut crd = json!({
            "metadata": {"name": "things.t.example.com"},
            "spec": {
                "group": "t.example.com", "scope": scope, "names": {"plural": "things", "kind": kind},
                "versions": [{"name": "v2", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
            "status": {"storedVersions": stored, "conditions": [{"type": "Established", "status": established}]},
        });
        default_crd(&mut crd);
        crd
    };
    let texts = |new: &Value, old: &Value| -> Vec<String> {
        check_crd(new, Some(old)).iter().map(ToString::to_string).collect()
    };
    let old = crd("Cluster", "Thing", json!(["v2"]), "True");
    assert_eq!(texts(&old, &old), Vec::<String>::new());
    let moved = crd("Namespaced", "Other", json!(["v2"]), "True");
    assert_eq!(
        texts(&moved, &old),
        [
            "spec.scope: Invalid value: \"Namespaced\": field is immutable",
            "spec.names.kind: Invalid value: \"Other\": field is immutable",
        ]
    );
    let fresh = crd("Cluster", "Thing", json!(["v2"]), "False");
    assert_eq!(texts(&moved, &fresh), Vec::<String>::new(), "until it is established");
    let dropped = crd("Cluster", "Thing", json!(["v1", "v2"]), "True");
    assert!(
        texts(&dropped, &old)[0]
            .starts_with("status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions")
    );
    let webhook = {
        let mut crd = old.clone();
        crd["spec"]["conversion"] = json!({"strategy": "Webhook"});
        crd
    };
    assert!(
        texts(&webhook, &old)[0].starts_with("spec.conversion.strategy: Forbidden: conversion webhooks are not run")
    );
}

#[test]
fn d6_a_crd_becomes_a_row() {
    let crd = json!({
        "spec": {
            "group": "t.example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList", "shortNames": ["th"]},
            "versions": [
                {"name": "v1beta1", "served": false, "storage": false, "deprecated": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}},
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
                    "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
                    "selectableFields": [{"jsonPath": ".spec.a"}],
                    "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".spec.a", "priority": 1}]},
            ],
        },
    });
    let row = rows_of(&crd).unwrap();
    let [stable, beta] = row.versions.as_slice() else {
        panic!("two versions: {row:?}");
    };
    assert_eq!((&*stable.name, &*beta.name), ("v1", "v1beta1"), "newest first");
    assert!(stable.has_status && !beta.has_status);
    assert_eq!(&*stable.scale.as_ref().unwrap().spec_replicas, "spec.n");
    assert_eq!(&*stable.selectable[0], "spec.a");
    assert_eq!(
        beta.deprecated.as_deref(),
        Some("t.example.com/v1beta1 Thing is deprecated; use t.example.com/v1 Thing")
    );
    let Columns::Custom(columns) = &beta.columns else {
        panic!("columns of its own");
    };
    assert_eq!(
        columns[0].json_path, ".metadata.creationTimestamp",
        "age where none are named"
    );
}

/// The CRDs of a file of YAML documents.
fn crds_of(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple::<Value>(text)
        .unwrap()
        .into_iter()
        .filter(|document| document["kind"] == "CustomResourceDefinition")
        .collect()
}

#[test]
fn d1_our_own_crds_are_taken() {
    let crds = crds_of(include_str!("../../../../deploy/crds.yaml"));
    assert!(!crds.is_empty());
    for mut crd in crds {
        default_crd(&mut crd);
        let errors: Vec<String> = check_crd(&crd, None).iter().map(ToString::to_string).collect();
        assert!(errors.is_empty(), "{}: {errors:#?}", crd["metadata"]["name"]);
        assert_eq!(
            warn_crd(&crd, None),
            Vec::<String>::new(),
            "{}",
            crd["metadata"]["name"]
        );
        let row = rows_of(&crd).unwrap();
        assert!(row.versions.iter().any(|version| version.storage));
    }
}
