use super::*;
use serde_json::{Value, json};

fn crd() -> Value {
    serde_json::to_value(ValkeyCluster::crd()).unwrap()
}

#[test]
fn everything_has_a_default() {
    let read: ValkeyClusterSpec = serde_json::from_value(json!({})).unwrap();
    assert_eq!(read, ValkeyClusterSpec::default());
    let back: ValkeyClusterSpec = serde_json::from_value(serde_json::to_value(&read).unwrap()).unwrap();
    assert_eq!(back, read);
}

#[test]
fn names_columns_and_scale_are_as_documented() {
    let crd = crd();
    let version = &crd["spec"]["versions"][0];
    let names = &crd["spec"]["names"];
    assert_eq!(crd["spec"]["group"], GROUP);
    assert_eq!(
        (&names["plural"], &names["shortNames"], &names["categories"]),
        (&json!("valkeyclusters"), &json!(["vc"]), &json!(["all", "valkey"]))
    );
    let columns: Vec<_> = version["additionalPrinterColumns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        columns,
        ["Phase", "Ready", "Masters", "Replicas", "Nodes", "Slots", "Age"]
    );
    assert_eq!(
        version["subresources"]["scale"],
        json!({
            "specReplicasPath": ".spec.masters",
            "statusReplicasPath": ".status.readyMasters",
            "labelSelectorPath": ".status.selector",
        })
    );
}

#[test]
fn the_api_server_fills_in_what_is_not_said() {
    let crd = crd();
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let default = |path: &[&str]| {
        let field = path.iter().fold(spec, |schema, name| &schema["properties"][name]);
        field["default"].clone()
    };
    assert_eq!(default(&["masters"]), json!(3));
    assert_eq!(default(&["replicasPerMaster"]), json!(1));
    assert_eq!(default(&["image", "tag"]), json!("9.1.0-alpine"));
    assert_eq!(default(&["persistence", "size"]), json!("10Gi"));
    assert_eq!(default(&["persistence", "aof", "fsync"]), json!("everysec"));
    assert_eq!(default(&["resources", "limits", "memory"]), json!("1Gi"));
    assert_eq!(default(&["metricsExporter", "port"]), json!(9121));
    assert_eq!(default(&["persistence", "enabled"]), json!(true));
    assert_eq!(default(&["auth", "secretRef", "key"]), json!("password"));
    for block in [
        "image",
        "persistence",
        "resources",
        "scheduling",
        "readService",
        "metricsExporter",
    ] {
        assert!(default(&[block]).is_object(), "{block}: {}", spec["properties"][block]);
    }
    for block in ["tls", "auth", "replication"] {
        assert!(default(&[block]).is_null(), "{block}");
    }
}

#[test]
fn phases_are_listed_once_each() {
    let listed: std::collections::BTreeSet<_> = Phase::ALL.into_iter().collect();
    assert_eq!(listed.len(), 19);
    assert!(Phase::ALL.is_sorted());
    assert_eq!(Phase::ALL.iter().filter(|phase| phase.is_scaling()).count(), 8);
}

#[test]
fn a_status_that_is_written_reads_the_same() {
    let id = |digit: char| std::iter::repeat_n(digit, 40).collect::<String>();
    let status = json!({
        "phase": "RebalancingSlots",
        "currentOperation": "scaling",
        "topology": {"masters": [{"nodeId": id('a'), "podName": "c-0", "shardId": id('1'), "slotRanges": ["0-5460"],
            "replicas": [{"nodeId": id('b'), "podName": "c-3", "replicationLag": 0, "linkUp": true}]}]},
        "scale": {"generation": 2, "masters": 4, "replicasPerMaster": 1, "drain": [id('1')], "leave": ["c-8"],
            "startedAt": "2026-01-01T00:00:00Z"},
        "slotMigration": {"method": "KeyByKey", "batchSlots": 32, "failures": 5, "moved": 1, "total": 4096},
        "roll": {"revision": "v1-0", "since": "2026-01-01T00:00:00Z", "surge": true},
        "failure": {"class": "Permanent", "reason": "SlotsLost", "generation": 2},
        "bindings": [{"pod": "c-0", "podUid": "u", "pvcUid": "v", "nodeId": id('a'), "shardId": id('1')}],
    });
    let read: ValkeyClusterStatus = serde_json::from_value(status).unwrap();
    let written = serde_json::to_value(&read).unwrap();
    assert_eq!(serde_json::from_value::<ValkeyClusterStatus>(written).unwrap(), read);
    assert_eq!(read.phase, Some(Phase::RebalancingSlots));
}
