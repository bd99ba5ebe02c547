//! What every pod is given: an account with its token, a priority, and patience with lost nodes (O22).

use serde_json::{Value, json};

use crate::admission::{Operation, Review};
use crate::fault::{Fault, quote};
use crate::registry::{Registry, object};

const MIRROR: &str = "kubernetes.io/config.mirror";
const DEFAULT_ACCOUNT: &str = "default";
const TOKEN_VOLUME: &str = "kube-api-access-";
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// An hour and a few seconds: the reference tells by the odd number that nobody chose it.
const TOKEN_SECONDS: u32 = 3_607;
/// How long a pod stays on a node that is not ready or not reachable.
const PATIENCE_SECONDS: u32 = 300;

fn has_annotation(object: &Value, key: &str) -> bool {
    object::meta(object)
        .get("annotations")
        .is_some_and(|annotations| annotations.get(key).is_some())
}

fn spec_text<'a>(pod: &'a Value, field: &str) -> &'a str {
    pod.get("spec")
        .and_then(|spec| spec.get(field))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// A list in a map; made if there is none.
fn list<'a>(map: &'a mut serde_json::Map<String, Value>, field: &str) -> Option<&'a mut Vec<Value>> {
    let list = map.entry(field).or_insert(Value::Null);
    if list.is_null() {
        *list = json!([]);
    }
    list.as_array_mut()
}

/// The account, what it says of tokens, and its pull secrets.
pub(super) fn give_account(registry: &Registry, review: &Review<'_>, pod: &mut Value) -> Result<(), Fault> {
    if has_annotation(pod, MIRROR) {
        // A node's own pod is shown as it is there.
        return match spec_text(pod, "serviceAccountName") {
            "" => Ok(()),
            _ => Err(review.forbidden("a mirror pod may not reference service accounts")),
        };
    }
    let name = match spec_text(pod, "serviceAccountName") {
        "" => DEFAULT_ACCOUNT.to_owned(),
        name => name.to_owned(),
    };
    let namespace = review.namespace();
    let account = match registry.find("", "serviceaccounts", Some(namespace), &name) {
        Some(account) => account,
        // Its controller makes it with the namespace. The reference waits for that; here a request ends in its first
        // poll (E2), and one that will be there soon is as good.
        None if name == DEFAULT_ACCOUNT => json!({}),
        None => {
            return Err(review.forbidden(&format!(
                "error looking up service account {namespace}/{name}: serviceaccount {} not found",
                quote(&name)
            )));
        }
    };
    let spec = object::field_mut(pod, "spec");
    spec.insert("serviceAccountName".to_owned(), name.clone().into());
    // The old name of the field is always a copy.
    spec.insert("serviceAccount".to_owned(), name.into());
    let choice = |object: &Value| object.get("automountServiceAccountToken").and_then(Value::as_bool);
    let mounts = spec.get("automountServiceAccountToken").and_then(Value::as_bool);
    if mounts.or_else(|| choice(&account)).unwrap_or(true) {
        mount_token(registry, spec);
    }
    let secrets = account.get("imagePullSecrets").and_then(Value::as_array);
    if let Some(secrets) = secrets.filter(|secrets| !secrets.is_empty())
        && let Some(own) = list(spec, "imagePullSecrets")
        && own.is_empty()
    {
        own.clone_from(secrets);
    } else if spec
        .get("imagePullSecrets")
        .and_then(Value::as_array)
        .is_some_and(Vec::is_empty)
    {
        spec.remove("imagePullSecrets");
    }
    Ok(())
}

/// Each container that has nothing else there sees the account's token.
fn mount_token(registry: &Registry, spec: &mut serde_json::Map<String, Value>) {
    let named = |volume: &Value| {
        let name = volume.get("name")?.as_str()?;
        name.starts_with(TOKEN_VOLUME).then(|| name.to_owned())
    };
    let existing = spec
        .get("volumes")
        .and_then(Value::as_array)
        .and_then(|volumes| volumes.iter().find_map(named));
    let has_volume = existing.is_some();
    let volume = existing.unwrap_or_else(|| format!("{TOKEN_VOLUME}{}", registry.dice.suffix()));
    let mut needed = false;
    for field in ["initContainers", "containers"] {
        let Some(containers) = spec.get_mut(field).and_then(Value::as_array_mut) else {
            continue;
        };
        for container in containers {
            let Some(mounts) = container.as_object_mut().and_then(|map| list(map, "volumeMounts")) else {
                continue;
            };
            let is_covered = mounts
                .iter()
                .any(|mount| mount.get("mountPath").and_then(Value::as_str) == Some(TOKEN_PATH));
            if !is_covered {
                mounts.push(json!({"name": volume, "readOnly": true, "mountPath": TOKEN_PATH}));
                needed = true;
            }
        }
    }
    if needed
        && !has_volume
        && let Some(volumes) = list(spec, "volumes")
    {
        volumes.push(json!({"name": volume, "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{
                    "path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                }]}},
            ],
        }}));
    }
}

