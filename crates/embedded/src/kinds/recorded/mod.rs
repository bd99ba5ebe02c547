//! What a real kube-apiserver 1.36.3 answered, beside what we answer.
//!
//! The files hold one case a line: `creates` (an object, and the object that came back, without what every server makes
//! up anew), `refused` (an object, and the causes of its 422), `updates` (an object, a merge patch put on top with PUT,
//! and the causes), `statuses` (the same for `/status`, one patch after the other), `warnings` (an object, and what its create warned of), `undecodable` (a body, and the words of its 400).

use serde_json::{Value, json};

use super::decode::decode;
use super::metadata::{check_built_in_finalizers, check_metadata, check_metadata_update};
use super::rows;
use crate::fault::{FieldError, Path};
use crate::registry::row::{BuiltIn, Row, Rules};

const CREATES: &str = include_str!("creates.json");
const REFUSED: &str = include_str!("refused.json");
const UPDATES: &str = include_str!("updates.json");
const STATUSES: &str = include_str!("statuses.json");
const WARNINGS: &str = include_str!("warnings.json");
const UNDECODABLE: &str = include_str!("undecodable.json");

fn cases(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

fn row(case: &Value) -> Row {
    let path = case["path"].as_str().unwrap();
    let mut parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let group = if parts.remove(0) == "api" { "" } else { parts.remove(0) };
    let plural = *parts.last().unwrap();
    rows()
        .into_iter()
        .find(|row| &*row.group == group && &*row.plural == plural)
        .unwrap()
}

fn rules(row: &Row) -> &'static BuiltIn {
    match row.rules {
        Rules::BuiltIn(rules) => rules,
        Rules::Custom => panic!("a built-in kind"),
    }
}

/// As the registry will: decoded, defaulted, made new.
fn created(row: &Row, body: &Value) -> Value {
    let mut object = body.clone();
    let version = &row.versions[0];
    let api_version = if row.group.is_empty() {
        version.name.to_string()
    } else {
        format!("{}/{}", row.group, version.name)
    };
    object["apiVersion"] = api_version.into();
    object["kind"] = row.kind.to_string().into();
    if row.namespaced {
        object["metadata"]["namespace"] = "default".into();
    }
    assert_eq!(decode(&version.schema, &mut object).unwrap(), Vec::<String>::new());
    (rules(row).default)(&mut object);
    (rules(row).on_create)(&mut object);
    object
}

/// Without what admission and the registry add.
fn bare(mut object: Value) -> Value {
    let mut remove = |pointer: &str, field: &str| {
        if let Some(Value::Object(map)) = object.pointer_mut(pointer) {
            map.remove(field);
        }
    };
    remove("/metadata", "namespace");
    remove("/metadata", "generation");
    let kind = object["kind"].as_str().unwrap().to_owned();
    let mut remove = |pointer: &str, fields: &[&str]| {
        if let Some(Value::Object(map)) = object.pointer_mut(pointer) {
            for field in fields {
                map.remove(*field);
            }
        }
    };
    match kind.as_str() {
        "Pod" => {
            remove(
                "/spec",
                &[
                    "tolerations",
                    "priority",
                    "preemptionPolicy",
                    "serviceAccount",
                    "serviceAccountName",
                ],
            );
            remove("/status/conditions/0", &["lastTransitionTime"]);
        }
        "Service" => {
            remove("/spec", &["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"]);
            for port in object["spec"]["ports"].as_array_mut().into_iter().flatten() {
                port.as_object_mut().unwrap().remove("nodePort");
            }
        }
        "PersistentVolumeClaim" | "PersistentVolume" => {
            remove("/metadata", &["finalizers"]);
            remove("/status", &["lastPhaseTransitionTime"]);
        }
        "Node" => remove("/spec", &["taints"]),
        _ => {}
    }
    object
}

fn checked(row: &Row, object: &Value) -> Vec<FieldError> {
    let meta = &object["metadata"];
    let path = Path::new("metadata");
    let mut errors = check_metadata(meta, rules(row).name, row.namespaced, &path);
    errors.extend(check_built_in_finalizers(meta, &path));
    errors.extend((rules(row).check)(object));
    errors.extend((rules(row).check_create)(object));
    errors
}

/// Causes, without what the reference shows of its internal types, in an order of their own: the reference walks maps
/// in no order.
fn causes(errors: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut causes: Vec<String> = errors
        .into_iter()
        .map(|error| {
            let first = error.split('\n').next().unwrap();
            match first.split_once(": Invalid value: {") {
                Some((field, rest)) if rest.ends_with("}: field is immutable") => format!("{field}: immutable"),
                _ => first.to_owned(),
            }
        })
        .collect();
    causes.sort();
    causes
}

