//! Patches that are not applies (O16, O17, S8): what the reference's libraries make of random patches, replayed, and
//! the answers that have texts of their own.
//!
//! `recorded/patches.json` has strategic merges (kubectl's three-way patches among them), JSON patches and merge
//! patches; `USHER_FIELDS_PATCHES=file` replays another file.

use serde_json::{Value, json};
use usher_embedded::fault::Fault;
use usher_embedded::fields::{json_patch, merge_patch, strategic_merge};

use crate::openapi;
use crate::recorded::file;

#[test]
fn o16_o17_patches_end_as_in_the_reference() {
    let recorded = match std::env::var_os("USHER_FIELDS_PATCHES") {
        Some(path) => serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap(),
        None => file("patches.json"),
    };
    let schema = openapi::schema(&recorded["schema"]);
    let mut failures = 0;
    for (number, patch) in recorded["patches"].as_array().unwrap().iter().enumerate() {
        let (live, body) = (&patch["live"], &patch["patch"]);
        let got = match patch["op"].as_str().unwrap() {
            "json" => json_patch(live, body),
            "merge" => merge_patch(live, body),
            _ => strategic_merge(live, body, &schema),
        };
        let same = match (&got, patch.get("error")) {
            (Ok(got), None) => *got == patch["out"],
            // What a client is told about a JSON patch does not say which operation failed.
            (Err(fault), Some(_)) if patch["op"] == "json" => fault.code == 422,
            (Err(fault), Some(error)) => {
                fault.message == error.as_str().unwrap() || fault.message.starts_with("the server rejected our request")
            }
            _ => false,
        };
        if !same {
            failures += 1;
            eprintln!("patch {number}\n{patch}");
            match got {
                Ok(got) => eprintln!("got {got}\n"),
                Err(fault) => eprintln!("got {fault:?}\n"),
            }
        }
    }
    assert_eq!(failures, 0);
}

fn refused(result: Result<Value, Fault>) -> (u16, String) {
    let fault = result.unwrap_err();
    (fault.code, fault.message)
}

/// A configmap with an owner, and its schema.
fn owned() -> (Value, usher_embedded::schema::Schema) {
    let schema = openapi::schema(&file("server.json")["schemas"]["ConfigMap"]);
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"});
    let object =
        json!({"metadata": {"name": "x", "ownerReferences": [owner], "finalizers": ["a"]}, "data": {"q": "1"}});
    (object, schema)
}

#[test]
fn o17_a_strategic_merge_patch_that_cannot_be_is_refused_with_the_references_text() {
    let (live, schema) = owned();
    let cases = [
        (
            json!([1]),
            400,
            "json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            json!({"$patch": "merge"}),
            500,
            "unknown patch type: merge in map: map[$patch:merge]",
        ),
        (
            json!({"$patch": 1}),
            500,
            "unknown patch type: %!s(int64=1) in map: map[$patch:1]",
        ),
        (
            json!({"data": {"$retainKeys": ["q"], "w": "1"}}),
            400,
            "invalid patch format of retainKeys",
        ),
        (
            json!({"data": {"$retainKeys": "q"}}),
            400,
            "invalid patch format of retainKeys",
        ),
        (
            json!({"metadata": {"$deleteFromPrimitiveList": ["x"]}}),
            400,
            "invalid patch format of primitive list",
        ),
        (
            json!({"metadata": {"$setElementOrder": ["x"]}}),
            400,
            "invalid patch format of setElementOrder list",
        ),
        (
            json!({"metadata": {"$setElementOrder/finalizers": "x"}}),
            500,
            "expected a []interface {}, but received a string",
        ),
        (
            json!({"metadata": {"$setElementOrder/nope": ["x"]}}),
            500,
            "unable to find api field in struct ObjectMeta for the json field \"nope\"",
        ),
        (
            json!({"metadata": {"$setElementOrder/finalizers": ["x"], "finalizers": ["y"]}}),
            500,
            "The order in patch list:\n[y]\n doesn't match $setElementOrder list:\n[x]\n",
        ),
        (
            json!({"metadata": {"ownerReferences": [{"name": "x"}]}}),
            500,
            "map: map[name:x] does not contain declared merge key: uid",
        ),
        (
            json!({"metadata": {"ownerReferences": [{"name": "x", "$patch": "delete"}]}}),
            500,
            "map: map[$patch:delete name:x] does not contain declared merge key: uid",
        ),
        (
            json!({"metadata": {"ownerReferences": [{"uid": "x", "$patch": "merge"}]}}),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"metadata": {"finalizers": [["x"]]}}),
            500,
            "list element types are not identical: [[a] [[x]]]",
        ),
    ];
    for (patch, code, message) in cases {
        assert_eq!(
            refused(strategic_merge(&live, &patch, &schema)),
            (code, message.to_owned()),
            "{patch}"
        );
    }
    assert_eq!(strategic_merge(&live, &Value::Null, &schema).unwrap(), live);
    let lists = json!({"metadata": {"finalizers": [["x"]]}});
    let (code, message) = refused(strategic_merge(
        &json!({"metadata": {"finalizers": [["a"]]}}),
        &lists,
        &schema,
    ));
    assert_eq!(
        (code, message.as_str()),
        (422, "the server rejected our request due to an error in our request")
    );
}

