//! What is around pods: names, Services, the API, and whoever looks after the machine.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::world::{World, sh, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w5_w6_a_service_has_a_name_in_pods_and_leads_to_them() {
    let world = World::new();
    let services: Api<Service> = Api::default_namespaced(world.cluster.client());
    let service = |name: &str, more: Value| -> Service {
        let mut spec = json!({"selector": {"app": "server"}, "ports": [{"port": 7070}]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    };
    let made = services
        .create(&PostParams::default(), &service("web", json!({})))
        .await
        .unwrap();
    let cluster_ip = made.spec.unwrap().cluster_ip.unwrap();
    let headless = service("each", json!({"clusterIP": "None"}));
    services.create(&PostParams::default(), &headless).await.unwrap();
    let script = "while true; do grep -e web -e each /etc/hosts; echo; sleep 0.2; done";
    world.run("server", json!({"containers": [sh("c", script)]})).await;
    let pod = world.running("server").await;
    let pod_ip = pod["status"]["podIP"].as_str().unwrap().to_owned();
    until("the names are there", || async {
        let log = world.log("server").await;
        let is_there = |address: &str, name: &str| {
            log.lines()
                .any(|line| line.starts_with(address) && line.split_whitespace().any(|word| word == name))
        };
        if is_there(&cluster_ip, "web.default.svc.cluster.local") && is_there(&pod_ip, "each.default.svc") {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
    // The pod's address is on this machine's loopback: what listens there may as well be this test.
    let listener = TcpListener::bind(format!("{pod_ip}:7070")).unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let _ = connection.unwrap().write_all(b"hello");
        }
    });
    let address: SocketAddr = format!("{cluster_ip}:7070").parse().unwrap();
    until("the relay leads to the pod", || async {
        let mut said = String::new();
        let asked = TcpStream::connect(address).and_then(|mut stream| stream.read_to_string(&mut said));
        match asked {
            Ok(_) if said == "hello" => Ok(()),
            other => Err(format!("{other:?} {said}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w5_pods_reach_the_api_through_the_service_kubernetes() {
    let world = World::new();
    let listening = world
        .cluster
        .listen(usher_embedded::ListenOptions::default())
        .await
        .unwrap();
    assert!(listening.address().ip().is_loopback());
    let services: Api<Service> = Api::default_namespaced(world.cluster.client());
    let address = until("the Service is there", || async {
        let found = services.get_opt("kubernetes").await.map_err(|why| why.to_string())?;
        let spec = found.and_then(|found| found.spec).ok_or("not yet")?;
        spec.cluster_ip.ok_or_else(|| "it has no address".to_owned())
    })
    .await;
    let address: SocketAddr = format!("{address}:6443").parse().unwrap();
    until("somebody answers", || async {
        TcpStream::connect(address).map(drop).map_err(|why| why.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_register_themselves_and_are_told_over_http() {
    let world = World::new();
    let nodes: Api<Node> = Api::all(world.cluster.client());
    until("both nodes are ready", || async {
        let all = nodes.list(&Default::default()).await.map_err(|why| why.to_string())?;
        let ready = all.items.iter().filter(|node| {
            let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
        });
        match ready.count() {
            2 => Ok(()),
            count => Err(format!("{count} are")),
        }
    })
    .await;
    let client = world.cluster.client();
    let ask = |method: &str, path: &str| {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .body(Vec::new())
            .unwrap();
        let client = client.clone();
        async move { client.request_text(request).await }
    };
    let states = |text: String| -> Vec<String> {
        let told: Value = serde_json::from_str(&text).unwrap();
        let nodes = told["nodes"].as_array().unwrap().iter();
        nodes
            .map(|node| format!("{} {}", node["name"], node["state"]))
            .collect()
    };
    ask("POST", "/usher/nodes/node-1/stop").await.unwrap();
    ask("POST", "/usher/nodes/node-2/cut").await.unwrap();
    let told = states(ask("GET", "/usher/nodes").await.unwrap());
    assert_eq!(told, ["\"node-1\" \"stopped\"", "\"node-2\" \"cut\""]);
    for node in ["node-1", "node-2"] {
        ask("POST", &format!("/usher/nodes/{node}/start")).await.unwrap();
    }
    let told = states(ask("GET", "/usher/nodes").await.unwrap());
    assert_eq!(told, ["\"node-1\" \"running\"", "\"node-2\" \"running\""]);
    let images: Value = serde_json::from_str(&ask("GET", "/usher/images").await.unwrap()).unwrap();
    assert_eq!(images["entries"][0]["match"], "busybox:*");
    for (method, path) in [
        ("POST", "/usher/nodes/node-9/stop"),
        ("POST", "/usher/nodes/node-1/explode"),
        ("GET", "/usher/nothing"),
    ] {
        assert!(ask(method, path).await.is_err(), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w5_a_service_with_ports_that_are_not_relayed_is_told_so_once() {
    let world = World::new();
    let services: Api<Service> = Api::default_namespaced(world.cluster.client());
    let make = |name: &str, more: Value| {
        let mut spec = json!({"selector": {"app": "server"}, "ports": [
            {"name": "tcp", "port": 5353}, {"name": "udp", "port": 5353, "protocol": "UDP"}]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let service = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        let services = services.clone();
        async move { services.create(&PostParams::default(), &service).await.unwrap() }
    };
    // Nothing is relayed for one without an address, and nothing is missing.
    make("each", json!({"clusterIP": "None"})).await;
    make("names", json!({})).await;
    let told = "ProtocolNotRelayed: nobody listens on 5353/UDP: only TCP is relayed to a Service's pods; reach them by their own addresses";
    assert_eq!(world.told("names", "ProtocolNotRelayed").await, [told]);
    // What changes elsewhere is no reason to say it again.
    make("later", json!({})).await;
    world.told("later", "ProtocolNotRelayed").await;
    assert_eq!(world.events("names").await, [told]);
    let events: Api<k8s_openapi::api::core::v1::Event> = Api::default_namespaced(world.cluster.client());
    let of = kube::api::ListParams::default().fields("involvedObject.name=names");
    let all = events.list(&of).await.unwrap().items;
    assert_eq!((all[0].count, all[0].type_.as_deref()), (Some(1), Some("Warning")));
    assert!(world.events("each").await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c9_nodes_renew_their_leases_as_often_as_the_grace_needs_it() {
    let grace = jiff::SignedDuration::from_secs(4);
    let world = World::with(|options| {
        options.node_grace = grace;
        options.nodes.extend(usher_embedded::NodeEntry::hollows(1));
    });
    let leases: Api<Lease> = Api::namespaced(world.cluster.client(), "kube-node-lease");
    let renewed = || async {
        let all = leases.list(&Default::default()).await.map_err(|why| why.to_string())?;
        let times = all
            .items
            .into_iter()
            .filter_map(|lease| Some((lease.metadata.name?, lease.spec?.renew_time?.0)));
        let times: BTreeMap<String, jiff::Timestamp> = times.collect();
        if times.len() == 3 {
            Ok(times)
        } else {
            Err(format!("{times:?}"))
        }
    };
    let first = until("all have leases", renewed).await;
    for (name, before) in first {
        let after = until("it is renewed", || async {
            let now = renewed().await?.get(&name).copied();
            now.filter(|now| *now > before).ok_or_else(|| format!("{name} {now:?}"))
        })
        .await;
        // The others' have been renewed more than once while the first was waited for.
        let last = until("it is renewed again", || async {
            let now = renewed().await?.get(&name).copied();
            now.filter(|now| *now > after).ok_or_else(|| format!("{name} {now:?}"))
        })
        .await;
        let pause = last.duration_since(after);
        assert!(
            pause < grace,
            "{name} was silent for {pause:?}, and would count as lost"
        );
    }
}
