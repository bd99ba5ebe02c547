//! Walks over one object: which fields it has, what is left when some are taken out, and which names a set implies.

use serde_json::{Map, Value};

use super::element::Element;
use super::set::{Node, Set};
use super::shape::{DEEPEST, Form, List, Shape};
use crate::schema::Schema;

impl Set {
    /// Every field of an object: its leaves, and the items and entries that are owned by being there.
    #[must_use]
    pub fn of(object: &Value, schema: &Schema) -> Self {
        fields_of(object, Shape::Root(schema), 0).0
    }
}

/// The fields below a value, and whether the value is a leaf itself.
fn fields_of(value: &Value, shape: Shape<'_>, depth: usize) -> (Set, bool) {
    if depth > DEEPEST {
        return (Set::new(), true);
    }
    match shape.form(Some(value)) {
        Form::Scalar | Form::Map { atomic: true } | Form::List(List::Atomic) => (Set::new(), true),
        Form::Map { atomic: false } => {
            let Value::Object(map) = value else {
                return (Set::new(), false);
            };
            let mut set = Set {
                nodes: Vec::with_capacity(map.len()),
            };
            for (key, child) in map {
                let field = shape.field(key);
                if matches!(field.shape, Shape::Skipped) {
                    continue;
                }
                let (children, leaf) = fields_of(child, field.shape, depth + 1);
                let hollow = match child {
                    Value::Null => true,
                    Value::Object(below) => below.is_empty(),
                    _ => false,
                };
                set.put(Node {
                    element: Element::field(key),
                    member: leaf || hollow || !field.named,
                    children,
                });
            }
            (set, false)
        }
        Form::List(list) => {
            let Value::Array(items) = value else {
                return (Set::new(), false);
            };
            let mut set = Set {
                nodes: Vec::with_capacity(items.len()),
            };
            let elements: Vec<Option<Element>> = items.iter().map(|item| shape.item(list, item).ok()).collect();
            let twice = repeated(&elements);
            for (item, element) in items.iter().zip(elements) {
                let Some(element) = element else { continue };
                // An item that is there twice is owned as a whole.
                let children = if twice.contains(&element) {
                    Set::new()
                } else {
                    fields_of(item, shape.items(), depth + 1).0
                };
                set.put(Node {
                    element,
                    member: true,
                    children,
                });
            }
            (set, false)
        }
    }
}

/// The elements that are there more than once.
fn repeated(elements: &[Option<Element>]) -> Vec<Element> {
    let mut sorted: Vec<&Element> = elements.iter().flatten().collect();
    sorted.sort();
    let mut twice: Vec<Element> = sorted
        .iter()
        .zip(sorted.iter().skip(1))
        .filter(|(left, right)| left == right)
        .map(|(left, _)| (*left).clone())
        .collect();
    twice.dedup();
    twice
}

/// The value without the fields of `gone`. A map or list that loses its last entry becomes null, as in the reference.
pub(super) fn without(value: &Value, gone: &Set, shape: Shape<'_>) -> Value {
    if gone.is_empty() {
        return value.clone();
    }
    match (shape.form(Some(value)), value) {
        (Form::Scalar, _) => value.clone(),
        (Form::Map { atomic: false }, Value::Object(map)) => {
            let mut left = Map::new();
            for (key, child) in map {
                let field = shape.field(key);
                if matches!(field.shape, Shape::Skipped) {
                    continue;
                }
                match gone.node(&Element::field(key)) {
                    Some(node) if node.member => {}
                    Some(node) if !node.children.is_empty() => {
                        left.insert(key.clone(), without(child, &node.children, field.shape));
                    }
                    _ => {
                        left.insert(key.clone(), child.clone());
                    }
                }
            }
            if left.is_empty() {
                Value::Null
            } else {
                Value::Object(left)
            }
        }
        (Form::List(list @ (List::Set | List::Map(_))), Value::Array(items)) => {
            let mut left = Vec::with_capacity(items.len());
            for item in items {
                let element = shape.item(list, item).ok();
                match element.as_ref().and_then(|element| gone.node(element)) {
                    Some(node) if node.member => {}
                    Some(node) if !node.children.is_empty() => left.push(without(item, &node.children, shape.items())),
                    _ => left.push(item.clone()),
                }
            }
            if left.is_empty() {
                Value::Null
            } else {
                Value::Array(left)
            }
        }
        // Atomic, empty, or of another type than the set was made for.
        _ => Value::Null,
    }
}

/// The set with every named field above a member made a member too: who owns `spec.replicas` keeps `spec` alive.
pub(super) fn with_names(set: &Set, shape: Shape<'_>) -> Set {
    fn walk(set: &Set, shape: Option<Shape<'_>>) -> Set {
        let nodes = set
            .nodes
            .iter()
            .map(|node| {
                let (named, below) = match (&node.element, shape) {
                    (Element::Field(name), Some(shape)) => {
                        let field = shape.field(name);
                        (field.named, Some(field.shape))
                    }
                    (Element::Key(_), Some(shape)) => (false, Some(shape.items())),
                    _ => (false, None),
                };
                Node {
                    element: node.element.clone(),
                    member: node.member || (named && !node.children.is_empty()),
                    children: walk(&node.children, below),
                }
            })
            .collect();
        Set { nodes }
    }
    walk(set, Some(shape))
}

/// A set made for an older schema, brought to this one: where a list or map is now owned as a whole, who owned a part
/// owns the whole. `None` if nothing changes.
pub(super) fn reconciled(set: &Set, schema: &Schema) -> Option<Set> {
    fn walk(set: &Set, shape: Shape<'_>, list: bool) -> Option<Set> {
        let mut changed = false;
        let mut nodes = Vec::with_capacity(set.nodes.len());
        for node in &set.nodes {
            let below = match &node.element {
                Element::Field(name) if !list => {
                    let field = shape.field(name);
                    field.declared.then_some(field.shape)
                }
                Element::Key(_) | Element::Value(_) | Element::Index(_) if list => Some(shape.items()),
                _ => None,
            };
            let mut node = node.clone();
            if let Some(below) = below
                && !node.children.is_empty()
            {
                match below.form(None) {
                    Form::Map { atomic: true } | Form::List(List::Atomic) => {
                        node = Node {
                            element: node.element,
                            member: true,
                            children: Set::new(),
                        };
                        changed = true;
                    }
                    form @ (Form::Map { .. } | Form::List(_)) => {
                        if let Some(children) = walk(&node.children, below, matches!(form, Form::List(_))) {
                            node.children = children;
                            changed = true;
                        }
                    }
                    Form::Scalar => {}
                }
            }
            nodes.push(node);
        }
        changed.then_some(Set { nodes })
    }
    walk(set, Shape::Root(schema), false)
}
