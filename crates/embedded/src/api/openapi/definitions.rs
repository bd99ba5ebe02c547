//! The built-in definitions with their texts, generated from the types of k8s-openapi when first asked for.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::api::admissionregistration::v1 as admissionregistration;
use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::authentication::v1 as authentication;
use k8s_openapi::api::authorization::v1 as authorization;
use k8s_openapi::api::autoscaling::{v1 as autoscaling_v1, v2 as autoscaling};
use k8s_openapi::api::coordination::v1 as coordination;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::api::events::v1 as events;
use k8s_openapi::api::networking::v1 as networking;
use k8s_openapi::api::policy::v1 as policy;
use k8s_openapi::api::rbac::v1 as rbac;
use k8s_openapi::api::resource::v1 as resource;
use k8s_openapi::api::scheduling::v1 as scheduling;
use k8s_openapi::api::storage::v1 as storage;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Value, json};

pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
pub const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
pub const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
pub const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
pub const RESOURCE_LIST: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList";

/// All definitions that a served kind or a request can name, by their full names.
static ALL: LazyLock<BTreeMap<String, Value>> = LazyLock::new(generate);

macro_rules! visit {
    ($generator:ident, $($module:ident :: { $($kind:ident),+ $(,)? }),+ $(,)?) => {
        $($( $generator.subschema_for::<$module::$kind>(); )+)+
    };
}

fn generate() -> BTreeMap<String, Value> {
    let mut generator: SchemaGenerator = SchemaSettings::openapi3().into_generator();
    visit!(
        generator,
        core::{
            Binding, ConfigMap, Endpoints, Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret,
            Service, ServiceAccount,
        },
        events::{Event},
        apps::{ControllerRevision, Deployment, ReplicaSet, StatefulSet},
        policy::{Eviction, PodDisruptionBudget},
        coordination::{Lease},
        discovery::{EndpointSlice},
        storage::{StorageClass},
        scheduling::{PriorityClass},
        apiextensions::{CustomResourceDefinition},
        admissionregistration::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        rbac::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
        autoscaling::{HorizontalPodAutoscaler},
        autoscaling_v1::{Scale},
        networking::{NetworkPolicy},
        resource::{ResourceClaim, ResourceClaimTemplate},
        authentication::{SelfSubjectReview, TokenRequest, TokenReview},
        authorization::{
            LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
        },
        meta::{APIResourceList, DeleteOptions, ListMeta, Patch, Status},
    );
    let mut all: BTreeMap<String, Value> = generator.take_definitions(true).into_iter().collect();
    adjust(&mut all);
    all
}

/// Where the reference's definitions say more than k8s-openapi's: values of two types, and what holds for every object.
fn adjust(all: &mut BTreeMap<String, Value>) {
    let either = |one: &str, other: &str| json!([{"type": one}, {"type": other}]);
    for (name, types, format) in [
        (
            "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
            either("integer", "string"),
            Some("int-or-string"),
        ),
        (
            "io.k8s.apimachinery.pkg.api.resource.Quantity",
            either("string", "number"),
            None,
        ),
    ] {
        let Some(Value::Object(schema)) = all.get_mut(name) else {
            continue;
        };
        schema.remove("x-kubernetes-int-or-string");
        schema.insert("oneOf".into(), types);
        if let Some(format) = format {
            schema.insert("format".into(), format.into());
        }
    }
    // k8s-openapi's objects always have metadata; a client may leave it out, except for an old event.
    for (name, schema) in all.iter_mut() {
        let kept = name == "io.k8s.api.core.v1.Event";
        unrequire(schema, |field| field == "metadata" && !kept);
    }
    for kind in [
        "ConfigMapEnvSource",
        "ConfigMapKeySelector",
        "ConfigMapProjection",
        "ConfigMapVolumeSource",
        "LocalObjectReference",
        "SecretEnvSource",
        "SecretKeySelector",
        "SecretProjection",
    ] {
        if let Some(schema) = all.get_mut(&name("", "v1", kind)) {
            unrequire(schema, |field| field == "name");
        }
    }
    if let Some(Value::Object(event)) = all.get_mut("io.k8s.api.events.v1.Event") {
        event.insert("required".into(), json!(["eventTime"]));
    }
    super::enums::add(all);
    if let Some(Value::Object(owner)) = all.get_mut("io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference") {
        owner.insert("x-kubernetes-map-type".into(), "atomic".into());
    }
    // Values of any type at all.
    for kind in [
        "JSON",
        "JSONSchemaPropsOrArray",
        "JSONSchemaPropsOrBool",
        "JSONSchemaPropsOrStringArray",
    ] {
        if let Some(Value::Object(schema)) = all.get_mut(&name("apiextensions.k8s.io", "v1", kind)) {
            schema.remove("oneOf");
            schema.remove("type");
        }
    }
    let lists = [
        (
            "finalizers",
            json!({"x-kubernetes-list-type": "set", "x-kubernetes-patch-strategy": "merge"}),
        ),
        ("managedFields", json!({"x-kubernetes-list-type": "atomic"})),
        (
            "ownerReferences",
            json!({
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uid"],
                "x-kubernetes-patch-merge-key": "uid",
                "x-kubernetes-patch-strategy": "merge",
            }),
        ),
    ];
    for (field, facts) in lists {
        let property = all
            .get_mut(OBJECT_META)
            .and_then(|schema| schema.pointer_mut(&format!("/properties/{field}")));
        if let (Some(Value::Object(property)), Value::Object(facts)) = (property, facts) {
            property.extend(facts);
        }
    }
}

