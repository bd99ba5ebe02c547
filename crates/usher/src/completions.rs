//! `usher completions`, and what kubectl asks when somebody presses Tab after `kubectl usher`.

use std::ffi::OsString;

use clap::{Arg, Args as ClapArgs, Command, ValueHint};
use clap_complete::Shell;

use crate::{CalledAs, Failed, output};

/// For which shell.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
For this shell only:         source <(usher completions bash)
For `kubectl usher`, too:    ln -s \"$(command -v usher)\" ~/.local/bin/kubectl-usher
                             ln -s \"$(command -v usher)\" ~/.local/bin/kubectl_complete-usher")]
pub(crate) struct Args {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<(), Failed> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(CalledAs::Usher), "usher", &mut script);
    output::print(&String::from_utf8(script)?)
}

/// Answers kubectl: one proposal per line, and a last line that says whether file names fit, too (cobra's protocol).
pub(crate) fn for_kubectl(command: Command, words: &[OsString]) -> Result<(), Failed> {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (proposals, files) = propose(command, &words);
    let mut text: String = proposals.iter().map(|proposal| format!("{proposal}\n")).collect();
    // 0: the shell may propose files; 4: it may not.
    text.push_str(if files { ":0\n" } else { ":4\n" });
    output::print(&text)
}

/// What could stand in place of the last word, as `value<Tab>description`, and whether a file could.
fn propose(mut command: Command, words: &[String]) -> (Vec<String>, bool) {
    command.build();
    let mut command = &command;
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", words),
    };
    let mut value_of: Option<&Arg> = None;
    let mut positional = 0;
    for word in before {
        if value_of.take().is_some() {
            continue;
        }
        if word.starts_with('-') {
            value_of = flag(command, word).filter(|arg| arg.get_action().takes_values() && !word.contains('='));
        } else if let Some(next) = command.find_subcommand(word) {
            command = next;
        } else {
            positional += 1;
        }
    }
    if let Some(arg) = value_of {
        return values(arg, last);
    }
    if last.starts_with('-') {
        let flags = command.get_arguments().filter(|arg| !arg.is_hide_set());
        let named = flags.filter_map(|arg| Some((format!("--{}", arg.get_long()?), summary(arg.get_help()))));
        return (fitting(named, last), false);
    }
    let subcommands = command.get_subcommands().filter(|c| !c.is_hide_set());
    let mut proposals = fitting(
        subcommands.map(|c| (c.get_name().to_owned(), summary(c.get_about()))),
        last,
    );
    if let Some(arg) = command.get_positionals().nth(positional) {
        proposals.extend(values(arg, last).0);
    }
    (proposals, false)
}

fn flag<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let name = word.split('=').next().unwrap_or_default();
    command.get_arguments().find(|arg| {
        let long = arg.get_long().is_some_and(|long| name.strip_prefix("--") == Some(long));
        let short = arg.get_short().is_some_and(|short| name == format!("-{short}"));
        long || short
    })
}

/// The values an argument takes, if they are few and known.
fn values(arg: &Arg, begin: &str) -> (Vec<String>, bool) {
    let possible = arg.get_possible_values().into_iter().filter(|v| !v.is_hide_set());
    let named = possible.map(|v| (v.get_name().to_owned(), summary(v.get_help())));
    let is_file = matches!(
        arg.get_value_hint(),
        ValueHint::FilePath | ValueHint::DirPath | ValueHint::AnyPath
    );
    (fitting(named, begin), is_file)
}

fn fitting(named: impl Iterator<Item = (String, String)>, begin: &str) -> Vec<String> {
    named
        .filter(|(name, _)| name.starts_with(begin))
        .map(|(name, about)| {
            if about.is_empty() {
                name
            } else {
                format!("{name}\t{about}")
            }
        })
        .collect()
}

/// The first sentence.
fn summary(text: Option<&clap::builder::StyledStr>) -> String {
    let text = text.map(ToString::to_string).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str]) -> (Vec<String>, bool) {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let (proposals, files) = propose(crate::command(CalledAs::KubectlCompletion), &words);
        let name = |proposal: &String| proposal.split('\t').next().unwrap_or_default().to_owned();
        (proposals.iter().map(name).collect(), files)
    }

    #[test]
    fn kubectl_is_told_what_can_come_next() {
        assert_eq!(names(&["in"]), (vec!["install".to_owned()], false));
        assert_eq!(names(&["--context", "x", "pl"]), (vec!["plan".to_owned()], false));
        assert_eq!(names(&["plan", "x/y", "--outp"]), (vec!["--output".to_owned()], false));
        assert_eq!(names(&["plan", "-o", ""]).0, ["text", "json", "yaml"]);
        assert_eq!(names(&["completions", "z"]).0, ["zsh"]);
        assert_eq!(names(&["plan", "--kubeconfig", ""]), (vec![], true));
        assert!(!names(&[""]).0.contains(&"generate-artifacts".to_owned()));
    }
}
