//! The objects of an installation. Pure builders; nothing here knows a cluster.

use std::fmt;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use kube::discovery::ApiResource;
use serde_json::{Value, json};
use usher_engine::hash::CanonicalHash;

use super::rbac;

/// Name of the Deployment, and of everything that belongs to it.
pub(crate) const OPERATOR: &str = "usher-operator";
/// Name of the Lease; the operator's own default.
pub(crate) const LEASE: &str = "usher-operator";
const LEASE_ROLE: &str = "usher-operator-lease";
/// Name of the Secret with the TLS port's certificates, which the operator makes, and of the Role to keep it.
pub(crate) const CERTIFICATES: &str = "usher-operator-tls";
/// Name of the ConfigMap with what clients of the TLS port are to trust, which the operator makes, and of the Role to
/// read it.
pub(crate) const AUTHORITIES: &str = "usher-operator-ca";
/// Who writes these objects: field manager, and value of the label by which they are found again.
pub(crate) const MANAGER: &str = "usher-install";
pub(crate) const NAME: &str = "app.kubernetes.io/name";
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Whose objects: the installation's namespace.
pub(crate) const INSTANCE: &str = "app.kubernetes.io/instance";
/// The one namespace a scoped installation looks after.
pub(crate) const SCOPE: &str = "usher.dev/scope";
/// Hash of the object as it was built: tells whether it must be written.
pub(crate) const APPLIED_HASH: &str = "usher.dev/applied-hash";
const HEALTH_PORT: u16 = 8080;
const TLS_PORT: u16 = 8443;

/// What is installed, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Installation {
    /// Where the operator runs.
    pub(crate) namespace: String,
    /// The one namespace it looks after; all of them when `None`.
    pub(crate) scope: Option<String>,
    pub(crate) image: String,
    pub(crate) replicas: u8,
}

/// One object, as built.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    pub(crate) kind: ApiResource,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) value: Value,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind.kind, self.name),
            None => write!(f, "{} {}", self.kind.kind, self.name),
        }
    }
}

impl Object {
    fn new<K: Resource<DynamicType = ()>>(
        mut fields: Value,
        namespace: Option<&str>,
        name: &str,
        labels: Value,
    ) -> Self {
        let kind = ApiResource::erase::<K>(&());
        let mut metadata = json!({"name": name, "labels": labels});
        insert(&mut metadata, "namespace", namespace.map(Value::from));
        insert(&mut fields, "apiVersion", Some(kind.api_version.as_str().into()));
        insert(&mut fields, "kind", Some(kind.kind.as_str().into()));
        insert(&mut fields, "metadata", Some(metadata));
        Self {
            kind,
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            value: fields,
        }
    }

    /// The hash of the object as built, and the object as it is sent: with that hash on it.
    pub(crate) fn marked(&self) -> Result<(CanonicalHash, Value), serde_json::Error> {
        let hash = CanonicalHash::of(&self.value)?;
        let mut value = self.value.clone();
        if let Some(metadata) = value.get_mut("metadata") {
            insert(metadata, "annotations", Some(json!({APPLIED_HASH: hash.to_string()})));
        }
        Ok((hash, value))
    }

    pub(crate) fn is_namespace(&self) -> bool {
        self.kind.kind == "Namespace"
    }

    pub(crate) fn same_as(&self, other: &Object) -> bool {
        self.kind.kind == other.kind.kind && self.namespace == other.namespace && self.name == other.name
    }
}

/// Sets a field of an object, if there is something to set.
fn insert(object: &mut Value, field: &str, value: Option<Value>) {
    if let (Some(object), Some(value)) = (object.as_object_mut(), value) {
        object.insert(field.to_owned(), value);
    }
}

/// The CRDs. They belong to the cluster, not to one installation: their labels say only who wrote them.
pub(crate) fn crds() -> Result<Vec<Object>, serde_json::Error> {
    let labels = json!({NAME: "usher", MANAGED_BY: MANAGER});
    let object = |crd: Value| {
        let name = crd
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        Object::new::<CustomResourceDefinition>(json!({"spec": crd.get("spec")}), None, name, labels.clone())
    };
    Ok(crate::crds::values()?.into_iter().map(object).collect())
}

impl Installation {
    /// Everything but the CRDs, in the order in which it is applied.
    pub(crate) fn objects(&self) -> Result<Vec<Object>, serde_json::Error> {
        let mut objects = vec![self.namespace(), self.service_account()];
        objects.extend(self.rights()?);
        objects.push(self.service());
        objects.push(self.deployment());
        // With one replica it would forbid every drain of its node.
        if self.replicas > 1 {
            objects.push(self.disruption_budget());
        }
        Ok(objects)
    }

