//! Sets of field paths: what one writer owns.
//!
//! A tree of sorted nodes. A node may be a member, have children, or both; a node that is neither is never kept, so
//! two sets with the same members are equal.

use std::cmp::Ordering;

use super::element::Element;

/// Fields of one object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set {
    pub(super) nodes: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub element: Element,
    /// Whether the path that ends here is in the set, and not only what is below.
    pub member: bool,
    pub children: Set,
}

impl Set {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes
            .iter()
            .map(|node| usize::from(node.member) + node.children.len())
            .sum()
    }

    /// Adds one path. The empty path, the whole object, is owned by nobody and is not added.
    pub fn insert(&mut self, path: &[Element]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let at = match self.find(first) {
            Ok(at) => at,
            Err(at) => {
                self.nodes.insert(
                    at,
                    Node {
                        element: first.clone(),
                        member: false,
                        children: Self::new(),
                    },
                );
                at
            }
        };
        if let Some(node) = self.nodes.get_mut(at) {
            if rest.is_empty() {
                node.member = true;
            } else {
                node.children.insert(rest);
            }
        }
    }

    /// A set of paths of named fields.
    #[must_use]
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::new();
        for path in paths {
            set.insert(&path.iter().map(|name| Element::field(name)).collect::<Vec<_>>());
        }
        set
    }

    #[must_use]
    pub fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.node(last).is_some_and(|node| node.member),
            [first, rest @ ..] => self.node(first).is_some_and(|node| node.children.has(rest)),
        }
    }

    /// Every member, parents before what is below them.
    #[must_use]
    pub fn paths(&self) -> Vec<Vec<Element>> {
        fn walk(set: &Set, path: &mut Vec<Element>, out: &mut Vec<Vec<Element>>) {
            // The reference tells the members of one level before it goes down.
            for node in set.nodes.iter().filter(|node| node.member) {
                path.push(node.element.clone());
                out.push(path.clone());
                path.pop();
            }
            for node in &set.nodes {
                path.push(node.element.clone());
                walk(&node.children, path, out);
                path.pop();
            }
        }
        let mut out = Vec::new();
        walk(self, &mut Vec::new(), &mut out);
        out
    }

    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        for pair in Zip::new(&self.nodes, &other.nodes) {
            nodes.push(match pair {
                (Some(left), Some(right)) => Node {
                    element: left.element.clone(),
                    member: left.member || right.member,
                    children: left.children.union(&right.children),
                },
                (Some(node), None) | (None, Some(node)) => node.clone(),
                (None, None) => continue,
            });
        }
        Self { nodes }
    }

    /// The union of two sets that nobody else needs: the fields of the one are not copied where the other has none.
    #[must_use]
    pub(super) fn joined(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        self.union(&other)
    }

    /// The difference to a set, of one that nobody else needs: only what it loses is touched.
    #[must_use]
    pub(super) fn less(mut self, other: &Self) -> Self {
        for gone in &other.nodes {
            let Ok(at) = self.find(&gone.element) else { continue };
            let Some(node) = self.nodes.get_mut(at) else { continue };
            node.member &= !gone.member;
            node.children = std::mem::take(&mut node.children).less(&gone.children);
            if !node.member && node.children.is_empty() {
                self.nodes.remove(at);
            }
        }
        self
    }

    /// The same as [`Self::without`], of a set that nobody else needs.
    #[must_use]
    pub(super) fn stripped(mut self, other: &Self) -> Self {
        for gone in &other.nodes {
            let Ok(at) = self.find(&gone.element) else { continue };
            let Some(node) = self.nodes.get_mut(at) else { continue };
            node.member &= !gone.member;
            node.children = match gone.member {
                true => Self::new(),
                false => std::mem::take(&mut node.children).stripped(&gone.children),
            };
            if !node.member && node.children.is_empty() {
                self.nodes.remove(at);
            }
        }
        self
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |left, right| {
            let right = right?;
            kept(
                left,
                left.member && right.member,
                left.children.intersection(&right.children),
            )
        })
    }

    /// What is here and not there. A member there does not take away what is below it here.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, |left, right| {
            let Some(right) = right else { return Some(left.clone()) };
            kept(
                left,
                left.member && !right.member,
                left.children.difference(&right.children),
            )
        })
    }

    /// What is here and not there, where a member there takes away everything below it too.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.combine(other, |left, right| {
            let Some(right) = right else { return Some(left.clone()) };
            if right.member {
                return None;
            }
            kept(left, left.member, left.children.without(&right.children))
        })
    }

    /// The members that have no member below them.
    #[must_use]
    pub fn leaves(&self) -> Self {
        let leaf = |node: &Node| Node {
            element: node.element.clone(),
            member: node.member && node.children.is_empty(),
            children: node.children.leaves(),
        };
        Self {
            nodes: self.nodes.iter().map(leaf).collect(),
        }
    }

    /// Whether the two have a member in common.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        Zip::new(&self.nodes, &other.nodes).any(|pair| match pair {
            (Some(left), Some(right)) => (left.member && right.member) || left.children.meets(&right.children),
            _ => false,
        })
    }

    pub(super) fn node(&self, element: &Element) -> Option<&Node> {
        self.find(element).ok().and_then(|at| self.nodes.get(at))
    }

    fn find(&self, element: &Element) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.element.cmp(element))
    }

    /// Adds a node; cheap where it is the last in order, as when an object is walked. A node without members is left out.
    pub(super) fn put(&mut self, node: Node) {
        if !node.member && node.children.is_empty() {
            return;
        }
        if self.nodes.last().is_none_or(|last| last.element < node.element) {
            self.nodes.push(node);
            return;
        }
        match self.find(&node.element) {
            Err(at) => self.nodes.insert(at, node),
            Ok(at) => {
                if let Some(old) = self.nodes.get_mut(at) {
                    old.member |= node.member;
                    old.children = old.children.union(&node.children);
                }
            }
        }
    }

    fn combine(&self, other: &Self, keep: impl Fn(&Node, Option<&Node>) -> Option<Node>) -> Self {
        let nodes = Zip::new(&self.nodes, &other.nodes)
            .filter_map(|(left, right)| left.and_then(|left| keep(left, right)))
            .collect();
        Self { nodes }
    }
}

