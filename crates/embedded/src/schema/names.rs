//! What names may be, with the reference's words for those that may not.

fn is_label(text: &str, first: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    bytes.first().is_some_and(|b| first(*b))
        && bytes.last().is_some_and(|b| inner(*b))
        && bytes.iter().all(|b| inner(*b) || *b == b'-')
}

/// Why a text is no DNS-1035 label.
pub(super) fn dns1035(text: &str) -> Option<String> {
    let mut why = Vec::new();
    if text.len() > 63 {
        why.push("must be no more than 63 bytes");
    }
    if !is_label(text, |b| b.is_ascii_lowercase()) {
        why.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
             validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        );
    }
    (!why.is_empty()).then(|| why.join(","))
}

/// Why a text is no DNS-1123 subdomain.
pub(super) fn dns1123_subdomain(text: &str) -> Vec<String> {
    let mut why = Vec::new();
    if text.len() > 253 {
        why.push("must be no more than 253 bytes".to_owned());
    }
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    if !text.split('.').all(|label| is_label(label, inner)) {
        why.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    why
}