/// The number that a class name stands for, or the default class's.
pub(super) fn give_priority(registry: &Registry, review: &Review<'_>, pod: &mut Value) -> Result<(), Fault> {
    let asked = spec_text(pod, "priorityClassName").to_owned();
    let spec = object::field_mut(pod, "spec");
    if let (Operation::Update, Some(old)) = (review.operation, review.old) {
        for field in ["priority", "preemptionPolicy"] {
            let is_given = spec.get(field).is_some_and(|value| !value.is_null());
            if let Some(value) = old.get("spec").and_then(|spec| spec.get(field))
                && !is_given
            {
                spec.insert(field.to_owned(), value.clone());
            }
        }
        return Ok(());
    }
    let class = if asked.is_empty() {
        default_class(registry)
    } else {
        let found = registry.find("scheduling.k8s.io", "priorityclasses", None, &asked);
        Some(found.ok_or_else(|| review.forbidden(&format!("no PriorityClass with name {asked} was found")))?)
    };
    let computed = class
        .as_ref()
        .and_then(|class| class.get("value"))
        .and_then(Value::as_i64)
        .unwrap_or(0);
    if let Some(given) = spec
        .get("priority")
        .and_then(Value::as_i64)
        .filter(|given| *given != computed)
    {
        return Err(review.forbidden(&format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {computed} from the given PriorityClass name"
        )));
    }
    spec.insert("priority".to_owned(), computed.into());
    let policy = match &class {
        Some(class) => class.get("preemptionPolicy").and_then(Value::as_str),
        None => Some("PreemptLowerPriority"),
    };
    if let Some(policy) = policy {
        if let Some(given) = spec
            .get("preemptionPolicy")
            .and_then(Value::as_str)
            .filter(|given| *given != policy)
        {
            return Err(review.forbidden(&format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
            )));
        }
        spec.insert("preemptionPolicy".to_owned(), policy.into());
    }
    if let Some(class) = &class {
        spec.insert("priorityClassName".to_owned(), object::name(class).into());
    }
    Ok(())
}

/// The class of pods that name none. If there are several, the lowest.
fn default_class(registry: &Registry) -> Option<Value> {
    registry
        .every("scheduling.k8s.io", "priorityclasses")
        .into_iter()
        .filter(|class| class.get("globalDefault") == Some(&Value::Bool(true)))
        .min_by_key(|class| class.get("value").and_then(Value::as_i64))
}

pub(super) fn only_one_default(registry: &Registry, review: &Review<'_>, class: &Value) -> Result<(), Fault> {
    if class.get("globalDefault") != Some(&Value::Bool(true)) {
        return Ok(());
    }
    match default_class(registry) {
        Some(default) if review.operation == Operation::Create || object::name(&default) != review.name => Err(review
            .forbidden(&format!(
                "PriorityClass {} is already marked as default. Only one default can exist",
                object::name(&default)
            ))),
        _ => Ok(()),
    }
}

/// Labels that a pod takes over from its node, whatever it said before.
const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// A pod that has a node says where that is.
pub(super) fn label_by_node(registry: &Registry, pod: &mut Value) {
    let node = spec_text(pod, "nodeName").to_owned();
    if !node.is_empty() {
        registry.take_over_topology(&node, pod);
    }
}

impl Registry {
    /// Copies a node's topology labels to a pod.
    pub(crate) fn take_over_topology(&self, node: &str, pod: &mut Value) {
        let Some(node) = self.find("", "nodes", None, node) else {
            return;
        };
        for key in TOPOLOGY {
            let label = object::meta(&node).get("labels").and_then(|labels| labels.get(key));
            if let Some(value) = label.cloned() {
                let meta = object::as_map(pod).entry("metadata").or_insert(Value::Null);
                object::field_mut(meta, "labels").insert(key.to_owned(), value);
            }
        }
    }
}

/// Unless it says otherwise, a pod leaves a node that was lost, but not at once.
pub(super) fn tolerate_lost_nodes(pod: &mut Value) {
    let Some(tolerations) = list(object::field_mut(pod, "spec"), "tolerations") else {
        return;
    };
    for taint in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |toleration: &Value| {
            let is = |field: &str, wanted: &str| match toleration.get(field).and_then(Value::as_str) {
                None | Some("") => true,
                Some(text) => text == wanted,
            };
            is("key", taint) && is("effect", "NoExecute")
        };
        if !tolerations.iter().any(covers) {
            tolerations.push(json!({
                "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": PATIENCE_SECONDS,
            }));
        }
    }
}
