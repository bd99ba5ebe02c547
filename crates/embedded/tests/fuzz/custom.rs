//! Custom resources: definitions that are nearly good, and objects for whatever of them was taken.

use serde_json::{Map, Value, json};

use crate::corpus::Corpus;
use crate::dice::Dice;
use crate::inputs::Seen;
use crate::mutate;
use crate::request::Sent;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const RULES: [&str; 24] = [
    "self == oldSelf",
    "self.size() < 3",
    "self > 0",
    "self.a > self.b",
    "has(self.a) && self.a != ''",
    "self.all(x, x != '')",
    "self.all(k, self[k] > 0)",
    "self.exists(x, x == oldSelf)",
    "!has(oldSelf.a) || self.a == oldSelf.a",
    "self.matches('^(a+)+$')",
    "self[0] == self[-1]",
    "self[9999999999]",
    "1/0 > self",
    "9223372036854775807 + self > 0",
    "duration(self) < duration('1h')",
    "timestamp(self) > timestamp('2020-01-01T00:00:00Z')",
    "quantity(self).isGreaterThan(quantity('1Gi'))",
    "ip(self).family() == 4",
    "self.map(x, self.map(y, self.map(z, self))).size() == 0",
    "self.split('').join('').replace('', 'x').size() > 0",
    "int(self) % 2 == 0",
    "self.substring(1, 0) == 'é'.substring(5)",
    "type(self) == int || dyn(self).x.y.z",
    "self.metadata.name.startsWith('n')",
];

/// A definition of the cases or a known one, changed within its schema.
pub fn definition(corpus: &Corpus, seen: &Seen, dice: &mut Dice) -> Sent {
    let known = &seen.definitions;
    let (mut object, is_there) = if !known.is_empty() && dice.one_in(2) {
        (known[dice.below(known.len())].clone(), true)
    } else {
        (corpus.definitions[dice.below(corpus.definitions.len())].clone(), false)
    };
    let spare = &corpus.definitions[dice.below(corpus.definitions.len())];
    let changes = dice.below(4);
    if let Some(schema) = object.pointer_mut("/spec/versions/0/schema/openAPIV3Schema") {
        for _ in 0..changes {
            match dice.below(3) {
                0 => mutate::value(schema, &spare["spec"]["versions"][0]["schema"], dice),
                1 => keyword(schema, dice),
                _ => grow(schema, dice),
            }
        }
    }
    if dice.one_in(4) {
        mutate::value(&mut object, spare, dice);
    }
    if is_there {
        let name = object["metadata"]["name"].as_str().unwrap_or("x").to_owned();
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.remove("resourceVersion");
        }
        return match dice.below(4) {
            0 => Sent::new("DELETE", &format!("{DEFINITIONS}/{name}")),
            1 => Sent::new("PATCH", &format!("{DEFINITIONS}/{name}")).with_body(
                "application/merge-patch+json",
                mutate::text(&json!({"spec": object["spec"]})),
            ),
            _ => {
                Sent::new("PUT", &format!("{DEFINITIONS}/{name}")).with_body("application/json", mutate::text(&object))
            }
        };
    }
    // A kind of its own, so that it is taken.
    let number = dice.below(60);
    let plural = format!("things{number}");
    let kind = format!("Thing{number}");
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.insert("name".to_owned(), format!("{plural}.fuzz.example.com").into());
    }
    if object.get("spec").is_some_and(Value::is_object) {
        object["spec"]["group"] = "fuzz.example.com".into();
        object["spec"]["names"] = json!({"plural": plural, "kind": kind, "singular": kind.to_lowercase()});
    }
    Sent::new("POST", DEFINITIONS).with_body("application/json", mutate::text(&object))
}

