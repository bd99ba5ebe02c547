//! Placing a gang's minimum: all of its pods at once on one snapshot, packed as their PodGang asks (K2).
//!
//! First the labels' values are chosen, from the widest pack to the narrowest, the tightest domain that has room first;
//! then pods go to nodes, the largest first, the fullest node first, and what turns out wrong is taken back. Pods that are
//! alike are not tried in two orders, nor nodes that are alike. Packing is as hard as it gets (it is bin packing), so the
//! search is bounded: after [`MOST_LOOKS`] looks at a node it gives up, and the gang waits as if it did not fit. That is
//! well below a second, and far beyond what gangs of a few kinds of pods need; a small world is searched whole.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::Wanted;
use super::filter::Filter;
use super::gangs::{Level, Pack};
use super::snapshot::{NodeState, Snapshot};

/// How many times a node is looked at for a pod before the search gives up.
pub(crate) const MOST_LOOKS: usize = 1_000_000;

/// A pod that may go.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) group: usize,
    pub(crate) wanted: Wanted,
}

/// What is to be placed at once.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    /// In the order in which they are taken if there are more than needed.
    pub(crate) members: &'a [Member],
    /// How many of each group.
    pub(crate) needs: Vec<usize>,
    pub(crate) packs: &'a [Pack],
    /// For each pack: the nodes where pods of it already are.
    pub(crate) there: Vec<Vec<String>>,
}

/// Where each pod goes: indices of members, names of nodes.
pub(crate) type Places = Vec<(usize, String)>;

/// `None`: they do not fit together, as far as the search came. The snapshot is as before.
pub(crate) fn pack(order: &Order<'_>, snapshot: &mut Snapshot) -> Option<Places> {
    let mut looks = 0;
    // Preferences are tried first, and given up from the narrowest level on.
    let wishes = |keep: Option<Level>| -> Vec<usize> {
        let kept = |pack: &Pack| pack.is_required || keep.is_some_and(|keep| pack.level <= keep);
        let packs = order.packs.iter().enumerate();
        packs.filter(|(_, pack)| kept(pack)).map(|(index, _)| index).collect()
    };
    let mut tried: Vec<Vec<usize>> = Vec::new();
    for keep in [Some(Level::Group), Some(Level::Groups), Some(Level::Gang), None] {
        let active = wishes(keep);
        if tried.contains(&active) {
            continue;
        }
        let mut search = Search::new(order, snapshot, active.clone(), looks);
        let found = search.choose(0);
        looks = search.looks;
        if found.is_some() {
            return found;
        }
        tried.push(active);
    }
    None
}

struct Search<'a> {
    order: &'a Order<'a>,
    snapshot: &'a mut Snapshot,
    /// The packs that hold in this search.
    active: Vec<usize>,
    /// The value that each of them has; `None`: not chosen yet.
    values: Vec<Option<String>>,
    /// For each member, the nodes that are not out of the question.
    open: Vec<BTreeSet<String>>,
    looks: usize,
}

impl<'a> Search<'a> {
    fn new(order: &'a Order<'a>, snapshot: &'a mut Snapshot, active: Vec<usize>, looks: usize) -> Self {
        let open = order
            .members
            .iter()
            .map(|member| {
                let named = member.wanted.named_nodes().ok().flatten();
                snapshot
                    .nodes()
                    .filter(|node| named.as_ref().is_none_or(|named| named.contains(&node.name)))
                    .filter(|node| Filter::node_itself(&member.wanted, node).is_none())
                    .filter(|node| member.wanted.volumes.against(node).is_empty())
                    .map(|node| node.name.clone())
                    .collect()
            })
            .collect();
        Self {
            order,
            snapshot,
            values: vec![None; active.len()],
            active,
            open,
            looks,
        }
    }

