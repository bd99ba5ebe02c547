//! Writing a schema out again: for `/openapi` and for `kubectl explain`.

use serde_json::{Map, Value, json};

use super::{Additional, Bounds, ListType, Notes, Rule, Schema};

impl Schema {
    /// The schema as JSON, as it was given.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        let mut put = |key: &str, value: Value| {
            map.insert(key.to_owned(), value);
        };
        if let Some(kind) = self.kind {
            put("type", kind.as_str().into());
        }
        if let Some(text) = &self.description {
            put("description", (&**text).into());
        }
        if let Some(text) = &self.format {
            put("format", (&**text).into());
        }
        if self.nullable {
            put("nullable", true.into());
        }
        if let Some(value) = &self.default {
            put("default", value.clone());
        }
        if !self.required.is_empty() {
            put("required", texts(&self.required));
        }
        if !self.properties.is_empty() {
            let properties: Map<String, Value> = self
                .properties
                .iter()
                .map(|(name, schema)| (name.to_string(), schema.to_json()))
                .collect();
            put("properties", properties.into());
        }
        match &self.additional {
            Additional::No => {}
            Additional::Any => put("additionalProperties", true.into()),
            Additional::Schema(schema) => put("additionalProperties", schema.to_json()),
        }
        if let Some(items) = &self.items {
            put("items", items.to_json());
        }
        if let Some(bounds) = &self.bounds {
            write_bounds(bounds, &mut put);
        }
        self.write_extensions(&mut put);
        Value::Object(map)
    }

    fn write_extensions(&self, put: &mut dyn FnMut(&str, Value)) {
        let none = Notes::default();
        let notes = self.notes.as_deref().unwrap_or(&none);
        if let Some(text) = &notes.title {
            put("title", (&**text).into());
        }
        if let Some(value) = &notes.example {
            put("example", value.clone());
        }
        if let Some(value) = &notes.external_docs {
            put("externalDocs", value.clone());
        }
        match self.list_type {
            ListType::Set => put("x-kubernetes-list-type", "set".into()),
            ListType::Map => put("x-kubernetes-list-type", "map".into()),
            ListType::Atomic if notes.says_atomic_list => put("x-kubernetes-list-type", "atomic".into()),
            ListType::Atomic => {}
        }
        if !self.list_map_keys.is_empty() {
            put("x-kubernetes-list-map-keys", texts(&self.list_map_keys));
        }
        if self.atomic_map {
            put("x-kubernetes-map-type", "atomic".into());
        } else if notes.says_granular_map {
            put("x-kubernetes-map-type", "granular".into());
        }
        if self.preserve_unknown {
            put("x-kubernetes-preserve-unknown-fields", true.into());
        } else if notes.says_no_preserve {
            put("x-kubernetes-preserve-unknown-fields", false.into());
        }
        if self.int_or_string {
            put("x-kubernetes-int-or-string", true.into());
        }
        if self.embedded_resource {
            put("x-kubernetes-embedded-resource", true.into());
        }
        if let Some(text) = &self.patch_merge_key {
            put("x-kubernetes-patch-merge-key", (&**text).into());
        }
        if let Some(text) = &self.patch_strategy {
            put("x-kubernetes-patch-strategy", (&**text).into());
        }
        if !self.rules.is_empty() {
            put(
                "x-kubernetes-validations",
                self.rules.iter().map(write_rule).collect::<Vec<_>>().into(),
            );
        }
    }

    /// The schema of a custom resource as it is published: with type, version and metadata at the root and in
    /// embedded resources. `words` are the texts of those three fields of a root.
    #[must_use]
    pub fn to_openapi(&self, words: [&str; 3]) -> Value {
        let mut root = self.to_json();
        fill_in(self, &mut root, Some(words));
        root
    }
}

fn texts(texts: &[std::sync::Arc<str>]) -> Value {
    texts.iter().map(|text| Value::from(&**text)).collect::<Vec<_>>().into()
}

