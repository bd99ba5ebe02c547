//! Lists in a strategic merge: items found by their key, and the order they come out in.

use serde_json::{Map, Value};

use super::{
    BAD_ORDER, Bad, DIRECTIVE, ELEMENT_ORDER, Meta, after_prefix, bad_directive, maps, meta, no_key,
    without_directives, wrong_type,
};
use crate::go;
use crate::schema::Schema;

const MAP: &str = "map[string]interface {}";
const SLICE: &str = "[]interface {}";

/// Merges the lists that come with a `$setElementOrder` and takes both out of the patch.
pub(super) fn ordered(
    live: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    schema: Option<&Schema>,
    depth: usize,
) -> Result<(), Bad> {
    let orders: Vec<String> = patch
        .keys()
        .filter(|name| name.starts_with(ELEMENT_ORDER))
        .cloned()
        .collect();
    for name in orders {
        let order = match patch.remove(&name) {
            Some(Value::Array(order)) => order,
            Some(other) => return Err(wrong_type(SLICE, &other)),
            None => continue,
        };
        let field = after_prefix(&name, ELEMENT_ORDER).ok_or(BAD_ORDER)?;
        let old = list_of(live.get(field))?;
        let new = list_of(patch.get(field))?;
        let meta = meta(schema, field, true, depth == 0)?;
        fits_order(new.as_deref().unwrap_or_default(), &order, meta.key)?;
        let mut server_order = old.clone().unwrap_or_default();
        let merged = match (old.clone(), new.clone()) {
            (None, None) => continue,
            (Some(old), None) => old,
            (None, Some(new)) => new.into_iter().filter_map(without_directives).collect(),
            (Some(old), Some(new)) if meta.merges => {
                if let Some(key) = meta.key {
                    rewrite(&mut server_order, &new, key);
                }
                self::merged(old, new, meta, false, depth)?
            }
            (Some(_), Some(new)) => new,
        };
        let maps = of_maps(&server_order, new.as_deref().unwrap_or_default())?;
        let (from_patch, from_server) = parted(merged, &order, meta.key)?;
        let sorted = in_order(
            from_patch,
            from_server,
            &order,
            &server_order,
            meta.key.filter(|_| maps),
            maps,
        )?;
        live.insert(field.to_owned(), Value::Array(sorted));
        patch.remove(field);
    }
    Ok(())
}

/// The live list as the reference's ordering sees it after a merge: it works in place, so where items were deleted,
/// those that follow and those that are new stand in their places.
fn rewrite(list: &mut [Value], patch: &[Value], key: &str) {
    let deleted = |item: &Value| item.get(DIRECTIVE).is_some_and(|word| word == "delete");
    let mut length = list.len();
    for value in patch
        .iter()
        .filter(|item| deleted(item))
        .filter_map(|item| item.get(key))
    {
        while let Some(at) = list.iter().take(length).position(|item| item.get(key) == Some(value)) {
            if let Some(tail) = list.get_mut(at..length) {
                tail.rotate_left(1);
                length -= 1;
            }
            // What moved to the end of the list is seen twice, once where it went and once where it was.
            if let Some(last) = length.checked_sub(1).and_then(|last| list.get(last)).cloned()
                && at < length
                && let Some(place) = list.get_mut(length)
            {
                *place = last;
            }
        }
    }
    if patch
        .iter()
        .any(|item| item.get(DIRECTIVE).is_some_and(|word| word == "replace"))
    {
        return;
    }
    for item in patch.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let known = |other: &&Value| other.get(key) == item.get(key);
        if list.iter().take(length).find(known).is_none()
            && let Some(place) = list.get_mut(length)
        {
            *place = item.clone();
            length += 1;
        }
    }
}

fn list_of(value: Option<&Value>) -> Result<Option<Vec<Value>>, Bad> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items.clone())),
        Some(other) => Err(wrong_type(SLICE, other)),
    }
}

/// One list laid over another.
pub(super) fn merged(
    mut old: Vec<Value>,
    patch: Vec<Value>,
    meta: Meta<'_>,
    deletes: bool,
    depth: usize,
) -> Result<Vec<Value>, Bad> {
    if old.is_empty() && patch.is_empty() {
        return Ok(old);
    }
    if !of_maps(&old, &patch)? {
        if deletes {
            old.retain(|item| !patch.contains(item));
            return Ok(old);
        }
        let both = once(old.iter().chain(&patch).cloned().collect());
        let (from_patch, from_server) = parted(both, &patch, None)?;
        return in_order(from_patch, from_server, &patch, &old, None, false);
    }
    let Some(key) = meta.key else {
        return Err(Bad::Other("cannot merge lists without merge key for struct".to_owned()));
    };
    let (mut old, patch) = directed(old, patch, key)?;
    let before = old.clone();
    for item in &patch {
        let Value::Object(item) = item else {
            return Err(wrong_type(MAP, item));
        };
        let value = item.get(key).ok_or_else(|| no_key(item, key))?;
        let found = found(&old, key, value)?.and_then(|at| old.get_mut(at));
        match found {
            Some(old) => {
                let Value::Object(map) = old.take() else { continue };
                *old = Value::Object(maps(map, item.clone(), meta.below, depth + 1)?);
            }
            None => old.push(Value::Object(item.clone())),
        }
    }
    let (from_patch, from_server) = parted(old, &patch, Some(key))?;
    in_order(from_patch, from_server, &patch, &before, Some(key), true)
}

