//! Eviction: a delete that disruption budgets may hold up (C8). The counts in a budget's status are its controller's; here
//! they are only spent.

use serde_json::{Value, json};

use crate::admission::Review;
use crate::fault::{Fault, Subject};
use crate::registry::ask::{Ask, Target};
use crate::registry::definitions::{is_true, put_condition};
use crate::registry::delete::preconditions;
use crate::registry::read::ListOptions;
use crate::registry::select::LabelSelector;
use crate::registry::{DeleteOptions, Patch, Registry, TRIES, object};

/// Evictions that a budget's controller has not yet confirmed.
const MOST_DISRUPTED: usize = 2_000;
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

impl Registry {
    /// POST of `pods/NAME/eviction`. Webhooks are asked about the eviction, before a budget is spent, and not about what
    /// comes of it.
    pub(crate) async fn evict(
        &self,
        target: &Target,
        ask: &Ask,
        mut eviction: Value,
        warnings: &mut Vec<String>,
    ) -> Result<Value, Fault> {
        let review = Review::command(target, ask);
        self.admit_command(&review, &mut eviction, warnings).await?;
        if object::name(&eviction) != target.name {
            return Err(Fault::bad_request("name in URL does not match name in Eviction object"));
        }
        let mut options = delete_options(&eviction, ask)?;
        self.validate(&review, Some(&eviction), warnings).await?;
        let ask = &Ask {
            dry_run: options.is_dry_run(),
            is_admitted: true,
            ..ask.clone()
        };
        let pods = Target {
            subresource: None,
            ..target.clone()
        };
        let Some((_, pod)) = self.live(&pods, &pods.key())? else {
            return Err(target.not_found());
        };
        // Before a budget is spent, and before the pod says that it goes.
        preconditions(&pods, &options, &pod)?;
        if !is_of_no_budget(&pod) {
            let budgets = self.budgets_of(target, &pod)?;
            match budgets.as_slice() {
                [] => {}
                [budget] => {
                    if is_spare(&pod, budget) {
                        // It must not become healthy before it goes.
                        options
                            .resource_version
                            .get_or_insert_with(|| object::text(&pod, "resourceVersion").to_owned());
                    } else {
                        self.spend(target, ask, object::name(budget)).await?;
                    }
                }
                _ => {
                    return Err(Fault::new(
                        500,
                        "",
                        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                    ));
                }
            }
        }
        if !ask.dry_run {
            self.mark_evicted(&pods, ask, &mut options).await?;
        }
        self.delete(&pods, ask, &options).await?;
        Ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}))
    }

    /// The budgets whose selector has the pod.
    fn budgets_of(&self, target: &Target, pod: &Value) -> Result<Vec<Value>, Fault> {
        let Some(budgets) = self.budgets(target, "") else {
            return Ok(Vec::new());
        };
        let mut found = self.list_objects(&budgets, &ListOptions::default())?.items;
        found.retain(|budget| {
            object::at(budget, "spec.selector")
                .and_then(LabelSelector::from_object)
                .is_some_and(|selector| selector.matches(pod))
        });
        Ok(found)
    }

    fn budgets(&self, target: &Target, name: &str) -> Option<Target> {
        let catalog = self.catalog();
        let resource = catalog.find("policy", "poddisruptionbudgets")?;
        Some(Target {
            version: resource.version("v1")?.clone(),
            resource: resource.clone(),
            namespace: target.namespace.clone(),
            name: name.to_owned(),
            subresource: None,
        })
    }

    /// Takes one of the disruptions that the budget allows.
    async fn spend(&self, target: &Target, ask: &Ask, name: &str) -> Result<(), Fault> {
        let Some(budgets) = self.budgets(target, name) else {
            return Ok(());
        };
        for _ in 0..TRIES {
            let Some((_, budget)) = self.live(&budgets, &budgets.key())? else {
                return Ok(());
            };
            check_budget(&budget)?;
            if ask.dry_run {
                return Ok(());
            }
            let now = object::time(self.clock.now());
            let number = |path: &str| object::at(&budget, path).and_then(Value::as_i64).unwrap_or(0);
            let left = number("status.disruptionsAllowed") - 1;
            let mut status = budget.get("status").cloned().unwrap_or_else(|| json!({}));
            if left == 0 {
                put_condition(
                    &mut status,
                    json!({"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
                        "lastTransitionTime": now, "observedGeneration": number("status.observedGeneration")}),
                );
            }
            object::set_at(&mut status, "disruptionsAllowed", left.into());
            let disrupted = object::field_mut(&mut status, "disruptedPods");
            disrupted.insert(target.name.clone(), now);
            let change = json!({
                "metadata": {"resourceVersion": object::text(&budget, "resourceVersion")}, "status": status,
            });
            let to_status = Target {
                subresource: Some("status".to_owned()),
                ..budgets.clone()
            };
            let ours = Ask::internal("kube-apiserver");
            match self.patch(&to_status, &ours, &Patch::Merge(change)).await {
                Ok(_) => return Ok(()),
                // Somebody else took one, or the controller counted anew.
                Err(fault) if fault.code == 409 => {}
                Err(fault) => return Err(fault),
            }
        }
        Err(Fault::new(
            504,
            "Timeout",
            format!("Timeout: couldn't update PodDisruptionBudget {name:?} due to conflicts"),
        )
        .retry_after(10))
    }

    /// The pod says why it goes.
    async fn mark_evicted(&self, pods: &Target, ask: &Ask, options: &mut DeleteOptions) -> Result<(), Fault> {
        let Some((_, pod)) = self.live(pods, &pods.key())? else {
            return Err(pods.not_found());
        };
        let mut status = pod.get("status").cloned().unwrap_or_else(|| json!({}));
        put_condition(
            &mut status,
            json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting", "lastProbeTime": null,
                "lastTransitionTime": object::time(self.clock.now())}),
        );
        let to_status = Target {
            subresource: Some("status".to_owned()),
            ..pods.clone()
        };
        let mut change = json!({"status": status});
        for (field, wanted) in [("uid", &options.uid), ("resourceVersion", &options.resource_version)] {
            if let Some(wanted) = wanted {
                object::meta_mut(&mut change).insert(field.to_owned(), wanted.clone().into());
            }
        }
        // The reference writes this past whoever keeps the fields' owners.
        let untracked = Ask {
            is_untracked: true,
            ..ask.clone()
        };
        let outcome = self.patch(&to_status, &untracked, &Patch::Merge(change)).await?;
        if options.resource_version.is_some() {
            options.resource_version = Some(object::text(&outcome.object, "resourceVersion").to_owned());
        }
        Ok(())
    }
}

