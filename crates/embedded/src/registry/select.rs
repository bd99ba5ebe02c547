//! Label and field selectors (O5): read from a query, and asked of an object.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::fault::{Fault, quote};
use crate::kinds::names;

/// One requirement on labels.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    Exists(String),
    Absent(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    GreaterThan(String, i64),
    LessThan(String, i64),
}

/// All requirements hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

/// Labels, borrowed from whatever holds them.
pub trait Labels {
    fn label(&self, key: &str) -> Option<&str>;
}

impl Labels for Value {
    /// Of a whole object.
    fn label(&self, key: &str) -> Option<&str> {
        self.get("metadata")?.get("labels")?.get(key)?.as_str()
    }
}

impl Labels for BTreeMap<String, String> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

impl LabelSelector {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn matches(&self, labels: &impl Labels) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::Exists(key) => labels.label(key).is_some(),
            Requirement::Absent(key) => labels.label(key).is_none(),
            Requirement::In(key, values) => labels.label(key).is_some_and(|value| values.iter().any(|v| v == value)),
            Requirement::NotIn(key, values) => {
                !labels.label(key).is_some_and(|value| values.iter().any(|v| v == value))
            }
            Requirement::GreaterThan(key, bound) => number(labels, key).is_some_and(|value| value > *bound),
            Requirement::LessThan(key, bound) => number(labels, key).is_some_and(|value| value < *bound),
        })
    }

    /// The query parameter `labelSelector`.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let mut reader = Reader::new(text);
        reader.selector().map(Self).map_err(Fault::bad_request)
    }

    /// A `LabelSelector` object: `matchLabels` and `matchExpressions`. `None` if it has a wrong shape; nothing selects nothing.
    #[must_use]
    pub fn from_object(selector: &Value) -> Option<Self> {
        let mut all = Vec::new();
        if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
            for (key, value) in labels {
                all.push(Requirement::In(key.clone(), vec![value.as_str()?.to_owned()]));
            }
        }
        for expression in selector
            .get("matchExpressions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let key = expression.get("key")?.as_str()?.to_owned();
            let values: Vec<String> = expression
                .get("values")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|value| value.as_str().map(str::to_owned))
                .collect();
            all.push(match expression.get("operator")?.as_str()? {
                "In" => Requirement::In(key, values),
                "NotIn" => Requirement::NotIn(key, values),
                "Exists" => Requirement::Exists(key),
                "DoesNotExist" => Requirement::Absent(key),
                _ => return None,
            });
        }
        Some(Self(all))
    }
}

fn number(labels: &impl Labels, key: &str) -> Option<i64> {
    labels.label(key)?.parse().ok()
}

/// Words and signs of a label selector.
#[derive(Debug)]
struct Reader<'a> {
    rest: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Sign(&'static str),
    End,
}

const SIGNS: &[&str] = &["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    fn peek(&self) -> Token {
        Self { rest: self.rest }.next()
    }

    fn next(&mut self) -> Token {
        self.rest = self.rest.trim_start();
        if self.rest.is_empty() {
            return Token::End;
        }
        for sign in SIGNS {
            if let Some(rest) = self.rest.strip_prefix(sign) {
                self.rest = rest;
                return Token::Sign(sign);
            }
        }
        let end = self
            .rest
            .find(|c: char| c.is_whitespace() || "=!(),<>".contains(c))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Token::Word(word.to_owned())
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut all = Vec::new();
        if self.peek() == Token::End {
            return Ok(all);
        }
        if let other @ Token::Sign(sign) = self.peek()
            && sign != "!"
        {
            return Err(format!(
                "found '{}', expected: !, identifier, or 'end of string'",
                other.text()
            ));
        }
        loop {
            let requirement = self.requirement();
            all.push(requirement.map_err(|why| format!("unable to parse requirement: {why}"))?);
            match self.next() {
                Token::End => break,
                Token::Sign(",") => match self.peek() {
                    Token::Word(_) | Token::Sign("!") => {}
                    other => return Err(format!("found '{}', expected: identifier after ','", other.text())),
                },
                other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
            }
        }
        Ok(all)
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut absent = false;
        let mut token = self.next();
        if token == Token::Sign("!") {
            absent = true;
            token = self.next();
        }
        let Token::Word(key) = token else {
            return Err(format!(
                "found '{}', expected: !, identifier, or 'end of string'",
                token.text()
            ));
        };
        check_key(&key)?;
        if absent {
            return Ok(Requirement::Absent(key));
        }
        match self.peek() {
            Token::End | Token::Sign(",") => return Ok(Requirement::Exists(key)),
            _ => {}
        }
        match self.next() {
            Token::Sign("=" | "==") => self.value(&key).map(|value| Requirement::In(key, vec![value])),
            Token::Sign("!=") => self.value(&key).map(|value| Requirement::NotIn(key, vec![value])),
            Token::Sign(">") => self.bound(&key).map(|bound| Requirement::GreaterThan(key, bound)),
            Token::Sign("<") => self.bound(&key).map(|bound| Requirement::LessThan(key, bound)),
            Token::Word(word) if word == "in" => self.values(&key).map(|values| Requirement::In(key, values)),
            Token::Word(word) if word == "notin" => self.values(&key).map(|values| Requirement::NotIn(key, values)),
            other => Err(format!(
                "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                other.text()
            )),
        }
    }

    fn value(&mut self, key: &str) -> Result<String, String> {
        match self.peek() {
            Token::End | Token::Sign(",") => Ok(String::new()),
            Token::Word(word) => {
                self.next();
                check_value(key, &word)?;
                Ok(word)
            }
            other @ Token::Sign(_) => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    fn bound(&mut self, key: &str) -> Result<i64, String> {
        let value = self.value(key)?;
        value.parse().map_err(|_| {
            format!(
                "values[0]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                quote(&value)
            )
        })
    }

    fn values(&mut self, key: &str) -> Result<Vec<String>, String> {
        if self.next() != Token::Sign("(") {
            return Err("found '', expected: '('".to_owned());
        }
        let mut values = Vec::new();
        loop {
            match self.next() {
                Token::Word(word) => {
                    check_value(key, &word)?;
                    values.push(word);
                    match self.next() {
                        Token::Sign(",") => {}
                        Token::Sign(")") => break,
                        other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
                    }
                }
                Token::Sign(",") => values.push(String::new()),
                Token::Sign(")") => {
                    values.push(String::new());
                    break;
                }
                other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
            }
        }
        Ok(values)
    }
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Sign(sign) => sign,
            Self::End => "",
        }
    }
}

