//! Endpoints and EndpointSlices of Services (C6).

use serde_json::{Value, json};

use crate::world::{PODS, World};

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";

fn web(world: &World, name: &str, node: &str, ip: &str, is_ready: bool) {
    world.pod(name, &json!({"app": "web"}), &json!({"nodeName": node}));
    world.pod_says(name, ip, is_ready);
}

fn a_world() -> World {
    let mut world = World::new();
    world.node("n1", &json!({"topology.kubernetes.io/zone": "here"}));
    world.service(
        "web",
        &json!({"selector": {"app": "web"}, "ports": [{"name": "main", "port": 80, "targetPort": "http"}]}),
    );
    world.rest();
    world
}

fn slices(world: &World, service: &str) -> Vec<Value> {
    world.list(&format!("{SLICES}?labelSelector=kubernetes.io/service-name={service}"))
}

fn ips(addresses: &Value) -> Vec<&str> {
    let all = addresses.as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().map(|address| address["ip"].as_str().unwrap()).collect()
}

#[test]
fn c6_a_service_without_pods_has_empty_endpoints_and_one_empty_slice() {
    let world = a_world();
    let endpoints = world.find(&format!("{ENDPOINTS}/web"));
    assert_eq!(endpoints["subsets"], Value::Null);
    assert_eq!(
        endpoints["metadata"]["labels"],
        json!({"of": "web", "endpoints.kubernetes.io/managed-by": "endpoint-controller"})
    );
    assert_eq!(
        endpoints["metadata"]["annotations"],
        json!({"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z"})
    );
    let slices = slices(&world, "web");
    assert_eq!(slices.len(), 1);
    let slice = &slices[0];
    assert_eq!((&slice["endpoints"], &slice["ports"]), (&Value::Null, &Value::Null));
    assert_eq!(slice["addressType"], "IPv4");
    assert_eq!(slice["metadata"]["generateName"], "web-");
    assert_eq!(
        slice["metadata"]["labels"],
        json!({"of": "web", "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"})
    );
    let owner = &slice["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["controller"]),
        (&json!("Service"), &json!(true))
    );
}

#[test]
fn c6_ready_and_unready_pods_are_told_apart_with_their_named_port() {
    let mut world = a_world();
    web(&world, "a", "n1", "10.0.0.1", true);
    web(&world, "b", "n1", "10.0.0.2", false);
    world.pod("c", &json!({"app": "other"}), &json!({"nodeName": "n1"}));
    world.pod_says("c", "10.0.0.3", true);
    world.rest();
    let endpoints = world.find(&format!("{ENDPOINTS}/web"));
    let subset = &endpoints["subsets"][0];
    assert_eq!(ips(&subset["addresses"]), ["10.0.0.1"]);
    assert_eq!(ips(&subset["notReadyAddresses"]), ["10.0.0.2"]);
    assert_eq!(
        subset["ports"],
        json!([{"name": "main", "port": 8080, "protocol": "TCP"}])
    );
    let address = &subset["addresses"][0];
    assert_eq!(address["nodeName"], "n1");
    let uid = world.find(&format!("{PODS}/a"))["metadata"]["uid"].clone();
    assert_eq!(
        address["targetRef"],
        json!({"kind": "Pod", "namespace": "default", "name": "a", "uid": uid})
    );
    let slices = slices(&world, "web");
    assert_eq!(slices.len(), 1, "the empty one was filled");
    assert_eq!(
        slices[0]["ports"],
        json!([{"name": "main", "port": 8080, "protocol": "TCP"}])
    );
    let endpoint = &slices[0]["endpoints"][0];
    assert_eq!(endpoint["addresses"], json!(["10.0.0.1"]));
    assert_eq!(
        endpoint["conditions"],
        json!({"ready": true, "serving": true, "terminating": false})
    );
    assert_eq!(
        (&endpoint["nodeName"], &endpoint["zone"]),
        (&json!("n1"), &json!("here"))
    );
    assert_eq!(
        slices[0]["endpoints"][1]["conditions"],
        json!({"ready": false, "serving": false, "terminating": false})
    );
}

#[test]
fn c6_a_terminating_pod_serves_but_is_not_ready() {
    let mut world = a_world();
    web(&world, "a", "n1", "10.0.0.1", true);
    world.rest();
    world.delete(&format!("{PODS}/a"));
    world.rest();
    assert_eq!(
        slices(&world, "web")[0]["endpoints"][0]["conditions"],
        json!({"ready": false, "serving": true, "terminating": true})
    );
    assert_eq!(world.find(&format!("{ENDPOINTS}/web"))["subsets"], Value::Null);
}

