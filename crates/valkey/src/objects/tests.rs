mod scripts;

use super::*;
use crate::records::secret::Digest;
use crate::records::{SECRETS, SecretRecord};
use crate::words::Ordinal;
use k8s_openapi::ByteString;
use proptest::prelude::*;
use std::collections::BTreeSet;
use usher_operator::record::read;

/// A cluster of this spec, and with these annotations.
fn cluster_with(spec: Value, annotations: Value) -> ClusterRecord {
    let metadata = json!({
        "namespace": "ns", "name": "cache", "uid": "0e9f2d31-5c70-4fb1-a2ad-5f0e2f3b6f10", "resourceVersion": "1",
        "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations,
    });
    let object = json!({"apiVersion": "x/v1", "kind": "ValkeyCluster", "metadata": metadata, "spec": spec});
    read(&serde_json::from_value(object).unwrap()).unwrap()
}

fn cluster(spec: Value) -> ClusterRecord {
    cluster_with(spec, json!({}))
}

fn golden(name: &str, value: &Value) {
    insta::with_settings!({prepend_module_to_snapshot => false, snapshot_path => "tests/golden", omit_expression => true}, {
        insta::assert_snapshot!(name, serde_json::to_string_pretty(value).unwrap());
    });
}

fn everything() -> ClusterRecord {
    cluster(json!({
        "masters": 4, "replicasPerMaster": 2,
        "image": {"tag": "9.1.2", "pullPolicy": "Always", "pullSecrets": ["registry"]},
        "auth": {"secretRef": {"name": "users-secret"}},
        "persistence": {"storageClassName": "fast", "size": "20Gi"},
        "scheduling": {"topologyKey": "zone", "nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "x", "operator": "Exists"}]},
        "labels": {"team": "a", "app.kubernetes.io/name": "nope"}, "annotations": {"note": "b"},
        "readService": {"enabled": true, "serviceType": "NodePort", "annotations": {"lb": "c"}},
        "metricsExporter": {"enabled": true, "extraEnv": {"REDIS_ADDR": "nope", "MORE": "yes"}},
    }))
}

#[test]
fn the_objects_of_a_plain_cluster() {
    let cluster = cluster(json!({}));
    let mut all: Vec<Value> = plain(&cluster).into_iter().map(|(_, object)| object).collect();
    all.push(set::set(&cluster, cluster.size()));
    golden("plain", &all.into());
}

#[test]
fn the_objects_of_a_cluster_with_everything() {
    let cluster = everything();
    let mut all: Vec<Value> = plain(&cluster).into_iter().map(|(_, object)| object).collect();
    all.push(set::set(&cluster, 12));
    golden("everything", &all.into());
}

#[test]
fn the_spec_cannot_override_labels_of_ours() {
    for (_, object) in plain(&everything()) {
        assert_eq!(object["metadata"]["labels"]["app.kubernetes.io/name"], "cache");
        assert_eq!(object["metadata"]["labels"]["team"], "a");
    }
}

#[test]
fn configuration_knows_what_each_version_knows() {
    let of = |tag: &str| conf::render(&cluster(json!({"image": {"tag": tag}})));
    insta::assert_snapshot!(of("9.1.0-alpine"), @"
    appendfsync everysec
    appendonly yes
    cluster-allow-reads-when-down no
    cluster-allow-replica-migration no
    cluster-config-file nodes.conf
    cluster-enabled yes
    cluster-node-timeout 5000
    cluster-replica-validity-factor 10
    cluster-require-full-coverage no
    cluster-slot-migration-log-max-len 1000
    min-replicas-max-lag 10
    min-replicas-to-write 0
    port 6379
    protected-mode no
    repl-diskless-sync yes
    repl-diskless-sync-delay 0
    save 900 1 300 10 60 10000
    shutdown-on-sigterm failover
    slot-migration-max-failover-repl-bytes 1048576
    ");
    let newer = [
        "shutdown-on-sigterm failover",
        "slot-migration-max-failover-repl-bytes",
        "cluster-slot-migration-log-max-len",
    ];
    for word in newer {
        assert!(of("9.0.0").contains(word), "{word}");
        for tag in ["8.1.3", "7.2", "latest"] {
            assert!(!of(tag).contains(word), "{word} in {tag}");
        }
    }
}

#[test]
fn configuration_follows_persistence_and_replication() {
    let lines = |spec: Value| -> BTreeMap<String, String> {
        let conf = conf::render(&cluster(spec));
        let pairs = conf.lines().map(|line| line.split_once(' ').unwrap());
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    };
    let usual = lines(json!({}));
    assert_eq!(
        (usual["appendonly"].as_str(), usual["save"].as_str()),
        ("yes", "900 1 300 10 60 10000")
    );
    assert_eq!(
        (
            usual["repl-diskless-sync"].as_str(),
            usual["repl-diskless-sync-delay"].as_str()
        ),
        ("yes", "0")
    );
    assert!(!usual.contains_key("rdb-del-sync-files"));
    let none = lines(json!({"persistence": {"enabled": false}}));
    assert_eq!((none["appendonly"].as_str(), none["save"].as_str()), ("no", "\"\""));
    assert_eq!(none["rdb-del-sync-files"], "yes");
    let said = lines(
        json!({"persistence": {"aof": {"fsync": "always"}, "rdb": {"saveRules": ["60 1"]}},
        "replication": {"disklessSyncDelay": 3, "minReplicasToWrite": 2}, "config": {"MaxMemory": "1gb", "cluster-node-timeout": "9000"}}),
    );
    assert_eq!(
        (said["appendfsync"].as_str(), said["save"].as_str()),
        ("always", "60 1")
    );
    assert_eq!(
        (
            said["repl-diskless-sync"].as_str(),
            said["repl-diskless-sync-delay"].as_str()
        ),
        ("no", "3")
    );
    assert_eq!(said["min-replicas-to-write"], "2");
    assert_eq!(
        (said["maxmemory"].as_str(), said["cluster-node-timeout"].as_str()),
        ("1gb", "9000")
    );
}

#[test]
fn r37_an_only_replica_may_restart_without_refused_writes() {
    let wanted = |replicas: i32, said: Value| {
        let replication = if said.is_null() {
            Value::Null
        } else {
            json!({"minReplicasToWrite": said})
        };
        min_replicas(&cluster(
            json!({"replicasPerMaster": replicas, "replication": replication}),
        ))
    };
    let unset = [0, 1, 2, 5].map(|replicas| wanted(replicas, Value::Null));
    assert_eq!(unset, [0, 0, 1, 1]);
    assert_eq!((wanted(2, json!(0)), wanted(1, json!(1))), (0, 1));
}

#[test]
fn keys_that_usher_must_know_are_told_apart() {
    for (key, instead) in [
        ("cluster-enabled", ""),
        ("Requirepass", "spec.auth"),
        ("cluster-announce-hostname", ""),
        ("tls-port", "spec.tls"),
        ("appendonly", "spec.persistence.aof"),
        ("min-replicas-to-write", "spec.replication"),
        ("user", "spec.auth"),
    ] {
        assert_eq!(conf::fixed(key), Some(instead), "{key}");
    }
    for key in [
        "maxmemory",
        "cluster-node-timeout",
        "userx",
        "cluster-require-full-coverage",
        "port-x",
    ] {
        assert_eq!(conf::fixed(key), None, "{key}");
    }
    // Whatever is rendered as fixed is refused from elsewhere.
    let own = conf::render(&cluster(json!({})));
    let free = own
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|key| conf::fixed(key).is_none());
    insta::assert_snapshot!(free.collect::<Vec<_>>().join("\n"), @"
    cluster-allow-reads-when-down
    cluster-node-timeout
    cluster-replica-validity-factor
    cluster-require-full-coverage
    cluster-slot-migration-log-max-len
    shutdown-on-sigterm
    slot-migration-max-failover-repl-bytes
    ");
}

#[test]
fn passwords_are_one_word_whatever_they_are() {
    let file = conf::render_auth(&cluster(json!({})), b"a \"b\"\\\n\xff");
    assert_eq!(
        file,
        "requirepass \"a \\\"b\\\"\\\\\\x0a\\xff\"\nprimaryauth \"a \\\"b\\\"\\\\\\x0a\\xff\"\n"
    );
    let old = conf::render_auth(&cluster(json!({"image": {"tag": "7.2.5"}})), b"x");
    assert_eq!(old, "requirepass \"x\"\nmasterauth \"x\"\n");
}

#[test]
fn r34_what_shapes_a_pod_is_its_revision_and_nothing_else() {
    let usual = revision(&cluster(json!({})));
    let same = [
        json!({"masters": 5, "replicasPerMaster": 0}),
        json!({"labels": {"a": "b"}, "annotations": {"c": "d"}, "readService": {"enabled": true}}),
        json!({"image": {"pullPolicy": "Always", "pullSecrets": ["x"], "allowDowngrade": true}}),
    ];
    for spec in same {
        assert_eq!(revision(&cluster(spec.clone())), usual, "{spec}");
    }
    let other = [
        json!({"image": {"tag": "9.1.2"}}),
        json!({"image": {"repository": "mine/valkey"}}),
        json!({"resources": {"limits": {"memory": "2Gi"}}}),
        json!({"config": {"maxmemory": "1gb"}}),
        json!({"replication": {"disklessSync": true}}),
        json!({"persistence": {"aof": {"enabled": false}}}),
        json!({"persistence": {"rdb": {"enabled": false}}}),
        json!({"scheduling": {"spreadMasters": false}}),
        json!({"metricsExporter": {"enabled": true}}),
    ];
    let mut seen = BTreeSet::from([usual.clone()]);
    for spec in other {
        assert!(seen.insert(revision(&cluster(spec.clone()))), "{spec}");
    }
    assert!(seen.insert(revision(&cluster_with(json!({}), json!({"usher.dev/roll": "1"})))));
    // Pods outlive the binary that made them: this may not change by itself.
    assert_eq!(usual, "v1-5e13179bb3f8e342");
}

#[test]
fn r9_a_set_is_made_for_all_volumes_that_were_kept() {
    let volumes: BTreeMap<_, _> = [0, 3, 8].map(|n| (Ordinal(n), "u".into())).into();
    assert_eq!(set::first_size(&cluster(json!({})), &volumes), 9);
    assert_eq!(set::first_size(&cluster(json!({})), &BTreeMap::new()), 6);
    assert_eq!(
        set::first_size(&cluster(json!({"persistence": {"enabled": false}})), &volumes),
        6
    );
    assert_eq!(set::first_size(&cluster(json!({"masters": 6})), &volumes), 12);
}

fn live(rendered: &Value) -> Value {
    json!({"metadata": rendered["metadata"], "spec": rendered["spec"]})
}

#[test]
fn an_object_is_as_rendered_with_what_servers_add_and_not_with_less() {
    let cluster = everything();
    for (_, rendered) in plain(&cluster).into_iter().chain([(SECRETS, set::set(&cluster, 12))]) {
        let mut live = live(&rendered);
        assert!(settled(&rendered, &live));
        live["spec"]["added"] = json!({"by": "the server"});
        live["metadata"]["labels"]["added"] = "x".into();
        assert!(settled(&rendered, &live));
        let mut unlabelled = live.clone();
        unlabelled["metadata"]["labels"].as_object_mut().unwrap().remove("team");
        assert!(!settled(&rendered, &unlabelled));
        let mut unsigned = live.clone();
        unsigned["metadata"]["annotations"][annotations::APPLIED] = "v1-0".into();
        assert!(!settled(&rendered, &unsigned));
    }
    let rendered = set::set(&cluster, 12);
    let mut found = live(&rendered);
    found["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "1000m".into();
    found["spec"]["template"]["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .insert(1, json!({"name": "injected"}));
    assert!(settled(&rendered, &found), "the same quantity, and another's container");
    found["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "2".into();
    assert!(!settled(&rendered, &found));
}

#[test]
fn a_set_of_another_size_is_signed_alike() {
    let cluster = cluster(json!({}));
    let signature = |size| set::set(&cluster, size)["metadata"]["annotations"][annotations::APPLIED].clone();
    assert_eq!(signature(6), signature(9));
}

fn record(rendered: &Value) -> SecretRecord {
    let mut object = rendered.clone();
    for (field, value) in [
        ("uid", "s"),
        ("resourceVersion", "1"),
        ("creationTimestamp", "2026-01-01T00:00:00Z"),
    ] {
        object["metadata"][field] = value.into();
    }
    read(&serde_json::from_value(object).unwrap()).unwrap()
}

#[test]
fn the_secret_keeps_what_pods_of_older_revisions_have() {
    let with_auth = json!({"auth": {"secretRef": {"name": "s"}}});
    let old = cluster(with_auth.clone());
    let first = secret::secret(&old, &secret::Data::new(), &BTreeSet::new(), Some(b"geheim"));
    assert!(secret::is_settled(&old, &record(&first)));
    let held = |rendered: &Value| -> secret::Data { serde_json::from_value(rendered["data"].clone()).unwrap() };
    let mut spec = with_auth;
    spec["config"] = json!({"maxmemory": "1gb"});
    let new = cluster(spec);
    assert!(!secret::is_settled(&new, &record(&first)));
    let in_use = BTreeSet::from([revision(&old).into(), "v1-gone".into()]);
    let during = secret::secret(&new, &held(&first), &in_use, Some(b"geheim"));
    assert!(secret::is_settled(&new, &record(&during)));
    let key = secret::conf_key(&revision(&old));
    assert_eq!(held(&during)[&key], held(&first)[&key], "as it was");
    assert!(!held(&during).contains_key("v1-gone.conf"));
    let after = secret::secret(
        &new,
        &held(&during),
        &BTreeSet::from([revision(&new).into()]),
        Some(b"geheim"),
    );
    assert!(!held(&after).contains_key(&key), "nobody has it any more");
}

#[test]
fn nothing_that_plans_see_of_the_secret_has_the_password_in_it() {
    let cluster = cluster(json!({"auth": {"secretRef": {"name": "s"}}}));
    let one = secret::secret(&cluster, &secret::Data::new(), &BTreeSet::new(), Some(b"geheim"));
    let two = secret::secret(&cluster, &secret::Data::new(), &BTreeSet::new(), Some(b"anders"));
    assert_eq!(one["metadata"], two["metadata"]);
    assert_ne!(one["data"], two["data"]);
    assert!(
        record(&one)
            .digest(secret::PASSWORD)
            .unwrap()
            .same(Digest::of(b"geheim"))
    );
    let mut edited = one.clone();
    edited["data"][secret::conf_key(&revision(&cluster))] = json!(ByteString(b"port 1\n".to_vec()));
    assert!(!secret::is_settled(&cluster, &record(&edited)));
    edited["data"].as_object_mut().unwrap().remove(secret::AUTH);
    assert!(!secret::is_settled(&cluster, &record(&edited)));
}

proptest! {
    #[test]
    fn quantities_mean_what_the_api_server_makes_of_them(cores in 0u32..100, thousandths in 0u32..1000) {
        let rendered = |cpu: String| json!({"metadata": {}, "spec": {"cpu": cpu}});
        let exact = cores * 1000 + thousandths;
        let written = rendered(format!("{cores}.{thousandths:03}"));
        let (same, more) = (rendered(format!("{exact}m")), rendered(format!("{}m", exact + 1)));
        prop_assert!(settled(&written, &same));
        prop_assert!(!settled(&written, &more));
    }

    #[test]
    fn texts_that_are_no_quantities_are_the_same_only_if_equal(one in "[a-z0-9.]{0,6}", other in "[a-z]{1,6}") {
        let of = |text: &str| json!({"metadata": {}, "spec": {"x": text}});
        prop_assert_eq!(settled(&of(&one), &of(&other)), one == other);
    }
}

#[test]
fn memory_is_the_same_in_any_unit() {
    let of = |text: &str| json!({"metadata": {}, "spec": {"x": text}});
    assert!(settled(&of("1024Mi"), &of("1Gi")));
    assert!(settled(&of("1000000"), &of("1M")));
    assert!(!settled(&of("1Gi"), &of("1G")));
}
