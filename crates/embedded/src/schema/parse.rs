//! From a CRD's `openAPIV3Schema` (JSONSchemaProps as JSON) to a [`Schema`].
//!
//! Only shapes are judged here: a keyword of the wrong JSON type, a tree too deep. Whether the schema is structural is
//! the business of the CRD's own rules. Keywords that structural schemas forbid are passed over, as those rules name them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Number, Value};

use super::{Additional, Bounds, DEPTH_LIMIT, ListType, Notes, Pattern, Rule, Schema, Type};
use crate::fault::{FieldError, Path};

impl Schema {
    /// Reads a schema. Errors name the place within the schema, as `properties[spec].maxLength`.
    pub fn parse(value: &Value) -> Result<Self, Vec<FieldError>> {
        Self::parse_at(value, &Path::root())
    }

    /// Reads a schema that stands at `path` of a larger object.
    pub fn parse_at(value: &Value, path: &Path) -> Result<Self, Vec<FieldError>> {
        let mut reader = Reader { errors: Vec::new() };
        let schema = reader.schema(value, path, DEPTH_LIMIT);
        if reader.errors.is_empty() {
            Ok(schema)
        } else {
            Err(reader.errors)
        }
    }
}

struct Reader {
    errors: Vec<FieldError>,
}

impl Reader {
    fn wrong(&mut self, path: &Path, value: &Value, expected: &str) {
        self.errors
            .push(FieldError::invalid(path, value.clone(), format!("must be {expected}")));
    }

