//! The pod: a server, and on request an exporter beside it.

use serde_json::{Value, json};

use super::{BUS_PORT, CLIENT_PORT, own_labels, revision, script, secret, selector};
use crate::api::{Exporter, PullPolicy, annotations};
use crate::json::put;
use crate::records::ClusterRecord;

/// The user that servers run as, and the group that volumes belong to: what official images have.
const USER: i64 = 999;
/// How long a server may take to stop: a snapshot of its data may have to be written.
const GRACE_SECONDS: i64 = 60;

/// Where things are in the container.
const DATA: &str = "/data";
const CONF: &str = "/etc/valkey";

/// The template of the set's pods.
pub fn template(cluster: &ClusterRecord) -> Value {
    let mut noted = cluster.spec.annotations.clone();
    noted.insert(annotations::REVISION.into(), revision(cluster));
    json!({
        "metadata": {"labels": own_labels(cluster), "annotations": noted},
        "spec": spec(cluster),
    })
}

fn spec(cluster: &ClusterRecord) -> Value {
    let scheduling = &cluster.spec.scheduling;
    let mut containers = vec![server(cluster)];
    if cluster.spec.metrics_exporter.enabled {
        containers.push(exporter(cluster, &cluster.spec.metrics_exporter));
    }
    let mut volumes = vec![json!({"name": "config", "secret": {
        "secretName": cluster.config_secret(),
        "defaultMode": 0o440,
        "items": config_items(cluster),
    }})];
    if !cluster.spec.persistence.enabled {
        volumes.push(json!({"name": "data", "emptyDir": {}}));
    }
    let mut spec = json!({
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER, "runAsNonRoot": true,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": containers,
        "volumes": volumes,
    });
    let mut add = |field: &str, value: Value, wanted: bool| {
        if wanted {
            put(&mut spec, &[field], value);
        }
    };
    let secrets: Vec<_> = cluster
        .spec
        .image
        .pull_secrets
        .iter()
        .map(|name| json!({"name": name}))
        .collect();
    add(
        "imagePullSecrets",
        secrets.into(),
        !cluster.spec.image.pull_secrets.is_empty(),
    );
    add(
        "nodeSelector",
        json!(scheduling.node_selector),
        !scheduling.node_selector.is_empty(),
    );
    add(
        "tolerations",
        json!(scheduling.tolerations),
        !scheduling.tolerations.is_empty(),
    );
    let apart = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 100,
        "podAffinityTerm": {
            "topologyKey": scheduling.topology_key,
            "labelSelector": {"matchLabels": selector(cluster)},
        },
    }]}});
    add("affinity", apart, scheduling.spread_masters);
    spec
}

/// Each revision has a file of its own: a pod that has not been restarted yet keeps the one it was made with.
fn config_items(cluster: &ClusterRecord) -> Vec<Value> {
    let mut items = vec![json!({"key": secret::conf_key(&revision(cluster)), "path": "valkey.conf"})];
    if cluster.spec.auth.is_some() {
        items.push(json!({"key": secret::AUTH, "path": secret::AUTH}));
    }
    items
}

fn server(cluster: &ClusterRecord) -> Value {
    let image = &cluster.spec.image;
    let resources = &cluster.spec.resources;
    let mut arguments = vec![
        DATA.to_owned(),
        format!("{CONF}/valkey.conf"),
        "--dir".into(),
        DATA.into(),
    ];
    if cluster.spec.auth.is_some() {
        arguments.extend(["--include".into(), format!("{CONF}/{}", secret::AUTH)]);
    }
    json!({
        "name": "valkey",
        "image": format!("{}:{}", image.repository, image.tag),
        "imagePullPolicy": pull_policy(image.pull_policy),
        "command": ["sh", "-c", script::start(cluster), "valkey"],
        "args": arguments,
        "ports": [
            {"name": "client", "containerPort": CLIENT_PORT, "protocol": "TCP"},
            {"name": "cluster-bus", "containerPort": BUS_PORT, "protocol": "TCP"},
        ],
        "env": environment(cluster),
        "resources": {
            "requests": {"cpu": resources.requests.cpu, "memory": resources.requests.memory},
            "limits": {"cpu": resources.limits.cpu, "memory": resources.limits.memory},
        },
        "securityContext": confined(),
        "startupProbe": probe(tcp(), 60, 5),
        "livenessProbe": probe(tcp(), 3, 10),
        "readinessProbe": probe(sh(script::READY), 3, 5),
        "lifecycle": {"preStop": sh(script::STOP)},
        "volumeMounts": [
            {"name": "data", "mountPath": DATA},
            {"name": "config", "mountPath": CONF, "readOnly": true},
        ],
    })
}

fn environment(cluster: &ClusterRecord) -> Vec<Value> {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let mut environment = vec![
        field("POD_NAME", "metadata.name"),
        field("POD_IP", "status.podIP"),
        field("NAMESPACE", "metadata.namespace"),
        json!({"name": "CLUSTER_NAME", "value": cluster.name()}),
        json!({"name": "HEADLESS_SERVICE", "value": cluster.headless_service()}),
    ];
    environment.extend(password(cluster, "VALKEY_PASSWORD"));
    environment
}

fn password(cluster: &ClusterRecord, variable: &str) -> Option<Value> {
    let key = json!({"name": cluster.config_secret(), "key": secret::PASSWORD});
    let variable = json!({"name": variable, "valueFrom": {"secretKeyRef": key}});
    cluster.spec.auth.as_ref().map(|_| variable)
}

fn exporter(cluster: &ClusterRecord, exporter: &Exporter) -> Value {
    let resources = &exporter.resources;
    let mut environment = vec![
        json!({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}),
        json!({"name": "REDIS_ADDR", "value": format!("redis://$(POD_IP):{CLIENT_PORT}")}),
    ];
    environment.extend(password(cluster, "REDIS_PASSWORD"));
    let own = ["POD_IP", "REDIS_ADDR", "REDIS_PASSWORD"];
    let more = exporter
        .extra_env
        .iter()
        .filter(|(name, _)| !own.contains(&name.as_str()));
    environment.extend(more.map(|(name, value)| json!({"name": name, "value": value})));
    json!({
        "name": "metrics-exporter",
        "image": exporter.image,
        "args": [format!("--web.listen-address=:{}", exporter.port)],
        "ports": [{"name": "metrics", "containerPort": exporter.port, "protocol": "TCP"}],
        "env": environment,
        "resources": {
            "requests": {"cpu": resources.cpu_request, "memory": resources.memory_request},
            "limits": {"cpu": resources.cpu_limit, "memory": resources.memory_limit},
        },
        "securityContext": confined(),
    })
}

fn confined() -> Value {
    json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
}

/// LOADING is alive: a port that is open is enough.
fn tcp() -> Value {
    json!({"tcpSocket": {"port": CLIENT_PORT}})
}

fn sh(script: &str) -> Value {
    json!({"exec": {"command": ["sh", "-c", script]}})
}

fn probe(mut probe: Value, failures: i64, every_seconds: i64) -> Value {
    put(&mut probe, &["failureThreshold"], failures);
    put(&mut probe, &["periodSeconds"], every_seconds);
    put(&mut probe, &["timeoutSeconds"], 5);
    probe
}

fn pull_policy(policy: PullPolicy) -> &'static str {
    match policy {
        PullPolicy::Always => "Always",
        PullPolicy::IfNotPresent => "IfNotPresent",
        PullPolicy::Never => "Never",
    }
}