fn write_rule(rule: &Rule) -> Value {
    let mut map = Map::new();
    map.insert("rule".to_owned(), rule.rule.as_str().into());
    for (key, text) in [
        ("message", &rule.message),
        ("messageExpression", &rule.message_expression),
        ("reason", &rule.reason),
        ("fieldPath", &rule.field_path),
    ] {
        if let Some(text) = text {
            map.insert(key.to_owned(), text.as_str().into());
        }
    }
    if rule.optional_old_self {
        map.insert("optionalOldSelf".to_owned(), true.into());
    }
    Value::Object(map)
}

fn write_bounds(bounds: &Bounds, put: &mut dyn FnMut(&str, Value)) {
    for (key, number) in [
        ("maximum", &bounds.maximum),
        ("minimum", &bounds.minimum),
        ("multipleOf", &bounds.multiple_of),
    ] {
        if let Some(number) = number {
            put(key, number.clone().into());
        }
    }
    for (key, flag) in [
        ("exclusiveMaximum", bounds.exclusive_maximum),
        ("exclusiveMinimum", bounds.exclusive_minimum),
        ("uniqueItems", bounds.unique_items),
    ] {
        if flag {
            put(key, true.into());
        }
    }
    for (key, count) in [
        ("maxLength", bounds.max_length),
        ("minLength", bounds.min_length),
        ("maxItems", bounds.max_items),
        ("minItems", bounds.min_items),
        ("maxProperties", bounds.max_properties),
        ("minProperties", bounds.min_properties),
    ] {
        if let Some(count) = count {
            put(key, count.into());
        }
    }
    if let Some(pattern) = &bounds.pattern {
        put("pattern", pattern.as_str().into());
    }
    if !bounds.allowed.is_empty() {
        put("enum", bounds.allowed.clone().into());
    }
    for (key, schemas) in [
        ("allOf", &bounds.all_of),
        ("anyOf", &bounds.any_of),
        ("oneOf", &bounds.one_of),
    ] {
        if !schemas.is_empty() {
            put(key, schemas.iter().map(Schema::to_json).collect::<Vec<_>>().into());
        }
    }
    if let Some(schema) = &bounds.not {
        put("not", schema.to_json());
    }
}

fn fill_in(schema: &Schema, published: &mut Value, root: Option<[&str; 3]>) {
    let Value::Object(map) = published else {
        return;
    };
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        for (name, schema) in &schema.properties {
            if let Some(published) = properties.get_mut(&**name) {
                fill_in(schema, published, None);
            }
        }
    }
    if let (Some(items), Some(published)) = (&schema.items, map.get_mut("items")) {
        fill_in(items, published, None);
    }
    if let (Additional::Schema(entry), Some(published)) = (&schema.additional, map.get_mut("additionalProperties")) {
        fill_in(entry, published, None);
    }
    let is_spelt_out = schema
        .bounds
        .as_ref()
        .is_some_and(|bounds| !bounds.any_of.is_empty() || !bounds.all_of.is_empty());
    if schema.int_or_string && !is_spelt_out {
        map.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
    }
    if root.is_none() && !schema.embedded_resource {
        return;
    }
    let [api_version, kind, metadata] = root.unwrap_or([EMBEDDED_API_VERSION, EMBEDDED_KIND, EMBEDDED_METADATA]);
    let properties = map.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(properties) = properties {
        for (name, text) in [("apiVersion", api_version), ("kind", kind)] {
            properties.insert(name.to_owned(), json!({"description": text, "type": "string"}));
        }
        properties.insert(
            "metadata".to_owned(),
            json!({
                "description": metadata,
                "allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}],
            }),
        );
    }
    if root.is_none() {
        // What is embedded must say what it is; the root is known by its address.
        let required = map.entry("required").or_insert_with(|| json!([]));
        if let Value::Array(required) = required {
            for name in ["kind", "apiVersion"] {
                if !required.iter().any(|known| known == name) {
                    required.push(name.into());
                }
            }
        }
    }
}

// An embedded resource's fields have texts of their own; clients are shown the reference's.
const EMBEDDED_METADATA: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const EMBEDDED_API_VERSION: &str = "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const EMBEDDED_KIND: &str = "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
