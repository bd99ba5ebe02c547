//! Subresources that are commands to a pod: binding and eviction. And what follows a write.

use serde_json::{Value, json};

use crate::fault::Fault;
use crate::registry::ask::{Ask, Outcome, Target};
use crate::registry::{DeleteOptions, Patch, Registry, object};

impl Registry {
    /// POST of `pods/NAME/binding`: the pod goes to a node, once.
    pub(crate) async fn bind(&self, target: &Target, ask: &Ask, binding: &Value) -> Result<Value, Fault> {
        let node = object::at(binding, "target.name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if node.is_empty() {
            return Err(Fault::bad_request("a binding needs target.name, the node's name"));
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

    /// POST of `pods/NAME/eviction`: a delete that budgets may hold up. Budgets are watched over by the disruption
    /// controller; without one that has counted, an eviction is a delete.
    pub(crate) async fn evict(&self, target: &Target, ask: &Ask, eviction: &Value) -> Result<Value, Fault> {
        let name = object::name(eviction);
        if !name.is_empty() && name != target.name {
            return Err(super::update::name_mismatch(name, &target.name));
        }
        let given = eviction.get("deleteOptions").cloned().unwrap_or_else(|| json!({}));
        let text = |path: &str| object::at(&given, path).and_then(Value::as_str).map(str::to_owned);
        let options = DeleteOptions {
            grace_seconds: given.get("gracePeriodSeconds").and_then(Value::as_i64),
            uid: text("preconditions.uid"),
            resource_version: text("preconditions.resourceVersion"),
            propagation: text("propagationPolicy"),
            orphan_dependents: None,
            raw: given,
        };
        let whole = Target {
            subresource: None,
            ..target.clone()
        };
        self.delete(&whole, ask, &options).await?;
        Ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}))
    }

    /// What the server itself does after a write was stored. Its own failures are told in the log: the write stands.
    pub(crate) async fn after_write(&self, target: &Target, outcome: &Outcome) {
        if let Err(fault) = self.after_definition(target, &outcome.object).await {
            tracing::warn!(name = object::name(&outcome.object), %fault, "the definition is stored but not served");
        }
    }

    /// A write of ours to an object that was just read.
    pub(crate) async fn patch_merge(&self, target: &Target, manager: &str, change: Value) -> Result<Outcome, Fault> {
        self.patch(target, &Ask::internal(manager), &Patch::Merge(change)).await
    }
}
