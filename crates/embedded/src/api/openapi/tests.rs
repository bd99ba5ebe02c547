//! Against a recording of kube-apiserver 1.36.3 (`tests/print/openapi-1.36.json`: selected paths and definitions without
//! their texts), with hand-made schemas for what k8s-openapi does not say.

use super::*;
use crate::api::discovery::tests::rows as discovered;
use crate::schema::{Additional, Bounds, ListType, Type};

const RECORDED: &str = include_str!("../../../tests/print/openapi-1.36.json");

fn recorded() -> Value {
    serde_json::from_str(RECORDED).unwrap()
}

fn node(kind: Type) -> Schema {
    Schema {
        kind: Some(kind),
        ..Schema::default()
    }
}

fn object(properties: Vec<(&str, Schema)>) -> Schema {
    Schema {
        properties: properties
            .into_iter()
            .map(|(name, schema)| (name.into(), Arc::new(schema)))
            .collect(),
        ..node(Type::Object)
    }
}

fn list(items: Schema) -> Schema {
    Schema {
        items: Some(Arc::new(items)),
        ..node(Type::Array)
    }
}

fn map_list(key: &str, strategy: &str, items: Schema) -> Schema {
    Schema {
        list_type: ListType::Map,
        list_map_keys: vec![key.into()],
        patch_merge_key: Some(key.into()),
        patch_strategy: Some(strategy.into()),
        ..list(items)
    }
}

fn deployment() -> Schema {
    let selector = Schema {
        atomic_map: true,
        ..object(vec![
            (
                "matchExpressions",
                list(object(vec![("values", list(node(Type::String)))])),
            ),
            ("matchLabels", node(Type::Object)),
        ])
    };
    let strategy = Schema {
        patch_strategy: Some("retainKeys".into()),
        ..object(vec![])
    };
    let protocol = Schema {
        default: Some("TCP".into()),
        ..node(Type::String)
    };
    let port = Schema {
        list_map_keys: vec!["containerPort".into(), "protocol".into()],
        patch_merge_key: Some("containerPort".into()),
        ..map_list("containerPort", "merge", object(vec![("protocol", protocol)]))
    };
    let pod = object(vec![
        ("containers", map_list("name", "merge", object(vec![("ports", port)]))),
        ("tolerations", list(object(vec![]))),
        (
            "nodeSelector",
            Schema {
                atomic_map: true,
                additional: Additional::Schema(Arc::new(node(Type::String))),
                ..node(Type::Object)
            },
        ),
    ]);
    object(vec![(
        "spec",
        object(vec![
            ("selector", selector),
            ("strategy", strategy),
            ("template", object(vec![("spec", pod)])),
        ]),
    )])
}

/// The recorded definition's own schema.
fn widget() -> Schema {
    let text = node(Type::String);
    let i = Schema {
        format: Some("int32".into()),
        default: Some(7.into()),
        bounds: Some(Box::new(Bounds {
            minimum: Some(1.into()),
            ..Bounds::default()
        })),
        ..node(Type::Integer)
    };
    let nl = Schema {
        nullable: true,
        bounds: Some(Box::new(Bounds {
            pattern: Some("^a".into()),
            allowed: vec!["a".into(), "b".into()],
            ..Bounds::default()
        })),
        ..text.clone()
    };
    let ports = Schema {
        list_type: ListType::Map,
        list_map_keys: vec!["name".into()],
        ..list(Schema {
            required: vec!["name".into()],
            ..object(vec![("name", text)])
        })
    };
    let q = Schema {
        int_or_string: true,
        ..Schema::default()
    };
    let any = Schema {
        preserve_unknown: true,
        ..node(Type::Object)
    };
    let raw = Schema {
        embedded_resource: true,
        ..any.clone()
    };
    let spec = Schema {
        preserve_unknown: true,
        ..object(vec![("i", i), ("nl", nl), ("ports", ports), ("q", q), ("raw", raw)])
    };
    Schema {
        description: Some("A thing.".into()),
        ..object(vec![("spec", spec), ("status", any)])
    }
}

fn rows() -> Vec<Arc<Row>> {
    let mut rows = discovered();
    for row in &mut rows {
        let row = Arc::make_mut(row);
        let schema = match &*row.kind {
            "Deployment" => deployment(),
            "Widget" => widget(),
            _ => continue,
        };
        let schema = Arc::new(schema);
        row.versions
            .iter_mut()
            .for_each(|version| version.schema = schema.clone());
    }
    rows
}

fn document(rows: &[Arc<Row>], path: &str) -> Value {
    let (group, version) = match path.strip_prefix("apis/") {
        Some(rest) => rest.split_once('/').unwrap(),
        None => ("", "v1"),
    };
    let document = Documents::new(|_| None).document(rows, group, version).unwrap();
    serde_json::from_slice(&document.body).unwrap()
}

