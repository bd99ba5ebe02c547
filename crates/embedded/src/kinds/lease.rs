//! Lease.

use serde_json::Value;

use super::checks::{at_least_one, not_negative};
use super::reading::{at, integer};
use crate::fault::{FieldError, Path};
use crate::registry::row::BuiltIn;

pub static RULES: BuiltIn = BuiltIn {
    default,
    check,
    has_generation: false,
    unconditional_update: false,
    create_on_update: true,
    ..BuiltIn::PLAIN
};

/// Fields of coordinated leader election, which the reference drops while the feature is off.
fn default(lease: &mut Value) {
    if let Some(Value::Object(spec)) = lease.get_mut("spec") {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}

fn check(lease: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (spec, path) = (at(lease, "/spec"), Path::new("spec"));
    at_least_one(
        &mut errors,
        &path.field("leaseDurationSeconds"),
        integer(spec, "leaseDurationSeconds"),
    );
    not_negative(
        &mut errors,
        &path.field("leaseTransitions"),
        integer(spec, "leaseTransitions"),
    );
    errors
}
