//! Services' addresses and ports (O22, W1): given once, never twice, given back.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use usher_embedded::store::Durability;
use usher_embedded::{Options, Storage};

use crate::world::World;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: Value) -> Value {
    // What the kind's defaults add, so that this holds whatever they do.
    let mut whole = json!({"type": "ClusterIP", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]});
    for (field, value) in spec.as_object().unwrap() {
        whole[field] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": whole})
}

fn address(service: &Value) -> &str {
    service["spec"]["clusterIP"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn w1_a_service_has_one_address_of_the_block_and_the_fields_that_go_with_it() {
    let world = World::new();
    let made = world.post(SERVICES, service("a", json!({}))).await.ok();
    let numbers: Vec<u8> = address(&made).split('.').map(|part| part.parse().unwrap()).collect();
    assert_eq!(numbers[..2], [127, 64]);
    assert!(numbers[2] >= 224, "{numbers:?}");
    let spec = &made["spec"];
    assert_eq!(spec["clusterIPs"], json!([address(&made)]));
    assert_eq!(
        (&spec["ipFamilies"], &spec["ipFamilyPolicy"]),
        (&json!(["IPv4"]), &json!("SingleStack"))
    );
    let again = World::new().post(SERVICES, service("a", json!({}))).await.ok();
    assert_eq!(address(&made), address(&again), "e1: one seed gives one address");
}

#[tokio::test]
async fn an_address_is_never_given_twice() {
    let world = World::new();
    let mut seen = BTreeSet::new();
    for index in 0..300 {
        let made = world
            .post(SERVICES, service(&format!("s{index}"), json!({"type": "NodePort"})))
            .await
            .ok();
        assert!(seen.insert(address(&made).to_owned()), "{}", address(&made));
        assert!(seen.insert(made["spec"]["ports"][0]["nodePort"].to_string()));
    }
    let taken = seen.iter().find(|text| text.starts_with("127")).unwrap();
    world.post(SERVICES, service("late", json!({"clusterIP": taken}))).await.refused(
        422,
        &format!(r#"Service "late" is invalid: spec.clusterIPs: Invalid value: ["{taken}"]: failed to allocate IP {taken}: provided IP is already allocated"#),
    );
}

#[tokio::test]
async fn an_address_that_is_asked_for_must_be_of_the_range() {
    let world = World::new();
    let made = world
        .post(SERVICES, service("a", json!({"clusterIP": "127.64.224.10"})))
        .await
        .ok();
    assert_eq!(address(&made), "127.64.224.10");
    world.post(SERVICES, service("b", json!({"clusterIP": "10.0.0.1"}))).await.refused(
        422,
        r#"Service "b" is invalid: spec.clusterIPs: Invalid value: ["10.0.0.1"]: failed to allocate IP 10.0.0.1: the provided IP (10.0.0.1) is not in the valid range. The range of valid IPs is 127.64.224.0/19"#,
    );
    world.delete(&format!("{SERVICES}/a")).await.ok();
    world
        .post(SERVICES, service("c", json!({"clusterIP": "127.64.224.10"})))
        .await
        .ok();
}

#[tokio::test]
async fn a_write_that_fails_gives_back_what_it_reserved() {
    let world = World::new();
    let wanted = json!({"clusterIP": "127.64.224.10"});
    let mut bad = service("bad", wanted.clone());
    bad["metadata"]["labels"] = json!({"not a label": "x"});
    assert_eq!(world.post(SERVICES, bad).await.code, 422);
    let dry = world
        .post(&format!("{SERVICES}?dryRun=All"), service("dry", json!({})))
        .await
        .ok();
    assert_eq!(address(&dry), "127.64.224.0");
    world
        .post(&format!("{SERVICES}?dryRun=All"), service("dry", wanted.clone()))
        .await
        .ok();
    world.post(SERVICES, service("good", wanted)).await.ok();
}

#[tokio::test]
async fn headless_services_keep_none_and_external_names_have_no_address() {
    let world = World::new();
    let headless = world
        .post(
            SERVICES,
            service("h", json!({"clusterIP": "None", "selector": {"a": "b"}})),
        )
        .await
        .ok();
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    assert_eq!(headless["spec"]["ipFamilies"], json!(["IPv4"]));
    let bare = world
        .post(SERVICES, service("n", json!({"clusterIP": "None"})))
        .await
        .ok();
    assert_eq!(bare["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    assert_eq!(bare["spec"]["ipFamilyPolicy"], "RequireDualStack");
    let name = json!({"type": "ExternalName", "externalName": "a.b", "ports": null});
    let made = world.post(SERVICES, service("e", name)).await.ok();
    assert_eq!(
        (&made["spec"]["clusterIP"], &made["spec"]["ipFamilies"]),
        (&Value::Null, &Value::Null)
    );
}

#[tokio::test]
async fn node_ports_are_given_kept_shared_and_refused() {
    let world = World::new();
    let asked = json!({"type": "NodePort", "ports": [
        {"name": "a", "port": 53, "protocol": "TCP", "targetPort": 53},
        {"name": "b", "port": 53, "protocol": "UDP", "targetPort": 53},
        {"name": "c", "port": 80, "protocol": "TCP", "targetPort": 80, "nodePort": 30080},
    ]});
    let made = world.post(SERVICES, service("np", asked)).await.ok();
    let port = |made: &Value, at: usize| made["spec"]["ports"][at]["nodePort"].as_i64().unwrap();
    assert_eq!(port(&made, 0), port(&made, 1));
    assert!((30_000..=32_767).contains(&port(&made, 0)));
    assert_eq!(port(&made, 2), 30_080);
    let ports = |node: i64| json!({"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80, "nodePort": node}]});
    world.post(SERVICES, service("x", ports(30_080))).await.refused(
        422,
        r#"Service "x" is invalid: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated"#,
    );
    world.post(SERVICES, service("x", ports(80))).await.refused(
        422,
        r#"Service "x" is invalid: spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767"#,
    );
    // A client that does not know them leaves them as they are.
    let put = json!({"type": "NodePort", "ports": [{"name": "c", "port": 80, "protocol": "TCP", "targetPort": 8080}]});
    let kept = world.put(&format!("{SERVICES}/np"), service("np", put)).await.ok();
    assert_eq!(port(&kept, 0), 30_080);
    assert_eq!(address(&kept), address(&made));
}

#[tokio::test]
async fn what_a_type_no_longer_has_is_given_back() {
    let world = World::new();
    let asked = json!({"type": "NodePort", "externalTrafficPolicy": "Cluster",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80, "nodePort": 30080}]});
    let made = world.post(SERVICES, service("a", asked.clone())).await.ok();
    let plain = world
        .merge(&format!("{SERVICES}/a"), json!({"spec": {"type": "ClusterIP"}}))
        .await
        .ok();
    assert_eq!(plain["spec"]["ports"][0]["nodePort"], Value::Null);
    assert_eq!(plain["spec"]["externalTrafficPolicy"], Value::Null);
    assert_eq!(address(&plain), address(&made));
    world.post(SERVICES, service("b", asked)).await.ok();
    let external = json!({"spec": {"type": "ExternalName", "externalName": "a.b"}});
    let gone = world.merge(&format!("{SERVICES}/a"), external).await.ok();
    assert_eq!(gone["spec"]["clusterIP"], Value::Null);
    world
        .post(SERVICES, service("c", json!({"clusterIP": address(&made)})))
        .await
        .ok();
    let back = world
        .merge(
            &format!("{SERVICES}/a"),
            json!({"spec": {"type": "ClusterIP", "externalName": null}}),
        )
        .await
        .ok();
    assert_ne!(address(&back), address(&made));
    assert!(!address(&back).is_empty());
}

#[tokio::test]
async fn a_load_balancer_with_local_traffic_has_a_port_for_health() {
    let world = World::new();
    let asked =
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "allocateLoadBalancerNodePorts": false});
    let made = world.post(SERVICES, service("lb", asked)).await.ok();
    assert!((30_000..=32_767).contains(&made["spec"]["healthCheckNodePort"].as_i64().unwrap()));
    assert_eq!(made["spec"]["ports"][0]["nodePort"], Value::Null);
}

#[tokio::test]
async fn two_families_are_not_to_be_had() {
    let world = World::new();
    world.post(SERVICES, service("a", json!({"ipFamilyPolicy": "RequireDualStack"}))).await.refused(
        422,
        r#"Service "a" is invalid: spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services"#,
    );
    let prefers = world
        .post(SERVICES, service("b", json!({"ipFamilyPolicy": "PreferDualStack"})))
        .await
        .ok();
    assert_eq!(prefers["spec"]["ipFamilies"], json!(["IPv4"]));
}

#[tokio::test]
async fn what_a_write_in_flight_has_is_nobody_elses_and_free_when_it_is_given_up() {
    let world = World::new();
    world
        .cluster()
        .handle_webhook("https://in.process/slow", |_| std::future::pending());
    let rules =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["services"], "operations": ["CREATE"]}]);
    let slow = json!({"rules": rules, "objectSelector": {"matchLabels": {"slow": "yes"}}});
    world.hook("Validating", "slow", slow).await.ok();
    let wanted = json!({"clusterIP": "127.64.224.10"});
    let mut first = service("first", wanted.clone());
    first["metadata"]["labels"] = json!({"slow": "yes"});
    let mut in_flight = Box::pin(world.post(SERVICES, first));
    assert!(futures::poll!(&mut in_flight).is_pending());
    let second = world.post(SERVICES, service("second", wanted.clone())).await;
    assert!(
        second.message().ends_with("provided IP is already allocated"),
        "{second:?}"
    );
    drop(in_flight);
    world.post(SERVICES, service("second", wanted)).await.ok();
}

