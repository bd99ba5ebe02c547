//! Claims and their volumes (C7).

use serde_json::{Value, json};
use usher_embedded::store::Durability;
use usher_embedded::{Options, Storage};

use crate::world::{PODS, World, options};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

fn claim(world: &World, name: &str, class: Option<&str>) -> Value {
    let mut body = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    if let Some(class) = class {
        body["spec"]["storageClassName"] = class.into();
    }
    world.post(CLAIMS, &body)
}

fn select(world: &World, claim: &str, node: &str) {
    let change = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": node}}});
    world.patch(&format!("{CLAIMS}/{claim}"), &change);
}

fn phase(world: &World, claim: &str) -> String {
    world.find(&format!("{CLAIMS}/{claim}"))["status"]["phase"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn volume_of(world: &World, claim: &str) -> Value {
    let claim = world.find(&format!("{CLAIMS}/{claim}"));
    let name = claim["spec"]["volumeName"]
        .as_str()
        .unwrap_or_else(|| panic!("not bound: {claim}"));
    world.find(&format!("{VOLUMES}/{name}"))
}

fn a_world() -> World {
    let mut world = World::new();
    world.node("n1", &json!({}));
    world.node("n2", &json!({}));
    world.settle();
    world
}

#[test]
fn c7_there_are_three_classes_and_one_is_the_default() {
    let world = World::new();
    let classes = world.list(CLASSES);
    let told: Vec<String> = classes
        .iter()
        .map(|class| {
            let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            let default = &class["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"];
            [
                &class["metadata"]["name"],
                default,
                &class["reclaimPolicy"],
                &class["volumeBindingMode"],
            ]
            .map(text)
            .join(" ")
        })
        .collect();
    assert_eq!(
        told,
        [
            "retain - Retain WaitForFirstConsumer",
            "standard true Delete WaitForFirstConsumer",
            "standard-immediate - Delete Immediate"
        ]
    );
}

#[test]
fn c7_a_claim_waits_for_its_first_consumer_and_then_gets_a_volume_on_its_node() {
    let mut world = a_world();
    let made = claim(&world, "c", None);
    assert_eq!(made["spec"]["storageClassName"], "standard");
    world.settle();
    assert_eq!(phase(&world, "c"), "Pending");
    let waits = (
        "WaitForFirstConsumer",
        "waiting for first consumer to be created before binding",
    );
    assert_eq!(world.events("default", "c"), [(waits.0.to_owned(), waits.1.to_owned())]);
    select(&world, "c", "n2");
    world.settle();
    assert_eq!(phase(&world, "c"), "Bound");
    let bound = world.find(&format!("{CLAIMS}/c"));
    assert_eq!(bound["status"]["capacity"], json!({"storage": "1Gi"}));
    assert_eq!(bound["status"]["accessModes"], json!(["ReadWriteOnce"]));
    let annotations = &bound["metadata"]["annotations"];
    assert_eq!(annotations["pv.kubernetes.io/bind-completed"], "yes");
    assert_eq!(annotations["pv.kubernetes.io/bound-by-controller"], "yes");
    assert_eq!(
        annotations["volume.kubernetes.io/storage-provisioner"],
        "usher.dev/directory"
    );
    let volume = volume_of(&world, "c");
    let uid = made["metadata"]["uid"].as_str().unwrap();
    assert_eq!(volume["metadata"]["name"], format!("pvc-{uid}"));
    assert_eq!(volume["status"]["phase"], "Bound");
    assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    assert_eq!(volume["spec"]["csi"]["driver"], "directory.usher.dev");
    assert_eq!(
        volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"],
        json!([{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}])
    );
    assert_eq!(volume["spec"]["claimRef"]["uid"], made["metadata"]["uid"]);
    let told = (
        "ProvisioningSucceeded".to_owned(),
        format!("Successfully provisioned volume pvc-{uid} using usher.dev/directory"),
    );
    assert!(world.events("default", "c").contains(&told));
}

#[test]
fn c7_an_immediate_claim_waits_for_nobody_and_spreads_over_the_nodes() {
    let mut world = a_world();
    for name in ["a", "b"] {
        claim(&world, name, Some("standard-immediate"));
        world.settle();
    }
    let home = |name: &str| {
        let volume = volume_of(&world, name);
        volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"][0].clone()
    };
    assert_eq!((home("a"), home("b")), (json!("n1"), json!("n2")));
}

#[test]
fn c7_a_shared_class_has_volumes_for_every_node() {
    let mut world = a_world();
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "shared"},
        "provisioner": "usher.dev/directory", "volumeBindingMode": "Immediate", "parameters": {"shared": "true"}});
    world.post(CLASSES, &class);
    claim(&world, "c", Some("shared"));
    world.settle();
    assert_eq!(volume_of(&world, "c")["spec"]["nodeAffinity"], Value::Null);
}

