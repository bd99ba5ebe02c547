//! Whether a value is what its schema says (D3), in the words of the reference.
//!
//! The walk keeps the reference's bookkeeping where it can be seen from outside: `anyOf` and `oneOf` report the errors of
//! the branch in which most went well, so what goes well is counted exactly as there.

mod embedded;
mod number;

use serde_json::Value;

use super::ratchet::{Old, unchanged};
use super::{Additional, Bounds, Schema, Type, format, listtype};
use crate::fault::{FieldError, Path, Wrong, quote};

/// Everything that a schema says about an object but CEL: types and bounds, embedded resources, lists of type set and
/// map. With `old`, what did not change is forgiven (D5). Metadata of the object itself is the registry's business.
#[must_use]
pub fn validate(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let correlated = old.map(|value| Old { value, schema });
    let mut errors = run(schema, new, correlated, &Path::root());
    embedded::check(schema, new, &mut errors);
    errors.extend(list_errors(schema, new, old));
    errors
}

/// The same for a write of `/status`: only the status is judged, though duplicates are looked for everywhere.
#[must_use]
pub fn validate_status(schema: &Schema, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let (Some(status), Some(schema)) = (new.get("status"), schema.property("status")) {
        let correlated = old.get("status").map(|value| Old { value, schema });
        errors = run(schema, status, correlated, &Path::new("status"));
    }
    errors.extend(list_errors(schema, new, Some(old)));
    errors
}

/// What is said in place of CEL's verdict about an object so wrong that rules could not judge it.
#[must_use]
pub fn blocks_rules(errors: &[FieldError]) -> Option<FieldError> {
    let blocks = errors.iter().any(|error| {
        matches!(
            error.wrong,
            Wrong::NotSupported | Wrong::Required | Wrong::TooLong | Wrong::TooMany | Wrong::TypeInvalid
        )
    });
    blocks.then(|| {
        FieldError::invalid(
            &Path::root(),
            Value::Null,
            "some validation rules were not checked because the object was invalid; correct the existing errors to \
             complete validation",
        )
    })
}

/// Schema errors of a value that stands at `place`, without old value: for defaults in CRDs.
pub(super) fn run_at(schema: &Schema, value: &Value, place: &Path) -> Vec<FieldError> {
    run(schema, value, None, place)
}

fn run(schema: &Schema, value: &Value, old: Option<Old<'_>>, place: &Path) -> Vec<FieldError> {
    let mut found = Found::default();
    ratcheted(schema, value, old, &Place::Root, &mut found);
    found.errors.into_iter().map(|error| error.at(place)).collect()
}

/// A list that held duplicates before may hold them still.
fn list_errors(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let errors = listtype::duplicates(schema, new);
    if errors.is_empty() || old.is_some_and(|old| !listtype::duplicates(schema, old).is_empty()) {
        return Vec::new();
    }
    errors
}

