//! `--nodes FILE`: entries as YAML.
//!
//! ```yaml
//! nodes:
//! - name: node-1
//!   labels: {topology.kubernetes.io/zone: a}
//!   taints: [{key: dedicated, value: db, effect: NoSchedule}]
//!   capacity: {cpu: "4", memory: 8Gi, pods: 110, nvidia.com/gpu: 8}
//! - name: far-1
//!   kind: hollow
//!   stages: crash-loop      # or a list: {at: bound, selector: {app: a}, delay: 2s, jitter: 1s, next: ready}
//! ```

use std::collections::BTreeSet;
use std::path::Path;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Taint;
use serde_json::{Map, Value};

use super::{MOST_HOLLOW_PODS, MOST_NODES, NodeEntry, NodeKind};
use crate::kinds::names;
use crate::kinds::quantity::Quantity;
use crate::node::hollow::stages::{Delay, Moment, Stage, Stages, Step};

/// What is wrong with a file of nodes: where, and what to write instead.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    #[error("{file}: cannot be read: {why}")]
    Unreadable { file: String, why: std::io::Error },
    #[error("{file}: {place}: {why}")]
    Wrong { file: String, place: String, why: String },
}

/// Where in the file, and what is to be done there.
type Wrong = (String, String);

impl NodeEntry {
    /// The entries of a file.
    pub fn read(file: &Path) -> Result<Vec<Self>, EntryError> {
        let text = std::fs::read_to_string(file).map_err(|why| EntryError::Unreadable {
            file: file.display().to_string(),
            why,
        })?;
        Self::parse(&file.display().to_string(), &text)
    }

    /// The same from text; `file` is what errors call it.
    pub fn parse(file: &str, text: &str) -> Result<Vec<Self>, EntryError> {
        let broken = |(place, why): Wrong| EntryError::Wrong {
            file: file.to_owned(),
            place,
            why,
        };
        let document: Value = serde_saphyr::from_str(text).map_err(|error| {
            let place = error.without_snippet().location().map_or_else(
                || "the file".to_owned(),
                |at| format!("line {}, column {}", at.line(), at.column()),
            );
            broken((place, format!("this is no YAML: {}", error.without_snippet())))
        })?;
        entries(&document).map_err(broken)
    }
}

fn entries(document: &Value) -> Result<Vec<NodeEntry>, Wrong> {
    let map = document
        .as_object()
        .ok_or_else(|| ("the file".to_owned(), "write a list under `nodes:`".to_owned()))?;
    known("the file", map, &["nodes"])?;
    let list = map.get("nodes").and_then(Value::as_array).ok_or_else(|| {
        (
            "nodes".to_owned(),
            "must be a list of nodes: `nodes: [{name: node-1}]`".to_owned(),
        )
    })?;
    if list.len() > MOST_NODES {
        return Err((
            "nodes".to_owned(),
            format!("has {} entries: at most {MOST_NODES}", list.len()),
        ));
    }
    let mut seen = BTreeSet::new();
    let mut all = Vec::with_capacity(list.len());
    for (index, value) in list.iter().enumerate() {
        let entry = entry(&format!("nodes[{index}]"), value)?;
        if !seen.insert(entry.name.clone()) {
            return Err((
                format!("nodes[{index}].name"),
                format!(
                    "{:?} is the name of an earlier entry: give each node its own",
                    entry.name
                ),
            ));
        }
        all.push(entry);
    }
    Ok(all)
}

