//! One seeded script of everything, played through `kube::Client`: its bytes are a function of the seed.

use futures::{FutureExt, StreamExt};
use http::{Method, Request};
use http_body_util::BodyExt;
use jiff::SignedDuration;
use kube::client::Body;
use serde_json::{Value, json};

use crate::world::World;
use usher_embedded::Controllers;

/// Chance for the script itself.
#[derive(Debug, Clone)]
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

type Lines = futures::stream::BoxStream<'static, bytes::Bytes>;

struct Script {
    world: World,
    client: kube::Client,
    chance: Chance,
    watches: Vec<Lines>,
    /// Every response and every watch line.
    bytes: Vec<u8>,
    /// Owners to refer to.
    made: Vec<Value>,
}

const NAMESPACES: [&str; 3] = ["default", "one", "two"];
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

impl Script {
    fn new(seed: u64) -> Self {
        let world = World::seeded(seed, Controllers::all());
        Self {
            client: world.manual.client(),
            world,
            chance: Chance(seed),
            watches: Vec::new(),
            bytes: Vec::new(),
            made: Vec::new(),
        }
    }

    fn note(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.bytes.push(b'\n');
    }

    async fn send(&mut self, method: Method, path: &str, content_type: &str, body: Value) -> http::Response<Body> {
        let bytes = if body.is_null() {
            Vec::new()
        } else {
            serde_json::to_vec(&body).unwrap()
        };
        let request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header("content-type", content_type)
            .body(Body::from(bytes))
            .unwrap();
        let answer = self.client.send(request).await.unwrap();
        let mut head = format!("{method} {path}: {}", answer.status());
        for (name, value) in answer.headers() {
            head.push_str(&format!("\n{name}: {}", value.to_str().unwrap()));
        }
        self.note(head.as_bytes());
        answer
    }

    async fn ask(&mut self, method: Method, path: &str, content_type: &str, body: Value) -> Value {
        let answer = self.send(method, path, content_type, body).await;
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        self.note(&bytes);
        serde_json::from_slice(&bytes).unwrap_or(Value::Null)
    }

    async fn watch(&mut self) {
        let namespace = self.chance.one(&NAMESPACES);
        let seconds = 30 + self.chance.below(300);
        let path = format!(
            "/api/v1/namespaces/{namespace}/configmaps?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}"
        );
        let answer = self.send(Method::GET, &path, "application/json", Value::Null).await;
        let lines = answer.into_body().into_data_stream().map(|frame| frame.unwrap());
        self.watches.push(lines.boxed());
    }

    /// What the open watches have to say now.
    fn drain(&mut self) {
        for number in 0..self.watches.len() {
            while let Some(line) = self.watches[number].next().now_or_never() {
                let Some(line) = line else {
                    self.note(format!("watch {number} ends").as_bytes());
                    self.watches[number] = futures::stream::pending().boxed();
                    break;
                };
                self.note(format!("watch {number}").as_bytes());
                self.note(&line);
            }
        }
    }

    fn owners(&mut self) -> Vec<Value> {
        if self.made.is_empty() || self.chance.below(2) == 0 {
            return Vec::new();
        }
        let at = self.chance.below(self.made.len());
        let block = [None, Some(true), Some(false)][self.chance.below(3)];
        vec![crate::world::owner(&self.made[at], block)]
    }

