//! What needs no server; the pipeline itself is tested against one (`tests/kind`, `tests/faults`).

use serde_json::json;

use super::*;

#[test]
fn a_status_that_says_nothing_is_no_status() {
    for nothing in [json!(null), json!({}), json!({"a": null, "b": [], "c": {"d": null}})] {
        assert!(is_empty(&nothing), "{nothing}");
    }
    for something in [
        json!({"a": 0}),
        json!({"a": ""}),
        json!({"a": false}),
        json!({"a": [null]}),
    ] {
        assert!(!is_empty(&something), "{something}");
    }
}
