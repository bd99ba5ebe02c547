//! The cluster on a socket: HTTPS on loopback (A1, X3), and what a user needs to reach it.
//!
//! - [`folder`]: where token, keys and kubeconfig are kept. [`certificate`]: whom clients are to believe.
//! - [`connection`]: one connection, from its handshake to its end. [`kubeconfig`]: how kubectl finds us.
//! - [`audit`]: who wrote what. [`temporary`]: folders that go with their process.
//!
//! Called through [`crate::Cluster::listen`]. Shutdown travels one way: `stop` turns true, no connection is taken any
//! more, watches end, requests under way are answered, and whoever is then still there is cut off after [`DRAIN`].

pub(crate) mod audit;
pub(crate) mod certificate;
mod connection;
pub(crate) mod folder;
pub mod kubeconfig;
pub(crate) mod temporary;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::api::ApiService;
use certificate::{CertificateError, Identity};
use connection::Patience;
use folder::{Folder, FolderError};
use kubeconfig::Access;

/// Connections at once. One user's tools hold a few dozen; more wait until one of these ends.
const CONNECTIONS: usize = 4_096;
/// How long requests under way may take to finish after the stop.
const DRAIN: Duration = Duration::from_secs(5);
/// After a failure to take a connection, usually for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);
const KUBECONFIG: &str = "kubeconfig";

/// Where a cluster is to listen.
#[derive(Debug, Clone, Copy)]
pub struct ListenOptions {
    /// Port 0: any free one.
    pub address: SocketAddr,
    /// Addresses that other machines can reach are allowed too (X3).
    pub is_unsafe_allowed: bool,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            is_unsafe_allowed: false,
        }
    }
}

/// Why a cluster does not listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error(
        "{0} can be reached by other machines, and whoever has the token may do everything here; listen on 127.0.0.1, or \
         insist with --listen-unsafe"
    )]
    NotLoopback(SocketAddr),
    #[error("{0} is taken by another program; stop it, or listen elsewhere: --listen 127.0.0.1:0 takes any free port")]
    Taken(SocketAddr),
    #[error("{0} is no address of this machine; listen on 127.0.0.1")]
    NotOurs(SocketAddr),
    #[error("this user may not listen on {0}; choose a port above 1023")]
    NotAllowed(SocketAddr),
    #[error("cannot listen on {address}: {error}")]
    Socket { address: SocketAddr, error: io::Error },
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("the cluster has been stopped")]
    Stopped,
}

/// A cluster that listens, until it is stopped.
#[derive(Debug, Clone)]
pub struct Listening {
    address: SocketAddr,
    access: Access,
    file: PathBuf,
}

impl Listening {
    /// With the port that was taken.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `https://127.0.0.1:6443`
    #[must_use]
    pub fn url(&self) -> &str {
        self.access.url()
    }

    /// A file with the context `usher`, for `$KUBECONFIG`. Goes with a cluster in memory.
    #[must_use]
    pub fn kubeconfig_file(&self) -> &Path {
        &self.file
    }

    /// How to reach the cluster: where, whom to believe, as whom. Holds the token.
    #[must_use]
    pub fn access(&self) -> &Access {
        &self.access
    }
}

/// A socket that nobody is answered on yet.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: TcpListener,
    tls: Arc<ServerConfig>,
    patience: Patience,
    /// Connections at once.
    connections: usize,
    pub(crate) listening: Listening,
}

impl Listener {
    /// Takes the address, and writes the kubeconfig.
    pub(crate) async fn open(options: ListenOptions, folder: &Folder, token: &str) -> Result<Self, ListenError> {
        let wanted = options.address;
        if !wanted.ip().is_loopback() && !options.is_unsafe_allowed {
            return Err(ListenError::NotLoopback(wanted));
        }
        let socket = TcpListener::bind(wanted)
            .await
            .map_err(|error| refused(wanted, error))?;
        let address = socket.local_addr().map_err(|error| refused(wanted, error))?;
        // By the system's clock and not by the cluster's: so will the clients judge it.
        let identity = Identity::kept(folder, address.ip(), Timestamp::now())?;
        let access = Access::new(reachable(address), &identity.authority, token);
        folder.write(KUBECONFIG, &access.kubeconfig())?;
        Ok(Self {
            socket,
            tls: identity.config,
            patience: Patience::default(),
            connections: CONNECTIONS,
            listening: Listening {
                address,
                access,
                file: folder.file(KUBECONFIG),
            },
        })
    }

    /// Answers until `stop` turns true, and a little longer.
    pub(crate) async fn run(self, api: ApiService, stop: watch::Receiver<bool>) {
        let places = Arc::new(Semaphore::new(self.connections));
        let mut connections = JoinSet::new();
        let mut stopping = stop.clone();
        let tls = TlsAcceptor::from(self.tls);
        let taking = async {
            loop {
                // Never closed.
                let Ok(place) = places.clone().acquire_owned().await else {
                    return;
                };
                while connections.try_join_next().is_some() {}
                match self.socket.accept().await {
                    Ok((tcp, _)) => {
                        let serving = connection::serve(tcp, tls.clone(), api.clone(), self.patience, stop.clone());
                        connections.spawn(async move {
                            serving.await;
                            drop(place);
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be taken");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        };
        tokio::select! {
            () = taking => {}
            _ = stopping.wait_for(|stop| *stop) => {}
        }
        drop(self.socket);
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, all).await.is_err() {
            tracing::warn!("requests still under way after {} s are cut off", DRAIN.as_secs());
        }
    }
}

/// Where clients on this machine find a server that listens there.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn refused(address: SocketAddr, error: io::Error) -> ListenError {
    match error.kind() {
        io::ErrorKind::AddrInUse => ListenError::Taken(address),
        io::ErrorKind::AddrNotAvailable => ListenError::NotOurs(address),
        io::ErrorKind::PermissionDenied => ListenError::NotAllowed(address),
        _ => ListenError::Socket { address, error },
    }
}

#[cfg(test)]
mod tests;
