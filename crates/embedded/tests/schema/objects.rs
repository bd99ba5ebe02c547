use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Map, Value, json};
use usher_embedded::Controllers;
use usher_embedded::schema::Schema;

use crate::DEFINITIONS;
use crate::world::World;

const OBJECTS: &str = "/apis/t.example.com/v1/namespaces/default/ts";

#[test]
fn d4_rules_are_answered_as_the_reference_answers_them() {
    hold(include_str!("rules.json"));
}

#[test]
fn d5_unchanged_values_are_forgiven_as_the_reference_forgives_them() {
    hold(include_str!("ratcheting.json"));
}

/// A cluster in which the objects have a schema.
struct Place {
    world: World,
}

impl Place {
    fn new() -> Self {
        let world = World::with(Controllers::none());
        world.post(
            DEFINITIONS,
            &json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "ts.t.example.com"},
                "spec": {"group": "t.example.com", "scope": "Namespaced",
                    "names": {"plural": "ts", "singular": "t", "kind": "T", "listKind": "TList"},
                    "versions": [{"name": "v1", "served": true, "storage": true,
                        "schema": {"openAPIV3Schema": anything()}}]}}),
        );
        Self { world }
    }

    /// From now on objects are as this says.
    fn define(&self, schema: &Value) {
        let path = format!("{DEFINITIONS}/ts.t.example.com");
        let mut definition = self.world.get(&path).unwrap();
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema.clone();
        let (code, answer) = self.world.ask("PUT", &path, Some(&definition));
        assert_eq!(code, 200, "{answer}");
    }

    /// Writes an object, over an old one if there is one: the answer as it is recorded.
    fn write(&self, schema: &Value, object: &Value, old: Option<&Value>, name: &str) -> Value {
        let Some(old) = old else {
            return recorded(self.ask("POST", OBJECTS, &whole(object, name)));
        };
        // What the schema refuses was there before it.
        self.define(&anything());
        let old = self.world.post(OBJECTS, &whole(old, "n"));
        self.define(schema);
        let path = format!("{OBJECTS}/n");
        let mut new = whole(object, "n");
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        let answer = recorded(self.ask("PUT", &path, &new));
        self.world.delete(&path, "Background");
        answer
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Response<Bytes> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
        let answer = self.world.manual.service().answer(request).now_or_never().unwrap();
        let (parts, body) = answer.into_parts();
        let body = body.collect().now_or_never().unwrap().unwrap().to_bytes();
        Response::from_parts(parts, body)
    }
}

fn anything() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// An answer as they are recorded: what was stored and the warnings, or the causes of the refusal.
fn recorded(answer: Response<Bytes>) -> Value {
    let body: Value = serde_json::from_slice(answer.body()).unwrap();
    if answer.status().is_success() {
        let warnings: Vec<String> = answer
            .headers()
            .get_all("warning")
            .iter()
            .map(|warning| serde_json::from_str(warning.to_str().unwrap().strip_prefix("299 - ").unwrap()).unwrap())
            .collect();
        let mut recorded = json!({"code": 200, "object": bare(&body)});
        if !warnings.is_empty() {
            recorded["warnings"] = warnings.into();
        }
        return recorded;
    }
    let causes = body["details"]["causes"].as_array().into_iter().flatten();
    let text = |cause: &Value| {
        let part = |name: &str| cause[name].as_str().unwrap_or_default().to_owned();
        format!("{}: {}", part("field"), part("message"))
    };
    let mut errors: Vec<String> = causes.map(text).collect();
    errors.sort();
    json!({"code": answer.status().as_u16(), "errors": errors})
}

fn whole(object: &Value, name: &str) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = "t.example.com/v1".into();
    object["kind"] = "T".into();
    if object.get("metadata").is_none() {
        object["metadata"] = json!({});
    }
    object["metadata"]["name"] = name.into();
    object
}

/// Without what every object has.
fn bare(object: &Value) -> Value {
    let mut map: Map<String, Value> = object.as_object().unwrap().clone();
    map.remove("apiVersion");
    map.remove("kind");
    if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
        for field in [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "managedFields",
        ] {
            metadata.remove(field);
        }
        if metadata.is_empty() {
            map.remove("metadata");
        }
    }
    Value::Object(map)
}

fn hold(recorded: &str) {
    let groups: Vec<Value> = serde_json::from_str(recorded).unwrap();
    let mut differences = Vec::new();
    let mut count = 0;
    for group in &groups {
        let schema = Schema::parse(&group["schema"]).unwrap();
        assert_eq!(
            Schema::parse(&schema.to_json()).unwrap(),
            schema,
            "a schema survives being written and read: {}",
            group["name"]
        );
        let place = Place::new();
        place.define(&group["schema"]);
        for (index, case) in group["cases"].as_array().unwrap().iter().enumerate() {
            count += 1;
            // The names that the recorded objects had.
            let name = format!("n{index}");
            let ours = place.write(&group["schema"], &case["object"], case.get("old"), &name);
            let answer = &case["answer"];
            let mut theirs = answer.clone();
            theirs.as_object_mut().unwrap().remove("reasons");
            if ours != theirs {
                differences.push(format!(
                    "{}: {}\n  theirs {theirs}\n  ours   {ours}",
                    group["name"], case["object"]
                ));
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {count} differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

#[test]
fn d3_objects_are_answered_as_the_reference_answers_them() {
    hold(include_str!("objects.json"));
}