fn entry(place: &str, value: &Value) -> Result<NodeEntry, Wrong> {
    let map = mapping(place, value)?;
    known(place, map, &["name", "labels", "taints", "capacity", "kind", "stages"])?;
    let name = word(place, map, "name")?
        .ok_or_else(|| (format!("{place}.name"), "is missing: give the node a name".to_owned()))?;
    if let Some(wrong) = names::dns_subdomain(name).into_iter().next() {
        return Err((format!("{place}.name"), format!("{name:?}: {wrong}")));
    }
    let kind = match word(place, map, "kind")? {
        None | Some("process") => {
            if map.contains_key("stages") {
                return Err((
                    format!("{place}.stages"),
                    "only a hollow node has stages: add `kind: hollow` or leave them out".to_owned(),
                ));
            }
            NodeKind::Process
        }
        Some("hollow") => NodeKind::Hollow(match map.get("stages") {
            None => Stages::default(),
            Some(value) => stages(&format!("{place}.stages"), value)?,
        }),
        Some(other) => {
            return Err((
                format!("{place}.kind"),
                format!("{other:?} is no kind of node: write `process` or `hollow`"),
            ));
        }
    };
    let mut entry = NodeEntry::new(name, kind);
    if let Some(labels) = map.get("labels") {
        put_labels(&format!("{place}.labels"), labels, &mut entry)?;
    }
    if let Some(taints) = map.get("taints") {
        put_taints(&format!("{place}.taints"), taints, &mut entry)?;
    }
    if let Some(capacity) = map.get("capacity") {
        put_capacity(&format!("{place}.capacity"), capacity, &mut entry)?;
    }
    Ok(entry)
}

fn put_labels(place: &str, value: &Value, entry: &mut NodeEntry) -> Result<(), Wrong> {
    for (key, value) in mapping(place, value)? {
        let place = format!("{place}.{key}");
        if let Some(wrong) = names::label_key(key).into_iter().next() {
            return Err((place, format!("is no label: {wrong}")));
        }
        let value = scalar(&place, value)?;
        if let Some(wrong) = names::label_value(&value).into_iter().next() {
            return Err((place, format!("{value:?}: {wrong}")));
        }
        entry.labels.insert(key.clone(), value);
    }
    Ok(())
}

fn put_taints(place: &str, value: &Value, entry: &mut NodeEntry) -> Result<(), Wrong> {
    for (index, value) in listed(place, value)?.iter().enumerate() {
        let place = format!("{place}[{index}]");
        let map = mapping(&place, value)?;
        known(&place, map, &["key", "value", "effect"])?;
        let key = word(&place, map, "key")?.unwrap_or_default();
        if let Some(wrong) = names::label_key(key).into_iter().next() {
            return Err((format!("{place}.key"), format!("{key:?}: {wrong}")));
        }
        let effect = word(&place, map, "effect")?.unwrap_or_default();
        if !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
            return Err((
                format!("{place}.effect"),
                format!("{effect:?}: write `NoSchedule`, `PreferNoSchedule` or `NoExecute`"),
            ));
        }
        entry.taints.push(Taint {
            key: key.to_owned(),
            value: word(&place, map, "value")?.map(str::to_owned),
            effect: effect.to_owned(),
            time_added: None,
        });
    }
    Ok(())
}

fn put_capacity(place: &str, value: &Value, entry: &mut NodeEntry) -> Result<(), Wrong> {
    let is_hollow = entry.is_hollow();
    for (name, value) in mapping(place, value)? {
        let place = format!("{place}.{name}");
        let text = scalar(&place, value)?;
        let amount = Quantity::parse(&text).map_err(|why| (place.clone(), format!("{text:?} is no amount: {why}")))?;
        if amount.is_negative() {
            return Err((place, format!("{text} is below nothing: write 0 or more")));
        }
        match name.as_str() {
            "cpu" => entry.capacity.cpu = amount.to_string(),
            "memory" => entry.capacity.memory = amount.to_string(),
            "pods" => {
                let most = if is_hollow { MOST_HOLLOW_PODS } else { u32::MAX };
                entry.capacity.pods = u32::try_from(amount.units())
                    .ok()
                    .filter(|pods| amount.is_whole() && *pods <= most)
                    .ok_or_else(|| (place, format!("{text} must be a whole number, at most {most}")))?;
            }
            other if other.contains('/') || other == "ephemeral-storage" || other.starts_with("hugepages-") => {
                if !amount.is_whole() {
                    return Err((place, format!("{text} must be a whole number")));
                }
                entry.capacity.extended.insert(other.to_owned(), amount.to_string());
            }
            other => {
                return Err((
                    place,
                    format!(
                        "{other:?} is no resource: write cpu, memory, pods, or one with a domain such as example.com/{other}"
                    ),
                ));
            }
        }
    }
    Ok(())
}

