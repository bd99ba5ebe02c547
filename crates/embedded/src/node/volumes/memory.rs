//! Which emptyDirs are in memory, and how large each may become.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use crate::kinds::quantity::Quantity;

/// The folders of emptyDirs of medium `Memory`, with their sizes in bytes: their sizeLimit, and at most what the node has.
///
/// Left out are those that the agent itself has to reach into, for a subPath or a file with variables: only the pod's own
/// supervisor sees what is in memory. They are folders on the disk, with the same limit.
#[must_use]
pub fn in_memory(pod: &Pod, volumes: &Path, node_bytes: u64) -> BTreeMap<PathBuf, u64> {
    let Some(spec) = pod.spec.as_ref() else {
        return BTreeMap::new();
    };
    let all = spec.volumes.iter().flatten();
    all.filter_map(|volume| {
        let source = volume.empty_dir.as_ref()?;
        if source.medium.as_deref() != Some("Memory") || is_reached_into(spec, &volume.name) {
            return None;
        }
        let limit = source
            .size_limit
            .as_ref()
            .and_then(|limit| Quantity::parse(&limit.0).ok());
        let limit = limit.and_then(|limit| u64::try_from(limit.units()).ok());
        let bytes = limit.filter(|bytes| *bytes > 0).unwrap_or(node_bytes).min(node_bytes);
        // A tmpfs of size 0 has no limit.
        Some((volumes.join(&volume.name), bytes.max(1)))
    })
    .collect()
}

fn is_reached_into(spec: &PodSpec, volume: &str) -> bool {
    let is_part = |container: &Container| {
        let mut mounts = container.volume_mounts.iter().flatten();
        mounts.any(|mount| mount.name == volume && (mount.sub_path.is_some() || mount.sub_path_expr.is_some()))
    };
    let is_read = |container: &Container| {
        let mut sources = container.env.iter().flatten().filter_map(|env| env.value_from.as_ref());
        sources.any(|source| {
            let file = source.file_key_ref.as_ref();
            file.is_some_and(|file| file.volume_name == volume)
        })
    };
    let mut all = spec.init_containers.iter().flatten().chain(&spec.containers);
    all.any(|container| is_part(container) || is_read(container))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volumes_in_memory_have_their_limit_or_the_node_s_memory() {
        let memory = |limit: &str| json!({"medium": "Memory", "sizeLimit": limit});
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {
            "volumes": [
                {"name": "disk", "emptyDir": {"sizeLimit": "1Mi"}},
                {"name": "small", "emptyDir": memory("1Mi")},
                {"name": "large", "emptyDir": memory("1Ti")},
                {"name": "any", "emptyDir": {"medium": "Memory"}},
                {"name": "part", "emptyDir": memory("1Mi")},
                {"name": "file", "emptyDir": memory("1Mi")}],
            "initContainers": [{"name": "i", "env": [{"name": "A", "valueFrom": {"fileKeyRef":
                {"volumeName": "file", "path": "f", "key": "A"}}}]}],
            "containers": [{"name": "c", "volumeMounts": [
                {"name": "small", "mountPath": "/s"}, {"name": "part", "mountPath": "/p", "subPath": "x"}]}]}}))
        .unwrap();
        let folders = in_memory(&pod, Path::new("/v"), 1 << 30);
        let found: Vec<_> = folders
            .iter()
            .map(|(path, bytes)| (path.to_str().unwrap(), *bytes))
            .collect();
        assert_eq!(
            found,
            [("/v/any", 1 << 30), ("/v/large", 1 << 30), ("/v/small", 1 << 20)]
        );
    }
}
