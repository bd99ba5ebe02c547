//! The plain-HTTP side door: `/healthz`, `/readyz` and `/metrics`.
//!
//! Started by the runtime next to the passes; stops when told, after the answers under way are out. It holds nothing:
//! what it says comes from [`Health`], which the parts of the operator write, and from the metrics registry.
//!
//! Listening is shared with the TLS port ([`connections`]): bounded connections, bounded waits, no panics.

pub(crate) mod connections;
mod health;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::{StatusCode, header};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use usher_engine::ErrorClass;

pub use health::Health;

/// Prometheus parses by this: OpenMetrics 1.0, which is what `prometheus-client` writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Kubelet, Prometheus and a person or two: more at once is somebody else's business.
const LIMITS: connections::Limits = connections::Limits {
    connections: 64,
    handshake: Duration::from_secs(10),
    first: Duration::from_secs(10),
    header_bytes: 32 * 1024,
    // Prometheus keeps its connection for the next scrape; closing an idle one costs it a handshake, no more.
    headers: Duration::from_secs(30),
    farewell: Duration::from_secs(3),
};

/// Why an address cannot be listened on. Every message names the flag that mends it.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another process listens there.
    #[error("port {} is taken ({address}): choose another with {flag}", address.port())]
    Taken {
        /// What was asked for.
        address: SocketAddr,
        /// The flag that sets it.
        flag: &'static str,
    },
    /// The address belongs to no interface of this machine.
    #[error("{} is no address of this machine: choose one that is, or 0.0.0.0 for all, with {flag}", address.ip())]
    NotHere {
        /// What was asked for.
        address: SocketAddr,
        /// The flag that sets it.
        flag: &'static str,
    },
    /// Ports below 1024 need a right this process lacks.
    #[error("port {} may not be opened by this user ({address}): choose one above 1023 with {flag}", address.port())]
    Forbidden {
        /// What was asked for.
        address: SocketAddr,
        /// The flag that sets it.
        flag: &'static str,
    },
    /// Anything else the system says.
    #[error("{address} cannot be listened on ({problem}): choose another with {flag}")]
    Bind {
        /// What was asked for.
        address: SocketAddr,
        /// The flag that sets it.
        flag: &'static str,
        /// The system's words.
        problem: String,
    },
}

impl ServeError {
    /// A taken port may be free in a moment (the process before us is still ending); the others need a person.
    pub fn class(&self) -> ErrorClass {
        match self {
            ServeError::Taken { .. } => ErrorClass::Transient,
            ServeError::NotHere { .. } | ServeError::Forbidden { .. } | ServeError::Bind { .. } => {
                ErrorClass::Permanent
            }
        }
    }
}

/// Opens `address`, which the user set with `flag`.
pub async fn bind(address: SocketAddr, flag: &'static str) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => ServeError::Taken { address, flag },
        ErrorKind::AddrNotAvailable => ServeError::NotHere { address, flag },
        ErrorKind::PermissionDenied => ServeError::Forbidden { address, flag },
        _ => ServeError::Bind {
            address,
            flag,
            problem: error.to_string(),
        },
    })
}

/// Answers on `listener` until `stop` is true or its sender is gone; then finishes what is under way and returns.
pub async fn run(
    listener: TcpListener,
    health: Health,
    registry: Arc<Registry>,
    stop: watch::Receiver<bool>,
) -> Result<(), ServeError> {
    connections::serve(listener, None, routes(health, registry), LIMITS, stop).await;
    Ok(())
}

fn routes(health: Health, registry: Arc<Registry>) -> Router {
    let alive = health.clone();
    Router::new()
        .route("/healthz", get(move || std::future::ready(healthz(&alive))))
        .route("/readyz", get(move || std::future::ready(readyz(&health))))
        .route("/metrics", get(move || std::future::ready(metrics(&registry))))
}

fn healthz(health: &Health) -> (StatusCode, String) {
    match health.alive() {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(problem) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{problem}\n")),
    }
}

fn readyz(health: &Health) -> (StatusCode, String) {
    match health.ready() {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(missing) => {
            let lines: String = missing.iter().map(|line| format!("{line}\n")).collect();
            (StatusCode::SERVICE_UNAVAILABLE, lines)
        }
    }
}

fn metrics(registry: &Registry) -> (StatusCode, [(header::HeaderName, &'static str); 1], String) {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, registry) {
        Ok(()) => (StatusCode::OK, [(header::CONTENT_TYPE, OPEN_METRICS)], text),
        Err(error) => {
            let sentence = format!("the metrics could not be written as text: {error}\n");
            (
                StatusCode::INTERNAL_SERVER_ERROR,
                [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
                sentence,
            )
        }
    }
}

#[cfg(test)]
mod tests;
