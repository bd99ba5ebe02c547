//! Answers of the reference, replayed.
//!
//! `recorded/library.json` holds random scripts of applies and updates with what the reference's field manager made of
//! them. `USHER_FIELDS_RECORDED=file` replays another file of that form, such as a larger one.

use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::{Value, json};
use usher_embedded::fault::Fault;
use usher_embedded::fields::{Apply, Track, apply, json_patch, merge_patch, strategic_merge, track};
use usher_embedded::schema::Schema;

use crate::openapi;

pub fn file(name: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fields/recorded")
        .join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The object as it can be compared: entries in an order that does not depend on times, times only there or not.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.remove("uid");
    if let Some(Value::Array(entries)) = metadata.get_mut("managedFields") {
        for entry in &mut *entries {
            if let Some(time) = entry.get_mut("time") {
                *time = "…".into();
            }
        }
        entries.sort_by_key(Value::to_string);
    }
    object
}

struct Replay<'a> {
    schema: &'a Schema,
    live: Option<Value>,
    now: Timestamp,
    ignored: Vec<Vec<String>>,
}

impl Replay<'_> {
    fn step(&mut self, step: &Value) -> Result<Value, Fault> {
        let ignored: Vec<Vec<&str>> = self
            .ignored
            .iter()
            .map(|path| path.iter().map(String::as_str).collect())
            .collect();
        let ignored: Vec<&[&str]> = ignored.iter().map(Vec::as_slice).collect();
        let text = |name: &str| step[name].as_str().unwrap_or_default();
        let object = if text("op") == "apply" {
            apply(Apply {
                live: self.live.as_ref(),
                applied: &step["object"],
                schema: self.schema,
                manager: text("manager"),
                subresource: text("sub"),
                api_version: "t.io/v1",
                force: step["force"] == true,
                now: self.now,
                ignored: &ignored,
            })?
        } else {
            let mut new = step["object"].clone();
            let sent = match text("sent") {
                "live" => self
                    .live
                    .as_ref()
                    .and_then(|live| live["metadata"].get("managedFields").cloned()),
                "empty" => Some(json!([])),
                "reset" => Some(json!([{}])),
                "bad" => Some(json!([{"manager": "x", "operation": "Nope"}])),
                "own" => Some(json!([{
                    "manager": "x", "operation": "Apply", "apiVersion": "t.io/v1", "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:spec": {"f:a": {}, "f:m": {"f:k1": {}}}},
                }])),
                _ => None,
            };
            if let Some(sent) = sent {
                new["metadata"]["managedFields"] = sent;
            }
            track(Track {
                old: self.live.as_ref(),
                new: &mut new,
                schema: self.schema,
                manager: text("manager"),
                subresource: text("sub"),
                api_version: "t.io/v1",
                now: self.now,
                ignored: &ignored,
            });
            new
        };
        self.live = Some(object.clone());
        Ok(object)
    }
}

#[test]
fn o18_o19_applies_and_updates_end_as_in_the_reference() {
    let recorded = match std::env::var_os("USHER_FIELDS_RECORDED") {
        Some(path) => serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap(),
        None => file("library.json"),
    };
    let schema = openapi::schema(&recorded["schema"]);
    let mut failures = 0;
    for (number, script) in recorded["scripts"].as_array().unwrap().iter().enumerate() {
        let mut replay = Replay {
            schema: &schema,
            live: None,
            now: Timestamp::UNIX_EPOCH,
            ignored: serde_json::from_value(script["ignored"].clone()).unwrap(),
        };
        let steps = script["steps"].as_array().unwrap();
        for (at, (step, answer)) in steps.iter().zip(script["answers"].as_array().unwrap()).enumerate() {
            let got = replay.step(step);
            let before = replay.live.clone();
            let same = match (&got, answer.get("error")) {
                (Err(fault), Some(error)) => fault.message == error.as_str().unwrap(),
                (Ok(object), None) => comparable(object) == comparable(&answer["object"]),
                _ => false,
            };
            if !same {
                failures += 1;
                eprintln!("script {number} step {at}\nstep {step}\nwant {answer}");
                match got {
                    Ok(object) => eprintln!("got  {object}"),
                    Err(fault) => eprintln!("got  {fault:?}"),
                }
                eprintln!("live {}\n", before.unwrap_or_default());
                break;
            }
        }
    }
    assert_eq!(failures, 0);
}

/// What an answer and ours are compared without: set by others than this module.
fn settled(object: &Value) -> Value {
    fn no_nulls(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|_, value| !value.is_null());
                map.values_mut().for_each(no_nulls);
            }
            Value::Array(items) => items.iter_mut().for_each(no_nulls),
            _ => {}
        }
    }
    let mut object = object.clone();
    no_nulls(&mut object);
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["managedFields", "resourceVersion", "generation"] {
        metadata.remove(field);
    }
    // The server answers without what became empty.
    metadata.retain(|_, value| *value != json!({}) && *value != json!([]));
    if object.get("status") == Some(&json!({})) {
        object.as_object_mut().unwrap().remove("status");
    }
    object
}

