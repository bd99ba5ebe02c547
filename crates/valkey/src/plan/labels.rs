//! What pods are told of themselves (T18): role, shard, member; and the spec's own labels and annotations, which roll nobody.
//! Written for people and Services, never read back for a decision.

use usher_engine::Text;

use super::facts::Ground;
use super::step::ClusterStep;
use super::topology::Member;
use super::work::Work;
use crate::api::{annotations, labels as names};
use crate::seen::PodSeen;
use crate::words::Ordinal;

/// The pods whose labels say something else than the servers do. Only where views agree: roles in doubt are not told.
pub fn labels(ground: &Ground<'_>) -> Work {
    let topology = ground.topology;
    if !topology.agrees() {
        return Work::default();
    }
    let pods = topology.seen.pods.iter().filter(|(_, pod)| pod.deleting.is_none());
    let steps = pods.filter_map(|(at, pod)| {
        let member = topology.at(*at).filter(|member| member.is_live());
        step(ground, *at, pod, member)
    });
    Work {
        steps: steps.collect(),
        ..Work::default()
    }
}

fn step(ground: &Ground<'_>, at: Ordinal, pod: &PodSeen, member: Option<&Member>) -> Option<ClusterStep> {
    let topology = ground.topology;
    let mut labels: Vec<(Text, Text)> = Vec::new();
    let mut notes: Vec<(Text, Text)> = Vec::new();
    let spec = &ground.record.spec;
    let pairs = |from: &std::collections::BTreeMap<String, String>| -> Vec<(Text, Text)> {
        let differs =
            |(name, value): &(&String, &String)| pod.labelled.get(name.as_str()).map(Text::as_str) != Some(value);
        let own = |name: &str| name.starts_with("usher.dev/") || name.starts_with("app.kubernetes.io/");
        from.iter()
            .filter(|(name, _)| !own(name))
            .filter(differs)
            .map(|(name, value)| (name.as_str().into(), value.as_str().into()))
            .collect()
    };
    labels.extend(pairs(&spec.labels));
    notes.extend(pairs(&spec.annotations));
    // One that does not answer keeps what was last known of it.
    if let Some(member) = member {
        let role = match (member.is_primary(), topology.shard_of(&member.id)) {
            (true, Some((_, shard))) if shard.owns() => "primary",
            (false, _) => "replica",
            _ => "none",
        };
        let shard = topology.shard_of(&member.id).filter(|(_, shard)| shard.owns());
        let index = shard.map_or_else(String::new, |(index, _)| index.to_string());
        put(pod, &mut labels, names::ROLE, role);
        put(pod, &mut labels, names::SHARD, &index);
        put(pod, &mut notes, annotations::NODE_ID, member.id.as_str());
    } else if topology.outside.contains_key(&at) {
        put(pod, &mut labels, names::ROLE, "none");
    }
    let differs = !labels.is_empty() || !notes.is_empty();
    differs.then(|| ClusterStep::LabelPod {
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        labels,
        annotations: notes,
    })
}

fn put(pod: &PodSeen, into: &mut Vec<(Text, Text)>, name: &str, value: &str) {
    if pod.labelled.get(name).map(Text::as_str) != Some(value) {
        into.push((name.into(), value.into()));
    }
}
