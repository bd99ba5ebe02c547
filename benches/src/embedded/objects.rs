//! What is written: objects of a known size, as clients send them.

use serde_json::{Value, json};

/// A ConfigMap whose JSON is 2 KiB, as the spec's object is.
pub(crate) fn config_map(name: &str) -> Value {
    let line = "0123456789abcdef".repeat(7);
    let data: serde_json::Map<String, Value> = (0..15)
        .map(|n| (format!("setting-{n:02}"), line.as_str().into()))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app": "bench", "part": "writes"}},
        "data": data,
    })
}

/// A Pod whose JSON is about `bytes` long, of the shape that operators make: containers, environment, mounts.
pub(crate) fn pod(name: &str, containers: &[&str], bytes: usize) -> Value {
    let environment: Vec<Value> = (0..8)
        .map(|n| json!({"name": format!("SETTING_{n}"), "value": format!("value-{n}")}))
        .collect();
    let container = |name: &str| {
        json!({
            "name": name,
            "image": format!("registry.example/{name}:1.2.3"),
            "env": environment,
            "ports": [{"name": name, "containerPort": 8080}],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
            "volumeMounts": [{"name": "state", "mountPath": "/state"}],
        })
    };
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "bench", "part": "writes"}},
        "spec": {
            "containers": containers.iter().map(|name| container(name)).collect::<Vec<_>>(),
            "volumes": [{"name": "state", "emptyDir": {}}],
        },
    });
    let filler = bytes.saturating_sub(pod.to_string().len() + 30);
    if let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("annotations".to_owned(), json!({"bench": "x".repeat(filler)}));
    }
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_as_large_as_their_rows_say() {
        let map = config_map("map-00001").to_string().len();
        assert!((1_950..=2_150).contains(&map), "{map}");
        for bytes in [2_048, 4_096] {
            let pod = pod("pod-00001", &["main", "beside"], bytes).to_string().len();
            assert!(pod.abs_diff(bytes) < 100, "{pod} of {bytes}");
        }
    }
}
