//! Good requests to begin from: all of the conformance cases, as they were sent.
//!
//! The cases are played once on a new cluster, in a few namespaces that they share; nothing is deleted, so that the cluster
//! is full afterwards. What was sent and what was answered is the corpus.

use std::collections::BTreeMap;
use std::path::Path as FilePath;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use crate::case::{self, Action, Case, Form, Options, Source};
use crate::request::Sent;
use crate::world::World;

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/cases");
/// Few, so that requests of different cases meet.
const NAMESPACES: usize = 8;

#[derive(Debug, Default)]
pub struct Corpus {
    pub requests: Vec<Sent>,
    /// Bodies of answers: objects with everything the server puts in.
    pub objects: Vec<Value>,
    /// Of them, those that can be asked for again: where they are.
    pub places: Vec<String>,
    pub definitions: Vec<Value>,
}

pub fn record(world: &World) -> Corpus {
    let mut corpus = Corpus::default();
    let mut files = Vec::new();
    collect(FilePath::new(CASES), &mut files);
    files.sort();
    assert!(files.len() > 200, "the cases are not where they were");
    for number in 0..NAMESPACES {
        let namespace = namespace(number);
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        for (path, object) in [
            ("/api/v1/namespaces".to_owned(), object),
            (format!("/api/v1/namespaces/{namespace}/serviceaccounts"), account),
        ] {
            corpus.play(
                world,
                Sent::new("POST", &path).with_body("application/json", object.to_string()),
                &Options::default(),
                &mut BTreeMap::new(),
            );
        }
    }
    for (number, file) in files.iter().enumerate() {
        let name = FilePath::new(file).file_stem().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(file).unwrap();
        let case = case::parse(&name, &text).unwrap();
        corpus.play_case(world, &case, &namespace(number % NAMESPACES));
    }
    corpus
}

fn namespace(number: usize) -> String {
    format!("fuzz-{number}")
}

fn collect(folder: &FilePath, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|end| end == "case") {
            files.push(path.to_string_lossy().into_owned());
        }
    }
}

fn fill(text: &str, names: &BTreeMap<String, String>) -> String {
    let mut names: Vec<_> = names.iter().collect();
    names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    names.into_iter().fold(text.to_owned(), |text, (name, value)| {
        text.replace(&format!("${name}"), value)
    })
}

impl Corpus {
    fn play_case(&mut self, world: &World, case: &Case, namespace: &str) {
        let group = format!("{namespace}.example.com");
        let mut names: BTreeMap<String, String> = [
            ("core", format!("/api/v1/namespaces/{namespace}")),
            ("apps", format!("/apis/apps/v1/namespaces/{namespace}")),
            ("crs", format!("/apis/{group}/v1/namespaces/{namespace}")),
            (
                "crd",
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
            ),
            ("ns", namespace.to_owned()),
            ("group", group.clone()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        for step in &case.steps {
            let options = &step.options;
            match &step.action {
                Action::Request {
                    method,
                    path,
                    content_type,
                } => {
                    let mut sent = Sent::new(method, &fill(path, &names));
                    if let Some(body) = &options.body {
                        let body = fill(body, &names);
                        let Some(body) = bytes(&body, options.form) else {
                            continue;
                        };
                        sent = sent.with_body(content_type, body);
                    }
                    for (name, value) in &options.headers {
                        sent.set_header(name, &fill(value, &names));
                    }
                    self.play(world, sent, options, &mut names);
                }
                Action::Crd { kind } => {
                    let body = fill(options.body.as_deref().unwrap_or("{}"), &names);
                    let version: Value = serde_saphyr::from_str(&body).unwrap();
                    let definition = definition(&group, kind, version);
                    self.definitions.push(definition.clone());
                    let path = &names["crd"];
                    let name = definition["metadata"]["name"].as_str().unwrap();
                    // The one of the case before.
                    let old = world.send(&Sent::new("GET", &format!("{path}/{name}"))).ok().flatten();
                    let sent = Sent::new("POST", path).with_body("application/json", definition.to_string());
                    if let Some(old) = old.filter(|old| old.code == 200) {
                        let old: Value = serde_json::from_slice(&old.body).unwrap();
                        let mut changed = definition.clone();
                        changed["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
                        let put = Sent::new("PUT", &format!("{path}/{name}"));
                        let _ = world.send(&put.with_body("application/json", changed.to_string()));
                    }
                    self.play(world, sent, options, &mut names);
                }
                Action::Watch { path, .. } => {
                    self.play(world, Sent::new("GET", &fill(path, &names)), options, &mut names);
                }
                Action::Events { .. } | Action::End { .. } | Action::Close { .. } | Action::Compact => {}
            }
        }
    }

    fn play(&mut self, world: &World, sent: Sent, options: &Options, names: &mut BTreeMap<String, String>) {
        self.requests.push(sent.clone());
        if sent.method == "DELETE" || changes_others(&sent) {
            return;
        }
        let Ok(Some(got)) = world.send(&sent) else { return };
        let Ok(body) = serde_json::from_slice::<Value>(&got.body) else {
            return;
        };
        for (name, source) in &options.captures {
            let value = match source {
                Source::Body(path) => path.one(&body).cloned(),
                Source::Header(name) => got.headers.get(name).and_then(|v| v.to_str().ok()).map(Value::from),
            };
            let value = match value {
                Some(Value::String(text)) => text,
                Some(other) => other.to_string(),
                None => "none".to_owned(),
            };
            names.insert(name.clone(), value);
        }
        if got.code == 201
            && sent.method == "POST"
            && let Some(name) = body["metadata"]["name"].as_str()
        {
            self.places.push(format!("{}/{name}", sent.path));
        }
        if got.code < 300 && body.get("metadata").is_some() {
            self.objects.push(body);
        }
    }
}

/// A webhook that nobody answers would make every write wait for it.
pub fn changes_others(sent: &Sent) -> bool {
    sent.path.contains("webhookconfigurations")
}

fn bytes(body: &str, form: Form) -> Option<Vec<u8>> {
    match form {
        Form::Raw => Some(body.as_bytes().to_vec()),
        Form::Base64 => BASE64_STANDARD.decode(body.split_whitespace().collect::<String>()).ok(),
        Form::Yaml => Some(serde_saphyr::from_str::<Value>(body).ok()?.to_string().into_bytes()),
    }
}

fn definition(group: &str, kind: &str, mut version: Value) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let fields = version.as_object_mut().unwrap();
    let mut schema = fields
        .remove("schema")
        .unwrap_or_else(|| json!({"x-kubernetes-preserve-unknown-fields": true}));
    schema["type"] = "object".into();
    fields.insert("schema".into(), json!({ "openAPIV3Schema": schema }));
    fields.insert("name".into(), "v1".into());
    fields.insert("served".into(), true.into());
    fields.insert("storage".into(), true.into());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "versions": [version],
                 "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()}},
    })
}
