//! PodGangs (`scheduler.grove.io`), read as plain JSON: which pods belong together, how many at least, and how near to
//! each other they must be (K2). The scheduler writes nothing to them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::facts::PodName;
use crate::registry::object;

pub(crate) const GROUP: &str = "scheduler.grove.io";
pub(crate) const PLURAL: &str = "podgangs";
/// On a pod: the name of its gang.
pub(crate) const LABEL: &str = "grove.io/podgang";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gang {
    pub(crate) created: String,
    pub(crate) groups: Vec<Group>,
    /// From the widest to the narrowest.
    pub(crate) packs: Vec<Pack>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) pods: Vec<PodName>,
    /// `minReplicas`: fewer than that are of no use.
    pub(crate) least: usize,
}

/// Pods of some groups are to be on nodes with one value of a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pack {
    pub(crate) level: Level,
    pub(crate) is_required: bool,
    pub(crate) key: String,
    /// Indices of groups.
    pub(crate) groups: BTreeSet<usize>,
}

/// What a pack is said of, the widest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Gang,
    Groups,
    Group,
}

fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    object::at(value, path)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    object::at(value, path).and_then(Value::as_str).unwrap_or_default()
}

impl Gang {
    pub(crate) fn read(gang: &Value) -> Self {
        let namespace = object::text(gang, "namespace");
        let groups: Vec<Group> = list(gang, "spec.podgroups")
            .iter()
            .map(|group| Group {
                name: text(group, "name").to_owned(),
                least: object::at(group, "minReplicas")
                    .and_then(Value::as_u64)
                    .and_then(|least| usize::try_from(least).ok())
                    .unwrap_or_default(),
                pods: list(group, "podReferences")
                    .iter()
                    .map(|reference| PodName {
                        namespace: match text(reference, "namespace") {
                            "" => namespace.to_owned(),
                            named => named.to_owned(),
                        },
                        name: text(reference, "name").to_owned(),
                    })
                    .collect(),
            })
            .collect();
        let mut packs = Vec::new();
        let mut pack = |level: Level, holder: &Value, groups: BTreeSet<usize>| {
            for (field, is_required) in [("required", true), ("preferred", false)] {
                let key = text(holder, &format!("topologyConstraint.packConstraint.{field}"));
                if !key.is_empty() && !groups.is_empty() {
                    packs.push(Pack {
                        level,
                        is_required,
                        key: key.to_owned(),
                        groups: groups.clone(),
                    });
                }
            }
        };
        pack(
            Level::Gang,
            gang.get("spec").unwrap_or(&Value::Null),
            (0..groups.len()).collect(),
        );
        for config in list(gang, "spec.topologyConstraintGroupConfigs") {
            let named = list(config, "podGroupNames");
            let inside = groups
                .iter()
                .enumerate()
                .filter(|(_, group)| named.iter().any(|name| name == &group.name));
            pack(Level::Groups, config, inside.map(|(index, _)| index).collect());
        }
        for (index, group) in list(gang, "spec.podgroups").iter().enumerate() {
            pack(Level::Group, group, [index].into());
        }
        packs.sort_by_key(|pack| (pack.level, !pack.is_required));
        Self {
            created: object::text(gang, "creationTimestamp").to_owned(),
            groups,
            packs,
        }
    }

    /// The group of a pod.
    pub(crate) fn group_of(&self, pod: &PodName) -> Option<usize> {
        self.groups.iter().position(|group| group.pods.contains(pod))
    }
}
