//! What names, keys and values may be, with the sentences that say why not. Each check gives one sentence for each thing
//! that is wrong, and none when all is well.

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_WORDS: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// A sentence with its examples and the pattern it stands for.
#[must_use]
pub fn pattern_error(words: &str, examples: &[&str], pattern: &str) -> String {
    if examples.is_empty() {
        return format!("{words} (regex used for validation is '{pattern}')");
    }
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!(
        "{words} (e.g. {}regex used for validation is '{pattern}')",
        examples.join(" or ")
    )
}

#[must_use]
pub fn too_long(most: usize) -> String {
    format!("must be no more than {most} characters")
}

#[must_use]
pub fn between(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn has_label_shape(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().copied().is_some_and(is_lower)
        && bytes.last().copied().is_some_and(is_lower)
        && bytes.iter().all(|&byte| is_lower(byte) || byte == b'-')
}

fn has_subdomain_shape(text: &str) -> bool {
    text.split('.').all(has_label_shape)
}

#[must_use]
pub fn dns_label(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 63 {
        wrong.push(too_long(63));
    }
    if !has_label_shape(text) {
        if has_subdomain_shape(text) {
            wrong.push("must not contain dots".to_owned());
        } else {
            wrong.push(pattern_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character",
                &["my-name", "123-abc"],
                LABEL,
            ));
        }
    }
    wrong
}

#[must_use]
pub fn dns_subdomain(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 253 {
        wrong.push(too_long(253));
    }
    if !has_subdomain_shape(text) {
        wrong.push(pattern_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            &["example.com"],
            SUBDOMAIN,
        ));
    }
    wrong
}

#[must_use]
pub fn dns_1035(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 63 {
        wrong.push(too_long(63));
    }
    if !(has_label_shape(text) && text.as_bytes().first().is_some_and(u8::is_ascii_lowercase)) {
        wrong.push(pattern_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            &["my-name", "abc-123"],
            "[a-z]([-a-z0-9]*[a-z0-9])?",
        ));
    }
    wrong
}

/// What can stand between two slashes of a URL.
#[must_use]
pub fn path_segment(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    // S8: the reference has no limit here, but a name must fit in a path.
    if text.len() > 253 {
        return vec!["must be no more than 253 characters".to_owned()];
    }
    // The reference takes the last one, but no path can name it here.
    let contained = ["/", "%", "\0"].into_iter().filter(|part| text.contains(part));
    contained
        .map(|part| format!("may not contain '{}'", part.escape_default()))
        .collect()
}

fn has_qualified_shape(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// A label's key: a name with an optional domain before it.
#[must_use]
pub fn label_key(text: &str) -> Vec<String> {
    let words = || pattern_error(QUALIFIED_WORDS, &["MyName", "my.name", "123-abc"], QUALIFIED);
    let mut wrong = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                words()
            )];
        }
        Some(("", name)) => {
            wrong.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            wrong.extend(
                dns_subdomain(prefix)
                    .into_iter()
                    .map(|words| format!("prefix part {words}")),
            );
            name
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        wrong.push(format!("name part {}", too_long(63)));
    }
    if !has_qualified_shape(name) {
        wrong.push(format!("name part {}", words()));
    }
    wrong
}

#[must_use]
pub fn label_value(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 63 {
        wrong.push(too_long(63));
    }
    if !text.is_empty() && !has_qualified_shape(text) {
        wrong.push(pattern_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            &["MyValue", "my_value", "12345"],
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
        ));
    }
    wrong
}

/// A key of a ConfigMap or Secret.
#[must_use]
pub fn config_key(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 253 {
        wrong.push(too_long(253));
    }
    if text.is_empty()
        || !text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    {
        wrong.push(pattern_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            &["key.name", "KEY_NAME", "key-name"],
            "[-._a-zA-Z0-9]+",
        ));
    }
    if text == "." || text == ".." {
        wrong.push(format!("must not be '{text}'"));
    } else if text.starts_with("..") {
        wrong.push("must not start with '..'".to_owned());
    }
    wrong
}

#[must_use]
pub fn environment_name(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.is_empty() {
        wrong.push("environment variable name must be non-empty".to_owned());
    }
    if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=') {
        wrong.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .to_owned(),
        );
    }
    wrong
}

#[must_use]
pub fn port_number(port: i64) -> Vec<String> {
    in_range(port, 1, 65_535)
}

#[must_use]
pub fn in_range(value: i64, low: i64, high: i64) -> Vec<String> {
    if (low..=high).contains(&value) {
        Vec::new()
    } else {
        vec![between(low, high)]
    }
}

/// The name of a port, which IANA calls a service name.
#[must_use]
pub fn port_name(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 15 {
        wrong.push(too_long(15));
    }
    if text.is_empty() || !text.bytes().all(|byte| is_lower(byte) || byte == b'-') {
        wrong.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        wrong.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        wrong.push("must not begin or end with a hyphen".to_owned());
    }
    wrong
}

#[must_use]
pub fn percent(text: &str) -> Vec<String> {
    let digits = text.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Vec::new();
    }
    vec![pattern_error(
        "a valid percent string must be a numeric string followed by an ending '%'",
        &["1%", "93%"],
        "[0-9]+%",
    )]
}

#[must_use]
pub fn http_header(text: &str) -> Vec<String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Vec::new();
    }
    vec![pattern_error(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        &["X-Header-Name"],
        "[-A-Za-z0-9]+",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o6_names_are_told_apart_by_their_rules() {
        assert!(dns_label("a-1").is_empty() && dns_subdomain("a.b-1").is_empty() && dns_1035("a1").is_empty());
        assert_eq!(dns_label("a.b"), ["must not contain dots"]);
        assert_eq!(dns_1035("1a").len(), 1);
        assert_eq!(dns_subdomain("A b").len(), 1);
        assert_eq!(dns_subdomain(&"a".repeat(254)), ["must be no more than 253 characters"]);
        assert_eq!(path_segment("a/b%"), ["may not contain '/'", "may not contain '%'"]);
        assert!(path_segment("system:node").is_empty());
        assert!(
            dns_subdomain("A").first().unwrap().ends_with(
                r"(e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            )
        );
    }

    #[test]
    fn o20_label_keys_and_values_are_told_what_is_wrong() {
        assert!(label_key("example.com/MyName").is_empty());
        assert_eq!(label_key("/a"), ["prefix part must be non-empty"]);
        assert_eq!(label_key("").len(), 2);
        assert_eq!(label_key("a/b/c").len(), 1);
        assert!(label_value("").is_empty() && label_value("a_B.c").is_empty());
        assert_eq!(label_value("-a").len(), 1);
        assert_eq!(port_name("a--b-").len(), 2);
        assert!(config_key("..a").contains(&"must not start with '..'".to_owned()));
    }
}