#[test]
fn o16_to_o19_writes_end_as_a_real_server_answered_them() {
    let recorded = file("server.json");
    for object in recorded["objects"].as_array().unwrap() {
        let kind = object["kind"].as_str().unwrap();
        let schema = openapi::schema(&recorded["schemas"][kind]);
        let mut live: Option<Value> = None;
        for (at, step) in object["steps"].as_array().unwrap().iter().enumerate() {
            let text = |name: &str| step[name].as_str().unwrap_or_default();
            let (op, sub, answer, body) = (text("op"), text("sub"), &step["answer"], &step["body"]);
            let what = format!("{kind} step {at}: {op} by {} {body}", text("manager"));
            let ignored: Vec<Vec<String>> = serde_json::from_value(recorded["ignored"][kind][sub].clone()).unwrap();
            let ignored: Vec<Vec<&str>> = ignored
                .iter()
                .map(|path| path.iter().map(String::as_str).collect())
                .collect();
            let ignored: Vec<&[&str]> = ignored.iter().map(Vec::as_slice).collect();
            // The time of the write is the newest time in the answer.
            let entries = answer["metadata"]
                .get("managedFields")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            let times = entries.filter_map(|entry| entry.get("time")?.as_str()?.parse::<Timestamp>().ok());
            let now = times.max().unwrap_or_default();

            if op == "apply" {
                let got = apply(Apply {
                    live: live.as_ref(),
                    applied: body,
                    schema: &schema,
                    manager: text("manager"),
                    subresource: sub,
                    api_version: object["apiVersion"].as_str().unwrap(),
                    force: step["force"] == true,
                    now,
                    ignored: &ignored,
                });
                match got.map_err(Fault::from) {
                    Err(fault) => {
                        let (mut got, mut want) = (fault.status(), answer.clone());
                        // The real one tells the causes of several managers in any order.
                        for status in [&mut got, &mut want] {
                            if let Some(Value::Array(causes)) = status.pointer_mut("/details/causes") {
                                causes.sort_by_key(Value::to_string);
                            }
                        }
                        assert_eq!(got, want, "{what}");
                        continue;
                    }
                    Ok(merged) => {
                        assert_eq!(
                            merged["metadata"].get("managedFields"),
                            answer["metadata"].get("managedFields"),
                            "{what}"
                        );
                        // Kinds whose server sets no defaults come out whole.
                        if matches!(kind, "ConfigMap" | "Thing") && sub.is_empty() && live.is_some() {
                            let (mut merged, mut answer) = (settled(&merged), settled(answer));
                            for object in [&mut merged, &mut answer] {
                                object.as_object_mut().unwrap().remove("status");
                            }
                            without_default_ports(&mut merged);
                            without_default_ports(&mut answer);
                            assert_eq!(merged, answer, "{what}");
                        }
                    }
                }
            } else {
                let patched = match (op, &live) {
                    ("json-patch", Some(live)) => Some(json_patch(live, body).unwrap()),
                    ("merge-patch", Some(live)) => Some(merge_patch(live, body).unwrap()),
                    ("strategic-merge-patch", Some(live)) => Some(strategic_merge(live, body, &schema).unwrap()),
                    _ => None,
                };
                if let Some(patched) = patched
                    && sub.is_empty()
                    && text("manager") != "main"
                {
                    assert_eq!(settled(&patched), settled(answer), "{what}");
                }
                let mut new = answer.clone();
                let metadata = new["metadata"].as_object_mut().unwrap();
                metadata.remove("managedFields");
                if let Some(sent) = body.pointer("/metadata/managedFields") {
                    metadata.insert("managedFields".to_owned(), sent.clone());
                }
                // The server tracks what was sent and defaulted; addresses are given out later and owned by nobody.
                if kind == "Service" && op == "create" {
                    let spec = new["spec"].as_object_mut().unwrap();
                    spec.retain(|field, _| !field.starts_with("clusterIP") && !field.starts_with("ipFamil"));
                }
                track(Track {
                    old: live.as_ref(),
                    new: &mut new,
                    schema: &schema,
                    manager: text("manager"),
                    subresource: sub,
                    api_version: object["apiVersion"].as_str().unwrap(),
                    now,
                    ignored: &ignored,
                });
                assert_eq!(
                    new["metadata"].get("managedFields"),
                    answer["metadata"].get("managedFields"),
                    "{what}"
                );
            }
            live = Some(answer.clone());
        }
    }
}

/// The CRD of the recording defaults `port` of list items.
fn without_default_ports(object: &mut Value) {
    if let Some(Value::Array(items)) = object.pointer_mut("/spec/l") {
        for item in items {
            if item.get("port") == Some(&json!(80)) {
                item.as_object_mut().unwrap().remove("port");
            }
        }
    }
}