#[test]
fn o17_new_items_stand_where_deleted_ones_stood() {
    // kubectl sends such a patch when one container is exchanged for another.
    let schema = openapi::schema(&file("server.json")["schemas"]["Deployment"]);
    let with = |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
    let patch = json!({"spec": {"template": {"spec": {
        "$setElementOrder/containers": [{"name": "new"}],
        "containers": [{"name": "new", "image": "i"}, {"name": "old", "$patch": "delete"}],
    }}}});
    let merged = strategic_merge(&with(json!([{"name": "injected"}, {"name": "old"}])), &patch, &schema).unwrap();
    assert_eq!(
        merged,
        with(json!([{"name": "injected"}, {"name": "new", "image": "i"}]))
    );
    // Where nothing was deleted, what the patch brings comes first.
    let merged = strategic_merge(&with(json!([{"name": "injected"}])), &patch, &schema).unwrap();
    assert_eq!(
        merged,
        with(json!([{"name": "new", "image": "i"}, {"name": "injected"}]))
    );
}

#[test]
fn o16_a_json_patch_that_cannot_be_is_refused_with_the_references_text() {
    let live = json!({"data": {"a": "1"}});
    let cases = [
        (json!({"a": 1}), "object into Go value of type []handlers.jsonPatchOp"),
        (json!(3), "number into Go value of type []handlers.jsonPatchOp"),
        (json!([1]), "number into Go value of type handlers.jsonPatchOp"),
        (json!(["x"]), "string into Go value of type handlers.jsonPatchOp"),
        (
            json!([{"op": 1}]),
            "number into Go struct field jsonPatchOp.op of type string",
        ),
        (
            json!([{"op": "add", "path": 1}]),
            "number into Go struct field jsonPatchOp.path of type string",
        ),
    ];
    for (patch, message) in cases {
        let message = format!("error decoding patch: json: cannot unmarshal {message}");
        assert_eq!(refused(json_patch(&live, &patch)), (400, message), "{patch}");
    }
    let failing = [
        json!([{"op": "test", "path": "/data/a", "value": "2"}]),
        json!([{"op": "remove", "path": "/data/b"}]),
        json!([{"op": "bad", "path": "/a"}]),
        json!([{"path": "/a"}]),
        json!([{"op": "add"}]),
        json!([{"op": "add", "path": "", "value": {}}]),
        json!([{"op": "replace", "path": "", "value": 3}]),
        json!([null]),
    ];
    for patch in failing {
        let fault = json_patch(&live, &patch).unwrap_err();
        assert_eq!(
            fault.status(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Invalid",
                "message": "the server rejected our request due to an error in our request", "details": {}, "code": 422
            }),
            "{patch}"
        );
    }
    assert_eq!(json_patch(&live, &Value::Null).unwrap(), live);
}

#[test]
fn s8_a_json_patch_has_at_most_ten_thousand_operations() {
    let live = json!({"a": 1});
    let patch = |count: usize| Value::from(vec![json!({"op": "test", "path": "/a", "value": 1}); count]);
    assert_eq!(json_patch(&live, &patch(10_000)).unwrap(), live);
    assert_eq!(
        refused(json_patch(&live, &patch(10_001))),
        (
            413,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001".to_owned()
        )
    );
}

#[test]
fn s8_copies_of_a_json_patch_cannot_fill_the_memory() {
    let live = json!({"a": ["x".repeat(1000)]});
    // Each copy doubles what is there.
    let patch = Value::from(vec![json!({"op": "copy", "from": "/a", "path": "/a/-"}); 14]);
    assert_eq!(refused(json_patch(&live, &patch)).0, 422);
}

#[test]
fn o16_a_merge_patch_is_a_map() {
    let live = json!({"a": 1});
    let not = |kind| {
        format!("error decoding patch: json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")
    };
    assert_eq!(refused(merge_patch(&live, &json!([1]))), (400, not("array")));
    assert_eq!(refused(merge_patch(&live, &json!(3))), (400, not("number")));
    assert_eq!(refused(merge_patch(&live, &json!("x"))), (400, not("string")));
    assert_eq!(
        refused(merge_patch(&live, &Value::Null)),
        (400, "Invalid JSON Patch".to_owned())
    );
}