#[test]
fn c7_a_volume_under_delete_goes_with_its_claim_and_one_under_retain_is_released() {
    let mut world = a_world();
    for (name, class) in [("gone", "standard"), ("kept", "retain")] {
        claim(&world, name, Some(class));
        select(&world, name, "n1");
    }
    world.settle();
    let kept = volume_of(&world, "kept")["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    for name in ["gone", "kept"] {
        world.delete(&format!("{CLAIMS}/{name}"));
    }
    world.settle();
    assert!(world.list(CLAIMS).is_empty());
    let left = world.list(VOLUMES);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["metadata"]["name"], kept);
    assert_eq!(left[0]["status"]["phase"], "Released");
}

#[test]
fn c7_a_claim_in_use_goes_when_its_pod_is_gone() {
    let mut world = a_world();
    claim(&world, "c", None);
    select(&world, "c", "n1");
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    world.pod("p", &json!({}), &json!({"nodeName": "n1", "volumes": volumes}));
    world.settle();
    world.delete(&format!("{CLAIMS}/c"));
    world.settle();
    assert_eq!(
        world.find(&format!("{CLAIMS}/c"))["metadata"]["finalizers"],
        json!(["kubernetes.io/pvc-protection"])
    );
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
    world.ok("DELETE", &format!("{PODS}/p"), Some(&options));
    world.settle();
    assert_eq!(world.get(&format!("{CLAIMS}/c")), None);
    assert!(world.list(VOLUMES).is_empty());
}

fn static_volume(world: &World, name: &str, size: &str) {
    let body = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
        "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "by-hand", "hostPath": {"path": "/tmp/x"}}});
    world.post(VOLUMES, &body);
}

#[test]
fn c7_volumes_made_by_hand_bind_too_the_smallest_first() {
    let mut world = a_world();
    static_volume(&world, "big", "10Gi");
    static_volume(&world, "small", "2Gi");
    world.settle();
    assert_eq!(world.find(&format!("{VOLUMES}/big"))["status"]["phase"], "Available");
    claim(&world, "c", Some("by-hand"));
    world.settle();
    let volume = volume_of(&world, "c");
    assert_eq!(volume["metadata"]["name"], "small");
    assert_eq!(
        volume["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"],
        "yes"
    );
    assert_eq!(
        world.find(&format!("{CLAIMS}/c"))["status"]["capacity"],
        json!({"storage": "2Gi"})
    );
}

#[test]
fn c7_a_bound_volume_does_not_go_before_its_claim_and_a_claim_says_that_it_lost_one() {
    let mut world = a_world();
    static_volume(&world, "small", "2Gi");
    claim(&world, "c", Some("by-hand"));
    world.settle();
    world.delete(&format!("{VOLUMES}/small"));
    world.settle();
    let volume = world.find(&format!("{VOLUMES}/small"));
    assert_eq!(volume["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
    world.patch(&format!("{VOLUMES}/small"), &json!({"metadata": {"finalizers": null}}));
    world.settle();
    assert_eq!(phase(&world, "c"), "Lost");
    let told = (
        "ClaimLost".to_owned(),
        "Bound claim has lost its PersistentVolume. Data on the volume is lost!".to_owned(),
    );
    assert!(world.events("default", "c").contains(&told));
}

#[test]
fn c7_a_claim_grows_at_once() {
    let mut world = a_world();
    claim(&world, "c", None);
    select(&world, "c", "n1");
    world.settle();
    let more = json!({"spec": {"resources": {"requests": {"storage": "5Gi"}}}});
    world.patch(&format!("{CLAIMS}/c"), &more);
    world.settle();
    assert_eq!(
        world.find(&format!("{CLAIMS}/c"))["status"]["capacity"],
        json!({"storage": "5Gi"})
    );
    assert_eq!(volume_of(&world, "c")["spec"]["capacity"], json!({"storage": "5Gi"}));
}

#[test]
fn c7_where_resizing_is_offline_a_claim_grows_when_the_next_pod_starts() {
    let mut world = a_world();
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "offline"},
        "provisioner": "usher.dev/directory", "volumeBindingMode": "Immediate", "allowVolumeExpansion": true,
        "parameters": {"offlineResize": "true"}});
    world.post(CLASSES, &class);
    claim(&world, "c", Some("offline"));
    world.settle();
    let more = json!({"spec": {"resources": {"requests": {"storage": "5Gi"}}}});
    world.patch(&format!("{CLAIMS}/c"), &more);
    world.settle();
    let pending = world.find(&format!("{CLAIMS}/c"));
    assert_eq!(pending["status"]["capacity"], json!({"storage": "1Gi"}));
    let condition = &pending["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&json!("FileSystemResizePending"), &json!("True"))
    );
    world.pass(5);
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    world.pod("p", &json!({}), &json!({"nodeName": "n1", "volumes": volumes}));
    let started = json!({"status": {"phase": "Running", "startTime": "2026-01-01T00:00:06Z"}});
    world.patch(&format!("{PODS}/p/status"), &started);
    world.settle();
    let grown = world.find(&format!("{CLAIMS}/c"));
    assert_eq!(grown["status"]["capacity"], json!({"storage": "5Gi"}));
    assert_eq!(grown["status"]["conditions"], Value::Null);
}

