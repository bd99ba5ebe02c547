//! Who owns which field: what create, update and apply tell `fields` about the kind and the way of writing.

use serde_json::Value;

use crate::fault::Fault;
use crate::fields::{self, Apply, Track};
use crate::registry::ask::{Ask, Target};
use crate::registry::{Registry, object};

impl Registry {
    /// Writes the new object's managedFields after a write that is not an apply.
    pub(crate) fn track(&self, target: &Target, ask: &Ask, old: Option<&Value>, new: &mut Value) {
        if ask.is_untracked {
            let before = old.and_then(|old| object::meta(old).get("managedFields")).cloned();
            object::meta_mut(new).insert(
                "managedFields".to_owned(),
                before.unwrap_or_else(|| Value::Array(Vec::new())),
            );
            return;
        }
        let ignored = Ignored::by(target, new);
        ignored.with(|ignored| {
            fields::track(Track {
                old,
                new,
                schema: &target.version.schema,
                manager: &ask.manager,
                subresource: target.subresource.as_deref().unwrap_or_default(),
                api_version: &target.api_version(),
                ignored,
                now: self.clock.now(),
            });
        });
        if target.subresource.as_deref() == Some("scale") {
            untimed(new);
        }
    }

    /// The live object with an apply merged into it.
    pub(super) fn merge_applied(
        &self,
        target: &Target,
        ask: &Ask,
        live: Option<&Value>,
        applied: &Value,
        force: bool,
    ) -> Result<Value, Fault> {
        let ignored = Ignored::by(target, applied);
        ignored.with(|ignored| {
            fields::apply(Apply {
                live,
                applied,
                schema: &target.version.schema,
                manager: &ask.manager,
                subresource: target.subresource.as_deref().unwrap_or_default(),
                api_version: &target.api_version(),
                force,
                ignored,
                now: self.clock.now(),
            })
            .map_err(Fault::from)
        })
    }
}

/// The reference gives entries of `scale` no time.
fn untimed(object: &mut Value) {
    let managed = object::meta_mut(object)
        .get_mut("managedFields")
        .and_then(Value::as_array_mut);
    for entry in managed.into_iter().flatten() {
        if entry.get("subresource").and_then(Value::as_str) == Some("scale") {
            object::as_map(entry).remove("time");
        }
    }
}

/// Fields that this way of writing does not touch, so that nobody comes to own them by it: status for a main write of a
/// kind that has the subresource, all but status for a write of status.
struct Ignored(Vec<String>);

impl Ignored {
    fn by(target: &Target, object: &Value) -> Self {
        if target.is_status() {
            let all = object.as_object().into_iter().flat_map(|map| map.keys());
            return Self(
                all.filter(|field| *field != "status" && (target.resource.is_custom() || *field != "metadata"))
                    .cloned()
                    .collect(),
            );
        }
        if target.version.has_status {
            return Self(vec!["status".to_owned()]);
        }
        Self(Vec::new())
    }

    fn with<T>(&self, use_paths: impl FnOnce(&[&[&str]]) -> T) -> T {
        let paths: Vec<[&str; 1]> = self.0.iter().map(|field| [field.as_str()]).collect();
        let paths: Vec<&[&str]> = paths.iter().map(<[&str; 1]>::as_slice).collect();
        use_paths(&paths)
    }
}
