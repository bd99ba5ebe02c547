//! Lays an applied object over the live one. Nothing is taken away here; what an apply drops is pruned afterwards.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::element::Element;
use super::shape::{DEEPEST, Form, List, Shape};

/// The live object with everything that is applied; where both have a leaf, the applied one.
pub(super) fn merge(live: &Value, applied: &Value, shape: Shape<'_>) -> Value {
    walk(Some(live), Some(applied), shape, 0).unwrap_or(Value::Null)
}

fn walk(live: Option<&Value>, applied: Option<&Value>, shape: Shape<'_>, depth: usize) -> Option<Value> {
    if matches!(shape, Shape::Skipped) {
        return None;
    }
    let whole = || applied.or(live).cloned();
    // Nothing to merge with: a copy, except at the top, where fields may have to be left out.
    if (applied.is_none() || live.is_none()) && !matches!(shape, Shape::Root(_) | Shape::Metadata) || depth > DEEPEST {
        return whole();
    }
    match shape.form(applied.or(live)) {
        Form::Scalar | Form::Map { atomic: true } | Form::List(List::Atomic) => whole(),
        Form::Map { atomic: false } => {
            let (live, applied) = (live.and_then(Value::as_object), applied.and_then(Value::as_object));
            let hollow = |map: Option<&Map<String, Value>>| map.is_none_or(Map::is_empty);
            if hollow(live) && hollow(applied) {
                return whole();
            }
            let mut out = Map::new();
            for (key, child) in live.into_iter().flatten() {
                let over = applied.and_then(|map| map.get(key));
                if let Some(merged) = walk(Some(child), over, shape.field(key).shape, depth + 1) {
                    out.insert(key.clone(), merged);
                }
            }
            for (key, child) in applied.into_iter().flatten() {
                if live.is_none_or(|map| !map.contains_key(key))
                    && let Some(merged) = walk(None, Some(child), shape.field(key).shape, depth + 1)
                {
                    out.insert(key.clone(), merged);
                }
            }
            Some(Value::Object(out))
        }
        Form::List(list) => {
            let (left, right) = (live.and_then(Value::as_array), applied.and_then(Value::as_array));
            match (
                left.map_or(&[][..], Vec::as_slice),
                right.map_or(&[][..], Vec::as_slice),
            ) {
                ([], []) => whole(),
                (left, right) => Some(Value::Array(lists(left, right, list, shape, depth))),
            }
        }
    }
}

/// Items in the order of the applied list, with the live list's other items kept beside their neighbours.
fn lists(live: &[Value], applied: &[Value], list: List<'_>, shape: Shape<'_>, depth: usize) -> Vec<Value> {
    let known =
        |items: &[Value]| -> Vec<Option<Element>> { items.iter().map(|item| shape.item(list, item).ok()).collect() };
    let (live_known, applied_known) = (known(live), known(applied));
    // An item that is live twice is not merged with: `None`.
    let mut partners: BTreeMap<&Element, Option<&Value>> = BTreeMap::new();
    for (item, element) in live.iter().zip(&live_known) {
        if let Some(element) = element {
            partners
                .entry(element)
                .and_modify(|partner| *partner = None)
                .or_insert(Some(item));
        }
    }
    let in_applied: BTreeSet<&Element> = applied_known.iter().flatten().collect();
    let mut shared = applied_known
        .iter()
        .flatten()
        .filter(|element| partners.contains_key(element));
    let mut next_shared = shared.next();

    let mut out = Vec::with_capacity(live.len().max(applied.len()));
    let mut merged: BTreeSet<&Element> = BTreeSet::new();
    let mut left = live.iter().zip(&live_known).peekable();
    let mut right = applied.iter().zip(&applied_known).peekable();
    loop {
        let (live_next, applied_next) = (left.peek().copied(), right.peek().copied());
        if let Some((item, element)) = live_next {
            let shared_here = element.as_ref().filter(|element| in_applied.contains(element));
            let Some(shared_here) = shared_here else {
                // Only live: taken where it stands.
                out.push(item.clone());
                left.next();
                continue;
            };
            let together = applied_next.is_some_and(|(_, other)| other.as_ref() == Some(shared_here));
            let out_of_turn = applied_next.is_some() && next_shared.is_some_and(|next| next != shared_here);
            if !together && out_of_turn {
                // It comes where the applied list has it.
                left.next();
                continue;
            }
            if together || applied_next.is_none() || merged.contains(shared_here) {
                left.next();
            }
        }
        let Some((item, element)) = applied_next else {
            if live_next.is_none() {
                break;
            }
            continue;
        };
        right.next();
        let Some(element) = element else {
            out.push(item.clone());
            continue;
        };
        merged.insert(element);
        let partner = partners.get(element).copied().flatten();
        out.extend(walk(partner, Some(item), shape.items(), depth + 1));
        if next_shared == Some(element) {
            next_shared = shared.next();
        }
    }
    out
}
