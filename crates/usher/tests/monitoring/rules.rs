//! Alert rules and board: they say what the specification says, ask only for what is there, and the rules do their work.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use usher_subnets::metrics::names::METRICS;

use super::promql;

/// Section 9: name, expression, for, severity.
const ALERTS: [(&str, &str, &str, &str); 6] = [
    (
        "ParentPoolReconcileErrorRate",
        r#"sum(rate(subnetpool_parent_requeue_total{result="error"}[5m])) > 0.05 * sum(rate(subnetpool_parent_requeue_total{result="success"}[5m]))"#,
        "10m",
        "warning",
    ),
    (
        "SubnetPoolExhausted",
        "(aquanaut_subnet_free and on (namespace, pool, size) usher_subnets_default_size) < 5",
        "5m",
        "critical",
    ),
    (
        "HighAllocationRetryRate",
        "sum(rate(aquanaut_subnet_alloc_retry_total[5m])) > 1",
        "5m",
        "warning",
    ),
    (
        "SlowAllocation",
        "histogram_quantile(0.95, sum by (le) (rate(aquanaut_subnet_alloc_latency_seconds_bucket[10m]))) > 0.5",
        "5m",
        "warning",
    ),
    (
        "SubnetClaimWaiting",
        "usher_subnets_oldest_wait_seconds > 900",
        "5m",
        "warning",
    ),
    ("SubnetOverlap", "usher_subnets_overlaps > 0", "0m", "critical"),
];

fn monitoring(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../monitoring")
        .join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(monitoring(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

fn alerts() -> Vec<Value> {
    let rules: Value = serde_saphyr::from_str(&read("alerts/subnets.yaml")).unwrap();
    let groups = rules["groups"].as_array().unwrap();
    groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap().clone())
        .collect()
}

fn promtool(arguments: &[&str], file: &str) -> String {
    let tools = std::env::var_os("USHER_TOOLS")
        .expect("this test needs promtool: run `cargo xtask setup`, and set USHER_TOOLS to the folder it names");
    let program = Path::new(&tools).join("promtool");
    let ran = Command::new(&program).args(arguments).arg(monitoring(file)).output();
    let ran = ran.unwrap_or_else(|e| panic!("{} does not run ({e}); `cargo xtask setup` gets it", program.display()));
    let said = [ran.stdout, ran.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    assert!(ran.status.success(), "promtool {arguments:?}: {said}");
    said
}

#[test]
fn alerts_are_those_of_the_specification() {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let found: Vec<_> = alerts()
        .iter()
        .map(|rule| {
            let annotations = &rule["annotations"];
            for word in ["summary", "description", "runbook_url"] {
                assert!(annotations[word].is_string(), "{} has no {word}", rule["alert"]);
            }
            (
                text(&rule["alert"]),
                text(&rule["expr"]),
                text(&rule["for"]),
                text(&rule["labels"]["severity"]),
            )
        })
        .collect();
    let expected = ALERTS.map(|(name, expr, wait, severity)| (name.into(), expr.into(), wait.into(), severity.into()));
    assert_eq!(found, expected);
}

/// A26, second half.
#[test]
fn a26_each_alert_fires_and_clears() {
    let said = promtool(&["check", "rules"], "alerts/subnets.yaml");
    assert!(said.contains(&format!("{} rules found", ALERTS.len())), "{said}");
    promtool(&["test", "rules"], "alerts/tests/subnets.yaml");
    // And each of them is tested both ways.
    let tests: Value = serde_saphyr::from_str(&read("alerts/tests/subnets.yaml")).unwrap();
    for (name, ..) in ALERTS {
        let looks: Vec<bool> = tests["tests"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|test| test["alert_rule_test"].as_array().unwrap())
            .filter(|look| look["alertname"] == name)
            .map(|look| look["exp_alerts"].as_array().is_some_and(|alerts| !alerts.is_empty()))
            .collect();
        let fires = looks
            .iter()
            .position(|fires| *fires)
            .unwrap_or_else(|| panic!("no test lets {name} fire"));
        assert!(fires > 0 && !looks[fires - 1], "{name} is quiet before it fires");
        assert!(looks[fires..].contains(&false), "{name} clears");
    }
}

/// Expressions and queries of a board, wherever they are in it.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "expr" || (name == "query" && text != "prometheus") => {
                        found.push(text.clone());
                    }
                    other => queries(other, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| queries(item, found)),
        _ => {}
    }
}