    fn pack(&self, position: usize) -> Option<&'a Pack> {
        self.order.packs.get(*self.active.get(position)?)
    }

    /// Whether the packs chosen so far let a group use a node.
    fn allows(&self, group: usize, node: &NodeState) -> bool {
        (0..self.active.len()).all(|position| {
            let (Some(pack), Some(Some(value))) = (self.pack(position), self.values.get(position)) else {
                return true;
            };
            !pack.groups.contains(&group) || node.labels.get(&pack.key) == Some(value)
        })
    }

    /// Chooses values from the pack at this position on, then places.
    fn choose(&mut self, position: usize) -> Option<Places> {
        let Some(pack) = self.pack(position) else {
            return self.fill();
        };
        for value in self.domains(position, pack) {
            if let Some(chosen) = self.values.get_mut(position) {
                *chosen = Some(value);
            }
            if self.looks < MOST_LOOKS
                && let Some(found) = self.choose(position + 1)
            {
                return Some(found);
            }
        }
        if let Some(chosen) = self.values.get_mut(position) {
            *chosen = None;
        }
        None
    }

    /// The values of a pack's label that have room for each of its groups by itself, the tightest first.
    fn domains(&self, position: usize, pack: &Pack) -> Vec<String> {
        let there = self.active.get(position).and_then(|index| self.order.there.get(*index));
        let fixed: BTreeSet<Option<&String>> = there
            .into_iter()
            .flatten()
            .map(|node| self.snapshot.node(node).and_then(|node| node.labels.get(&pack.key)))
            .collect();
        let mut room: BTreeMap<&String, Vec<&NodeState>> = BTreeMap::new();
        for node in self.snapshot.nodes() {
            if let Some(value) = node.labels.get(&pack.key) {
                // Those who are there decide, if they agree. If not, nothing can be kept.
                if fixed.is_empty() || (fixed.len() == 1 && fixed.contains(&Some(value))) {
                    room.entry(value).or_default().push(node);
                }
            }
        }
        let mut sized: Vec<(usize, String)> = room
            .into_iter()
            .filter_map(|(value, nodes)| {
                let mut total = 0;
                for group in &pack.groups {
                    let needed = self.order.needs.get(*group).copied().unwrap_or_default();
                    let slots = self.slots(*group, &nodes);
                    if slots < needed {
                        return None;
                    }
                    total += slots;
                }
                Some((total, value.clone()))
            })
            .collect();
        sized.sort();
        sized.into_iter().map(|(_, value)| value).collect()
    }

    /// How many pods of a group these nodes could take at most, each kind of pod by itself.
    fn slots(&self, group: usize, nodes: &[&NodeState]) -> usize {
        let members = self
            .order
            .members
            .iter()
            .zip(&self.open)
            .filter(|(member, _)| member.group == group);
        let mut most = 0;
        for (member, open) in members {
            let fit = nodes
                .iter()
                .filter(|node| open.contains(&node.name) && self.allows(group, node))
                .map(|node| {
                    let pods = node.most_pods.saturating_sub(node.pods.len());
                    member.wanted.facts.requests.times_in(&node.has, &node.used, pods)
                })
                .sum();
            // The smallest member tells: a group whose pods differ is not given up too early.
            most = most.max(fit);
        }
        most
    }

    /// All values are chosen: pods go to nodes.
    fn fill(&mut self) -> Option<Places> {
        let all: Vec<&NodeState> = self.snapshot.nodes().collect();
        let groups = self.order.needs.iter().enumerate();
        let has_room = groups
            .into_iter()
            .all(|(group, needed)| self.slots(group, &all) >= *needed);
        if !has_room {
            return None;
        }
        let mut filling = Filling::new(self, false);
        let found = filling.place();
        if found || !filling.has_choice {
            return found.then_some(filling.places);
        }
        // Others of the same groups may do where the first ones do not.
        let mut filling = Filling::new(self, true);
        filling.place().then_some(filling.places)
    }
}

struct Filling<'s, 'a> {
    search: &'s mut Search<'a>,
    /// Members, the largest first, those alike beside each other.
    items: Vec<usize>,
    /// Nodes, the fullest first.
    nodes: Vec<String>,
    /// How many of each group are still to be placed, and how many may be left out.
    left: Vec<usize>,
    spare: Vec<usize>,
    places: Places,
    /// There are more members than needed, and they differ.
    has_choice: bool,
}

