//! Which objects a pod names: what the agent reads before it starts the pod, and watches while the pod runs.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod, Volume};

/// Names in the pod's namespace, required and optional ones alike.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References {
    pub config_maps: BTreeSet<String>,
    pub secrets: BTreeSet<String>,
    pub claims: BTreeSet<String>,
}

/// All objects that a pod's variables and volumes name.
#[must_use]
pub fn references(pod: &Pod) -> References {
    let mut found = References::default();
    let Some(spec) = &pod.spec else { return found };
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        found.add_container(container);
    }
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    for volume in spec.volumes.iter().flatten() {
        found.add_volume(volume, pod_name);
    }
    found
}

impl References {
    fn add_container(&mut self, container: &Container) {
        for from in container.env_from.iter().flatten() {
            self.config_maps
                .extend(from.config_map_ref.iter().map(|source| source.name.clone()));
            self.secrets
                .extend(from.secret_ref.iter().map(|source| source.name.clone()));
        }
        let sources = container
            .env
            .iter()
            .flatten()
            .filter_map(|variable| variable.value_from.as_ref());
        for from in sources {
            self.config_maps
                .extend(from.config_map_key_ref.iter().map(|source| source.name.clone()));
            self.secrets
                .extend(from.secret_key_ref.iter().map(|source| source.name.clone()));
        }
    }

    fn add_volume(&mut self, volume: &Volume, pod_name: &str) {
        self.config_maps
            .extend(volume.config_map.iter().map(|source| source.name.clone()));
        self.secrets
            .extend(volume.secret.iter().filter_map(|source| source.secret_name.clone()));
        self.claims.extend(
            volume
                .persistent_volume_claim
                .iter()
                .map(|claim| claim.claim_name.clone()),
        );
        self.claims
            .extend(volume.ephemeral.iter().map(|_| format!("{pod_name}-{}", volume.name)));
        let sources = volume
            .projected
            .iter()
            .flat_map(|projected| projected.sources.iter().flatten());
        for source in sources {
            self.config_maps
                .extend(source.config_map.iter().map(|source| source.name.clone()));
            self.secrets
                .extend(source.secret.iter().map(|source| source.name.clone()));
        }
    }
}