fn kept_in(folder: &tempfile::TempDir, file: &str) -> Options {
    Options {
        storage: Storage::Disk {
            file: folder.path().join(file),
            durability: Durability::Fsync,
        },
        ..Options::default()
    }
}

#[tokio::test]
async fn a_cluster_that_is_opened_again_knows_what_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let before = World::with(kept_in(&folder, "before"));
    let made = before.post(SERVICES, service("a", json!({}))).await.ok();
    // What is on disk once the create was answered, as a crash would leave it.
    std::fs::copy(folder.path().join("before"), folder.path().join("after")).unwrap();
    let world = World::with(kept_in(&folder, "after"));
    let again = world
        .post(SERVICES, service("b", json!({"clusterIP": address(&made)})))
        .await;
    assert!(
        again.message().ends_with("provided IP is already allocated"),
        "{again:?}"
    );
}

#[tokio::test]
async fn a_webhook_that_nobody_answers_does_not_keep_a_cluster_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let before = World::with(kept_in(&folder, "before"));
    before.delete(CLASSES).await.ok();
    let hook = json!({
        "name": "all.example.com", "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"], "scope": "*"}],
    });
    before.hook("Validating", "all", hook).await.ok();
    std::fs::copy(folder.path().join("before"), folder.path().join("after")).unwrap();
    let world = World::with(kept_in(&folder, "after"));
    let classes = world.get(CLASSES).await.ok();
    assert_eq!(classes["items"].as_array().unwrap().len(), 2, "{classes}");
}