    async fn step(&mut self) {
        const MERGE: &str = "application/merge-patch+json";
        const JSON: &str = "application/json";
        let namespace = self.chance.one(&NAMESPACES);
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        let name = self.chance.one(&NAMES);
        let one = format!("{maps}/{name}");
        let number = self.chance.below(100).to_string();
        match self.chance.below(14) {
            0..=2 => {
                let mut meta = json!({"ownerReferences": self.owners()});
                match self.chance.below(4) {
                    0 => meta["generateName"] = "made-".into(),
                    1 => {
                        meta["name"] = name.into();
                        meta["finalizers"] = json!(["example.com/hold"]);
                    }
                    _ => meta["name"] = name.into(),
                }
                let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"n": number}});
                let made = self.ask(Method::POST, &maps, JSON, body).await;
                if made["kind"] == "ConfigMap" {
                    self.made.push(made);
                }
            }
            3 => {
                let mut live = self.ask(Method::GET, &one, JSON, Value::Null).await;
                if live["kind"] == "ConfigMap" {
                    live["data"] = json!({"put": number});
                    self.ask(Method::PUT, &one, JSON, live).await;
                }
            }
            4 => drop(
                self.ask(Method::PATCH, &one, MERGE, json!({"data": {"m": number}}))
                    .await,
            ),
            5 => {
                let body = json!({"metadata": {"labels": {"l": number}}});
                self.ask(Method::PATCH, &one, "application/strategic-merge-patch+json", body)
                    .await;
            }
            6 => {
                let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                    "data": {"applied": number}});
                let path = format!("{one}?fieldManager=script&force=true");
                self.ask(Method::PATCH, &path, "application/apply-patch+yaml", body)
                    .await;
            }
            7 => {
                let body = json!({"metadata": {"finalizers": null}});
                self.ask(Method::PATCH, &one, MERGE, body).await;
            }
            8 | 9 => {
                let policy = self.chance.one(&["Background", "Foreground", "Orphan"]);
                let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy});
                self.ask(Method::DELETE, &one, JSON, body).await;
            }
            10 => {
                let namespace = self.chance.one(&["one", "two"]);
                let path = format!("/api/v1/namespaces/{namespace}");
                if self.chance.below(2) == 0 {
                    self.ask(Method::DELETE, &path, JSON, Value::Null).await;
                } else {
                    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace},
                        "spec": {"finalizers": ["kubernetes"]}});
                    self.ask(Method::POST, "/api/v1/namespaces", JSON, body).await;
                }
            }
            11 => {
                let seconds = i64::try_from(self.chance.below(90)).unwrap();
                let to = self.world.now() + SignedDuration::from_secs(seconds);
                self.world.manual.advance(to);
            }
            12 => self.watch().await,
            _ => drop(self.ask(Method::GET, "/api/v1/configmaps", JSON, Value::Null).await),
        }
        self.work().await;
        self.drain();
    }

    /// Some of what is ready, in an order of the script's own.
    async fn work(&mut self) {
        for _ in 0..self.chance.below(4) {
            let ready = self.world.manual.ready();
            if ready.is_empty() {
                return;
            }
            let work = &ready[self.chance.below(ready.len())];
            self.note(format!("{} {}", work.id.controller, work.id.key).as_bytes());
            assert!(self.world.manual.run(&work.id).await);
        }
        if self.chance.below(10) == 0 {
            let count = self.world.manual.settle().await;
            let next = self.world.manual.next_timer();
            self.note(format!("settled after {count}, next {next:?}").as_bytes());
        }
    }

    async fn play(&mut self, steps: usize) -> Vec<u8> {
        for _ in 0..steps {
            self.step().await;
        }
        std::mem::take(&mut self.bytes)
    }
}

/// The first line in which two runs differ.
fn same(one: &[u8], two: &[u8]) {
    let (one, two) = (String::from_utf8_lossy(one), String::from_utf8_lossy(two));
    for (number, (one, two)) in one.lines().zip(two.lines()).enumerate() {
        assert_eq!(one, two, "line {number}");
    }
    assert_eq!(one.len(), two.len());
}

#[tokio::test]
async fn e1_two_runs_of_one_seeded_script_give_identical_bytes() {
    for seed in 1..=8 {
        let first = Script::new(seed).play(250).await;
        let second = Script::new(seed).play(250).await;
        let text = String::from_utf8_lossy(&first);
        for word in [
            "201 Created",
            "\"DELETED\"",
            "BOOKMARK",
            "garbage-collector",
            "namespaces ",
            "Terminating",
        ] {
            assert!(text.contains(word), "seed {seed}: the script never comes to {word}");
        }
        same(&first, &second);
    }
    let (one, two) = (Script::new(1).play(50).await, Script::new(2).play(50).await);
    assert_ne!(one, two);
}

#[tokio::test]
async fn e1_the_same_steps_after_a_restore_give_the_same_bytes() {
    for seed in 1..=8 {
        let mut script = Script::new(seed);
        script.play(120).await;
        script.watches.clear();
        let snapshot = script.world.manual.snapshot();
        let (chance, made) = (script.chance.clone(), script.made.clone());
        let first = script.play(120).await;
        script.watches.clear();
        script.world.manual.restore(&snapshot).unwrap();
        script.chance = chance;
        script.made = made;
        let second = script.play(120).await;
        same(&first, &second);
    }
}

#[tokio::test]
async fn e1_a_watch_of_before_a_restore_is_told_that_it_is_too_old() {
    let mut world = World::new();
    let snapshot = world.manual.snapshot();
    let request = Request::get("/api/v1/configmaps?watch=true&resourceVersion=1")
        .body(Body::empty())
        .unwrap();
    let answer = world.manual.client().send(request).await.unwrap();
    let mut lines = answer.into_body().into_data_stream();
    world.manual.restore(&snapshot).unwrap();
    let line = lines.next().await.unwrap().unwrap();
    let event: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
}
