//! Small worlds, in which everything can be tried.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use proptest::prelude::*;
use serde_json::json;

use crate::controllers::mirror::Mirror;
use crate::scheduler::facts::{PodFacts, Wanted};
use crate::scheduler::gangs::{Level, Pack};
use crate::scheduler::pack::{Member, Order, Places, pack};
use crate::scheduler::snapshot::Snapshot;

/// A node: cpus, how many pods it takes, its rack if it has one, and cpus that somebody else has.
#[derive(Debug, Clone)]
pub(super) struct SmallNode {
    pub(super) cpus: u32,
    pub(super) pods: usize,
    pub(super) rack: Option<u8>,
    pub(super) taken: u32,
}

/// A gang: for each group what its pods ask for and how many are needed, and what must be in one rack.
#[derive(Debug, Clone)]
pub(super) struct SmallGang {
    pub(super) groups: Vec<(Vec<u32>, usize)>,
    pub(super) whole_in_one_rack: bool,
    pub(super) groups_in_one_rack: Vec<bool>,
}

impl SmallGang {
    /// All pods: group and cpus.
    fn members(&self) -> Vec<(usize, u32)> {
        let groups = self.groups.iter().enumerate();
        groups
            .flat_map(|(group, (asks, _))| asks.iter().map(move |cpus| (group, *cpus)))
            .collect()
    }

    /// Whether these places (a node for each member, or none) are right.
    fn is_right(&self, nodes: &[SmallNode], places: &[Option<usize>]) -> bool {
        let members = self.members();
        for (group, (_, needed)) in self.groups.iter().enumerate() {
            let placed = members
                .iter()
                .zip(places)
                .filter(|((own, _), place)| *own == group && place.is_some());
            if placed.count() != *needed {
                return false;
            }
        }
        let has_room = nodes.iter().enumerate().all(|(index, node)| {
            let here = || {
                members
                    .iter()
                    .zip(places)
                    .filter(move |(_, place)| **place == Some(index))
            };
            let asked: u32 = here().map(|((_, cpus), _)| *cpus).sum();
            let others = usize::from(node.taken > 0);
            asked + node.taken <= node.cpus.max(node.taken) && here().count() + others <= node.pods.max(others)
        });
        let racks = |is_meant: &dyn Fn(usize) -> bool| -> BTreeSet<Option<u8>> {
            let placed = members.iter().zip(places).filter(|((group, _), _)| is_meant(*group));
            placed
                .filter_map(|(_, place)| nodes.get((*place)?))
                .map(|node| node.rack)
                .collect()
        };
        let is_one = |racks: BTreeSet<Option<u8>>| racks.len() <= 1 && !racks.contains(&None);
        has_room
            && (!self.whole_in_one_rack || is_one(racks(&|_| true)))
            && self
                .groups_in_one_rack
                .iter()
                .enumerate()
                .all(|(group, wanted)| !wanted || is_one(racks(&|own| own == group)))
    }

    /// Tries everything.
    pub(super) fn fits(&self, nodes: &[SmallNode]) -> bool {
        fn go(gang: &SmallGang, nodes: &[SmallNode], places: &mut Vec<Option<usize>>, left: usize) -> bool {
            if left == 0 {
                return gang.is_right(nodes, places);
            }
            for place in std::iter::once(None).chain((0..nodes.len()).map(Some)) {
                places.push(place);
                if go(gang, nodes, places, left - 1) {
                    return true;
                }
                places.pop();
            }
            false
        }
        go(self, nodes, &mut Vec::new(), self.members().len())
    }
}

fn pod(name: &str, cpus: u32) -> Pod {
    serde_json::from_value(
        json!({"metadata": {"name": name, "namespace": "n"}, "spec": {"containers": [
        {"name": "c", "resources": {"requests": {"cpu": cpus.to_string()}}}]}}),
    )
    .unwrap()
}

fn snapshot(nodes: &[SmallNode]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (index, node) in nodes.iter().enumerate() {
        let labels = node.rack.map(|rack| json!({"rack": rack.to_string()}));
        let node_object: Node =
            serde_json::from_value(json!({"metadata": {"name": index.to_string(), "labels": labels},
            "status": {"allocatable": {"cpu": node.cpus.to_string(), "memory": "1Gi", "pods": node.pods.to_string()}}}))
            .unwrap();
        snapshot.put_node(&node_object);
        if node.taken > 0 {
            let other = pod(&format!("other-{index}"), node.taken);
            snapshot.put_pod(Arc::new(PodFacts::of(&other)), &index.to_string());
        }
    }
    snapshot
}