/// One item's turn in the search: what it tried, and how things stood before.
struct Turn {
    position: usize,
    index: usize,
    /// How many of its group were to be placed, and could be left out.
    needed: usize,
    spare: usize,
    /// The next node to look at.
    at: usize,
    /// Where it is now.
    placed: Option<String>,
    is_left_out: bool,
    /// Nodes where it led to nothing.
    failed: Vec<String>,
}

impl<'s, 'a> Filling<'s, 'a> {
    fn new(search: &'s mut Search<'a>, with_all: bool) -> Self {
        let order = search.order;
        let left = order.needs.clone();
        let mut taken = vec![0; left.len()];
        let mut items = Vec::new();
        let mut differs = false;
        for (index, member) in order.members.iter().enumerate() {
            let needed = left.get(member.group).copied().unwrap_or_default();
            let Some(taken) = taken.get_mut(member.group) else {
                continue;
            };
            if *taken < needed || with_all {
                items.push(index);
            }
            let first = order.members.iter().find(|first| first.group == member.group);
            differs |= needed > 0 && first.is_some_and(|first| !first.wanted.is_like(&member.wanted));
            *taken += 1;
        }
        let has_choice = differs && taken.iter().zip(&left).any(|(taken, needed)| taken > needed);
        let spare = taken
            .iter()
            .zip(&left)
            .map(|(taken, needed)| if with_all { taken.saturating_sub(*needed) } else { 0 })
            .collect();
        let mut largest = super::amounts::Amounts::default();
        for node in search.snapshot.nodes() {
            if node.has.share_of(&largest) > 1_000 || largest == super::amounts::Amounts::default() {
                largest = node.has.clone();
            }
        }
        let size = |index: &usize| {
            let member = order.members.get(*index);
            member.map_or((0, 0), |member| {
                (-member.wanted.facts.requests.share_of(&largest), member.group)
            })
        };
        items.sort_by_key(|index| (size(index), *index));
        let widest = items.first().and_then(|index| order.members.get(*index));
        let mut nodes: Vec<(usize, String)> = search
            .snapshot
            .nodes()
            .map(|node| {
                let pods = node.most_pods.saturating_sub(node.pods.len());
                let fit = widest.map_or(0, |member| {
                    member.wanted.facts.requests.times_in(&node.has, &node.used, pods)
                });
                (fit, node.name.clone())
            })
            .collect();
        nodes.sort();
        Self {
            search,
            items,
            nodes: nodes.into_iter().map(|(_, name)| name).collect(),
            left,
            spare,
            places: Vec::new(),
            has_choice,
        }
    }

    /// Places all of them, or none. The way back is kept in a list and not on the stack: gangs may have thousands of pods.
    fn place(&mut self) -> bool {
        let mut way: Vec<Turn> = Vec::new();
        let mut next = self.turn(0, None);
        let found = loop {
            if self.left.iter().all(|left| *left == 0) {
                break true;
            }
            way.extend(next.take());
            let Some(turn) = way.last_mut() else { break false };
            if self.search.looks > MOST_LOOKS {
                break false;
            }
            let (position, before) = (turn.position, self.go_on(turn));
            match before {
                Some(before) => next = self.turn(position + 1, before),
                None => drop(way.pop()),
            }
        };
        // The snapshot is as before, found or not.
        let places = self.places.clone();
        for turn in way.iter().rev() {
            self.take_back(turn);
        }
        if found {
            self.places = places;
        }
        found
    }