fn stages(place: &str, value: &Value) -> Result<Stages, Wrong> {
    if let Some(script) = value.as_str() {
        return Stages::named(script).ok_or_else(|| {
            let known = Stages::SCRIPTS.join(", ");
            (
                place.to_owned(),
                format!("{script:?} is no script: write one of {known}, or a list of stages"),
            )
        });
    }
    let mut table = Vec::new();
    for (index, value) in listed(place, value)?.iter().enumerate() {
        table.push(stage(&format!("{place}[{index}]"), value)?);
    }
    Ok(Stages(table))
}

fn stage(place: &str, value: &Value) -> Result<Stage, Wrong> {
    let map = mapping(place, value)?;
    known(place, map, &["at", "selector", "delay", "jitter", "next", "exitCode"])?;
    let at = match word(place, map, "at")?.unwrap_or_default() {
        "bound" => Moment::Bound,
        "ready" => Moment::Ready,
        "unready" => Moment::Unready,
        "back-off" => Moment::BackOff,
        "deleting" => Moment::Deleting,
        other => {
            let why = format!("{other:?}: write `bound`, `ready`, `unready`, `back-off` or `deleting`");
            return Err((format!("{place}.at"), why));
        }
    };
    let code = match map.get("exitCode") {
        None => 1,
        Some(code) => code
            .as_i64()
            .and_then(|code| i32::try_from(code).ok())
            .filter(|code| (1..=255).contains(code))
            .ok_or_else(|| (format!("{place}.exitCode"), "must be between 1 and 255".to_owned()))?,
    };
    let next = match word(place, map, "next")?.unwrap_or_default() {
        "ready" => Step::Ready,
        "unready" => Step::Unready,
        "crash" => Step::Crash { exit_code: code },
        "succeed" => Step::Succeed,
        "gone" => Step::Gone,
        other => {
            let why = format!("{other:?}: write `ready`, `unready`, `crash`, `succeed` or `gone`");
            return Err((format!("{place}.next"), why));
        }
    };
    let delay = match word(place, map, "delay")? {
        Some("grace") if at == Moment::Deleting => Delay::Grace,
        Some("grace") => {
            let why = "only a pod that is told to go has a grace: use it with `at: deleting`";
            return Err((format!("{place}.delay"), why.to_owned()));
        }
        Some("back-off") => Delay::BackOff,
        Some(text) => Delay::Of(duration(&format!("{place}.delay"), text)?),
        None => Delay::Of(SignedDuration::ZERO),
    };
    let mut stage = Stage::new(at, delay, next);
    if let Some(text) = word(place, map, "jitter")? {
        stage.jitter = duration(&format!("{place}.jitter"), text)?;
    }
    if let Some(selector) = map.get("selector") {
        let place = format!("{place}.selector");
        for (key, value) in mapping(&place, selector)? {
            stage.selector.insert(key.clone(), scalar(&place, value)?);
        }
    }
    Ok(stage)
}

fn duration(place: &str, text: &str) -> Result<SignedDuration, Wrong> {
    text.parse()
        .ok()
        .filter(|duration| *duration >= SignedDuration::ZERO)
        .ok_or_else(|| {
            (
                place.to_owned(),
                format!("{text:?} is no length of time: write for example `10ms` or `1m30s`"),
            )
        })
}

fn known(place: &str, map: &Map<String, Value>, fields: &[&str]) -> Result<(), Wrong> {
    match map.keys().find(|field| !fields.contains(&field.as_str())) {
        None => Ok(()),
        Some(field) => Err((
            place.to_owned(),
            format!(
                "has a field {field:?} that nothing reads: the fields are {}",
                fields.join(", ")
            ),
        )),
    }
}

fn mapping<'a>(place: &str, value: &'a Value) -> Result<&'a Map<String, Value>, Wrong> {
    value
        .as_object()
        .ok_or_else(|| (place.to_owned(), "must be a mapping of fields to values".to_owned()))
}

fn listed<'a>(place: &str, value: &'a Value) -> Result<&'a Vec<Value>, Wrong> {
    value
        .as_array()
        .ok_or_else(|| (place.to_owned(), "must be a list".to_owned()))
}

fn word<'a>(place: &str, map: &'a Map<String, Value>, field: &str) -> Result<Option<&'a str>, Wrong> {
    match map.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err((
            format!("{place}.{field}"),
            format!("{other} must be a text: write it in quotes"),
        )),
    }
}

