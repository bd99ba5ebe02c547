//! Paths into answers: `.a.b`, `.items[0]`, `.items[*].metadata.name`, `.conditions[?type=="Ready"].status`, `.items[?metadata.name=="a"]`,
//! `.labels["a/b"]`, `..key` for that key anywhere below.

use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Key(String),
    Index(usize),
    All,
    /// That key here and at any depth.
    Deep(String),
    /// Elements (or map values) whose field, or field of a field, is this.
    Where(String, Value),
}

impl Path {
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix("..") {
                let end = after.find(['.', '[']).unwrap_or(after.len());
                let (key, next) = after.split_at(end);
                parts.push(Part::Deep(key.to_owned()));
                rest = next;
            } else if let Some(after) = rest.strip_prefix('.') {
                let end = after.find(['.', '[']).unwrap_or(after.len());
                let (key, next) = after.split_at(end);
                // `.` alone is the whole; `.[0]` is allowed.
                if !key.is_empty() {
                    parts.push(Part::Key(key.to_owned()));
                }
                rest = next;
            } else if let Some(after) = rest.strip_prefix('[') {
                let end = closing(after).ok_or_else(|| format!("{text}: `[` is not closed"))?;
                let (inside, next) = after.split_at(end);
                parts.push(bracket(inside).ok_or_else(|| format!("{text}: cannot make sense of [{inside}]"))?);
                rest = next.get(1..).unwrap_or_default();
            } else {
                return Err(format!(
                    "{text}: a path is made of `.key`, `[n]`, `[*]`, `[?key==value]`, `[\"key\"]`"
                ));
            }
        }
        Ok(Self {
            text: text.to_owned(),
            parts,
        })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Everything it leads to.
    pub fn all<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        self.parts.iter().fold(vec![value], |found, part| {
            found.into_iter().flat_map(|value| part.into(value)).collect()
        })
    }

    pub fn one<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.all(value).into_iter().next()
    }

    pub fn remove(&self, value: &mut Value) {
        remove(&self.parts, value);
    }

    /// The lists it leads to get the order of what `by` leads to in their elements; equal ones stay as they stand.
    pub fn sort(&self, value: &mut Value, by: &Self) {
        sort(&self.parts, value, by);
    }
}

fn closing(text: &str) -> Option<usize> {
    let mut quoted = false;
    text.char_indices().find_map(|(at, c)| {
        quoted ^= c == '"';
        (c == ']' && !quoted).then_some(at)
    })
}

fn bracket(inside: &str) -> Option<Part> {
    if inside == "*" {
        return Some(Part::All);
    }
    if let Some(condition) = inside.strip_prefix('?') {
        let (key, value) = condition.split_once("==")?;
        return Some(Part::Where(key.to_owned(), serde_json::from_str(value).ok()?));
    }
    match serde_json::from_str(inside).ok()? {
        Value::String(key) => Some(Part::Key(key)),
        Value::Number(index) => Some(Part::Index(usize::try_from(index.as_u64()?).ok()?)),
        _ => None,
    }
}

impl Part {
    fn fits(&self, at: usize, element: &Value) -> bool {
        match self {
            Self::Key(_) | Self::Deep(_) => false,
            Self::Index(index) => *index == at,
            Self::All => true,
            Self::Where(key, wanted) => key.split('.').try_fold(element, |value, key| value.get(key)) == Some(wanted),
        }
    }