/// Carries out the `$patch` items, which leaves the plain ones.
fn directed(mut old: Vec<Value>, patch: Vec<Value>, key: &str) -> Result<(Vec<Value>, Vec<Value>), Bad> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut replaces = false;
    for item in patch {
        let Value::Object(map) = &item else {
            return Err(wrong_type(MAP, &item));
        };
        let Some(directive) = map.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let value = map.get(key).ok_or_else(|| no_key(map, key))?;
                while let Some(at) = found(&old, key, value)? {
                    old.remove(at);
                }
            }
            Some("replace") => replaces = true,
            Some("merge") => {
                return Err(Bad::Other(
                    "merging lists cannot yet be specified in the patch".to_owned(),
                ));
            }
            _ => return Err(bad_directive(directive, map)),
        }
    }
    Ok(if replaces { (plain, Vec::new()) } else { (old, plain) })
}

/// The first item with this key.
fn found(items: &[Value], key: &str, value: &Value) -> Result<Option<usize>, Bad> {
    for (at, item) in items.iter().enumerate() {
        let Value::Object(map) = item else {
            return Err(Bad::Other(format!("value for key {at} is not a map")));
        };
        if map.get(key) == Some(value) {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Whether the items are maps; all of them must be of one type.
fn of_maps(old: &[Value], patch: &[Value]) -> Result<bool, Bad> {
    let mut items = old.iter().chain(patch);
    let Some(first) = items.next() else {
        return Err(Bad::Other("no elements in any of the given slices".to_owned()));
    };
    if first.is_array() {
        return Err(Bad::Unprocessable);
    }
    if items.any(|item| go::type_name(item) != go::type_name(first)) || first.is_null() {
        let lists = [old, patch].map(|list| go::plain(&Value::from(list.to_vec())));
        return Err(Bad::Other(format!(
            "list element types are not identical: [{}]",
            lists.join(" ")
        )));
    }
    Ok(first.is_object())
}

/// Each scalar once. Where one goes, the last takes its place, as in the reference.
fn once(mut items: Vec<Value>) -> Vec<Value> {
    let mut at = 0;
    while at < items.len() {
        let mut other = at + 1;
        while other < items.len() {
            if items.get(at) == items.get(other) {
                items.swap_remove(other);
            } else {
                other += 1;
            }
        }
        at += 1;
    }
    items
}

/// The items that are in `by`, and the others.
fn parted(items: Vec<Value>, by: &[Value], key: Option<&str>) -> Result<(Vec<Value>, Vec<Value>), Bad> {
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for item in items {
        let is_in = match key {
            None => by.contains(&item),
            Some(key) => {
                let Value::Object(map) = &item else {
                    return Err(wrong_type(MAP, &item));
                };
                let value = map.get(key).ok_or_else(|| no_key(map, key))?;
                found(by, key, value)?.is_some()
            }
        };
        if is_in { inside.push(item) } else { outside.push(item) }
    }
    Ok((inside, outside))
}

/// The patch's items in their order, with the server's own put among them where the live list had them.
fn in_order(
    from_patch: Vec<Value>,
    from_server: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    key: Option<&str>,
    maps: bool,
) -> Result<Vec<Value>, Bad> {
    let known = |item: &Value| match key {
        Some(key) => item.get(key).cloned().unwrap_or(Value::Null),
        None => item.clone(),
    };
    let position = |order: &[Value], item: &Value| {
        let wanted = known(item);
        order.iter().position(|other| known(other) == wanted)
    };
    if maps && let Some(key) = key {
        for item in [&from_patch, &from_server]
            .into_iter()
            .flatten()
            .chain(patch_order)
            .chain(server_order)
        {
            let Value::Object(map) = item else {
                return Err(wrong_type(MAP, item));
            };
            if !map.contains_key(key) {
                return Err(no_key(map, key));
            }
        }
    }
    let sorted = |mut items: Vec<Value>, order: &[Value]| {
        items.sort_by_cached_key(|item| position(order, item).unwrap_or(usize::MAX));
        items
    };
    let from_patch = sorted(from_patch, patch_order);
    let from_server = sorted(from_server, server_order);

    let mut out = Vec::with_capacity(from_patch.len() + from_server.len());
    let mut right = from_patch.into_iter().peekable();
    for item in from_server {
        let mine = position(server_order, &item);
        while let Some(next) = right.peek() {
            if let (Some(mine), Some(other)) = (mine, position(server_order, next))
                && mine < other
            {
                break;
            }
            out.extend(right.next());
        }
        out.push(item);
    }
    out.extend(right);
    Ok(out)
}

/// The patch's items must be in the order list, in its order.
fn fits_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), Bad> {
    if order.is_empty() || patch.is_empty() {
        return Ok(());
    }
    let known = |item: &Value| -> Result<Value, Bad> {
        match (key, item) {
            (None, item) => Ok(item.clone()),
            (Some(key), Value::Object(map)) => map.get(key).cloned().ok_or_else(|| no_key(map, key)),
            (Some(_), other) => Err(wrong_type(MAP, other)),
        }
    };
    let mut waiting = order.iter();
    for item in patch {
        if key.is_some() && !item.is_object() {
            return Err(wrong_type(MAP, item));
        }
        let directive = item.get(DIRECTIVE);
        if directive.is_some_and(|word| word == "delete") {
            continue;
        }
        let mut met = directive.is_some() && !waiting.as_slice().is_empty();
        if met {
            continue;
        }
        for next in waiting.by_ref() {
            if known(item)? == known(next)? {
                met = true;
                break;
            }
        }
        if !met {
            return Err(Bad::Other(format!(
                "The order in patch list:\n{}\n doesn't match {ELEMENT_ORDER} list:\n{}\n",
                go::plain(&Value::from(patch.to_vec())),
                go::plain(&Value::from(order.to_vec()))
            )));
        }
    }
    Ok(())
}
