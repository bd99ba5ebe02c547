//! The rows of all built-in kinds, as one table.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::{definition, plain_columns};
use crate::registry::row::{BuiltIn, Column, Columns, Row, Rules, ScalePaths, Version};
use crate::schema::Schema;

const ALL: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
/// Namespaces are deleted one by one.
const NAMESPACE: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const CREATE: &[&str] = &["create"];

type Printed = (&'static [Column], fn(&Value, Timestamp) -> Vec<Value>);

const PLAIN: Printed = (plain_columns::COLUMNS, plain_columns::cells);

/// One line of the table.
#[derive(Debug, Clone, Copy)]
struct Line {
    /// The definition's package: `io.k8s.api.core.v1`.
    package: &'static str,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    verbs: &'static [&'static str],
    status: bool,
    scale: bool,
    rules: &'static BuiltIn,
    printed: Printed,
    deprecated: Option<&'static str>,
}

impl Line {
    const fn new(
        package: &'static str,
        group: &'static str,
        kind: &'static str,
        plural: &'static str,
        rules: &'static BuiltIn,
    ) -> Self {
        Self {
            package,
            group,
            version: "v1",
            kind,
            plural,
            short: &[],
            categories: &[],
            namespaced: true,
            verbs: ALL,
            status: false,
            scale: false,
            rules,
            printed: PLAIN,
            deprecated: None,
        }
    }

    const fn core(kind: &'static str, plural: &'static str, rules: &'static BuiltIn) -> Self {
        Self::new("io.k8s.api.core.v1", "", kind, plural, rules)
    }

    const fn apps(kind: &'static str, plural: &'static str, rules: &'static BuiltIn) -> Self {
        Self::new("io.k8s.api.apps.v1", "apps", kind, plural, rules)
    }

    const fn rbac(kind: &'static str, plural: &'static str, rules: &'static BuiltIn) -> Self {
        Self::new("io.k8s.api.rbac.v1", "rbac.authorization.k8s.io", kind, plural, rules)
    }

    const fn webhook(kind: &'static str, plural: &'static str, rules: &'static BuiltIn) -> Self {
        Self::new(
            "io.k8s.api.admissionregistration.v1",
            "admissionregistration.k8s.io",
            kind,
            plural,
            rules,
        )
        .cluster()
        .categories(&["api-extensions"])
    }

    const fn authentication(kind: &'static str, plural: &'static str) -> Self {
        Self::new(
            "io.k8s.api.authentication.v1",
            "authentication.k8s.io",
            kind,
            plural,
            &super::reviews::RULES,
        )
        .verbs(CREATE)
        .cluster()
    }

    const fn authorization(kind: &'static str, plural: &'static str) -> Self {
        Self::new(
            "io.k8s.api.authorization.v1",
            "authorization.k8s.io",
            kind,
            plural,
            &super::reviews::RULES,
        )
        .verbs(CREATE)
    }

    const fn short(mut self, names: &'static [&'static str]) -> Self {
        self.short = names;
        self
    }

    const fn categories(mut self, names: &'static [&'static str]) -> Self {
        self.categories = names;
        self
    }

    const fn cluster(mut self) -> Self {
        self.namespaced = false;
        self
    }

    const fn verbs(mut self, verbs: &'static [&'static str]) -> Self {
        self.verbs = verbs;
        self
    }

    const fn version(mut self, version: &'static str) -> Self {
        self.version = version;
        self
    }

    const fn status(mut self) -> Self {
        self.status = true;
        self
    }

    const fn deprecated(mut self, warning: &'static str) -> Self {
        self.deprecated = Some(warning);
        self
    }

    const fn scale(mut self) -> Self {
        self.scale = true;
        self
    }

    fn row(&self) -> Row {
        let name = format!("{}.{}", self.package, self.kind);
        // Every line's definition is there: a test holds it.
        let schema = definition(&name).unwrap_or_else(|| Arc::new(Schema::default()));
        let (columns, cells) = self.printed;
        Row {
            group: self.group.into(),
            kind: self.kind.into(),
            list_kind: format!("{}List", self.kind).into(),
            plural: self.plural.into(),
            singular: self.kind.to_lowercase().into(),
            short_names: self.short.iter().map(|&name| name.into()).collect(),
            categories: self.categories.iter().map(|&name| name.into()).collect(),
            namespaced: self.namespaced,
            verbs: self.verbs,
            versions: vec![Version {
                name: self.version.into(),
                served: true,
                storage: true,
                deprecated: self.deprecated.map(Into::into),
                schema,
                has_status: self.status,
                scale: self.scale.then(|| ScalePaths {
                    spec_replicas: "spec.replicas".into(),
                    status_replicas: "status.replicas".into(),
                    selector: Some("spec.selector".into()),
                }),
                columns: Columns::BuiltIn { columns, cells },
                selectable: self.rules.fields.iter().map(|&(name, _)| name.into()).collect(),
            }],
            rules: Rules::BuiltIn(self.rules),
        }
    }
}

