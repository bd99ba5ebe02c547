//! Binding, the command that sends a pod to its node. And what follows a write.

use serde_json::{Value, json};

use crate::admission::Review;
use crate::fault::{Fault, FieldError, Path, Subject, quote};
use crate::registry::ask::{Ask, Outcome, Target};
use crate::registry::definitions::put_condition;
use crate::registry::update::MOVED;
use crate::registry::{Refused, Registry, TRIES, object};
use crate::store::{Change, Expect, Write};

impl Registry {
    /// POST of `pods/NAME/binding`: the pod goes to a node, once.
    pub(crate) async fn bind(
        &self,
        target: &Target,
        ask: &Ask,
        mut binding: Value,
        warnings: &mut Vec<String>,
    ) -> Result<Value, Fault> {
        let review = Review::command(target, ask);
        self.admit_command(&review, &mut binding, warnings).await?;
        let binding = &binding;
        if object::name(binding) != target.name {
            return Err(Fault::bad_request("name in URL does not match name in Binding object"));
        }
        let text = |path: &str| object::at(binding, path).and_then(Value::as_str).unwrap_or_default();
        let node = text("target.name");
        if node.is_empty() {
            return Err(Fault::bad_request("a binding needs target.name, the node's name"));
        }
        // The reference takes any, and the pod can never be changed again.
        if let Some(wrong) = crate::kinds::names::dns_subdomain(node).into_iter().next() {
            let error = FieldError::invalid(&Path::new("target.name"), node, wrong);
            return Err(Fault::bad_request(error.to_string()));
        }
        let kind = text("target.kind");
        if !matches!(kind, "" | "Node") {
            let error = FieldError::not_supported(&Path::new("target.kind"), kind, &["Node", "<empty>"]);
            return Err(Fault::new(500, "", error.to_string()));
        }
        let annotations = object::meta(binding).get("annotations").filter(|all| !all.is_null());
        if let Some(all) = annotations
            && !all.as_object().is_some_and(|all| all.values().all(Value::is_string))
        {
            return Err(Fault::bad_request("a binding's annotations are texts by their names"));
        }
        self.validate(&review, Some(binding), warnings).await?;
        let pods = Target {
            subresource: None,
            ..target.clone()
        };
        let mut tried = 0;
        loop {
            let Some((entry, pod)) = self.live(&pods, &pods.key())? else {
                return Err(target.not_found());
            };
            check_bindable(target, binding, &pod)?;
            let bound = self.bound(&pod, binding, node);
            if ask.dry_run {
                break;
            }
            match self.write_direct(&pods, &entry, &bound).await {
                Ok(()) => break,
                // A status came in between.
                Err(fault) if fault.code == 409 && tried < TRIES => tried += 1,
                Err(fault) => return Err(fault),
            }
        }
        Ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}))
    }

    /// Bindings that are made together: all of them or none, in one write (K2). Each is a pod, its uid and the node.
    pub(crate) async fn bind_all(&self, ask: &Ask, bindings: &[(Target, String, String)]) -> Result<(), Fault> {
        for (target, uid, node) in bindings {
            let target = Target {
                subresource: Some("binding".to_owned()),
                ..target.clone()
            };
            let review = Review::command(&target, ask);
            let mut asked = binding_of(&target, uid, node);
            self.admit_command(&review, &mut asked, &mut Vec::new()).await?;
            self.validate(&review, Some(&asked), &mut Vec::new()).await?;
        }
        for _ in 0..=TRIES {
            let mut batch = Vec::with_capacity(bindings.len());
            for (target, uid, node) in bindings {
                let Some((entry, pod)) = self.live(target, &target.key())? else {
                    return Err(target.not_found());
                };
                let binding = binding_of(target, uid, node);
                check_bindable(target, &binding, &pod)?;
                let bound = Self::store_form(&target.resource, &self.bound(&pod, &binding, node))?;
                batch.push(Write {
                    key: entry.key,
                    expect: Expect::Revision(entry.revision),
                    change: Change::Put(bound),
                });
            }
            match self.commit_all(batch).await {
                Ok(_) => return Ok(()),
                Err(Refused::Fault(fault)) => return Err(fault),
                // A status came in between.
                Err(Refused::Moved) => {}
            }
        }
        let name = bindings
            .first()
            .map(|(target, ..)| target.name.as_str())
            .unwrap_or_default();
        let subject = Subject {
            group: String::new(),
            kind: "pods/binding".to_owned(),
        };
        Err(Fault::conflict(&subject, name, MOVED))
    }

    /// Mutating webhooks about a command to an object. A namespace that goes takes none.
    pub(super) async fn admit_command(
        &self,
        review: &Review<'_>,
        command: &mut Value,
        warnings: &mut Vec<String>,
    ) -> Result<(), Fault> {
        self.open_namespace(review)?;
        self.admit(review, command, warnings).await.map(|_| ())
    }

    fn bound(&self, pod: &Value, binding: &Value, node: &str) -> Value {
        let mut new = pod.clone();
        object::set_at(&mut new, "spec.nodeName", node.into());
        let mut status = new.get("status").cloned().unwrap_or_else(|| json!({}));
        put_condition(
            &mut status,
            json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null,
                "lastTransitionTime": object::time(self.clock.now())}),
        );
        let map = object::as_map(&mut new);
        map.insert("status".to_owned(), status);
        if let Some(annotations) = object::meta(binding).get("annotations").and_then(Value::as_object) {
            let into = object::field_mut(map.entry("metadata").or_insert(Value::Null), "annotations");
            for (key, value) in annotations {
                into.insert(key.clone(), value.clone());
            }
        }
        self.take_over_topology(node, &mut new);
        new
    }

    /// What the server itself does after a write was stored. Its own failures are told in the log: the write stands.
    pub(crate) async fn after_write(&self, target: &Target, outcome: &Outcome) {
        if let Err(fault) = self.after_definition(target, object::name(&outcome.object)).await {
            tracing::warn!(name = object::name(&outcome.object), %fault, "the definition is stored but not served");
        }
    }
}

fn binding_of(target: &Target, uid: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": target.name, "namespace": target.namespace, "uid": uid},
        "target": {"kind": "Node", "name": node}})
}

/// A pod is bound once, while it is not on its way out, and only if it is the one that was meant.
fn check_bindable(target: &Target, binding: &Value, pod: &Value) -> Result<(), Fault> {
    let refused = |why: &str| {
        let subject = Subject {
            group: String::new(),
            kind: "pods/binding".to_owned(),
        };
        Err(Fault::conflict(&subject, &target.name, why))
    };
    let name = &target.name;
    for (field, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (wanted, is) = (object::text(binding, field), object::text(pod, field));
        if !wanted.is_empty() && wanted != is {
            return refused(&format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {is}"
            ));
        }
    }
    if object::is_deleting(pod) {
        return refused(&format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let node = object::at(pod, "spec.nodeName")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if !node.is_empty() {
        return refused(&format!("pod {name} is already assigned to node {}", quote(node)));
    }
    let gates = object::at(pod, "spec.schedulingGates").and_then(Value::as_array);
    if gates.is_some_and(|gates| !gates.is_empty()) {
        return refused(&format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    Ok(())
}
