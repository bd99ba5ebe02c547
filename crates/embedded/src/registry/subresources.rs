//! Binding, the command that sends a pod to its node. And what follows a write.

use serde_json::{Value, json};

use crate::fault::{Fault, FieldError, Path, Subject, quote};
use crate::registry::ask::{Outcome, Target};
use crate::registry::{Registry, object};

impl Registry {
    /// POST of `pods/NAME/binding`: the pod goes to a node, once.
    pub(crate) async fn bind(&self, target: &Target, dry_run: bool, binding: &Value) -> Result<Value, Fault> {
        let node = object::at(binding, "target.name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if node.is_empty() {
            return Err(Fault::bad_request("a binding needs target.name, the node's name"));
        }
        let kind = object::at(binding, "target.kind")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !matches!(kind, "" | "Node") {
            let error = FieldError::not_supported(&Path::new("target.kind"), kind, &["Node", "<empty>"]);
            return Err(Fault::new(500, "", error.to_string()));
        }
        let whole = Target {
            subresource: None,
            ..target.clone()
        };
        let Some((entry, pod)) = self.live(&whole, &whole.key())? else {
            return Err(target.not_found());
        };
        let bound = object::at(&pod, "spec.nodeName")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let refused = |why: &str| {
            let subject = Subject {
                group: String::new(),
                kind: "pods/binding".to_owned(),
            };
            Fault::conflict(&subject, &target.name, why)
        };
        if object::is_deleting(&pod) {
            let why = format!("pod {} is being deleted, cannot be assigned to a host", target.name);
            return Err(refused(&why));
        }
        if !bound.is_empty() {
            let why = format!("pod {} is already assigned to node {}", target.name, quote(bound));
            return Err(refused(&why));
        }
        let is_gated = object::at(&pod, "spec.schedulingGates")
            .and_then(Value::as_array)
            .is_some_and(|gates| !gates.is_empty());
        if is_gated {
            return Err(refused(&format!(
                "pod {} has non-empty .spec.schedulingGates",
                target.name
            )));
        }
        let mut new = pod.clone();
        object::set_at(&mut new, "spec.nodeName", node.into());
        let mut status = new.get("status").cloned().unwrap_or_else(|| json!({}));
        super::definitions::put_condition(
            &mut status,
            json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null,
                "lastTransitionTime": object::time(self.clock.now())}),
        );
        object::as_map(&mut new).insert("status".to_owned(), status);
        if let Some(annotations) = object::meta(binding).get("annotations").and_then(Value::as_object) {
            let into = object::field_mut(
                object::as_map(&mut new).entry("metadata").or_insert(Value::Null),
                "annotations",
            );
            for (key, value) in annotations {
                let Some(text) = value.as_str() else {
                    let why = format!("metadata.annotations[{}] of a Binding is a text", quote(key));
                    return Err(Fault::bad_request(why));
                };
                into.insert(key.clone(), text.into());
            }
        }
        if !dry_run {
            self.write_direct(&whole, &entry, &new).await?;
        }
        Ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}))
    }

    /// What the server itself does after a write was stored. Its own failures are told in the log: the write stands.
    pub(crate) async fn after_write(&self, target: &Target, outcome: &Outcome) {
        if let Err(fault) = self.after_definition(target, &outcome.object).await {
            tracing::warn!(name = object::name(&outcome.object), %fault, "the definition is stored but not served");
        }
    }
}