const LINES: &[Line] = &[
    Line::core("Namespace", "namespaces", &super::namespace::RULES)
        .short(&["ns"])
        .cluster()
        .verbs(NAMESPACE)
        .status(),
    Line::core("Pod", "pods", &super::pod::RULES)
        .short(&["po"])
        .categories(&["all"])
        .status(),
    Line::core("Service", "services", &super::service::RULES)
        .short(&["svc"])
        .categories(&["all"])
        .status(),
    Line::core("ConfigMap", "configmaps", &super::config_map::RULES).short(&["cm"]),
    Line::core("Secret", "secrets", &super::secret::RULES),
    Line::core("ServiceAccount", "serviceaccounts", &super::service_account::RULES).short(&["sa"]),
    Line::core("Endpoints", "endpoints", &super::endpoints::RULES)
        .short(&["ep"])
        .deprecated("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
    Line::core("PersistentVolumeClaim", "persistentvolumeclaims", &super::claim::RULES)
        .short(&["pvc"])
        .status(),
    Line::core("PersistentVolume", "persistentvolumes", &super::volume::RULES)
        .short(&["pv"])
        .cluster()
        .status(),
    Line::core("Node", "nodes", &super::node::RULES)
        .short(&["no"])
        .cluster()
        .status(),
    Line::core("Event", "events", &super::events::CORE_RULES).short(&["ev"]),
    Line::new(
        "io.k8s.api.events.v1",
        "events.k8s.io",
        "Event",
        "events",
        &super::events::RULES,
    )
    .short(&["ev"]),
    Line::apps("Deployment", "deployments", &super::deployment::RULES)
        .short(&["deploy"])
        .categories(&["all"])
        .status()
        .scale(),
    Line::apps("ReplicaSet", "replicasets", &super::replica_set::RULES)
        .short(&["rs"])
        .categories(&["all"])
        .status()
        .scale(),
    Line::apps("StatefulSet", "statefulsets", &super::stateful_set::RULES)
        .short(&["sts"])
        .categories(&["all"])
        .status()
        .scale(),
    Line::apps(
        "ControllerRevision",
        "controllerrevisions",
        &super::controller_revision::RULES,
    ),
    Line::new(
        "io.k8s.api.policy.v1",
        "policy",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        &super::disruption::RULES,
    )
    .short(&["pdb"])
    .status(),
    Line::new(
        "io.k8s.api.coordination.v1",
        "coordination.k8s.io",
        "Lease",
        "leases",
        &super::lease::RULES,
    ),
    Line::new(
        "io.k8s.api.discovery.v1",
        "discovery.k8s.io",
        "EndpointSlice",
        "endpointslices",
        &super::endpoint_slice::RULES,
    ),
    Line::new(
        "io.k8s.api.storage.v1",
        "storage.k8s.io",
        "StorageClass",
        "storageclasses",
        &super::storage_class::RULES,
    )
    .short(&["sc"])
    .cluster(),
    Line::new(
        "io.k8s.api.scheduling.v1",
        "scheduling.k8s.io",
        "PriorityClass",
        "priorityclasses",
        &super::priority_class::RULES,
    )
    .short(&["pc"])
    .cluster(),
    Line::new(
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        &super::crd::RULES,
    )
    .short(&["crd", "crds"])
    .categories(&["api-extensions"])
    .cluster()
    .status(),
    Line::webhook(
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        &super::webhooks::MUTATING,
    ),
    Line::webhook(
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        &super::webhooks::VALIDATING,
    ),
    Line::rbac("Role", "roles", &super::rbac::ROLE),
    Line::rbac("RoleBinding", "rolebindings", &super::rbac::ROLE_BINDING),
    Line::rbac("ClusterRole", "clusterroles", &super::rbac::CLUSTER_ROLE).cluster(),
    Line::rbac(
        "ClusterRoleBinding",
        "clusterrolebindings",
        &super::rbac::CLUSTER_ROLE_BINDING,
    )
    .cluster(),
    Line::new(
        "io.k8s.api.autoscaling.v2",
        "autoscaling",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        &super::autoscaler::RULES,
    )
    .version("v2")
    .short(&["hpa"])
    .categories(&["all"])
    .status(),
    Line::new(
        "io.k8s.api.networking.v1",
        "networking.k8s.io",
        "NetworkPolicy",
        "networkpolicies",
        &super::network_policy::RULES,
    )
    .short(&["netpol"]),
    Line::new(
        "io.k8s.api.resource.v1",
        "resource.k8s.io",
        "ResourceClaim",
        "resourceclaims",
        &super::resource_claim::RULES,
    )
    .status(),
    Line::new(
        "io.k8s.api.resource.v1",
        "resource.k8s.io",
        "ResourceClaimTemplate",
        "resourceclaimtemplates",
        &super::resource_claim::TEMPLATE,
    ),
    Line::authentication("TokenReview", "tokenreviews"),
    Line::authentication("SelfSubjectReview", "selfsubjectreviews"),
    Line::authorization("SubjectAccessReview", "subjectaccessreviews").cluster(),
    Line::authorization("SelfSubjectAccessReview", "selfsubjectaccessreviews").cluster(),
    Line::authorization("LocalSubjectAccessReview", "localsubjectaccessreviews"),
    Line::authorization("SelfSubjectRulesReview", "selfsubjectrulesreviews").cluster(),
];

/// All built-in kinds.
#[must_use]
pub fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = LINES.iter().map(Line::row).collect();
    for row in &mut rows {
        if let Some((columns, cells)) = super::print::columns(&row.group, &row.kind) {
            for version in &mut row.versions {
                version.columns = Columns::BuiltIn { columns, cells };
            }
        }
    }
    rows
}

