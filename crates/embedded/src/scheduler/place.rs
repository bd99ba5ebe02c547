//! Where one pod goes: a pure function of the pod and of what is known of the nodes.

use std::collections::BTreeMap;
use std::fmt;

use super::facts::Wanted;
use super::filter::{Filter, Verdict};
use super::score;
use super::snapshot::{NodeState, Snapshot};

/// Why a pod has no node. Its text is the reference's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unfit {
    NoNodes,
    /// Something about the pod that no node can change.
    Early {
        nodes: usize,
        why: String,
    },
    Nodes {
        nodes: usize,
        reasons: BTreeMap<String, usize>,
        /// On how many nodes pods that go could make room.
        may_change: usize,
        never_preempts: bool,
    },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodes => f.write_str("no nodes available to schedule pods"),
            // The reference looks for idle device claims then, and has not yet counted the pod's: "not found".
            Self::Early { nodes, why } => write!(f, "0/{nodes} nodes are available: {why}. not found"),
            Self::Nodes {
                nodes,
                reasons,
                may_change,
                never_preempts,
            } => {
                write!(f, "0/{nodes} nodes are available:{}", listed(reasons))?;
                f.write_str(" no new claims to deallocate, preemption: ")?;
                if *never_preempts {
                    return f.write_str("not eligible due to preemptionPolicy=Never.");
                }
                let mut helped = BTreeMap::new();
                for (count, why) in [
                    (*may_change, "No preemption victims found for incoming pod"),
                    (nodes - may_change, "Preemption is not helpful for scheduling"),
                ] {
                    if count > 0 {
                        helped.insert(why.to_owned(), count);
                    }
                }
                write!(f, "0/{nodes} nodes are available:{}", listed(&helped))
            }
        }
    }
}

/// Reasons with their counts, in the order of the text.
fn listed(reasons: &BTreeMap<String, usize>) -> String {
    let mut words: Vec<String> = reasons.iter().map(|(why, count)| format!("{count} {why}")).collect();
    words.sort_unstable();
    match words.is_empty() {
        true => String::new(),
        false => format!(" {}.", words.join(", ")),
    }
}

/// A further limit on nodes: whether one may be, else why not.
pub(crate) type Limit<'a> = &'a dyn Fn(&NodeState) -> Option<String>;

pub(crate) fn place(wanted: &Wanted, snapshot: &Snapshot, limit: Option<Limit<'_>>) -> Result<String, Unfit> {
    let nodes = snapshot.len();
    if nodes == 0 {
        return Err(Unfit::NoNodes);
    }
    let early = |why: &str| {
        Err(Unfit::Early {
            nodes,
            why: why.to_owned(),
        })
    };
    let Ok(named) = wanted.named_nodes() else {
        return early("pod affinity terms conflict");
    };
    if let Some(why) = &wanted.volumes.trouble {
        return early(why);
    }
    let filter = Filter::new(wanted, snapshot);
    let mut good = Vec::new();
    let (mut reasons, mut may_change) = (BTreeMap::new(), 0);
    for node in snapshot.nodes() {
        let verdict = match &named {
            Some(named) if !named.contains(&node.name) => Some(Verdict {
                reasons: vec!["node(s) didn't satisfy plugin(s) [NodeAffinity]".to_owned()],
                may_change: false,
            }),
            _ => filter.against(node).or_else(|| {
                let why = limit.and_then(|limit| limit(node))?;
                Some(Verdict {
                    reasons: vec![why],
                    may_change: false,
                })
            }),
        };
        match verdict {
            None => good.push(node),
            Some(verdict) => {
                may_change += usize::from(verdict.may_change);
                for reason in verdict.reasons {
                    *reasons.entry(reason).or_default() += 1;
                }
            }
        }
    }
    match score::best(wanted, snapshot, &good) {
        Some(node) => Ok(node.name.clone()),
        None => Err(Unfit::Nodes {
            nodes,
            reasons,
            may_change,
            never_preempts: wanted.never_preempts,
        }),
    }
}
