//! The paths of a kind and what can be done there.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::actions::{Action, camel, capital, tag};
use super::definitions::{DELETE_OPTIONS, PATCH, RESOURCE_LIST, STATUS, reference};
use super::{component, definitions, parameters};
use crate::api::discovery::subresources::{ResponseKind, Subresource, subresources};
use crate::registry::row::{Row, Rules, Version};

/// The path that lists a group-version's resources.
pub fn resources(group: &str, version: &str, uses: &mut BTreeSet<String>) -> (String, Value) {
    uses.insert(RESOURCE_LIST.into());
    let operation = json!({
        "tags": [tag(group, version)],
        "description": "list what is served",
        "operationId": format!("get{}APIResources", camel(group, version)),
        "responses": {
            "200": answer("OK", reference(RESOURCE_LIST), BUILT_IN),
            "401": {"description": "Unauthorized"},
        },
    });
    (
        format!("/{}/", super::path_of(group, version)),
        json!({"get": operation}),
    )
}

/// All paths of a kind.
pub fn of(row: &Row, version: &Version, uses: &mut BTreeSet<String>) -> Vec<(String, Value)> {
    let mut kind = Kind { row, version, uses };
    let base = format!("/{}", super::path_of(&row.group, &version.name));
    let collection = match row.namespaced {
        true => format!("{base}/namespaces/{{namespace}}/{}", row.plural),
        false => format!("{base}/{}", row.plural),
    };
    let mut paths = Vec::new();
    if row.namespaced && row.verbs.contains(&"list") {
        let everywhere = kind.operation(Action::List, Where::Everywhere);
        paths.push((format!("{base}/{}", row.plural), path_item(vec![everywhere], &[])));
    }
    let scope: &[&'static str] = if row.namespaced { &["namespace"] } else { &[] };
    let on_collection = [Action::List, Action::Create, Action::DeleteCollection];
    let operations = kind.operations(&on_collection, Where::Collection);
    paths.push((collection.clone(), path_item(operations, scope)));
    let scope: &[&'static str] = if row.namespaced {
        &["name", "namespace"]
    } else {
        &["name"]
    };
    let on_object = [Action::Read, Action::Replace, Action::Delete, Action::Patch];
    let operations = kind.operations(&on_object, Where::Object);
    if !operations.is_empty() {
        paths.push((format!("{collection}/{{name}}"), path_item(operations, scope)));
    }
    for sub in subresources(row, version) {
        let path = format!("{collection}/{{name}}/{}", sub.name);
        paths.push((path, path_item(kind.subresource(sub), scope)));
    }
    paths
}

#[derive(Debug, Clone, Copy)]
enum Where {
    Everywhere,
    Collection,
    Object,
    Sub(Subresource),
}

struct Operation {
    method: &'static str,
    parameters: &'static [&'static str],
    body: Map<String, Value>,
}

/// Media types of answers.
const BUILT_IN: &[&str] = &[
    "application/json",
    "application/vnd.kubernetes.protobuf",
    "application/yaml",
];
const WATCHED: &[&str] = &[
    "application/json",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf;stream=watch",
    "application/yaml",
];
const CUSTOM: &[&str] = &["application/json", "application/yaml"];
const LOG: &[&str] = &[
    "application/json",
    "application/vnd.kubernetes.protobuf",
    "application/yaml",
    "text/plain",
];
const ANY: &[&str] = &["*/*"];

struct Kind<'a> {
    row: &'a Row,
    version: &'a Version,
    uses: &'a mut BTreeSet<String>,
}

