//! Paths to fields within a schema: `fieldPath` of rules, `selectableFields` of CRDs. Dots and, for rules, names in
//! brackets; each step must be in the schema.

use super::{Additional, Schema};
use crate::fault::Path;

/// What a path may be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notation {
    Dots,
    WithBrackets,
}

/// The path of a field and its schema, or why there is none.
pub(super) fn resolve<'s>(
    text: &str,
    schema: &'s Schema,
    notation: Notation,
) -> Result<(Path, Option<&'s Schema>), String> {
    let mut path = Path::root();
    let mut here = Some(schema);
    let mut tokens = tokens(text).into_iter();
    while let Some(token) = tokens.next() {
        let name = match token.as_str() {
            "." => tokens.next().ok_or("unexpected end of JSON path")?,
            "[" if notation == Notation::Dots => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let quoted = tokens.next().ok_or("unexpected end of JSON path")?;
                let name = quoted
                    .strip_prefix('\'')
                    .and_then(|text| text.strip_suffix('\''))
                    .filter(|_| quoted.len() >= 2)
                    .ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                let name = unescape(name)?;
                match tokens.next().as_deref() {
                    Some("]") => name,
                    Some(other) => return Err(format!("expected ] but got {other}")),
                    None => return Err("unexpected end of JSON path".to_owned()),
                }
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        let schema = here.ok_or("does not refer to a valid field")?;
        (path, here) = step(&path, schema, &name)?;
    }
    Ok((path, here))
}

fn step<'s>(path: &Path, schema: &'s Schema, name: &str) -> Result<(Path, Option<&'s Schema>), String> {
    if !schema.properties.is_empty() {
        let property = schema.properties.get(name).ok_or("does not refer to a valid field")?;
        return Ok((path.field(name), Some(property)));
    }
    match &schema.additional {
        Additional::Schema(entry) => Ok((path.key(name), Some(entry))),
        Additional::Any => Ok((path.key(name), None)),
        Additional::No => Err("does not refer to a valid field".to_owned()),
    }
}

fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = if let Some(quoted) = rest.strip_prefix('\'') {
            let mut before = '\'';
            quoted
                .char_indices()
                .find(|(_, c)| {
                    let closes = *c == '\'' && before != '\\';
                    before = *c;
                    closes
                })
                .map_or(rest.len(), |(at, _)| at + 2)
        } else if rest.starts_with(['.', '[', ']']) {
            1
        } else {
            rest.find(['.', '[', ']']).unwrap_or(rest.len())
        };
        let (token, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
        tokens.push(token.to_owned());
        rest = after;
    }
    tokens
}

fn unescape(text: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        plain.push(match rest.next() {
            Some('a') => '\x07',
            Some('b') => '\x08',
            Some('f') => '\x0c',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\x0b',
            Some(quoted @ ('\'' | '\\')) => quoted,
            other => {
                let shown = other.map_or_else(String::new, String::from);
                return Err(format!("invalid string literal: invalid escape char \\{shown}"));
            }
        });
    }
    Ok(plain)
}
