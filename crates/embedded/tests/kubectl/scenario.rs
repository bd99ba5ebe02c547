//! The language of scenarios. After comments (`# …`) and settings come steps, then the files that they use:
//!
//! ```text
//! # What this is about.
//! server: controllers              (one with garbage collector and namespaces; without this line a bare one)
//!
//! $ kubectl apply -f map.yaml      (a line for sh; what it prints and how it ends is compared)
//! & kubectl get configmaps -w      (the same, in the background, one at a time)
//! await kubectl explain widgets    (a line that is tried until it succeeds; nobody looks at what it prints)
//! until second                     (waits until the background has printed this)
//! stop                             (ends the background, whose output is compared)
//! done                             (the same, but it must end by itself)
//!
//! -- map.yaml --
//! apiVersion: v1
//! …
//! ```
//!
//! The scenario's own namespace, which is as long, is written [`NAMESPACE`]. It is the default, and a good part of the
//! name of anything that lives in no namespace.

/// Stands for the namespace of the run, in scenarios and in transcripts. As long as that, so that columns stay in line.
pub const NAMESPACE: &str = "the-namespace";

#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    pub name: String,
    pub controllers: bool,
    pub steps: Vec<Step>,
    /// Name and content.
    pub files: Vec<(String, String)>,
    /// As it was written: addresses and times in here are the scenario's own.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    Run(String),
    Start(String),
    Await(String),
    Until(String),
    Stop,
    Done,
}

impl Scenario {
    pub fn commands(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter_map(|step| match step {
            Step::Run(line) | Step::Start(line) => Some(line.as_str()),
            _ => None,
        })
    }
}

pub fn parse(name: &str, text: &str) -> Result<Scenario, String> {
    let mut scenario = Scenario {
        name: name.to_owned(),
        controllers: false,
        steps: Vec::new(),
        files: Vec::new(),
        text: text.to_owned(),
    };
    for (index, line) in text.lines().enumerate() {
        let file = line.strip_prefix("-- ").and_then(|line| line.strip_suffix(" --"));
        if let Some(file) = file {
            scenario.files.push((file.to_owned(), String::new()));
            continue;
        }
        if let Some((_, content)) = scenario.files.last_mut() {
            content.push_str(line);
            content.push('\n');
            continue;
        }
        let step = match line.split_once(' ').unwrap_or((line, "")) {
            ("" | "#", _) => continue,
            ("server:", "controllers") => {
                scenario.controllers = true;
                continue;
            }
            ("$", command) => Step::Run(command.to_owned()),
            ("&", command) => Step::Start(command.to_owned()),
            ("await", command) => Step::Await(command.to_owned()),
            ("until", words) => Step::Until(words.to_owned()),
            ("stop", "") => Step::Stop,
            ("done", "") => Step::Done,
            _ => return Err(format!("{name}:{}: what is `{line}`?", index + 1)),
        };
        scenario.steps.push(step);
    }
    match scenario.steps.is_empty() {
        true => Err(format!("{name} has no steps")),
        false => Ok(scenario),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_has_settings_steps_and_files() {
        let text =
            "# Why.\nserver: controllers\n\n$ kubectl get x\n& kubectl get -w\nuntil a b\nstop\n-- a.yaml --\n# a\nb\n";
        let scenario = parse("one", text).unwrap();
        assert!(scenario.controllers);
        assert_eq!(scenario.files, [("a.yaml".to_owned(), "# a\nb\n".to_owned())]);
        assert_eq!(
            scenario.steps,
            [
                Step::Run("kubectl get x".into()),
                Step::Start("kubectl get -w".into()),
                Step::Until("a b".into()),
                Step::Stop
            ]
        );
        assert!(parse("one", "get x\n").unwrap_err().contains("one:1"));
        assert!(parse("one", "# nothing\n").is_err());
    }
}
