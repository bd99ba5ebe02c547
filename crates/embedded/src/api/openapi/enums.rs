//! Fields of built-in kinds that take one of a few words, which k8s-openapi's types do not list.

use std::collections::BTreeMap;

use serde_json::Value;

/// Definition (without `io.k8s.`), field, words; one of them may be empty. For a list they are its items'.
const WORDS: &[(&str, &str, &str)] = &[
    (
        "api.admissionregistration.v1.MutatingWebhook",
        "failurePolicy",
        "Fail Ignore",
    ),
    (
        "api.admissionregistration.v1.MutatingWebhook",
        "matchPolicy",
        "Equivalent Exact",
    ),
    (
        "api.admissionregistration.v1.MutatingWebhook",
        "reinvocationPolicy",
        "IfNeeded Never",
    ),
    (
        "api.admissionregistration.v1.MutatingWebhook",
        "sideEffects",
        "None NoneOnDryRun Some Unknown",
    ),
    (
        "api.admissionregistration.v1.RuleWithOperations",
        "operations",
        "* CONNECT CREATE DELETE UPDATE",
    ),
    (
        "api.admissionregistration.v1.RuleWithOperations",
        "scope",
        "* Cluster Namespaced",
    ),
    (
        "api.admissionregistration.v1.ValidatingWebhook",
        "failurePolicy",
        "Fail Ignore",
    ),
    (
        "api.admissionregistration.v1.ValidatingWebhook",
        "matchPolicy",
        "Equivalent Exact",
    ),
    (
        "api.admissionregistration.v1.ValidatingWebhook",
        "sideEffects",
        "None NoneOnDryRun Some Unknown",
    ),
    ("api.apps.v1.DeploymentStrategy", "type", "Recreate RollingUpdate"),
    (
        "api.apps.v1.StatefulSetSpec",
        "podManagementPolicy",
        "OrderedReady Parallel",
    ),
    (
        "api.apps.v1.StatefulSetUpdateStrategy",
        "type",
        "OnDelete RollingUpdate",
    ),
    (
        "api.core.v1.AppArmorProfile",
        "type",
        "Localhost RuntimeDefault Unconfined",
    ),
    (
        "api.core.v1.AzureDiskVolumeSource",
        "cachingMode",
        "None ReadOnly ReadWrite",
    ),
    ("api.core.v1.AzureDiskVolumeSource", "kind", "Dedicated Managed Shared"),
    ("api.core.v1.Container", "imagePullPolicy", "Always IfNotPresent Never"),
    (
        "api.core.v1.Container",
        "terminationMessagePolicy",
        "FallbackToLogsOnError File",
    ),
    ("api.core.v1.ContainerPort", "protocol", "SCTP TCP UDP"),
    (
        "api.core.v1.ContainerStatus",
        "stopSignal",
        "SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO SIGIOT SIGKILL SIGPIPE SIGPOLL SIGPROF SIGPWR SIGQUIT SIGRTMAX SIGRTMAX-1 SIGRTMAX-10 SIGRTMAX-11 SIGRTMAX-12 SIGRTMAX-13 SIGRTMAX-14 SIGRTMAX-2 SIGRTMAX-3 SIGRTMAX-4 SIGRTMAX-5 SIGRTMAX-6 SIGRTMAX-7 SIGRTMAX-8 SIGRTMAX-9 SIGRTMIN SIGRTMIN+1 SIGRTMIN+10 SIGRTMIN+11 SIGRTMIN+12 SIGRTMIN+13 SIGRTMIN+14 SIGRTMIN+15 SIGRTMIN+2 SIGRTMIN+3 SIGRTMIN+4 SIGRTMIN+5 SIGRTMIN+6 SIGRTMIN+7 SIGRTMIN+8 SIGRTMIN+9 SIGSEGV SIGSTKFLT SIGSTOP SIGSYS SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ",
    ),
    ("api.core.v1.EndpointPort", "protocol", "SCTP TCP UDP"),
    (
        "api.core.v1.EphemeralContainer",
        "imagePullPolicy",
        "Always IfNotPresent Never",
    ),
    (
        "api.core.v1.EphemeralContainer",
        "terminationMessagePolicy",
        "FallbackToLogsOnError File",
    ),
    ("api.core.v1.HTTPGetAction", "scheme", "HTTP HTTPS"),
    (
        "api.core.v1.HostPathVolumeSource",
        "type",
        " BlockDevice CharDevice Directory DirectoryOrCreate File FileOrCreate Socket",
    ),
    (
        "api.core.v1.ImageVolumeSource",
        "pullPolicy",
        "Always IfNotPresent Never",
    ),
    (
        "api.core.v1.Lifecycle",
        "stopSignal",
        "SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO SIGIOT SIGKILL SIGPIPE SIGPOLL SIGPROF SIGPWR SIGQUIT SIGRTMAX SIGRTMAX-1 SIGRTMAX-10 SIGRTMAX-11 SIGRTMAX-12 SIGRTMAX-13 SIGRTMAX-14 SIGRTMAX-2 SIGRTMAX-3 SIGRTMAX-4 SIGRTMAX-5 SIGRTMAX-6 SIGRTMAX-7 SIGRTMAX-8 SIGRTMAX-9 SIGRTMIN SIGRTMIN+1 SIGRTMIN+10 SIGRTMIN+11 SIGRTMIN+12 SIGRTMIN+13 SIGRTMIN+14 SIGRTMIN+15 SIGRTMIN+2 SIGRTMIN+3 SIGRTMIN+4 SIGRTMIN+5 SIGRTMIN+6 SIGRTMIN+7 SIGRTMIN+8 SIGRTMIN+9 SIGSEGV SIGSTKFLT SIGSTOP SIGSYS SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ",
    ),
    (
        "api.core.v1.ModifyVolumeStatus",
        "status",
        "InProgress Infeasible Pending",
    ),
    ("api.core.v1.NamespaceStatus", "phase", "Active Terminating"),
    (
        "api.core.v1.NodeSelectorRequirement",
        "operator",
        "DoesNotExist Exists Gt In Lt NotIn",
    ),
    ("api.core.v1.NodeStatus", "phase", "Pending Running Terminated"),
    (
        "api.core.v1.PersistentVolumeClaimSpec",
        "accessModes",
        "ReadOnlyMany ReadWriteMany ReadWriteOnce ReadWriteOncePod",
    ),
    (
        "api.core.v1.PersistentVolumeClaimSpec",
        "volumeMode",
        "Block Filesystem",
    ),
    (
        "api.core.v1.PersistentVolumeClaimStatus",
        "accessModes",
        "ReadOnlyMany ReadWriteMany ReadWriteOnce ReadWriteOncePod",
    ),
    ("api.core.v1.PersistentVolumeClaimStatus", "phase", "Bound Lost Pending"),
    (
        "api.core.v1.PersistentVolumeSpec",
        "accessModes",
        "ReadOnlyMany ReadWriteMany ReadWriteOnce ReadWriteOncePod",
    ),
    (
        "api.core.v1.PersistentVolumeSpec",
        "persistentVolumeReclaimPolicy",
        "Delete Recycle Retain",
    ),
    ("api.core.v1.PersistentVolumeSpec", "volumeMode", "Block Filesystem"),
    (
        "api.core.v1.PersistentVolumeStatus",
        "phase",
        "Available Bound Failed Pending Released",
    ),
    (
        "api.core.v1.PodSecurityContext",
        "fsGroupChangePolicy",
        "Always OnRootMismatch",
    ),
    (
        "api.core.v1.PodSecurityContext",
        "supplementalGroupsPolicy",
        "Merge Strict",
    ),
    (
        "api.core.v1.PodSpec",
        "dnsPolicy",
        "ClusterFirst ClusterFirstWithHostNet Default None",
    ),
    ("api.core.v1.PodSpec", "preemptionPolicy", "Never PreemptLowerPriority"),
    ("api.core.v1.PodSpec", "restartPolicy", "Always Never OnFailure"),
    (
        "api.core.v1.PodStatus",
        "phase",
        "Failed Pending Running Succeeded Unknown",
    ),
    ("api.core.v1.PodStatus", "qosClass", "BestEffort Burstable Guaranteed"),
    ("api.core.v1.PortStatus", "protocol", "SCTP TCP UDP"),
    (
        "api.core.v1.SeccompProfile",
        "type",
        "Localhost RuntimeDefault Unconfined",
    ),
    ("api.core.v1.SecurityContext", "procMount", "Default Unmasked"),
    ("api.core.v1.ServicePort", "protocol", "SCTP TCP UDP"),
    ("api.core.v1.ServiceSpec", "externalTrafficPolicy", "Cluster Local"),
    ("api.core.v1.ServiceSpec", "internalTrafficPolicy", "Cluster Local"),
    ("api.core.v1.ServiceSpec", "ipFamilies", " IPv4 IPv6"),
    (
        "api.core.v1.ServiceSpec",
        "ipFamilyPolicy",
        "PreferDualStack RequireDualStack SingleStack",
    ),
    ("api.core.v1.ServiceSpec", "sessionAffinity", "ClientIP None"),
    (
        "api.core.v1.ServiceSpec",
        "type",
        "ClusterIP ExternalName LoadBalancer NodePort",
    ),
    ("api.core.v1.Taint", "effect", "NoExecute NoSchedule PreferNoSchedule"),
    (
        "api.core.v1.Toleration",
        "effect",
        "NoExecute NoSchedule PreferNoSchedule",
    ),
    ("api.core.v1.Toleration", "operator", "Equal Exists Gt Lt"),
    (
        "api.core.v1.TopologySpreadConstraint",
        "nodeAffinityPolicy",
        "Honor Ignore",
    ),
    (
        "api.core.v1.TopologySpreadConstraint",
        "nodeTaintsPolicy",
        "Honor Ignore",
    ),
    (
        "api.core.v1.TopologySpreadConstraint",
        "whenUnsatisfiable",
        "DoNotSchedule ScheduleAnyway",
    ),
    (
        "api.core.v1.VolumeMount",
        "mountPropagation",
        "Bidirectional HostToContainer None",
    ),
    ("api.discovery.v1.EndpointPort", "protocol", "SCTP TCP UDP"),
    ("api.discovery.v1.EndpointSlice", "addressType", "FQDN IPv4 IPv6"),
    ("api.networking.v1.NetworkPolicyPort", "protocol", "SCTP TCP UDP"),
    ("api.networking.v1.NetworkPolicySpec", "policyTypes", "Egress Ingress"),
    (
        "api.policy.v1.PodDisruptionBudgetSpec",
        "unhealthyPodEvictionPolicy",
        "AlwaysAllow IfHealthyBudget",
    ),
    (
        "api.resource.v1.DeviceAllocationConfiguration",
        "source",
        "FromClaim FromClass",
    ),
    ("api.resource.v1.DeviceSubRequest", "allocationMode", "All ExactCount"),
    (
        "api.resource.v1.DeviceToleration",
        "effect",
        "NoExecute NoSchedule None",
    ),
    ("api.resource.v1.DeviceToleration", "operator", "Equal Exists"),
    ("api.resource.v1.ExactDeviceRequest", "allocationMode", "All ExactCount"),
    (
        "api.scheduling.v1.PriorityClass",
        "preemptionPolicy",
        "Never PreemptLowerPriority",
    ),
    ("api.storage.v1.StorageClass", "reclaimPolicy", "Delete Recycle Retain"),
    (
        "api.storage.v1.StorageClass",
        "volumeBindingMode",
        "Immediate WaitForFirstConsumer",
    ),
    (
        "apiextensions-apiserver.pkg.apis.apiextensions.v1.ValidationRule",
        "reason",
        "FieldValueDuplicate FieldValueForbidden FieldValueInvalid FieldValueRequired",
    ),
];

/// Adds them to their definitions.
pub fn add(all: &mut BTreeMap<String, Value>) {
    for (definition, field, words) in WORDS {
        let property = all
            .get_mut(&format!("io.k8s.{definition}"))
            .and_then(|schema| schema.pointer_mut(&format!("/properties/{field}")));
        let Some(Value::Object(property)) = property else {
            continue;
        };
        let target = match property.get("type").is_some_and(|kind| kind == "array") {
            true => property.get_mut("items").and_then(Value::as_object_mut),
            false => Some(property),
        };
        if let Some(target) = target {
            target.insert("enum".into(), words.split(' ').map(Value::from).collect());
        }
    }
}
