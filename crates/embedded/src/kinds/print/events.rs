//! Events, in both of their groups: the same cells from differently named fields.

use jiff::Timestamp;
use serde_json::Value;

use super::read::{at, name, number, text, time};
use super::{NAME, column, wide};
use crate::registry::row::Column;

pub const COLUMNS: &[Column] = &[
    column("Last Seen", "string", "How long ago it happened last."),
    column("Type", "string", "Normal or Warning."),
    column("Reason", "string", "Why, in one word."),
    column("Object", "string", "What it is about."),
    wide("Subobject", "Which part of the object."),
    wide("Source", "Who says so."),
    column("Message", "string", "What happened."),
    wide("First Seen", "How long ago it happened first."),
    wide("Count", "How often it happened."),
    Column { priority: 1, ..NAME },
];

struct Names {
    object: &'static str,
    message: &'static str,
    source: &'static str,
    first: &'static str,
    last: &'static str,
    count: &'static str,
    controller: &'static str,
}

pub fn core_cells(event: &Value, now: Timestamp) -> Vec<Value> {
    let names = Names {
        object: "involvedObject",
        message: "message",
        source: "source",
        first: "firstTimestamp",
        last: "lastTimestamp",
        count: "count",
        controller: "reportingComponent",
    };
    line(event, now, &names)
}

pub fn cells(event: &Value, now: Timestamp) -> Vec<Value> {
    let names = Names {
        object: "regarding",
        message: "note",
        source: "deprecatedSource",
        first: "deprecatedFirstTimestamp",
        last: "deprecatedLastTimestamp",
        count: "deprecatedCount",
        controller: "reportingController",
    };
    line(event, now, &names)
}

fn line(event: &Value, now: Timestamp, names: &Names) -> Vec<Value> {
    let first = time(event, &[names.first]).or_else(|| time(event, &["eventTime"]));
    let (last, count) = match at(event, &["series"]) {
        Some(series) => (time(series, &["lastObservedTime"]), number(series, &["count"])),
        // A single event of the new kind has no count.
        None => (
            time(event, &[names.last]).or(first),
            number(event, &[names.count]).max(1),
        ),
    };
    let kind = text(event, &[names.object, "kind"]).to_lowercase();
    let target = match text(event, &[names.object, "name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    vec![
        super::age(last, now).into(),
        text(event, &["type"]).into(),
        text(event, &["reason"]).into(),
        target.into(),
        text(event, &[names.object, "fieldPath"]).into(),
        source(event, names).into(),
        text(event, &[names.message]).trim().into(),
        super::age(first, now).into(),
        count.into(),
        name(event),
    ]
}

fn source(event: &Value, names: &Names) -> String {
    let either = |old: &str, new: &'static str| match text(event, &[names.source, old]) {
        "" => text(event, &[new]).to_owned(),
        text => text.to_owned(),
    };
    let component = either("component", names.controller);
    match either("host", "reportingInstance") {
        instance if instance.is_empty() => component,
        instance => format!("{component}, {instance}"),
    }
}
