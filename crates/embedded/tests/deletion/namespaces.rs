//! Namespaces on their way out.

use serde_json::{Value, json};

use crate::world::World;

fn condition<'a>(namespace: &'a Value, kind: &str) -> &'a Value {
    let conditions = namespace["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|found| found["type"] == kind).unwrap()
}

#[test]
fn o15_a_namespace_takes_its_contents_along() {
    let mut world = World::new();
    world.namespace("gone");
    world.config_map("gone", "a", vec![]);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    world.post("/api/v1/namespaces/gone/secrets", &secret);
    let answer = world.ask("DELETE", "/api/v1/namespaces/gone", None).1;
    assert_eq!(answer["status"]["phase"], "Terminating");
    assert!(world.get("/api/v1/namespaces/gone/configmaps/a").is_some());
    let (code, refused) = world.ask(
        "POST",
        "/api/v1/namespaces/gone/configmaps",
        Some(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}})),
    );
    assert_eq!(
        (code, &refused["details"]["causes"][0]["reason"]),
        (403, &json!("NamespaceTerminating"))
    );
    world.settle();
    assert_eq!(world.get("/api/v1/namespaces/gone"), None);
    assert!(world.names("/api/v1/namespaces/gone/configmaps").is_empty());
    assert!(world.names("/api/v1/namespaces/gone/secrets").is_empty());
}

#[test]
fn o15_finalizers_hold_a_namespace_which_says_what_it_waits_for() {
    let mut world = World::new();
    world.namespace("held");
    for name in ["a", "b"] {
        world.config_map_with(
            "held",
            name,
            json!({"finalizers": ["example.com/hold", "example.com/also"]}),
        );
    }
    world.config_map("held", "c", vec![]);
    world.ask("DELETE", "/api/v1/namespaces/held", None);
    world.settle();
    let namespace = world.get("/api/v1/namespaces/held").unwrap();
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    let remaining = condition(&namespace, "NamespaceContentRemaining");
    assert_eq!(remaining["status"], "True");
    assert_eq!(remaining["reason"], "SomeResourcesRemain");
    assert_eq!(
        remaining["message"],
        "Some resources are remaining: configmaps. has 2 resource instances"
    );
    let finalizers = condition(&namespace, "NamespaceFinalizersRemaining");
    assert_eq!(
        finalizers["message"],
        "Some content in the namespace has finalizers remaining: \
         example.com/also in 2 resource instances, example.com/hold in 2 resource instances"
    );
    assert_eq!(
        condition(&namespace, "NamespaceDeletionContentFailure")["status"],
        "False"
    );
    let maps = "/api/v1/namespaces/held/configmaps";
    assert_eq!(world.names(maps), ["a", "b"]);
    world.patch(&format!("{maps}/a"), &json!({"metadata": {"finalizers": null}}));
    world.settle();
    // The conditions follow in the reference's time: half of 15 s and one.
    world.advance(8);
    world.settle();
    let namespace = world.get("/api/v1/namespaces/held").unwrap();
    let remaining = condition(&namespace, "NamespaceContentRemaining");
    assert_eq!(
        remaining["message"],
        "Some resources are remaining: configmaps. has 1 resource instances"
    );
    world.patch(&format!("{maps}/b"), &json!({"metadata": {"finalizers": null}}));
    world.settle();
    assert_eq!(world.get("/api/v1/namespaces/held"), None);
}

#[test]
fn o15_a_namespace_with_its_own_finalizer_goes_with_it() {
    let mut world = World::new();
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "spec": {"finalizers": ["kubernetes"]},
        "metadata": {"name": "own", "finalizers": ["example.com/hold"]}});
    world.post("/api/v1/namespaces", &body);
    world.config_map("own", "a", vec![]);
    world.ask("DELETE", "/api/v1/namespaces/own", None);
    world.settle();
    let namespace = world.get("/api/v1/namespaces/own").unwrap();
    assert!(namespace["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty));
    assert!(world.names("/api/v1/namespaces/own/configmaps").is_empty());
    world.patch("/api/v1/namespaces/own", &json!({"metadata": {"finalizers": null}}));
    world.settle();
    assert_eq!(world.get("/api/v1/namespaces/own"), None);
}
