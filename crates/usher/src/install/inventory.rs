//! What an installation has made, found by its labels.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Resource;
use kube::api::{DynamicObject, ListParams};
use kube::discovery::ApiResource;
use serde_json::Value;

use super::objects::{INSTANCE, Installation, MANAGED_BY, MANAGER, OPERATOR, Object, SCOPE};
use crate::Failed;
use crate::cluster::{Cluster, Refusal};

/// The objects of one installation, in the order in which they are taken down: the operator first, its rights when it
/// no longer needs them, the namespace last. CRDs are not among them: they belong to no single installation.
#[derive(Debug)]
pub(crate) struct Inventory {
    pub(crate) objects: Vec<Object>,
}

impl Inventory {
    pub(crate) async fn take(cluster: &Cluster, namespace: &str) -> Result<Self, Failed> {
        let own = Some(namespace);
        let mut objects = Vec::new();
        for (kind, place) in [
            (erased::<Deployment>(), own),
            (erased::<PodDisruptionBudget>(), own),
            (erased::<Service>(), own),
            (erased::<RoleBinding>(), None),
            (erased::<Role>(), None),
            (erased::<ClusterRoleBinding>(), None),
            (erased::<ClusterRole>(), None),
            (erased::<ServiceAccount>(), own),
            (erased::<Namespace>(), None),
        ] {
            objects.extend(found(cluster, &kind, place, namespace).await?);
        }
        Ok(Self { objects })
    }

    /// The one namespace this installation looks after, if it is a scoped one.
    pub(crate) fn scope(&self) -> Option<&str> {
        self.objects.iter().find_map(|object| label(object, SCOPE))
    }

    pub(crate) fn deployment(&self) -> Option<&Object> {
        self.objects.iter().find(|object| object.kind.kind == "Deployment")
    }
}

fn erased<K: Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

fn label<'o>(object: &'o Object, name: &str) -> Option<&'o str> {
    let labels = object.value.pointer("/metadata/labels")?;
    labels.get(name).and_then(Value::as_str)
}

/// What carries the installation's labels. Somebody who may not look over the whole cluster sees their namespace.
async fn found(
    cluster: &Cluster,
    kind: &ApiResource,
    place: Option<&str>,
    namespace: &str,
) -> Result<Vec<Object>, Failed> {
    let params = ListParams::default().labels(&format!("{MANAGED_BY}={MANAGER},{INSTANCE}={namespace}"));
    let doing = format!("list {}", kind.plural);
    let listed = match cluster.ask(&doing, cluster.api(kind, place).list(&params)).await {
        Err(refusal) if refusal.is(403) && place.is_none() => match kind.kind.as_str() {
            "Role" | "RoleBinding" => {
                cluster
                    .ask(&doing, cluster.api(kind, Some(namespace)).list(&params))
                    .await?
                    .items
            }
            _ => Vec::new(),
        },
        other => other?.items,
    };
    listed.into_iter().map(|object| Ok(as_found(kind, object)?)).collect()
}

fn as_found(kind: &ApiResource, object: DynamicObject) -> Result<Object, serde_json::Error> {
    Ok(Object {
        kind: kind.clone(),
        namespace: object.metadata.namespace.clone(),
        name: object.metadata.name.clone().unwrap_or_default(),
        value: serde_json::to_value(object)?,
    })
}

/// Two operators that look after the same objects, each with a lease of its own, would both act; and two installations
/// of one name would take turns in undoing each other's rights.
pub(crate) async fn refuse_second_installation(cluster: &Cluster, installation: &Installation) -> Result<(), Failed> {
    let scope = installation.scope.as_deref();
    let overlaps = |other: &Object| label(other, SCOPE).is_none_or(|theirs| scope.is_none_or(|ours| ours == theirs));
    let mut others = others(cluster, &installation.namespace)
        .await
        .or_else(unless_forbidden)?;
    // The remains of one that was half removed count, too.
    let kind = match scope {
        Some(_) => erased::<RoleBinding>(),
        None => erased::<ClusterRoleBinding>(),
    };
    let api = cluster.api(&kind, scope);
    let doing = format!("read {} {OPERATOR}", kind.kind);
    if let Some(binding) = cluster.find(&doing, api.get(OPERATOR)).await? {
        others.push(as_found(&kind, binding)?);
    }
    let is_other = |object: &&Object| {
        label(object, MANAGED_BY) == Some(MANAGER)
            && label(object, INSTANCE).is_some_and(|instance| instance != installation.namespace)
    };
    match others.iter().filter(is_other).find(|other| overlaps(other)) {
        None => Ok(()),
        Some(object) => {
            let other = label(object, INSTANCE).unwrap_or_default();
            Err(format!(
                "Usher is installed in namespace {other} already ({object}) and looks after the same objects; update it \
                 with -n {other}, or remove it first with `usher uninstall -n {other}`"
            )
            .into())
        }
    }
}

/// Namespaces of other installations: they need the CRDs, too.
pub(crate) async fn other_installations(cluster: &Cluster, namespace: &str) -> Result<Vec<String>, Failed> {
    let others = others(cluster, namespace).await?;
    Ok(others
        .into_iter()
        .filter_map(|deployment| deployment.namespace)
        .collect())
}

/// Deployments of other installations.
async fn others(cluster: &Cluster, namespace: &str) -> Result<Vec<Object>, Refusal> {
    let kind = erased::<Deployment>();
    let params = ListParams::default().labels(&format!("{MANAGED_BY}={MANAGER},{INSTANCE}!={namespace}"));
    let api = cluster.api(&kind, None);
    let listed = cluster
        .ask("list deployments in all namespaces", api.list(&params))
        .await?;
    let found = listed
        .items
        .into_iter()
        .filter_map(|object| as_found(&kind, object).ok());
    Ok(found.collect())
}

/// Somebody who may not look cannot be told.
fn unless_forbidden(refusal: Refusal) -> Result<Vec<Object>, Refusal> {
    if refusal.is(403) { Ok(Vec::new()) } else { Err(refusal) }
}
