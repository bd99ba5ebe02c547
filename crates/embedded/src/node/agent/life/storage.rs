//! Whether a pod has more on the disk than it may: `sizeLimit` of its emptyDirs, `ephemeral-storage` of its containers. The
//! words are a kubelet's. Memory is not spoken of here: an emptyDir in memory is full when it is, and nobody is evicted.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use super::is_sidecar;
use crate::kinds::quantity::Quantity;

pub(super) const REASON: &str = "Evicted";
/// What programs of an evicted pod have between signal and SIGKILL, if they were not to have even less.
pub(super) const GRACE_SECONDS: i64 = 1;

const RESOURCE: &str = "ephemeral-storage";
/// From here on a pod is the cluster's own (`system-cluster-critical`), and no node evicts it.
const CRITICAL: i32 = 2_000_000_000;

/// What a pod has on the disk, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// By volume.
    pub volumes: BTreeMap<String, u64>,
    /// By container.
    pub logs: BTreeMap<String, u64>,
}

/// What has to be measured to know whether a pod has too much.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Measured {
    pub volumes: Vec<String>,
    pub logs: Vec<String>,
}

impl Measured {
    /// Nothing, for pods without a limit: most of them.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let Some(spec) = pod.spec.as_ref().filter(|spec| !is_critical(spec)) else {
            return Self::default();
        };
        let is_whole = total_limit(spec).is_some();
        let volumes = spec.volumes.iter().flatten();
        let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        Self {
            volumes: volumes
                .filter_map(|volume| Some((volume, volume.empty_dir.as_ref()?)))
                .filter(|(_, source)| is_whole || size_limit(source).is_some())
                .map(|(volume, _)| volume.name.clone())
                .collect(),
            logs: containers
                .filter(|_| is_whole)
                .map(|container| container.name.clone())
                .collect(),
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.volumes.is_empty() && self.logs.is_empty()
    }
}

/// Why a pod has to go, if it has.
pub(super) fn overrun(pod: &Pod, usage: &Usage) -> Option<String> {
    let spec = pod.spec.as_ref().filter(|spec| !is_critical(spec))?;
    for volume in spec.volumes.iter().flatten() {
        let limit = volume.empty_dir.as_ref().and_then(size_limit);
        if let (Some(limit), Some(used)) = (limit, usage.volumes.get(&volume.name))
            && exceeds(*used, limit)
        {
            return Some(format!(
                "Usage of EmptyDir volume {:?} exceeds the limit {:?}. ",
                volume.name,
                limit.to_string()
            ));
        }
    }
    let total = total_limit(spec)?;
    if exceeds(usage.volumes.values().chain(usage.logs.values()).sum(), total) {
        return Some(format!(
            "Pod ephemeral local storage usage exceeds the total limit of containers {total}. "
        ));
    }
    spec.containers.iter().find_map(|container| {
        let limit = limit_of(container).filter(|limit| !limit.is_zero())?;
        exceeds(*usage.logs.get(&container.name)?, limit).then(|| {
            format!(
                "Container {} exceeded its local ephemeral storage limit {:?}. ",
                container.name,
                limit.to_string()
            )
        })
    })
}

fn exceeds(used: u64, limit: Quantity) -> bool {
    i128::from(used) > limit.units()
}

fn is_critical(spec: &PodSpec) -> bool {
    spec.priority.is_some_and(|priority| priority >= CRITICAL)
}

fn size_limit(source: &k8s_openapi::api::core::v1::EmptyDirVolumeSource) -> Option<Quantity> {
    let limit = Quantity::parse(&source.size_limit.as_ref()?.0).ok()?;
    (!limit.is_negative() && !limit.is_zero()).then_some(limit)
}

fn limit_of(container: &Container) -> Option<Quantity> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    Quantity::parse(&limits.get(RESOURCE)?.0).ok()
}

/// Of containers and sidecars together, or of the hungriest init container if that is more. None: nobody set any.
fn total_limit(spec: &PodSpec) -> Option<Quantity> {
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let beside = init.iter().filter(|container| is_sidecar(container));
    let together = beside
        .chain(&spec.containers)
        .filter_map(limit_of)
        .reduce(std::ops::Add::add);
    let alone = init.iter().filter(|container| !is_sidecar(container));
    let most = alone.filter_map(limit_of).max();
    together.into_iter().chain(most).max()
}