#[test]
fn alerts_and_board_ask_only_for_metrics_and_labels_that_exist() {
    let board: Value = serde_json::from_str(&read("boards/subnets.json")).unwrap();
    let mut asked = Vec::new();
    queries(&board, &mut asked);
    assert!(asked.len() > 20, "{asked:#?}");
    asked.extend(alerts().iter().map(|rule| rule["expr"].as_str().unwrap().to_owned()));
    let mut used = BTreeSet::new();
    for expression in &asked {
        let names = promql::names(expression);
        assert!(!names.metrics.is_empty(), "{expression} asks for nothing");
        let mut labels = BTreeSet::from(["le"]);
        for name in &names.metrics {
            let series = ["", "_bucket", "_sum", "_count"];
            let metric = METRICS
                .iter()
                .find(|metric| series.iter().any(|end| format!("{}{end}", metric.name) == *name));
            let metric = metric.unwrap_or_else(|| panic!("{expression}: there is no metric {name}"));
            labels.extend(metric.labels);
            used.insert(metric.name);
        }
        for label in &names.labels {
            assert!(
                labels.contains(label.as_str()),
                "{expression}: no metric in it has a label {label}"
            );
        }
    }
    let unused: Vec<_> = METRICS
        .iter()
        .map(|metric| metric.name)
        .filter(|name| !used.contains(name))
        .collect();
    println!("on no board and in no alert: {unused:?}");
}

/// Success rate, p95 pass duration, queue depth, free by size, waiting, writes per claim (section 9).
#[test]
fn the_board_has_what_the_specification_names() {
    let board: Value = serde_json::from_str(&read("boards/subnets.json")).unwrap();
    let mut asked = Vec::new();
    queries(&board, &mut asked);
    for (what, expression) in [
        (
            "success rate",
            r#"sum(rate(subnetpool_parent_requeue_total{result="success"}[5m])) / sum(rate(subnetpool_parent_requeue_total[5m]))"#,
        ),
        (
            "p95 pass duration",
            "histogram_quantile(0.95, sum by (le, result) (rate(subnetpool_parent_reconcile_duration_seconds_bucket[5m])))",
        ),
        ("queue depth", "sum by (name) (workqueue_depth)"),
        (
            "free by size",
            r#"aquanaut_subnet_free{namespace=~"$namespace",pool=~"$pool"}"#,
        ),
        (
            "waiting",
            r#"usher_subnets_waiting_claims{namespace=~"$namespace",pool=~"$pool"}"#,
        ),
        ("writes per claim", "sum(rate(usher_subnets_api_writes_total{"),
    ] {
        assert!(
            asked.iter().any(|query| query.starts_with(expression)),
            "{what} is not on the board"
        );
    }
    let panels = board["panels"].as_array().unwrap();
    let mut ids: Vec<_> = panels.iter().map(|panel| panel["id"].as_i64().unwrap()).collect();
    ids.dedup();
    assert_eq!(ids.len(), panels.len(), "panels have numbers of their own");
}

#[test]
fn the_documents_name_every_metric_and_every_alert() {
    let page = std::fs::read_to_string(monitoring("../docs/operations.md")).unwrap();
    let missing: Vec<&str> = METRICS
        .iter()
        .map(|metric| metric.name)
        .chain(ALERTS.map(|(name, ..)| name))
        .filter(|name| !page.contains(&format!("`{name}`")))
        .collect();
    assert!(missing.is_empty(), "docs/operations.md does not name {missing:?}");
}
