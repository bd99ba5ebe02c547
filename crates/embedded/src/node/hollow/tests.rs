//! Where a pod is, by its status.

use serde_json::json;

use super::*;

fn pod(status: serde_json::Value) -> Pod {
    serde_json::from_value(
        json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": []}, "status": status}),
    )
    .unwrap()
}

#[test]
fn a_pod_s_moment_is_read_off_its_status() {
    let start = "2026-01-01T00:00:00Z";
    let container = |state: serde_json::Value| json!([{"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 2, "state": state}]);
    let ready = |status: &str| json!([{"type": "Ready", "status": status}]);
    for (status, expected) in [
        (json!({"phase": "Pending"}), Some(Moment::Bound)),
        (
            json!({"phase": "Running", "startTime": start, "conditions": ready("True"), "containerStatuses": container(json!({"running": {}}))}),
            Some(Moment::Ready),
        ),
        (
            json!({"phase": "Running", "startTime": start, "conditions": ready("False"), "containerStatuses": container(json!({"running": {}}))}),
            Some(Moment::Unready),
        ),
        (
            json!({"phase": "Running", "startTime": start, "containerStatuses": container(json!({"waiting": {}}))}),
            Some(Moment::BackOff),
        ),
        (json!({"phase": "Failed", "startTime": start}), None),
    ] {
        assert_eq!(moment(&pod(status.clone())), expected, "{status}");
    }
    let mut going = pod(json!({"phase": "Succeeded"}));
    going.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
        Timestamp::UNIX_EPOCH,
    ));
    assert_eq!(moment(&going), Some(Moment::Deleting));
}

#[test]
fn n10_the_first_restart_comes_at_once_the_next_after_ten_seconds_and_none_after_more_than_five_minutes() {
    let waits: Vec<i64> = (0..9).map(|restarts| back_off(restarts).as_secs()).collect();
    assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300, 300]);
}
