//! Binding, the command that sends a pod to its node. And what follows a write.

use serde_json::{Value, json};

use crate::fault::{Fault, FieldError, Path};
use crate::registry::ask::{Ask, Outcome, Target};
use crate::registry::{Patch, Registry, object};

impl Registry {
    /// POST of `pods/NAME/binding`: the pod goes to a node, once.
    pub(crate) async fn bind(&self, target: &Target, ask: &Ask, binding: &Value) -> Result<Value, Fault> {
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
        if !bound.is_empty() {
            return Err(Fault::conflict(
                &crate::fault::Subject {
                    group: String::new(),
                    kind: "pods/binding".to_owned(),
                },
                &target.name,
                &format!(
                    "pod {} is already assigned to node {}",
                    target.name,
                    crate::fault::quote(bound)
                ),
            ));
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
                into.insert(key.clone(), value.clone());
            }
        }
        let _ = ask;
        self.write_direct(&whole, &entry, &new).await?;
        Ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}))
    }

    /// What the server itself does after a write was stored. Its own failures are told in the log: the write stands.
    pub(crate) async fn after_write(&self, target: &Target, outcome: &Outcome) {
        if let Err(fault) = self.after_definition(target, &outcome.object).await {
            tracing::warn!(name = object::name(&outcome.object), %fault, "the definition is stored but not served");
        }
    }
}