fn kept(node: &Node, member: bool, children: Set) -> Option<Node> {
    (member || !children.is_empty()).then(|| Node {
        element: node.element.clone(),
        member,
        children,
    })
}

/// Two sorted lists of nodes, side by side.
struct Zip<'a> {
    left: &'a [Node],
    right: &'a [Node],
}

impl<'a> Zip<'a> {
    fn new(left: &'a [Node], right: &'a [Node]) -> Self {
        Self { left, right }
    }
}

impl<'a> Iterator for Zip<'a> {
    type Item = (Option<&'a Node>, Option<&'a Node>);

    fn next(&mut self) -> Option<Self::Item> {
        let order = match (self.left.first(), self.right.first()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(left), Some(right)) => left.element.cmp(&right.element),
        };
        let left = if order.is_le() { take(&mut self.left) } else { None };
        let right = if order.is_ge() { take(&mut self.right) } else { None };
        Some((left, right))
    }
}

fn take<'a>(nodes: &mut &'a [Node]) -> Option<&'a Node> {
    let (first, rest) = nodes.split_first()?;
    *nodes = rest;
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_that_are_used_up_give_what_sets_that_are_kept_give() {
        let sets = [
            Set::new(),
            Set::of_fields(&[&["a"], &["a", "b"], &["c", "d", "e"]]),
            Set::of_fields(&[&["a"], &["c", "d"], &["c", "d", "e"], &["f"]]),
            Set::of_fields(&[&["a", "b"], &["c"], &["c", "x"]]),
        ];
        for (left, right) in sets.iter().flat_map(|left| sets.iter().map(move |right| (left, right))) {
            assert_eq!(left.clone().stripped(right), left.without(right), "{left:?} {right:?}");
            assert_eq!(left.clone().less(right), left.difference(right), "{left:?} {right:?}");
            assert_eq!(
                left.clone().joined(right.clone()),
                left.union(right),
                "{left:?} {right:?}"
            );
        }
    }
}
