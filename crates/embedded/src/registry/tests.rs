//! Writes that meet while one of them is on its way to the disk.

use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex};

use futures::poll;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use redb::StorageBackend;
use redb::backends::InMemoryBackend;
use serde_json::{Value, json};

use crate::api::{ApiService, Server};
use crate::clock::Clock;
use crate::registry::Registry;
use crate::security::{Secrets, Security};
use crate::store::{Disk, Durability, Options, Store};

/// A disk that takes its time when it is told to.
#[derive(Debug, Clone, Default)]
struct Slow(Arc<Gate>);

#[derive(Debug, Default)]
struct Gate {
    file: InMemoryBackend,
    is_held: Mutex<bool>,
    released: Condvar,
}

impl Slow {
    fn hold(&self, held: bool) {
        *self.0.is_held.lock().unwrap() = held;
        self.0.released.notify_all();
    }
}

impl Disk for Slow {
    fn path(&self) -> &Path {
        Path::new("/slow/store.redb")
    }

    fn backend(&self) -> io::Result<Box<dyn StorageBackend>> {
        Ok(Box::new(self.clone()))
    }
}

impl StorageBackend for Slow {
    fn len(&self) -> io::Result<u64> {
        self.0.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut held = self.0.is_held.lock().unwrap();
        while *held {
            held = self.0.released.wait(held).unwrap();
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.file.write(offset, data)
    }
}

async fn ask(server: &Arc<Server>, method: &str, path: &str, body: Value) -> (u16, Value) {
    let media = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", media);
    let request = request.body(Full::from(body.to_string())).unwrap();
    let (parts, body) = ApiService::trusted(server.clone()).answer(request).await.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (parts.status.as_u16(), serde_json::from_slice(&bytes).unwrap())
}

#[tokio::test]
async fn o10_a_patch_of_scale_that_names_no_revision_builds_upon_what_is_on_its_way_to_the_disk() {
    let disk = Slow::default();
    let store = Store::open_on(disk.clone(), Durability::Fsync, Options::new(|| Clock::System.now())).unwrap();
    let server = Arc::new(Server {
        registry: Arc::new(Registry::new(store, Clock::System, 0, Default::default())),
        security: Security::new(Secrets::random().unwrap()).into(),
        documents: Default::default(),
        openapi: crate::api::openapi::Documents::new(crate::kinds::definition),
        audit: None,
        doors: crate::node::door::AllDoors::default(),
        machine: Default::default(),
        controllers_failed: Default::default(),
    });
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}});
    assert_eq!(ask(&server, "POST", "/api/v1/namespaces", namespace).await.0, 201);
    let sets = "/apis/apps/v1/namespaces/x/deployments";
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    assert_eq!(ask(&server, "POST", sets, deployment).await.0, 201);

    disk.hold(true);
    let (one, scale) = (format!("{sets}/d"), format!("{sets}/d/scale"));
    let labels = json!({"metadata": {"labels": {"written": "first"}}});
    let mut first = pin!(ask(&server, "PATCH", &one, labels));
    let waits = poll!(&mut first).is_pending();
    let mut second = pin!(ask(&server, "PATCH", &scale, json!({"spec": {"replicas": 3}})));
    let early = poll!(&mut second);
    // Before anything is found wrong: the store is not closed while its disk is held.
    disk.hold(false);
    assert!(waits, "the first waits for the disk");
    assert!(early.is_pending(), "the second waits behind it: {early:?}");
    assert_eq!(first.await.0, 200);
    let (code, answer) = second.await;
    assert_eq!((code, &answer["spec"]["replicas"]), (200, &json!(3)), "{answer}");
    let (_, now) = ask(&server, "GET", &one, Value::Null).await;
    assert_eq!(now["metadata"]["labels"]["written"], "first");
    assert_eq!(now["spec"]["replicas"], 3);
}
