//! The Node and the Lease that a node's agent keeps: pure functions from an entry. The process node and the hollow node
//! both write what is made here.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec, NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};
use std::collections::BTreeMap;

use super::NodeEntry;

/// Where the Leases of nodes are.
pub(crate) const LEASES: &str = "kube-node-lease";
/// How often an agent renews its Lease, and for how long each renewal speaks (C9): the reference's numbers.
const RENEWAL: SignedDuration = SignedDuration::from_secs(10);
const LEASE_SECONDS: i32 = 40;
/// Where the reference's kubelet listens. Nobody does here: logs and exec go through the API server itself.
const KUBELET_PORT: i32 = 10_250;

/// How often an agent renews its Lease where nodes may be silent for this long: often enough that none is given up that lives.
pub(crate) fn renewal(grace: SignedDuration) -> SignedDuration {
    RENEWAL.min(grace / 4)
}

/// What an agent knows of its node besides the entry.
#[derive(Debug, Clone)]
pub(crate) struct Report<'a> {
    /// Its InternalIP.
    pub(crate) address: &'a str,
    /// For example `usher://0.1.0`.
    pub(crate) runtime: &'a str,
    pub(crate) kernel: &'a str,
    pub(crate) os_image: &'a str,
    /// Empty, or why it is not ready.
    pub(crate) trouble: &'a str,
    pub(crate) now: Timestamp,
}

/// The Node to create. Admission adds the taint `not-ready`, and the node controller takes it away.
pub(crate) fn node(entry: &NodeEntry, report: &Report<'_>) -> Node {
    let mut labels = entry.labels.clone();
    // The names of long ago, which the reference still writes.
    for (old, new) in [
        ("beta.kubernetes.io/arch", super::ARCH),
        ("beta.kubernetes.io/os", super::OS),
    ] {
        if let Some(value) = entry.labels.get(new) {
            labels.insert(old.to_owned(), value.clone());
        }
    }
    Node {
        metadata: ObjectMeta {
            name: Some(entry.name.clone()),
            labels: Some(labels),
            annotations: Some(
                [(
                    "volumes.kubernetes.io/controller-managed-attach-detach".to_owned(),
                    "true".to_owned(),
                )]
                .into(),
            ),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            taints: (!entry.taints.is_empty()).then(|| entry.taints.clone()),
            ..NodeSpec::default()
        }),
        status: Some(status(entry, report, None)),
    }
}

/// What the agent says of its node. A condition that stays as it was keeps the time since when it is so.
pub(crate) fn status(entry: &NodeEntry, report: &Report<'_>, before: Option<&NodeStatus>) -> NodeStatus {
    let resources = resources(entry);
    let address = |kind: &str, address: &str| NodeAddress {
        type_: kind.to_owned(),
        address: address.to_owned(),
    };
    NodeStatus {
        capacity: Some(resources.clone()),
        allocatable: Some(resources),
        conditions: Some(conditions(report, before)),
        addresses: Some(vec![
            address("InternalIP", report.address),
            address("Hostname", &entry.name),
        ]),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: KUBELET_PORT }),
        }),
        node_info: Some(system_info(entry, report)),
        volumes_attached: before.and_then(|before| before.volumes_attached.clone()),
        volumes_in_use: before.and_then(|before| before.volumes_in_use.clone()),
        ..NodeStatus::default()
    }
}

fn resources(entry: &NodeEntry) -> BTreeMap<String, Quantity> {
    let capacity = &entry.capacity;
    let mut resources: BTreeMap<String, Quantity> = capacity
        .extended
        .iter()
        .map(|(name, amount)| (name.clone(), Quantity(amount.clone())))
        .collect();
    resources.insert("cpu".to_owned(), Quantity(capacity.cpu.clone()));
    resources.insert("memory".to_owned(), Quantity(capacity.memory.clone()));
    resources.insert("pods".to_owned(), Quantity(capacity.pods.to_string()));
    resources
}

fn conditions(report: &Report<'_>, before: Option<&NodeStatus>) -> Vec<NodeCondition> {
    let ready = if report.trouble.is_empty() {
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status")
    } else {
        ("Ready", "False", "KubeletNotReady", report.trouble)
    };
    let all = [
        (
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        (
            "DiskPressure",
            "False",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ),
        (
            "PIDPressure",
            "False",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
        ready,
    ];
    let before = before.and_then(|before| before.conditions.as_ref());
    all.into_iter()
        .map(|(kind, status, reason, message)| {
            let same = before
                .into_iter()
                .flatten()
                .find(|condition| condition.type_ == kind && condition.status == status);
            NodeCondition {
                type_: kind.to_owned(),
                status: status.to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message.to_owned()),
                last_heartbeat_time: Some(Time(report.now)),
                last_transition_time: same
                    .and_then(|condition| condition.last_transition_time.clone())
                    .or(Some(Time(report.now))),
            }
        })
        .collect()
}

fn system_info(entry: &NodeEntry, report: &Report<'_>) -> NodeSystemInfo {
    // Nothing reads these three; they are told apart by node, and stay the same over restarts.
    let id = |what: &str| {
        let (high, low) = (
            super::super::hollow::hash(&[what, &entry.name]),
            super::super::hollow::hash(&[&entry.name, what]),
        );
        format!("{high:016x}{low:016x}")
    };
    NodeSystemInfo {
        architecture: entry.labels.get(super::ARCH).cloned().unwrap_or_default(),
        boot_id: id("boot"),
        container_runtime_version: report.runtime.to_owned(),
        kernel_version: report.kernel.to_owned(),
        // The reference has given this field up and writes it empty.
        kube_proxy_version: String::new(),
        kubelet_version: concat!("v1.36.0+usher.", env!("CARGO_PKG_VERSION")).to_owned(),
        machine_id: id("machine"),
        operating_system: "linux".to_owned(),
        os_image: report.os_image.to_owned(),
        swap: None,
        system_uuid: id("system"),
    }
}

/// The Lease to create for a Node, or to write over its older one (whose `metadata` is then kept).
pub(crate) fn lease(node: &Node, before: Option<&Lease>, now: Timestamp) -> Lease {
    let name = node.metadata.name.clone().unwrap_or_default();
    let metadata = match before {
        Some(before) => before.metadata.clone(),
        None => ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(LEASES.to_owned()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: name.clone(),
                uid: node.metadata.uid.clone().unwrap_or_default(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
    };
    Lease {
        metadata,
        spec: Some(LeaseSpec {
            holder_identity: Some(name),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c9_a_lease_is_renewed_every_10_s_or_four_times_within_the_grace() {
        let seconds = SignedDuration::from_secs;
        for grace in [seconds(50), seconds(40), seconds(3_600)] {
            assert_eq!(renewal(grace), seconds(10));
        }
        assert_eq!(renewal(seconds(20)), seconds(5));
        assert_eq!(renewal(seconds(2)), SignedDuration::from_millis(500));
    }
}
