//! Scenarios whose states were recorded from the reference's garbage collector and namespace controller
//! (`scenarios.json` names its version): each is played here and must come to the same states.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::world::World;

struct Play {
    world: World,
    made: BTreeMap<String, (String, Value)>,
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

impl Play {
    fn new() -> Self {
        let world = World::new();
        world.namespace("one");
        world.namespace("two");
        Self {
            world,
            made: BTreeMap::new(),
        }
    }

    fn references(&self, owners: &Value) -> Vec<Value> {
        let owners = owners.as_array().map(Vec::as_slice).unwrap_or_default();
        let reference = |owner: &Value| {
            let of = text(owner, "of");
            let mut reference = match self.made.get(of) {
                Some((_, made)) => crate::world::owner(made, owner["block"].as_bool()),
                None => json!({"apiVersion": "v1", "kind": "ConfigMap", "name": of,
                    "uid": "11111111-2222-4333-8444-555555555555"}),
            };
            for field in ["apiVersion", "kind", "name"] {
                if let Some(twist) = owner.get(field) {
                    reference[field] = twist.clone();
                }
            }
            reference
        };
        owners.iter().map(reference).collect()
    }

    fn create(&mut self, step: &Value) {
        let (name, namespace) = (text(step, "create"), step["in"].as_str().unwrap_or("one"));
        let kind = step["kind"].as_str().unwrap_or("ConfigMap");
        let (api_version, path) = match kind {
            "ConfigMap" => ("v1", format!("/api/v1/namespaces/{namespace}/configmaps")),
            "Pod" => ("v1", format!("/api/v1/namespaces/{namespace}/pods")),
            "ClusterRole" => (
                "rbac.authorization.k8s.io/v1",
                "/apis/rbac.authorization.k8s.io/v1/clusterroles".to_owned(),
            ),
            other => panic!("{other}"),
        };
        let mut body = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name,
            "ownerReferences": self.references(&step["owners"]), "finalizers": step["finalizers"]}});
        if kind == "Pod" {
            body["spec"] = json!({"containers": [{"name": "c", "image": "i"}]});
        }
        let object = self.world.post(&path, &body);
        self.made.insert(name.to_owned(), (format!("{path}/{name}"), object));
    }

    fn path(&self, step: &Value, field: &str) -> String {
        if text(step, "kind") == "Namespace" {
            return format!("/api/v1/namespaces/{}", text(step, field));
        }
        self.made[text(step, field)].0.clone()
    }

    fn step(&mut self, step: &Value) {
        if step.get("create").is_some() {
            self.create(step);
        } else if step.get("delete").is_some() {
            let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
            if let Some(policy) = step.get("policy") {
                options["propagationPolicy"] = policy.clone();
            }
            let (code, answer) = self.world.ask("DELETE", &self.path(step, "delete"), Some(&options));
            assert!(code < 300, "{step}: {code} {answer}");
        } else if step.get("release").is_some() {
            let path = self.path(step, "release");
            let live = self.world.get(&path).unwrap();
            let finalizers = live["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            let left: Vec<Value> = finalizers
                .into_iter()
                .filter(|name| !name.as_str().unwrap().starts_with("example.com/"))
                .collect();
            self.world.patch(&path, &json!({"metadata": {"finalizers": left}}));
        } else if step.get("own").is_some() {
            let owners = self.references(&step["owners"]);
            let path = self.path(step, "own");
            self.world
                .patch(&path, &json!({"metadata": {"ownerReferences": owners}}));
        }
    }

    /// Until nothing changes any more, the namespace's conditions included.
    fn settle(&mut self) {
        self.world.settle();
        self.world.advance(9);
        self.world.settle();
    }

    fn state(&self) -> Value {
        let mut objects = json!({});
        for (name, (path, made)) in &self.made {
            let Some(live) = self
                .world
                .get(path)
                .filter(|live| live["metadata"]["uid"] == made["metadata"]["uid"])
            else {
                continue;
            };
            let meta = &live["metadata"];
            let owners = meta["ownerReferences"].as_array().cloned().unwrap_or_default();
            let owners: Vec<Value> = owners
                .iter()
                .map(|owner| {
                    let of = self
                        .made
                        .iter()
                        .find(|(_, (_, made))| made["metadata"]["uid"] == owner["uid"]);
                    json!({"of": of.map_or("ghost", |(name, _)| name), "block": owner["blockOwnerDeletion"]})
                })
                .collect();
            objects[name] = json!({"deleting": meta["deletionTimestamp"].is_string(),
                "finalizers": meta.get("finalizers").cloned().unwrap_or_else(|| json!([])), "owners": owners});
        }
        let mut state = json!({"objects": objects, "namespace": self.namespace()});
        let events: Vec<Value> = ["one", "two"]
            .iter()
            .flat_map(|namespace| self.events(namespace))
            .collect();
        if !events.is_empty() {
            state["events"] = events.into();
        }
        state
    }

    fn namespace(&self) -> Value {
        let Some(namespace) = self.world.get("/api/v1/namespaces/one") else {
            return Value::Null;
        };
        let conditions = namespace["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|found| json!([found["type"], found["status"], found["reason"], found["message"]]))
            .collect();
        let phase = namespace["status"]["phase"].as_str().unwrap_or("Active");
        json!({"phase": phase, "finalizers": namespace["spec"]["finalizers"], "conditions": conditions})
    }

    fn events(&self, namespace: &str) -> Vec<Value> {
        let (_, list) = self
            .world
            .ask("GET", &format!("/api/v1/namespaces/{namespace}/events"), None);
        let events = list["items"].as_array().cloned().unwrap_or_default();
        events
            .iter()
            .filter(|event| event["reason"] == "OwnerRefInvalidNamespace")
            .map(|event| {
                let mut message = text(event, "message").to_owned();
                for (name, (_, made)) in &self.made {
                    message = message.replace(text(&made["metadata"], "uid"), &format!("uid-of-{name}"));
                }
                json!({"in": namespace, "of": event["involvedObject"]["name"],
                    "component": event["source"]["component"], "type": event["type"], "message": message})
            })
            .collect()
    }
}

#[test]
fn c1_o13_o15_every_recorded_scenario_comes_to_the_recorded_states() {
    let recorded: Value = serde_json::from_str(include_str!("scenarios.json")).unwrap();
    let mut wrong = Vec::new();
    let scenarios = recorded["scenarios"].as_array().unwrap();
    assert!(scenarios.len() >= 12);
    for scenario in scenarios {
        let mut play = Play::new();
        for (number, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
            let Some(wanted) = step.get("settled") else {
                play.step(step);
                continue;
            };
            play.settle();
            let state = play.state();
            if state != *wanted {
                let name = text(scenario, "name");
                wrong.push(format!("{name}, step {number}:\n  is     {state}\n  wanted {wanted}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
