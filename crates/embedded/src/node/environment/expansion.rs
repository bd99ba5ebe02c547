//! `$(VAR)` in values, commands and arguments.
//!
//! `$(NAME)` is the variable's value, `$$` is one dollar, and whatever else follows a dollar stays as it is. A value put
//! in is not looked at again.

use std::collections::{BTreeMap, BTreeSet};

use super::ConfigError;

/// The text with its references replaced; one to a variable that is not there stays as written.
#[must_use]
pub fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    expand_with(text, |name| {
        variables.get(name).cloned().unwrap_or_else(|| format!("$({name})"))
    })
}

/// The text with its references replaced, every one of which must have a value (subPathExpr).
///
/// # Errors
/// Names the variables that are not there or empty.
pub fn expand_or_missing(text: &str, variables: &BTreeMap<String, String>) -> Result<String, ConfigError> {
    let mut missing = BTreeSet::new();
    let expanded = expand_with(text, |name| {
        let value = variables.get(name).cloned().unwrap_or_default();
        if value.is_empty() {
            missing.insert(name.to_owned());
        }
        value
    });
    if missing.is_empty() {
        Ok(expanded)
    } else {
        let names: Vec<String> = missing.into_iter().collect();
        Err(ConfigError::NoValue(names.join(", ")))
    }
}

pub(super) fn expand_with(text: &str, mut value_of: impl FnMut(&str) -> String) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(escaped) = after.strip_prefix('$') {
            out.push('$');
            rest = escaped;
        } else if let Some((name, behind)) = after.strip_prefix('(').and_then(|name| name.split_once(')')) {
            out.push_str(&value_of(name));
            rest = behind;
        } else {
            // The sign that follows belongs to the dollar: it cannot begin anything itself.
            out.push('$');
            let mut following = after.chars();
            out.extend(following.next());
            rest = following.as_str();
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn variables() -> BTreeMap<String, String> {
        [
            ("A", "a"),
            ("B", "$(A)"),
            ("EMPTY", ""),
            ("with space", "s"),
            ("$A", "odd"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    #[test]
    fn n6_references_expand_as_the_reference_expands_them() {
        let rows = [
            ("", ""),
            ("plain", "plain"),
            ("$(A)", "a"),
            ("x$(A)y$(A)", "xaya"),
            ("$(NOT)", "$(NOT)"),
            ("$(B)", "$(A)"),
            ("$(EMPTY)", ""),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$a"),
            ("$$$$(A)", "$$(A)"),
            ("$", "$"),
            ("$$", "$"),
            ("a$", "a$"),
            ("$A", "$A"),
            ("$(A", "$(A"),
            ("$($(A)", "$($(A)"),
            ("$()", "$()"),
            ("$(with space)", "s"),
            ("$x$(A)", "$xa"),
            ("é$é$(A)é", "é$éaé"),
            ("$($A)", "odd"),
        ];
        for (text, expected) in rows {
            assert_eq!(expand(text, &variables()), expected, "{text}");
        }
    }

    #[test]
    fn n5_a_sub_path_expression_needs_every_value() {
        assert_eq!(expand_or_missing("x/$(A)", &variables()).unwrap(), "x/a");
        let error = expand_or_missing("$(Z)/$(A)/$(EMPTY)/$(Z)", &variables()).unwrap_err();
        assert_eq!(error.to_string(), "missing value for EMPTY, Z");
    }

    /// The rule, written over as a table of bytes instead of as a search: what is read at each place, one by one.
    fn by_the_letter(text: &str, variables: &BTreeMap<String, String>) -> String {
        let signs: Vec<char> = text.chars().collect();
        let mut out = String::new();
        let mut at = 0;
        while at < signs.len() {
            if signs[at] != '$' || at + 1 == signs.len() {
                out.push(signs[at]);
                at += 1;
                continue;
            }
            match signs[at + 1] {
                '$' => {
                    out.push('$');
                    at += 2;
                }
                '(' => match signs[at..].iter().position(|sign| *sign == ')') {
                    Some(end) => {
                        let name: String = signs[at + 2..at + end].iter().collect();
                        match variables.get(&name) {
                            Some(value) => out.push_str(value),
                            None => out.push_str(&format!("$({name})")),
                        }
                        at += end + 1;
                    }
                    None => {
                        out.push_str("$(");
                        at += 2;
                    }
                },
                other => {
                    out.push('$');
                    out.push(other);
                    at += 2;
                }
            }
        }
        out
    }

    proptest! {
        #[test]
        fn n6_any_text_expands_by_the_letter_of_the_rule(text in "[$()ABé ]{0,24}") {
            prop_assert_eq!(expand(&text, &variables()), by_the_letter(&text, &variables()));
        }

        #[test]
        fn n6_a_text_with_its_dollars_doubled_comes_back_unchanged(text in "\\PC{0,24}") {
            prop_assert_eq!(expand(&text.replace('$', "$$"), &variables()), text);
        }
    }
}