/// Where the walk is. Written out only for errors.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    Root,
    Field(&'a Place<'a>, &'a str),
    /// An entry of a map: at the root it begins with a dot, as the reference writes it.
    Entry(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

impl Place<'_> {
    fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) {
        match self {
            Self::Root => {}
            Self::Field(parent, name) => {
                parent.write(text);
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Self::Entry(parent, name) => {
                parent.write(text);
                text.push('.');
                text.push_str(name);
            }
            Self::Item(parent, index) => {
                parent.write(text);
                text.push_str(&format!("[{index}]"));
            }
        }
    }
}

/// An error as the walk finds it.
pub(super) struct Problem {
    wrong: Wrong,
    /// `None`: about no field, as combinations of schemas are.
    name: Option<String>,
    value: Value,
    detail: String,
    /// What tells it apart from others: the same text is reported once.
    identity: String,
}

impl Problem {
    fn new(wrong: Wrong, place: &Place<'_>, value: impl Into<Value>, detail: impl FnOnce(&str) -> String) -> Self {
        let name = place.text();
        let detail = detail(&name);
        Self {
            wrong,
            identity: detail.clone(),
            name: Some(name),
            value: value.into(),
            detail,
        }
    }

    fn about_nothing(detail: String) -> Self {
        Self {
            wrong: Wrong::Invalid,
            name: None,
            value: Value::from(""),
            identity: detail.clone(),
            detail,
        }
    }

    fn at(self, place: &Path) -> FieldError {
        let name = self.name.unwrap_or_default();
        let name = name.strip_prefix('.').unwrap_or(&name);
        let path = if name.is_empty() {
            place.clone()
        } else {
            place.field(name)
        };
        let value = match self.wrong {
            Wrong::Required | Wrong::TooLong => None,
            _ => Some(self.value),
        };
        FieldError {
            wrong: self.wrong,
            path,
            value,
            detail: self.detail,
        }
    }
}

/// What a walk found, and how much went well.
#[derive(Default)]
pub(super) struct Found {
    errors: Vec<Problem>,
    matches: usize,
}

impl Found {
    fn add(&mut self, problem: Problem) {
        if !self.errors.iter().any(|error| error.identity == problem.identity) {
            self.errors.push(problem);
        }
    }

    fn merge(&mut self, other: Self) {
        self.matches += other.matches;
        for error in other.errors {
            self.add(error);
        }
    }
}

/// Checks a value that may have an old one; forgives everything if it did not change.
fn ratcheted(schema: &Schema, value: &Value, old: Option<Old<'_>>, place: &Place<'_>, found: &mut Found) {
    let before = found.errors.len();
    check(schema, value, old, place, found);
    if found.errors.len() > before && old.is_some_and(|old| unchanged(value, old)) {
        found.errors.truncate(before);
    }
}

fn check(schema: &Schema, value: &Value, old: Option<Old<'_>>, place: &Place<'_>, found: &mut Found) {
    let bounds = schema.bounds.as_deref();
    if value.is_null() {
        if types(schema, value, place, found) {
            found.matches += 1;
        }
        if let Some(bounds) = bounds {
            allowed(bounds, value, place, found);
        }
        return;
    }
    let known_format = schema
        .format
        .as_deref()
        .and_then(|name| format::known(name, schema.kind, schema.int_or_string));
    if schema.kind.is_some() || schema.int_or_string || known_format.is_some() {
        if types(schema, value, place, found) {
            found.matches += 1;
        }
        found.matches += 1;
    }
    if let Some(bounds) = bounds {
        combinations(bounds, value, old, place, found);
    }
    // Of the combinations: that they were looked at, and that they applied.
    found.matches += 2;
    match value {
        Value::String(text) => {
            if let Some(bounds) = bounds
                && let Some(problem) = text_bounds(bounds, text, place)
            {
                found.add(problem);
            }
            found.matches += 1;
            if let Some(name) = known_format
                && !matches!(schema.kind, Some(Type::Integer | Type::Number))
            {
                if !format::has(name, text) {
                    found.add(Problem::new(Wrong::TypeInvalid, place, text.as_str(), |at| {
                        format!("{at} in body must be of type {name}: {}", quote(text))
                    }));
                }
                found.matches += 1;
            }
        }
        Value::Number(number) => {
            number::check(schema, known_format, number, place, found);
            found.matches += 2;
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items.as_deref() {
                for (index, item) in items.iter().enumerate() {
                    let old = old.and_then(|old| old.item(item));
                    ratcheted(schema, item, old, &Place::Item(place, index), found);
                }
            }
            if let Some(bounds) = bounds {
                list_bounds(bounds, items, place, found);
            }
            found.matches += 2;
        }
        Value::Null | Value::Bool(_) | Value::Object(_) => {}
    }
    if let Some(bounds) = bounds {
        allowed(bounds, value, place, found);
    }
    found.matches += 1;
    if let Value::Object(map) = value {
        object(schema, map, old, place, found);
        found.matches += 1;
    }
    found.matches += 1;
}

/// The type of a value, and the finer one that the reference's decoding gives it.
fn type_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

fn types(schema: &Schema, value: &Value, place: &Place<'_>, found: &mut Found) -> bool {
    let contains = |name: &str| match schema.kind {
        _ if schema.int_or_string => name == "integer" || name == "string",
        Some(kind) => kind.as_str() == name,
        None => false,
    };
    let expected = || match schema.kind {
        _ if schema.int_or_string => "integer,string",
        Some(kind) => kind.as_str(),
        None => "",
    };
    let mut wrong = |expected: &str, given: &str| {
        found.add(Problem::new(Wrong::TypeInvalid, place, given, |at| {
            format!("{at} in body must be of type {expected}: {}", quote(given))
        }));
        false
    };
    if value.is_null() {
        if (schema.kind.is_some() || schema.int_or_string) && !schema.nullable {
            return wrong(expected(), "null");
        }
        return true;
    }
    let (kind, fine) = type_of(value);
    let format = schema
        .format
        .as_deref()
        .and_then(|name| format::known(name, schema.kind, schema.int_or_string));
    let whole = kind == "number" && contains("integer") && number::is_whole(value);
    let widened = kind == "integer" && contains("number");
    let listlike = value.is_string() || value.is_array();
    if let Some(format) = format {
        if !(listlike || contains(kind) || fine == format || whole || widened) {
            return wrong(format, fine);
        }
        if listlike && !contains("number") && !contains("integer") {
            return true;
        }
    }
    if contains(kind) || whole || widened {
        return true;
    }
    wrong(expected(), kind)
}

/// The reference stops at the first bound that a text breaks.
fn text_bounds(bounds: &Bounds, text: &str, place: &Place<'_>) -> Option<Problem> {
    let length = || u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
    if let Some(most) = bounds.max_length
        && length() > most
    {
        let unit = if most == 1 { "byte" } else { "bytes" };
        let mut problem = Problem::new(Wrong::TooLong, place, Value::Null, |at| {
            format!("{at} in body should be at most {most} chars long")
        });
        problem.detail = format!("may not be more than {most} {unit}");
        return Some(problem);
    }
    if let Some(least) = bounds.min_length
        && length() < least
    {
        return Some(Problem::new(Wrong::Invalid, place, text, |at| {
            format!("{at} in body should be at least {least} chars long")
        }));
    }
    let pattern = bounds.pattern.as_ref()?;
    match pattern.regex() {
        Ok(regex) if regex.is_match(text) => None,
        Ok(_) => Some(Problem::new(Wrong::Invalid, place, text, |at| {
            format!("{at} in body should match '{}'", pattern.as_str())
        })),
        Err(error) => Some(Problem::new(Wrong::Invalid, place, text, |at| {
            format!(
                "{at} in body should match '{}, but pattern is invalid: {error}'",
                pattern.as_str()
            )
        })),
    }
}

fn too_many(place: &Place<'_>, count: usize, most: u64, what: &str) -> Problem {
    let mut problem = Problem::new(Wrong::TooMany, place, count, |at| {
        format!("{at} in body should have at most {most} {what}")
    });
    let unit = if most == 1 { "item" } else { "items" };
    problem.detail = format!("must have at most {most} {unit}");
    problem
}

fn too_few(place: &Place<'_>, count: usize, least: u64, what: &str) -> Problem {
    Problem::new(Wrong::Invalid, place, count, |at| {
        format!("{at} in body should have at least {least} {what}")
    })
}

fn exceeds(count: usize, bound: u64) -> bool {
    u64::try_from(count).is_ok_and(|count| count > bound)
}

fn falls_short(count: usize, bound: u64) -> bool {
    u64::try_from(count).is_ok_and(|count| count < bound)
}

fn list_bounds(bounds: &Bounds, items: &[Value], place: &Place<'_>, found: &mut Found) {
    if let Some(least) = bounds.min_items
        && falls_short(items.len(), least)
    {
        found.add(too_few(place, items.len(), least, "items"));
    }
    if let Some(most) = bounds.max_items
        && exceeds(items.len(), most)
    {
        found.add(too_many(place, items.len(), most, "items"));
    }
    if bounds.unique_items
        && items
            .iter()
            .enumerate()
            .any(|(index, item)| items.iter().take(index).any(|earlier| earlier == item))
    {
        found.add(Problem::new(Wrong::Invalid, place, "", |at| {
            format!("{at} in body shouldn't contain duplicates")
        }));
    }
}

fn allowed(bounds: &Bounds, value: &Value, place: &Place<'_>, found: &mut Found) {
    if bounds.allowed.is_empty() || bounds.allowed.iter().any(|allowed| number::converts_to(value, allowed)) {
        return;
    }
    let words: Vec<String> = bounds
        .allowed
        .iter()
        .map(|value| match value {
            Value::String(text) => quote(text),
            other => quote(&other.to_string()),
        })
        .collect();
    let mut problem = Problem::new(Wrong::NotSupported, place, value.clone(), |at| {
        format!("{at} in body should be one of {words:?}")
    });
    problem.detail = format!("supported values: {}", words.join(", "));
    found.add(problem);
}

fn object(
    schema: &Schema,
    map: &serde_json::Map<String, Value>,
    old: Option<Old<'_>>,
    place: &Place<'_>,
    found: &mut Found,
) {
    if let Some(bounds) = schema.bounds.as_deref() {
        if let Some(least) = bounds.min_properties
            && falls_short(map.len(), least)
        {
            found.add(too_few(place, map.len(), least, "properties"));
        }
        if let Some(most) = bounds.max_properties
            && exceeds(map.len(), most)
        {
            found.add(too_many(place, map.len(), most, "properties"));
        }
    }
    let at_root = matches!(place, Place::Root);
    for (name, value) in map {
        // Type and version of the object itself never count as unchanged: conversion made them equal.
        let old = old
            .filter(|_| !(at_root && matches!(name.as_str(), "apiVersion" | "kind")))
            .and_then(|old| old.field(name));
        if let Some(property) = schema.properties.get(name.as_str()) {
            ratcheted(property, value, old, &Place::Field(place, name), found);
        } else if let Additional::Schema(entry) = &schema.additional {
            ratcheted(entry, value, old, &Place::Entry(place, name), found);
        }
    }
    for name in &schema.required {
        if !map.contains_key(&**name) {
            let mut problem = Problem::new(Wrong::Required, &Place::Entry(place, name), Value::Null, |at| {
                format!("{at} in body is required")
            });
            problem.detail.clear();
            found.add(problem);
        }
    }
}

fn combinations(bounds: &Bounds, value: &Value, old: Option<Old<'_>>, place: &Place<'_>, found: &mut Found) {
    let branch = |schema: &Schema| {
        let mut found = Found::default();
        check(schema, value, old, place, &mut found);
        found
    };
    let named = || quote(&place.text());
    if !bounds.any_of.is_empty() {
        let mut best: Option<Found> = None;
        let mut success = None;
        for schema in &bounds.any_of {
            let result = branch(schema);
            if result.errors.is_empty() {
                success = Some(result);
                break;
            }
            if best.as_ref().is_none_or(|best| result.matches > best.matches) {
                best = Some(result);
            }
        }
        if success.is_none() {
            found.add(Problem::about_nothing(format!(
                "{} must validate at least one schema (anyOf)",
                named()
            )));
        }
        if let Some(result) = success.or(best) {
            found.merge(result);
        }
    }
    if !bounds.one_of.is_empty() {
        one_of(bounds, &branch, place, found);
    }
    if !bounds.all_of.is_empty() {
        let mut valid = 0;
        for schema in &bounds.all_of {
            let result = branch(schema);
            valid += usize::from(result.errors.is_empty());
            found.merge(result);
        }
        if valid != bounds.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            found.add(Problem::about_nothing(format!(
                "{} must validate all the schemas (allOf){none}",
                named()
            )));
        }
    }
    if let Some(schema) = bounds.not.as_deref()
        && branch(schema).errors.is_empty()
    {
        found.add(Problem::about_nothing(format!(
            "{} must not validate the schema (not)",
            named()
        )));
    }
}

fn one_of(bounds: &Bounds, branch: &dyn Fn(&Schema) -> Found, place: &Place<'_>, found: &mut Found) {
    let mut valid = 0usize;
    let mut best: Option<Found> = None;
    let mut success = None;
    for schema in &bounds.one_of {
        let result = branch(schema);
        if result.errors.is_empty() {
            valid += 1;
            best = None;
            success.get_or_insert(result);
        } else if valid == 0 && best.as_ref().is_none_or(|best| result.matches > best.matches) {
            best = Some(result);
        }
    }
    if valid == 1 {
        if let Some(result) = success {
            found.merge(result);
        }
        return;
    }
    let how_many = if valid == 0 {
        "Found none valid".to_owned()
    } else {
        format!("Found {valid} valid alternatives")
    };
    found.add(Problem::about_nothing(format!(
        "{} must validate one and only one schema (oneOf). {how_many}",
        quote(&place.text())
    )));
    if let Some(result) = best {
        found.merge(result);
    }
}
