//! What listens on a Service's addresses and passes each connection on to one of its endpoints (W4, W5). TCP only.
//!
//! The agent owns one [`Relay`] per cluster and calls [`Relay::set`] with everything after each change; what did not
//! change is left alone, so connections stay. There is a listener per port of a cluster IP, and per node port on
//! 127.0.0.1, as long as the port has endpoints: without any, connections are refused, as in the reference. A connection
//! that is passed on outlives its endpoint's readiness and its Service; all end when the relay is dropped.
//!
//! Who calls from an address other than 127.0.0.1 (a pod bound to its own, W3) is seen by the endpoint under that address.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use crate::dice::Stream;
use crate::node::net::endpoints::{self, ServiceKey};

/// Connections passed on at once; more wait to be taken. Each costs two descriptors.
const CONNECTIONS: usize = 8_192;
/// An endpoint is on this machine: it answers at once, or its queue is full.
const CONNECT: Duration = Duration::from_secs(5);
/// After a failure to take a connection, usually for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The reason of the event that a Service gets (W4).
pub const PORT_NOT_AVAILABLE: &str = "PortNotAvailable";

/// The reason of the event of a Service with ports that are not TCP (W5).
pub const PROTOCOL_NOT_RELAYED: &str = "ProtocolNotRelayed";

/// A Service's port on which nobody can listen: for a Warning event `PortNotAvailable` at the Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortNotAvailable {
    pub service: ServiceKey,
    pub address: SocketAddrV4,
    /// What happened, and what to do about it.
    pub message: String,
}

/// All Services' listeners. Made and fed within a tokio runtime.
#[derive(Debug)]
pub struct Relay {
    /// Held while [`Relay::set`] goes over them.
    lines: tokio::sync::Mutex<BTreeMap<SocketAddrV4, Line>>,
    shared: Shared,
    runtime: Handle,
    /// Dropped with the relay, which ends all connections.
    _life: watch::Sender<()>,
}

/// What all connections share.
#[derive(Debug, Clone)]
struct Shared {
    dice: Arc<Mutex<Stream>>,
    places: Arc<Semaphore>,
    life: watch::Receiver<()>,
}

/// One address and port of a Service.
#[derive(Debug)]
struct Line {
    target: Arc<Mutex<Target>>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// There are no endpoints: nobody listens.
    Parked,
    Listening(JoinHandle<()>),
    /// Why nobody can listen. Tried again at each [`Relay::set`].
    Refused(String),
}

/// Where connections go.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    service: ServiceKey,
    endpoints: Vec<SocketAddrV4>,
    is_sticky: bool,
}

impl Drop for Line {
    fn drop(&mut self) {
        if let State::Listening(task) = &self.state {
            task.abort();
        }
    }
}

impl Line {
    /// Stops listening; when this returns the port is free. Connections that nobody has taken yet are reset.
    async fn silence(&mut self) {
        if let State::Listening(task) = std::mem::replace(&mut self.state, State::Parked) {
            task.abort();
            // It was told to end.
            let _ = task.await;
        }
    }
}

impl Relay {
    /// Without any listener. Endpoints are chosen by `seed` (E1). Within a tokio runtime, or `None`.
    #[must_use]
    pub fn new(seed: u64) -> Option<Self> {
        let (sender, life) = watch::channel(());
        Some(Self {
            lines: tokio::sync::Mutex::default(),
            shared: Shared {
                dice: Arc::new(Mutex::new(Stream::new(seed))),
                places: Arc::new(Semaphore::new(CONNECTIONS)),
                life,
            },
            runtime: Handle::try_current().ok()?,
            _life: sender,
        })
    }

    /// Listens by these and no others. Returns the ports that nobody can listen on, if that is news.
    pub async fn set(&self, services: &[Service], slices: &[EndpointSlice]) -> Vec<PortNotAvailable> {
        let wanted = wanted(services, slices);
        let mut lines = self.lines.lock().await;
        for (_, mut line) in lines.extract_if(.., |address, _| !wanted.contains_key(address)) {
            line.silence().await;
        }
        let mut news = Vec::new();
        for (address, target) in wanted {
            let service = target.service.clone();
            if let Some(message) = self.put(&mut lines, address, target).await {
                news.push(PortNotAvailable {
                    service,
                    address,
                    message,
                });
            }
        }
        news
    }

    /// Where somebody listens, for tests and `usher status`.
    pub async fn listening(&self) -> Vec<SocketAddrV4> {
        let lines = self.lines.lock().await;
        let listening = lines
            .iter()
            .filter(|(_, line)| matches!(line.state, State::Listening(_)));
        listening.map(|(address, _)| *address).collect()
    }

