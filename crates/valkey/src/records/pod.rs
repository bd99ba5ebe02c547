//! A pod.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::Value;
use usher_engine::Text;
use usher_operator::record::{ApiType, Meta, Record};

use super::cluster::ordinal;
use super::{PODS, SETS, made_for, text};
use crate::api::annotations::REVISION;
use crate::json::at;
use crate::observe::{PodPhase, PodSeen};
use crate::words::Ordinal;

/// A pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodRecord {
    /// Metadata.
    pub meta: Meta,
    /// What it is in a cluster of ours; of other people's pods, nothing.
    pub member: Option<Box<Member>>,
}

/// A pod of a cluster of ours.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// The cluster it says it is of.
    pub cluster: Text,
    /// Its place in the set.
    pub ordinal: Ordinal,
    /// Everything plans look at.
    pub seen: PodSeen,
}

impl Record for PodRecord {
    const TYPE: ApiType = PODS;

    fn read(meta: Meta, object: &DynamicObject) -> Result<Self, String> {
        let member = made_for(object).and_then(|cluster| member(&meta, object, cluster));
        Ok(Self {
            meta,
            member: member.map(Box::new),
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// A pod counts by its label, its name, and a set of the cluster's name that made it. That the set is the cluster's own is
/// told by uid, where both are seen.
fn member(meta: &Meta, object: &DynamicObject, cluster: &str) -> Option<Member> {
    let of_set = |owner: &super::Owner| owner.kind == *SETS.kind && owner.name == *cluster;
    let ordinal = ordinal(meta.key.name(), cluster).filter(|_| meta.owners.iter().any(of_set))?;
    Some(Member {
        cluster: cluster.into(),
        ordinal,
        seen: seen(meta, object),
    })
}

fn seen(meta: &Meta, object: &DynamicObject) -> PodSeen {
    let status = at(&object.data, &["status"]);
    let readiness = condition(status, "Ready");
    let changed = readiness.and_then(|ready| ready["lastTransitionTime"].as_str()?.parse().ok());
    let named = [&object.metadata.labels, &object.metadata.annotations];
    let named = named.into_iter().flatten().flatten();
    PodSeen {
        name: meta.key.name().into(),
        uid: meta.uid.clone(),
        revision: meta.revision,
        address: status["podIP"].as_str().and_then(|ip| ip.parse::<IpAddr>().ok()),
        node: at(&object.data, &["spec", "nodeName"]).as_str().map(Into::into),
        phase: match status["phase"].as_str() {
            Some("Running") => PodPhase::Running,
            Some("Succeeded" | "Failed") => PodPhase::Ended,
            Some("Unknown") => PodPhase::Unknown,
            _ => PodPhase::Pending,
        },
        ready: readiness.is_some_and(|ready| ready["status"] == "True"),
        ready_changed: changed.unwrap_or_else(|| Timestamp::from(meta.created)),
        deleting: meta.deleting.map(Timestamp::from),
        template: text(&object.metadata.annotations, REVISION).map(Into::into),
        trouble: trouble(status),
        labelled: BTreeMap::from_iter(named.map(|(name, value)| (name.as_str().into(), value.as_str().into()))),
    }
}

fn condition<'s>(status: &'s Value, kind: &str) -> Option<&'s Value> {
    let conditions = status["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)
}

/// Why it does not run, in its own words.
fn trouble(status: &Value) -> Option<String> {
    let unscheduled = condition(status, "PodScheduled").filter(|scheduled| scheduled["status"] == "False");
    if let Some(scheduled) = unscheduled {
        return Some(said(scheduled));
    }
    let containers = status["containerStatuses"].as_array().into_iter().flatten();
    containers.filter_map(of_container).next()
}

fn of_container(container: &Value) -> Option<String> {
    // Starting is no trouble; going round in circles is.
    let ordinary = ["ContainerCreating", "PodInitializing"];
    let waiting = at(container, &["state", "waiting"]);
    let reason = waiting["reason"].as_str().filter(|reason| !ordinary.contains(reason));
    let ended = [
        at(container, &["state", "terminated"]),
        at(container, &["lastState", "terminated"]),
    ];
    let ended = ended.into_iter().find(|ended| ended.is_object());
    let exit = ended.map(|ended| format!("exit code {}", ended["exitCode"]));
    let stopped = at(container, &["state", "terminated"]).is_object();
    match (reason, exit) {
        (Some(_), Some(exit)) => Some(format!("{} ({exit})", said(waiting))),
        (Some(_), None) => Some(said(waiting)),
        (None, Some(exit)) if stopped => Some(exit),
        (None, _) => None,
    }
}

/// `reason: message`, as far as there is either.
fn said(value: &Value) -> String {
    let words = [value["reason"].as_str(), value["message"].as_str()];
    let words: Vec<_> = words.into_iter().flatten().filter(|word| !word.is_empty()).collect();
    words.join(": ")
}