    fn into<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Deep(key), value) => {
                let here = value.get(key.as_str()).into_iter();
                let below: Box<dyn Iterator<Item = &Value>> = match value {
                    Value::Object(map) => Box::new(map.values()),
                    Value::Array(elements) => Box::new(elements.iter()),
                    _ => Box::new(std::iter::empty()),
                };
                here.chain(below.flat_map(|value| self.into(value))).collect()
            }
            (Self::Key(key), Value::Object(map)) => map.get(key).into_iter().collect(),
            (_, Value::Array(elements)) => {
                let fitting = elements
                    .iter()
                    .enumerate()
                    .filter(|(at, element)| self.fits(*at, element));
                fitting.map(|(_, element)| element).collect()
            }
            (Self::All | Self::Where(..), Value::Object(map)) => {
                map.values().filter(|element| self.fits(0, element)).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn sort(parts: &[Part], value: &mut Value, by: &Path) {
    let Some((part, rest)) = parts.split_first() else {
        if let Value::Array(elements) = value {
            elements.sort_by_cached_key(|element| by.all(element).iter().map(ToString::to_string).collect::<Vec<_>>());
        }
        return;
    };
    match (part, value) {
        (Part::Key(key), Value::Object(map)) => {
            if let Some(next) = map.get_mut(key) {
                sort(rest, next, by);
            }
        }
        (part, Value::Array(elements)) => {
            let fitting = elements
                .iter_mut()
                .enumerate()
                .filter(|(at, element)| part.fits(*at, element));
            fitting.for_each(|(_, element)| sort(rest, element, by));
        }
        _ => {}
    }
}

fn remove(parts: &[Part], value: &mut Value) {
    let Some((part, rest)) = parts.split_first() else {
        return;
    };
    match (part, value) {
        (Part::Deep(key), value) => {
            remove(&[&[Part::Key(key.clone())], rest].concat(), value);
            match value {
                Value::Object(map) => map.values_mut().for_each(|value| remove(parts, value)),
                Value::Array(elements) => elements.iter_mut().for_each(|value| remove(parts, value)),
                _ => {}
            }
        }
        (Part::Key(key), Value::Object(map)) => {
            if rest.is_empty() {
                map.remove(key);
            } else if let Some(next) = map.get_mut(key) {
                remove(rest, next);
            }
        }
        (part, Value::Array(elements)) => {
            if rest.is_empty() {
                let mut at = 0;
                elements.retain(|element| {
                    at += 1;
                    !part.fits(at - 1, element)
                });
            } else {
                let fitting = elements
                    .iter_mut()
                    .enumerate()
                    .filter(|(at, element)| part.fits(*at, element));
                fitting.for_each(|(_, element)| remove(rest, element));
            }
        }
        (part @ (Part::All | Part::Where(..)), Value::Object(map)) => {
            let fitting = map.values_mut().filter(|element| part.fits(0, element));
            fitting.for_each(|element| remove(rest, element));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn all(path: &str, value: &Value) -> Vec<Value> {
        Path::parse(path).unwrap().all(value).into_iter().cloned().collect()
    }

    #[test]
    fn paths_lead_to_keys_elements_and_what_fits() {
        let value = json!({"a": {"x/y": 1}, "list": [{"n": "p", "v": 1}, {"n": "q", "v": 2}]});
        assert_eq!(all(".a[\"x/y\"]", &value), [json!(1)]);
        assert_eq!(all(".list[1].v", &value), [json!(2)]);
        assert_eq!(all(".list[*].n", &value), [json!("p"), json!("q")]);
        assert_eq!(all(".list[?n==\"q\"].v", &value), [json!(2)]);
        let deep = json!([{"a": {"b": 1}}, {"a": {"b": 2}}]);
        assert_eq!(all(".[?a.b==2].a", &deep), [json!({"b": 2})]);
        assert_eq!(all(".none.at.all", &value), Vec::<Value>::new());
        assert_eq!(all(".", &value), std::slice::from_ref(&value));
    }

    #[test]
    fn what_a_path_leads_to_can_be_removed() {
        let mut value = json!({"list": [{"n": "p", "v": 1}, {"n": "q", "v": 2}]});
        Path::parse(".list[*].v").unwrap().remove(&mut value);
        assert_eq!(value, json!({"list": [{"n": "p"}, {"n": "q"}]}));
        Path::parse(".list[?n==\"p\"]").unwrap().remove(&mut value);
        assert_eq!(value, json!({"list": [{"n": "q"}]}));
    }

    #[test]
    fn a_key_is_found_and_removed_at_any_depth() {
        let mut value = json!({"k": 1, "a": [{"k": {"k": 2}}, {"b": 3}]});
        assert_eq!(all("..k", &value), [json!(1), json!({"k": 2}), json!(2)]);
        Path::parse("..k").unwrap().remove(&mut value);
        assert_eq!(value, json!({"a": [{}, {"b": 3}]}));
    }

    #[test]
    fn lists_get_the_order_of_what_is_in_them() {
        let mut value = json!({"items": [{"l": [{"n": "q"}, {"n": "p"}]}, {"l": []}]});
        let path = |text| Path::parse(text).unwrap();
        path(".items[*].l").sort(&mut value, &path(".n"));
        assert_eq!(value, json!({"items": [{"l": [{"n": "p"}, {"n": "q"}]}, {"l": []}]}));
    }

    #[test]
    fn a_path_that_is_none_is_refused() {
        for text in ["a", ".a[", ".a[x]", ".a[?b]"] {
            assert!(Path::parse(text).is_err(), "{text}");
        }
    }
}