fn recorded_causes(case: &Value) -> Vec<String> {
    causes(
        case["causes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|cause| cause.as_str().unwrap().to_owned()),
    )
}

#[test]
fn o22_created_objects_come_back_as_the_reference_answers_them() {
    let mut wrong = Vec::new();
    for case in cases(CREATES) {
        let row = row(&case);
        let ours = created(&row, &case["in"]);
        let errors = checked(&row, &ours);
        assert!(errors.is_empty(), "{}: {errors:?}", case["in"]);
        let (ours, theirs) = (bare(ours), bare(case["out"].clone()));
        if ours != theirs {
            wrong.push(format!("{}\n{}", case["in"], super::difference::of(&theirs, &ours)));
        }
        let generation = case["out"]["metadata"].get("generation") == Some(&json!(1));
        assert_eq!(rules(&row).has_generation, generation, "{}", row.kind);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn o20_bad_objects_are_refused_with_the_reference_s_causes() {
    let mut wrong = Vec::new();
    for case in cases(REFUSED) {
        let row = row(&case);
        let object = created(&row, &case["in"]);
        let ours = causes(checked(&row, &object).iter().map(ToString::to_string));
        let theirs = recorded_causes(&case);
        if ours != theirs {
            let only = |one: &[String], other: &[String], mark: char| -> String {
                let rest = one.iter().filter(|cause| !other.contains(cause));
                rest.map(|cause| format!("  {mark} {cause}\n")).collect()
            };
            wrong.push(format!(
                "{} {}\n{}{}",
                case["path"],
                case["in"],
                only(&theirs, &ours, '-'),
                only(&ours, &theirs, '+')
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn o21_what_may_not_change_does_not() {
    let mut wrong = Vec::new();
    for case in cases(UPDATES) {
        let row = row(&case);
        let rules = rules(&row);
        // What admission added is there in a real update, too.
        let mut old = case["created"].clone();
        if row.namespaced {
            old["metadata"]["namespace"] = "default".into();
        }
        let mut new = old.clone();
        json_patch::merge(&mut new, &case["patch"]);
        decode(&row.versions[0].schema, &mut new).unwrap();
        (rules.default)(&mut new);
        (rules.on_update)(&mut new, &old);
        let path = Path::new("metadata");
        let mut errors = check_metadata_update(&new["metadata"], &old["metadata"], &path);
        errors.extend(check_built_in_finalizers(&new["metadata"], &path));
        errors.extend((rules.check_update)(&new, &old));
        errors.extend((rules.check)(&new));
        let mut ours = causes(errors.iter().map(ToString::to_string));
        let mut theirs = recorded_causes(&case);
        ours.dedup();
        theirs.dedup();
        if ours != theirs {
            wrong.push(format!(
                "{} {}\n  theirs {theirs:#?}\n  ours {ours:#?}",
                case["path"], case["patch"]
            ));
        } else if case["out"].is_object() && case["out"]["kind"] != "Pod" {
            let (ours, theirs) = (bare(new), bare(case["out"].clone()));
            if ours != theirs {
                wrong.push(format!("{}\n{}", case["patch"], super::difference::of(&theirs, &ours)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn o20_what_cannot_be_decoded_is_refused_in_the_reference_s_words() {
    let mut wrong = Vec::new();
    for case in cases(UNDECODABLE) {
        let row = row(&case);
        let mut body: Value = serde_json::from_str(case["in"].as_str().unwrap()).unwrap();
        let ours = decode(&row.versions[0].schema, &mut body).unwrap_err();
        if ours != case["error"] {
            wrong.push(format!("{}\n  theirs {}\n  ours   {ours}", case["in"], case["error"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn o23_what_is_said_of_a_state_must_make_sense() {
    let mut wrong = Vec::new();
    for case in cases(STATUSES) {
        let row = row(&case);
        let mut old = case["created"].clone();
        for step in case["steps"].as_array().unwrap() {
            let mut new = old.clone();
            json_patch::merge(&mut new, &step["patch"]);
            decode(&row.versions[0].schema, &mut new).unwrap();
            (rules(&row).default)(&mut new);
            let ours = causes((rules(&row).check_status)(&new, &old).iter().map(ToString::to_string));
            let theirs = recorded_causes(step);
            if ours != theirs {
                wrong.push(format!(
                    "{} {}\n  theirs {theirs:#?}\n  ours {ours:#?}",
                    case["path"], step["patch"]
                ));
            }
            if theirs.is_empty() {
                old = new;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn o20_what_is_allowed_and_odd_is_warned_of() {
    let mut wrong = Vec::new();
    for case in cases(WARNINGS) {
        let row = row(&case);
        let object = created(&row, &case["in"]);
        assert!(checked(&row, &object).is_empty(), "{}", case["in"]);
        let ours = causes((rules(&row).warn)(&object, None));
        let theirs = causes(
            case["warnings"]
                .as_array()
                .unwrap()
                .iter()
                .map(|text| text.as_str().unwrap().to_owned()),
        );
        if ours != theirs {
            wrong.push(format!("{}\n  theirs {theirs:#?}\n  ours {ours:#?}", case["in"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
