//! From an established CRD to a row of the registry.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{flag, spec, text, texts, versions};
use crate::fault::{FieldError, Path};
use crate::registry::row::{Columns, CustomColumn, Row, Rules, ScalePaths, Version};
use crate::schema::Schema;

/// As discovery shows them: in another order than those of a built-in kind.
const VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

/// The row of a CRD that its rules have taken.
pub fn rows_of(crd: &Value) -> Result<Row, Vec<FieldError>> {
    let nothing = Map::new();
    let spec = crd.get("spec").and_then(Value::as_object).unwrap_or(&nothing);
    let names = spec.get("names").and_then(Value::as_object).unwrap_or(&nothing);
    let word = |key: &str| Arc::from(text(names, key));
    let words = |key: &str| texts(names, key).into_iter().map(Arc::from).collect();
    let mut rows = Vec::new();
    let mut errors = Vec::new();
    for (index, given) in versions(spec).enumerate() {
        match version(given, spec, names, &Path::new("spec.versions").index(index)) {
            Ok(version) => rows.push(version),
            Err(problems) => errors.extend(problems),
        }
    }
    if rows.is_empty() && errors.is_empty() {
        errors.push(FieldError::required(&Path::new("spec.versions"), ""));
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    rows.sort_by_key(|version| std::cmp::Reverse(priority(&version.name)));
    // A warning of our own making says what to use instead.
    let group_and_kind = (text(spec, "group"), text(names, "kind"));
    let better = rows
        .iter()
        .find(|version| version.served && version.deprecated.is_none())
        .map(|version| format!("{}/{} {}", group_and_kind.0, version.name, group_and_kind.1));
    for version in &mut rows {
        let own = format!(
            "{}/{} {} is deprecated",
            group_and_kind.0, version.name, group_and_kind.1
        );
        if version.deprecated.as_deref() == Some(own.as_str())
            && let Some(better) = &better
        {
            version.deprecated = Some(format!("{own}; use {better}").into());
        }
    }
    Ok(Row {
        group: Arc::from(text(spec, "group")),
        kind: word("kind"),
        list_kind: word("listKind"),
        plural: word("plural"),
        singular: word("singular"),
        short_names: words("shortNames"),
        categories: words("categories"),
        namespaced: text(spec, "scope") == "Namespaced",
        verbs: &VERBS,
        versions: rows,
        rules: Rules::Custom,
    })
}

/// How versions are ordered: stable before beta before alpha, each by number; others last, by name backwards.
fn priority(name: &str) -> (u8, u64, u64, std::cmp::Reverse<String>) {
    let other = (0, 0, 0, std::cmp::Reverse(name.to_owned()));
    let same = || std::cmp::Reverse(String::new());
    let Some(rest) = name.strip_prefix('v') else {
        return other;
    };
    let digits = |text: &str| -> Option<u64> {
        (!text.starts_with('0') && !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()))
            .then(|| text.parse().ok())
            .flatten()
    };
    if let Some(major) = digits(rest) {
        return (3, major, 0, same());
    }
    for (word, rank) in [("beta", 2), ("alpha", 1)] {
        if let Some((major, minor)) = rest.split_once(word)
            && let Some(major) = digits(major)
            && let Some(minor) = if minor.is_empty() { Some(0) } else { digits(minor) }
        {
            return (rank, major, minor, same());
        }
    }
    other
}

fn version(
    given: &Map<String, Value>,
    crd_spec: &Map<String, Value>,
    names: &Map<String, Value>,
    path: &Path,
) -> Result<Version, Vec<FieldError>> {
    let name = text(given, "name");
    let schema = match given.get("schema").and_then(|schema| schema.get("openAPIV3Schema")) {
        Some(schema) => Schema::parse_at(schema, &path.field("schema").field("openAPIV3Schema"))?,
        None => Schema {
            preserve_unknown: true,
            ..Schema::default()
        },
    };
    let deprecated = flag(given, "deprecated").then(|| match given.get("deprecationWarning").and_then(Value::as_str) {
        Some(warning) => Arc::from(warning),
        None => Arc::from(format!(
            "{}/{name} {} is deprecated",
            text(crd_spec, "group"),
            text(names, "kind")
        )),
    });
    let dotted = |text: &str| Arc::from(text.strip_prefix('.').unwrap_or(text));
    let scale = given
        .get("subresources")
        .and_then(|subresources| subresources.get("scale"))
        .and_then(Value::as_object)
        .map(|scale| ScalePaths {
            spec_replicas: dotted(text(scale, "specReplicasPath")),
            status_replicas: dotted(text(scale, "statusReplicasPath")),
            selector: Some(text(scale, "labelSelectorPath"))
                .filter(|path| !path.is_empty())
                .map(dotted),
        });
    let selectable = given
        .get("selectableFields")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|field| field.get("jsonPath")?.as_str())
        .map(dotted)
        .collect();
    Ok(Version {
        name: Arc::from(name),
        served: flag(given, "served"),
        storage: flag(given, "storage"),
        deprecated,
        schema: Arc::new(schema),
        has_status: spec::has_status(given),
        scale,
        columns: Columns::Custom(columns(given)),
        selectable,
    })
}

/// The columns of a version; its age where it names none.
fn columns(given: &Map<String, Value>) -> Arc<[CustomColumn]> {
    let columns: Vec<CustomColumn> = given
        .get("additionalPrinterColumns")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
        .map(|column| CustomColumn {
            name: text(column, "name").to_owned(),
            kind: text(column, "type").to_owned(),
            format: text(column, "format").to_owned(),
            description: text(column, "description").to_owned(),
            priority: column
                .get("priority")
                .and_then(Value::as_i64)
                .and_then(|priority| i32::try_from(priority).ok())
                .unwrap_or_default(),
            json_path: text(column, "jsonPath").to_owned(),
        })
        .collect();
    if columns.is_empty() {
        return Arc::new([CustomColumn {
            name: "Age".to_owned(),
            kind: "date".to_owned(),
            format: String::new(),
            description: AGE.to_owned(),
            priority: 0,
            json_path: ".metadata.creationTimestamp".to_owned(),
        }]);
    }
    columns.into()
}

const AGE: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
