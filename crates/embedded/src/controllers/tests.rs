//! Killing the controllers between any two writes is harmless (E3): the store is put back to what it was after each write
//! that they made, controllers that know nothing start on it, and everything comes to the same end.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use futures::{FutureExt, Stream};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::clock::{Clock, ManualClock};
use crate::registry::object;
use crate::store::{Prefix, Snapshot, Store, Watcher};
use crate::{Cluster, Manual, Options};

/// Keeps what the store was after each write: a watcher is woken within the write.
pub(super) struct AfterEachWrite {
    store: Store,
    watcher: Mutex<Watcher>,
    kept: Mutex<Vec<Snapshot>>,
}

impl AfterEachWrite {
    pub(super) fn on(store: &Store) -> Arc<Self> {
        let watcher = store.watch(Prefix::everything(), store.revision()).unwrap();
        let this = Arc::new(Self {
            store: store.clone(),
            watcher: Mutex::new(watcher),
            kept: Mutex::default(),
        });
        this.listen();
        this
    }

    fn listen(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        let mut watcher = self.watcher.lock().unwrap();
        while let Poll::Ready(Some(_)) = Pin::new(&mut *watcher).poll_next(&mut Context::from_waker(&waker)) {}
    }

    pub(super) fn taken(&self) -> Vec<Snapshot> {
        std::mem::take(&mut self.kept.lock().unwrap())
    }
}

impl Wake for AfterEachWrite {
    fn wake(self: Arc<Self>) {
        self.kept.lock().unwrap().push(self.store.snapshot());
        self.listen();
    }
}

pub(super) fn ask(manual: &Manual, method: &str, path: &str, body: &Value) -> Value {
    let body = Full::new(bytes::Bytes::from(serde_json::to_vec(body).unwrap()));
    let content_type = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .body(body)
        .unwrap();
    let answer = manual.service().answer(request).now_or_never().unwrap();
    let code = answer.status();
    let bytes = answer.into_body().collect().now_or_never().unwrap().unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&bytes).unwrap();
    assert!(code.is_success(), "{method} {path}: {answer}");
    answer
}

fn refer(object: &Value, block: bool) -> Value {
    json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"],
        "uid": object["metadata"]["uid"], "blockOwnerDeletion": block})
}

fn map(manual: &Manual, namespace: &str, name: &str, owners: &[Value], finalizers: &[&str]) -> Value {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": owners, "finalizers": finalizers}});
    ask(
        manual,
        "POST",
        &format!("/api/v1/namespaces/{namespace}/configmaps"),
        &body,
    )
}

fn delete(manual: &Manual, path: &str, policy: &str) {
    let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy});
    ask(manual, "DELETE", path, &body);
}

/// A cluster in which every controller has something to do.
fn busy() -> Manual {
    let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
    let manual = Cluster::manual(Options {
        clock: Clock::Manual(clock),
        seed: Some(1),
        ..Options::default()
    })
    .unwrap();
    for name in ["one", "two", "three"] {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        ask(&manual, "POST", "/api/v1/namespaces", &body);
    }
    let maps = "/api/v1/namespaces/one/configmaps";
    // A chain in the foreground whose end is held, beside a cycle, and somebody with another owner.
    let a = map(&manual, "one", "a", &[], &[]);
    let b = map(&manual, "one", "b", &[refer(&a, true)], &[]);
    let c = map(&manual, "one", "c", &[refer(&b, true)], &["example.com/hold"]);
    let solid = map(&manual, "one", "solid", &[], &[]);
    map(&manual, "one", "shared", &[refer(&a, true), refer(&solid, true)], &[]);
    let d = map(&manual, "one", "d", &[], &[]);
    let e = map(&manual, "one", "e", &[refer(&d, true)], &[]);
    let cycle = json!({"metadata": {"ownerReferences": [refer(&e, true)]}});
    ask(&manual, "PATCH", &format!("{maps}/d"), &cycle);
    // Orphans, and a tree in the background.
    let f = map(&manual, "one", "f", &[], &[]);
    let g = map(&manual, "one", "g", &[refer(&f, true), refer(&c, false)], &[]);
    map(&manual, "one", "h", &[refer(&f, false), refer(&g, true)], &[]);
    let i = map(&manual, "one", "i", &[], &[]);
    for name in ["j", "k", "l"] {
        map(&manual, "one", name, &[refer(&i, true)], &[]);
    }
    // A namespace with contents, one with contents that are held, and an owner in another namespace.
    for name in ["m", "n"] {
        map(&manual, "two", name, &[], &[]);
        map(&manual, "three", name, &[], &["example.com/hold"]);
    }
    map(
        &manual,
        "one",
        "lost",
        &[refer(&map(&manual, "two", "o", &[], &[]), false)],
        &[],
    );
    // A kind with instances, of which one owns something.
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    ask(&manual, "POST", definitions, &definition);
    for name in ["w", "x"] {
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}});
        let widget = ask(&manual, "POST", "/apis/example.com/v1/namespaces/one/widgets", &widget);
        map(&manual, "one", &format!("of-{name}"), &[refer(&widget, true)], &[]);
    }
    for (name, policy) in [
        ("a", "Foreground"),
        ("d", "Foreground"),
        ("f", "Orphan"),
        ("i", "Background"),
    ] {
        delete(&manual, &format!("{maps}/{name}"), policy);
    }
    delete(&manual, "/api/v1/namespaces/two", "Background");
    delete(&manual, "/api/v1/namespaces/three", "Background");
    delete(&manual, &format!("{definitions}/widgets.example.com"), "Background");
    manual
}

