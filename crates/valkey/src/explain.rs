//! Why a cluster is as it is, for people: from what the operator said of it last.
//!
//! Read from the view alone, by `usher explain`; no server is asked. What is to be done next is told by `usher plan`, which
//! asks them.

use jiff::Timestamp;
use serde::Serialize;
use usher_engine::{ConditionStatus, ObjectKey};
use usher_operator::view::View;

use crate::api::{Phase, ValkeyClusterStatus};
use crate::kinds::CLUSTER;
use crate::observe::cluster::pods;
use crate::records::ClusterRecord;

/// See the module's header.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What it is.
    pub kind: &'static str,
    /// Which.
    pub resource: ObjectKey,
    /// How it stands, in one sentence.
    pub summary: String,
    /// What else there is to know, in order.
    pub facts: Vec<Fact>,
}

/// One thing to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// What it is about.
    pub about: &'static str,
    /// In a sentence.
    pub text: String,
}

impl Explanation {
    fn fact(&mut self, about: &'static str, text: impl Into<String>) {
        self.facts.push(Fact {
            about,
            text: text.into(),
        });
    }

    /// As people read it.
    pub fn text(&self) -> String {
        let mut lines = vec![format!("{} {}: {}", self.kind, self.resource, self.summary)];
        lines.extend(
            self.facts
                .iter()
                .map(|fact| format!("  {:<9} {}", fact.about, fact.text)),
        );
        lines.join("\n") + "\n"
    }
}

/// Explains one cluster; `None` where it is not in view.
pub fn explain(view: &View, key: &ObjectKey, now: Timestamp) -> Option<Explanation> {
    let cluster = view.get::<ClusterRecord>(key)?;
    let status = &cluster.status;
    let mut told = Explanation {
        kind: CLUSTER,
        resource: key.clone(),
        summary: summary(cluster),
        facts: Vec::new(),
    };
    if let Some(observed) = status
        .observed_generation
        .filter(|seen| *seen < cluster.meta.generation)
    {
        let (generation, text) = (
            cluster.meta.generation,
            "the operator has not looked at the last edit yet",
        );
        told.fact(
            "spec",
            format!("generation {generation}, planned for {observed}: {text}"),
        );
    }
    if cluster.wishes.paused {
        told.fact(
            "paused",
            "annotation usher.dev/paused: nothing is done until it is removed",
        );
    }
    for sentence in &cluster.wishes.misread {
        told.fact("ignored", format!("annotation {sentence}"));
    }
    doing(&mut told, status, now);
    for condition in &status.conditions {
        let holds = condition.status == ConditionStatus::True;
        // Degraded is the one that is well when it does not hold; Progressing says nothing but that something is under way.
        let tells = condition.type_ != "Progressing" || condition.reason == "ProgressDeadlineExceeded";
        if tells && holds == (condition.type_ == "Degraded") {
            told.fact(
                "condition",
                format!(
                    "{} is {:?}: {}: {}",
                    condition.type_, condition.status, condition.reason, condition.message
                ),
            );
        }
    }
    for pod in pods(view, cluster).values().filter(|pod| !pod.ready) {
        let why = pod.trouble.as_deref().unwrap_or("no reason given");
        told.fact(
            "pod",
            format!("{} is not Ready since {}: {why}", pod.name, pod.ready_changed),
        );
    }
    for shard in status.topology.iter().flat_map(|topology| &topology.masters) {
        let slots = match shard.slot_ranges.is_empty() {
            true => "no slots".to_owned(),
            false => shard.slot_ranges.join(","),
        };
        let replicas: Vec<String> = shard
            .replicas
            .iter()
            .map(|replica| match replica.link_up {
                true => replica.pod_name.clone(),
                false => format!("{} (not in sync)", replica.pod_name),
            })
            .collect();
        let replicas = if replicas.is_empty() {
            "none".into()
        } else {
            replicas.join(", ")
        };
        told.fact(
            "shard",
            format!("{slots}: primary {}, replicas {replicas}", shard.pod_name),
        );
    }
    Some(told)
}

fn summary(cluster: &ClusterRecord) -> String {
    let status = &cluster.status;
    let phase = match status.phase {
        Some(phase) => phase.to_string(),
        None => return "the operator has not looked at it yet: is it running?".into(),
    };
    let message = status.message.as_deref().unwrap_or("no message");
    match status.phase {
        Some(Phase::Failed) => {
            let reason = status.failure.as_ref().map_or("unknown", |cause| cause.reason.as_str());
            format!("Failed ({reason}). {message}")
        }
        _ => format!("{phase}. {message}"),
    }
}

fn doing(told: &mut Explanation, status: &ValkeyClusterStatus, now: Timestamp) {
    if let Some(scale) = &status.scale {
        let (masters, replicas) = (scale.masters, scale.replicas_per_master);
        let minutes = now.duration_since(scale.started_at).as_secs() / 60;
        told.fact(
            "scale",
            format!("to {masters} masters with {replicas} replicas each, for {minutes} min"),
        );
    }
    if let Some(moves) = &status.slot_migration {
        let last = moves
            .last_error
            .as_deref()
            .map(|error| format!("; last error: {error}"));
        let (moved, total) = (moves.moved, moves.total);
        told.fact(
            "slots",
            format!(
                "{moved} of {total} moved, {:?}{}",
                moves.method,
                last.unwrap_or_default()
            ),
        );
    }
    if let Some(roll) = &status.roll {
        let pod = roll.pod.as_deref().unwrap_or("none yet");
        told.fact("roll", format!("to revision {}; pod in hand: {pod}", roll.revision));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::CLUSTERS;
    use crate::wake::register;
    use serde_json::json;
    use usher_operator::view::Event;

    #[test]
    fn what_is_wrong_is_told_with_where_it_stands() {
        let mut view = View::default();
        register(&mut view);
        let id = "a".repeat(40);
        let status = json!({
            "phase": "Degraded", "message": "waiting for cache-3", "observedGeneration": 1,
            "conditions": [
                {"type": "Ready", "status": "False", "reason": "Degraded", "message": "5/6", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Available", "status": "True", "reason": "AllSlotsServed", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "topology": {"masters": [{"nodeId": id, "podName": "cache-0", "slotRanges": ["0-5460"],
                "replicas": [{"nodeId": id, "podName": "cache-3", "linkUp": false}]}]},
            "slotMigration": {"method": "Atomic", "batchSlots": 512, "moved": 10, "total": 4096, "lastError": "no"},
        });
        let object = json!({"apiVersion": "x/v1", "kind": "ValkeyCluster", "spec": {}, "status": status, "metadata": {
            "namespace": "ns", "name": "cache", "uid": "u", "resourceVersion": "1", "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {"usher.dev/paused": "true"}}});
        view.apply(CLUSTERS, Event::Applied(serde_json::from_value(object).unwrap()));
        let key = ObjectKey::new("ns", "cache").unwrap();
        let told = explain(&view, &key, Timestamp::UNIX_EPOCH).unwrap().text();
        insta::assert_snapshot!(told, @"
        ValkeyCluster ns/cache: Degraded. waiting for cache-3
          spec      generation 2, planned for 1: the operator has not looked at the last edit yet
          paused    annotation usher.dev/paused: nothing is done until it is removed
          slots     10 of 4096 moved, Atomic; last error: no
          condition Ready is False: Degraded: 5/6
          shard     0-5460: primary cache-0, replicas cache-3 (not in sync)
        ");
        let nobody = ObjectKey::new("ns", "nobody").unwrap();
        assert_eq!(explain(&view, &nobody, Timestamp::UNIX_EPOCH), None);
    }
}