/// One keyword more, at some schema within.
fn keyword(schema: &mut Value, dice: &mut Dice) {
    let number = mutate::number(dice);
    let rule = json!([{"rule": dice.pick(&RULES), "message": mutate::word(dice)}]);
    let expression = json!([{"rule": dice.pick(&RULES), "messageExpression": dice.pick(&["'a' + self", "1", "string(self)", "self.a.b"]),
        "fieldPath": dice.pick(&[".a", ".a[0]", "..", ".a['x']", "a"]), "reason": "FieldValueForbidden", "optionalOldSelf": true}]);
    let (key, value) = match dice.below(24) {
        0..5 => ("x-kubernetes-validations", rule),
        5 => ("x-kubernetes-validations", expression),
        6 => (
            "default",
            mutate::any_part(&json!({"a": [1, "b", null, {"c": true}]}), dice).clone(),
        ),
        7 => ("nullable", true.into()),
        8 => ("x-kubernetes-preserve-unknown-fields", true.into()),
        9 => ("x-kubernetes-int-or-string", true.into()),
        10 => ("x-kubernetes-embedded-resource", true.into()),
        11 => (
            "x-kubernetes-list-type",
            dice.pick(&["set", "map", "atomic", "x"]).into(),
        ),
        12 => ("x-kubernetes-list-map-keys", json!(["name"])),
        13 => ("x-kubernetes-map-type", dice.pick(&["granular", "atomic"]).into()),
        14 => (
            "pattern",
            dice.pick(&[
                "^a+$",
                "(",
                "(a|a)*b",
                "\\p{L}{1,1000}",
                "[^",
                "(?P<x>a)\\1",
                ".{0,1000}{0,1000}",
            ])
            .into(),
        ),
        15 => (
            "format",
            dice.pick(&[
                "date-time",
                "date",
                "duration",
                "byte",
                "int32",
                "int64",
                "ipv4",
                "cidr",
                "uri",
                "uuid",
                "email",
                "mac",
                "nope",
            ])
            .into(),
        ),
        16 => (dice.pick(&["minimum", "maximum", "multipleOf"]), number),
        17 => (
            dice.pick(&[
                "minLength",
                "maxLength",
                "minItems",
                "maxItems",
                "minProperties",
                "maxProperties",
            ]),
            number,
        ),
        18 => ("enum", json!(["a", 1, null, {"b": []}, 1.5])),
        19 => ("uniqueItems", true.into()),
        20 => (
            dice.pick(&["anyOf", "allOf", "oneOf"]),
            json!([{"required": ["a"]}, {"properties": {"a": {"minimum": 1}}}]),
        ),
        21 => ("not", json!({"required": ["a"]})),
        22 => ("required", json!(["a", "a", ""])),
        _ => (
            "type",
            dice.pick(&["object", "array", "string", "integer", "number", "boolean", "null"])
                .into(),
        ),
    };
    if let Value::Object(map) = schema_within(schema, dice) {
        map.insert(key.to_owned(), value);
    }
}

/// A property more, with a schema that may stand.
fn grow(schema: &mut Value, dice: &mut Dice) {
    let leaf = match dice.below(7) {
        0 => json!({"type": "string", "maxLength": 10}),
        1 => json!({"type": "integer", "minimum": 0}),
        2 => json!({"type": "number"}),
        3 => json!({"type": "boolean", "default": true}),
        4 => {
            json!({"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 5}, "x-kubernetes-list-type": "set"})
        }
        5 => {
            json!({"type": "array", "maxItems": 5, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "a": {"type": "integer"}}}})
        }
        _ => json!({"type": "object", "maxProperties": 5, "additionalProperties": {"type": "integer"}}),
    };
    let name = dice.pick(&["a", "b", "spec", "status", "items", "parts", "é", "x-y", "in", "_"]);
    if let Value::Object(map) = schema_within(schema, dice)
        && let Value::Object(properties) = map.entry("properties").or_insert_with(|| json!({}))
    {
        properties.insert(name.to_owned(), leaf);
    }
}

fn schema_within<'a>(schema: &'a mut Value, dice: &mut Dice) -> &'a mut Value {
    let mut at = schema;
    loop {
        let key = match at {
            Value::Object(map) => {
                let mut ways: Vec<&str> = ["items", "additionalProperties"]
                    .into_iter()
                    .filter(|key| map.get(*key).is_some_and(Value::is_object))
                    .collect();
                if map
                    .get("properties")
                    .and_then(Value::as_object)
                    .is_some_and(|all| !all.is_empty())
                {
                    ways.push("properties");
                }
                if ways.is_empty() || dice.one_in(4) {
                    None
                } else {
                    Some(dice.pick(&ways).to_owned())
                }
            }
            _ => None,
        };
        let Some(key) = key else { return at };
        let next = &mut at[key.as_str()];
        at = match (key.as_str(), next) {
            ("properties", Value::Object(all)) => {
                let index = dice.below(all.len());
                all.values_mut().nth(index).unwrap()
            }
            (_, next) => next,
        };
    }
}

