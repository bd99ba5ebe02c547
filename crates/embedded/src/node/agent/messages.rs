//! What a container leaves to say at its end (N11): its termination message file, or, if it asks for that and failed
//! without writing one, the last lines of its log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use k8s_openapi::api::core::v1::Container;

use super::folder::PodFolder;
use crate::node::logs;
use crate::node::supervisor::protocol::{Attempt, Phase};

/// The reference's numbers: of a file, and of a log.
const MOST_BYTES: u64 = 4_096;
const MOST_LOG_BYTES: usize = 2_048;
const MOST_LOG_LINES: usize = 80;
/// The end of a log file that is enough for the last lines.
const LOG_TAIL: u64 = 64 * 1024;

/// Reads what ended attempts left and is not known yet. Only the last two are ever shown.
pub(super) fn read(
    folder: &PodFolder,
    container: Option<&Container>,
    name: &str,
    attempts: &BTreeMap<u32, Attempt>,
    known: &mut BTreeMap<(String, u32), String>,
) {
    for (number, attempt) in attempts.iter().rev().take(2) {
        let key = (name.to_owned(), *number);
        let Phase::Exited { code, .. } = attempt.phase else {
            continue;
        };
        if known.contains_key(&key) {
            continue;
        }
        let mut message = beginning(&folder.message(name, *number));
        let wants_log = container.and_then(|container| container.termination_message_policy.as_deref())
            == Some("FallbackToLogsOnError");
        if message.is_empty() && code != 0 && wants_log {
            message = last_lines(&logs::file(&folder.logs(name), *number));
        }
        known.insert(key, message);
    }
}

fn beginning(file: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(file) {
        // What cannot be read was not said.
        let _ = file.take(MOST_BYTES).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn last_lines(file: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(mut file) = File::open(file) {
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL)));
        let _ = file.take(LOG_TAIL).read_to_end(&mut bytes);
    }
    let mut text: Vec<u8> = Vec::new();
    let mut starts = vec![0];
    for line in bytes.split(|byte| *byte == b'\n') {
        // `time stream P|F text`
        let mut words = line.splitn(4, |byte| *byte == b' ');
        let (Some(_), Some(_), Some(mark), Some(said)) = (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        text.extend_from_slice(said);
        if mark.first() == Some(&b'F') {
            text.push(b'\n');
            starts.push(text.len());
        }
    }
    starts.pop();
    let from = starts.len().saturating_sub(MOST_LOG_LINES);
    let from = starts.get(from).copied().unwrap_or(0);
    let from = from.max(text.len().saturating_sub(MOST_LOG_BYTES));
    String::from_utf8_lossy(text.get(from..).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n11_the_last_eighty_lines_of_a_log_are_said() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("0.log");
        let mut text = String::new();
        for number in 0..100 {
            text.push_str(&format!("2026-11-16T10:00:00Z stdout F line {number}\n"));
        }
        text.push_str("2026-11-16T10:00:00Z stderr P half ");
        text.push_str("\n2026-11-16T10:00:00Z stderr F a line\n");
        std::fs::write(&file, text).unwrap();
        let said = last_lines(&file);
        assert!(said.starts_with("line 21\n"), "{said}");
        assert!(said.ends_with("line 99\nhalf a line\n"), "{said}");
        assert_eq!(last_lines(&folder.path().join("none")), "");
    }
}
