//! What changed between two values, as text: lines of indented JSON with `-` and `+`, three lines of context around each
//! change. The reference shows its internal types in this way; we show what the user wrote.

use serde_json::Value;

const CONTEXT: usize = 3;
/// Comparing is quadratic; beyond this many lines only the sizes are told.
const MOST_LINES: usize = 2000;

/// Empty when nothing changed.
pub(super) fn of(old: &Value, new: &Value) -> String {
    of_lines(&pretty(old), &pretty(new))
}

/// The same for two texts.
pub(super) fn of_lines(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    // Equal ends cost nothing.
    let head = old.iter().zip(&new).take_while(|(one, other)| one == other).count();
    let tail = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take(old.len().min(new.len()) - head)
        .take_while(|(one, other)| one == other)
        .count();
    let middle = |lines: &[&str]| lines.len().saturating_sub(head + tail);
    if middle(&old).max(middle(&new)) > MOST_LINES {
        return format!("{} lines became {} lines\n", old.len(), new.len());
    }
    hunks(&edits(&old, &new, head, tail))
}

/// JSON with one space of indent.
pub(super) fn pretty(value: &Value) -> String {
    let mut text = Vec::new();
    let mut serializer =
        serde_json::Serializer::with_formatter(&mut text, serde_json::ser::PrettyFormatter::with_indent(b" "));
    // Writing a value to memory cannot fail.
    let _ = serde::Serialize::serialize(value, &mut serializer);
    String::from_utf8(text).unwrap_or_default()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edit<'a> {
    Keep(&'a str),
    Remove(&'a str),
    Add(&'a str),
}

/// The longest common lines stay; the rest is removed or added.
fn edits<'a>(old: &[&'a str], new: &[&'a str], head: usize, tail: usize) -> Vec<Edit<'a>> {
    let take = |lines: &[&'a str]| -> Vec<&'a str> {
        let count = lines.len().saturating_sub(head + tail);
        lines.iter().skip(head).take(count).copied().collect()
    };
    let (a, b) = (take(old), take(new));
    // common[i][j]: how many lines a[i..] and b[j..] have in common, in order.
    let mut common = vec![vec![0u32; b.len() + 1]; a.len() + 1];
    let cell = |common: &[Vec<u32>], i: usize, j: usize| common.get(i).and_then(|row| row.get(j)).copied().unwrap_or(0);
    for (i, one) in a.iter().enumerate().rev() {
        for (j, other) in b.iter().enumerate().rev() {
            let best = if one == other {
                cell(&common, i + 1, j + 1) + 1
            } else {
                cell(&common, i + 1, j).max(cell(&common, i, j + 1))
            };
            if let Some(slot) = common.get_mut(i).and_then(|row| row.get_mut(j)) {
                *slot = best;
            }
        }
    }
    let mut result: Vec<Edit<'a>> = old.iter().take(head).map(|line| Edit::Keep(line)).collect();
    let (mut i, mut j) = (0, 0);
    loop {
        match (a.get(i), b.get(j)) {
            (Some(one), Some(other)) if one == other => {
                result.push(Edit::Keep(one));
                (i, j) = (i + 1, j + 1);
            }
            (Some(one), other) if other.is_none() || cell(&common, i + 1, j) >= cell(&common, i, j + 1) => {
                result.push(Edit::Remove(one));
                i += 1;
            }
            (_, Some(other)) => {
                result.push(Edit::Add(other));
                j += 1;
            }
            _ => break,
        }
    }
    let from = old.len().saturating_sub(tail);
    result.extend(old.iter().skip(from).map(|line| Edit::Keep(line)));
    result
}

fn hunks(edits: &[Edit<'_>]) -> String {
    let changed: Vec<usize> = edits
        .iter()
        .enumerate()
        .filter(|(_, edit)| !matches!(edit, Edit::Keep(_)))
        .map(|(index, _)| index)
        .collect();
    let mut text = String::new();
    let mut at = 0;
    while let Some(&first) = changed.get(at) {
        let mut last = first;
        while let Some(&next) = changed.get(at) {
            if next > last + 2 * CONTEXT + 1 {
                break;
            }
            last = next;
            at += 1;
        }
        let start = first.saturating_sub(CONTEXT);
        let count = last + CONTEXT + 1 - start;
        let before = |edit: &&Edit<'_>| !matches!(edit, Edit::Add(_));
        let after = |edit: &&Edit<'_>| !matches!(edit, Edit::Remove(_));
        let part = || edits.iter().skip(start).take(count);
        text.push_str(&format!(
            "@@ -{},{} +{},{} @@\n",
            edits.iter().take(start).filter(before).count() + 1,
            part().filter(before).count(),
            edits.iter().take(start).filter(after).count() + 1,
            part().filter(after).count(),
        ));
        for edit in part() {
            let (mark, line) = match edit {
                Edit::Keep(line) => (' ', line),
                Edit::Remove(line) => ('-', line),
                Edit::Add(line) => ('+', line),
            };
            text.push(mark);
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_is_shown_with_three_lines_around_it() {
        let old = json!({"a": 1, "b": 2, "c": 3, "d": 4, "e": {"f": "x"}, "g": 7, "h": 8, "i": 9});
        let mut new = old.clone();
        new["e"]["f"] = "y".into();
        assert_eq!(
            of(&old, &new),
            "@@ -4,7 +4,7 @@\n  \"c\": 3,\n  \"d\": 4,\n  \"e\": {\n-  \"f\": \"x\"\n+  \"f\": \"y\"\n  },\n  \"g\": 7,\n  \"h\": 8,\n"
        );
        assert_eq!(of(&old, &old), "");
    }
}
