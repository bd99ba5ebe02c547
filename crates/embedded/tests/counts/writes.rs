//! Commits and revisions.

use futures::executor::block_on;
use futures::future::join_all;
use http::Method;
use serde_json::json;

use super::asks::{CONFIG_MAPS, config_map, create, in_memory, on_disk, send};

#[test]
fn s4_sixteen_writers_share_a_commit_by_at_least_four() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = on_disk(folder.path());
    let before = cluster.store_stats();
    let writers = (0..16).map(|writer| {
        let cluster = cluster.clone();
        async move {
            for n in 0..20 {
                create(&cluster, &config_map(&format!("map-{writer}-{n}"), 2_000)).await;
            }
        }
    });
    block_on(join_all(writers));
    let after = cluster.store_stats();
    let (writes, commits) = (
        after.writes - before.writes,
        after.durable_commits - before.durable_commits,
    );
    assert_eq!(writes, 320);
    assert!(
        commits > 0 && commits * 4 <= writes,
        "{commits} commits for {writes} writes"
    );
}

#[test]
fn s3_an_apply_that_changes_nothing_writes_no_revision() {
    let cluster = in_memory();
    let applied = [
        (
            format!("{CONFIG_MAPS}/map"),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map", "labels": {"a": "b"}},
                "data": {"text": "x"}}),
        ),
        (
            "/api/v1/namespaces/default/pods/pod".to_owned(),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"},
                "spec": {"containers": [{"name": "main", "image": "a", "ports": [{"containerPort": 80}],
                    "resources": {"requests": {"memory": "1024Mi"}}}]}}),
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments/deployment".to_owned(),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "deployment"},
                "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "main", "image": "a"}]}}}}),
        ),
    ];
    for (path, object) in applied {
        let path = format!("{path}?fieldManager=test");
        let apply = || {
            let apply = [("content-type", "application/apply-patch+yaml")];
            block_on(send(&cluster, Method::PATCH, &path, &apply, object.to_string()));
        };
        apply();
        let before = cluster.store_stats().writes;
        (0..20).for_each(|_| apply());
        assert_eq!(cluster.store_stats().writes - before, 0, "{path}");
    }
}
