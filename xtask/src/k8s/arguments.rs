//! How each server is started, and where it serves.

use super::folder::Folder;
use super::node;
use super::state::Component;

/// Service addresses; nothing routes them, but Services need some.
const SERVICE_RANGE: &str = "10.96.0.0/16";
/// 8 GiB, etcd's advised maximum: no test shall meet the 2 GiB default.
const ETCD_QUOTA_BYTES: u64 = 8 << 30;
/// Megabytes before the API server starts a new audit log; above what any test run writes, so that one file tells all.
const AUDIT_LOG_MEGABYTES: u32 = 2048;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Choices {
    pub(crate) api_port: u16,
    pub(crate) controller_port: u16,
    pub(crate) scheduler_port: u16,
    /// With a kubelet, which needs to be let in.
    pub(crate) node: bool,
    /// Sync every write to disk. Off, a crash of the machine (not of a process) loses data, and tests run faster.
    pub(crate) durable: bool,
}

pub(crate) fn address(component: Component, folder: &Folder, choices: Choices) -> String {
    match component {
        Component::Etcd => folder.file("etcd.sock").display().to_string(),
        Component::KubeApiserver => format!("https://127.0.0.1:{}", choices.api_port),
        Component::KubeControllerManager => format!("https://127.0.0.1:{}", choices.controller_port),
        Component::KubeScheduler => format!("https://127.0.0.1:{}", choices.scheduler_port),
        Component::Containerd => node::socket(folder).display().to_string(),
        Component::Kubelet => node::KUBELET_HEALTH.to_owned(),
    }
}

pub(crate) fn arguments(component: Component, folder: &Folder, choices: Choices) -> Vec<String> {
    match component {
        Component::Etcd => etcd(folder, choices.durable),
        Component::KubeApiserver => kube_apiserver(folder, choices),
        Component::KubeControllerManager => kube_controller_manager(folder, choices.controller_port),
        Component::KubeScheduler => kube_scheduler(folder, choices.scheduler_port),
        Component::Containerd => node::containerd(folder),
        Component::Kubelet => node::kubelet(folder),
    }
}

/// etcd has no user check here, so it listens on sockets in the 0700 folder, not on ports any local user could reach.
fn etcd(folder: &Folder, durable: bool) -> Vec<String> {
    let file = |name: &str| folder.file(name).display().to_string();
    let mut arguments = vec![
        "--name=usher".to_owned(),
        format!("--data-dir={}", file("etcd")),
        format!("--listen-client-urls=unix://{}", file("etcd.sock")),
        // Relative to the working folder: etcd drops the path of a peer URL and would listen on an unprotected
        // abstract socket.
        "--listen-peer-urls=unix://peer.sock".to_owned(),
        // Must have the form host:port; there is no other member to dial it.
        "--advertise-client-urls=unix://localhost:0".to_owned(),
        "--initial-advertise-peer-urls=unix://localhost:0".to_owned(),
        "--initial-cluster=usher=unix://localhost:0".to_owned(),
        format!("--quota-backend-bytes={ETCD_QUOTA_BYTES}"),
    ];
    if !durable {
        arguments.push("--unsafe-no-fsync".to_owned());
    }
    arguments
}

fn kube_apiserver(folder: &Folder, choices: Choices) -> Vec<String> {
    let file = |name: &str| folder.file(name).display().to_string();
    vec![
        format!("--etcd-servers=unix://{}", file("etcd.sock")),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", choices.api_port),
        "--advertise-address=127.0.0.1".to_owned(),
        // The Endpoints of Service `kubernetes` may not be a loopback address; nobody here calls it by that Service.
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--tls-cert-file={}", file("server.crt")),
        format!("--tls-private-key-file={}", file("server.key")),
        format!("--token-auth-file={}", file("tokens.csv")),
        // Nobody has a certificate of this CA (its key is gone), but controllers look for the ConfigMap this makes.
        format!("--client-ca-file={}", file("ca.crt")),
        "--anonymous-auth=false".to_owned(),
        format!("--authorization-mode={}RBAC", if choices.node { "Node," } else { "" }),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!("--service-account-key-file={}", file("service-accounts.pub")),
        format!("--service-account-signing-key-file={}", file("service-accounts.key")),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        "--allow-privileged=true".to_owned(),
        // Webhook and aggregated Services resolve to their endpoints, since no kube-proxy routes Service addresses.
        "--enable-aggregator-routing=true".to_owned(),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        format!("--audit-policy-file={}", file("audit-policy.yaml")),
        format!("--audit-log-path={}", file("audit.log")),
        format!("--audit-log-maxsize={AUDIT_LOG_MEGABYTES}"),
        "--profiling=false".to_owned(),
    ]
}

fn kube_controller_manager(folder: &Folder, port: u16) -> Vec<String> {
    let file = |name: &str| folder.file(name).display().to_string();
    let mut arguments = beside_the_server(folder, "controller-manager.kubeconfig", port);
    arguments.extend([
        format!("--root-ca-file={}", file("ca.crt")),
        format!("--service-account-private-key-file={}", file("service-accounts.key")),
        // Each controller as its own ServiceAccount, as clusters do: the audit log tells them apart.
        "--use-service-account-credentials=true".to_owned(),
        // It makes this folder, by default one of the machine's.
        format!("--flex-volume-plugin-dir={}", file("flexvolume")),
    ]);
    arguments
}

fn kube_scheduler(folder: &Folder, port: u16) -> Vec<String> {
    beside_the_server(folder, "scheduler.kubeconfig", port)
}

/// What all that work through the API server are told.
fn beside_the_server(folder: &Folder, kubeconfig: &str, port: u16) -> Vec<String> {
    let file = |name: &str| folder.file(name).display().to_string();
    let kubeconfig = file(kubeconfig);
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", file("server.crt")),
        format!("--tls-private-key-file={}", file("server.key")),
        // Their defaults, 20 and 50 a second, make a start with a ServiceAccount for each controller take three times as
        // long, and a thousand pods wait for them.
        "--kube-api-qps=300".to_owned(),
        "--kube-api-burst=600".to_owned(),
        // There is one of each; waiting for a lease would only delay it.
        "--leader-elect=false".to_owned(),
        "--profiling=false".to_owned(),
    ]
}
