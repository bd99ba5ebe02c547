//! The objects around a pod, from the machine's mirror: what [`environment`](crate::node::environment) and
//! [`volumes`](crate::node::volumes) ask for.

use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount};

use crate::controllers::mirror::Mirror;
use crate::controllers::volumes;
use crate::node::environment::{Objects, references};
use crate::node::machine::Machine;
use crate::node::volumes::TokenRequest;
use crate::security::Bound;

#[derive(Debug)]
pub(super) struct Surroundings {
    mirror: Arc<Mirror>,
    namespace: String,
}

impl Surroundings {
    pub(super) fn new(machine: &Machine, pod: &Pod) -> Self {
        Self {
            mirror: machine.hand().mirror.clone(),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        }
    }

    /// The versions of all that the pod names: the same as before means that nothing changed.
    pub(super) fn versions(&self, pod: &Pod) -> Vec<String> {
        let named = references(pod);
        let space = Some(self.namespace.as_str());
        let version = |meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
            format!(
                "{}/{}",
                meta.uid.as_deref().unwrap_or_default(),
                meta.resource_version.as_deref().unwrap_or_default()
            )
        };
        let maps = named.config_maps.iter().map(|name| {
            let found = self.mirror.config_maps.get(space, name);
            found.map(|found| version(&found.metadata)).unwrap_or_default()
        });
        let secrets = named.secrets.iter().map(|name| {
            let found = self.mirror.secrets.get(space, name);
            found.map(|found| version(&found.metadata)).unwrap_or_default()
        });
        let claims = named.claims.iter().map(|name| {
            let found = self.mirror.claims.get(space, name);
            found
                .and_then(|found| found.spec.as_ref()?.volume_name.clone())
                .unwrap_or_default()
        });
        // What downwardAPI files are made of.
        let own = format!("{:?}{:?}", pod.metadata.labels, pod.metadata.annotations);
        maps.chain(secrets).chain(claims).chain([own]).collect()
    }

    /// The folder of a claim.
    pub(super) fn claim(&self, data: &std::path::Path, name: &str) -> Result<PathBuf, String> {
        let claim = self
            .mirror
            .claims
            .get(Some(&self.namespace), name)
            .ok_or_else(|| format!("persistentvolumeclaim {name:?} not found"))?;
        let volume = claim
            .spec
            .as_ref()
            .and_then(|spec| spec.volume_name.as_deref())
            .filter(|volume| !volume.is_empty())
            .ok_or_else(|| format!("PersistentVolumeClaim {name:?} is not bound"))?;
        if self.mirror.volumes.get(None, volume).is_none() {
            return Err(format!("persistentvolume {volume:?} not found"));
        }
        Ok(volumes::folder(data, volume))
    }
}

impl Objects for Surroundings {
    fn config_map(&self, name: &str) -> Option<ConfigMap> {
        let found = self.mirror.config_maps.get(Some(&self.namespace), name);
        found.map(|found| (*found).clone())
    }

    fn secret(&self, name: &str) -> Option<Secret> {
        let found = self.mirror.secrets.get(Some(&self.namespace), name);
        found.map(|found| (*found).clone())
    }

    fn services(&self) -> Vec<Service> {
        let mut services: Vec<Service> = self
            .mirror
            .services
            .list(Some(&self.namespace))
            .iter()
            .map(|service| (**service).clone())
            .collect();
        if self.namespace != "default"
            && let Some(api) = self.mirror.services.get(Some("default"), "kubernetes")
        {
            services.push((*api).clone());
        }
        services
    }
}

/// Gets the tokens that a pod's volumes need and that are not there or old.
pub(super) fn renew_tokens(machine: &Machine, pod: &Pod) -> Result<(), String> {
    let now = machine.hand().now();
    for request in machine.tokens().due(pod, now) {
        let (token, expires) = issue(machine, pod, &request)?;
        machine.tokens().keep(pod, request, token, expires, now);
    }
    Ok(())
}

fn issue(machine: &Machine, pod: &Pod, request: &TokenRequest) -> Result<(String, jiff::Timestamp), String> {
    let server = machine.server().ok_or("the cluster has stopped")?;
    let hand = machine.hand();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let account = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.service_account_name.as_deref())
        .filter(|name| !name.is_empty())
        .unwrap_or("default");
    let target = hand
        .target_of::<ServiceAccount>(Some(namespace), account)
        .map_err(|fault| fault.to_string())?;
    let account = hand
        .read(&target)
        .map_err(|fault| fault.to_string())?
        .ok_or_else(|| format!("failed to fetch token: serviceaccounts {account:?} not found"))?;
    let named = |kind: &'static str, meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| Bound {
        kind,
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
    };
    let mut bound = vec![named("pod", &pod.metadata)];
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    if let Some(node) = node.and_then(|name| hand.mirror.nodes.get(None, name)) {
        bound.push(named("node", &node.metadata));
    }
    let issued = server
        .security
        .issue(
            &account,
            request.audience.iter().cloned().collect(),
            request.expiration_seconds,
            &bound,
            hand.now(),
            hand.registry.dice.uid(),
        )
        .map_err(|fault| fault.to_string())?;
    Ok((issued.token, issued.expires))
}
