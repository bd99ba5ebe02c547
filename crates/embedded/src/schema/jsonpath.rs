//! JSON paths of printer columns: `.spec.replicas`, `.status.conditions[?(@.type=="Ready")].status`, `['a.b']`, `[0]`.
//!
//! The reference's relaxed dialect: what is missing is nothing, not an error, and of many values the first is shown. A
//! path that cannot be read finds nothing.

use serde_json::Value;

/// How far a path may nest in filters and recursion: each step is a fold over at most all of the object.
const MOST_STEPS: usize = 64;

/// The value at a path; the first, where there are many.
#[must_use]
pub fn evaluate(object: &Value, path: &str) -> Option<Value> {
    let steps = parse(path)?;
    let mut found = vec![object];
    for step in &steps {
        found = step.apply(&found);
        if found.is_empty() {
            return None;
        }
    }
    found.first().map(|value| (*value).clone())
}

#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    /// `[from:to:step]`.
    Slice(Option<i64>, Option<i64>, i64),
    /// `[*]`, `.*`.
    All,
    /// `..name`.
    Below(String),
    /// `[a,b]`.
    Union(Vec<Step>),
    Filter(Operand, Option<(Comparison, Operand)>),
}

#[derive(Debug, PartialEq)]
enum Operand {
    Path(Vec<Step>),
    Literal(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Step {
    fn apply<'v>(&self, values: &[&'v Value]) -> Vec<&'v Value> {
        let mut found = Vec::new();
        for value in values {
            self.apply_one(value, &mut found);
        }
        found
    }

    fn apply_one<'v>(&self, value: &'v Value, found: &mut Vec<&'v Value>) {
        match self {
            Self::Field(name) => found.extend(value.get(name).filter(|value| !value.is_null())),
            Self::Index(index) => {
                let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
                found.extend(place(*index, list.len()).and_then(|index| list.get(index)));
            }
            Self::Slice(from, to, step) => {
                let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let bound = |at: Option<i64>, otherwise: usize| {
                    at.map_or(otherwise, |at| match usize::try_from(at) {
                        Ok(at) => at.min(list.len()),
                        Err(_) => list
                            .len()
                            .saturating_sub(usize::try_from(at.unsigned_abs()).unwrap_or(usize::MAX)),
                    })
                };
                let (from, to) = (bound(*from, 0), bound(*to, list.len()));
                let step = usize::try_from(*step).unwrap_or(1).max(1);
                found.extend(list.get(from..to).unwrap_or_default().iter().step_by(step));
            }
            Self::All => match value {
                Value::Array(items) => found.extend(items),
                Value::Object(map) => found.extend(map.values()),
                _ => {}
            },
            Self::Below(name) => {
                found.extend(value.get(name));
                let inner: Vec<&Value> = match value {
                    Value::Array(items) => items.iter().collect(),
                    Value::Object(map) => map.values().collect(),
                    _ => Vec::new(),
                };
                for value in inner {
                    self.apply_one(value, found);
                }
            }
            Self::Union(steps) => {
                for step in steps {
                    step.apply_one(value, found);
                }
            }
            Self::Filter(left, right) => {
                let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
                found.extend(list.iter().filter(|item| passes(item, left, right.as_ref())));
            }
        }
    }
}

/// An index from the front, or from the back where negative.
fn place(index: i64, length: usize) -> Option<usize> {
    match usize::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
    }
}

fn passes(item: &Value, left: &Operand, right: Option<&(Comparison, Operand)>) -> bool {
    let value = |operand: &Operand| -> Option<Value> {
        match operand {
            Operand::Literal(value) => Some(value.clone()),
            Operand::Path(steps) => {
                let mut found = vec![item];
                for step in steps {
                    found = step.apply(&found);
                }
                found.first().map(|value| (*value).clone())
            }
        }
    };
    let Some(left) = value(left) else {
        return false;
    };
    let Some((comparison, right)) = right else {
        return true;
    };
    value(right).is_some_and(|right| compare(&left, &right, *comparison))
}

fn compare(left: &Value, right: &Value, comparison: Comparison) -> bool {
    let order = match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64().partial_cmp(&right.as_f64()),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        _ => None,
    };
    match (comparison, order) {
        (Comparison::Unequal, None) => true,
        (_, None) => false,
        (Comparison::Equal, Some(order)) => order.is_eq(),
        (Comparison::Unequal, Some(order)) => order.is_ne(),
        (Comparison::Less, Some(order)) => order.is_lt(),
        (Comparison::LessOrEqual, Some(order)) => order.is_le(),
        (Comparison::Greater, Some(order)) => order.is_gt(),
        (Comparison::GreaterOrEqual, Some(order)) => order.is_ge(),
    }
}

fn parse(path: &str) -> Option<Vec<Step>> {
    let path = path.trim();
    let path = path
        .strip_prefix('{')
        .and_then(|path| path.strip_suffix('}'))
        .unwrap_or(path);
    let path = path.strip_prefix(['$', '@']).unwrap_or(path);
    let mut rest = path;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if steps.len() >= MOST_STEPS {
            return None;
        }
        let (step, after) = parse_step(rest)?;
        steps.extend(step);
        rest = after;
    }
    Some(steps)
}

