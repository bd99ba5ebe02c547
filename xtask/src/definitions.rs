//! `cargo xtask definitions`: the facts about built-in kinds that `usher-embedded` decodes and merges by.
//!
//! Two sources, both of the pinned Kubernetes release (`xtask/k8s/go.mod`) in the Go module cache: the OpenAPI documents
//! say what a field may be and how lists merge; the Go types say how an empty field is written, what a decode error
//! calls its type, and its number in protobuf. The last is held against the release's `.proto` files ([`proto`]). Only
//! facts are kept, no sentence. The reader is `crates/embedded/src/kinds/definitions.rs`, which tells the format.

mod filled;
mod proto;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

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
    for (file, text) in [(OUTPUT, text), (filled::OUTPUT, filled::text(&documents)?)] {
        let target = paths::repository().join(file);
        std::fs::write(&target, text).map_err(Error::at("write", &target))?;
    }
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

/// What Go says about a field.
#[derive(Debug, Clone)]
struct Fact {
    /// As reflection names it: `*int32`, `v1.RestartPolicy`, `[]v1.Container`.
    go_type: String,
    omit_empty: bool,
    omit_zero: bool,
    /// Where protobuf has it, from the definition's message on; nowhere for what stands around a message.
    wire: Vec<Wire>,
}

/// A field's number in protobuf, and what Go calls the field.
#[derive(Debug, Clone, PartialEq)]
struct Wire {
    number: u32,
    go_name: String,
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

/// Struct fields by package folder and type name, read as they are asked for.
#[derive(Debug, Default)]
struct GoTypes {
    modules: HashMap<String, PathBuf>,
    packages: HashMap<String, HashMap<String, GoStruct>>,
}

#[derive(Debug, Default, Clone)]
struct GoStruct {
    fields: HashMap<String, Fact>,
    /// Types whose fields are taken over, as written, and where protobuf has them.
    inline: Vec<(String, Option<Wire>)>,
}

impl GoTypes {
    fn field(&mut self, definition: &str, field: &str) -> Result<Fact> {
        let name = definition.rsplit('.').next().unwrap_or(definition);
        self.find(package_of(definition), name, field)?
            .ok_or_else(|| Error::Machine(format!("the Go type of {definition} has no field {field}")))
    }

    fn find(&mut self, package: &str, name: &str, field: &str) -> Result<Option<Fact>> {
        if !self.packages.contains_key(package) {
            let folder = self.folder(package)?;
            self.packages.insert(package.to_owned(), read_package(&folder)?);
        }
        let Some(found) = self.packages.get(package).and_then(|types| types.get(name)).cloned() else {
            return Ok(None);
        };
        if let Some(fact) = found.fields.get(field) {
            return Ok(Some(fact.clone()));
        }
        for (inline, holder) in &found.inline {
            let (package, name) = match inline.split_once('.') {
                Some(("metav1", name)) => (META.trim_end_matches('.'), name),
                Some(("v1" | "corev1", name)) => (CORE.trim_end_matches('.'), name),
                _ => (package, inline.as_str()),
            };
            if let Some(mut fact) = self.find(package, name, field)? {
                match holder {
                    Some(holder) => fact.wire.insert(0, holder.clone()),
                    None => fact.wire.clear(),
                }
                return Ok(Some(fact));
            }
        }
        Ok(None)
    }

    /// `io.k8s.api.core.v1` is folder core/v1 of module k8s.io/api.
    fn folder(&mut self, package: &str) -> Result<PathBuf> {
        let mut words = package.trim_start_matches("io.k8s.").split('.');
        let name = words.next().unwrap_or_default().to_owned();
        if !self.modules.contains_key(&name) {
            let folder = module(&format!("k8s.io/{name}"))?;
            self.modules.insert(name.clone(), folder);
        }
        let base = self.modules.get(&name).cloned().unwrap_or_default();
        Ok(words.fold(base, |folder, word| folder.join(word)))
    }
}

/// `io.k8s.api.core.v1` of `io.k8s.api.core.v1.Pod`.
fn package_of(definition: &str) -> &str {
    definition.rsplit_once('.').map_or("", |(package, _)| package)
}

fn read_package(folder: &Path) -> Result<HashMap<String, GoStruct>> {
    let mut types = HashMap::new();
    for entry in folder.read_dir().map_err(Error::at("read", folder))? {
        let file = entry.map_err(Error::at("read", folder))?.path();
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".go") && !name.contains("generated") && !name.ends_with("_test.go") {
            read_structs(&paths::read(&file)?, &folder_name(folder), &mut types);
        }
    }
    Ok(types)
}