/// A text, or a number or truth as its text: `zone: 1` means "1".
fn scalar(place: &str, value: &Value) -> Result<String, Wrong> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(truth) => Ok(truth.to_string()),
        _ => Err((place.to_owned(), "must be a text or a number".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_nodes_is_read_with_defaults_for_what_it_does_not_say() {
        let text = "nodes:\n- name: a\n  labels: {topology.kubernetes.io/zone: z1}\n  capacity: {cpu: 2, memory: 1024Mi, example.com/gpu: 8}\n\
            - name: b\n  kind: hollow\n  stages: crash-loop\n\
            - name: c\n  kind: hollow\n  stages: [{at: bound, selector: {app: x}, delay: 2s, jitter: 500ms, next: unready}]\n";
        let nodes = NodeEntry::parse("nodes.yaml", text).unwrap();
        assert_eq!(nodes[0].labels["kubernetes.io/hostname"], "a");
        assert_eq!(nodes[0].labels["topology.kubernetes.io/zone"], "z1");
        assert_eq!(
            (nodes[0].capacity.cpu.as_str(), nodes[0].capacity.memory.as_str()),
            ("2", "1Gi")
        );
        assert_eq!(
            (
                nodes[0].capacity.pods,
                nodes[0].capacity.extended["example.com/gpu"].as_str()
            ),
            (110, "8")
        );
        assert_eq!(nodes[1].kind, NodeKind::Hollow(Stages::crash_loop()));
        let stage = Stage::new(Moment::Bound, Delay::Of(SignedDuration::from_secs(2)), Step::Unready)
            .with_label("app", "x")
            .with_jitter(SignedDuration::from_millis(500));
        assert_eq!(nodes[2].kind, NodeKind::Hollow(Stages(vec![stage])));
    }

    #[test]
    fn what_is_wrong_in_a_file_of_nodes_is_told_with_its_place_and_the_fix() {
        for (text, told) in [
            ("nodes: {", "f: line 1"),
            ("- name: a", "f: the file: write a list under `nodes:`"),
            ("nodes: 3", "f: nodes: must be a list of nodes"),
            ("nodes: [{}]", "f: nodes[0].name: is missing: give the node a name"),
            (
                "nodes: [{name: A_b}]",
                "f: nodes[0].name: \"A_b\": a lowercase RFC 1123 subdomain",
            ),
            (
                "nodes: [{name: a}, {name: a}]",
                "f: nodes[1].name: \"a\" is the name of an earlier entry",
            ),
            (
                "nodes: [{name: a, colour: red}]",
                "f: nodes[0]: has a field \"colour\" that nothing reads: the fields are name,",
            ),
            (
                "nodes: [{name: a, kind: real}]",
                "f: nodes[0].kind: \"real\" is no kind of node: write `process` or `hollow`",
            ),
            (
                "nodes: [{name: a, stages: ready}]",
                "f: nodes[0].stages: only a hollow node has stages",
            ),
            (
                "nodes: [{name: a, kind: hollow, stages: slow}]",
                "f: nodes[0].stages: \"slow\" is no script: write one of ready,",
            ),
            (
                "nodes: [{name: a, capacity: {cpu: many}}]",
                "f: nodes[0].capacity.cpu: \"many\" is no amount",
            ),
            (
                "nodes: [{name: a, capacity: {cpu: -1}}]",
                "f: nodes[0].capacity.cpu: -1 is below nothing",
            ),
            (
                "nodes: [{name: a, capacity: {gpu: 1}}]",
                "f: nodes[0].capacity.gpu: \"gpu\" is no resource: write cpu,",
            ),
            (
                "nodes: [{name: a, taints: [{key: k, effect: Never}]}]",
                "f: nodes[0].taints[0].effect: \"Never\": write `NoSchedule`",
            ),
            (
                "nodes: [{name: a, kind: hollow, stages: [{at: bound, next: up}]}]",
                "f: nodes[0].stages[0].next: \"up\": write `ready`",
            ),
            (
                "nodes: [{name: a, kind: hollow, stages: [{at: bound, next: ready, delay: soon}]}]",
                "f: nodes[0].stages[0].delay: \"soon\" is no length of time",
            ),
        ] {
            let error = NodeEntry::parse("f", text).unwrap_err().to_string();
            assert!(error.starts_with(told), "{text}: {error}");
        }
    }
}
