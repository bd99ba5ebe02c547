//! Claims and volumes: the default class, protection, growth; and nodes' first taint.

use serde_json::{Value, json};

use crate::world::World;

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

fn class(name: &str, default: bool, grows: bool) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "p", "allowVolumeExpansion": grows,
        "metadata": {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": default.to_string()}}})
}

fn claim(name: &str, class: Option<&str>) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": "1Gi"}},
    }})
}

#[tokio::test]
async fn a_claim_without_a_class_gets_the_default_one_and_is_protected() {
    let world = World::new();
    let before = world.post(CLAIMS, claim("a", None)).await.ok();
    assert_eq!(before["spec"]["storageClassName"], Value::Null);
    world.post(CLASSES, class("slow", false, false)).await.ok();
    world.post(CLASSES, class("fast", true, false)).await.ok();
    let made = world.post(CLAIMS, claim("b", None)).await.ok();
    assert_eq!(made["spec"]["storageClassName"], "fast");
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    let none = world.post(CLAIMS, claim("c", Some(""))).await.ok();
    assert_eq!(none["spec"]["storageClassName"], "");
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/tmp/v"}}});
    let volume = world.post("/api/v1/persistentvolumes", volume).await.ok();
    assert_eq!(volume["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
}

#[tokio::test]
async fn o21_a_claim_grows_only_when_bound_and_where_its_class_allows_it() {
    let world = World::new();
    world.post(CLASSES, class("stiff", false, false)).await.ok();
    world.post(CLASSES, class("soft", false, true)).await.ok();
    let grown = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    for name in ["stiff", "soft"] {
        let path = format!("{CLAIMS}/{name}");
        world.post(CLAIMS, claim(name, Some(name))).await.ok();
        let early = world.merge(&path, grown.clone()).await;
        assert!(early.code == 403 || early.code == 422, "{early:?}");
        world
            .merge(&format!("{path}/status"), json!({"status": {"phase": "Bound"}}))
            .await
            .ok();
    }
    world.merge(&format!("{CLAIMS}/stiff"), grown.clone()).await.refused(
        403,
        r#"persistentvolumeclaims "stiff" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"#,
    );
    world.merge(&format!("{CLAIMS}/soft"), grown).await.ok();
}

#[tokio::test]
async fn a_node_starts_with_the_taint_of_one_that_is_not_ready() {
    let world = World::new();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    let made = world.post("/api/v1/nodes", node).await.ok();
    assert_eq!(
        made["spec"]["taints"],
        json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    );
}
