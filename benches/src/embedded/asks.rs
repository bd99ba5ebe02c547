//! Requests to a cluster in this process: no socket, no client library, nothing but the API.

use std::future::Future;

use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use usher_embedded::{ApiBody, Cluster, Controller, Controllers, Options, Storage};

use crate::error::{Error, Result};
use crate::process;
use crate::report::Row;

/// Where ConfigMaps and Pods of the bench are.
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

/// The API of a cluster: nobody but the bench is to write, as beside the real one.
pub(crate) fn cluster(storage: Storage) -> Result<Cluster> {
    begin(storage, Controllers::none())
}

/// A cluster with all that belongs to it.
pub(crate) fn whole_cluster(storage: Storage) -> Result<Cluster> {
    begin(storage, Controllers::all())
}

/// The same without a scheduler, which would write of each pod that there is no node for it.
pub(crate) fn unscheduled(storage: Storage) -> Result<Cluster> {
    begin(storage, Controllers::all().without(Controller::Scheduler))
}

fn begin(storage: Storage, controllers: Controllers) -> Result<Cluster> {
    let options = Options {
        storage,
        controllers,
        ..Options::default()
    };
    Cluster::start(options).map_err(|why| Error::api("start an embedded cluster", why))
}

/// Sends one request and returns its answer, which must say that it worked.
pub(crate) async fn send(cluster: &Cluster, request: Request<Full<bytes::Bytes>>) -> Result<Response<ApiBody>> {
    let shown = format!("{} {}", request.method(), request.uri().path());
    let response = cluster.service().answer(request).await;
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status();
    let body = response.into_body().collect().await;
    let said = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned());
    Err(Error::api(shown, format!("{status}: {}", said.unwrap_or_default())))
}

/// The answer's body, whole.
pub(crate) async fn whole(response: Response<ApiBody>) -> bytes::Bytes {
    match response.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(never) => match never {},
    }
}

pub(crate) fn get(path: &str) -> Result<Request<Full<bytes::Bytes>>> {
    build(Method::GET, path, "", String::new())
}

pub(crate) fn create(path: &str, body: String) -> Result<Request<Full<bytes::Bytes>>> {
    build(Method::POST, path, "application/json", body)
}

pub(crate) fn apply(path: &str, body: String) -> Result<Request<Full<bytes::Bytes>>> {
    let path = format!("{path}?fieldManager=bench&force=true");
    build(Method::PATCH, &path, "application/apply-patch+yaml", body)
}

fn build(method: Method, path: &str, media: &str, body: String) -> Result<Request<Full<bytes::Bytes>>> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("user-agent", "bench/1");
    if !media.is_empty() {
        request = request.header("content-type", media);
    }
    request
        .body(Full::new(body.into()))
        .map_err(|why| Error::Wrong(format!("no request can be made for {path}: {why}")))
}

/// The same create for a client that goes over a socket.
pub(crate) fn create_over_socket(path: &str, body: String) -> Result<Request<Body>> {
    Request::builder()
        .method(Method::POST)
        .uri(path)
        .header("content-type", "application/json")
        .body(Body::from(body.into_bytes()))
        .map_err(|why| Error::Wrong(format!("no request can be made for {path}: {why}")))
}

/// How fast something was done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) per_second: f64,
    /// Processor time of this process for each: what a machine that others use, too, does not spoil.
    pub(crate) micros: f64,
}

/// The runs of a rate as a row, with the least processor time.
pub(crate) fn row(measure: impl Into<String>, rates: &[Rate]) -> Row {
    let least = rates.iter().map(|rate| rate.micros).fold(f64::INFINITY, f64::min);
    Row::new(measure, "/s", rates.iter().map(|rate| rate.per_second).collect())
        .note(format!("{least:.0} µs of processor time each"))
}

/// Does something `count` times by `workers` at once. Each worker is given numbers that no other has.
pub(crate) async fn rate<F, W>(workers: usize, count: usize, work: W) -> Result<Rate>
where
    W: Fn(usize, std::ops::Range<usize>) -> F,
    F: Future<Output = Result<()>> + Send + 'static,
{
    let each = (count / workers).max(1);
    let cpu = || process::cpu_seconds(std::process::id());
    let (begun, spent) = (std::time::Instant::now(), cpu());
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..workers {
        tasks.spawn(work(worker, worker * each..(worker + 1) * each));
    }
    while let Some(done) = tasks.join_next().await {
        done.map_err(|why| Error::Wrong(format!("a worker of the bench died: {why}")))??;
    }
    let done = (each * workers) as f64;
    Ok(Rate {
        per_second: done / begun.elapsed().as_secs_f64(),
        micros: (cpu() - spent) * 1e6 / done,
    })
}

/// On every core.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Runtime::new().map_err(Error::io("start the runtime"))
}

/// As many as the machine has cores: what is asked in process costs no waiting.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
