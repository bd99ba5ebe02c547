//! Every kind's table against a recording of kube-apiserver 1.36.3 (`tests/print/tables-1.36.json`).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns;

const RECORDED: &str = include_str!("../../../tests/print/tables-1.36.json");

fn recorded() -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
    all.into_iter()
        .filter(|table| !table["group"].as_str().unwrap().ends_with("example.org"))
        .collect()
}

#[test]
fn section_4_every_recorded_kind_has_the_references_columns() {
    for table in recorded() {
        let (group, kind) = (table["group"].as_str().unwrap(), table["kind"].as_str().unwrap());
        let (columns, _) = columns(group, kind).unwrap_or_else(|| panic!("{group} {kind} has no columns"));
        let ours: Vec<Value> = columns
            .iter()
            .map(|c| json!({"name": c.name, "type": c.kind, "format": c.format, "priority": c.priority}))
            .collect();
        assert_eq!(Value::from(ours), table["columns"], "{group} {kind}");
        assert!(columns.iter().all(|column| !column.description.is_empty()));
    }
}

#[test]
fn section_4_every_recorded_object_has_the_references_cells() {
    let mut rows = 0;
    for table in recorded() {
        let (group, kind) = (table["group"].as_str().unwrap(), table["kind"].as_str().unwrap());
        let now: Timestamp = table["now"].as_str().unwrap().parse().unwrap();
        let (_, cells) = columns(group, kind).unwrap();
        for row in table["rows"].as_array().unwrap() {
            let ours = cells(&row["object"], now);
            assert_eq!(Value::from(ours), row["cells"], "{group} {kind}");
            rows += 1;
        }
    }
    assert!(rows > 70, "the recording has all kinds: {rows}");
}

#[test]
fn a_bookmark_has_as_many_cells_as_columns_for_every_kind() {
    for table in recorded() {
        let (group, kind) = (table["group"].as_str().unwrap(), table["kind"].as_str().unwrap());
        let (columns, cells) = columns(group, kind).unwrap();
        let bookmark = json!({"kind": kind, "metadata": {"resourceVersion": "7"}});
        assert_eq!(
            cells(&bookmark, Timestamp::UNIX_EPOCH).len(),
            columns.len(),
            "{group} {kind}"
        );
    }
}

#[test]
fn metrics_that_were_never_measured_are_unknown() {
    let (_, cells) = columns("autoscaling", "HorizontalPodAutoscaler").unwrap();
    let object = json!({"spec": {"metrics": [
        {"type": "ContainerResource", "containerResource": {"name": "cpu", "target": {}}},
        {"type": "Strange"},
    ]}});
    assert_eq!(
        cells(&object, Timestamp::UNIX_EPOCH)[2],
        "cpu: <unknown>/<auto>, <unknown type>"
    );
}
