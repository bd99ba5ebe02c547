//! What clients call the TLS port by: each must be in its certificate.

use std::net::IpAddr;

use rustls::pki_types::ServerName;

/// DNS names and addresses, as given and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    names: Vec<(String, ServerName<'static>)>,
}

/// A name no certificate can carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// None at all.
    #[error("the TLS port has no name: give that of its Service with --tls-name")]
    None,
    /// One that is neither.
    #[error("{name:?} is neither a DNS name nor an IP address: correct --tls-name or --lease-namespace")]
    Bad {
        /// As given.
        name: String,
    },
}

impl Names {
    /// At least one name.
    pub fn new(
        dns: impl IntoIterator<Item = String>,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> Result<Self, NameError> {
        let all = dns
            .into_iter()
            .chain(addresses.into_iter().map(|address| address.to_string()));
        let names: Vec<_> = all
            .map(|name| match ServerName::try_from(name.clone()) {
                Ok(parsed) => Ok((name, parsed)),
                Err(_) => Err(NameError::Bad { name }),
            })
            .collect::<Result<_, _>>()?;
        if names.is_empty() {
            Err(NameError::None)
        } else {
            Ok(Self { names })
        }
    }

    /// All names of a Service inside its cluster. API servers use `name.namespace.svc`; people use the others.
    pub fn of_service(service: &str, namespace: &str) -> Result<Self, NameError> {
        let full = format!("{service}.{namespace}.svc");
        Self::new(
            [
                full.clone(),
                format!("{service}.{namespace}"),
                format!("{full}.cluster.local"),
            ],
            [],
        )
    }

    /// With the names of the machine itself, for `kubectl port-forward` and for an operator outside the cluster. All
    /// replicas must have the same names: they share one certificate.
    #[must_use]
    pub fn and_local(mut self) -> Self {
        for name in ["localhost", "127.0.0.1", "::1"] {
            self.names
                .extend(ServerName::try_from(name).map(|parsed| (name.to_owned(), parsed)));
        }
        self
    }

    pub(super) fn as_text(&self) -> Vec<String> {
        self.names.iter().map(|(text, _)| text.clone()).collect()
    }

    pub(super) fn as_server_names(&self) -> Vec<ServerName<'static>> {
        self.names.iter().map(|(_, name)| name.clone()).collect()
    }
}