fn folder_name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// One field a line, as gofmt leaves them.
fn read_structs(text: &str, package: &str, types: &mut HashMap<String, GoStruct>) {
    let mut open: Option<(String, GoStruct)> = None;
    for line in text.lines() {
        if let Some(name) = line
            .strip_prefix("type ")
            .and_then(|rest| rest.strip_suffix(" struct {"))
        {
            open = Some((name.to_owned(), GoStruct::default()));
        } else if line == "}" {
            types.extend(open.take());
        } else if let Some((_, found)) = &mut open {
            read_field(line, package, found);
        }
    }
}

fn read_field(line: &str, package: &str, into: &mut GoStruct) {
    let line = line.trim();
    if line.starts_with("//") {
        return;
    }
    let Some((_, tag)) = line.split_once("json:\"") else {
        return;
    };
    let mut options = tag.split('"').next().unwrap_or_default().split(',');
    let name = options.next().unwrap_or_default();
    let options: Vec<&str> = options.collect();
    let mut words = line.split('`').next().unwrap_or_default().split_whitespace();
    let (Some(first), second) = (words.next(), words.next()) else {
        return;
    };
    let wire = wire_number(line).map(|number| Wire {
        number,
        go_name: first.rsplit('.').next().unwrap_or(first).to_owned(),
    });
    // An embedded type stands alone; it is a field of its own when the tag names it.
    match second.or((!name.is_empty()).then_some(first)) {
        None => into.inline.push((first.to_owned(), wire)),
        Some(go_type) => {
            into.fields.insert(
                name.to_owned(),
                Fact {
                    go_type: qualified(go_type, package),
                    omit_empty: options.contains(&"omitempty"),
                    omit_zero: options.contains(&"omitzero"),
                    wire: wire.into_iter().collect(),
                },
            );
        }
    }
}

/// From a tag such as `protobuf:"bytes,1,opt,name=handler"`.
fn wire_number(line: &str) -> Option<u32> {
    let (_, tag) = line.split_once("protobuf:\"")?;
    tag.split(',').nth(1)?.parse().ok()
}

/// The type with its package's own name: imports are renamed in the source (`metav1`), and a package's own types stand bare.
fn qualified(go_type: &str, package: &str) -> String {
    const PLAIN: [&str; 9] = [
        "string", "bool", "int", "int32", "int64", "float64", "byte", "uint8", "error",
    ];
    if let Some(rest) = go_type.strip_prefix('*') {
        return format!("*{}", qualified(rest, package));
    }
    if let Some(rest) = go_type.strip_prefix("[]") {
        let items = qualified(rest, package);
        return format!("[]{}", if items == "byte" { "uint8" } else { &items });
    }
    if let Some((key, value)) = go_type.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        return format!("map[{}]{}", qualified(key, package), qualified(value, package));
    }
    if PLAIN.contains(&go_type) {
        return go_type.to_owned();
    }
    match go_type.split_once('.') {
        Some((import, name)) => {
            let version = import
                .rfind('v')
                .and_then(|at| import.get(at..))
                .filter(|word| word.len() > 1 && word.as_bytes().get(1).is_some_and(|digit| digit.is_ascii_digit()));
            format!("{}.{name}", version.unwrap_or(import))
        }
        None => format!("{package}.{go_type}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_struct_s_fields_are_read_with_their_types_and_their_way_of_being_empty() {
        let mut types = HashMap::new();
        let text = "type A struct {\n\tmetav1.TypeMeta `json:\",inline\"`\n\t// text\n\tB *int32 `json:\"b,omitempty\" x:\"y\"`\n\
                    \tC []metav1.Time `json:\"c\"`\n\tD Phase `json:\"d,omitempty,omitzero\"`\n}\n";
        read_structs(text, "v1", &mut types);
        let found = types.get("A").unwrap();
        assert_eq!(found.inline, [("metav1.TypeMeta".to_owned(), None)]);
        let fact = |name: &str| found.fields.get(name).unwrap();
        assert_eq!(fact("b").go_type, "*int32");
        assert!(fact("b").omit_empty && !fact("b").omit_zero);
        assert_eq!(fact("c").go_type, "[]v1.Time");
        assert!(!fact("c").omit_empty);
        assert_eq!(fact("d").go_type, "v1.Phase");
        assert!(fact("d").omit_zero);
    }
}