fn without_texts(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(key, value)| !(*key == "description" && value.is_string()))
            .map(|(key, value)| (key.clone(), without_texts(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_texts).collect(),
        other => other.clone(),
    }
}

/// An operation without its texts, in the recording's form.
fn skeleton(item: &Value) -> Value {
    let content = |content: &Value| -> Value {
        let types = content.as_object().into_iter().flatten();
        types
            .map(|(media, body)| {
                let schema = &body["schema"];
                (
                    media.clone(),
                    schema.get("$ref").or(schema.get("type")).cloned().unwrap(),
                )
            })
            .collect::<Map<String, Value>>()
            .into()
    };
    let names = |parameters: &Value| -> Value {
        let all = parameters.as_array().into_iter().flatten();
        all.map(|parameter| parameter["name"].clone()).collect()
    };
    let mut all = Map::new();
    for (method, operation) in item.as_object().unwrap() {
        if method == "parameters" {
            all.insert(method.clone(), names(operation));
            continue;
        }
        let answers: Map<String, Value> = operation["responses"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(code, answer)| (code.clone(), content(&answer["content"])))
            .collect();
        let mut body = json!({
            "id": operation["operationId"],
            "tags": operation["tags"],
            "action": operation["x-kubernetes-action"],
            "kind": operation["x-kubernetes-group-version-kind"],
            "parameters": names(&operation["parameters"]),
            "answers": answers,
        });
        if let Some(request) = operation.get("requestBody") {
            body["body"] = content(&request["content"]);
            body["required"] = request.get("required").cloned().unwrap_or(false.into());
        }
        all.insert(method.clone(), body);
    }
    all.into()
}

#[test]
fn a4_paths_have_the_references_operations_parameters_and_media_types() {
    let rows = rows();
    for (name, paths) in recorded()["paths"].as_object().unwrap() {
        let ours = document(&rows, name);
        for (path, item) in paths.as_object().unwrap() {
            assert_eq!(&skeleton(&ours["paths"][path]), item, "{path}");
        }
    }
}

#[test]
fn a4_definitions_are_the_references_with_their_merge_facts() {
    let rows = rows();
    for (name, schemas) in recorded()["schemas"].as_object().unwrap() {
        let ours = document(&rows, name);
        for (component, schema) in schemas.as_object().unwrap() {
            assert_eq!(
                &without_texts(&ours["components"]["schemas"][component]),
                schema,
                "{component}"
            );
        }
    }
}

#[test]
fn a4_every_definition_has_a_name_of_the_reference_and_every_reference_a_definition() {
    let rows = rows();
    for (name, known) in recorded()["names"].as_object().unwrap() {
        let ours = document(&rows, name);
        for component in ours["components"]["schemas"].as_object().unwrap().keys() {
            assert!(
                known.as_array().unwrap().iter().any(|name| name == component),
                "{component}"
            );
        }
    }
    for (group, version) in discovery::group_versions(&rows) {
        let ours = document(&rows, &path_of(group, version));
        let schemas = ours["components"]["schemas"].as_object().unwrap();
        for reference in definitions::references(&ours) {
            assert!(schemas.contains_key(&reference), "{group}/{version}: {reference}");
        }
    }
}

#[test]
fn z1_every_field_of_a_built_in_kind_has_a_text() {
    let rows = rows();
    for (group, version) in discovery::group_versions(&rows) {
        let ours = document(&rows, &path_of(group, version));
        for (name, schema) in ours["components"]["schemas"].as_object().unwrap() {
            if !name.starts_with("io.k8s.api.") {
                continue;
            }
            for (field, value) in schema["properties"].as_object().into_iter().flatten() {
                assert!(
                    value["description"].as_str().is_some_and(|text| !text.is_empty()),
                    "{name}.{field}"
                );
            }
        }
    }
}

