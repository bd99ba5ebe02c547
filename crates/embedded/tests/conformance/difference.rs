//! `differences.toml` (F4): each accepted difference names its case, its step and the reason. One that is none any more
//! fails, so that the list only holds what is true.

/// At first release.
pub const MOST: usize = 25;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Difference {
    pub case: String,
    pub step: usize,
    pub reason: String,
}

/// Only what the file needs of TOML: `[[difference]]` tables of `key = "text"` and `key = number`.
pub fn parse(text: &str) -> Result<Vec<Difference>, String> {
    let mut differences: Vec<Difference> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let wrong = |what: &str| format!("differences.toml:{}: {what}", index + 1);
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line == "[[difference]]" {
            differences.push(Difference::default());
            continue;
        }
        let difference = differences
            .last_mut()
            .ok_or_else(|| wrong("begins with [[difference]]"))?;
        let (key, value) = line.split_once(" = ").ok_or_else(|| wrong("`key = value`"))?;
        let text = || serde_json::from_str::<String>(value).map_err(|_| wrong("a text in quotes"));
        match key {
            "case" => difference.case = text()?,
            "reason" => difference.reason = text()?,
            "step" => difference.step = value.parse().map_err(|_| wrong("the number of a step"))?,
            _ => return Err(wrong("case, step and reason are known")),
        }
    }
    match differences
        .iter()
        .find(|d| d.case.is_empty() || d.step == 0 || d.reason.is_empty())
    {
        Some(half) => Err(format!("differences.toml: case, step and reason, all three: {half:?}")),
        None => Ok(differences),
    }
}

/// What of the list is wrong, given the steps that really differ and the cases that were played.
pub fn stale(listed: &[Difference], differing: &[(String, usize)], played: impl Fn(&str) -> bool) -> Vec<String> {
    let mut wrong: Vec<String> = Vec::new();
    for (index, difference) in listed.iter().enumerate() {
        let Difference { case, step, .. } = difference;
        let twice = listed
            .iter()
            .take(index)
            .any(|other| other.case == *case && other.step == *step);
        if twice {
            wrong.push(format!("differences.toml names {case} step {step} twice"));
        } else if played(case) && !differing.contains(&(case.clone(), *step)) {
            wrong.push(format!(
                "differences.toml: {case} step {step} does not differ: take it out"
            ));
        }
    }
    if listed.len() > MOST {
        wrong.push(format!("{} differences are listed, {MOST} are allowed", listed.len()));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(case: &str, step: usize) -> Difference {
        Difference {
            case: case.into(),
            step,
            reason: "because".into(),
        }
    }

    #[test]
    fn f4_the_list_is_read() {
        let text = "# why\n[[difference]]\ncase = \"a/b\"\nstep = 2\nreason = \"because\"\n";
        assert_eq!(parse(text).unwrap(), [listed("a/b", 2)]);
        assert!(
            parse("[[difference]]\ncase = \"a/b\"\n")
                .unwrap_err()
                .contains("all three")
        );
        assert!(parse("case = \"a/b\"\n").is_err());
        assert!(parse("[[difference]]\nwho = \"me\"\n").is_err());
    }

    #[test]
    fn f4_a_listed_difference_that_no_longer_differs_fails() {
        let list = [listed("a/b", 2), listed("a/c", 1)];
        let differing = [("a/b".to_owned(), 2)];
        assert_eq!(stale(&list, &differing, |_| true).len(), 1);
        assert_eq!(
            stale(&list, &differing, |case| case == "a/b"),
            Vec::<String>::new(),
            "a/c was not played"
        );
    }

    #[test]
    fn f4_more_than_25_fail_and_so_does_naming_one_twice() {
        let many: Vec<Difference> = (1..=26).map(|step| listed("a/b", step)).collect();
        let differing: Vec<(String, usize)> = (1..=26).map(|step| ("a/b".to_owned(), step)).collect();
        assert_eq!(stale(&many, &differing, |_| true).len(), 1);
        assert_eq!(stale(&many[..25], &differing, |_| true).len(), 0);
        assert_eq!(
            stale(&[listed("a/b", 1), listed("a/b", 1)], &differing, |_| true).len(),
            1
        );
    }
}
