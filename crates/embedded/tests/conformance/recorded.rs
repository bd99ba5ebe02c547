//! The reference's answers as files (F3): `recorded/<area>/<case>.answers`, and its version in `recorded/VERSION`.

use std::path::{Path, PathBuf};

use crate::case::{self, Case};
use crate::run::Answer;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}

/// All cases by name. A case that cannot be read fails the program.
pub fn cases() -> Vec<Case> {
    let cases = folder().join("cases");
    let mut read: Vec<Case> = files(&cases, "case")
        .into_iter()
        .map(|name| {
            let text = std::fs::read_to_string(cases.join(format!("{name}.case"))).unwrap();
            case::parse(&name, &text).unwrap_or_else(|error| panic!("{error}"))
        })
        .collect();
    read.sort_by(|a, b| a.name.cmp(&b.name));
    read
}

/// Names of answers that belong to no case any more.
pub fn orphans(cases: &[Case]) -> Vec<String> {
    let mut names = files(&folder().join("recorded"), "answers");
    names.retain(|name| !cases.iter().any(|case| case.name == *name));
    names
}

/// `area/name` of each file with this ending.
fn files(folder: &Path, ending: &str) -> Vec<String> {
    let entries = |path: &Path| -> Vec<PathBuf> {
        let entries = path.read_dir().into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let areas = entries(folder).into_iter().filter(|path| path.is_dir());
    let files = areas
        .flat_map(|area| entries(&area))
        .filter(|file| file.extension().is_some_and(|e| e == ending));
    let names = files.map(|file| {
        let name = file.with_extension("");
        name.strip_prefix(folder).unwrap().to_str().unwrap().to_owned()
    });
    names.collect()
}

fn file(case: &str) -> PathBuf {
    folder().join("recorded").join(format!("{case}.answers"))
}

pub fn read(case: &str) -> Option<Vec<Answer>> {
    std::fs::read_to_string(file(case)).ok().map(|text| parse(&text))
}

/// Whether anything changed.
pub fn write(case: &str, answers: &[Answer]) -> bool {
    let text = format(answers);
    let file = file(case);
    if std::fs::read_to_string(&file).is_ok_and(|before| before == text) {
        return false;
    }
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, text).unwrap();
    true
}

pub fn remove(case: &str) {
    std::fs::remove_file(file(case)).unwrap();
}

pub fn write_version(version: &str) {
    std::fs::write(folder().join("recorded/VERSION"), format!("{version}\n")).unwrap();
}

pub fn version() -> String {
    let text = std::fs::read_to_string(folder().join("recorded/VERSION")).unwrap_or_default();
    text.trim().to_owned()
}

pub fn differences() -> String {
    std::fs::read_to_string(folder().join("differences.toml")).unwrap()
}

fn format(answers: &[Answer]) -> String {
    let step = |(index, answer): (usize, &Answer)| format!("== {} {}\n{}", index + 1, answer.title, answer.text);
    answers.iter().enumerate().map(step).collect::<Vec<_>>().join("\n")
}

fn parse(text: &str) -> Vec<Answer> {
    let mut answers: Vec<Answer> = Vec::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("== ") {
            let title = head.split_once(' ').map_or(head, |(_, title)| title);
            // The empty line before a head only parts the steps.
            if let Some(before) = answers.last_mut() {
                before.text.truncate(before.text.len().saturating_sub(1));
            }
            answers.push(Answer {
                title: title.to_owned(),
                text: String::new(),
            });
        } else if let Some(answer) = answers.last_mut() {
            answer.text.push_str(line);
            answer.text.push('\n');
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let answer = |title: &str, text: &str| Answer {
            title: title.into(),
            text: text.into(),
        };
        let answers = [
            answer("GET /a", "200\na: 1\n"),
            answer("CLOSE w", ""),
            answer("GET /b", "404\n| no\n"),
        ];
        assert_eq!(parse(&format(&answers)), answers);
    }
}
