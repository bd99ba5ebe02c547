//! Filling in a schema's defaults (D2): on writes after pruning, and on reads.

use serde_json::{Map, Value};

use super::{Additional, Schema};

/// Drops nulls that the schema neither allows nor has a default for, then fills in defaults: of fields that are missing
/// or null, in objects that are there (or that a default brought).
pub fn default(schema: &Schema, value: &mut Value) {
    drop_nulls(Some(schema), value);
    fill(schema, value);
}

/// Writes whole floats as integers (`1.0` is `1`), as the reference's JSON does. The last step before a value is stored:
/// checks, and whether a generation is a new one, still tell them apart.
pub fn settle_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            // The digits are the shortest that mean the float, so that a large one is read again as another integer
            // than it was: as the reference has it. Beyond an integer's range it stays a float.
            if let Some(float) = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0)
                && float.abs() < 9.3e18
                && let Ok(whole) = format!("{float}").parse::<i64>()
            {
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(settle_numbers),
        Value::Object(map) => map.values_mut().for_each(settle_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn drop_nulls(schema: Option<&Schema>, value: &mut Value) {
    match value {
        Value::Object(map) => map.retain(|key, value| {
            let schema = schema.and_then(|schema| schema.property(key));
            if value.is_null() && schema.is_some_and(|schema| !schema.nullable && schema.default.is_none()) {
                return false;
            }
            if schema.is_some() {
                drop_nulls(schema, value);
            }
            true
        }),
        Value::Array(items) => {
            if let Some(schema) = schema.and_then(|schema| schema.items.as_deref()) {
                for item in items {
                    drop_nulls(Some(schema), item);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn fill(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => {
            fill_missing(schema, map);
            for (key, value) in map.iter_mut() {
                if let Some(property) = schema.properties.get(key.as_str()) {
                    fill(property, value);
                } else if let Additional::Schema(entry) = &schema.additional {
                    fill_null(entry, value);
                    fill(entry, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items.as_deref() {
                for item in items {
                    fill_null(schema, item);
                    fill(schema, item);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn fill_missing(schema: &Schema, map: &mut Map<String, Value>) {
    for (name, property) in &schema.properties {
        let Some(default) = &property.default else {
            continue;
        };
        match map.get_mut(&**name) {
            None => {
                map.insert(name.to_string(), default.clone());
            }
            Some(value @ Value::Null) if !property.nullable => *value = default.clone(),
            Some(_) => {}
        }
    }
}

fn fill_null(schema: &Schema, value: &mut Value) {
    if value.is_null()
        && !schema.nullable
        && let Some(default) = &schema.default
    {
        *value = default.clone();
    }
}
