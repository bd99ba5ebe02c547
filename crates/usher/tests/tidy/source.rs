//! Rust as text: comments, strings and tests told from code, without a parser.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::workspace::ROOT;

/// A Rust file, and what is left of it without comments, without strings, without tests. Blanks keep all in its place.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// Without comments.
    pub(crate) uncommented: String,
    /// Without comments and strings.
    pub(crate) code: String,
    /// The same, without what is `#[cfg(test)]`.
    pub(crate) production: String,
    /// Below `tests`, or a module that only tests have.
    pub(crate) only_tests: bool,
}

impl Source {
    pub(crate) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let code = blank(&text, true);
        let mut production = code.clone().into_bytes();
        for part in test_parts(&code) {
            blank_bytes(&mut production[part]);
        }
        Self {
            path: path.to_path_buf(),
            uncommented: blank(&text, false),
            production: String::from_utf8(production).unwrap(),
            code,
            text,
            only_tests: false,
        }
    }

    /// Its path in the repository.
    pub(crate) fn shown(&self) -> String {
        self.path.strip_prefix(&*ROOT).unwrap().display().to_string()
    }

    /// Path and line of a byte.
    pub(crate) fn at(&self, offset: usize) -> String {
        let before = &self.text.as_bytes()[..offset];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("{}:{line}", self.shown())
    }

    /// Where production code has this word or path as a whole.
    pub(crate) fn uses(&self, word: &str) -> impl Iterator<Item = usize> {
        let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let found = self.production.match_indices(word);
        found.map(|(at, _)| at).filter(move |at| {
            let (before, after) = (&self.production[..*at], &self.production[at + word.len()..]);
            !is_part(before.chars().next_back()) && !is_part(after.chars().next())
        })
    }

    /// Files of the modules declared in the test parts of this file; in all of it, if it is a test's itself.
    pub(crate) fn test_modules(&self) -> Vec<PathBuf> {
        let folder = self.path.parent().unwrap();
        let stem = self.path.file_stem().unwrap().to_str().unwrap();
        let inside = match stem {
            "mod" | "lib" | "main" => folder.to_path_buf(),
            _ => folder.join(stem),
        };
        let mut parts = test_parts(&self.code);
        if self.only_tests {
            parts.push(0..self.text.len());
        }
        let mut files = Vec::new();
        for part in parts {
            // The path of a module is a string, so it is looked for where strings are.
            let text = &self.uncommented[part.clone()];
            for (at, found) in text.match_indices("#[path = \"") {
                let name = text[at + found.len()..].split('"').next();
                files.push(folder.join(name.unwrap_or_default()));
            }
            let code = &self.code[part];
            for (at, found) in code.match_indices("mod ") {
                let name = word_at(code, at + found.len());
                if code[at + found.len() + name.len()..].starts_with(';') {
                    files.push(inside.join(format!("{name}.rs")));
                    files.push(inside.join(name).join("mod.rs"));
                }
            }
        }
        files
    }
}

pub(crate) fn word_at(text: &str, at: usize) -> &str {
    let rest = &text[at..];
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    &rest[..end.unwrap_or(rest.len())]
}

/// `#[cfg(test)]` with the item that follows, up to its `;` or closing brace.
fn test_parts(code: &str) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    for (start, _) in code.match_indices("#[cfg(test)]") {
        if parts.last().is_some_and(|part| part.contains(&start)) {
            continue;
        }
        let (mut depth, mut end) = (0_usize, code.len());
        for (offset, c) in code[start..].char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && matches!(c, '}' | ';') {
                end = start + offset + 1;
                break;
            }
        }
        parts.push(start..end);
    }
    parts
}

fn blank_bytes(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

/// The text with comments, and if asked strings, as blanks. Knows nested comments, raw strings, and that `'a` may be a
/// lifetime. Byte offsets stay as they are.
fn blank(text: &str, strings_too: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let in_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        let (length, blanked) = match rest {
            [b'/', b'/', ..] => (rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()), true),
            [b'/', b'*', ..] => (block_comment(rest), true),
            [b'"', ..] => (quoted(rest), strings_too),
            [b'r', ..] if !in_word && raw_string(rest) > 0 => (raw_string(rest), strings_too),
            [b'\'', ..] => (character(rest), strings_too && character(rest) > 1),
            _ => (1, false),
        };
        if blanked {
            blank_bytes(&mut out[at..at + length]);
        }
        at += length;
    }
    String::from_utf8(out).expect("whole comments and strings are blanked, never half a character")
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn quoted(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// Length of the raw string that begins here; 0 if none does.
fn raw_string(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|b| **b == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let mut end = vec![b'"'];
    end.resize(1 + hashes, b'#');
    let body = &rest[hashes + 2..];
    let length = body.windows(end.len()).position(|window| window == end);
    length.map_or(rest.len(), |length| hashes + 2 + length + end.len())
}

/// `'x'`, `'\n'`, `'ä'` as a whole; of a lifetime only the quote.
fn character(rest: &[u8]) -> usize {
    let end = |from: usize| rest.iter().skip(from).take(10).position(|b| *b == b'\'');
    match rest {
        [_, b'\\', ..] => end(3).map_or(1, |end| end + 4),
        [_, first, ..] if first.is_ascii() => 1 + 2 * usize::from(rest.get(2) == Some(&b'\'')),
        _ => end(1).map_or(1, |end| end + 2),
    }
}

#[test]
fn comments_strings_and_tests_are_told_from_code() {
    let text = "let a = \"// no\"; // yes\nlet b = 'ä'; let c: &'a str = r#\"\"/*\"#; /* /* */ */ d('\\'', '\"', '{');";
    let uncommented = blank(text, false);
    assert_eq!(uncommented.len(), text.len());
    assert!(uncommented.contains("\"// no\"") && !uncommented.contains("yes"));
    let code = blank(text, true);
    assert!(
        code.contains("&'a str") && code.contains("d(") && code.ends_with(");"),
        "{code}"
    );
    assert!(
        !code.contains("no") && !code.contains('{') && !code.contains("/*"),
        "{code}"
    );
    let parts = test_parts("a();\n#[cfg(test)]\nmod x;\nb();\n#[cfg(test)]\nmod y { fn z() { {} } }\nc();");
    assert_eq!(parts, [5..24, 30..66]);
}
