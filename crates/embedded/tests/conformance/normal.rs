//! Makes answers of two servers, or of two runs, comparable (F2): what a server invents becomes an ordinal of first sight
//! within the case, what depends on when one asks becomes a word. What the case itself wrote stays as it is.

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::prelude::{BASE64_STANDARD, Engine};
use regex::{Captures, Regex};
use serde_json::Value;

#[derive(Debug)]
pub struct Normaliser {
    /// The namespace of this run, shown as `$ns`.
    namespace: String,
    /// Times, addresses and uids that stand in here are the case's own.
    case: String,
    seen: HashMap<(&'static str, String), usize>,
    counts: HashMap<&'static str, usize>,
    /// What the case asks the server to complete to names, and how such names look.
    bases: Vec<(String, Regex)>,
    /// Names the server completed, with what is shown for them.
    generated: Vec<(String, String)>,
    /// Completed names all look the same.
    alike: bool,
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("written below")
}

static UID: LazyLock<Regex> =
    LazyLock::new(|| regex(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"));
static TIME: LazyLock<Regex> = LazyLock::new(|| regex(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"));
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| regex(r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(/\d{1,2})?\b"));
static NUMBER: LazyLock<Regex> = LazyLock::new(|| regex(r#"(^|[ ("])(\d+)\b"#));
static OPENAPI_HASH: LazyLock<Regex> = LazyLock::new(|| regex(r"\bhash=[0-9A-Fa-f]+"));
static TOKEN_VOLUME: LazyLock<Regex> = LazyLock::new(|| regex(r"\bkube-api-access-[a-z0-9]{5}\b"));
static GENERATE_NAME: LazyLock<Regex> = LazyLock::new(|| regex(r#"generateName:? "?([^\s",}]+)"#));
static AGE: LazyLock<Regex> = LazyLock::new(|| regex(r"^(\d+[smhdy])+$"));
static AGO: LazyLock<Regex> = LazyLock::new(|| regex(r"\((\d+[smhdy])+ ago\)"));
static JWT: LazyLock<Regex> = LazyLock::new(|| regex(r"^(eyJ[\w-]+\.[\w-]+\.[\w-]+|ZXlK[\w+/]{80,}=*)$"));
static CERTIFICATE: LazyLock<Regex> = LazyLock::new(|| regex(r"^(-----BEGIN CERTIFICATE|LS0tLS1CRUdJTiBDRVJU)"));
/// What controllers put behind a name to tell revisions apart.
static HASH: LazyLock<Regex> = LazyLock::new(|| regex(r"-([bcdfghjklmnpqrstvwxz2456789]{6,10})\b"));
static SUFFIX: LazyLock<Regex> = LazyLock::new(|| regex(r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b"));
/// Events are named after their object and the nanosecond.
static EVENT: LazyLock<Regex> = LazyLock::new(|| regex(r"\.[0-9a-f]{16}\b"));
static SCHEDULER: LazyLock<Regex> = LazyLock::new(|| regex(r"^default-scheduler-.+"));

fn base(base: &str) -> (String, Regex) {
    let name = format!("{}([bcdfghjklmnpqrstvwxz2456789]{{5}})\\b", regex::escape(base));
    (base.to_owned(), regex(&name))
}

impl Normaliser {
    pub fn new(namespace: &str, case: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            case: case.to_owned(),
            bases: GENERATE_NAME.captures_iter(case).map(|found| base(&found[1])).collect(),
            seen: HashMap::new(),
            counts: HashMap::new(),
            generated: Vec::new(),
            alike: case.lines().any(|line| line == "suffixes: alike"),
        }
    }

    pub fn value(&mut self, value: &mut Value) {
        self.below("", value);
        shorten_message(value);
    }

    pub fn text(&mut self, text: &str) -> String {
        let text = text.replace(&self.namespace, "$ns");
        let text = self
            .generated
            .iter()
            .fold(text, |text, (name, shown)| text.replace(name, shown));
        let text = self.completed(text);
        let text = match self.alike {
            true => SUFFIX.replace_all(&text, "-<suffix>").into_owned(),
            false => text,
        };
        let text = UID.replace_all(&text, |found: &Captures| match &found[0] {
            written if self.case.contains(written) => written.to_owned(),
            given => self.ordinal("uid", given),
        });
        let text = TIME.replace_all(&text, |found: &Captures| match &found[0] {
            written if self.case.contains(written) => written.to_owned(),
            fine if fine.contains('.') => "<time-in-µs>".to_owned(),
            _ => "<time>".to_owned(),
        });
        let text = ADDRESS.replace_all(&text, |found: &Captures| match &found[0] {
            written if self.case.contains(written) => written.to_owned(),
            given => self.ordinal("ip", given),
        });
        let text = HASH.replace_all(&text, |found: &Captures| {
            format!("-{}", self.ordinal("hash", &found[1]))
        });
        let text = EVENT.replace_all(&text, ".<event>");
        let text = OPENAPI_HASH.replace_all(&text, "hash=<hash>");
        let text = TOKEN_VOLUME.replace_all(&text, "kube-api-access-<suffix>");
        let lower = text.to_lowercase();
        if !(lower.contains("resource version") || lower.contains("resourceversion")) {
            return text.into_owned();
        }
        // The server's own revision stands in such sentences, too, which is nobody's in particular.
        let versions = NUMBER.replace_all(&text, |found: &Captures| {
            if &found[2] == "0" {
                return found[0].to_owned();
            }
            // How far the server has come is by chance what somebody was told before.
            let is_current = text[..found.get(2).map_or(0, |number| number.start())].ends_with("current: ");
            let known = self.seen.get(&("rv", found[2].to_owned())).filter(|_| !is_current);
            let shown = known.map_or("<rv>".to_owned(), |ordinal| format!("<rv-{ordinal}>"));
            format!("{}{shown}", &found[1])
        });
        versions.into_owned()
    }

    /// Names that the server completed and then refused: nobody shows them with their `generateName`.
    fn completed(&mut self, text: String) -> String {
        self.bases.clone().into_iter().fold(text, |text, (base, name)| {
            let shown = name.replace_all(&text, |found: &Captures| {
                format!("{base}{}", self.ordinal("suffix", &found[0]))
            });
            shown.into_owned()
        })
    }

    fn ordinal(&mut self, what: &'static str, value: &str) -> String {
        let Self { seen, counts, .. } = self;
        let ordinal = seen.entry((what, value.to_owned())).or_insert_with(|| {
            let count = counts.entry(what).or_default();
            *count += 1;
            *count
        });
        format!("<{what}-{ordinal}>")
    }

    fn below(&mut self, key: &str, value: &mut Value) {
        match value {
            Value::Object(map) => {
                self.learn_generated_name(map.get("metadata").unwrap_or(&Value::Null));
                let is_list = map.contains_key("items") || map.contains_key("rows");
                let is_bookmark = map.get("type").is_some_and(|event| event == "BOOKMARK");
                if is_list && let Some(metadata) = map.get_mut("metadata") {
                    hide_version(metadata);
                }
                if is_bookmark && let Some(object) = map.get_mut("object") {
                    hide_versions_below(object);
                }
                // First sights must not depend on how a server orders its keys.
                let mut entries: Vec<(String, Value)> = std::mem::take(map).into_iter().collect();
                entries.sort_by(|(a, _), (b, _)| a.cmp(b));
                for (key, mut value) in entries {
                    self.below(&key, &mut value);
                    map.insert(self.text(&key), value);
                }
            }
            Value::Array(elements) => {
                for element in &mut *elements {
                    self.below(key, element);
                }
                match key {
                    "causes" => elements.sort_by_key(|cause| {
                        let text = |key| cause.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
                        (text("field"), text("reason"), text("message"))
                    }),
                    // They stand in the order of their times, which are hidden.
                    "managedFields" => elements.sort_by_key(|entry| {
                        let text = |key| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
                        (
                            text("operation"),
                            text("manager"),
                            text("subresource"),
                            text("apiVersion"),
                        )
                    }),
                    "columnDefinitions" => {
                        let columns = elements.iter_mut().filter_map(Value::as_object_mut);
                        columns.for_each(|column| drop(column.remove("description")));
                    }
                    "cells" => elements.iter_mut().for_each(hide_age),
                    _ => {}
                }
            }
            Value::String(text) => {
                let shown = match key {
                    "resourceVersion" if is_number(text) && text != "0" => self.ordinal("rv", text),
                    "continue" if !text.is_empty() => "<continue>".to_owned(),
                    "pod-template-hash" => self.ordinal("hash", text),
                    "containerID" if is_checksum(text) => self.ordinal("container", text),
                    "imageID" if is_checksum(text) => "<image-id>".to_owned(),
                    // As it is called in full.
                    "image" => self.text(text.strip_prefix("docker.io/library/").unwrap_or(text)),
                    "reportingInstance" => SCHEDULER.replace(text, "default-scheduler-<host>").into_owned(),
                    _ if *text == BASE64_STANDARD.encode(&self.namespace) => "<base64 of $ns>".to_owned(),
                    _ if JWT.is_match(text) => "<token>".to_owned(),
                    _ if CERTIFICATE.is_match(text) => "<certificate>".to_owned(),
                    _ => self.text(text),
                };
                *text = shown;
            }
            Value::Number(port) if matches!(key, "nodePort" | "healthCheckNodePort") => {
                let port = port.to_string();
                if !self.case.contains(&port) {
                    *value = self.ordinal("node-port", &port).into();
                }
            }
            _ => {}
        }
    }

    fn learn_generated_name(&mut self, metadata: &Value) {
        let text = |key: &str| metadata.get(key).and_then(Value::as_str);
        let (Some(name), Some(base)) = (text("name"), text("generateName")) else {
            return;
        };
        let known = self.generated.iter().any(|(full, _)| full == name);
        if let Some(suffix) = name.strip_prefix(base)
            && suffix.len() == 5
            && !known
            && !self.alike
        {
            let shown = format!("{base}{}", self.ordinal("suffix", name)).replace(&self.namespace, "$ns");
            self.generated.push((name.to_owned(), shown));
        }
    }
}

/// A list's and a bookmark's version says how far the whole server has come, which others move as well.
fn hide_version(metadata: &mut Value) {
    if let Some(Value::String(version)) = metadata.get_mut("resourceVersion")
        && is_number(version)
        && version != "0"
    {
        "<rv>".clone_into(version);
    }
}

/// A bookmark may be a Table, with the object in it.
fn hide_versions_below(value: &mut Value) {
    hide_version(value);
    match value {
        Value::Object(map) => map.values_mut().for_each(hide_versions_below),
        Value::Array(elements) => elements.iter_mut().for_each(hide_versions_below),
        _ => {}
    }
}

/// A message that only lists the causes says so: they stand above it, and their order is often that of a map.
fn shorten_message(status: &mut Value) {
    let text = |cause: &Value, key| cause.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let causes = status.pointer("/details/causes").and_then(Value::as_array);
    let told: Vec<String> = causes
        .into_iter()
        .flatten()
        .map(|cause| format!("{}: {}", text(cause, "field"), text(cause, "message")))
        .collect();
    let Some(Value::String(message)) = status.get_mut("message") else {
        return;
    };
    let Some((head, list)) = message.split_once(": [") else {
        return;
    };
    let length: usize = told.iter().map(|one| one.len() + ", ".len()).sum();
    if told.len() > 1 && told.iter().all(|one| list.contains(one)) && list.len() + 1 == length {
        *message = format!("{head}: [<causes>]");
    }
}

fn hide_age(cell: &mut Value) {
    if let Value::String(text) = cell {
        if AGE.is_match(text) {
            "<age>".clone_into(text);
        } else {
            *text = AGO.replace_all(text, "(<age> ago)").into_owned();
        }
    }
}

/// Nothing that anybody wrote by hand.
fn is_checksum(text: &str) -> bool {
    text.len() > 8
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn normal(case: &str, values: &[Value]) -> Vec<Value> {
        let mut normaliser = Normaliser::new("c123", case);
        let normal = |value: &Value| {
            let mut value = value.clone();
            normaliser.value(&mut value);
            value
        };
        values.iter().map(normal).collect()
    }

    const UID_A: &str = "aaaaaaaa-0000-4000-8000-000000000001";
    const UID_B: &str = "bbbbbbbb-0000-4000-8000-000000000002";

    #[test]
    fn f2_what_servers_invent_becomes_ordinals_of_first_sight() {
        let object = |uid, rv| json!({"metadata": {"uid": uid, "resourceVersion": rv, "namespace": "c123"}});
        let got = normal("", &[object(UID_B, "71"), object(UID_A, "80"), object(UID_B, "80")]);
        let want = |uid, rv| json!({"metadata": {"uid": uid, "resourceVersion": rv, "namespace": "$ns"}});
        assert_eq!(
            got,
            [
                want("<uid-1>", "<rv-1>"),
                want("<uid-2>", "<rv-2>"),
                want("<uid-1>", "<rv-2>")
            ]
        );
    }

    #[test]
    fn f2_messages_are_normalised_like_fields() {
        let object = json!({"metadata": {"resourceVersion": "71"}});
        let message = json!({"message": format!("ResourceVersion in precondition: 71, meta: 90; {UID_A} in c123")});
        let got = normal("", &[object, message, json!({"message": "at most 71 characters"})]);
        let current = normal(
            "",
            &[
                json!({"metadata": {"resourceVersion": "71"}}),
                json!({"message": "Too large resource version: 99, current: 71"}),
            ],
        );
        assert_eq!(current[1]["message"], "Too large resource version: <rv>, current: <rv>");
        assert_eq!(
            got[1]["message"],
            "ResourceVersion in precondition: <rv-1>, meta: <rv>; <uid-1> in $ns"
        );
        assert_eq!(
            got[2]["message"], "at most 71 characters",
            "a number that is no version stays"
        );
    }

    #[test]
    fn f2_what_the_case_wrote_stays() {
        let value = json!({"a": "2026-01-02T03:04:05Z", "b": "2026-01-02T03:04:06Z", "c": "10.0.0.7", "d": "10.0.0.8",
                           "nodePort": 30080, "uid": UID_A});
        let got = normal(
            &format!("at 2026-01-02T03:04:05Z on 10.0.0.7:30080 by {UID_A}"),
            &[value],
        );
        let want = json!({"a": "2026-01-02T03:04:05Z", "b": "<time>", "c": "10.0.0.7", "d": "<ip-1>",
                          "nodePort": 30080, "uid": UID_A});
        assert_eq!(got, [want]);
    }

    #[test]
    fn f2_a_lists_version_and_a_bookmarks_are_nobodys() {
        let list = json!({"items": [{"metadata": {"resourceVersion": "5"}}], "metadata": {"resourceVersion": "5"}});
        let row = json!({"object": {"metadata": {"resourceVersion": "6"}}});
        let bookmark = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "6"}, "rows": [row]}});
        let got = normal("", &[list, bookmark]);
        assert_eq!(got[0]["metadata"]["resourceVersion"], "<rv>");
        assert_eq!(got[0]["items"][0]["metadata"]["resourceVersion"], "<rv-1>");
        assert_eq!(got[1]["object"]["metadata"]["resourceVersion"], "<rv>");
        assert_eq!(
            got[1]["object"]["rows"][0]["object"]["metadata"]["resourceVersion"],
            "<rv>"
        );
    }

    #[test]
    fn f2_revisions_and_containers_are_ordinals_wherever_they_stand() {
        let set = json!({"metadata": {"name": "d-6c5c4f7d9b", "labels": {"pod-template-hash": "6c5c4f7d9b"}}});
        let told = json!({"message": "ReplicaSet \"d-6c5c4f7d9b\" is progressing, not d-55bd77f9c4", "image": "i:1"});
        let status = json!({"containerID": "x://0123456789ab", "imageID": "", "image": "docker.io/library/busybox:1"});
        let got = normal("", &[set, told, status]);
        assert_eq!(got[0]["metadata"]["name"], "d-<hash-1>");
        assert_eq!(got[0]["metadata"]["labels"]["pod-template-hash"], "<hash-1>");
        assert_eq!(
            got[1]["message"],
            "ReplicaSet \"d-<hash-1>\" is progressing, not d-<hash-2>"
        );
        let want = json!({"containerID": "<container-1>", "imageID": "", "image": "busybox:1"});
        assert_eq!(got[2], want);
    }

    #[test]
    fn f2_suffixes_are_alike_where_the_case_says_so() {
        let event =
            json!({"message": "Created pod: r-x2x4x", "name": "r.18a7c0ffee00c0de", "note": "r-x2x4x-6c5c4f7d9b"});
        let got = normal("# x\nsuffixes: alike\n", &[event]);
        let want = json!({"message": "Created pod: r-<suffix>", "name": "r.<event>", "note": "r-<suffix>-<hash-1>"});
        assert_eq!(got, [want]);
    }

    #[test]
    fn f2_generated_names_keep_what_was_asked_for() {
        let object = json!({"metadata": {"generateName": "a-", "name": "a-x2x4x"}});
        let got = normal("", &[object, json!({"message": "a-x2x4x is gone"})]);
        assert_eq!(got[0]["metadata"]["name"], "a-<suffix-1>");
        let refused = normal(
            "POST\n  metadata: {generateName: w-}\n",
            &[json!({"message": "w-x2x4x is wrong"})],
        );
        assert_eq!(refused[0]["message"], "w-<suffix-1> is wrong");
        assert_eq!(got[1]["message"], "a-<suffix-1> is gone");
    }

    #[test]
    fn f2_order_of_keys_and_causes_and_the_text_of_columns_do_not_matter() {
        let causes = |first: &str, second: &str| json!({"causes": [{"field": first}, {"field": second}]});
        assert_eq!(normal("", &[causes("a", "b")]), normal("", &[causes("b", "a")]));
        let status = |list: &str| {
            let causes = json!([{"field": "a", "message": "x"}, {"field": "b", "message": "yy"}]);
            json!({"message": format!("C \"c\" is invalid: [{list}]"), "details": {"causes": causes}})
        };
        let messages = normal(
            "",
            &[
                status("b: yy, a: x"),
                status("a: x, b: yy"),
                status("b: yy, a: x, c: z"),
            ],
        );
        assert_eq!(messages[0]["message"], "C \"c\" is invalid: [<causes>]");
        assert_eq!(messages[0], messages[1]);
        assert_ne!(messages[0], messages[2], "it says more than the causes");
        let writers = |first: &str, second: &str| json!({"managedFields": [{"manager": first}, {"manager": second}]});
        assert_eq!(normal("", &[writers("a", "b")]), normal("", &[writers("b", "a")]));
        let columns = normal("", &[json!({"columnDefinitions": [{"name": "A", "description": "x"}]})]);
        assert_eq!(columns, [json!({"columnDefinitions": [{"name": "A"}]})]);
        let cells = normal("", &[json!({"cells": ["a", "5m3s", "3 (2m ago)", 3]})]);
        assert_eq!(cells, [json!({"cells": ["a", "<age>", "3 (<age> ago)", 3]})]);
    }
}