fn unrequire(schema: &mut Value, optional: impl Fn(&str) -> bool) {
    let Value::Object(schema) = schema else {
        return;
    };
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|field| !field.as_str().is_some_and(&optional));
        if required.is_empty() {
            schema.remove("required");
        }
    }
}

/// The full name of a built-in kind.
pub fn name(group: &str, version: &str, kind: &str) -> String {
    match group {
        "" => format!("io.k8s.api.core.{version}.{kind}"),
        "apiextensions.k8s.io" => format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.{kind}"),
        group => {
            let first = group.split('.').next().unwrap_or(group);
            format!("io.k8s.api.{first}.{version}.{kind}")
        }
    }
}

/// Adds a definition and all that it refers to.
pub fn add(schemas: &mut BTreeMap<String, Value>, name: &str) {
    if schemas.contains_key(name) {
        return;
    }
    let Some(schema) = ALL.get(name) else {
        return;
    };
    schemas.insert(name.to_owned(), schema.clone());
    for reference in references(schema) {
        add(schemas, &reference);
    }
}

/// The name of a reference.
pub fn referred(reference: &str) -> Option<&str> {
    reference.strip_prefix("#/components/schemas/")
}

/// Names of all definitions that a schema refers to.
pub fn references(schema: &Value) -> Vec<String> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    match (key.as_str(), value) {
                        ("$ref", Value::String(reference)) => found.extend(referred(reference).map(str::to_owned)),
                        (_, value) => collect(value, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(schema, &mut found);
    found
}

/// A reference to a definition.
pub fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// The text that k8s-openapi has for a property that every object has.
pub fn text(definition: &str, property: &str) -> Option<&'static str> {
    ALL.get(definition)?
        .pointer(&format!("/properties/{property}/description"))?
        .as_str()
}

/// Kinds that are of every group, or of another than the document's: with the group-version-kinds they answer to.
pub fn shared_kinds(group: &str, version: &str) -> Vec<(&'static str, Value)> {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut delete = vec![kind("", "v1", "DeleteOptions")];
    if (group, version) != ("", "v1") {
        delete.push(kind(group, version, "DeleteOptions"));
    }
    vec![
        (DELETE_OPTIONS, delete.into()),
        (STATUS, json!([kind("", "v1", "Status")])),
        (RESOURCE_LIST, json!([kind("", "v1", "APIResourceList")])),
        (
            "io.k8s.api.autoscaling.v1.Scale",
            json!([kind("autoscaling", "v1", "Scale")]),
        ),
        (
            "io.k8s.api.policy.v1.Eviction",
            json!([kind("policy", "v1", "Eviction")]),
        ),
        ("io.k8s.api.core.v1.Binding", json!([kind("", "v1", "Binding")])),
        (
            "io.k8s.api.authentication.v1.TokenRequest",
            json!([kind("authentication.k8s.io", "v1", "TokenRequest")]),
        ),
    ]
}