/// What the search finds, as places of all members.
fn placed(gang: &SmallGang, nodes: &[SmallNode], is_wish: bool) -> Option<Vec<Option<usize>>> {
    let members: Vec<Member> = gang
        .members()
        .into_iter()
        .enumerate()
        .map(|(index, (group, cpus))| Member {
            group,
            wanted: Wanted::of(&pod(&format!("m-{index}"), cpus), &Mirror::default()),
        })
        .collect();
    let mut packs = Vec::new();
    let mut add = |level: Level, groups: BTreeSet<usize>| {
        packs.push(Pack {
            level,
            is_required: !is_wish,
            key: "rack".to_owned(),
            groups,
        });
    };
    if gang.whole_in_one_rack {
        add(Level::Gang, (0..gang.groups.len()).collect());
    }
    for (group, _) in gang
        .groups_in_one_rack
        .iter()
        .enumerate()
        .filter(|(_, wanted)| **wanted)
    {
        add(Level::Group, [group].into());
    }
    let order = Order {
        members: &members,
        needs: gang.groups.iter().map(|(_, needed)| *needed).collect(),
        there: packs.iter().map(|_| Vec::new()).collect(),
        packs: &packs,
    };
    let mut snapshot = snapshot(nodes);
    let before = format!("{snapshot:?}");
    let found: Option<Places> = pack(&order, &mut snapshot);
    assert_eq!(format!("{snapshot:?}"), before, "the search leaves nothing behind");
    let mut places = vec![None; members.len()];
    for (member, node) in found? {
        places[member] = Some(node.parse().unwrap());
    }
    Some(places)
}

fn a_node() -> impl Strategy<Value = SmallNode> {
    (0..5_u32, 1..4_usize, prop::option::weighted(0.9, 0..2_u8), 0..3_u32).prop_map(|(cpus, pods, rack, taken)| {
        SmallNode {
            cpus,
            pods,
            rack,
            taken,
        }
    })
}

fn a_group() -> impl Strategy<Value = (Vec<u32>, usize)> {
    // Alike as a rule, as real groups are.
    let asks = prop_oneof![
        (1..4_usize, 1..4_u32).prop_map(|(count, cpus)| vec![cpus; count]),
        prop::collection::vec(1..4_u32, 1..4),
    ];
    (asks, any::<prop::sample::Index>()).prop_map(|(asks, index)| {
        let needed = index.index(asks.len()) + 1;
        (asks, needed)
    })
}

fn a_gang() -> impl Strategy<Value = SmallGang> {
    (prop::collection::vec((a_group(), any::<bool>()), 1..3), any::<bool>()).prop_map(|(groups, whole)| {
        let (groups, in_one): (Vec<_>, Vec<_>) = groups.into_iter().unzip();
        SmallGang {
            groups,
            whole_in_one_rack: whole,
            groups_in_one_rack: in_one,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn k2_a_gang_is_placed_exactly_if_trying_everything_finds_places(
        nodes in prop::collection::vec(a_node(), 1..5), gang in a_gang(),
    ) {
        let found = placed(&gang, &nodes, false);
        prop_assert_eq!(found.is_some(), gang.fits(&nodes));
        if let Some(places) = found {
            prop_assert!(gang.is_right(&nodes, &places), "{:?}", places);
        }
    }

    #[test]
    fn k2_what_is_preferred_is_kept_where_it_can_be_and_never_keeps_a_gang_out(
        nodes in prop::collection::vec(a_node(), 1..5), gang in a_gang(),
    ) {
        let found = placed(&gang, &nodes, true);
        let loose = SmallGang { whole_in_one_rack: false, groups_in_one_rack: Vec::new(), ..gang.clone() };
        prop_assert_eq!(found.is_some(), loose.fits(&nodes));
        if let Some(places) = found {
            prop_assert!(loose.is_right(&nodes, &places));
            if gang.fits(&nodes) {
                prop_assert!(gang.is_right(&nodes, &places), "{:?}", places);
            }
        }
    }
}

#[test]
fn k2_a_large_gang_on_many_nodes_alike_is_placed_and_one_too_many_is_refused_at_once() {
    let nodes = vec![
        SmallNode {
            cpus: 8,
            pods: 110,
            rack: Some(0),
            taken: 0
        };
        100
    ];
    let gang = |count: usize| SmallGang {
        groups: vec![(vec![3; count], count), (vec![1; 100], 100)],
        whole_in_one_rack: true,
        groups_in_one_rack: Vec::new(),
    };
    assert!(placed(&gang(200), &nodes, false).is_some());
    assert!(placed(&gang(201), &nodes, false).is_none());
}

#[test]
fn k2_a_gang_of_thousands_of_pods_needs_no_deep_stack() {
    let nodes = vec![
        SmallNode {
            cpus: 1_000,
            pods: 1_000,
            rack: Some(0),
            taken: 0
        };
        5
    ];
    let gang = |count: usize| SmallGang {
        groups: vec![(vec![1; count], count)],
        whole_in_one_rack: true,
        groups_in_one_rack: Vec::new(),
    };
    let small = std::thread::Builder::new().stack_size(256 * 1024);
    let placing = small.spawn(move || {
        assert!(placed(&gang(5_000), &nodes, false).is_some());
        assert!(placed(&gang(5_001), &nodes, false).is_none());
    });
    placing.unwrap().join().unwrap();
}