impl Kind<'_> {
    fn is_built_in(&self) -> bool {
        matches!(self.row.rules, Rules::BuiltIn(_))
    }

    fn operations(&mut self, actions: &[Action], place: Where) -> Vec<Operation> {
        let allowed = actions.iter().filter(|action| self.row.verbs.contains(&action.verb()));
        let allowed: Vec<Action> = allowed.copied().collect();
        allowed
            .into_iter()
            .map(|action| self.operation(action, place))
            .collect()
    }

    fn subresource(&mut self, sub: Subresource) -> Vec<Operation> {
        let actions: &[Action] = match sub.name {
            "exec" | "attach" | "portforward" => &[Action::Connect("get"), Action::Connect("post")],
            "log" => &[Action::Read],
            "finalize" => &[Action::Replace],
            _ if sub.verbs.contains(&"create") => &[Action::Create],
            _ => &[Action::Read, Action::Replace, Action::Patch],
        };
        actions
            .iter()
            .map(|action| self.operation(*action, Where::Sub(sub)))
            .collect()
    }

    fn operation(&mut self, action: Action, place: Where) -> Operation {
        let built_in = self.is_built_in();
        let mut body = Map::new();
        body.insert("tags".into(), json!([tag(&self.row.group, &self.version.name)]));
        body.insert("description".into(), self.description(action, place).into());
        body.insert("operationId".into(), self.id(action, place).into());
        body.insert("responses".into(), self.responses(action, place));
        if let Some(request) = self.request(action, place) {
            body.insert("requestBody".into(), request);
        }
        body.insert("x-kubernetes-action".into(), action.name().into());
        body.insert("x-kubernetes-group-version-kind".into(), self.group_version_kind(place));
        let parameters: &[&str] = match (action, place) {
            (Action::Read, Where::Sub(Subresource { name: "log", .. })) => parameters::LOG,
            (Action::Read, _) if !built_in => &["resourceVersion"],
            (Action::Read, _) => &[],
            (Action::List, _) => parameters::LIST,
            (Action::Create | Action::Replace, _) => parameters::WRITE,
            (Action::Patch, _) => parameters::PATCH,
            (Action::Delete, _) => parameters::DELETE,
            (Action::DeleteCollection, _) => parameters::DELETE_COLLECTION,
            (Action::Connect(_), Where::Sub(Subresource { name: "exec", .. })) => parameters::EXEC,
            (Action::Connect(_), Where::Sub(Subresource { name: "attach", .. })) => parameters::ATTACH,
            (Action::Connect(_), _) => parameters::PORT_FORWARD,
        };
        Operation {
            method: action.method(),
            parameters,
            body,
        }
    }

    /// The name of what is read and written at a place.
    fn schema(&mut self, place: Where) -> String {
        let version = &*self.version.name;
        let name = match place {
            Where::Everywhere | Where::Collection | Where::Object => component(self.row, version, &self.row.kind),
            Where::Sub(sub) => match sub.response {
                ResponseKind::Own => component(self.row, version, &self.row.kind),
                ResponseKind::Beside(kind) => component(self.row, version, kind),
                ResponseKind::Of { group, version, kind } => definitions::name(group, version, kind),
            },
        };
        self.uses.insert(name.clone());
        name
    }

    fn group_version_kind(&self, place: Where) -> Value {
        let (group, version) = (&*self.row.group, &*self.version.name);
        match place {
            // Every operation of a custom resource is the custom resource's, its scale too.
            Where::Sub(Subresource {
                response: ResponseKind::Of { group, version, kind },
                ..
            }) if self.is_built_in() => json!({"group": group, "version": version, "kind": kind}),
            Where::Sub(Subresource {
                response: ResponseKind::Beside(kind),
                ..
            }) => json!({"group": group, "version": version, "kind": kind}),
            _ => json!({"group": group, "version": version, "kind": *self.row.kind}),
        }
    }

    fn request(&mut self, action: Action, place: Where) -> Option<Value> {
        let (schema, types, required): (_, &[&str], _) = match action {
            Action::Create | Action::Replace => {
                (self.schema(place), if self.is_built_in() { ANY } else { CUSTOM }, true)
            }
            Action::Delete | Action::DeleteCollection => {
                self.uses.insert(DELETE_OPTIONS.into());
                (
                    DELETE_OPTIONS.into(),
                    if self.is_built_in() { ANY } else { CUSTOM },
                    false,
                )
            }
            Action::Patch => {
                self.uses.insert(PATCH.into());
                let types: &[&str] = match self.is_built_in() {
                    true => &[
                        "application/apply-patch+yaml",
                        "application/json-patch+json",
                        "application/merge-patch+json",
                        "application/strategic-merge-patch+json",
                    ],
                    false => &[
                        "application/apply-patch+yaml",
                        "application/json-patch+json",
                        "application/merge-patch+json",
                    ],
                };
                (PATCH.into(), types, true)
            }
            Action::List | Action::Read | Action::Connect(_) => return None,
        };
        let mut request = json!({"content": content(&reference(&schema), types)});
        if let (true, Some(request)) = (required, request.as_object_mut()) {
            request.insert("required".into(), true.into());
        }
        Some(request)
    }

    fn responses(&mut self, action: Action, place: Where) -> Value {
        let types = if self.is_built_in() { BUILT_IN } else { CUSTOM };
        let mut responses = Map::new();
        let (schema, types, codes): (Value, &[&str], &[(&str, &str)]) = match action {
            Action::List => {
                let name = component(self.row, &self.version.name, &self.row.list_kind);
                self.uses.insert(name.clone());
                (
                    reference(&name),
                    if self.is_built_in() { WATCHED } else { CUSTOM },
                    &[("200", "OK")],
                )
            }
            Action::Delete | Action::DeleteCollection => {
                let own = action == Action::Delete && is_answered_with_itself(self.row);
                let name = if own { self.schema(place) } else { STATUS.into() };
                self.uses.insert(name.clone());
                let codes: &[(&str, &str)] = match action {
                    Action::Delete => &[("200", "OK"), ("202", "Accepted")],
                    _ => &[("200", "OK")],
                };
                (reference(&name), types, codes)
            }
            Action::Connect(_) => (json!({"type": "string"}), ANY, &[("200", "OK")]),
            Action::Read => match place {
                Where::Sub(Subresource { name: "log", .. }) => (json!({"type": "string"}), LOG, &[("200", "OK")]),
                _ => (reference(&self.schema(place)), types, &[("200", "OK")]),
            },
            Action::Patch if !self.is_built_in() => (reference(&self.schema(place)), types, &[("200", "OK")]),
            Action::Replace | Action::Patch => (
                reference(&self.schema(place)),
                types,
                &[("200", "OK"), ("201", "Created")],
            ),
            Action::Create => (
                reference(&self.schema(place)),
                types,
                &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
            ),
        };
        for (code, text) in codes {
            responses.insert((*code).into(), answer(text, schema.clone(), types));
        }
        responses.insert("401".into(), json!({"description": "Unauthorized"}));
        responses.into()
    }

    fn description(&self, action: Action, place: Where) -> String {
        let kind = &self.row.kind;
        match (action, place) {
            (Action::List, _) => format!("list or watch {kind} objects"),
            (Action::Create, Where::Sub(sub)) => format!("create {} of a {kind}", sub.name),
            (Action::Create, _) => format!("create a {kind}"),
            (Action::DeleteCollection, _) => format!("delete several {kind} objects"),
            (Action::Delete, _) => format!("delete a {kind}"),
            (Action::Connect(method), Where::Sub(sub)) => format!("connect by {method} to {} of a {kind}", sub.name),
            (Action::Connect(method), _) => format!("connect by {method} to a {kind}"),
            (_, Where::Sub(sub)) => format!("{} {} of the named {kind}", action.word(), sub.name),
            _ => format!("{} the named {kind}", action.word()),
        }
    }

    /// As the reference names operations: `readAppsV1NamespacedDeploymentStatus`.
    fn id(&self, action: Action, place: Where) -> String {
        let group = camel(&self.row.group, &self.version.name);
        let scope = match place {
            Where::Everywhere => "",
            _ if self.row.namespaced => "Namespaced",
            _ => "",
        };
        let after = match place {
            Where::Everywhere => "ForAllNamespaces".to_owned(),
            Where::Sub(sub) => capital(sub.name),
            Where::Collection | Where::Object => String::new(),
        };
        let kind = &self.row.kind;
        let (before, between) = match action {
            Action::List => ("list", String::new()),
            Action::Create => ("create", String::new()),
            Action::DeleteCollection => ("delete", "Collection".into()),
            Action::Read => ("read", String::new()),
            Action::Replace => ("replace", String::new()),
            Action::Delete => ("delete", String::new()),
            Action::Patch => ("patch", String::new()),
            Action::Connect(method) => ("connect", capital(method)),
        };
        format!("{before}{group}{between}{scope}{kind}{after}")
    }
}

