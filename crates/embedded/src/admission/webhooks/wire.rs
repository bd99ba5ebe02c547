//! One TLS connection to a webhook, trusting whom its configuration names.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::hook::{Place, Service};
use crate::registry::object;
use crate::store::{Key, Store};

const HTTPS: u16 = 443;

/// A connection that is ready for requests. Its task ends with it.
pub(super) async fn connect(store: &Store, place: &Place, url: &http::Uri) -> Result<SendRequest<Full<Bytes>>, String> {
    let host = url.host().unwrap_or_default();
    let (target, name) = match &place.service {
        Some(service) => (address_of(store, service)?, service.host()),
        None => {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            let port = url.port_u16().unwrap_or(HTTPS);
            (format!("{host}:{port}"), bare.to_owned())
        }
    };
    let tcp = TcpStream::connect(&target)
        .await
        .map_err(|why| dialing(&target, &why))?;
    // Reviews are small, and waiting for more to send would only add to every write.
    let _ = tcp.set_nodelay(true);
    let server = ServerName::try_from(name.clone()).map_err(|why| why.to_string())?;
    let tls = TlsConnector::from(Arc::new(trusting(&place.authorities)?))
        .connect(server, tcp)
        .await
        .map_err(|why| handshake(&why, &name))?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls))
        .await
        .map_err(|why| why.to_string())?;
    tokio::spawn(async move {
        if let Err(why) = connection.await {
            tracing::debug!(%why, "a connection to a webhook broke");
        }
    });
    Ok(sender)
}

fn trusting(authorities: &[u8]) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities) {
        let certificate =
            certificate.map_err(|_| "unable to load root certificates: unable to parse bytes as PEM block")?;
        roots
            .add(certificate)
            .map_err(|why| format!("unable to load root certificates: {why}"))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|why| why.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

fn dialing(target: &str, why: &std::io::Error) -> String {
    match why.kind() {
        std::io::ErrorKind::ConnectionRefused => format!("dial tcp {target}: connect: connection refused"),
        _ => format!("dial tcp {target}: {why}"),
    }
}

/// A handshake that failed, in the words of the reference's library.
fn handshake(why: &std::io::Error, name: &str) -> String {
    let inner = why.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(inner) = inner else {
        return match why.kind() {
            std::io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
            _ => why.to_string(),
        };
    };
    let verify = |why: String| format!("tls: failed to verify certificate: x509: {why}");
    match inner {
        rustls::Error::InvalidCertificate(problem) => match problem {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                verify("certificate signed by unknown authority".to_owned())
            }
            CertificateError::NotValidForName => verify(format!("certificate is not valid for {name}")),
            CertificateError::NotValidForNameContext { presented, .. } => verify(not_valid_for(presented, name)),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                verify("certificate has expired or is not yet valid".to_owned())
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                verify("certificate has expired or is not yet valid".to_owned())
            }
            other => verify(other.to_string()),
        },
        rustls::Error::InvalidMessage(_) => "http: server gave HTTP response to HTTPS client".to_owned(),
        other => format!("tls: {other}"),
    }
}

fn not_valid_for(presented: &[String], name: &str) -> String {
    // As rustls writes them: DnsName("a.b"), IpAddress(127.0.0.1).
    let inner = |text: &str| {
        let inner = text.split_once('(').map_or(text, |(_, inner)| inner);
        inner.trim_end_matches(')').trim_matches('"').to_owned()
    };
    let is_address = name.parse::<std::net::IpAddr>().is_ok();
    let names: Vec<String> = presented
        .iter()
        .filter(|text| text.starts_with("IpAddress") == is_address)
        .map(|text| inner(text))
        .collect();
    match (names.as_slice(), is_address) {
        ([], true) => format!("cannot validate certificate for {name} because it doesn't contain any IP SANs"),
        ([], false) => format!("certificate is not valid for any names, but wanted to match {name}"),
        (names, _) => format!("certificate is valid for {}, not {name}", names.join(", ")),
    }
}

/// Where a Service is: a ready endpoint of its port. Nothing relays to its own address unless a node does.
fn address_of(store: &Store, service: &Service) -> Result<String, String> {
    let Service { namespace, name, port } = service;
    let found = store
        .head(&Key::new("", "services", Some(namespace), name))
        .and_then(|entry| object::decode(&entry).ok());
    let Some(found) = found else {
        return Err(format!("service {} not found", crate::fault::quote(name)));
    };
    let spec = found.get("spec").unwrap_or(&Value::Null);
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    if text(spec, "type") == "ExternalName" {
        return Ok(format!("{}:{port}", text(spec, "externalName")));
    }
    let ports = spec.get("ports").and_then(Value::as_array).into_iter().flatten();
    let Some(wanted) = ports
        .into_iter()
        .find(|found| found.get("port").and_then(Value::as_u64) == Some(u64::from(*port)))
    else {
        return Err(format!(
            "no service port {port} found for service {}",
            crate::fault::quote(name)
        ));
    };
    let port_name = text(wanted, "name");
    in_slices(store, namespace, name, &port_name)
        .or_else(|| in_endpoints(store, namespace, name, &port_name))
        .ok_or_else(|| format!("no endpoints available for service {}", crate::fault::quote(name)))
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}

fn port_named(ports: &Value, field: &str, wanted: &str) -> Option<u16> {
    let port =
        list(ports, field).find(|port| port.get("name").and_then(Value::as_str).unwrap_or_default() == wanted)?;
    u16::try_from(port.get("port")?.as_u64()?).ok()
}

fn joined(address: &str, port: u16) -> Option<String> {
    Some(SocketAddr::new(address.parse().ok()?, port).to_string())
}

fn in_slices(store: &Store, namespace: &str, name: &str, port: &str) -> Option<String> {
    let prefix = Key::prefix("discovery.k8s.io", "endpointslices", Some(namespace));
    let page = store.list(&prefix, None, None, 0).ok()?;
    page.entries.iter().find_map(|entry| {
        let slice = object::decode(entry).ok()?;
        let owner = object::meta(&slice).get("labels")?.get("kubernetes.io/service-name")?;
        if owner != name {
            return None;
        }
        let port = port_named(&slice, "ports", port)?;
        let ready = list(&slice, "endpoints").find(|endpoint| {
            // Not said is ready.
            endpoint.pointer("/conditions/ready") != Some(&Value::Bool(false))
        })?;
        joined(list(ready, "addresses").next()?.as_str()?, port)
    })
}

fn in_endpoints(store: &Store, namespace: &str, name: &str, port: &str) -> Option<String> {
    let entry = store.head(&Key::new("", "endpoints", Some(namespace), name))?;
    let endpoints = object::decode(&entry).ok()?;
    list(&endpoints, "subsets").find_map(|subset| {
        let port = port_named(subset, "ports", port)?;
        let address = list(subset, "addresses").next()?;
        joined(address.get("ip")?.as_str()?, port)
    })
}
