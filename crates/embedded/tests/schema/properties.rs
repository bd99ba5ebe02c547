use proptest::prelude::*;
use serde_json::{Map, Value, json};
use usher_embedded::schema::cel::Rules;
use usher_embedded::schema::{self, Schema, crd, jsonpath};

/// Names that schemas and objects share, so that they meet.
fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "metadata", "kind", "spec", "x-y"]).prop_map(str::to_owned)
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-5i64..5).prop_map(Value::from),
        (-5.0f64..5.0).prop_map(Value::from),
        "[ab]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// A default that its scalar schema takes.
fn scalar_schema() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(|nullable| json!({"type": "string", "maxLength": 2, "nullable": nullable})),
        Just(json!({"type": "string", "default": "b", "enum": ["a", "b"]})),
        Just(json!({"type": "integer", "minimum": -2, "default": 1})),
        Just(json!({"type": "number", "multipleOf": 0.5})),
        Just(json!({"type": "boolean"})),
        Just(json!({"x-kubernetes-int-or-string": true})),
        Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
    ]
}

fn schema_json() -> impl Strategy<Value = Value> {
    scalar_schema().prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            (
                prop::collection::btree_map(name(), inner.clone(), 0..4),
                any::<bool>(),
                any::<bool>(),
            )
                .prop_map(|(properties, preserve, default)| {
                    // One of those that cannot be null, so that a null is no value.
                    let required: Vec<&String> = properties
                        .iter()
                        .filter(|(_, schema)| schema.get("type").is_some())
                        .map(|(name, _)| name)
                        .take(1)
                        .collect();
                    let mut schema = json!({"type": "object", "properties": properties, "required": required});
                    if preserve {
                        schema["x-kubernetes-preserve-unknown-fields"] = true.into();
                    }
                    if default && required.is_empty() {
                        schema["default"] = json!({});
                    }
                    schema
                }),
            inner
                .clone()
                .prop_map(|entry| json!({"type": "object", "additionalProperties": entry})),
            inner
                .clone()
                .prop_map(|items| json!({"type": "array", "items": items, "maxItems": 3})),
            inner.prop_map(|items| json!({
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"],
                "items": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}, "b": items}},
            })),
        ]
    })
}

/// Any JSON made of the words of schemas, mostly nonsense.
fn nonsense_schema() -> impl Strategy<Value = Value> {
    let keys = prop::sample::select(vec![
        "type",
        "properties",
        "items",
        "required",
        "anyOf",
        "not",
        "enum",
        "default",
        "pattern",
        "format",
        "maxLength",
        "minimum",
        "nullable",
        "additionalProperties",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-validations",
        "rule",
        "x-kubernetes-int-or-string",
        "a",
        "$ref",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec![
            "object",
            "string",
            "map",
            "set",
            "a",
            "[",
            "^a{2,3}$",
            "self.a > 1",
            "date",
            "self.all(x, y, x)",
        ])
        .prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(keys.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn d2_pruning_twice_is_pruning_once(schema in schema_json(), mut value in json_value()) {
        let schema = Schema::parse(&schema).unwrap();
        schema::prune(&schema, &mut value);
        let once = value.clone();
        let dropped = schema::prune(&schema, &mut value);
        prop_assert_eq!(&value, &once);
        prop_assert!(dropped.is_empty(), "{:?}", dropped);
    }

    #[test]
    fn d2_defaulting_twice_is_defaulting_once(schema in schema_json(), mut value in json_value()) {
        let schema = Schema::parse(&schema).unwrap();
        schema::default(&schema, &mut value);
        let once = value.clone();
        schema::default(&schema, &mut value);
        prop_assert_eq!(value, once);
    }

    #[test]
    fn d2_a_valid_value_is_valid_after_pruning_and_defaulting(schema in schema_json(), value in json_value()) {
        let schema = Schema::parse(&schema).unwrap();
        if schema::validate(&schema, &value, None).is_empty() {
            let mut stored = value;
            schema::prune(&schema, &mut stored);
            schema::default(&schema, &mut stored);
            prop_assert_eq!(schema::validate(&schema, &stored, None), Vec::new());
        }
    }

    #[test]
    fn d5_what_did_not_change_is_forgiven_at_the_root_of_what_a_schema_knows(
        schema in schema_json(), value in json_value(),
    ) {
        // Below a field that the schema knows: the object around it is what correlates.
        let schema = Schema::parse(&json!({"type": "object", "properties": {"spec": schema}})).unwrap();
        let mut object = json!({"spec": value});
        schema::prune(&schema, &mut object);
        schema::default(&schema, &mut object);
        let old = object.clone();
        let errors: Vec<String> = schema::validate(&schema, &object, Some(&old)).iter().map(ToString::to_string).collect();
        // Unknown keys of preserved objects have no schema by which they could correlate, nor have items without a key.
        let text = schema.to_json().to_string();
        if !text.contains("preserve") && !text.contains("list-type") {
            prop_assert_eq!(errors, Vec::<String>::new());
        }
    }

    #[test]
    fn d3_a_schema_survives_being_written_and_read(schema in schema_json()) {
        let parsed = Schema::parse(&schema).unwrap();
        prop_assert_eq!(Schema::parse(&parsed.to_json()).unwrap(), parsed);
    }

    #[test]
    fn nonsense_is_refused_without_panic(schema in nonsense_schema(), value in json_value(), old in json_value()) {
        if let Ok(parsed) = Schema::parse(&schema) {
            let _ = schema::validate(&parsed, &value, Some(&old));
            let _ = schema::validate_status(&parsed, &value, &old);
            let mut stored = value.clone();
            schema::prune(&parsed, &mut stored);
            schema::default(&parsed, &mut stored);
            if let Ok(rules) = Rules::compile(&parsed) {
                let _ = rules.check(&value, Some(&old));
            }
            let _ = usher_embedded::api::openapi::published(&parsed);
        }
        let mut definition = json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}});
        crd::default_crd(&mut definition);
        let _ = crd::check_crd(&definition, Some(&value));
        let _ = crd::warn_crd(&definition, None);
        let _ = crd::rows_of(&definition);
        let mut odd = value;
        crd::default_crd(&mut odd);
        let _ = crd::check_crd(&odd, None);
    }

    #[test]
    fn json_paths_never_panic(value in json_value(), path in r#"[.\[\]()?@='"a-c0-9:*, {}$!<>\\-]{0,24}"#) {
        let _ = jsonpath::evaluate(&value, &path);
    }

    #[test]
    fn rules_never_panic(rule in r#"(self|oldSelf|\.a|\.b|\.\?a|\[0\]|\[\?'a'\]| == | && | \|\| |!|1|'a'|\.all\(x, x\)|\.optMap\(v, v\)|\.orValue\(1\)|has\(self\.a\)|size\(self\)|\(|\)|[{}]| \? | : |type\(self\)|\+ ){1,8}"#, value in json_value()) {
        let schema = Schema::parse(&json!({
            "type": "object", "properties": {"a": {"type": "integer"}, "b": {"x-kubernetes-int-or-string": true}},
            "x-kubernetes-validations": [{"rule": rule}],
        })).unwrap();
        if let Ok(rules) = Rules::compile(&schema) {
            let _ = rules.check(&value, Some(&value));
        }
    }
}

