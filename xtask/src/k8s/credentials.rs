//! Keys, certificates and tokens of one control plane, made fresh for it. The CA's key is never written: nothing needs to
//! be signed later.

use std::fs::File;
use std::io::Read;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use super::folder::Folder;
use super::node;
use crate::error::{Error, Result};
use crate::paths;

/// Names and addresses the servers are called by.
const SERVING_NAMES: [&str; 7] = [
    "127.0.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "10.96.0.1",
];

/// Who wrote what, when. Writes of everybody, and reads of everybody but the control plane's own parts, whose informers
/// would drown the rest. One event per request, at its end.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: None
    nonResourceURLs: ['*']
  - level: None
    users: ['system:apiserver', 'system:kube-controller-manager', 'system:kube-scheduler']
    verbs: [get, list, watch]
  - level: None
    userGroups: ['system:serviceaccounts:kube-system', 'system:nodes']
    verbs: [get, list, watch]
  - level: Metadata
";

#[derive(Debug)]
pub(crate) struct Tokens {
    admin: String,
    controller_manager: String,
    scheduler: String,
    kubelet: String,
}

/// What does not depend on ports.
pub(crate) fn create(folder: &Folder) -> Result<Tokens> {
    let certificates = certificates().map_err(|error| Error::Machine(format!("cannot make certificates: {error}")))?;
    for (name, text) in &certificates {
        paths::write_private(&folder.file(name), text)?;
    }
    paths::write_private(&folder.file("audit-policy.yaml"), AUDIT_POLICY)?;
    let tokens = Tokens {
        admin: random_token()?,
        controller_manager: random_token()?,
        scheduler: random_token()?,
        kubelet: random_token()?,
    };
    let users = [
        (&tokens.admin, "admin", ",\"system:masters\""),
        (&tokens.controller_manager, "system:kube-controller-manager", ""),
        (&tokens.scheduler, "system:kube-scheduler", ""),
        (
            &tokens.kubelet,
            &format!("system:node:{}", node::NAME),
            ",\"system:nodes\"",
        ),
    ];
    let users: String = users
        .iter()
        .map(|(token, user, groups)| format!("{token},{user},{user}{groups}\n"))
        .collect();
    paths::write_private(&folder.file("tokens.csv"), &users)?;
    Ok(tokens)
}

pub(crate) fn write_kubeconfigs(folder: &Folder, tokens: &Tokens, server: &str) -> Result<()> {
    let ca = folder.file("ca.crt");
    let ca = ca.display().to_string().replace('\'', "''");
    let text = |user: &str, token: &str| {
        format!(
            "\
apiVersion: v1
kind: Config
clusters:
  - name: usher
    cluster: {{server: '{server}', certificate-authority: '{ca}'}}
users:
  - name: {user}
    user: {{token: '{token}'}}
contexts:
  - name: usher
    context: {{cluster: usher, user: {user}}}
current-context: usher
"
        )
    };
    paths::write_private(&folder.kubeconfig(), &text("admin", &tokens.admin))?;
    for (file, user, token) in [
        (
            "controller-manager.kubeconfig",
            "kube-controller-manager",
            &tokens.controller_manager,
        ),
        ("scheduler.kubeconfig", "kube-scheduler", &tokens.scheduler),
        ("kubelet.kubeconfig", "kubelet", &tokens.kubelet),
    ] {
        paths::write_private(&folder.file(file), &text(user, token))?;
    }
    Ok(())
}

fn certificates() -> std::result::Result<Vec<(&'static str, String)>, rcgen::Error> {
    let mut ca = CertificateParams::default();
    ca.distinguished_name.push(DnType::CommonName, "usher-test-ca");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca_key = KeyPair::generate()?;
    let ca_certificate = ca.self_signed(&ca_key)?;

    let mut server = CertificateParams::new(SERVING_NAMES.map(str::to_owned))?;
    server.distinguished_name.push(DnType::CommonName, "usher-test-server");
    let server_key = KeyPair::generate()?;
    let server_certificate = server.signed_by(&server_key, &Issuer::new(ca, ca_key))?;

    let service_accounts = KeyPair::generate()?;
    Ok(vec![
        ("ca.crt", ca_certificate.pem()),
        ("server.crt", server_certificate.pem()),
        ("server.key", server_key.serialize_pem()),
        ("service-accounts.key", service_accounts.serialize_pem()),
        ("service-accounts.pub", service_accounts.public_key_pem()),
    ])
}

fn random_token() -> Result<String> {
    let mut bytes = [0_u8; 32];
    let mut source = File::open("/dev/urandom").map_err(Error::io("open /dev/urandom"))?;
    source.read_exact(&mut bytes).map_err(Error::io("read /dev/urandom"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