/// One step and what is left; `None` inside where a lone dot means the object itself.
fn parse_step(text: &str) -> Option<(Option<Step>, &str)> {
    if let Some(after) = text.strip_prefix("..") {
        let (name, rest) = word(after);
        return (!name.is_empty()).then_some((Some(Step::Below(name)), rest));
    }
    if let Some(after) = text.strip_prefix('.') {
        if let Some(rest) = after.strip_prefix('*') {
            return Some((Some(Step::All), rest));
        }
        if after.is_empty() || after.starts_with('[') {
            return Some((None, after));
        }
        let (name, rest) = word(after);
        return (!name.is_empty()).then_some((Some(Step::Field(name)), rest));
    }
    if let Some(after) = text.strip_prefix('[') {
        let end = closing(after)?;
        let inner = after.get(..end)?;
        let rest = after.get(end + 1..)?;
        return Some((Some(brackets(inner)?), rest));
    }
    // The first name may stand without its dot.
    let (name, rest) = word(text);
    (!name.is_empty()).then_some((Some(Step::Field(name)), rest))
}

/// A name up to the next step; a backslash takes the character after it as it is.
fn word(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut rest = text.char_indices();
    while let Some((at, c)) = rest.next() {
        match c {
            '.' | '[' | ' ' | '=' | '!' | '<' | '>' | ')' => return (name, text.get(at..).unwrap_or_default()),
            '\\' => name.extend(rest.next().map(|(_, c)| c)),
            other => name.push(other),
        }
    }
    (name, "")
}

/// Where the bracket ends that was opened before `text`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if std::mem::take(&mut escaped) {
            continue;
        }
        match (c, quote) {
            ('\\', Some(_)) => escaped = true,
            (c, Some(open)) if c == open => quote = None,
            (_, Some(_)) => {}
            ('\'' | '"', None) => quote = Some(c),
            ('[', None) => depth += 1,
            (']', None) if depth == 0 => return Some(at),
            (']', None) => depth -= 1,
            _ => {}
        }
    }
    None
}

fn brackets(inner: &str) -> Option<Step> {
    let inner = inner.trim();
    if inner == "*" {
        return Some(Step::All);
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|text| text.strip_suffix(')')) {
        return parse_filter(filter);
    }
    let quoted = |text: &str| {
        ['\'', '"']
            .into_iter()
            .find_map(|mark| Some(text.strip_prefix(mark)?.strip_suffix(mark)?.to_owned()))
    };
    if let Some(name) = quoted(inner).filter(|name| !name.contains("','")) {
        return Some(Step::Field(name.replace("\\'", "'").replace("\\.", ".")));
    }
    if inner.contains(',') {
        return inner
            .split(',')
            .map(brackets)
            .collect::<Option<Vec<_>>>()
            .map(Step::Union);
    }
    if inner.contains(':') {
        let mut parts = inner.split(':');
        let mut number = || match parts.next().unwrap_or_default().trim() {
            "" => Some(None),
            text => text.parse().ok().map(Some),
        };
        let (from, to, step) = (number()?, number()?, number()?);
        return Some(Step::Slice(from, to, step.unwrap_or(1)));
    }
    inner.parse().ok().map(Step::Index)
}

fn parse_filter(text: &str) -> Option<Step> {
    const SIGNS: [(&str, Comparison); 6] = [
        ("==", Comparison::Equal),
        ("!=", Comparison::Unequal),
        ("<=", Comparison::LessOrEqual),
        (">=", Comparison::GreaterOrEqual),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
    ];
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (_, Some(_)) => {}
            ('\'' | '"', None) => quote = Some(c),
            _ => {
                let here = text.get(at..)?;
                if let Some((sign, comparison)) = SIGNS.iter().find(|(sign, _)| here.starts_with(sign)) {
                    let left = operand(text.get(..at)?)?;
                    let right = operand(here.get(sign.len()..)?)?;
                    return Some(Step::Filter(left, Some((*comparison, right))));
                }
            }
        }
    }
    operand(text).map(|left| Step::Filter(left, None))
}

fn operand(text: &str) -> Option<Operand> {
    let text = text.trim();
    if text.starts_with('@') {
        return parse(text).map(Operand::Path);
    }
    for mark in ['\'', '"'] {
        if let Some(inner) = text.strip_prefix(mark).and_then(|text| text.strip_suffix(mark)) {
            return Some(Operand::Literal(inner.into()));
        }
    }
    serde_json::from_str(text).ok().map(Operand::Literal)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn d6_columns_find_what_the_reference_finds() {
        let object = json!({
            "metadata": {"name": "a", "labels": {"app.kubernetes.io/name": "x"}},
            "spec": {"replicas": 3, "list": [{"n": "a", "v": 1}, {"n": "b", "v": 2}], "nothing": null},
            "status": {"conditions": [
                {"type": "Ready", "status": "True"}, {"type": "Synced", "status": "False", "weight": 5},
            ]},
        });
        for (path, found) in [
            (".spec.replicas", json!(3)),
            ("{.spec.replicas}", json!(3)),
            (".metadata.labels['app.kubernetes.io/name']", json!("x")),
            (r".metadata.labels.app\.kubernetes\.io/name", json!("x")),
            (".spec.list[0].n", json!("a")),
            (".spec.list[-1].n", json!("b")),
            (".spec.list[*].n", json!("a")),
            (".spec.list[1:].n", json!("b")),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!("True")),
            (".status.conditions[?(@.type == 'Synced')].status", json!("False")),
            (".status.conditions[?(@.weight>4)].type", json!("Synced")),
            (".status.conditions[?(@.weight)].type", json!("Synced")),
            ("..replicas", json!(3)),
            (".spec.list[0]['n','v']", json!("a")),
        ] {
            assert_eq!(evaluate(&object, path), Some(found), "{path}");
        }
        for path in [
            ".spec.none",
            ".spec.nothing",
            ".spec.list[5]",
            ".spec.replicas.x",
            ".spec.list[",
            ".spec.list[?(@.n==)]",
            r#".status.conditions[?(@.type=="X")].status"#,
        ] {
            assert_eq!(evaluate(&object, path), None, "{path}");
        }
    }
}
