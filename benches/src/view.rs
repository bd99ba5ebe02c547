//! The view without a cluster: what it weighs per Subnet and claim, and what taking one in costs. A minute's answer to
//! "did I make it fatter"; the figures that count come from a real start.

use std::time::Instant;

use kube::api::DynamicObject;
use serde_json::{Value, json};
use usher_operator::record::ApiType;
use usher_operator::view::{Event, View};
use usher_subnets::records::{CLAIMS, POOLS, SUBNETS};

use crate::error::{Error, Result};
use crate::process;
use crate::subnets::objects;

/// Lists so many Subnets and claims into a view, as a start does, and prints what came of it.
pub(crate) fn weigh(count: usize) -> Result<()> {
    let mut view = View::default();
    for kind in usher_subnets::kinds(usher_subnets::kinds::Pools::default()) {
        kind.register(&mut view);
    }
    let resident = || process::megabytes(std::process::id(), "VmRSS");
    let before = resident();
    let pool = objects::pool_name(0, 1);
    list(&mut view, SUBNETS, count, |n| {
        let mut object = objects::subnet("bench", n, &pool, &objects::uid(1, n));
        stored(&mut object, 2, n, objects::allocated());
        object
    })?;
    let subnets = resident();
    list(&mut view, POOLS, 1, |n| {
        let mut object = objects::pool("bench", n, 1);
        stored(&mut object, 3, n, json!({}));
        object
    })?;
    let pools = resident();
    list(&mut view, CLAIMS, count, |n| {
        let mut object = objects::claim("bench", n, 1);
        stored(&mut object, 1, n, objects::bound(n, &pool));
        object
    })?;
    let each = |megabytes: f64| megabytes * 1e6 / count as f64;
    println!(
        "per Subnet {:.0} bytes, its place in the map {:.0}, per claim {:.0}; together {:.0}, at most {:.0}",
        each(subnets - before),
        each(pools - subnets),
        each(resident() - pools),
        each(resident() - before),
        each(process::megabytes(std::process::id(), "VmHWM") - before)
    );
    Ok(())
}

fn list(view: &mut View, kind: ApiType, count: usize, object: impl Fn(usize) -> Value) -> Result<()> {
    view.apply(kind, Event::ListStarted);
    let mut spent = 0.0;
    for n in 0..count {
        let text = object(n).to_string();
        let begun = Instant::now();
        let object: DynamicObject = serde_json::from_str(&text).map_err(|e| Error::Wrong(e.to_string()))?;
        let outcome = view.apply(kind, Event::Listed(Box::new(object)));
        spent += begun.elapsed().as_secs_f64();
        if let Some(unreadable) = outcome.unreadable {
            return Err(Error::Wrong(unreadable.to_string()));
        }
    }
    let begun = Instant::now();
    let wakes = view.apply(kind, Event::ListDone { revision: u64::MAX / 2 }).wakes.len();
    println!(
        "{}: {:.1} us to read one, {:.1} us to take it in, {wakes} wakes",
        kind.plural,
        spent * 1e6 / count as f64,
        begun.elapsed().as_secs_f64() * 1e6 / count as f64
    );
    Ok(())
}

/// What the API server adds.
fn stored(object: &mut Value, kind: u16, n: usize, status: Value) {
    if let Some(Value::Object(metadata)) = object.pointer_mut("/metadata") {
        metadata.insert("uid".to_owned(), json!(objects::uid(kind, n)));
        metadata.insert("resourceVersion".to_owned(), json!((n + 1).to_string()));
        metadata.insert("generation".to_owned(), json!(1));
        metadata.insert("creationTimestamp".to_owned(), json!("2026-01-01T00:00:00Z"));
    }
    if let Value::Object(fields) = object {
        fields.insert("status".to_owned(), status);
    }
}
