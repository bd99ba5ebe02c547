//! Expressions of CEL, each recorded as true, false, an error or refused by the real server.

use serde_json::{Value, json};
use usher_embedded::schema::Schema;
use usher_embedded::schema::cel::Rules;

/// Rules that hold a fragment, and why they are answered otherwise.
const KNOWN_DIFFERENCES: [(&str, &str); 6] = [
    (
        "sortBy",
        "the interpreter has no such macro, and a sort cannot be written out in those it has: refused with its CRD",
    ),
    (
        "transformMap",
        "the interpreter cannot build a map in a fold: refused with its CRD",
    ),
    (
        "transformList",
        "the reference refuses it for the cost it estimates; here estimates only warn, and what a run costs is counted",
    ),
    (
        "format.named",
        "the interpreter gives the format itself where the reference gives an optional of it: refused with its CRD",
    ),
    (
        "America/New_York",
        "the interpreter takes a time zone and does not heed it: refused with its CRD rather than answered wrongly",
    ),
    (
        "existsOne",
        "the interpreter's parser writes it out as exists_one before anybody can tell; the reference has it with two variables alone",
    ),
];

#[test]
fn d4_expressions_mean_what_they_mean_to_the_reference() {
    let recorded: Value = serde_json::from_str(include_str!("language.json")).unwrap();
    let mut differences = Vec::new();
    for rule in recorded["rules"].as_array().unwrap() {
        let mut schema = recorded["schema"].clone();
        schema["properties"]["spec"]["x-kubernetes-validations"] = json!([{"rule": rule["rule"], "message": "R"}]);
        let schema = Schema::parse(&schema).unwrap();
        let ours = match Rules::compile(&schema) {
            Err(errors) => {
                let text = errors[0].to_string();
                let why = text.split("}: ").last().unwrap().to_owned();
                json!({"answer": "refused", "why": why})
            }
            Ok(rules) => match rules.check(&recorded["object"], None).first().map(ToString::to_string) {
                None => json!({"answer": "true"}),
                Some(text) if text == "spec: Invalid value: R" => json!({"answer": "false"}),
                Some(text) => json!({"answer": "error", "why": text}),
            },
        };
        let rule_text = rule["rule"].as_str().unwrap();
        let known = KNOWN_DIFFERENCES
            .iter()
            .any(|(fragment, _)| rule_text.contains(fragment));
        assert!(
            !known || ours["answer"] != rule["answer"],
            "no longer a difference: {rule_text}"
        );

        if ours["answer"] != rule["answer"] && !known {
            differences.push(format!("{rule}\n    ours {ours}"));
        }
    }
    assert!(
        differences.is_empty(),
        "{} differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
}
