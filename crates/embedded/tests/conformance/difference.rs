//! `differences.toml` (F4): each accepted difference names its case, its step, the reason, and a mark of what differs. One
//! that is none any more fails, and so does one that differs in another way, so that the list only holds what is true.

/// At first release.
pub const MOST: usize = 25;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Difference {
    pub case: String,
    pub step: usize,
    pub reason: String,
    /// Of what differs; several where several programs are compared.
    pub marks: Vec<String>,
}

impl Difference {
    /// Whether this is the difference that was accepted.
    pub fn is(&self, case: &str, step: usize, diff: &str) -> bool {
        self.case == case && self.step == step && self.marks.contains(&mark(diff))
    }
}

/// A short mark of a text: FNV-1a, the same in every build.
pub fn mark(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
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
            "mark" => difference.marks.push(text()?),
            "step" => difference.step = value.parse().map_err(|_| wrong("the number of a step"))?,
            _ => return Err(wrong("case, step, reason and mark are known")),
        }
    }
    match differences
        .iter()
        .find(|d| d.case.is_empty() || d.step == 0 || d.reason.is_empty() || d.marks.is_empty())
    {
        Some(half) => Err(format!(
            "differences.toml: case, step, reason and mark, all four: {half:?}"
        )),
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
            marks: vec![mark("- a\n+ b\n")],
        }
    }

    #[test]
    fn f4_the_list_is_read() {
        let mark = mark("- a\n+ b\n");
        let text =
            format!("# why\n[[difference]]\ncase = \"a/b\"\nstep = 2\nreason = \"because\"\nmark = \"{mark}\"\n");
        assert_eq!(parse(&text).unwrap(), [listed("a/b", 2)]);
        assert!(
            parse("[[difference]]\ncase = \"a/b\"\n")
                .unwrap_err()
                .contains("all four")
        );
        assert!(parse("case = \"a/b\"\n").is_err());
        assert!(parse("[[difference]]\nwho = \"me\"\n").is_err());
    }

    #[test]
    fn f4_another_difference_at_the_same_step_is_not_the_accepted_one() {
        assert!(listed("a/b", 2).is("a/b", 2, "- a\n+ b\n"));
        assert!(!listed("a/b", 2).is("a/b", 2, "- a\n+ 500\n"));
        assert!(!listed("a/b", 2).is("a/b", 3, "- a\n+ b\n"));
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
