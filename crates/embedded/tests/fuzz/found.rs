//! What the fuzzer found, cut down to what matters, so that it stays mended.

use serde_json::{Value, json};

use crate::request::Sent;
use crate::world::{Got, World};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const JSON: &str = "application/json";

fn send(world: &World, sent: &Sent) -> Got {
    let before = world.writes();
    let got = world.send(sent).unwrap().unwrap();
    crate::judge::answer(sent, &got, world.writes() - before).unwrap();
    got
}

fn ask(world: &World, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let media = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        JSON
    };
    let got = send(world, &Sent::new(method, path).with_body(media, body.to_string()));
    (got.code, serde_json::from_slice(&got.body).unwrap_or_default())
}

#[test]
fn what_the_client_cannot_read_is_not_written() {
    let world = World::new();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let unreadable = ["application/json;as=Chart;g=x;v=y", "application/cbor"];
    for accept in unreadable {
        let mut post = Sent::new("POST", MAPS).with_body(JSON, map.to_string());
        post.set_header("accept", accept);
        assert_eq!(send(&world, &post).code, 406);
    }
    assert_eq!(ask(&world, "POST", MAPS, &map).0, 201, "it was not there");
    let mut table = Sent::new("PATCH", &format!("{MAPS}/a?includeObject=nope"));
    table = table.with_body("application/merge-patch+json", r#"{"data": {"a": "b"}}"#);
    table.set_header("accept", "application/json;as=Table;g=meta.k8s.io;v=v1");
    let before = world.writes();
    assert_eq!(send(&world, &table).code, 400);
    for (method, path) in [
        ("DELETE", format!("{MAPS}/a")),
        ("DELETE", MAPS.to_owned()),
        ("PUT", format!("{MAPS}/a")),
    ] {
        for accept in unreadable {
            let mut sent = Sent::new(method, &path);
            if method == "PUT" {
                sent = sent.with_body(JSON, map.to_string());
            }
            sent.set_header("accept", accept);
            assert_eq!(send(&world, &sent).code, 406, "{method} {path}");
        }
    }
    assert_eq!(world.writes(), before);
}

/// `kubectl edit crd` while it goes: its own finalizer names no domain.
#[test]
fn a_definition_that_is_going_can_be_changed() {
    let world = World::new();
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    assert_eq!(ask(&world, "POST", DEFINITIONS, &definition).0, 201);
    let place = format!("{DEFINITIONS}/things.example.com");
    assert_eq!(send(&world, &Sent::new("DELETE", &place)).code, 200);
    let (code, answer) = ask(&world, "PATCH", &place, &json!({"metadata": {"labels": {"a": "b"}}}));
    assert_eq!(code, 200, "{answer}");
}

/// The older kind of events has times and counts that the newer refuses, but only in new ones.
#[test]
fn an_older_event_can_be_put_back_as_a_newer_one() {
    let world = World::new();
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "count": 2, "type": "Normal",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "source": {"component": "kubelet"},
        "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:06Z"});
    assert_eq!(ask(&world, "POST", "/api/v1/namespaces/default/events", &event).0, 201);
    let place = "/apis/events.k8s.io/v1/namespaces/default/events/e";
    let newer = ask(&world, "GET", place, &json!(null)).1;
    let before = world.writes();
    let (code, answer) = ask(&world, "PUT", place, &newer);
    assert_eq!((code, world.writes()), (200, before), "{answer}");
}

#[test]
fn o11_a_dry_binding_binds_nothing_and_annotations_are_texts() {
    let world = World::new();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    ask(&world, "POST", "/api/v1/namespaces/default/serviceaccounts", &account);
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(ask(&world, "POST", pods, &pod).0, 201);
    let mut binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n"}});
    let before = world.writes();
    let (code, answer) = ask(&world, "POST", &format!("{pods}/p/binding?dryRun=All"), &binding);
    assert_eq!((code, world.writes()), (201, before), "{answer}");
    let nowhere = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "A B"}});
    assert_eq!(ask(&world, "POST", &format!("{pods}/p/binding"), &nowhere).0, 400);
    binding["metadata"]["annotations"] = json!({"a": 1});
    assert_eq!(ask(&world, "POST", &format!("{pods}/p/binding"), &binding).0, 400);
}

fn preserving(world: &World) -> &'static str {
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    assert_eq!(ask(world, "POST", DEFINITIONS, &definition).0, 201);
    "/apis/example.com/v1/namespaces/default/things"
}

/// What is kept about an object's fields is as deep as the object, and a little deeper for where it is kept.
#[test]
fn what_is_taken_however_deep_can_be_read() {
    let world = World::new();
    let things = preserving(&world);
    for (style, levels) in (100..130).flat_map(|levels| [(0, levels), (1, levels), (2, levels)]) {
        let inside = (0..levels).fold(json!(1), |value, level| match (style, level % 2) {
            (0, _) | (2, 0) => json!({"a": value}),
            _ => json!([value]),
        });
        let name = format!("t-{style}-{levels}");
        let object =
            json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": inside});
        let (code, answer) = ask(&world, "POST", things, &object);
        let place = format!("{things}/{name}");
        if code != 201 {
            assert!(matches!(code, 400 | 422), "{levels} levels: {code} {answer}");
            continue;
        }
        let got = send(&world, &Sent::new("GET", &place));
        assert_eq!(got.code, 200, "{levels} levels: {}", String::from_utf8_lossy(&got.body));
        let again = send(&world, &Sent::new("PUT", &place).with_body(JSON, got.body.clone()));
        assert_eq!(
            again.code,
            200,
            "{levels} levels: {}",
            String::from_utf8_lossy(&again.body)
        );
        let apply = Sent::new("PATCH", &format!("{place}?fieldManager=b"));
        let applied = send(
            &world,
            &apply.with_body("application/apply-patch+yaml", object.to_string()),
        );
        assert!(
            matches!(applied.code, 200 | 400),
            "{levels} levels: {}",
            String::from_utf8_lossy(&applied.body)
        );
        assert_eq!(send(&world, &Sent::new("GET", things)).code, 200, "{levels} levels");
        assert_eq!(send(&world, &Sent::new("DELETE", &place)).code, 200, "{levels} levels");
    }
}

