//! What differs between two texts, in few lines: only changed lines with a little around them, long lines cut to where
//! they differ.

const AROUND: usize = 2;
/// Of one step; the rest is counted.
const MOST_LINES: usize = 40;
const WIDTH: usize = 160;

/// Empty if they are the same. `-` is what was recorded, `+` what came.
pub fn diff(recorded: &str, came: &str) -> String {
    let old: Vec<&str> = recorded.lines().collect();
    let new: Vec<&str> = came.lines().collect();
    if old == new {
        return String::new();
    }
    let changes = changes(&old, &new);
    let near = |index: usize| {
        let range = index.saturating_sub(AROUND)..=(index + AROUND).min(changes.len() - 1);
        changes[range].iter().any(|(sign, _)| *sign != ' ')
    };
    let mut lines = Vec::new();
    let mut skipped = false;
    for (index, (sign, line)) in changes.iter().enumerate() {
        if !near(index) {
            skipped = true;
            continue;
        }
        if std::mem::take(&mut skipped) {
            lines.push("  …".to_owned());
        }
        let other = changes.iter().skip(index + 1).chain(changes.iter().take(index).rev());
        let partner = other.filter(|(s, _)| *s != ' ' && s != sign).map(|(_, l)| *l).next();
        lines.push(format!("{sign} {}", cut(line, partner.filter(|_| *sign != ' '))));
    }
    if lines.len() > MOST_LINES {
        let more = lines.len() - MOST_LINES;
        lines.truncate(MOST_LINES);
        lines.push(format!("  … {more} lines more"));
    }
    lines.iter().map(|line| format!("    {line}\n")).collect()
}

/// A long line from a little before where it parts from its partner.
fn cut(line: &str, partner: Option<&str>) -> String {
    let length = line.chars().count();
    if length <= WIDTH {
        return line.to_owned();
    }
    let same = partner.map_or(0, |other| {
        line.chars().zip(other.chars()).take_while(|(a, b)| a == b).count()
    });
    let start = same.saturating_sub(WIDTH / 3).min(length - WIDTH);
    let window: String = line.chars().skip(start).take(WIDTH).collect();
    let before = if start > 0 { "…" } else { "" };
    let after = if start + WIDTH < length { "…" } else { "" };
    format!("{before}{window}{after}")
}

/// The longest common subsequence stays, the rest is taken out or put in.
fn changes<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(char, &'a str)> {
    let mut common = vec![vec![0_usize; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = match old[i] == new[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut changes = Vec::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            changes.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && common[i + 1][j] >= common[i][j + 1]) {
            changes.push(('-', old[i]));
            i += 1;
        } else {
            changes.push(('+', new[j]));
            j += 1;
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_and_its_neighbours_are_shown() {
        let old = "1\n2\n3\n4\n5\n6\n7\n";
        let new = "1\n2\n3\n4\n5\n6\nseven\n";
        assert_eq!(diff(old, new), "      …\n      5\n      6\n    - 7\n    + seven\n");
        assert_eq!(diff(old, old), "");
    }

    #[test]
    fn a_long_line_is_cut_to_where_it_differs() {
        let same = "x".repeat(1000);
        let shown = diff(&format!("{same}a"), &format!("{same}b"));
        assert!(
            shown.contains("xa\n") && shown.contains("xb\n") && shown.len() < 500,
            "{shown}"
        );
    }
}
