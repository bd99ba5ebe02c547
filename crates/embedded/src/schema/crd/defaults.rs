//! Defaults in a schema must be values that the schema takes, with nothing that it would drop.

use std::sync::Arc;

use crate::fault::{FieldError, Path};
use crate::schema::cel::Rules;
use crate::schema::{Schema, check, prune};

pub(super) fn check(schema: &Arc<Schema>, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, path, true, &mut errors);
    errors
}

fn walk(schema: &Arc<Schema>, path: &Path, root: bool, errors: &mut Vec<FieldError>) {
    if let Some(default) = &schema.default {
        let at = path.field("default");
        let mut pruned = default.clone();
        if !prune::prune_value(schema, &mut pruned).is_empty() || &pruned != default {
            errors.push(FieldError::invalid(
                &at,
                default.clone(),
                "must not have unknown fields",
            ));
        }
        let wrong = check::run_at(schema, default, &at);
        if wrong.is_empty() {
            if let Ok(rules) = Rules::compile_at(schema, path) {
                errors.extend(rules.check_default(default, &at));
            }
        } else {
            errors.extend(wrong);
        }
    }
    if let Some(items) = &schema.items {
        walk(items, &path.field("items"), false, errors);
    }
    for (name, property) in &schema.properties {
        // Defaults within the root's metadata are forbidden as such.
        if !(root && name.as_ref() == "metadata") {
            walk(property, &path.field("properties").key(name), false, errors);
        }
    }
}
