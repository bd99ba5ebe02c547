//! The API server as the bench uses it: the operator's own client, and texts instead of typed objects, so that the
//! writer beside which the operator is measured is as cheap as can be.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::AsyncBufRead;
use http::{Method, Request};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::etcd::Etcd;
use crate::operator::Operator;
use crate::plane::Plane;

/// Requests in flight: as many as the operator's.
pub(crate) const IN_FLIGHT: usize = 64;
/// How long the API server may take to learn of what was put into etcd.
const CATCH_UP: Duration = Duration::from_secs(600);
/// Group and version of everything measured.
pub(crate) const API: &str = "/apis/plexaubnet.io/v1alpha1";

#[derive(Debug)]
pub(crate) struct World {
    plane: Plane,
    usher: PathBuf,
    client: Client,
    namespaces: AtomicUsize,
}

/// Requests as texts.
#[derive(Clone)]
pub(crate) struct Client(kube::Client);

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl Client {
    pub(crate) async fn send(&self, method: Method, path: &str, body: String) -> Result<String> {
        let what = || format!("{method} {path}");
        let request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.into_bytes())
            .map_err(|e| Error::api(what(), e))?;
        self.0.request_text(request).await.map_err(|e| Error::api(what(), e))
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<Value> {
        let answer = self.send(Method::POST, path, object.to_string()).await?;
        serde_json::from_str(&answer).map_err(|e| Error::api(path, e))
    }

    /// The lines of an answer that goes on, such as a watch's.
    pub(crate) async fn lines(&self, at: &str) -> Result<impl AsyncBufRead + use<>> {
        let request = http::Request::get(at).body(Vec::new()).map_err(|e| Error::api(at, e))?;
        self.0.request_stream(request).await.map_err(|e| Error::api(at, e))
    }

    /// For those who need more than texts.
    pub(crate) fn kube(&self) -> kube::Client {
        self.0.clone()
    }
}

impl World {
    /// Connects, and installs the CRDs that `usher` prints.
    pub(crate) async fn connect(plane: Plane, usher: &Path) -> Result<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client(client(&plane.kubeconfig()).await?);
        let world = Self {
            plane,
            usher: usher.to_owned(),
            client,
            namespaces: AtomicUsize::new(0),
        };
        world.install_crds().await?;
        Ok(world)
    }

    pub(crate) fn plane(&self) -> &Plane {
        &self.plane
    }

    pub(crate) fn etcd(&self) -> Etcd {
        self.plane.etcd()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// A client on connections of its own.
    pub(crate) async fn another_client(&self) -> Result<Client> {
        client(&self.plane.kubeconfig()).await.map(Client)
    }

    /// A namespace that nobody has used.
    pub(crate) async fn namespace(&self) -> Result<String> {
        let name = format!("bench-{}", self.namespaces.fetch_add(1, Ordering::Relaxed));
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.client.create("/api/v1/namespaces", &object).await?;
        Ok(name)
    }

    /// Until the API server's cache has seen what was put into etcd, up to this version. It takes some thousand objects a
    /// second; until then it answers from etcd, or not at all.
    pub(crate) async fn caught_up(&self, namespace: &str, plural: &str, version: u64) -> Result<()> {
        let begun = Instant::now();
        let query = format!("limit=1&resourceVersion={version}&resourceVersionMatch=NotOlderThan");
        let path = format!("{API}/namespaces/{namespace}/{plural}?{query}");
        while let Err(error) = self.client.send(Method::GET, &path, String::new()).await {
            if begun.elapsed() > CATCH_UP {
                return Err(error);
            }
        }
        Ok(())
    }

    /// The operator, for one namespace.
    pub(crate) fn operator(&self, namespace: &str) -> Result<Operator> {
        let log = self.plane.dir.with_file_name(format!("usher-{namespace}.log"));
        Operator::start(&self.usher, &self.plane.kubeconfig(), namespace, &log)
    }

    async fn install_crds(&self) -> Result<()> {
        let printed = Command::new(&self.usher)
            .args(["crds", "--output", "json"])
            .output()
            .map_err(Error::at("start", &self.usher))?;
        let list: Value = serde_json::from_slice(&printed.stdout).map_err(|e| Error::Program {
            program: "usher crds".to_owned(),
            said: format!("{e}; {}", String::from_utf8_lossy(&printed.stderr)),
        })?;
        for crd in list.get("items").and_then(Value::as_array).into_iter().flatten() {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            self.client.create(path, crd).await?;
        }
        // A CRD is established a moment after it is created, and its path is served a moment after that.
        for plural in ["subnets", "subnetclaims", "subnetpools"] {
            let path = format!("{API}/namespaces/default/{plural}");
            let mut looks = 0;
            while self.client.send(Method::GET, &path, String::new()).await.is_err() {
                looks += 1;
                if looks > 300 {
                    return Err(Error::api(path, "not served 30 s after its CRD was created"));
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }
}

/// The operator's client: same connector, same TLS, HTTP/1.1.
async fn client(kubeconfig: &Path) -> Result<kube::Client> {
    let wrong = |e: &dyn std::fmt::Display| Error::Wrong(format!("{}: {e}", kubeconfig.display()));
    let read = kube::config::Kubeconfig::read_from(kubeconfig).map_err(|e| wrong(&e))?;
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(read, &options)
        .await
        .map_err(|e| wrong(&e))?;
    usher_operator::client::reading(&config, "bench").map_err(|e| wrong(&e))
}

/// Does `work` for each number below `count`, so many at once, and returns what comes of each, in order. The first
/// failure ends it.
pub(crate) async fn at_once<T: Send + 'static, F>(
    count: usize,
    in_flight: usize,
    work: impl Fn(usize) -> F + Clone + Send + Sync + 'static,
) -> Result<Vec<T>>
where
    F: Future<Output = Result<T>> + Send,
{
    let next = std::sync::Arc::new(AtomicUsize::new(0));
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..in_flight.min(count) {
        let (next, work) = (next.clone(), work.clone());
        workers.spawn(async move {
            let mut done = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(done);
                }
                done.push((number, work(number).await?));
            }
        });
    }
    let mut all: Vec<(usize, T)> = Vec::with_capacity(count);
    while let Some(ended) = workers.join_next().await {
        let done: Result<_> = ended.map_err(|e| Error::Wrong(format!("a writer ended badly: {e}")))?;
        all.extend(done?);
    }
    all.sort_by_key(|(number, _)| *number);
    Ok(all.into_iter().map(|(_, value)| value).collect())
}
