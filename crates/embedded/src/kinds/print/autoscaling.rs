//! Autoscalers, with their metrics in a line, and scales.

use jiff::Timestamp;
use serde_json::Value;

use super::read::{age, at, list, name, number, shown, text, with_more};
use super::{AGE, NAME, column};
use crate::registry::row::Column;

pub const AUTOSCALER: &[Column] = &[
    NAME,
    column("Reference", "string", "What it scales."),
    column("Targets", "string", "Its metrics: now, and as wanted."),
    column("MinPods", "string", "The fewest pods."),
    column("MaxPods", "string", "The most pods."),
    column("Replicas", "string", "Pods there are."),
    AGE,
];

pub fn autoscaler(object: &Value, now: Timestamp) -> Vec<Value> {
    let target = |field| text(object, &["spec", "scaleTargetRef", field]);
    let least = at(object, &["spec", "minReplicas"]).map_or_else(|| "<unset>".into(), shown);
    vec![
        name(object),
        format!("{}/{}", target("kind"), target("name")).into(),
        metrics(object).into(),
        least.into(),
        number(object, &["spec", "maxReplicas"]).into(),
        number(object, &["status", "currentReplicas"]).into(),
        age(object, now),
    ]
}

/// How many metrics the cell names before it counts the rest.
const NAMED: usize = 2;

fn metrics(object: &Value) -> String {
    let specs = list(object, &["spec", "metrics"]);
    if specs.is_empty() {
        return "<none>".into();
    }
    let statuses = list(object, &["status", "currentMetrics"]);
    let texts = specs
        .iter()
        .enumerate()
        .map(|(index, spec)| metric(spec, statuses.get(index)));
    with_more(texts.collect(), NAMED, ", ")
}

fn metric(spec: &Value, status: Option<&Value>) -> String {
    let source = match text(spec, &["type"]) {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".into(),
    };
    let target = |field| at(spec, &[source, "target", field]);
    let status = status.and_then(|status| at(status, &[source, "current"]));
    // What was measured, but not as the value that is asked for, shows through as the reference's nil.
    let optional = |field: &str| match source {
        "external" | "object" => field == "averageValue",
        _ => field == "averageUtilization",
    };
    let now = |field| match (status.map(|status| at(status, &[field])), field) {
        (Some(Some(value)), "averageUtilization") => format!("{}%", shown(value)),
        (Some(Some(value)), _) => shown(value),
        (Some(None), _) if !optional(field) => nil(),
        _ => "<unknown>".into(),
    };
    match source {
        "resource" | "containerResource" => {
            let name = text(spec, &[source, "name"]);
            match (target("averageValue"), target("averageUtilization")) {
                (Some(value), _) => format!("{name}: {}/{}", now("averageValue"), shown(value)),
                (None, Some(value)) => format!("{name}: {}/{}%", now("averageUtilization"), shown(value)),
                (None, None) => format!("{name}: {}/<auto>", now("averageUtilization")),
            }
        }
        "pods" => format!(
            "{}/{}",
            now("averageValue"),
            target("averageValue").map_or_else(nil, shown)
        ),
        _ => match target("averageValue") {
            Some(value) => format!("{}/{} (avg)", now("averageValue"), shown(value)),
            None => format!("{}/{}", now("value"), target("value").map_or_else(nil, shown)),
        },
    }
}

fn nil() -> String {
    "<nil>".into()
}

pub const SCALE: &[Column] = &[
    column("Name", "string", "The scaled object's name."),
    column("Desired", "integer", "Pods wanted."),
    column("Available", "integer", "Pods there are."),
    AGE,
];

pub fn scale(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        number(object, &["spec", "replicas"]).into(),
        number(object, &["status", "replicas"]).into(),
        age(object, now),
    ]
}