    fn schema(&mut self, value: &Value, path: &Path, depth: usize) -> Schema {
        let Some(depth) = depth.checked_sub(1) else {
            self.errors.push(FieldError::forbidden(
                path,
                format!("schemas may nest at most {DEPTH_LIMIT} levels"),
            ));
            return Schema::default();
        };
        let Value::Object(map) = value else {
            self.wrong(path, value, "an object");
            return Schema::default();
        };
        let mut schema = Schema {
            kind: self.kind(map, path),
            properties: self.properties(map, path, depth),
            additional: self.additional(map, path, depth),
            required: self.texts(map, path, "required"),
            nullable: self.flag(map, path, "nullable"),
            default: map.get("default").filter(|value| !value.is_null()).cloned(),
            format: self.text(map, path, "format"),
            list_map_keys: self.texts(map, path, "x-kubernetes-list-map-keys"),
            preserve_unknown: self.flag(map, path, "x-kubernetes-preserve-unknown-fields"),
            int_or_string: self.flag(map, path, "x-kubernetes-int-or-string"),
            embedded_resource: self.flag(map, path, "x-kubernetes-embedded-resource"),
            description: self.text(map, path, "description"),
            rules: self.rules(map, path),
            ..Schema::default()
        };
        // A list of schemas is named by the CRD's rules.
        if let Some(items) = present(map, "items").filter(|items| !items.is_array()) {
            schema.items = Some(Arc::new(self.schema(items, &path.field("items"), depth)));
        }
        let mut notes = Notes {
            title: self.text(map, path, "title"),
            example: present(map, "example").cloned(),
            external_docs: present(map, "externalDocs").cloned(),
            says_no_preserve: map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)),
            ..Notes::default()
        };
        match self.text(map, path, "x-kubernetes-list-type").as_deref() {
            Some("set") => schema.list_type = ListType::Set,
            Some("map") => schema.list_type = ListType::Map,
            Some("atomic") => notes.says_atomic_list = true,
            Some(_) | None => {}
        }
        match self.text(map, path, "x-kubernetes-map-type").as_deref() {
            Some("atomic") => schema.atomic_map = true,
            Some("granular") => notes.says_granular_map = true,
            Some(_) | None => {}
        }
        if notes != Notes::default() {
            schema.notes = Some(Box::new(notes));
        }
        let bounds = self.bounds(map, path, depth);
        if bounds != Bounds::default() {
            schema.bounds = Some(Box::new(bounds));
        }
        schema
    }

    fn kind(&mut self, map: &Map<String, Value>, path: &Path) -> Option<Type> {
        // An unknown type is named by the CRD's rules.
        self.text(map, path, "type").and_then(|text| Type::parse(&text))
    }

    fn properties(&mut self, map: &Map<String, Value>, path: &Path, depth: usize) -> BTreeMap<Arc<str>, Arc<Schema>> {
        match present(map, "properties") {
            None => BTreeMap::new(),
            Some(Value::Object(properties)) => {
                let path = path.field("properties");
                properties
                    .iter()
                    .map(|(name, value)| {
                        (
                            Arc::from(name.as_str()),
                            Arc::new(self.schema(value, &path.key(name), depth)),
                        )
                    })
                    .collect()
            }
            Some(other) => {
                self.wrong(&path.field("properties"), other, "an object");
                BTreeMap::new()
            }
        }
    }

    fn additional(&mut self, map: &Map<String, Value>, path: &Path, depth: usize) -> Additional {
        match present(map, "additionalProperties") {
            None | Some(Value::Bool(false)) => Additional::No,
            Some(Value::Bool(true)) => Additional::Any,
            Some(value) => Additional::Schema(Arc::new(self.schema(value, &path.field("additionalProperties"), depth))),
        }
    }

    fn bounds(&mut self, map: &Map<String, Value>, path: &Path, depth: usize) -> Bounds {
        let many = |reader: &mut Self, key: &str| match present(map, key) {
            Some(Value::Array(items)) => {
                let path = path.field(key);
                items
                    .iter()
                    .enumerate()
                    .map(|(index, item)| reader.schema(item, &path.index(index), depth))
                    .collect()
            }
            Some(other) => {
                reader.wrong(&path.field(key), other, "an array");
                Vec::new()
            }
            None => Vec::new(),
        };
        let all_of = many(self, "allOf");
        let any_of = many(self, "anyOf");
        let one_of = many(self, "oneOf");
        Bounds {
            maximum: self.number(map, path, "maximum"),
            exclusive_maximum: self.flag(map, path, "exclusiveMaximum"),
            minimum: self.number(map, path, "minimum"),
            exclusive_minimum: self.flag(map, path, "exclusiveMinimum"),
            multiple_of: self.number(map, path, "multipleOf"),
            max_length: self.count(map, path, "maxLength"),
            min_length: self.count(map, path, "minLength"),
            pattern: self
                .text(map, path, "pattern")
                .filter(|text| !text.is_empty())
                .map(Pattern::new),
            max_items: self.count(map, path, "maxItems"),
            min_items: self.count(map, path, "minItems"),
            unique_items: self.flag(map, path, "uniqueItems"),
            max_properties: self.count(map, path, "maxProperties"),
            min_properties: self.count(map, path, "minProperties"),
            allowed: match present(map, "enum") {
                Some(Value::Array(values)) => values.clone(),
                Some(other) => {
                    self.wrong(&path.field("enum"), other, "an array");
                    Vec::new()
                }
                None => Vec::new(),
            },
            all_of,
            any_of,
            one_of,
            not: present(map, "not").map(|not| Box::new(self.schema(not, &path.field("not"), depth))),
        }
    }

    fn rules(&mut self, map: &Map<String, Value>, path: &Path) -> Vec<Rule> {
        let key = "x-kubernetes-validations";
        let rules = match present(map, key) {
            None => return Vec::new(),
            Some(Value::Array(rules)) => rules,
            Some(other) => {
                self.wrong(&path.field(key), other, "an array");
                return Vec::new();
            }
        };
        let path = path.field(key);
        let mut parsed = Vec::with_capacity(rules.len());
        for (index, rule) in rules.iter().enumerate() {
            let path = path.index(index);
            let Value::Object(map) = rule else {
                self.wrong(&path, rule, "an object");
                continue;
            };
            let mut text = |key: &str| self.text(map, &path, key).map(|text| text.to_string());
            parsed.push(Rule {
                rule: text("rule").unwrap_or_default(),
                message: text("message").filter(|text| !text.is_empty()),
                message_expression: text("messageExpression").filter(|text| !text.is_empty()),
                reason: text("reason"),
                field_path: text("fieldPath").filter(|text| !text.is_empty()),
                optional_old_self: self.flag(map, &path, "optionalOldSelf"),
            });
        }
        parsed
    }

    fn text(&mut self, map: &Map<String, Value>, path: &Path, key: &str) -> Option<Arc<str>> {
        match present(map, key)? {
            Value::String(text) => Some(Arc::from(text.as_str())),
            other => {
                self.wrong(&path.field(key), other, "a string");
                None
            }
        }
    }

    fn texts(&mut self, map: &Map<String, Value>, path: &Path, key: &str) -> Vec<Arc<str>> {
        let Some(value) = present(map, key) else {
            return Vec::new();
        };
        let texts: Option<Vec<Arc<str>>> = value
            .as_array()
            .and_then(|items| items.iter().map(|item| item.as_str().map(Arc::from)).collect());
        texts.unwrap_or_else(|| {
            self.wrong(&path.field(key), value, "an array of strings");
            Vec::new()
        })
    }

    fn flag(&mut self, map: &Map<String, Value>, path: &Path, key: &str) -> bool {
        match present(map, key) {
            None => false,
            Some(Value::Bool(flag)) => *flag,
            Some(other) => {
                self.wrong(&path.field(key), other, "a boolean");
                false
            }
        }
    }

    fn number(&mut self, map: &Map<String, Value>, path: &Path, key: &str) -> Option<Number> {
        match present(map, key)? {
            Value::Number(number) => Some(number.clone()),
            other => {
                self.wrong(&path.field(key), other, "a number");
                None
            }
        }
    }

    fn count(&mut self, map: &Map<String, Value>, path: &Path, key: &str) -> Option<u64> {
        let value = present(map, key)?;
        match (value.as_u64(), value.as_i64()) {
            (Some(count), _) => Some(count),
            // The reference takes negative counts: a lower bound of nothing, an upper bound that only nothing meets.
            (None, Some(_)) => Some(0),
            (None, None) => {
                self.wrong(&path.field(key), value, "an integer");
                None
            }
        }
    }
}

/// A keyword that is there and not null, which JSON decoding treats alike.
fn present<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    map.get(key).filter(|value| !value.is_null())
}
