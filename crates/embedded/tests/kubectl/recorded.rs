//! Scenarios and transcripts as files: `scenarios/<name>.scenario`, `recorded/<kubectl's version>/<name>.txt`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::diff;
use crate::program::Kubectl;
use crate::scenario::{self, Scenario};

/// Each step as it was typed, and what came of it.
pub type Transcript = Vec<(String, String)>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubectl")
}

fn stems(folder: &Path, ending: &str) -> BTreeSet<String> {
    let files = folder
        .read_dir()
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    let files = files.filter(|file| file.extension().is_some_and(|e| e == ending));
    files
        .map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect()
}

/// All scenarios by name. One that cannot be read fails the program.
pub fn scenarios() -> Vec<Scenario> {
    let folder = folder().join("scenarios");
    let read = |name: String| {
        let text = std::fs::read_to_string(folder.join(format!("{name}.scenario"))).unwrap();
        scenario::parse(&name, &text).unwrap_or_else(|error| panic!("{error}"))
    };
    stems(&folder, "scenario").into_iter().map(read).collect()
}

pub fn differences() -> String {
    std::fs::read_to_string(folder().join("differences.toml")).unwrap_or_default()
}

/// Of kubectl.
pub fn versions() -> BTreeSet<String> {
    let folders = folder().join("recorded").read_dir().into_iter().flatten();
    folders
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

pub fn names(version: &str) -> BTreeSet<String> {
    stems(&folder().join("recorded").join(version), "txt")
}

fn file(kubectl: &Kubectl, scenario: &Scenario) -> PathBuf {
    folder()
        .join("recorded")
        .join(&kubectl.version)
        .join(format!("{}.txt", scenario.name))
}

/// Whether anything changed.
pub fn write(kubectl: &Kubectl, scenario: &Scenario, transcript: &Transcript) -> bool {
    let steps = transcript.iter().map(|(title, text)| format!("{title}\n{text}"));
    let text = steps.collect::<Vec<String>>().join("\n");
    let file = file(kubectl, scenario);
    if std::fs::read_to_string(&file).is_ok_and(|before| before == text) {
        return false;
    }
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, text).unwrap();
    true
}

/// Takes away the transcript of a scenario that is none any more.
pub fn remove(version: &str, name: &str) {
    std::fs::remove_file(folder().join("recorded").join(version).join(format!("{name}.txt"))).unwrap();
}

/// Steps, counted from 1, whose transcript is not the recorded one, each with what differs.
pub fn compare(kubectl: &Kubectl, scenario: &Scenario, came: &Transcript) -> Vec<(usize, String)> {
    let Ok(text) = std::fs::read_to_string(file(kubectl, scenario)) else {
        return vec![(1, "    nothing is recorded: TRANSCRIPTS_RECORD=1\n".into())];
    };
    let titles: Vec<&str> = came.iter().map(|(title, _)| title.as_str()).collect();
    let Some(recorded) = split(&text, &titles) else {
        return vec![(1, "    the scenario has changed: TRANSCRIPTS_RECORD=1\n".into())];
    };
    let diffs = recorded
        .iter()
        .zip(came)
        .map(|(recorded, (_, came))| diff::diff(recorded, came));
    let steps = diffs.enumerate().map(|(index, diff)| (index + 1, diff));
    steps.filter(|(_, diff)| !diff.is_empty()).collect()
}

/// What stands under each title; nothing if they are not all there, in this order.
fn split(text: &str, titles: &[&str]) -> Option<Vec<String>> {
    let mut below: Vec<String> = Vec::new();
    for line in text.lines() {
        if titles.get(below.len()) == Some(&line) {
            below.push(String::new());
        } else {
            *below.last_mut()? += &format!("{line}\n");
        }
    }
    let last = below.len().checked_sub(1)?;
    for text in below.iter_mut().take(last) {
        // The line between two steps.
        *text = text.strip_suffix('\n')?.to_owned();
    }
    (below.len() == titles.len()).then_some(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transcript_is_told_apart_by_what_was_typed() {
        let text = "$ a\nsaid\n\n$ b\n\n$ c\nall\n\nsaid\n";
        assert_eq!(
            split(text, &["$ a", "$ b", "$ c"]).unwrap(),
            ["said\n", "", "all\n\nsaid\n"]
        );
        let shorter = split(text, &["$ a", "$ c"]).unwrap();
        assert_eq!(
            shorter[0], "said\n\n$ b\n",
            "a step that is gone is no part of what was said"
        );
        assert_eq!(split(text, &["$ a", "$ b", "$ c", "$ d"]), None, "a step is new");
    }
}
