//! As much of PromQL as it takes to tell which metrics and labels an expression names.

use std::collections::BTreeSet;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub metrics: BTreeSet<String>,
    pub labels: BTreeSet<String>,
}

/// Words of the language that are neither.
const WORDS: [&str; 8] = [
    "and",
    "or",
    "unless",
    "bool",
    "offset",
    "ignoring",
    "group_left",
    "group_right",
];
/// What labels in brackets follow.
const BY: [&str; 5] = ["by", "on", "without", "ignoring", "group_left"];

/// The metrics and labels in an expression, or in Grafana's `label_values(metric, label)`.
pub fn names(expression: &str) -> Names {
    let mut names = Names::default();
    let mut rest = expression;
    while let Some(at) = rest.find(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '{' || c == '[' || c == '$') {
        rest = &rest[at..];
        match rest.as_bytes()[0] {
            b'{' => {
                let (inside, after) = rest[1..].split_once('}').unwrap();
                let labels = inside.split(',').filter(|matcher| !matcher.is_empty());
                names.labels.extend(labels.map(|matcher| word(matcher).to_owned()));
                rest = after;
            }
            b'[' => rest = rest.split_once(']').unwrap().1,
            b'$' => rest = &rest[1 + word(&rest[1..]).len()..],
            _ => {
                let found = word(rest);
                rest = &rest[found.len()..];
                let bracket = rest.trim_start().strip_prefix('(');
                match bracket.and_then(|inside| inside.split_once(')')) {
                    Some((labels, after)) if BY.contains(&found) => {
                        names
                            .labels
                            .extend(labels.split(',').map(|label| label.trim().to_owned()));
                        rest = after;
                    }
                    Some((values, after)) if found == "label_values" => {
                        let (metric, label) = values.rsplit_once(',').unwrap();
                        let inner = self::names(metric);
                        names.metrics.extend(inner.metrics);
                        names.labels.extend(inner.labels);
                        names.labels.insert(label.trim().to_owned());
                        rest = after;
                    }
                    // A function.
                    Some(_) => {}
                    None if WORDS.contains(&found) => {}
                    // An aggregation that says first by what.
                    None if ["by", "without"].contains(&word(rest.trim_start())) => {}
                    None => drop(names.metrics.insert(found.to_owned())),
                }
            }
        }
    }
    names
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    &text[..end.unwrap_or(text.len())]
}

#[test]
fn metrics_are_told_from_functions_labels_and_words() {
    let set = |words: &[&str]| words.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    let cases: [(&str, &[&str], &[&str]); 5] = [
        (
            r#"sum(rate(a_total{result="error"}[5m])) > 0.05 * b"#,
            &["a_total", "b"],
            &["result"],
        ),
        (
            "(free and on (namespace, size) default) < 5",
            &["free", "default"],
            &["namespace", "size"],
        ),
        (
            "histogram_quantile(0.95, sum by (le) (rate(x_bucket[10m])))",
            &["x_bucket"],
            &["le"],
        ),
        (
            r#"free{namespace=~"$namespace",pool=~"$pool"}"#,
            &["free"],
            &["namespace", "pool"],
        ),
        (r#"label_values(m{a=~"$b"}, pool)"#, &["m"], &["a", "pool"]),
    ];
    for (expression, metrics, labels) in cases {
        let expected = Names {
            metrics: set(metrics),
            labels: set(labels),
        };
        assert_eq!(names(expression), expected, "{expression}");
    }
}
