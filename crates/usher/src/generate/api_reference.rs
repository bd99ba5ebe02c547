//! `docs/reference/api.md`: every field of every CRD, from the schema that the API server checks.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use serde_json::Value;

use crate::Failed;

/// The page.
pub(super) fn page(note: &str) -> Result<String, Failed> {
    let mut text = format!(
        "<!-- {note} -->\n\n# API\n\nEvery field of Usher's custom resources, as the API server checks them. `kubectl explain` \
         shows the same.\n"
    );
    for crd in usher_subnets::api::crds() {
        for version in &crd.spec.versions {
            text.push_str(&section(&crd, version)?);
        }
    }
    Ok(text)
}

fn section(crd: &CustomResourceDefinition, version: &CustomResourceDefinitionVersion) -> Result<String, Failed> {
    let names = &crd.spec.names;
    let schema = version.schema.as_ref().and_then(|s| s.open_api_v3_schema.as_ref());
    let schema = serde_json::to_value(schema)?;
    let mut text = format!("\n## {}\n\n{}\n\n", names.kind, words(&schema, "description"));
    let short: Vec<String> = names
        .short_names
        .iter()
        .flatten()
        .map(|name| format!("`{name}`"))
        .collect();
    text.push_str(&format!(
        "`apiVersion: {}/{}`, {}. Resource `{}`, short {}.",
        crd.spec.group,
        version.name,
        crd.spec.scope.to_lowercase(),
        names.plural,
        short.join(", ")
    ));
    let selectable: Vec<String> = version
        .selectable_fields
        .iter()
        .flatten()
        .map(|field| format!("`{}`", field.json_path.trim_start_matches('.')))
        .collect();
    if !selectable.is_empty() {
        text.push_str(&format!(" Field selectors: {}.", selectable.join(", ")));
    }
    text.push('\n');

    let mut rules = Vec::new();
    collect_rules(&schema, "", &mut rules);
    for part in ["spec", "status"] {
        let Some(schema) = schema.pointer(&format!("/properties/{part}")) else {
            continue;
        };
        let mut rows = Vec::new();
        walk(schema, part, &mut rows);
        text.push_str(&format!(
            "\n### {} {part}\n\n{}\n\n",
            names.kind,
            words(schema, "description")
        ));
        text.push_str("| field | type | default | limits | description |\n|---|---|---|---|---|\n");
        for row in rows {
            text.push_str(&row);
        }
    }
    if !rules.is_empty() {
        text.push_str(&format!("\n### {} rules\n\n", names.kind));
        text.push_str("| where | what the API server says when it does not hold | rule (CEL) |\n|---|---|---|\n");
        for rule in rules {
            text.push_str(&rule);
        }
    }
    Ok(text)
}

/// One row per field, depth first.
fn walk(schema: &Value, path: &str, rows: &mut Vec<String>) {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (name, field) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let path = format!("{path}.{name}");
        let needed = if required.contains(&name.as_str()) {
            ", **required**"
        } else {
            ""
        };
        let default = field
            .get("default")
            .map_or_else(String::new, |value| format!("`{value}`"));
        rows.push(format!(
            "| `{path}` | {}{needed} | {default} | {} | {} |\n",
            kind(field),
            limits(field),
            words(field, "description")
        ));
        match field.get("items") {
            Some(items) => walk(items, &format!("{path}[]"), rows),
            None => walk(field, &path, rows),
        }
    }
}

fn kind(field: &Value) -> String {
    let name = field.get("type").and_then(Value::as_str).unwrap_or("any");
    match (name, field.get("items"), field.get("additionalProperties")) {
        ("array", Some(items), _) => format!("list of {}", kind(items)),
        ("object", _, Some(values)) if values.is_object() => format!("map of string to {}", kind(values)),
        _ => match field.get("format").and_then(Value::as_str) {
            Some(format) => format!("{name} ({format})"),
            None => name.to_owned(),
        },
    }
}

fn limits(field: &Value) -> String {
    let mut limits = Vec::new();
    if let Some(values) = field.get("enum").and_then(Value::as_array) {
        let named: Vec<String> = values
            .iter()
            .filter(|value| !value.is_null())
            .map(|value| format!("`{}`", value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
            .collect();
        limits.push(named.join(", "));
    }
    for (name, words, unit) in [
        ("minimum", "at least", ""),
        ("maximum", "at most", ""),
        ("minLength", "at least", " characters"),
        ("maxLength", "at most", " characters"),
        ("minItems", "at least", " items"),
        ("maxItems", "at most", " items"),
    ] {
        if let Some(value) = field.get(name).and_then(Value::as_f64) {
            limits.push(format!("{words} {value}{unit}"));
        }
    }
    if let Some(pattern) = field.get("pattern").and_then(Value::as_str) {
        limits.push(format!("`{}`", cell(pattern)));
    }
    if let Some(items) = field.get("items") {
        let each = self::limits(items);
        if !each.is_empty() {
            limits.push(format!("each: {each}"));
        }
    }
    limits.join("; ")
}

fn collect_rules(schema: &Value, path: &str, rules: &mut Vec<String>) {
    for rule in schema
        .get("x-kubernetes-validations")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let place = if path.is_empty() { "the object" } else { path };
        rules.push(format!(
            "| {place} | {} | `{}` |\n",
            words(rule, "message"),
            words(rule, "rule")
        ));
    }
    for (name, field) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        collect_rules(field, &path, rules);
    }
    if let Some(items) = schema.get("items") {
        collect_rules(items, &format!("{path}[]"), rules);
    }
}

fn words(schema: &Value, field: &str) -> String {
    cell(schema.get(field).and_then(Value::as_str).unwrap_or_default())
}

/// Fit for a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}
