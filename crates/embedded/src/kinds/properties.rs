//! Laws of decoding, defaulting and checking, on the recorded objects and on what chance makes of them.

use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};

use super::decode::decode;
use super::{definition_names, metadata, quantity, rows};
use crate::fault::Path;
use crate::registry::row::{BuiltIn, Row, Rules};

/// Every recorded body, with the row it is for.
static SAMPLES: LazyLock<Vec<(Row, Value)>> = LazyLock::new(samples);

fn samples() -> Vec<(Row, Value)> {
    let rows = rows();
    let files = [
        include_str!("recorded/creates.json"),
        include_str!("recorded/refused.json"),
        include_str!("recorded/updates.json"),
    ];
    let cases = files
        .into_iter()
        .flat_map(|text| serde_json::from_str::<Vec<Value>>(text).unwrap());
    cases
        .map(|case| {
            let path = case["path"].as_str().unwrap();
            let mut parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
            let group = if parts.remove(0) == "api" { "" } else { parts.remove(0) };
            let plural = *parts.last().unwrap();
            let row = rows
                .iter()
                .find(|row| &*row.group == group && &*row.plural == plural)
                .unwrap();
            (row.clone(), case["in"].clone())
        })
        .collect()
}

fn rules(row: &Row) -> &'static BuiltIn {
    match row.rules {
        Rules::BuiltIn(rules) => rules,
        Rules::Custom => panic!("a built-in kind"),
    }
}

/// Everything a write calls; must not panic whatever it is given.
fn write(row: &Row, object: &mut Value, old: &Value) {
    let Ok(_) = decode(&row.versions[0].schema, object) else {
        return;
    };
    let rules = rules(row);
    (rules.default)(object);
    let mut new = object.clone();
    (rules.on_create)(&mut new);
    for object in [&new, object as &Value] {
        (rules.check)(object);
        (rules.check_update)(object, old);
        (rules.check_update)(old, object);
        (rules.check_status)(object, old);
        (rules.warn)(object, Some(old));
        for (_, field) in rules.fields {
            field(object);
        }
        let meta = object.get("metadata").unwrap_or(&Value::Null);
        let _ = metadata::check_metadata(meta, rules.name, row.namespaced, &Path::new("metadata"));
        let _ = metadata::check_metadata_update(meta, &old["metadata"], &Path::new("metadata"));
    }
    (rules.on_update)(object, old);
}

/// All places in a value.
fn places(value: &Value, at: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    found.push(at.clone());
    let mut visit = |key: String, value: &Value| {
        at.push(key);
        places(value, at, found);
        at.pop();
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| visit(key.clone(), value)),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .for_each(|(index, value)| visit(index.to_string(), value)),
        _ => {}
    }
}

fn place<'a>(value: &'a mut Value, at: &[String]) -> &'a mut Value {
    at.iter().fold(value, |value, key| match value {
        Value::Array(list) => list.get_mut(key.parse::<usize>().unwrap()).unwrap(),
        other => other.get_mut(key).unwrap(),
    })
}

fn odd_value() -> impl Strategy<Value = Value> {
    let words = select(vec![
        "",
        "-",
        "a",
        "A_",
        "0",
        "1kk",
        "1Gi",
        "-5m",
        "25%",
        "../x",
        "/",
        "é",
        "a/b/c",
        "2024-01-01T00:00:00Z",
        "x=",
        "None",
        "Always",
        "Localhost",
        "ExternalName",
        "metadata.labels['']",
        "\u{0}",
        "99999999999999999999",
    ]);
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        words.prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([null, {}, "x"])),
        Just(json!({"": null, "x": {}})),
    ]
}

fn mutated() -> impl Strategy<Value = (usize, Vec<(Index, Value, bool)>)> {
    let count = SAMPLES.len();
    (
        0..count,
        prop::collection::vec((any::<Index>(), odd_value(), any::<bool>()), 1..4),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn o20_nothing_panics_whatever_becomes_of_a_good_object((sample, changes) in mutated()) {
        let (row, body) = SAMPLES.get(sample).unwrap();
        let mut object = body.clone();
        for (index, value, remove) in changes {
            let mut found = Vec::new();
            places(&object, &mut Vec::new(), &mut found);
            let at = index.get(&found);
            match at.split_last() {
                Some((last, rest)) if remove => match place(&mut object, rest) {
                    Value::Object(map) => { map.remove(last); }
                    Value::Array(list) => { list.remove(last.parse().unwrap()); }
                    _ => {}
                },
                _ => *place(&mut object, at) = value,
            }
        }
        write(row, &mut object, body);
    }

    #[test]
    fn amounts_that_are_read_are_written_so_that_they_are_read_the_same(text in "[+-]?[0-9]{0,20}(\\.[0-9]{0,12})?(|n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e-?[0-9]{1,2})") {
        if let Ok(amount) = quantity::Quantity::parse(&text) {
            let written = amount.to_string();
            let again = quantity::Quantity::parse(&written).unwrap();
            prop_assert_eq!(again.to_string(), written);
        }
    }
}

#[test]
fn decoding_twice_is_decoding_once_and_so_with_defaults() {
    for (row, body) in SAMPLES.iter() {
        let schema = &row.versions[0].schema;
        let mut once = body.clone();
        decode(schema, &mut once).unwrap();
        let mut twice = once.clone();
        assert_eq!(decode(schema, &mut twice), Ok(Vec::new()), "{body}");
        assert_eq!(once, twice, "{body}");
        (rules(row).default)(&mut once);
        let mut twice = once.clone();
        (rules(row).default)(&mut twice);
        assert_eq!(once, twice, "{body}");
        // What defaults add is what decoding keeps.
        decode(schema, &mut twice).unwrap();
        assert_eq!(once, twice, "{body}");
        (rules(row).on_create)(&mut once);
        let mut twice = once.clone();
        decode(schema, &mut twice).unwrap();
        assert_eq!(once, twice, "{body}");
    }
}

#[test]
fn every_kind_survives_an_empty_object_and_what_is_none() {
    for row in rows() {
        for body in [
            json!({}),
            json!({"metadata": {}, "spec": {}, "status": {}}),
            Value::Null,
            json!([]),
        ] {
            write(&row, &mut body.clone(), &body);
            write(&row, &mut body.clone(), &json!({}));
        }
    }
    for name in definition_names() {
        let schema = super::definition(name).unwrap();
        let mut empty = Value::Object(Map::new());
        assert_eq!(decode(&schema, &mut empty), Ok(Vec::new()), "{name}");
    }
}
