//! E2: in memory, everything but a watch is answered at the first poll. `World::raw` polls once and no more.

use serde_json::{Value, json};

use crate::world::World;

#[test]
fn e2_every_verb_is_answered_at_its_first_poll() {
    const JSON: &str = "application/json";
    let mut world = World::new();
    let maps = "/api/v1/namespaces/default/configmaps";
    let one = &format!("{maps}/a");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let none: Option<&Value> = None;
    let table: Vec<(&str, String, &str, Option<Value>)> = vec![
        ("POST", maps.into(), JSON, Some(map.clone())),
        ("POST", maps.into(), JSON, Some(map.clone())),
        ("GET", one.into(), JSON, none.cloned()),
        ("GET", maps.into(), JSON, none.cloned()),
        ("GET", format!("{maps}?limit=1"), JSON, none.cloned()),
        ("PUT", one.into(), JSON, Some(map.clone())),
        (
            "PATCH",
            one.into(),
            "application/merge-patch+json",
            Some(json!({"data": {"a": "b"}})),
        ),
        (
            "PATCH",
            one.into(),
            "application/strategic-merge-patch+json",
            Some(json!({"data": {"a": "c"}})),
        ),
        (
            "PATCH",
            one.into(),
            "application/json-patch+json",
            Some(json!([{"op": "add", "path": "/data/x", "value": "y"}])),
        ),
        (
            "PATCH",
            format!("{one}?fieldManager=m"),
            "application/apply-patch+yaml",
            Some(map.clone()),
        ),
        ("POST", pods.into(), JSON, Some(pod)),
        (
            "PATCH",
            format!("{pods}/p/status"),
            "application/merge-patch+json",
            Some(json!({"status": {"phase": "Running"}})),
        ),
        (
            "POST",
            format!("{pods}/p/binding"),
            JSON,
            Some(json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n"}})),
        ),
        (
            "POST",
            format!("{pods}/p/eviction"),
            JSON,
            Some(json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}})),
        ),
        ("POST", deployments.into(), JSON, Some(deployment)),
        ("GET", format!("{deployments}/d/scale"), JSON, none.cloned()),
        (
            "PATCH",
            format!("{deployments}/d/scale"),
            "application/merge-patch+json",
            Some(json!({"spec": {"replicas": 3}})),
        ),
        ("DELETE", one.into(), JSON, none.cloned()),
        ("DELETE", one.into(), JSON, none.cloned()),
        ("DELETE", maps.into(), JSON, none.cloned()),
        ("GET", "/api".into(), JSON, none.cloned()),
        ("GET", "/apis".into(), JSON, none.cloned()),
        ("GET", "/api/v1".into(), JSON, none.cloned()),
        ("GET", "/openapi/v3".into(), JSON, none.cloned()),
        ("GET", "/version".into(), JSON, none.cloned()),
        ("GET", "/readyz".into(), JSON, none.cloned()),
        ("GET", "/no/such/path".into(), JSON, none.cloned()),
    ];
    let mut good = 0;
    for (method, path, content_type, body) in &table {
        let (code, answer) = world.raw(method, path, content_type, body.as_ref());
        assert!(
            code < 500,
            "{method} {path}: {code} {}",
            String::from_utf8_lossy(&answer)
        );
        good += usize::from(code < 300);
    }
    // All but a create and a delete that come twice, and a path that is not there.
    assert_eq!(good, table.len() - 3);
    world.settle();
}