/// Kinds that the reference has and we do not: to know their names is enough to say that something is one of them.
const ABSENT: [(&str, &str); 12] = [
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("autoscaling/v1", "HorizontalPodAutoscaler"),
    ("v1", "Binding"),
    ("v1", "ComponentStatus"),
    ("v1", "LimitRange"),
    ("v1", "PodTemplate"),
    ("v1", "ReplicationController"),
    ("v1", "ResourceQuota"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("policy/v1", "Eviction"),
];

/// Whether there is such a kind, here or in the reference.
#[must_use]
pub fn is_known(api_version: &str, kind: &str) -> bool {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is = |line: &Line| line.group == group && line.version == version && line.kind == kind;
    LINES.iter().any(is) || ABSENT.contains(&(api_version, kind))
}

/// Where a kind is kept, if not under its own name: events.k8s.io/v1 Events are core/v1 Events seen differently (see
/// [`super::events`]). `(group, plural)` in, `(group, plural)` of the row that stores out.
#[must_use]
pub fn alias_of(group: &str, plural: &str) -> Option<(&'static str, &'static str)> {
    (group == "events.k8s.io" && plural == "events").then_some(("", "events"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_its_definition_and_its_names() {
        let rows = rows();
        assert_eq!(rows.len(), 38);
        for (row, line) in rows.iter().zip(LINES) {
            let version = row.versions.first().unwrap();
            assert_eq!(version.schema.name.as_deref(), Some(line.kind));
            assert_eq!(
                version.has_status,
                line.status && version.schema.properties.contains_key("status")
            );
        }
        assert_eq!(alias_of("events.k8s.io", "events"), Some(("", "events")));
    }

    #[test]
    fn rows_of_a_second_cluster_are_made_without_reading_definitions_again() {
        let first = rows();
        let second = rows();
        for (one, two) in first.iter().zip(&second) {
            assert!(Arc::ptr_eq(&one.versions[0].schema, &two.versions[0].schema));
        }
    }
}