    /// Roles and bindings alone.
    pub(crate) fn rights(&self) -> Result<Vec<Object>, serde_json::Error> {
        let rules = |rules: Vec<PolicyRule>| Ok::<_, serde_json::Error>(json!({"rules": serde_json::to_value(rules)?}));
        let mut objects = match self.scope.as_deref() {
            Some(scope) => vec![
                self.object::<Role>(rules(rbac::operator_rules())?, Some(scope), OPERATOR),
                self.object::<RoleBinding>(self.binding("Role", OPERATOR), Some(scope), OPERATOR),
            ],
            None => {
                let everywhere = rules([rbac::operator_rules(), rbac::review_rules()].concat())?;
                vec![
                    self.object::<ClusterRole>(everywhere, None, OPERATOR),
                    self.object::<ClusterRoleBinding>(self.binding("ClusterRole", OPERATOR), None, OPERATOR),
                ]
            }
        };
        let own = Some(self.namespace.as_str());
        for (name, granted, binding) in [
            (LEASE_ROLE, rbac::lease_rules(), self.binding("Role", LEASE_ROLE)),
            (
                CERTIFICATES,
                rbac::certificate_rules(),
                self.binding("Role", CERTIFICATES),
            ),
            (AUTHORITIES, rbac::authorities_rules(), everybody_may(AUTHORITIES)),
        ] {
            objects.push(self.object::<Role>(rules(granted)?, own, name));
            objects.push(self.object::<RoleBinding>(binding, own, name));
        }
        Ok(objects)
    }

    /// In front of the TLS port of all replicas that are ready.
    fn service(&self) -> Object {
        self.own::<Service>(json!({
            "spec": {
                "selector": self.selector(),
                "ports": [{"name": "tls", "port": 443, "targetPort": "tls"}],
            },
        }))
    }

    fn object<K: Resource<DynamicType = ()>>(&self, fields: Value, namespace: Option<&str>, name: &str) -> Object {
        let mut labels = json!({
            NAME: "usher",
            "app.kubernetes.io/component": "operator",
            INSTANCE: self.namespace,
            MANAGED_BY: MANAGER,
        });
        insert(&mut labels, SCOPE, self.scope.as_deref().map(Value::from));
        Object::new::<K>(fields, namespace, name, labels)
    }

    fn own<K: Resource<DynamicType = ()>>(&self, fields: Value) -> Object {
        self.object::<K>(fields, Some(&self.namespace), OPERATOR)
    }

    fn namespace(&self) -> Object {
        // The operator's pods meet the strictest of the Pod Security Standards; nothing weaker shall run beside them.
        let mut namespace = self.object::<Namespace>(json!({}), None, &self.namespace);
        if let Some(labels) = namespace.value.pointer_mut("/metadata/labels") {
            insert(labels, "pod-security.kubernetes.io/enforce", Some("restricted".into()));
        }
        namespace
    }

    fn service_account(&self) -> Object {
        self.own::<ServiceAccount>(json!({"automountServiceAccountToken": false}))
    }

    fn binding(&self, kind: &str, role: &str) -> Value {
        json!({
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": OPERATOR, "namespace": self.namespace}],
        })
    }

    /// How the operator's pods are told from others; a Deployment's selector cannot change, so nothing that might.
    fn selector(&self) -> Value {
        json!({NAME: "usher", "app.kubernetes.io/component": "operator", INSTANCE: self.namespace})
    }

    fn disruption_budget(&self) -> Object {
        self.own::<PodDisruptionBudget>(json!({
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": self.selector()}},
        }))
    }

    fn deployment(&self) -> Object {
        self.own::<Deployment>(json!({
            "spec": {
                "replicas": self.replicas,
                "revisionHistoryLimit": 3,
                "selector": {"matchLabels": self.selector()},
                // The new one is warm before the old one gives its lease back.
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": {"metadata": {"labels": self.selector()}, "spec": self.pod()},
            },
        }))
    }

    fn pod(&self) -> Value {
        json!({
            "serviceAccountName": OPERATOR,
            "automountServiceAccountToken": true,
            // 65532 is `nonroot` in the common distroless images.
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            // The operator finishes passes for up to 20 s and then gives its lease back.
            "terminationGracePeriodSeconds": 30,
            "topologySpreadConstraints": [{
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": self.selector()},
            }],
            "containers": [self.container()],
        })
    }

    fn container(&self) -> Value {
        let mut args = vec![
            "operator".to_owned(),
            format!("--health-address=0.0.0.0:{HEALTH_PORT}"),
            format!("--tls-address=0.0.0.0:{TLS_PORT}"),
            "--log-json".to_owned(),
        ];
        args.extend(self.scope.as_ref().map(|scope| format!("--namespace={scope}")));
        let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        let probe = |path: &str, every: u8, failures: u8| {
            json!({
                "httpGet": {"path": path, "port": "health"},
                "periodSeconds": every,
                "timeoutSeconds": 3,
                "failureThreshold": failures,
            })
        };
        json!({
            "name": "operator",
            "image": self.image,
            "args": args,
            "env": [
                field("POD_NAMESPACE", "metadata.namespace"),
                field("POD_NAME", "metadata.name"),
            ],
            "ports": [
                {"name": "health", "containerPort": HEALTH_PORT},
                {"name": "tls", "containerPort": TLS_PORT},
            ],
            "livenessProbe": probe("/healthz", 10, 3),
            "readinessProbe": probe("/readyz", 5, 2),
            // 400 MB is the bound for 300,000 Subnets and as many claims.
            "resources": {
                "requests": {"cpu": "100m", "memory": "64Mi"},
                "limits": {"memory": "512Mi"},
            },
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            },
        })
    }
}

/// Whoever the API server knows.
fn everybody_may(role: &str) -> Value {
    let api_group = "rbac.authorization.k8s.io";
    json!({
        "roleRef": {"apiGroup": api_group, "kind": "Role", "name": role},
        "subjects": [{"apiGroup": api_group, "kind": "Group", "name": "system:authenticated"}],
    })
}

#[cfg(test)]
mod tests;