/// An object for a definition that was taken.
pub fn object(corpus: &Corpus, seen: &Seen, dice: &mut Dice) -> Option<Sent> {
    let known = &seen.definitions;
    let definition = known.get(dice.below(known.len()))?;
    let spec = &definition["spec"];
    let versions = spec["versions"].as_array()?;
    let version = versions.get(dice.below(versions.len()))?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (group, name) = (text(&spec["group"])?, text(&version["name"])?);
    let plural = text(&spec["names"]["plural"])?;
    let collection = match text(&spec["scope"])?.as_str() {
        "Namespaced" => format!("/apis/{group}/{name}/namespaces/fuzz-0/{plural}"),
        _ => format!("/apis/{group}/{name}/{plural}"),
    };
    let mut object = made(version.pointer("/schema/openAPIV3Schema")?, 0, dice);
    if !object.is_object() {
        object = json!({});
    }
    let object_name = format!("n{}", dice.below(5));
    object["apiVersion"] = format!("{group}/{name}").into();
    object["kind"] = spec["names"]["kind"].clone();
    object["metadata"] = json!({"name": object_name});
    if dice.one_in(5) {
        mutate::value(&mut object, &corpus.objects[dice.below(corpus.objects.len())], dice);
    }
    let place = format!("{collection}/{object_name}");
    let subresource = dice.pick(&["", "", "", "/status", "/scale"]);
    Some(match dice.below(6) {
        0 | 1 => Sent::new("POST", &collection).with_body("application/json", mutate::text(&object)),
        2 => {
            let sent = Sent::new("PATCH", &format!("{place}{subresource}?fieldManager=a&force=true"));
            sent.with_body("application/apply-patch+yaml", mutate::text(&object))
        }
        3 => Sent::new("PATCH", &format!("{place}{subresource}"))
            .with_body("application/merge-patch+json", mutate::text(&object)),
        4 => {
            let current = seen.objects.iter().rev().find(|(at, _)| *at == place)?;
            if let Value::Object(map) = &mut object {
                map.insert("metadata".to_owned(), current.1["metadata"].clone());
            }
            Sent::new("PUT", &format!("{place}{subresource}")).with_body("application/json", mutate::text(&object))
        }
        _ => {
            let mut sent = Sent::new("GET", if dice.one_in(2) { &collection } else { &place });
            if dice.one_in(2) {
                sent.set_header("accept", "application/json;as=Table;g=meta.k8s.io;v=v1");
            }
            sent
        }
    })
}

/// Something that a schema mostly allows.
fn made(schema: &Value, level: usize, dice: &mut Dice) -> Value {
    if level > 30 || dice.one_in(25) {
        return mutate::number(dice);
    }
    if let Some(all) = schema["enum"]
        .as_array()
        .filter(|all| !all.is_empty() && !dice.one_in(5))
    {
        return all[dice.below(all.len())].clone();
    }
    if let Some(default) = schema.get("default").filter(|_| dice.one_in(4)) {
        return default.clone();
    }
    match schema["type"].as_str() {
        Some("object") => {
            let mut map = Map::new();
            if let Some(properties) = schema["properties"].as_object() {
                let required = schema["required"].as_array();
                for (name, property) in properties {
                    let is_required = required.is_some_and(|all| all.iter().any(|one| one == name));
                    if if is_required { !dice.one_in(20) } else { dice.one_in(2) } {
                        map.insert(name.clone(), made(property, level + 1, dice));
                    }
                }
            }
            if let Some(inside) = schema.get("additionalProperties") {
                for _ in 0..dice.below(4) {
                    map.insert(mutate::word(dice), made(inside, level + 1, dice));
                }
            }
            if dice.one_in(8) {
                map.insert(mutate::word(dice), mutate::number(dice));
            }
            Value::Object(map)
        }
        Some("array") => (0..dice.below(4))
            .map(|_| made(&schema["items"], level + 1, dice))
            .collect(),
        Some("string") => match dice.below(4) {
            0 => mutate::word(dice).into(),
            _ => dice
                .pick(&["a", "b", "aaa", "main", "1", "2026-01-01T00:00:00Z", "10.0.0.1", "1h"])
                .into(),
        },
        Some("integer" | "number") => {
            if dice.one_in(4) {
                mutate::number(dice)
            } else {
                json!(dice.below(12))
            }
        }
        Some("boolean") => dice.one_in(2).into(),
        _ => {
            if dice.one_in(2) {
                json!({"a": 1})
            } else {
                mutate::word(dice).into()
            }
        }
    }
}
