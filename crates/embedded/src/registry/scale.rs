//! The scale subresource: one view on the replicas of any kind that has some.

use serde_json::{Value, json};

use crate::fault::{Fault, FieldError, Path, Subject};
use crate::fields::{self, ApplyScale};
use crate::kinds;
use crate::registry::ask::{Ask, Outcome, Target};
use crate::registry::row::ScalePaths;
use crate::registry::undecodable::undecodable;
use crate::registry::update::{Made, check_type, name_mismatch};
use crate::registry::{Patch, Registry, TRIES, object};

const DEFINITION: &str = "io.k8s.api.autoscaling.v1.Scale";

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

    /// What a `Scale` asks for, if it may.
    fn wanted_replicas(target: &Target, scale: &Value) -> Result<i64, Fault> {
        let paths = Self::scale_paths(target)?;
        let replicas = replicas_of(scale).map_err(|why| {
            Fault::bad_request(format!("Scale in version \"v1\" cannot be handled as a Scale: {why}"))
        })?;
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
        Ok(replicas)
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
            return Err(name_mismatch(name, &target.name));
        }
        let replicas = Self::wanted_replicas(target, scale)?;
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
        if let Patch::Apply { applied, force } = patch {
            return self.apply_scale(target, ask, applied, *force).await;
        }
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
        // What a writer builds upon: others may be on their way to the disk.
        let found = self.live(target, &target.key()).map_err(named)?;
        let (_, object) = found.ok_or_else(|| named(target.not_found()))?;
        let live = Self::scale_of(target, &object).map_err(named)?;
        let changed = match patch {
            Patch::Json(body) => fields::json_patch(&live, body),
            Patch::Merge(body) | Patch::Strategic(body) | Patch::Apply { applied: body, .. } => {
                fields::merge_patch(&live, body)
            }
        };
        let scale = changed.map_err(named)?;
        if let Err(why) = replicas_of(&scale) {
            return Err(named(undecodable(patch, &scale, &why)));
        }
        let is_ours = object::text(&live, "resourceVersion") == object::text(&scale, "resourceVersion");
        self.replace_scale(target, ask, &scale)
            .await
            .map_err(|fault| (fault, is_ours))
    }

    /// Apply of a `Scale`: who applies it owns the replicas of the object behind it.
    async fn apply_scale(&self, target: &Target, ask: &Ask, applied: &Value, force: bool) -> Result<Outcome, Fault> {
        check_type(applied, "autoscaling/v1", "Scale")?;
        let make = |live: Option<&Value>, _: &mut Vec<String>| match live {
            Some(live) => self.scaled(target, ask, live, applied, force),
            None => Err(target.not_found()),
        };
        let outcome = self.write(target, ask, false, Vec::new(), &make).await?;
        let object = Self::scale_of(target, &outcome.object)?;
        Ok(Outcome {
            object,
            stored: None,
            ..outcome
        })
    }

    /// The object behind an applied `Scale`.
    fn scaled(&self, target: &Target, ask: &Ask, live: &Value, applied: &Value, force: bool) -> Result<Made, Fault> {
        let Some(schema) = kinds::definition(DEFINITION) else {
            return Err(Fault::internal("there is no definition of Scale"));
        };
        let versions = target.resource.row.versions.iter();
        let paths: Vec<_> = versions
            .map(|version| {
                let path = version.scale.as_ref().map(|scale| {
                    let path: Vec<&str> = scale.spec_replicas.trim_start_matches('.').split('.').collect();
                    fields::Set::of_fields(&[&path])
                });
                (target.resource.api_version(&version.name), path)
            })
            .collect();
        let (scale, owners) = fields::apply_scale(&ApplyScale {
            live,
            view: &Self::scale_of(target, live)?,
            applied,
            schema: &schema,
            manager: &ask.manager,
            force,
            now: self.clock.now(),
            api_version: &target.api_version(),
            paths: &paths,
        })?;
        // The reference cannot do it for custom resources: who relies on it here would be let down there.
        if target.resource.is_custom() {
            return Err(Fault::new(
                500,
                "",
                format!(
                    "failed to convert new object ({}/{}; autoscaling/v1, Kind=Scale) to proper version: request to convert CR to an invalid group/version: autoscaling/v1",
                    object::text(applied, "namespace"),
                    object::name(applied)
                ),
            ));
        }
        let name = object::name(&scale);
        if name != target.name {
            return Err(name_mismatch(name, &target.name));
        }
        let replicas = Self::wanted_replicas(target, &scale)?;
        let (wanted, is) = (object::text(&scale, "uid"), object::text(live, "uid"));
        if wanted != is {
            let plural = target.plural();
            let subject = Subject {
                kind: format!("{}/scale", plural.kind),
                ..plural
            };
            let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {is}");
            return Err(Fault::conflict(&subject, &target.name, &why));
        }
        let mut object = live.clone();
        object::set_at(&mut object, &Self::scale_paths(target)?.spec_replicas, replicas.into());
        let meta = object::meta_mut(&mut object);
        meta.insert(
            "resourceVersion".to_owned(),
            object::text(&scale, "resourceVersion").into(),
        );
        match owners {
            Some(owners) => meta.insert("managedFields".to_owned(), owners),
            None => meta.remove("managedFields"),
        };
        Ok(Made {
            object,
            is_tracked: true,
            is_whole: false,
        })
    }
}

/// What a `Scale` asks for; none is 0.
fn replicas_of(scale: &Value) -> Result<i64, String> {
    let value = match object::at(scale, "spec.replicas") {
        None | Some(Value::Null) => return Ok(0),
        Some(value) => value,
    };
    let replicas = value.as_i64().filter(|replicas| i32::try_from(*replicas).is_ok());
    replicas.ok_or_else(|| {
        let given = match value {
            Value::Number(number) => format!("number {number}"),
            other => crate::go::json_kind(other).to_owned(),
        };
        format!("json: cannot unmarshal {given} into Go struct field ScaleSpec.spec.replicas of type int32")
    })
}

/// `status.selector` is a text: custom kinds keep one, built-in ones a selector object.
fn selector_text(selector: &Value) -> Option<String> {
    match selector {
        Value::String(text) => Some(text.clone()),
        Value::Object(_) => Some(crate::kinds::selector::selector_text(selector)),
        _ => None,
    }
}