#[test]
fn s8_schemas_deeper_than_64_levels_are_refused() {
    let nest = |levels: usize| {
        (0..levels).fold(
            json!({"type": "string"}),
            |inner, _| json!({"type": "object", "properties": {"a": inner}}),
        )
    };
    assert!(Schema::parse(&nest(60)).is_ok());
    let errors = Schema::parse(&nest(100)).unwrap_err();
    assert!(errors[0].to_string().contains("at most 64 levels"), "{}", errors[0]);
    let bomb = (0..100).fold(json!({}), |inner, _| json!({"not": inner}));
    assert!(Schema::parse(&bomb).is_err());
    let crd = json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": nest(500)}}]}});
    assert!(!crd::check_crd(&crd, None).is_empty());
}

#[test]
fn d4_a_rule_that_cannot_be_run_refuses_the_crd_and_is_quoted() {
    let refused = |rule: &str| {
        let schema = Schema::parse(&json!({
            "type": "object",
            "properties": {"l": {"type": "array", "items": {"type": "integer"}}},
            "x-kubernetes-validations": [{"rule": rule}],
        }))
        .unwrap();
        let errors = Rules::compile(&schema).unwrap_err();
        let text = errors[0].to_string();
        assert!(text.contains(rule.split('(').next().unwrap()), "{text}");
        text
    };
    refused("self.l.sortBy(x, x) == [1]");
    refused("self.l.transformMap(i, v, v) == {}");
    refused("authorizer.path('/x').check('get').allowed()");
    assert!(refused("Foo{a: 1} == 2").contains("Foo"));
    // A chain that would double with each link.
    let chain = format!("self.?l{}.hasValue()", ".optMap(v, v)".repeat(30));
    assert!(refused(&chain).contains("optMap"));
}

#[test]
fn d4_rules_that_may_cost_too_much_warn_and_name_the_bound() {
    let schema = |bound: Value| {
        Schema::parse(&json!({
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": {"l": bound}, "x-kubernetes-validations": [
                {"rule": "self.l.all(x, self.l.all(y, x == y))"},
            ]}},
        }))
        .unwrap()
    };
    let open = Rules::compile(&schema(json!({"type": "array", "items": {"type": "string"}}))).unwrap();
    let warning = open.cost_warnings().join("\n");
    assert!(warning.contains("maxItems of self.l"), "{warning}");
    assert!(
        warning.contains("properties[spec].x-kubernetes-validations[0].rule"),
        "{warning}"
    );
    let bound = json!({"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 10}});
    assert!(Rules::compile(&schema(bound)).unwrap().cost_warnings().is_empty());
}
