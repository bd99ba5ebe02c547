//! Names of properties as CEL can write them.

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The identifier of a property: `a-b` is `a__dash__b`, `namespace` is `__namespace__`. `None`: it has none.
pub(crate) fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '_' if rest.next_if_eq(&'_').is_some() => escaped.push_str("__underscores__"),
            '.' => escaped.push_str("__dot__"),
            '-' => escaped.push_str("__dash__"),
            '/' => escaped.push_str("__slash__"),
            c if c.is_ascii_alphanumeric() || c == '_' => escaped.push(c),
            _ => return None,
        }
    }
    Some(escaped)
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn d4_names_are_escaped_as_cel_wants_them() {
        for (name, escaped) in [
            ("replicas", Some("replicas")),
            ("max-size", Some("max__dash__size")),
            ("a.b/c", Some("a__dot__b__slash__c")),
            ("namespace", Some("__namespace__")),
            ("a_b", Some("a_b")),
            ("a__b", Some("a__underscores__b")),
            ("1st", None),
            ("a$", None),
        ] {
            assert_eq!(escape(name).as_deref(), escaped, "{name}");
        }
    }
}