/// Those of the request, which the body's must not contradict.
fn delete_options(eviction: &Value, ask: &Ask) -> Result<DeleteOptions, Fault> {
    let given = eviction.get("deleteOptions").cloned().unwrap_or_default();
    // The body was decoded as a whole before.
    let mut options = DeleteOptions::read(given).map_err(Fault::bad_request)?;
    options.check()?;
    if options.is_dry_run() && ask.dry_run && options.dry_run.len() != 1 {
        return Err(Fault::new(
            500,
            "",
            format!(
                "Non-matching dry-run options in request and content: [All] and [{}]",
                options.dry_run.join(" ")
            ),
        ));
    }
    if options.dry_run.is_empty() && ask.dry_run {
        options.dry_run = vec!["All".to_owned()];
    }
    Ok(options)
}

/// Pending, finished and terminating pods disrupt nothing by going.
fn is_of_no_budget(pod: &Value) -> bool {
    object::is_deleting(pod)
        || matches!(
            object::at(pod, "status.phase").and_then(Value::as_str),
            Some("Succeeded" | "Failed" | "Pending")
        )
}

/// A pod that is not ready and whose going the budget does not mind.
fn is_spare(pod: &Value, budget: &Value) -> bool {
    if is_true(pod, "Ready") {
        return false;
    }
    let policy = object::at(budget, "spec.unhealthyPodEvictionPolicy").and_then(Value::as_str);
    let number = |path: &str| object::at(budget, path).and_then(Value::as_i64).unwrap_or(0);
    let desired = number("status.desiredHealthy");
    policy == Some("AlwaysAllow") || (desired > 0 && number("status.currentHealthy") >= desired)
}

/// Whether the budget allows one more disruption.
fn check_budget(budget: &Value) -> Result<(), Fault> {
    let name = object::name(budget);
    let number = |path: &str| object::at(budget, path).and_then(Value::as_i64).unwrap_or(0);
    let refused = |why: &str| Fault::new(429, "TooManyRequests", REFUSED).cause("DisruptionBudget", why, "");
    if number("status.observedGeneration") < object::generation(budget) {
        return Err(refused(&format!(
            "The disruption budget {name} is still being processed by the server."
        ))
        .retry_after(10));
    }
    let subject = Subject {
        group: "policy".to_owned(),
        kind: "poddisruptionbudget".to_owned(),
    };
    let allowed = number("status.disruptionsAllowed");
    if allowed < 0 {
        return Err(Fault::forbidden(&subject, name, "pdb disruptions allowed is negative"));
    }
    let disrupted = object::at(budget, "status.disruptedPods").and_then(Value::as_object);
    if disrupted.is_some_and(|pods| pods.len() > MOST_DISRUPTED) {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(Fault::forbidden(&subject, name, why));
    }
    if allowed > 0 {
        return Ok(());
    }
    let condition = object::at(budget, "status.conditions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .find(|condition| condition.get("type").and_then(Value::as_str) == Some("DisruptionAllowed"))
        .filter(|condition| condition.get("status").and_then(Value::as_str) == Some("False"));
    let said = |field: &str| {
        condition
            .and_then(|c| c.get(field))
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (reason, message) = (said("reason"), said("message"));
    let (current, desired) = (number("status.currentHealthy"), number("status.desiredHealthy"));
    Err(refused(&if !message.is_empty() && reason == "SyncFailed" {
        format!("The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}")
    } else if current <= desired {
        format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
    } else if !message.is_empty() {
        format!("The disruption budget {name} does not allow evicting pods currently ({reason}): {message}")
    } else {
        format!("The disruption budget {name} does not allow evicting pods currently")
    }))
}
