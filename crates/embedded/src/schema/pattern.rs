//! `pattern` as the reference reads it: Go's regular expressions, run by ours.
//!
//! Both are finite automata with almost one syntax. Where they differ, the text is rewritten before it is compiled: Go's
//! `\d \w \s` are ASCII, `\<` and a `{` that counts nothing stand for themselves, `[` within a class too.

use std::sync::{Arc, OnceLock};

use regex::{Regex, RegexBuilder};

/// A pattern, compiled at its first use and then kept.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: Arc<str>,
    compiled: OnceLock<Result<Regex, Arc<str>>>,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl From<&str> for Pattern {
    fn from(text: &str) -> Self {
        Self::new(Arc::from(text))
    }
}

impl Pattern {
    #[must_use]
    pub fn new(text: Arc<str>) -> Self {
        Self {
            text,
            compiled: OnceLock::new(),
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The compiled pattern, or why it is none.
    pub fn regex(&self) -> Result<&Regex, &str> {
        self.compiled
            .get_or_init(|| compile(&self.text))
            .as_ref()
            .map_err(|error| &**error)
    }
}

/// Room for what Go accepts (counts up to 1,000) without letting one schema take the machine's memory.
const SIZE_LIMIT_BYTES: usize = 16 << 20;

fn compile(text: &str) -> Result<Regex, Arc<str>> {
    let go_error = |what: &str| Arc::from(format!("error parsing regexp: {what}"));
    let rewritten = rewrite(text).map_err(|what| go_error(&what))?;
    RegexBuilder::new(&rewritten)
        .size_limit(SIZE_LIMIT_BYTES)
        .build()
        .map_err(|error| go_error(&complaint(text, &error)))
}

/// Go's words for the commonest mistakes; others keep ours.
fn complaint(text: &str, error: &regex::Error) -> String {
    let ours = error.to_string();
    let has = |part: &str| ours.contains(part);
    if has("unclosed character class") {
        let from = text.find('[').and_then(|at| text.get(at..)).unwrap_or(text);
        format!("missing closing ]: `{from}`")
    } else if has("unclosed group") {
        format!("missing closing ): `{text}`")
    } else if has("unopened group") {
        format!("unexpected ): `{text}`")
    } else if has("repetition operator missing expression") {
        let operator = text
            .chars()
            .find(|c| "*+?".contains(*c))
            .map_or_else(String::new, String::from);
        format!("missing argument to repetition operator: `{operator}`")
    } else if has("look-around") {
        let at = ["(?=", "(?!", "(?<=", "(?<!"]
            .into_iter()
            .find(|look| text.contains(look))
            .unwrap_or("(?=");
        let shown = at.get(..3).unwrap_or(at);
        let shown = if at.starts_with("(?<") { at } else { shown };
        format!("invalid or unsupported Perl syntax: `{shown}`")
    } else {
        ours.lines()
            .last()
            .unwrap_or_default()
            .trim_start_matches("error: ")
            .to_owned()
    }
}

fn rewrite(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text.chars().peekable();
    let mut class_depth = 0usize;
    // The first `]` of a class stands for itself.
    let mut class_start = false;
    while let Some(c) = rest.next() {
        let in_class = class_depth > 0;
        let at_start = std::mem::take(&mut class_start);
        match c {
            '\\' => match rest.next() {
                None => return Err("trailing backslash at end of expression: ``".to_owned()),
                Some('d') => out.push_str(if in_class { "0-9" } else { "[0-9]" }),
                Some('w') => out.push_str(if in_class { "0-9A-Za-z_" } else { "[0-9A-Za-z_]" }),
                Some('s') => out.push_str(if in_class {
                    "\\t\\n\\x0C\\r "
                } else {
                    "[\\t\\n\\x0C\\r ]"
                }),
                Some('D') => out.push_str("[^0-9]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('S') => out.push_str("[^\\t\\n\\x0C\\r ]"),
                Some('b') if !in_class => out.push_str("(?-u:\\b)"),
                Some(angle @ ('<' | '>')) => out.push(angle),
                Some('Q') if !in_class => {
                    let mut quoted = String::new();
                    while let Some(c) = rest.next() {
                        if c == '\\' && rest.peek() == Some(&'E') {
                            rest.next();
                            break;
                        }
                        quoted.push(c);
                    }
                    out.push_str(&regex::escape(&quoted));
                }
                Some(other) => {
                    out.push('\\');
                    out.push(other);
                }
            },
            '[' if in_class => {
                if rest.peek() == Some(&':') {
                    // A class by name, `[:alpha:]`: copied whole.
                    out.push('[');
                    for c in rest.by_ref() {
                        out.push(c);
                        if c == ']' {
                            break;
                        }
                    }
                } else {
                    out.push_str("\\[");
                }
            }
            '[' => {
                out.push('[');
                class_depth = 1;
                class_start = true;
                if rest.peek() == Some(&'^') {
                    rest.next();
                    out.push('^');
                }
            }
            ']' if in_class && at_start => out.push_str("\\]"),
            ']' if in_class => {
                out.push(']');
                class_depth = 0;
            }
            // Set operations of our syntax, plain characters in Go's.
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '-' if in_class && rest.peek() == Some(&'-') => out.push_str("\\-"),
            '{' if !in_class => {
                let count: String = rest.clone().take_while(|c| *c != '}').take(12).collect();
                let closed = rest.clone().nth(count.chars().count()) == Some('}');
                let (least, most) = count.split_once(',').unwrap_or((&count, ""));
                let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
                if closed && !least.is_empty() && digits(least) && digits(most) {
                    let too_many = |text: &str| text.parse::<u32>().is_ok_and(|count| count > 1000);
                    if too_many(least) || too_many(most) {
                        return Err(format!("invalid repeat count: `{{{count}}}`"));
                    }
                    out.push('{');
                } else {
                    out.push_str("\\{");
                }
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::from(pattern).regex().unwrap().is_match(text)
    }

    #[test]
    fn d3_patterns_mean_what_they_mean_in_go() {
        assert!(matches(r"^\d+$", "12"));
        assert!(!matches(r"^\d+$", "१"), "digits are ASCII");
        assert!(matches(r"^\<a\>$", "<a>"));
        assert!(matches(r"^{a}$", "{a}"));
        assert!(matches(r"^[[a]+$", "[a"));
        assert!(matches(r"^[]a]+$", "]a"));
        assert!(matches(r"^[a&&b]+$", "&"));
        assert!(matches(r"^[[:alpha:]-]+$", "a-"));
        assert!(matches(r"^\Qa.b\E$", "a.b") && !matches(r"^\Qa.b\E$", "axb"));
        assert!(matches(r"^[^\d]+$", "x") && !matches(r"^[^\d]+$", "1"));
        assert!(matches("a{2,3}", "aa"));
        assert!(Pattern::from("a{1001}").regex().is_err());
        assert!(Pattern::from("(").regex().is_err());
        assert!(Pattern::from("(?=a)").regex().is_err());
    }
}