/// In every namespace.
const ROOT: &str = "kube-root-ca.crt";

/// All objects, without what says when and by which write.
fn state(manual: &Manual) -> BTreeMap<String, Value> {
    let page = manual
        .cluster()
        .registry()
        .store
        .list(&Prefix::everything(), None, None, 0);
    page.unwrap()
        .entries
        .iter()
        .map(|entry| {
            let mut object = object::decode(entry).unwrap();
            let meta = object::meta_mut(&mut object);
            meta.remove("resourceVersion");
            // What the controllers themselves made, they make anew.
            let is_theirs = matches!(entry.key.resource(), "events" | "serviceaccounts") || entry.key.name() == ROOT;
            if is_theirs {
                meta.remove("uid");
            }
            (entry.key.to_string(), object)
        })
        .collect()
}

fn same(is: &BTreeMap<String, Value>, wanted: &BTreeMap<String, Value>, when: &str) {
    let keys = |state: &BTreeMap<String, Value>| state.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(is), keys(wanted), "{when}");
    for (key, wanted) in wanted {
        assert_eq!(&is[key], wanted, "{when}: {key}");
    }
}

pub(super) fn settle(manual: &mut Manual) {
    manual.settle().now_or_never().unwrap();
}

/// Puts the store where it was, under controllers that know nothing.
pub(super) fn kill(manual: &mut Manual, at: &Snapshot) {
    let registry = manual.cluster().registry();
    registry.store.restore(at).unwrap();
    registry.reread_definitions();
    manual.restart_controllers();
}

#[test]
fn e3_controllers_killed_after_any_write_leave_what_the_others_finish() {
    let mut manual = busy();
    let hook = AfterEachWrite::on(&manual.cluster().registry().store);
    settle(&mut manual);
    let end = state(&manual);
    let snapshots = hook.taken();
    assert!(snapshots.len() >= 25, "{} writes", snapshots.len());
    let names: Vec<&str> = end
        .keys()
        .filter_map(|key| key.strip_prefix("core/configmaps/"))
        .filter(|name| !name.ends_with(ROOT))
        .collect();
    assert_eq!(
        names,
        [
            "one/a",
            "one/b",
            "one/c",
            "one/g",
            "one/h",
            "one/shared",
            "one/solid",
            "three/m",
            "three/n"
        ]
    );
    for (number, snapshot) in snapshots.iter().enumerate() {
        kill(&mut manual, snapshot);
        settle(&mut manual);
        same(&state(&manual), &end, &format!("killed after write {number}"));
    }
}

#[test]
fn e3_controllers_killed_after_every_write_still_come_to_the_end() {
    let mut manual = busy();
    let start = manual.cluster().registry().store.snapshot();
    settle(&mut manual);
    let end = state(&manual);
    let mut at = start;
    let mut kills = 0;
    loop {
        kill(&mut manual, &at);
        let hook = AfterEachWrite::on(&manual.cluster().registry().store);
        settle(&mut manual);
        match hook.taken().into_iter().next() {
            Some(first) => at = first,
            None => break,
        }
        kills += 1;
        assert!(kills < 500, "it never ends");
    }
    assert!(kills >= 25, "{kills} writes");
    same(&state(&manual), &end, "killed after every write");
}