#[test]
fn c7_a_claim_whose_class_is_missing_or_of_others_says_what_it_waits_for() {
    let mut world = a_world();
    claim(&world, "a", Some("nowhere"));
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "theirs"},
        "provisioner": "example.com/disks", "volumeBindingMode": "Immediate"});
    world.post(CLASSES, &class);
    claim(&world, "b", Some("theirs"));
    claim(&world, "c", Some(""));
    world.settle();
    let reason = |name: &str| world.events("default", name)[0].0.clone();
    assert_eq!(reason("a"), "ProvisioningFailed");
    assert_eq!(
        world.events("default", "a")[0].1,
        "storageclass.storage.k8s.io \"nowhere\" not found"
    );
    assert_eq!(reason("b"), "ExternalProvisioning");
    assert_eq!(reason("c"), "FailedBinding");
    // The class comes, and the claim goes on.
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "nowhere"},
        "provisioner": "usher.dev/directory", "volumeBindingMode": "Immediate"});
    world.post(CLASSES, &class);
    world.settle();
    assert_eq!(phase(&world, "a"), "Bound");
}

fn on_disk(path: &std::path::Path) -> Options {
    Options {
        storage: Storage::Folder {
            path: path.to_owned(),
            durability: Durability::Relaxed,
        },
        ..options()
    }
}

/// Looks until it holds: folders are removed by a thread.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("never: {what}");
}

fn settle_on_disk(world: &mut World) {
    futures::executor::block_on(world.manual.settle());
}

/// On a disk answers take a while.
fn ask(world: &World, method: &str, path: &str, body: &Value) {
    use http_body_util::Full;
    let content_type = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .body(Full::new(bytes::Bytes::from(serde_json::to_vec(body).unwrap())))
        .unwrap();
    let answer = futures::executor::block_on(world.manual.service().answer(request));
    assert!(answer.status().is_success(), "{method} {path}: {}", answer.status());
}

#[test]
fn c7_a_folder_goes_only_under_delete_and_after_its_volume_even_across_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let open = || World {
        manual: usher_embedded::Cluster::manual(on_disk(&data)).unwrap(),
    };
    let mut world = open();
    settle_on_disk(&mut world);
    ask(
        &world,
        "POST",
        "/api/v1/nodes",
        &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}),
    );
    for (name, class) in [("gone", "standard"), ("kept", "retain")] {
        let body = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name,
                "annotations": {"volume.kubernetes.io/selected-node": "n1"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "resources": {"requests": {"storage": "1Gi"}}}});
        ask(&world, "POST", CLAIMS, &body);
    }
    settle_on_disk(&mut world);
    let folders = || -> Vec<String> {
        let all = std::fs::read_dir(data.join("volumes")).unwrap();
        all.map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("pvc-"))
            .collect()
    };
    assert_eq!(folders().len(), 2);
    for name in folders() {
        std::fs::write(data.join("volumes").join(&name).join("file"), "data").unwrap();
    }
    let none = json!({});
    for name in ["gone", "kept"] {
        ask(&world, "DELETE", &format!("{CLAIMS}/{name}"), &none);
    }
    settle_on_disk(&mut world);
    until("the folder under Delete is gone", || folders().len() == 1);
    let kept = folders();
    // A crash after the volume's end and before its folder's: the mark is found at the next start.
    drop(world);
    let lost = data.join("volumes").join("pvc-lost");
    std::fs::create_dir_all(lost.join("deep")).unwrap();
    std::fs::write(data.join("volumes").join(".doomed").join("pvc-lost"), "").unwrap();
    std::fs::create_dir_all(data.join("volumes").join("pvc-unmarked")).unwrap();
    let mut world = open();
    settle_on_disk(&mut world);
    until("the marked folder is gone", || !lost.exists());
    let mut expected = kept;
    expected.push("pvc-unmarked".to_owned());
    let mut found = folders();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}
