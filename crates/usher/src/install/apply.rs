//! Puts objects into the cluster: server-side apply, and only where something would change.

use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use serde_json::Value;
use tokio::time::Instant;
use usher_engine::hash::CanonicalHash;

use super::objects::{APPLIED_HASH, MANAGED_BY, MANAGER, Object};
use crate::Failed;
use crate::cluster::{Cluster, Refusal};
use crate::output::Progress;

/// A new CRD is served within a second or two; past this something is wrong with it or with the server.
const ESTABLISHED: Duration = Duration::from_secs(60);
/// How often a condition is looked at while it is waited for.
pub(crate) const LOOK: Duration = Duration::from_millis(200);

/// Writes objects, or only says what it would write.
#[derive(Debug)]
pub(crate) struct Applier<'c> {
    pub(crate) cluster: &'c Cluster,
    pub(crate) dry_run: bool,
}

impl Applier<'_> {
    /// Creates or updates one object, or leaves it alone if it is as it should be.
    pub(crate) async fn apply(&self, object: &Object, progress: &mut Progress) -> Result<(), Failed> {
        let live = self.read(object).await?;
        let (hash, value) = object.marked()?;
        let (action, intended) = match &live {
            None => ("created", "would create"),
            Some(live) if is_as_applied(live, &hash, &object.value) => return progress.did("unchanged", object),
            Some(_) => ("updated", "would update"),
        };
        if self.dry_run {
            return progress.did(intended, object);
        }
        let api = self.cluster.api(&object.kind, object.namespace.as_deref());
        let params = PatchParams::apply(MANAGER).force();
        self.cluster
            .ask(
                &format!("apply {object}"),
                api.patch(&object.name, &params, &Patch::Apply(&value)),
            )
            .await?;
        progress.did(action, object)
    }

    /// A namespace that somebody else made is used as it is: were it marked as ours, uninstall would delete it.
    pub(crate) async fn provide_namespace(&self, object: &Object, progress: &mut Progress) -> Result<(), Failed> {
        let note = match self.read(object).await {
            Ok(Some(live)) if !is_ours(&live) => "not made by usher: used as it is",
            // Tenants have rights within a namespace, and none on it.
            Err(refusal) if refusal.is(403) => "may not be looked at: taken for granted",
            Err(other) => return Err(other.into()),
            Ok(_) => return self.apply(object, progress).await,
        };
        progress.noted("unchanged", object, Some(note.to_owned()))
    }

    /// Deletes one object, if it is still the one that was found.
    pub(crate) async fn delete(&self, object: &Object, progress: &mut Progress) -> Result<(), Failed> {
        if self.dry_run {
            return progress.did("would delete", object);
        }
        let uid = object.value.pointer("/metadata/uid").and_then(Value::as_str);
        // In the foreground: when it is gone, so is what it owned.
        let params = DeleteParams::foreground().preconditions(Preconditions {
            uid: uid.map(str::to_owned),
            resource_version: None,
        });
        let api = self.cluster.api(&object.kind, object.namespace.as_deref());
        let deleted = self
            .cluster
            .find(&format!("delete {object}"), api.delete(&object.name, &params))
            .await?;
        match deleted {
            Some(_) => progress.did("deleted", object),
            None => progress.did("already gone", object),
        }
    }

    async fn read(&self, object: &Object) -> Result<Option<DynamicObject>, Refusal> {
        let api = self.cluster.api(&object.kind, object.namespace.as_deref());
        self.cluster
            .find(&format!("read {object}"), api.get(&object.name))
            .await
    }
}

/// Whether `usher install` made it.
pub(crate) fn is_ours(object: &DynamicObject) -> bool {
    let labels = object.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(MANAGED_BY))
        .is_some_and(|by| by == MANAGER)
}

/// The hash tells whether we would say anything else than last time; the fields tell whether somebody has since.
fn is_as_applied(live: &DynamicObject, hash: &CanonicalHash, wanted: &Value) -> bool {
    let annotations = live.metadata.annotations.as_ref();
    let last = annotations.and_then(|annotations| annotations.get(APPLIED_HASH));
    last.is_some_and(|last| *last == hash.to_string())
        && serde_json::to_value(live).is_ok_and(|live| contains(&live, wanted))
}

/// Whether all of `part` is in `whole`. The server adds defaults to objects, never elements to lists.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (_, Value::Null) => true,
        (Value::Object(whole), Value::Object(part)) => part.iter().all(|(name, part)| match whole.get(name) {
            Some(whole) => contains(whole, part),
            // Empty and absent are the same to the server.
            None => part.is_null() || part.as_array().is_some_and(Vec::is_empty),
        }),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| contains(whole, part))
        }
        // 1.0 in a schema comes back as 1.
        (Value::Number(whole), Value::Number(part)) => whole == part || whole.as_f64() == part.as_f64(),
        (whole, part) => whole == part,
    }
}

/// Waits until the API server serves the CRDs.
pub(crate) async fn wait_established(cluster: &Cluster, crds: &[Object], progress: &Progress) -> Result<(), Failed> {
    let deadline = Instant::now() + ESTABLISHED;
    let mut told = false;
    for crd in crds {
        loop {
            let api = cluster.api(&crd.kind, None);
            let live = cluster.ask(&format!("read {crd}"), api.get(&crd.name)).await?;
            if condition(&live, "Established").is_some_and(|c| c.holds) {
                break;
            }
            if let Some(refused) = condition(&live, "NamesAccepted").filter(|c| c.refused) {
                return Err(format!(
                    "{crd} is not accepted: {}; another CRD has the name, delete one of the two",
                    refused.message
                )
                .into());
            }
            if Instant::now() >= deadline {
                return Err(format!(
                    "{crd} is not established after {} s; `kubectl describe crd {}` says why",
                    ESTABLISHED.as_secs(),
                    crd.name
                )
                .into());
            }
            if !std::mem::replace(&mut told, true) {
                progress.say("waiting until the API server serves the CRDs")?;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
    progress.say(&format!("the API server serves all {} CRDs", crds.len()))
}

struct Seen {
    holds: bool,
    refused: bool,
    message: String,
}

fn condition(object: &DynamicObject, name: &str) -> Option<Seen> {
    let conditions = object.data.pointer("/status/conditions")?.as_array()?;
    let found = conditions.iter().find(|c| text(c, "type") == name)?;
    Some(Seen {
        holds: text(found, "status") == "True",
        refused: text(found, "status") == "False",
        message: text(found, "message").to_owned(),
    })
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_of_the_server_are_no_change_and_edits_are() {
        let built = json!({"spec": {"replicas": 2, "args": ["a", {"x": 1}], "gone": null, "none": [], "least": 1.0}});
        let live =
            json!({"spec": {"replicas": 2, "args": ["a", {"x": 1, "default": 5}], "policy": "Always", "least": 1}});
        assert!(contains(&live, &built));
        for edited in [
            json!({"spec": {"replicas": 3, "args": ["a", {"x": 1}]}}),
            json!({"spec": {"replicas": 2, "args": ["a", {"x": 1}, "b"]}}),
            json!({"spec": {"args": ["a", {"x": 1}]}}),
        ] {
            assert!(!contains(&edited, &built), "{edited}");
        }
    }
}
