//! Pods with claims. The binder is not here: the test does its part.

use serde_json::{Value, json};

use crate::world::World;

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

fn class(world: &World, name: &str, mode: &str) {
    world.post(
        "/apis/storage.k8s.io/v1/storageclasses",
        &json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": "usher.dev/directory", "volumeBindingMode": mode}),
    );
}

fn claim(world: &World, name: &str, class: &str, mode: &str) {
    world.post(
        CLAIMS,
        &json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"storageClassName": class, "accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}}),
    );
}

/// What the binder does: a volume on a node, bound to the claim.
fn bind(world: &World, claim: &str, node: &str) {
    let uid = world.get(&format!("{CLAIMS}/{claim}"))["metadata"]["uid"].clone();
    let terms = json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]);
    world.post(
        "/api/v1/persistentvolumes",
        &json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("pv-{claim}")},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp/x"},
                "claimRef": {"namespace": "default", "name": claim, "uid": uid},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}),
    );
    let change = json!({"spec": {"volumeName": format!("pv-{claim}")},
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}});
    world.patch(&format!("{CLAIMS}/{claim}"), &change);
    world.patch(
        &format!("{CLAIMS}/{claim}/status"),
        &json!({"status": {"phase": "Bound"}}),
    );
}

fn with_claim(claim: &str) -> Value {
    json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]})
}

#[test]
fn k1_a_claim_that_waits_for_its_consumer_is_given_a_node_and_the_pod_follows_once_it_is_bound() {
    let mut world = World::new();
    class(&world, "late", "WaitForFirstConsumer");
    world.node("a", 1_000, &Value::Null);
    world.node("b", 2_000, &Value::Null);
    claim(&world, "c", "late", "ReadWriteOnce");
    world.settle();
    world.pod("p", 700, &with_claim("c"));
    world.settle();
    let chosen = world.get(&format!("{CLAIMS}/c"));
    assert_eq!(
        chosen["metadata"]["annotations"]["volume.kubernetes.io/selected-node"],
        "b"
    );
    assert_eq!(world.place("p"), "");
    // Its place is kept meanwhile, over a restart too.
    world.manual.restart_controllers();
    world.pod("q", 1_500, &Value::Null);
    world.settle();
    assert_eq!(world.place("q"), "");
    bind(&world, "c", "b");
    world.pass(jiff::SignedDuration::from_secs(10));
    assert_eq!((world.place("p").as_str(), world.place("q").as_str()), ("b", ""));
}

#[test]
fn k1_claims_that_are_missing_unbound_or_elsewhere_are_told_as_the_reference_tells_them() {
    let mut world = World::new();
    class(&world, "now", "Immediate");
    world.node("a", 1_000, &Value::Null);
    world.node("b", 1_000, &Value::Null);
    claim(&world, "unbound", "now", "ReadWriteOnce");
    claim(&world, "there", "now", "ReadWriteOnce");
    bind(&world, "there", "b");
    world.settle();
    world.pod("p1", 100, &with_claim("missing"));
    world.pod("p2", 100, &with_claim("unbound"));
    world.pod("p3", 100, &with_claim("there"));
    let mut away = with_claim("there");
    away["nodeSelector"] = json!({"kubernetes.io/hostname": "a"});
    world.pod("p4", 100, &away);
    world.settle();
    assert_eq!(
        world.why("p1"),
        r#"0/2 nodes are available: persistentvolumeclaim "missing" not found. not found"#
    );
    assert_eq!(
        world.why("p2"),
        "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
    );
    assert_eq!(world.place("p3"), "b");
    assert!(
        world.why("p4").starts_with(
            "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, \
            1 node(s) didn't match Pod's node affinity/selector. "
        ),
        "{}",
        world.why("p4")
    );
}

#[test]
fn k1_a_claim_of_one_pod_is_used_by_one_pod() {
    let mut world = World::new();
    class(&world, "now", "Immediate");
    world.node("a", 1_000, &Value::Null);
    claim(&world, "own", "now", "ReadWriteOncePod");
    bind(&world, "own", "a");
    world.settle();
    world.pod("first", 100, &with_claim("own"));
    world.settle();
    world.pod("second", 100, &with_claim("own"));
    world.settle();
    assert_eq!(world.place("first"), "a");
    assert!(
        world.why("second").starts_with(
            "0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode \
            already in-use by another pod. "
        ),
        "{}",
        world.why("second")
    );
}
