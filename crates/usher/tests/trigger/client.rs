//! Somebody who sends triggers, and what they get back.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::PostParams;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use crate::support::world::eventually;
use crate::support::{Operator, World};

pub type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Longest wait for an answer: more than anything may take.
const PATIENCE: Duration = Duration::from_secs(90);

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Value,
}

impl Answer {
    /// From the bytes of a whole answer; `None` when there are none.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some(Self {
            status: head[9..12].parse().unwrap(),
            head: head.to_lowercase(),
            body: serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {text}")),
        })
    }

    /// The sentence of a refusal.
    pub fn message(&self) -> &str {
        assert_eq!(self.body["code"], self.status, "{self:?}");
        self.body["message"].as_str().unwrap()
    }
}

/// What is needed to speak to one operator.
#[derive(Debug, Clone)]
pub struct Client {
    address: SocketAddr,
    tls: Arc<ClientConfig>,
}

impl Client {
    /// Trusts what the operator has published.
    pub async fn of(world: &World, operator: &Operator) -> Self {
        let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
        let mut bundle = String::new();
        eventually("what clients are to trust is published", async || {
            let found = maps.get_opt("usher-operator-ca").await.unwrap();
            bundle = found.and_then(|map| map.data?.remove("ca.crt")).unwrap_or_default();
            !bundle.is_empty()
        })
        .await;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            address: operator.tls,
            tls: Arc::new(tls),
        }
    }

    pub fn connect(&self, name: &str) -> std::io::Result<Stream> {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let connection = ClientConnection::new(self.tls.clone(), name).unwrap();
        let socket = TcpStream::connect(self.address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(StreamOwned::new(connection, socket))
    }

    /// One request on a connection of its own.
    pub async fn send(&self, method: &str, path: &str, token: Option<&str>) -> Answer {
        let authorization = token.map_or_else(String::new, |token| format!("authorization: Bearer {token}\r\n"));
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: usher\r\nconnection: close\r\n{authorization}content-length: 0\r\n\r\n"
        );
        let client = self.clone();
        let exchange = move || {
            let mut stream = client.connect("localhost").unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            Answer::read(&rest(&mut stream)).expect("an answer")
        };
        tokio::task::spawn_blocking(exchange).await.unwrap()
    }

    pub async fn post(&self, path: &str, token: &str) -> Answer {
        self.send("POST", path, Some(token)).await
    }
}

/// Everything until the server ends the connection, however it does that.
pub fn rest(stream: &mut Stream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

impl World {
    pub fn path(&self, pool: &str) -> String {
        format!("/v1/trigger/subnetpools/{}/{pool}", self.namespace)
    }

    /// A token of a new ServiceAccount that may do this, and nothing else.
    pub async fn token(&self, name: &str, rules: Value) -> String {
        let namespace = &self.namespace;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let roles: Api<Role> = Api::namespaced(self.client.clone(), namespace);
        let bindings: Api<RoleBinding> = Api::namespaced(self.client.clone(), namespace);
        let params = PostParams::default();
        let account = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        accounts.create(&params, &account).await.unwrap();
        let role = serde_json::from_value(json!({"metadata": {"name": name}, "rules": rules})).unwrap();
        roles.create(&params, &role).await.unwrap();
        let binding = serde_json::from_value(json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }));
        bindings.create(&params, &binding.unwrap()).await.unwrap();
        let request: TokenRequest = serde_json::from_value(json!({
            "spec": {"audiences": [], "expirationSeconds": 3600},
        }))
        .unwrap();
        let answer = accounts.create_token_request(name, &params, &request).await.unwrap();
        answer.status.unwrap().token.unwrap()
    }

    /// The lease belongs to somebody who is not there.
    pub async fn take_lease(&self) {
        use k8s_openapi::api::coordination::v1::Lease;
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let lease = json!({
            "metadata": {"name": "usher-operator"},
            "spec": {"holderIdentity": "somebody-else", "leaseDurationSeconds": 3600},
        });
        let lease = serde_json::from_value(lease).unwrap();
        leases.create(&PostParams::default(), &lease).await.unwrap();
    }
}

/// May update these pools.
pub fn update(pools: &[&str]) -> Value {
    json!([{"apiGroups": ["plexaubnet.io"], "resources": ["subnetpools"], "resourceNames": pools, "verbs": ["update"]}])
}
