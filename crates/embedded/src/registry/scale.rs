//! The scale subresource: one view on the replicas of any kind that has some.

use serde_json::{Value, json};

use crate::fault::{Fault, FieldError, Path, Subject};
use crate::registry::ask::{Ask, Outcome, Target};
use crate::registry::row::ScalePaths;
use crate::registry::{Patch, Registry, TRIES, object};

impl Registry {
    fn scale_paths(target: &Target) -> Result<&ScalePaths, Fault> {
        target.version.scale.as_ref().ok_or_else(|| target.not_found())
    }

    /// The `Scale` of an object.
    pub(crate) fn scale_of(target: &Target, object: &Value) -> Result<Value, Fault> {
        let paths = Self::scale_paths(target)?;
        let number = |path: &str| object::at(object, path).and_then(Value::as_i64).unwrap_or(0);
        let meta = object::meta(object);
        let mut metadata = serde_json::Map::new();
        for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = meta.get(field) {
                metadata.insert(field.to_owned(), value.clone());
            }
        }
        let mut spec = serde_json::Map::new();
        let wanted = number(&paths.spec_replicas);
        if wanted != 0 {
            spec.insert("replicas".to_owned(), wanted.into());
        }
        let mut status = json!({"replicas": number(&paths.status_replicas)});
        let selector = paths
            .selector
            .as_ref()
            .and_then(|path| selector_text(object::at(object, path)?));
        if let Some(selector) = selector {
            object::as_map(&mut status).insert("selector".to_owned(), selector.into());
        }
        Ok(json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": metadata, "spec": spec, "status": status,
        }))
    }

    pub(crate) fn get_scale(&self, target: &Target) -> Result<Value, Fault> {
        let entry = self.get(target, "")?;
        let object = self.present(&target.resource, &target.version.name, &entry.value, entry.revision)?;
        Self::scale_of(target, &object)
    }

    /// PUT of a `Scale`.
    pub(crate) async fn replace_scale(&self, target: &Target, ask: &Ask, scale: &Value) -> Result<Outcome, Fault> {
        let paths = Self::scale_paths(target)?;
        let kind = scale.get("kind").and_then(Value::as_str).unwrap_or("Scale");
        if kind != "Scale" {
            return Err(Fault::bad_request(format!(
                "wrong object passed to Scale update: a {kind}"
            )));
        }
        let name = object::name(scale);
        if !name.is_empty() && name != target.name {
            return Err(super::update::name_mismatch(name, &target.name));
        }
        let replicas = match object::at(scale, "spec.replicas") {
            None | Some(Value::Null) => 0,
            Some(value) => value.as_i64().ok_or_else(|| {
                Fault::bad_request(
                    "Scale in version \"v1\" cannot be handled as a Scale: spec.replicas must be an integer",
                )
            })?,
        };
        let mut errors = Vec::new();
        if replicas < 0 {
            errors.push(FieldError::invalid(
                &Path::new("spec.replicas"),
                replicas,
                "must be greater than or equal to 0",
            ));
        }
        if !errors.is_empty() && target.resource.is_custom() {
            let path = format!(".{}", paths.spec_replicas.trim_start_matches('.'));
            let error = FieldError::invalid(&Path::new(path), replicas, "should be a non-negative integer");
            return Err(Fault::invalid(&target.subject(), &target.name, &[error]));
        }
        if !errors.is_empty() {
            let subject = Subject {
                group: "autoscaling".to_owned(),
                kind: "Scale".to_owned(),
            };
            return Err(Fault::invalid(&subject, &target.name, &errors));
        }
        let mut change = json!({});
        object::set_at(&mut change, &paths.spec_replicas, replicas.into());
        let meta = object::meta(scale);
        for field in ["resourceVersion", "uid"] {
            if let Some(value) = meta.get(field).filter(|value| *value != "") {
                object::meta_mut(&mut change).insert(field.to_owned(), value.clone());
            }
        }
        let outcome = self.patch(target, ask, &Patch::Merge(change)).await?;
        let object = Self::scale_of(target, &outcome.object)?;
        Ok(Outcome {
            object,
            stored: None,
            ..outcome
        })
    }

    /// PATCH of a `Scale`: the change is made to the view, then written through it.
    pub(crate) async fn patch_scale(&self, target: &Target, ask: &Ask, patch: &Patch) -> Result<Outcome, Fault> {
        for _ in 0..TRIES {
            match self.patch_scale_once(target, ask, patch).await {
                // Somebody was faster, and the patch named no revision: again on what is there now.
                Err((fault, true)) if fault.code == 409 => {}
                Err((fault, _)) => return Err(fault),
                Ok(outcome) => return Ok(outcome),
            }
        }
        Err(Fault::conflict(&target.plural(), &target.name, super::update::MOVED))
    }

    /// Once; a failure with whether the revision was ours.
    async fn patch_scale_once(&self, target: &Target, ask: &Ask, patch: &Patch) -> Result<Outcome, (Fault, bool)> {
        let named = |fault: Fault| (fault, false);
        let live = self.get_scale(target).map_err(named)?;
        let changed = match patch {
            Patch::Json(body) => crate::fields::json_patch(&live, body),
            Patch::Merge(body) | Patch::Strategic(body) | Patch::Apply { applied: body, .. } => {
                crate::fields::merge_patch(&live, body)
            }
        };
        let scale = changed.map_err(named)?;
        let is_ours = object::text(&live, "resourceVersion") == object::text(&scale, "resourceVersion");
        self.replace_scale(target, ask, &scale)
            .await
            .map_err(|fault| (fault, is_ours))
    }
}

/// `status.selector` is a text: custom kinds keep one, built-in ones a selector object.
fn selector_text(selector: &Value) -> Option<String> {
    match selector {
        Value::String(text) => Some(text.clone()),
        Value::Object(_) => Some(crate::kinds::selector::selector_text(selector)),
        _ => None,
    }
}
