//! What a node will not have: a pod that was bound to it without asking the scheduler and does not fit.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use super::Agent;
use super::life::Verdict;
use crate::controllers::pods::is_finished;
use crate::kinds::quantity::Quantity;
use crate::node::entry::NodeEntry;
use crate::scheduler::Amounts;

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

/// The whole pod's, as the scheduler counts it.
fn requests(spec: &PodSpec) -> BTreeMap<String, i128> {
    let amounts = Amounts::of_pod(spec);
    let own = [
        ("cpu", amounts.cpu),
        ("memory", amounts.memory),
        ("ephemeral-storage", amounts.ephemeral),
    ];
    let own = own.into_iter().map(|(name, amount)| (name.to_owned(), amount));
    own.chain(amounts.others)
        .filter(|(_, amount)| *amount > 0)
        .map(|(name, amount)| (name, amount.into()))
        .collect()
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
    fn a_pod_needs_what_the_scheduler_counts_its_own_word_before_its_containers() {
        let spec: PodSpec = serde_json::from_value(json!({
            "resources": {"requests": {"cpu": "3"}},
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi", "example.com/gpu": "2"}}},
                {"name": "b", "resources": {"requests": {"cpu": "500m", "ephemeral-storage": "1Mi"}}}]}))
        .unwrap();
        let all: Vec<(String, i128)> = requests(&spec).into_iter().collect();
        let expected = [
            ("cpu", 3_000),
            ("ephemeral-storage", 1 << 20),
            ("example.com/gpu", 2),
            ("memory", 1 << 30),
        ];
        assert_eq!(all, expected.map(|(name, amount)| (name.to_owned(), amount)));
    }
}
