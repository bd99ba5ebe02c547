//! D4: rules are stopped when they compute too much, alone or together, in the reference's words.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use usher_embedded::schema::Schema;
use usher_embedded::schema::cel::Rules;

/// Rules on `spec`, which has lists `a` and `b` of numbers, `t` of texts, and a text.
fn rules(given: Value) -> Rules {
    let numbers = json!({"type": "array", "items": {"type": "integer"}});
    let schema = Schema::parse(&json!({
        "type": "object",
        "properties": {"spec": {
            "type": "object",
            "properties": {
                "a": numbers, "b": numbers, "text": {"type": "string"},
                "t": {"type": "array", "items": {"type": "string"}},
            },
            "x-kubernetes-validations": given,
        }},
    }))
    .unwrap();
    Rules::compile(&schema).unwrap()
}

fn numbers(a: usize, b: usize) -> Value {
    json!({"spec": {"a": vec![1; a], "b": vec![2; b]}})
}

fn errors(rules: &Rules, object: &Value) -> Vec<String> {
    rules.check(object, None).iter().map(ToString::to_string).collect()
}

const NESTED: &str = "self.a.all(x, self.b.all(y, x < y))";

#[test]
fn d4_a_rule_that_would_compute_for_minutes_is_stopped_and_no_further_one_is_run() {
    let rules = rules(json!([{"rule": NESTED}, {"rule": "self.a.size() == 0"}]));
    let started = Instant::now();
    // 40,000 × 40,000 rounds.
    assert_eq!(
        errors(&rules, &numbers(40_000, 40_000)),
        [format!(
            "spec: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no further validation \
             rules will be run due to call cost exceeds limit for rule: {NESTED}"
        )]
    );
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}

#[test]
fn d4_what_the_reference_lets_pass_passes() {
    // About six units for each round there, of a million.
    let nested = rules(json!([{"rule": NESTED}]));
    assert_eq!(errors(&nested, &numbers(400, 400)), [""; 0]);
    let flat =
        rules(json!([{"rule": "self.a.all(x, x > 0 && x < 5)"}, {"rule": "self.a.exists_one(x, x > 1) == false"}]));
    assert_eq!(errors(&flat, &numbers(50_000, 0)), [""; 0]);
}

#[test]
fn d4_rules_of_one_object_share_a_budget() {
    // About 900,000 units each, of ten million.
    let many: Vec<Value> = (0..15).map(|_| json!({"rule": "self.t.all(x, x in self.t)"})).collect();
    let texts: Vec<String> = (0..940).map(|number| format!("t{number}")).collect();
    assert_eq!(
        errors(&rules(many.into()), &json!({"spec": {"t": texts}})),
        [
            "spec: Invalid value: \"object\": validation failed due to running out of cost budget, no further validation \
          rules will be run"
        ]
    );
}

#[test]
fn d4_a_message_that_costs_too_much_ends_validation() {
    let expression = format!("{NESTED} ? 'a' : 'b'");
    let rules = rules(json!([{"rule": "self.a.size() == 0", "messageExpression": expression}, {"rule": "false"}]));
    assert_eq!(
        errors(&rules, &numbers(4_000, 4_000)),
        [format!(
            "spec: Invalid value: \"object\": no further validation rules will be run due to call cost exceeds limit \
             for messageExpression: \"{expression}\""
        )]
    );
}

#[test]
fn d4_calls_that_walk_their_operands_are_paid_by_size() {
    // 20,000 rounds only, each through a text of 100,000 characters, or a list of 20,000 items.
    for rule in [
        "self.t.all(x, !self.text.contains(x))",
        "self.t.all(x, !self.text.matches('^b+$'))",
        "self.t.all(x, x in self.t)",
    ] {
        let rules = rules(json!([{"rule": rule}]));
        let texts: Vec<String> = (0..20_000).map(|number| format!("t{number}")).collect();
        let object = json!({"spec": {"t": texts, "text": "a".repeat(100_000)}});
        let told = errors(&rules, &object).join("\n");
        assert!(told.contains("actual cost limit exceeded"), "{rule}: {told}");
    }
}

#[test]
fn d4_a_failure_that_is_forgiven_does_not_hide_the_limit() {
    // What comes after `||` would decide.
    let rules = rules(json!([{"rule": format!("{NESTED} || true")}]));
    let told = errors(&rules, &numbers(4_000, 4_000)).join("\n");
    assert!(told.contains("actual cost limit exceeded"), "{told}");
}
