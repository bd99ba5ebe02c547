//! Claims and volumes: the default class, the finalizers that protect them, and whether a claim may grow.

use serde_json::Value;

use crate::admission::{Operation, Review};
use crate::fault::Fault;
use crate::kinds::quantity::Quantity;
use crate::registry::{Registry, object};

pub(super) const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
pub(super) const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const DEFAULT_CLASS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

/// Whoever uses the object must let go of it before it goes.
pub(super) fn protect(object: &mut Value, finalizer: &str) {
    let mut finalizers: Vec<String> = object::finalizers(object).map(str::to_owned).collect();
    if !finalizers.iter().any(|found| found == finalizer) {
        finalizers.push(finalizer.to_owned());
        object::set_finalizers(object, finalizers);
    }
}

fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object::meta(object).get("annotations")?.get(key)?.as_str()
}

/// A claim that names no class gets the default one; the empty name is a choice too.
pub(super) fn choose_class(registry: &Registry, claim: &mut Value) {
    let named = object::at(claim, "spec.storageClassName").is_some_and(|name| !name.is_null());
    if named || annotation(claim, OLD_CLASS).is_some() {
        return;
    }
    let classes = registry.every("storage.k8s.io", "storageclasses");
    let default = classes
        .iter()
        .filter(|class| DEFAULT_CLASS.iter().any(|key| annotation(class, key) == Some("true")))
        // The newest; of those of one second, the first by name.
        .min_by(|one, other| {
            object::text(other, "creationTimestamp")
                .cmp(object::text(one, "creationTimestamp"))
                .then_with(|| object::name(one).cmp(object::name(other)))
        });
    if let Some(class) = default {
        object::set_at(claim, "spec.storageClassName", object::name(class).into());
    }
}

fn class_of(claim: &Value) -> &str {
    annotation(claim, OLD_CLASS)
        .or_else(|| object::at(claim, "spec.storageClassName")?.as_str())
        .unwrap_or_default()
}

/// O21: a claim grows only while bound, and where its class allows it.
pub(super) fn check_growth(registry: &Registry, review: &Review<'_>, claim: &Value) -> Result<(), Fault> {
    let (Operation::Update, Some(old)) = (review.operation, review.old) else {
        return Ok(());
    };
    let size = |claim: &Value| object::at(claim, "spec.resources.requests.storage").and_then(Quantity::of);
    let grows = match (size(old), size(claim)) {
        (Some(before), Some(now)) => now > before,
        (None, Some(now)) => !now.is_zero(),
        _ => false,
    };
    if !grows {
        return Ok(());
    }
    if object::at(old, "status.phase").and_then(Value::as_str) != Some("Bound") {
        return Err(review.forbidden("Only bound persistent volume claims can be expanded"));
    }
    let class = class_of(claim);
    let allows = !class.is_empty()
        && class == class_of(old)
        && registry
            .find("storage.k8s.io", "storageclasses", None, class)
            .is_some_and(|class| class.get("allowVolumeExpansion") == Some(&Value::Bool(true)));
    if allows {
        Ok(())
    } else {
        Err(review.forbidden(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
        ))
    }
}