fn check_key(key: &str) -> Result<(), String> {
    match names::label_key(key).first() {
        Some(why) => Err(format!("key: Invalid value: {}: {why}", quote(key))),
        None => Ok(()),
    }
}

fn check_value(key: &str, value: &str) -> Result<(), String> {
    match names::label_value(value).first() {
        Some(why) => Err(format!("values[0][{key}]: Invalid value: {}: {why}", quote(value))),
        None => Ok(()),
    }
}

/// `field=value` and `field!=value`, all of which hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<FieldRequirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldRequirement {
    field: String,
    value: String,
    equal: bool,
}

impl FieldSelector {
    /// The query parameter `fieldSelector`. Commas and backslashes in values are escaped by a backslash.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let mut all = Vec::new();
        for term in split_unescaped(text) {
            if term.is_empty() {
                continue;
            }
            let wrong = || Fault::bad_request(format!("invalid selector: '{text}'; can't understand '{term}'"));
            let at = term.find(['=', '!']).ok_or_else(wrong)?;
            let (field, rest) = term.split_at(at);
            let (equal, value) = if let Some(value) = rest.strip_prefix("!=") {
                (false, value)
            } else if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
                (true, value)
            } else {
                return Err(wrong());
            };
            all.push(FieldRequirement {
                field: field.to_owned(),
                value: unescape(value).ok_or_else(wrong)?,
                equal,
            });
        }
        Ok(Self(all))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Only the object of this name.
    pub fn require_name(&mut self, name: &str) {
        self.0.push(FieldRequirement {
            field: "metadata.name".to_owned(),
            value: name.to_owned(),
            equal: true,
        });
    }

    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|requirement| requirement.field.as_str())
    }

    /// The one name that can match, if the selector says so.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0
            .iter()
            .find(|requirement| requirement.equal && requirement.field == "metadata.name")
            .map(|requirement| requirement.value.as_str())
    }

    /// `read` gives the text of a field.
    pub fn matches(&self, mut read: impl FnMut(&str) -> String) -> bool {
        self.0
            .iter()
            .all(|requirement| (read(&requirement.field) == requirement.value) == requirement.equal)
    }
}

fn split_unescaped(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(text.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts
}

fn unescape(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next()? {
                escaped @ ('\\' | ',' | '=') => plain.push(escaped),
                _ => return None,
            },
            // An unescaped sign would be read differently by others.
            ',' | '=' => return None,
            other => plain.push(other),
        }
    }
    Some(plain)
}

/// What a stored object is selected by, read without reading the rest of it.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Head {
    #[serde(default)]
    pub(crate) metadata: HeadMeta,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct HeadMeta {
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn o5_label_selectors_select() {
        let web = labels(&[("app", "web"), ("tier", "front"), ("n", "5")]);
        for (text, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier in (front, back)", true),
            ("app!=web", false),
            ("missing!=x", true),
            ("tier notin (front)", false),
            ("missing notin (front)", true),
            ("app", true),
            ("!app", false),
            ("!missing", true),
            ("n>4,n<6", true),
            ("app=", false),
        ] {
            assert_eq!(LabelSelector::parse(text).unwrap().matches(&web), expected, "{text}");
        }
        for text in [
            "app in",
            "app in (a",
            "=x",
            "app=web,",
            "a b",
            "app=web tier",
            "-x=1",
            "a=-b-",
        ] {
            assert_eq!(LabelSelector::parse(text).unwrap_err().code, 400, "{text}");
        }
    }

    #[test]
    fn o5_field_selectors_select() {
        let read = |field: &str| match field {
            "metadata.name" => "a,b".to_owned(),
            _ => String::new(),
        };
        for (text, expected) in [
            ("metadata.name=a\\,b", true),
            ("metadata.name!=a\\,b", false),
            ("metadata.name==x", false),
            ("spec.x=", true),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap().matches(read), expected, "{text}");
        }
        assert!(FieldSelector::parse("metadata.name").is_err());
        assert!(FieldSelector::parse("a=b=c").is_err());
    }
}
