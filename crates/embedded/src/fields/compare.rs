//! What differs between two objects: fields removed, modified and added.

use std::collections::BTreeMap;

use serde_json::Value;

use super::element::{Element, same};
use super::set::{Node, Set};
use super::shape::{DEEPEST, Form, List, Shape};

/// The difference of two objects. No field is in two of the sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Difference {
    pub removed: Set,
    pub modified: Set,
    pub added: Set,
}

impl Difference {
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// Without the fields of `ignored` and what is below them.
    pub fn without(self, ignored: &Set) -> Self {
        if ignored.is_empty() {
            return self;
        }
        Self {
            removed: self.removed.stripped(ignored),
            modified: self.modified.stripped(ignored),
            added: self.added.stripped(ignored),
        }
    }
}

/// Compares two objects of one shape.
pub(super) fn compare(old: &Value, new: &Value, shape: Shape<'_>) -> Difference {
    let mut out = Branches::default();
    walk(Some(old), Some(new), shape, 0, &mut out);
    Difference {
        removed: out.removed.children,
        modified: out.modified.children,
        added: out.added.children,
    }
}

/// The three sets below one place, and whether the place itself is in them.
#[derive(Default)]
struct Branches {
    removed: Branch,
    modified: Branch,
    added: Branch,
}

#[derive(Default)]
struct Branch {
    member: bool,
    children: Set,
}

impl Branch {
    fn put(&mut self, element: Element, branch: Branch) {
        self.children.put(Node {
            element,
            member: branch.member,
            children: branch.children,
        });
    }

    fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

impl Branches {
    /// The whole place is one leaf.
    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, _) => self.added.member = true,
            (_, None) => self.removed.member = true,
            (Some(old), Some(new)) => self.modified.member |= !same(old, new),
        }
    }

    fn below(&mut self, element: Element, below: Self) {
        // Nearly always it is in one of the three alone, which takes the element as it is.
        let (removed, modified) = (!below.removed.is_empty(), !below.modified.is_empty());
        let added = !below.added.is_empty();
        if removed && (modified || added) {
            self.removed.put(element.clone(), below.removed);
        } else if removed {
            return self.removed.put(element, below.removed);
        }
        if modified && added {
            self.modified.put(element.clone(), below.modified);
        } else if modified {
            return self.modified.put(element, below.modified);
        }
        if added {
            self.added.put(element, below.added);
        }
    }
}

fn walk(old: Option<&Value>, new: Option<&Value>, shape: Shape<'_>, depth: usize, out: &mut Branches) {
    if depth > DEEPEST {
        out.leaf(old, new);
        return;
    }
    let (old_form, new_form) = (shape.form(old), shape.form(new));
    let leaf = match (old, new) {
        (_, None) => by_form(old_form, old, new, shape, depth, out),
        (None, _) => by_form(new_form, old, new, shape, depth, out),
        _ if old_form == new_form => by_form(new_form, old, new, shape, depth, out),
        _ => {
            // A value that changed its type: the old one goes, with all below it, and the new one comes.
            by_form(old_form, old, new, shape, depth, out);
            by_form(new_form, old, new, shape, depth, out)
        }
    };
    if !leaf {
        out.added.member |= old.is_none();
        out.removed.member |= new.is_none();
    }
}

/// Whether the place was compared as a leaf.
fn by_form(
    form: Form<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
    shape: Shape<'_>,
    depth: usize,
    out: &mut Branches,
) -> bool {
    match form {
        Form::Scalar | Form::Map { atomic: true } | Form::List(List::Atomic) => {
            out.leaf(old, new);
            true
        }
        Form::Map { atomic: false } => {
            let (old_map, new_map) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            let hollow = |map: Option<&serde_json::Map<String, Value>>| map.is_none_or(serde_json::Map::is_empty);
            if hollow(old_map) && hollow(new_map) {
                out.leaf(old, new);
                return true;
            }
            let mut visit = |key: &str, old: Option<&Value>, new: Option<&Value>| {
                let field = shape.field(key);
                if !matches!(field.shape, Shape::Skipped) {
                    let mut below = Branches::default();
                    walk(old, new, field.shape, depth + 1, &mut below);
                    if !below.is_empty() {
                        out.below(Element::field(key), below);
                    }
                }
            };
            for (key, child) in old_map.into_iter().flatten() {
                visit(key, Some(child), new_map.and_then(|map| map.get(key)));
            }
            for (key, child) in new_map.into_iter().flatten() {
                if old_map.is_none_or(|map| !map.contains_key(key)) {
                    visit(key, None, Some(child));
                }
            }
            false
        }
        Form::List(list) => {
            let items = |value: Option<&'_ Value>| value.and_then(Value::as_array).map_or(0, Vec::len);
            if items(old) == 0 && items(new) == 0 {
                out.leaf(old, new);
                return true;
            }
            lists(list, old, new, shape, depth, out);
            false
        }
    }
}

impl Branches {
    fn is_empty(&self) -> bool {
        [&self.removed, &self.modified, &self.added]
            .into_iter()
            .all(Branch::is_empty)
    }
}

fn lists(list: List<'_>, old: Option<&Value>, new: Option<&Value>, shape: Shape<'_>, depth: usize, out: &mut Branches) {
    // Items by what they are known by; more than one only where an update stored the same item twice.
    let mut items: BTreeMap<Element, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for item in old.and_then(Value::as_array).into_iter().flatten() {
        if let Ok(element) = shape.item(list, item) {
            items.entry(element).or_default().0.push(item);
        }
    }
    for item in new.and_then(Value::as_array).into_iter().flatten() {
        if let Ok(element) = shape.item(list, item) {
            items.entry(element).or_default().1.push(item);
        }
    }
    for (element, (old, new)) in items {
        let mut below = Branches::default();
        match (old.as_slice(), new.as_slice()) {
            (&[_, _, ..], &[_, _, ..]) => {
                let equal = old.len() == new.len() && old.iter().zip(&new).all(|(old, new)| same(old, new));
                below.modified.member = !equal;
            }
            (&[_, _, ..], single) => {
                if let Some(new) = single.first() {
                    walk(None, Some(new), shape.items(), depth + 1, &mut below);
                }
                below.removed.member = true;
            }
            (single, &[_, _, ..]) => {
                if let Some(old) = single.first() {
                    walk(Some(old), None, shape.items(), depth + 1, &mut below);
                }
                below.added.member = true;
            }
            (old, new) => walk(
                old.first().copied(),
                new.first().copied(),
                shape.items(),
                depth + 1,
                &mut below,
            ),
        }
        out.below(element, below);
    }
}
