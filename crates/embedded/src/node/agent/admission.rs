//! What a node will not have: a pod that was bound to it without asking the scheduler and does not fit.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use super::Agent;
use super::life::Verdict;
use crate::controllers::pods::is_finished;
use crate::kinds::quantity::Quantity;
use crate::node::entry::NodeEntry;

/// What the node has, as downwardAPI and admission know it.
pub(super) fn allocatable(entry: &NodeEntry) -> BTreeMap<String, Amount> {
    let mut all: BTreeMap<String, Amount> = entry
        .capacity
        .extended
        .iter()
        .map(|(name, amount)| (name.clone(), Amount(amount.clone())))
        .collect();
    all.insert("cpu".to_owned(), Amount(entry.capacity.cpu.clone()));
    all.insert("memory".to_owned(), Amount(entry.capacity.memory.clone()));
    all.insert("pods".to_owned(), Amount(entry.capacity.pods.to_string()));
    all
}

/// The node's memory.
pub(super) fn memory_bytes(entry: &NodeEntry) -> u64 {
    let bytes = in_units("memory", &Amount(entry.capacity.memory.clone()));
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Whether the status says that something of it was started once.
pub(super) fn has_run(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, None | Some("Pending"))
}

/// Why the node will not have a pod that it sees for the first time.
pub(super) fn verdict(agent: &Agent, pod: &Pod) -> Option<Verdict> {
    if has_run(pod) {
        return None;
    }
    let wanted = requests(pod.spec.as_ref()?);
    let others = agent.machine.hand().mirror.pods.list(None);
    let mut used: BTreeMap<String, i128> = BTreeMap::new();
    let mut count = 0_i128;
    for other in others {
        if other.metadata.uid == pod.metadata.uid || !agent.is_ours(&other) || is_finished(&other) {
            continue;
        }
        // Those that were there before it.
        if !has_run(&other) && is_younger(&other, pod) {
            continue;
        }
        count += 1;
        for (name, amount) in other.spec.as_ref().map(requests).unwrap_or_default() {
            *used.entry(name).or_default() += amount;
        }
    }
    let mut all = vec![("pods".to_owned(), 1, count)];
    for name in ["cpu", "memory"] {
        if let Some(amount) = wanted.get(name) {
            all.push((name.to_owned(), *amount, used.get(name).copied().unwrap_or_default()));
        }
    }
    let has = allocatable(&agent.entry);
    for (name, amount) in &wanted {
        // What the node does not speak of at all is the scheduler's matter.
        if has.contains_key(name) && !matches!(name.as_str(), "cpu" | "memory") {
            all.push((name.clone(), *amount, used.get(name).copied().unwrap_or_default()));
        }
    }
    all.into_iter().find_map(|(name, requested, used)| {
        let capacity = has.get(&name).map_or(0, |amount| in_units(&name, amount));
        (requested > 0 && used + requested > capacity).then(|| Verdict {
            reason: format!("OutOf{name}"),
            message: format!(
                "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            ),
        })
    })
}

/// Made later, or, at the same second, later by name.
fn is_younger(one: &Pod, than: &Pod) -> bool {
    let order = |pod: &Pod| {
        let made = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (made, pod.metadata.name.clone())
    };
    order(one) > order(than)
}

/// The whole pod's: of its containers and sidecars together, or of its hungriest init container if that is more.
fn requests(spec: &PodSpec) -> BTreeMap<String, i128> {
    let of = |container: &k8s_openapi::api::core::v1::Container| -> BTreeMap<String, i128> {
        let resources = container.resources.as_ref();
        let requests = resources.and_then(|resources| resources.requests.as_ref());
        requests
            .into_iter()
            .flatten()
            .map(|(name, amount)| (name.clone(), in_units(name, amount)))
            .collect()
    };
    let mut total: BTreeMap<String, i128> = BTreeMap::new();
    for container in &spec.containers {
        for (name, amount) in of(container) {
            *total.entry(name).or_default() += amount;
        }
    }
    let mut sidecars: BTreeMap<String, i128> = BTreeMap::new();
    let mut most: BTreeMap<String, i128> = BTreeMap::new();
    for container in spec.init_containers.iter().flatten() {
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        for (name, amount) in of(container) {
            let beside = sidecars.entry(name.clone()).or_default();
            if is_sidecar {
                *beside += amount;
                *total.entry(name.clone()).or_default() += amount;
            }
            let at_once = if is_sidecar { *beside } else { *beside + amount };
            let most = most.entry(name).or_default();
            *most = (*most).max(at_once);
        }
    }
    for (name, amount) in most {
        let total = total.entry(name).or_default();
        *total = (*total).max(amount);
    }
    for (name, amount) in spec.overhead.iter().flatten() {
        *total.entry(name.clone()).or_default() += in_units(name, amount);
    }
    total
}

/// Thousandths of a cpu; whole units of everything else.
fn in_units(name: &str, amount: &Amount) -> i128 {
    let Ok(quantity) = Quantity::parse(&amount.0) else {
        return 0;
    };
    if name == "cpu" {
        quantity.milli()
    } else {
        quantity.units()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_needs_what_its_containers_need_together_or_its_hungriest_init_container() {
        let spec: PodSpec = serde_json::from_value(json!({
            "initContainers": [
                {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
                {"name": "i", "resources": {"requests": {"cpu": "2", "memory": "1Mi"}}}],
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
                {"name": "b", "resources": {"requests": {"cpu": "500m"}}}]}))
        .unwrap();
        let all = requests(&spec);
        assert_eq!(all["cpu"], 2_100);
        assert_eq!(all["memory"], 1 << 30);
    }
}