/// Most kinds' deletion is answered with a `Status`; a few, for old reasons, with the object.
fn is_answered_with_itself(row: &Row) -> bool {
    matches!(
        (&*row.group, &*row.kind),
        (
            "",
            "Pod" | "PersistentVolume" | "PersistentVolumeClaim" | "Service" | "ServiceAccount"
        ) | ("storage.k8s.io", "StorageClass")
    )
}

/// Parameters that all operations of a path share are the path's; so are those of an only operation.
fn path_item(operations: Vec<Operation>, scope: &[&'static str]) -> Value {
    let mut shared: BTreeSet<&str> = scope.iter().copied().collect();
    let is_stream = |operation: &Operation| {
        operation
            .body
            .get("x-kubernetes-action")
            .is_some_and(|a| a == "connect")
    };
    let streams = operations.iter().all(is_stream);
    if !streams {
        shared.insert("pretty");
    }
    let merge = operations.len() == 1 || streams;
    let mut item = Map::new();
    for mut operation in operations {
        if merge {
            shared.extend(operation.parameters);
        } else if !operation.parameters.is_empty() {
            let own: Vec<Value> = operation
                .parameters
                .iter()
                .map(|name| parameters::parameter(name))
                .collect();
            operation.body.insert("parameters".into(), own.into());
        }
        item.insert(operation.method.into(), operation.body.into());
    }
    let shared: Vec<Value> = shared.into_iter().map(parameters::parameter).collect();
    item.insert("parameters".into(), shared.into());
    item.into()
}

fn answer(text: &str, schema: Value, types: &[&str]) -> Value {
    json!({"description": text, "content": content(&schema, types)})
}

fn content(schema: &Value, types: &[&str]) -> Value {
    types
        .iter()
        .map(|media| ((*media).to_owned(), json!({"schema": schema})))
        .collect::<Map<String, Value>>()
        .into()
}
