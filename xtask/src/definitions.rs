//! `cargo xtask definitions`: the facts about built-in kinds that `usher-embedded` decodes and merges by.
//!
//! Two sources, both of the pinned Kubernetes release (`xtask/k8s/go.mod`) in the Go module cache: the OpenAPI documents
//! say what a field may be and how lists merge; the Go types say how an empty field is written, what a decode error
//! calls its type, and its number in protobuf. The last is held against the release's `.proto` files ([`proto`]). Only
//! facts are kept, no sentence. The reader is `crates/embedded/src/kinds/definitions.rs`, which tells the format.

mod go;
mod proto;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use self::go::{Fact, GoTypes, Wire};
use crate::error::{Error, Result};
use crate::{paths, progress};

const OUTPUT: &str = "crates/embedded/src/kinds/definitions.txt";
const CORE: &str = "io.k8s.api.core.v1.";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// Served kinds and the bodies of subresources, by their Go package; all that they refer to comes along.
const ROOTS: &[(&str, &[&str])] = &[
    (
        CORE,
        &[
            "Namespace",
            "Pod",
            "Service",
            "ConfigMap",
            "Secret",
            "ServiceAccount",
            "Endpoints",
            "PersistentVolumeClaim",
            "PersistentVolume",
            "Node",
            "Event",
            "Binding",
        ],
    ),
    (META, &["DeleteOptions", "Status"]),
    ("io.k8s.api.events.v1.", &["Event"]),
    (
        "io.k8s.api.apps.v1.",
        &["Deployment", "ReplicaSet", "StatefulSet", "ControllerRevision"],
    ),
    ("io.k8s.api.policy.v1.", &["PodDisruptionBudget", "Eviction"]),
    ("io.k8s.api.coordination.v1.", &["Lease"]),
    ("io.k8s.api.discovery.v1.", &["EndpointSlice"]),
    ("io.k8s.api.storage.v1.", &["StorageClass"]),
    ("io.k8s.api.scheduling.v1.", &["PriorityClass"]),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.",
        &["CustomResourceDefinition"],
    ),
    (
        "io.k8s.api.admissionregistration.v1.",
        &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"],
    ),
    (
        "io.k8s.api.rbac.v1.",
        &["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"],
    ),
    ("io.k8s.api.autoscaling.v1.", &["Scale"]),
    ("io.k8s.api.autoscaling.v2.", &["HorizontalPodAutoscaler"]),
    ("io.k8s.api.networking.v1.", &["NetworkPolicy"]),
    ("io.k8s.api.resource.v1.", &["ResourceClaim", "ResourceClaimTemplate"]),
    (
        "io.k8s.api.authentication.v1.",
        &["TokenReview", "TokenRequest", "SelfSubjectReview"],
    ),
    (
        "io.k8s.api.authorization.v1.",
        &[
            "SubjectAccessReview",
            "SelfSubjectAccessReview",
            "LocalSubjectAccessReview",
            "SelfSubjectRulesReview",
        ],
    ),
];

pub(crate) fn command() -> Result<()> {
    let kubernetes = module("k8s.io/kubernetes")?;
    let documents = read_documents(&kubernetes.join("api/openapi-spec/v3"))?;
    let mut go = GoTypes::default();
    let mut wanted: Vec<String> = ROOTS
        .iter()
        .flat_map(|(package, kinds)| kinds.iter().map(move |kind| format!("{package}{kind}")))
        .collect();
    let mut seen = BTreeSet::new();
    let mut written = BTreeMap::new();
    while let Some(name) = wanted.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let definition = documents
            .get(&name)
            .ok_or_else(|| Error::Machine(format!("{name} is in none of the OpenAPI documents")))?;
        let text = definition_text(&name, definition, &mut go, &mut wanted)?;
        let messages = proto::messages(&go.folder(package_of(&name))?)?;
        proto::check(&name, &text, &messages)?;
        written.insert(name, text);
    }
    let text: String = written.into_values().collect();
    let target = paths::repository().join(OUTPUT);
    std::fs::write(&target, text).map_err(Error::at("write", &target))?;
    progress::say(&format!("wrote {OUTPUT}: {} definitions", seen.len()));
    Ok(())
}

/// The folder of a Go module at the version that the tests' control plane is built from.
fn module(path: &str) -> Result<PathBuf> {
    let output = Command::new("go")
        .args(["list", "-m", "-f", "{{.Dir}}", path])
        .current_dir(paths::repository().join("xtask/k8s"))
        .env("GOFLAGS", "-mod=mod")
        .env("GOPROXY", "off")
        .output()
        .map_err(Error::io("start go"))?;
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() || folder.is_empty() {
        return Err(Error::Machine(format!(
            "Go does not have the module {path}; run `cargo xtask setup`\n{}",
            String::from_utf8_lossy(&output.stderr)
        )));
    }
    Ok(PathBuf::from(folder))
}

fn read_documents(folder: &Path) -> Result<HashMap<String, Value>> {
    let mut definitions = HashMap::new();
    for entry in folder.read_dir().map_err(Error::at("read", folder))? {
        let file = entry.map_err(Error::at("read", folder))?.path();
        if file.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let document: Value = serde_json::from_str(&paths::read(&file)?)
            .map_err(|error| Error::Machine(format!("{}: {error}", file.display())))?;
        if let Some(schemas) = document.pointer("/components/schemas").and_then(Value::as_object) {
            definitions.extend(schemas.iter().map(|(name, schema)| (name.clone(), schema.clone())));
        }
    }
    Ok(definitions)
}

