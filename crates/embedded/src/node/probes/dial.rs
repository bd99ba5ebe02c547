//! Connections to a pod, and what a failed one is called: Go's words, which is what users of Kubernetes know.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::TcpStream;

/// `host:port`, an IPv6 address in brackets.
pub(super) fn address(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// # Errors
/// `dial tcp 127.70.1.5:80: connect: connection refused`
pub(super) async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    let place = address(host, port);
    let found: Vec<SocketAddr> = match host.parse::<IpAddr>() {
        Ok(ip) => vec![SocketAddr::new(ip, port)],
        Err(_) => match tokio::net::lookup_host((host, port)).await {
            Ok(found) => found.collect(),
            Err(_) => Vec::new(),
        },
    };
    if found.is_empty() {
        return Err(format!("dial tcp: lookup {host}: no such host"));
    }
    TcpStream::connect(found.as_slice())
        .await
        .map_err(|why| format!("dial tcp {place}: connect: {}", in_words(&why)))
}

pub(super) fn timed_out(host: &str, port: u16) -> String {
    format!("dial tcp {}: i/o timeout", address(host, port))
}

/// An error of the system as Go names it.
pub(super) fn in_words(why: &io::Error) -> String {
    let known = match why.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused",
        io::ErrorKind::ConnectionReset => "connection reset by peer",
        io::ErrorKind::HostUnreachable => "no route to host",
        io::ErrorKind::NetworkUnreachable => "network is unreachable",
        io::ErrorKind::TimedOut => "connection timed out",
        io::ErrorKind::AddrNotAvailable => "cannot assign requested address",
        io::ErrorKind::PermissionDenied => "permission denied",
        io::ErrorKind::BrokenPipe => "broken pipe",
        io::ErrorKind::UnexpectedEof => "EOF",
        _ => return why.to_string(),
    };
    known.to_owned()
}
