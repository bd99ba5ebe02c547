//! A variable from a file that an init container wrote to an emptyDir (fileKeyRef).
//!
//! Lines are `NAME='value'`: in single quotes, over several lines if need be, nothing escaped. A blank after `=` makes the
//! value empty, as in a shell. One malformed line before the key spoils the file, as in the reference.

use std::path::Path;

use k8s_openapi::api::core::v1::{FileKeySelector, Pod};

use super::ConfigError;

const BLANKS: [char; 2] = [' ', '\t'];

/// `None`: not there, and need not be.
pub(super) fn value(pod: &Pod, volumes: &Path, source: &FileKeySelector) -> Result<Option<String>, ConfigError> {
    let known = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    if !known.into_iter().any(|volume| volume.name == source.volume_name) {
        return Err(ConfigError::Other(format!(
            "cannot find the volume {:?} referenced by FileKeyRef",
            source.volume_name
        )));
    }
    let volume = volumes.join(&source.volume_name);
    let file = volume.join(&source.path);
    let malformed = || ConfigError::Other("couldn't parse env file".to_owned());
    let text = inside(&volume, &file)
        .and_then(|real| std::fs::read_to_string(real).ok())
        .ok_or_else(malformed)?;
    match look_up(&text, &source.key).ok_or_else(malformed)? {
        Some(value) if !value.is_empty() => Ok(Some(value)),
        _ if source.optional == Some(true) => Ok(None),
        _ => Err(ConfigError::Other(format!(
            "environment variable key {:?} not found in file {:?}",
            source.key,
            file.display().to_string()
        ))),
    }
}

/// A container may have put links into its volume; none may lead out of it.
fn inside(volume: &Path, file: &Path) -> Option<std::path::PathBuf> {
    let real = file.canonicalize().ok()?;
    real.starts_with(volume.canonicalize().ok()?).then_some(real)
}

/// The outer `None`: malformed. The inner one: no such key.
fn look_up(text: &str, key: &str) -> Option<Option<String>> {
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let line = line.trim_start_matches(BLANKS);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=')?;
        if name.is_empty() || name.ends_with(BLANKS) {
            return None;
        }
        if value.starts_with(BLANKS) {
            if name == key {
                return Some(None);
            }
            continue;
        }
        let mut rest = value.strip_prefix('\'')?;
        let mut found = String::new();
        let behind = loop {
            if let Some((inside, behind)) = rest.split_once('\'') {
                found.push_str(inside);
                break behind.trim_start_matches(BLANKS);
            }
            found.push_str(rest);
            found.push('\n');
            rest = lines.next()?;
        };
        if !behind.is_empty() && !behind.starts_with('#') {
            return None;
        }
        if name == key {
            return Some(Some(found));
        }
    }
    Some(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n6_an_env_file_is_read_as_the_reference_reads_it() {
        let found = |value: &str| Some(Some(value.to_owned()));
        let rows = [
            ("A='1'\n", found("1")),
            ("# note\n\n  A='a b' # tail\n", found("a b")),
            ("B='x\ny'\nA='\"$(B)\\n'", found("\"$(B)\\n")),
            ("A='one\ntwo'\n", found("one\ntwo")),
            ("A='1'\nA='2'\n", found("1")),
            ("A= '1'\n", Some(None)),
            ("B='1'\n", Some(None)),
            ("", Some(None)),
            ("A=1\n", None),
            ("A\n", None),
            ("='1'\n", None),
            ("A ='1'\n", None),
            ("A='1\n", None),
            ("A='1'x\n", None),
            ("bad\nA='1'\n", None),
        ];
        for (text, expected) in rows {
            assert_eq!(look_up(text, "A"), expected, "{text}");
        }
    }
}