#[test]
fn a4_facts_reach_lists_and_maps_below_references() {
    let ours = document(&rows(), "apis/apps/v1");
    let pod = &ours["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"];
    assert_eq!(pod["containers"]["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(pod["containers"]["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(pod["containers"]["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(pod["tolerations"]["x-kubernetes-list-type"], "atomic");
    assert_eq!(pod["nodeSelector"]["x-kubernetes-map-type"], "atomic");
    let container = &ours["components"]["schemas"]["io.k8s.api.core.v1.Container"]["properties"];
    assert_eq!(
        container["ports"]["x-kubernetes-list-map-keys"],
        json!(["containerPort", "protocol"])
    );
}

#[test]
fn a4_definitions_beside_the_kinds_get_their_facts_by_name() {
    let definition: Definition = |name| match name {
        definitions::DELETE_OPTIONS => Some(Arc::new(object(vec![("dryRun", list(node(Type::String)))]))),
        _ => None,
    };
    let document = Documents::new(definition).document(&rows(), "apps", "v1").unwrap();
    let ours: Value = serde_json::from_slice(&document.body).unwrap();
    let options = &ours["components"]["schemas"][definitions::DELETE_OPTIONS];
    assert_eq!(options["properties"]["dryRun"]["x-kubernetes-list-type"], "atomic");
    assert_eq!(
        options["x-kubernetes-group-version-kind"],
        json!([{"group": "", "version": "v1", "kind": "DeleteOptions"}, {"group": "apps", "version": "v1", "kind": "DeleteOptions"}])
    );
}

#[test]
fn a3_the_index_names_every_group_version_with_a_hash_that_follows_its_rows() {
    let documents = Documents::new(|_| None);
    let rows = rows();
    let index = documents.index(&rows);
    let address = |index: &Value, path: &str| index["paths"][path]["serverRelativeURL"].as_str().unwrap().to_owned();
    let of_widgets = address(&index, "apis/b.example.org/v1");
    assert!(of_widgets.starts_with("/openapi/v3/apis/b.example.org/v1?hash="));
    let document = documents.document(&rows, "b.example.org", "v1").unwrap();
    assert_eq!(of_widgets, super::address("b.example.org", "v1", &document.hash));
    let mut changed = rows.clone();
    for row in &mut changed {
        if &*row.kind == "Widget" {
            Arc::make_mut(row)
                .versions
                .iter_mut()
                .for_each(|version| version.schema = Arc::new(object(vec![])));
        }
    }
    let after = documents.index(&changed);
    assert_ne!(address(&after, "apis/b.example.org/v1"), of_widgets);
    assert_eq!(address(&after, "apis/apps/v1"), address(&index, "apis/apps/v1"));
    // The document follows as well, and an unchanged one is the same bytes.
    let other = documents.document(&changed, "b.example.org", "v1").unwrap();
    assert_ne!(other.body, document.body);
    let again = documents.document(&changed, "b.example.org", "v1").unwrap();
    assert_eq!(again.body.as_ptr(), other.body.as_ptr());
    assert!(documents.document(&rows, "nowhere", "v1").is_none());
}

#[test]
fn every_field_of_a_schema_is_published() {
    let rule = crate::schema::Rule {
        rule: "self > 0".into(),
        message: Some("m".into()),
        message_expression: Some("e".into()),
        reason: Some("FieldValueInvalid".into()),
        field_path: Some(".x".into()),
        optional_old_self: true,
    };
    let bounds = Bounds {
        maximum: Some(9.into()),
        exclusive_maximum: true,
        minimum: Some(1.into()),
        exclusive_minimum: true,
        multiple_of: Some(2.into()),
        max_length: Some(1),
        min_length: Some(2),
        pattern: Some("p".into()),
        max_items: Some(3),
        min_items: Some(4),
        unique_items: true,
        max_properties: Some(5),
        min_properties: Some(6),
        allowed: vec![1.into()],
        all_of: vec![node(Type::String)],
        any_of: vec![node(Type::Number)],
        one_of: vec![node(Type::Boolean)],
        not: Some(Box::new(node(Type::Array))),
    };
    let x = Schema {
        bounds: Some(Box::new(bounds)),
        rules: vec![rule],
        list_type: ListType::Set,
        ..list(node(Type::String))
    };
    let y = Schema {
        additional: Additional::Any,
        atomic_map: true,
        ..node(Type::Object)
    };
    let published = custom::kind(&object(vec![("x", x), ("y", y)]));
    assert_eq!(
        published["properties"]["x"],
        json!({
            "type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set",
            "maximum": 9, "exclusiveMaximum": true, "minimum": 1, "exclusiveMinimum": true, "multipleOf": 2,
            "maxLength": 1, "minLength": 2, "pattern": "p", "maxItems": 3, "minItems": 4, "uniqueItems": true,
            "maxProperties": 5, "minProperties": 6, "enum": [1],
            "allOf": [{"type": "string"}], "anyOf": [{"type": "number"}], "oneOf": [{"type": "boolean"}],
            "not": {"type": "array"},
            "x-kubernetes-validations": [{"rule": "self > 0", "message": "m", "messageExpression": "e",
                "reason": "FieldValueInvalid", "fieldPath": ".x", "optionalOldSelf": true}],
        })
    );
    assert_eq!(
        published["properties"]["y"],
        json!({"type": "object", "additionalProperties": true, "x-kubernetes-map-type": "atomic"})
    );
}