    /// What there is to try for the item at a position; `before` is the node of the item before it, or `None` if that was
    /// left out. `None`: there is no such item.
    fn turn(&self, position: usize, before: Option<usize>) -> Option<Turn> {
        let order = self.search.order;
        let index = *self.items.get(position)?;
        let member = order.members.get(index)?;
        let earlier = position
            .checked_sub(1)
            .and_then(|earlier| order.members.get(*self.items.get(earlier)?));
        let is_alike =
            earlier.is_some_and(|earlier| earlier.group == member.group && earlier.wanted.is_like(&member.wanted));
        let needed = self.left.get(member.group).copied().unwrap_or_default();
        // Of pods that are alike, the first ones go, and to nodes in their order.
        let goes = needed > 0 && !(is_alike && before.is_none());
        Some(Turn {
            position,
            index,
            needed,
            spare: self.spare.get(member.group).copied().unwrap_or_default(),
            at: match (goes, is_alike) {
                (false, _) => self.nodes.len(),
                (true, true) => before.unwrap_or_default(),
                (true, false) => 0,
            },
            placed: None,
            is_left_out: false,
            failed: Vec::new(),
        })
    }

    /// Takes back what this turn tried last and tries the next: the node it used, `Some(None)` if it left its item out.
    /// `None`: everything was tried.
    fn go_on(&mut self, turn: &mut Turn) -> Option<Option<usize>> {
        let member = self.search.order.members.get(turn.index)?;
        self.take_back(turn);
        turn.failed.extend(turn.placed.take());
        if turn.is_left_out {
            return None;
        }
        while let Some(name) = self.nodes.get(turn.at).cloned() {
            turn.at += 1;
            self.search.looks += 1;
            if self.search.looks > MOST_LOOKS {
                return None;
            }
            if !self.is_good(turn.index, member, &name) || turn.failed.iter().any(|other| self.are_alike(other, &name))
            {
                continue;
            }
            self.search.snapshot.put_pod(member.wanted.facts.clone(), &name);
            self.places.push((turn.index, name.clone()));
            self.set(member.group, turn.needed - 1, turn.spare);
            turn.placed = Some(name);
            return Some(Some(turn.at - 1));
        }
        if turn.needed > 0 && turn.spare == 0 {
            return None;
        }
        turn.is_left_out = true;
        self.set(member.group, turn.needed, turn.spare.saturating_sub(1));
        Some(None)
    }

    /// The snapshot and the counts as they were before this turn.
    fn take_back(&mut self, turn: &Turn) {
        let Some(member) = self.search.order.members.get(turn.index) else {
            return;
        };
        if turn.placed.is_some() {
            self.search.snapshot.drop_pod(member.wanted.name());
            self.places.pop();
        }
        if turn.placed.is_some() || turn.is_left_out {
            self.set(member.group, turn.needed, turn.spare);
        }
    }

    fn set(&mut self, group: usize, left: usize, spare: usize) {
        if let (Some(place), Some(other)) = (self.left.get_mut(group), self.spare.get_mut(group)) {
            (*place, *other) = (left, spare);
        }
    }

    fn is_good(&self, index: usize, member: &Member, name: &str) -> bool {
        let is_open = self.search.open.get(index).is_some_and(|open| open.contains(name));
        let Some(node) = self.search.snapshot.node(name).filter(|_| is_open) else {
            return false;
        };
        if !self.search.allows(member.group, node) {
            return false;
        }
        if member.wanted.is_plain() && !self.search.snapshot.has_pods_that_keep_away() {
            return node.pods.len() < node.most_pods && member.wanted.facts.requests.fits(&node.has, &node.used);
        }
        Filter::new(&member.wanted, self.search.snapshot)
            .against(node)
            .is_none()
    }

    /// Whether nothing tells two nodes apart, for any of the pods.
    fn are_alike(&self, one: &str, other: &str) -> bool {
        let snapshot = &self.search.snapshot;
        let (Some(a), Some(b)) = (snapshot.node(one), snapshot.node(other)) else {
            return false;
        };
        let order = self.search.order;
        let is_free_alike =
            a.has == b.has && a.used == b.used && a.most_pods == b.most_pods && a.pods.len() == b.pods.len();
        is_free_alike
            && order.members.iter().all(|member| member.wanted.is_plain())
            && !snapshot.has_pods_that_keep_away()
            && self
                .search
                .open
                .iter()
                .all(|open| open.contains(one) == open.contains(other))
            && (0..order.needs.len()).all(|group| self.search.allows(group, a) == self.search.allows(group, b))
    }
}
