//! Creates over TLS on connections of their own, by the same client on both servers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::config::{KubeConfigOptions, Kubeconfig};
use usher_embedded::{ListenOptions, Storage};

use super::asks::{self, CONFIG_MAPS, Rate};
use super::{Options, objects};
use crate::error::{Error, Result};
use crate::plane::Plane;
use crate::report::Row;

pub(crate) const CONNECTIONS: usize = 16;

/// Names are never used twice, also not on a server that outlives a run.
static NAMES: AtomicUsize = AtomicUsize::new(0);

/// Creates per second of an embedded cluster in memory.
pub(crate) fn embedded(count: usize) -> Result<Rate> {
    asks::runtime()?.block_on(async {
        let cluster = asks::cluster(Storage::Memory)?;
        let listening = cluster.listen(ListenOptions::default()).await;
        let listening = listening.map_err(|why| Error::api("listen", why))?;
        let rate = creates(listening.kubeconfig_file(), count).await;
        cluster.stop().await;
        rate
    })
}

/// The same of both servers by turns.
pub(crate) fn beside(options: &Options, plane: &Plane) -> Result<Vec<Row>> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // The real one takes its time.
    let count = options.requests / 4;
    asks::runtime()?.block_on(async { creates(&plane.kubeconfig(), 500).await })?;
    for _ in 0..options.runs.max(1) {
        ours.push(embedded(count)?.per_second);
        theirs.push(
            asks::runtime()?
                .block_on(creates(&plane.kubeconfig(), count))?
                .per_second,
        );
    }
    let ratios = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
    let note = format!("{CONNECTIONS} connections, TLS, the same client, by turns");
    Ok(vec![
        Row::new("create, HTTP, embedded", "/s", ours).note(note),
        Row::new("create, HTTP, kube-apiserver", "/s", theirs).note("etcd without fsync"),
        Row::new("embedded / kube-apiserver", "x", ratios),
    ])
}

async fn creates(kubeconfig: &Path, count: usize) -> Result<Rate> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(client(kubeconfig).await?);
    }
    let first = NAMES.fetch_add(count + CONNECTIONS, Ordering::Relaxed);
    // Connections are opened before the clock starts.
    for (n, client) in clients.iter().enumerate() {
        create(client, body(first + count + n)).await?;
    }
    let clients: Arc<[kube::Client]> = clients.into();
    let bodies: Arc<[String]> = (first..first + count).map(body).collect();
    asks::rate(CONNECTIONS, count, |worker, numbers| {
        let (clients, bodies) = (clients.clone(), bodies.clone());
        async move {
            let Some(client) = clients.get(worker) else {
                return Err(Error::Wrong("there are fewer connections than workers".to_owned()));
            };
            for body in bodies.get(numbers).into_iter().flatten() {
                create(client, body.clone()).await?;
            }
            Ok(())
        }
    })
    .await
}

fn body(n: usize) -> String {
    objects::config_map(&format!("map-{n:07}")).to_string()
}

async fn create(client: &kube::Client, body: String) -> Result<()> {
    let request = asks::create_over_socket(CONFIG_MAPS, body)?;
    let answer = client.send(request).await.map_err(|why| Error::api("create", why))?;
    let status = answer.status();
    let bytes = answer.into_body().collect_bytes().await;
    let bytes = bytes.map_err(|why| Error::api("create", why))?;
    if status.is_success() {
        return Ok(());
    }
    Err(Error::api(
        "create",
        format!("{status}: {}", String::from_utf8_lossy(&bytes)),
    ))
}

/// A client with a connection of its own.
pub(super) async fn client(kubeconfig: &Path) -> Result<kube::Client> {
    let wrong = |why: kube::config::KubeconfigError| Error::api("read the kubeconfig", why);
    let config = Kubeconfig::read_from(kubeconfig).map_err(wrong)?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .map_err(wrong)?;
    kube::Client::try_from(config).map_err(|why| Error::api("make a client", why))
}
