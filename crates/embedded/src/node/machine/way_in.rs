//! How pods reach the API (W5): the Service `kubernetes`, its endpoint 127.B.0.1:6443, and what listens there.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::Machine;
use crate::fault::Fault;
use crate::node::net::api_service;
use crate::node::net::block::API_PORT;

/// After a failure to listen or to take a connection.
const RETRY: Duration = Duration::from_secs(1);

impl Machine {
    /// Writes the Service and its endpoint, unless they are there as they should be.
    pub(super) async fn write_way_in(&self) {
        loop {
            match self.try_write_way_in().await {
                Ok(()) => return,
                Err(fault) => {
                    tracing::debug!(%fault, "the Service kubernetes could not be written and is tried again");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    async fn try_write_way_in(&self) -> Result<(), Fault> {
        let block = self.held.block();
        let hand = self.hand.named("kube-apiserver");
        let space = Some("default");
        let wanted = api_service::service(block);
        let target = hand.target_of::<Service>(space, "kubernetes")?;
        let found = hand.read(&target)?;
        let uid = |object: &serde_json::Value| object.pointer("/metadata/uid")?.as_str().map(str::to_owned);
        let address = |object: &serde_json::Value| object.pointer("/spec/clusterIP")?.as_str().map(str::to_owned);
        let is_right =
            found.as_ref().and_then(address) == wanted.spec.as_ref().and_then(|spec| spec.cluster_ip.clone());
        if !is_right {
            // A Service keeps its address for life: that of another block makes room for this one's.
            if let Some(uid) = found.as_ref().and_then(uid) {
                hand.remove(&target, &uid, None).await?;
            }
            hand.make(space, &wanted).await?;
        }
        let wanted = api_service::slice(block);
        let target = hand.target_of::<EndpointSlice>(space, "kubernetes")?;
        let found = hand.read(&target)?;
        let address = |object: &serde_json::Value| {
            let address = object.pointer("/endpoints/0/addresses/0")?.as_str();
            address.map(str::to_owned)
        };
        if found.as_ref().and_then(address) != Some(block.api().to_string()) {
            if let Some(uid) = found.as_ref().and_then(uid) {
                hand.remove(&target, &uid, None).await?;
            }
            hand.make(space, &wanted).await?;
        }
        Ok(())
    }

    /// Passes connections of pods on to where the API listens, until it is dropped.
    pub(crate) async fn serve_pods(self: Arc<Self>, api: SocketAddr) {
        let own = SocketAddr::from((self.held.block().api(), API_PORT));
        if own == api {
            return;
        }
        loop {
            let listener = match TcpListener::bind(own).await {
                Ok(listener) => listener,
                Err(why) => {
                    tracing::warn!(address = %own, %why, "pods cannot reach the API: nobody can listen there");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            };
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    taken = listener.accept() => match taken {
                        Ok((mut pod, _)) => {
                            connections.spawn(async move {
                                if let Ok(mut server) = TcpStream::connect(api).await {
                                    // Whoever ends it ends it for both.
                                    let _ = tokio::io::copy_bidirectional(&mut pod, &mut server).await;
                                }
                            });
                        }
                        Err(_) => tokio::time::sleep(RETRY).await,
                    },
                    Some(_) = connections.join_next() => {}
                }
            }
        }
    }
}