#[test]
fn c6_publish_not_ready_addresses_shows_everything() {
    let mut world = World::new();
    world.node("n1", &json!({}));
    world.service(
        "db",
        &json!({"clusterIP": "None", "publishNotReadyAddresses": true, "selector": {"app": "web"}}),
    );
    world.pod(
        "a",
        &json!({"app": "web"}),
        &json!({"nodeName": "n1", "hostname": "a", "subdomain": "db"}),
    );
    world.pod_says("a", "10.0.0.1", false);
    world.pod(
        "b",
        &json!({"app": "web"}),
        &json!({"nodeName": "n1", "hostname": "b", "subdomain": "other"}),
    );
    world.pod_says("b", "10.0.0.2", false);
    world.rest();
    let endpoints = world.find(&format!("{ENDPOINTS}/db"));
    assert_eq!(ips(&endpoints["subsets"][0]["addresses"]), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(endpoints["subsets"][0]["addresses"][0]["hostname"], "a");
    assert_eq!(endpoints["subsets"][0]["addresses"][1]["hostname"], Value::Null);
    assert_eq!(endpoints["metadata"]["labels"]["service.kubernetes.io/headless"], "");
    let slice = &slices(&world, "db")[0];
    assert_eq!(slice["metadata"]["labels"]["service.kubernetes.io/headless"], "");
    assert_eq!(
        slice["endpoints"][0]["conditions"],
        json!({"ready": true, "serving": false, "terminating": false})
    );
    assert_eq!(slice["endpoints"][0]["hostname"], "a");
}

#[test]
fn c6_pods_whose_port_of_that_name_differs_have_slices_of_their_own() {
    let mut world = a_world();
    web(&world, "a", "n1", "10.0.0.1", true);
    let other = json!([{"name": "c", "image": "i", "ports": [{"name": "http", "containerPort": 9090}]}]);
    world.pod(
        "b",
        &json!({"app": "web"}),
        &json!({"nodeName": "n1", "containers": other}),
    );
    world.pod_says("b", "10.0.0.2", true);
    world.rest();
    let mut found: Vec<(i64, Vec<String>)> = slices(&world, "web")
        .iter()
        .map(|slice| {
            let ends = slice["endpoints"].as_array().unwrap();
            let ends = ends
                .iter()
                .map(|end| end["addresses"][0].as_str().unwrap().to_owned())
                .collect();
            (slice["ports"][0]["port"].as_i64().unwrap(), ends)
        })
        .collect();
    found.sort();
    assert_eq!(
        found,
        [(8080, vec!["10.0.0.1".to_owned()]), (9090, vec!["10.0.0.2".to_owned()])]
    );
}

#[test]
fn c6_a_slice_holds_a_hundred() {
    let mut world = a_world();
    for number in 0..230 {
        web(
            &world,
            &format!("p{number:03}"),
            "n1",
            &format!("10.0.1.{number}"),
            true,
        );
    }
    world.rest();
    let mut counts: Vec<usize> = slices(&world, "web")
        .iter()
        .map(|slice| slice["endpoints"].as_array().unwrap().len())
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, [30, 100, 100]);
    // One that goes leaves its place to the next that comes; the others are not touched.
    let before: Vec<Value> = slices(&world, "web");
    world.ok(
        "DELETE",
        &format!("{PODS}/p000"),
        Some(&json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})),
    );
    world.rest();
    let after = slices(&world, "web");
    let changed = before.iter().filter(|slice| !after.contains(slice)).count();
    assert_eq!(changed, 1);
}

#[test]
fn c6_pods_that_become_ready_one_by_one_are_written_in_batches() {
    let mut world = a_world();
    for number in 0..100 {
        world.pod(
            &format!("p{number:03}"),
            &json!({"app": "web"}),
            &json!({"nodeName": "n1"}),
        );
    }
    world.rest();
    let before = world.writes();
    for number in 0..100 {
        world.pod_says(&format!("p{number:03}"), &format!("10.0.1.{number}"), true);
        world.settle();
    }
    world.rest();
    let more = world.writes() - before - 100;
    assert!(more <= 6, "{more} writes for the endpoints of a hundred pods");
    let endpoints = world.find(&format!("{ENDPOINTS}/web"));
    assert_eq!(ips(&endpoints["subsets"][0]["addresses"]).len(), 100);
}

#[test]
fn c6_nothing_is_written_for_pods_of_no_service_and_for_services_without_a_selector() {
    let mut world = World::new();
    world.node("n1", &json!({}));
    world.service("free", &json!({"ports": [{"port": 80}]}));
    world.rest();
    let before = world.writes();
    web(&world, "a", "n1", "10.0.0.1", true);
    world.rest();
    assert_eq!(world.writes() - before, 2, "the pod and its status");
    assert_eq!(world.get(&format!("{ENDPOINTS}/free")), None);
    assert!(slices(&world, "free").is_empty());
}

#[test]
fn c6_endpoints_go_with_their_service_and_slices_are_collected() {
    let mut world = a_world();
    web(&world, "a", "n1", "10.0.0.1", true);
    world.rest();
    world.delete("/api/v1/namespaces/default/services/web");
    world.rest();
    assert_eq!(world.get(&format!("{ENDPOINTS}/web")), None);
    assert!(slices(&world, "web").is_empty());
}

#[test]
fn c6_what_somebody_else_changed_is_put_right() {
    let mut world = a_world();
    web(&world, "a", "n1", "10.0.0.1", true);
    world.rest();
    let name = slices(&world, "web")[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    world.patch(&format!("{SLICES}/{name}"), &json!({"endpoints": []}));
    world.delete(&format!("{ENDPOINTS}/web"));
    world.rest();
    assert_eq!(
        slices(&world, "web")[0]["endpoints"][0]["addresses"],
        json!(["10.0.0.1"])
    );
    assert_eq!(
        ips(&world.find(&format!("{ENDPOINTS}/web"))["subsets"][0]["addresses"]),
        ["10.0.0.1"]
    );
    world.delete(&format!("{SLICES}/{name}"));
    world.rest();
    assert_eq!(
        slices(&world, "web")[0]["endpoints"][0]["addresses"],
        json!(["10.0.0.1"])
    );
}

#[test]
fn c6_labels_of_the_service_are_those_of_its_endpoints() {
    let mut world = a_world();
    let change = json!({"metadata": {"labels": {"of": null, "team": "x"}}});
    world.patch("/api/v1/namespaces/default/services/web", &change);
    world.rest();
    assert_eq!(
        world.find(&format!("{ENDPOINTS}/web"))["metadata"]["labels"]["team"],
        "x"
    );
    let labels = slices(&world, "web")[0]["metadata"]["labels"].clone();
    assert_eq!((&labels["team"], &labels["of"]), (&json!("x"), &Value::Null));
}