fn definition_text(name: &str, definition: &Value, go: &mut GoTypes, wanted: &mut Vec<String>) -> Result<String> {
    let mut text = name.to_owned();
    if definition.get("x-kubernetes-map-type").is_some() {
        text.push_str("\tatomic");
    }
    text.push('\n');
    let Some(properties) = definition.get("properties").and_then(Value::as_object) else {
        return Ok(text);
    };
    let required: Vec<&str> = strings(definition.get("required"));
    for (field, schema) in properties {
        let fact = go.field(name, field)?;
        let kind = type_text(schema, wanted);
        let mut marks = Vec::new();
        match how_written(&fact, schema) {
            "" => {}
            mark => marks.push(mark.to_owned()),
        }
        if required.contains(&field.as_str()) {
            marks.push("required".to_owned());
        }
        marks.push(format!("go:{}", fact.go_type));
        if let Some(wire) = wire_text(field, &fact.wire) {
            marks.push(format!("wire:{wire}"));
        }
        for (key, mark) in [
            ("x-kubernetes-list-type", "list"),
            ("x-kubernetes-patch-merge-key", "key"),
            ("x-kubernetes-patch-strategy", "patch"),
        ] {
            if let Some(word) = schema.get(key).and_then(Value::as_str) {
                marks.push(format!("{mark}:{word}"));
            }
        }
        let keys = strings(schema.get("x-kubernetes-list-map-keys"));
        if !keys.is_empty() {
            marks.push(format!("keys:{}", keys.join(",")));
        }
        // `granular` where the definition as a whole is atomic.
        if let Some(word) = schema.get("x-kubernetes-map-type").and_then(Value::as_str) {
            marks.push(word.to_owned());
        }
        let inner = schema.get("items").or_else(|| schema.get("additionalProperties"));
        if let Some(default) = inner.and_then(|inner| inner.get("default")) {
            marks.push(format!("inner:{default}"));
        }
        if let Some(default) = schema.get("default") {
            marks.push(format!("default:{default}"));
        }
        // Writing to a String cannot fail.
        let _ = writeln!(text, " {field}\t{kind}\t{}", marks.join("\t"));
    }
    Ok(text)
}

/// `always`: written also when empty; `given`: a pointer, written unless absent; else written unless empty.
fn how_written(fact: &Fact, schema: &Value) -> &'static str {
    let is_struct = !fact.go_type.starts_with(['*', '[']) && reference(schema).is_some();
    if !fact.omit_empty || (is_struct && !fact.omit_zero) {
        "always"
    } else if fact.go_type.starts_with('*') {
        "given"
    } else {
        ""
    }
}

fn reference(schema: &Value) -> Option<&str> {
    let reference = schema.get("$ref").or_else(|| schema.pointer("/allOf/0/$ref"))?;
    reference.as_str()?.strip_prefix("#/components/schemas/")
}

fn type_text(schema: &Value, wanted: &mut Vec<String>) -> String {
    if let Some(name) = reference(schema) {
        let short = name.rsplit('.').next().unwrap_or(name);
        return match short {
            "Quantity" => "quantity".to_owned(),
            "IntOrString" => "int-or-string".to_owned(),
            "Time" if name.starts_with(META) => "date-time".to_owned(),
            "MicroTime" => "micro-time".to_owned(),
            "RawExtension" => "raw".to_owned(),
            "FieldsV1" => "fields".to_owned(),
            "Duration" if name.starts_with(META) => "duration".to_owned(),
            "JSON" => "json".to_owned(),
            "JSONSchemaPropsOrArray" => "schema-or-list".to_owned(),
            "JSONSchemaPropsOrBool" => "schema-or-bool".to_owned(),
            "JSONSchemaPropsOrStringArray" => "schema-or-strings".to_owned(),
            _ => {
                wanted.push(name.to_owned());
                format!("@{name}")
            }
        };
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("array") => {
            let items = schema
                .get("items")
                .map_or("any".to_owned(), |items| type_text(items, wanted));
            format!("[]{items}")
        }
        Some("object") => match schema.get("additionalProperties") {
            Some(values) => format!("{{}}{}", type_text(values, wanted)),
            None => "raw".to_owned(),
        },
        Some(kind) => match schema.get("format").and_then(Value::as_str) {
            Some(format) => format.to_owned(),
            None => kind.to_owned(),
        },
        None => "any".to_owned(),
    }
}

fn strings(list: Option<&Value>) -> Vec<&str> {
    let items = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_str).collect()
}

/// Numbers from the definition's message on, with Go's name where it is not the field's own with a capital.
fn wire_text(field: &str, wire: &[Wire]) -> Option<String> {
    let (last, holders) = wire.split_last()?;
    let mut text: String = holders
        .iter()
        .map(|holder| format!("{}={}.", holder.number, holder.go_name))
        .collect();
    text.push_str(&last.number.to_string());
    let first = field.get(..1).unwrap_or_default().to_ascii_uppercase();
    if last.go_name != format!("{first}{}", field.get(1..).unwrap_or_default()) {
        text.push('=');
        text.push_str(&last.go_name);
    }
    Some(text)
}

/// `io.k8s.api.core.v1` of `io.k8s.api.core.v1.Pod`.
fn package_of(definition: &str) -> &str {
    definition.rsplit_once('.').map_or("", |(package, _)| package)
}