/// Nine of nine of nine: 600 bytes that took seconds to refuse.
#[test]
fn aliases_of_aliases_are_refused_soon() {
    let world = World::new();
    let mut text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  a0: &a0 [x, x, x, x]\n".to_owned();
    for level in 1..20 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        text += &format!("  a{level}: &a{level} [{aliases}]\n");
    }
    let bomb = send(&world, &Sent::new("POST", MAPS).with_body("application/yaml", text));
    assert_eq!(bomb.code, 400);
    let told = String::from_utf8_lossy(&bomb.body);
    assert!(told.contains("20000") || told.contains("alias"), "{told}");
    // Some are fine.
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: &a x, b: *a}\n";
    assert_eq!(
        send(&world, &Sent::new("POST", MAPS).with_body("application/yaml", text)).code,
        201
    );
}

#[test]
fn metadata_of_custom_resources_is_of_the_right_types() {
    let world = World::new();
    let things = preserving(&world);
    let thing = |metadata: Value| json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata});
    assert_eq!(ask(&world, "POST", things, &thing(json!({"name": "t"}))).0, 201);
    for (field, wrong) in [
        ("finalizers", json!([[["a"]]])),
        ("finalizers", json!("a")),
        ("ownerReferences", json!([1])),
        (
            "ownerReferences",
            json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": 1}]),
        ),
        ("labels", json!([])),
        ("annotations", json!({"a": {}})),
        ("deletionGracePeriodSeconds", json!("1")),
        ("generateName", json!(1)),
        ("managedFields", json!([{"manager": 1}])),
    ] {
        let before = world.writes();
        let mut metadata = json!({"name": "t"});
        metadata[field] = wrong.clone();
        for (method, path) in [("PATCH", format!("{things}/t")), ("POST", things.to_owned())] {
            let (code, answer) = ask(&world, method, &path, &thing(metadata.clone()));
            assert!(
                matches!(code, 400 | 422) && world.writes() == before,
                "{method} {field} {wrong}: {code} {answer}"
            );
        }
    }
}

#[test]
fn finalizers_are_checked_when_they_come_with_a_status() {
    let world = World::new();
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    assert_eq!(ask(&world, "POST", claims, &claim).0, 201);
    let wrong = json!({"metadata": {"finalizers": ["kubernet"]}});
    assert_eq!(ask(&world, "PATCH", &format!("{claims}/c/status"), &wrong).0, 422);
}

/// Its label is its name, which only the path gave.
#[test]
fn a_namespace_that_is_applied_without_a_name_has_its_label() {
    let world = World::new();
    let apply = Sent::new("PATCH", "/api/v1/namespaces/n?fieldManager=a");
    let body = r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": null}"#;
    let got = send(&world, &apply.with_body("application/apply-patch+yaml", body));
    let namespace: Value = serde_json::from_slice(&got.body).unwrap();
    assert_eq!(
        namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], "n",
        "{namespace}"
    );
}

/// Their names may be nearly anything.
#[test]
fn a_role_whose_name_no_path_can_hold_is_refused() {
    let world = World::new();
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "a\u{0}b"}, "rules": null});
    let (code, answer) = ask(&world, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", &role);
    assert_eq!(code, 422, "{answer}");
}

/// Its group begins as one that has messages, and its kind is one of them.
#[test]
fn a5_a_custom_resource_has_no_form_in_protobuf() {
    let world = World::new();
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "deployments.apps.example.com"},
        "spec": {"group": "apps.example.com", "scope": "Namespaced", "names": {"plural": "deployments", "kind": "Deployment"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    assert_eq!(ask(&world, "POST", DEFINITIONS, &definition).0, 201);
    let post = Sent::new("POST", "/apis/apps.example.com/v1/namespaces/default/deployments");
    let body = b"k8s\0\x12\x05\x0a\x03\x0a\x01a";
    let got = send(&world, &post.with_body("application/vnd.kubernetes.protobuf", body));
    assert_eq!(got.code, 415, "{}", String::from_utf8_lossy(&got.body));
    // The same bytes are a good Deployment.
    let post = Sent::new("POST", "/apis/apps/v1/namespaces/default/deployments");
    let got = send(&world, &post.with_body("application/vnd.kubernetes.protobuf", body));
    assert_eq!(got.code, 422, "{}", String::from_utf8_lossy(&got.body));
}

#[test]
fn an_eviction_whose_precondition_fails_writes_nothing() {
    let world = World::new();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(ask(&world, "POST", pods, &pod).0, 201);
    // `send` fails where a refused request wrote something.
    for uid in ["", "another"] {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"},
            "deleteOptions": {"preconditions": {"uid": uid}}});
        assert_eq!(ask(&world, "POST", &format!("{pods}/p/eviction"), &eviction).0, 409);
    }
}