    /// One line as it is to be. Returns why it cannot be, if that is news.
    async fn put(
        &self,
        lines: &mut BTreeMap<SocketAddrV4, Line>,
        address: SocketAddrV4,
        target: Target,
    ) -> Option<String> {
        let has_endpoints = !target.endpoints.is_empty();
        let is_new = !lines.contains_key(&address);
        let line = lines.entry(address).or_insert_with(|| Line {
            target: Arc::new(Mutex::new(target.clone())),
            state: State::Parked,
        });
        let service = target.service.clone();
        *line.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
        let told = match &line.state {
            State::Listening(task) if has_endpoints && !task.is_finished() => return None,
            State::Listening(_) if !has_endpoints => {
                line.silence().await;
                return None;
            }
            // Whether it could listen is found out at once, not when the first endpoint comes.
            State::Parked if !has_endpoints && !is_new => return None,
            State::Refused(why) => Some(why.clone()),
            State::Parked | State::Listening(_) => None,
        };
        match self.bind(address) {
            Ok(listener) => {
                line.state = if has_endpoints {
                    let work = listen(listener, line.target.clone(), self.shared.clone());
                    State::Listening(self.runtime.spawn(work))
                } else {
                    State::Parked
                };
                None
            }
            Err(error) => {
                let why = sentence(&service, address, &error);
                let is_news = told.as_ref() != Some(&why);
                line.state = State::Refused(why.clone());
                is_news.then_some(why)
            }
        }
    }

    fn bind(&self, address: SocketAddrV4) -> io::Result<TcpListener> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let _guard = self.runtime.enter();
        TcpListener::from_std(listener)
    }
}

/// All addresses and ports, and where they lead.
fn wanted(services: &[Service], slices: &[EndpointSlice]) -> BTreeMap<SocketAddrV4, Target> {
    let mut wanted = BTreeMap::new();
    for (service, way) in endpoints::ways(services, slices) {
        let Some(cluster_ip) = way.cluster_ip.filter(Ipv4Addr::is_loopback) else {
            continue;
        };
        for port in way.ports {
            let target = Target {
                service: service.clone(),
                endpoints: port.endpoints,
                is_sticky: way.is_sticky,
            };
            if let Some(node_port) = port.node_port {
                let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, node_port);
                wanted.insert(address, target.clone());
            }
            wanted.insert(SocketAddrV4::new(cluster_ip, port.port), target);
        }
    }
    wanted
}

fn sentence(service: &ServiceKey, address: SocketAddrV4, error: &io::Error) -> String {
    let (ip, port) = (address.ip(), address.port());
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "port {port} of Service {service} is below 1024, which this user may not listen on: reach its pods by their own \
             addresses, give the Service a port of 1024 or more, or run usher as root"
        ),
        io::ErrorKind::AddrInUse => format!(
            "port {port} of Service {service} is taken at {ip} by another program: stop that program, or give the Service \
             another port"
        ),
        _ => format!("nobody can listen on {address} for Service {service}: {error}"),
    }
}

async fn listen(listener: TcpListener, target: Arc<Mutex<Target>>, shared: Shared) {
    loop {
        // Never closed.
        let Ok(place) = shared.places.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((client, from)) => {
                let endpoint = choose(&target.lock().unwrap_or_else(PoisonError::into_inner), from, &shared);
                let mut life = shared.life.clone();
                tokio::spawn(async move {
                    tokio::select! {
                        () = pass(client, from, endpoint) => {}
                        _ = life.changed() => {}
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection to a Service could not be taken");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// `None`: the last endpoint went while the connection was being taken.
fn choose(target: &Target, from: SocketAddr, shared: &Shared) -> Option<SocketAddrV4> {
    if target.is_sticky {
        let client = match from.ip() {
            std::net::IpAddr::V4(ip) => u64::from(u32::from(ip)),
            std::net::IpAddr::V6(_) => 0,
        };
        // The highest draw of all pairs: an endpoint that comes or goes moves no client of the others.
        let weight = |endpoint: &SocketAddrV4| {
            let place = u64::from(u32::from(*endpoint.ip())) << 16 | u64::from(endpoint.port());
            Stream::new(client << 32 ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15)).draw()
        };
        return target.endpoints.iter().max_by_key(|endpoint| weight(endpoint)).copied();
    }
    let count = u64::try_from(target.endpoints.len()).ok().filter(|count| *count > 0)?;
    let drawn = shared.dice.lock().unwrap_or_else(PoisonError::into_inner).draw();
    let index = usize::try_from(drawn % count).ok()?;
    target.endpoints.get(index).copied()
}

/// Both ways until both have ended: who has nothing more to say may still listen.
async fn pass(mut client: TcpStream, from: SocketAddr, endpoint: Option<SocketAddrV4>) {
    let connected = match endpoint {
        Some(endpoint) => tokio::time::timeout(CONNECT, connect(from, endpoint))
            .await
            .ok()
            .and_then(Result::ok),
        None => None,
    };
    let Some(mut server) = connected else {
        // Reset, and not ended in order: nobody was there.
        let _ = client.set_zero_linger();
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut server).await {
        tracing::debug!(%error, "a relayed connection was cut");
        let _ = (client.set_zero_linger(), server.set_zero_linger());
    }
}

async fn connect(from: SocketAddr, endpoint: SocketAddrV4) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    if from.ip() != Ipv4Addr::LOCALHOST {
        socket.bind(SocketAddr::new(from.ip(), 0))?;
    }
    socket.connect(endpoint.into()).await
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
