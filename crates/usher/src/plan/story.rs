//! A preview as people read it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use usher_engine::{Finding, Stance};
use usher_operator::pass::{Preview, PreviewStep};

use super::Shown;

/// Lines of one kind that somebody reads; `-o json` has all.
const LONGEST: usize = 20;

/// The whole answer.
pub(super) fn tell(shown: &Shown, live: Option<&Value>, now: Timestamp) -> String {
    let Shown { preview, decided_by } = shown;
    let mut text = format!("{} {}\n", preview.kind, preview.resource);
    let next = next(preview, decided_by.as_ref());
    let mut why: Vec<String> = preview.findings.iter().map(|finding| reason(finding, now)).collect();
    // What the decider is held up by holds this object up.
    for finding in decided_by.iter().flat_map(|decider| &decider.findings) {
        if matches!(finding.stance, Stance::Waiting | Stance::Blocked) {
            why.push(reason(finding, now));
        }
    }
    why.dedup();
    let live = live.filter(|status| status.as_object().is_some_and(|fields| !fields.is_empty()));
    let mut changes = if preview.status_changes {
        changes(live, &preview.status)
    } else {
        Vec::new()
    };
    if preview.status_changes && changes.is_empty() {
        changes.push("times and generations only".to_owned());
    }
    if next.is_empty() && changes.is_empty() {
        text.push_str(match why.is_empty() {
            true => "\nNothing to do: it is as it should be.\n",
            false => "\nNothing to do now.\n",
        });
    }
    section(&mut text, "Next", &next);
    section(&mut text, "Why", &why);
    let title = match live {
        Some(_) => "Status would change",
        None => "Status would be",
    };
    section(&mut text, title, &changes);
    text.push_str(&match preview.again_after_seconds {
        Some(seconds) => format!(
            "\nLooks again when something changes, or after {} at the latest.\n",
            span(seconds)
        ),
        None => "\nLooks again when something changes.\n".to_owned(),
    });
    text
}

fn section(text: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    text.push_str(&format!("\n{title}:\n"));
    for line in lines.iter().take(LONGEST) {
        text.push_str(&format!("  {line}\n"));
    }
    if lines.len() > LONGEST {
        text.push_str(&format!("  … and {} more; -o json shows all\n", lines.len() - LONGEST));
    }
}

/// The steps, numbered. Of a decider's steps not those that are for others of this kind.
fn next(preview: &Preview, decided_by: Option<&Preview>) -> Vec<String> {
    let own = preview.steps.iter().map(|step| (None, step));
    let (kind, named) = (
        format!("{} ", preview.kind),
        format!("{} {}", preview.kind, preview.resource),
    );
    let concerns = |step: &&PreviewStep| names(&step.description, &named) || !step.description.contains(&kind);
    let theirs = decided_by.iter().flat_map(|decider| {
        let steps = decider.steps.iter().filter(concerns);
        steps.map(move |step| (Some(*decider), step))
    });
    let line = |(number, (of, step)): (usize, (Option<&Preview>, &PreviewStep))| {
        let of = of.map_or_else(String::new, |decider| {
            format!("{} {}: ", decider.kind, decider.resource)
        });
        let disruptive = if step.disruptive { " (disruptive)" } else { "" };
        format!("{}. {of}{}{disruptive}", number + 1, step.description)
    };
    theirs.chain(own).enumerate().map(line).collect()
}

/// Whether the text names exactly this, and not something that begins like it.
fn names(text: &str, word: &str) -> bool {
    text.split_once(word)
        .is_some_and(|(_, rest)| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.'))
}

fn reason(finding: &Finding, now: Timestamp) -> String {
    let stance = match finding.stance {
        Stance::Doing => "doing",
        Stance::Done => "done",
        Stance::Waiting => "waiting",
        Stance::Blocked => "blocked",
    };
    let since = finding.since.map_or_else(String::new, |since| {
        format!(" (since {since:.0}, {})", age(now.duration_since(since)))
    });
    format!("{stance}: {} [{}]{since}", finding.message, finding.reason)
}

fn age(age: SignedDuration) -> String {
    span(age.as_secs_f64().max(0.0))
}

/// The two biggest units, as kubectl shows ages.
fn span(seconds: f64) -> String {
    if seconds < 10.0 {
        return format!("{:.1} s", seconds.max(0.0));
    }
    let whole = SignedDuration::try_from_secs_f64(seconds).map_or(i64::MAX, |span| span.as_secs());
    match whole {
        0..120 => format!("{whole} s"),
        120..7_200 => format!("{} min", whole / 60),
        7_200..172_800 => format!("{} h", whole / 3_600),
        _ => format!("{} days", whole / 86_400),
    }
}

/// Field by field, what the status says now and what it would say.
fn changes(live: Option<&Value>, planned: &Value) -> Vec<String> {
    let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
    flatten(live.unwrap_or(&Value::Null), "", &mut old);
    flatten(planned, "", &mut new);
    let fields: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let line = |field: &String| match (old.get(field), new.get(field)) {
        (Some(old), Some(new)) if old == new => None,
        (Some(old), Some(new)) => Some(format!("{field}: {old} -> {new}")),
        (None, Some(new)) if live.is_none() => Some(format!("{field}: {new}")),
        (None, Some(new)) => Some(format!("{field}: {new} (new)")),
        (Some(old), None) => Some(format!("{field}: {old} (removed)")),
        (None, None) => None,
    };
    fields.into_iter().filter_map(line).collect()
}

fn flatten(value: &Value, path: &str, fields: &mut BTreeMap<String, String>) {
    match value {
        Value::Null => {}
        Value::Object(map) => {
            for (name, field) in map.iter().filter(|(name, _)| *name != "observedGeneration") {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                flatten(field, &path, fields);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                // Conditions are known by their type, whatever their order; what they say fits a line.
                match item.get("type").and_then(Value::as_str) {
                    Some(name) => fields
                        .insert(format!("{path}[{name}]"), condition(item))
                        .map_or((), drop),
                    None => flatten(item, &format!("{path}[{index}]"), fields),
                }
            }
        }
        Value::String(text) => {
            fields.insert(path.to_owned(), text.clone());
        }
        scalar => {
            fields.insert(path.to_owned(), scalar.to_string());
        }
    }
}

/// `False (PoolExhausted): no free /24 in pool p`.
fn condition(condition: &Value) -> String {
    let text = |field: &str| condition.get(field).and_then(Value::as_str).unwrap_or_default();
    match (text("reason"), text("message")) {
        ("", _) => text("status").to_owned(),
        (reason, "") => format!("{} ({reason})", text("status")),
        (reason, message) => format!("{} ({reason}): {message}", text("status")),
    }
}

#[cfg(test)]
mod tests;
