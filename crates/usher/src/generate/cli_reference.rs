//! `docs/reference/cli.md`: every command and flag, from clap.

use clap::{Arg, ArgAction, Command};

/// The page.
pub(super) fn page(note: &str, mut command: Command) -> String {
    command.build();
    let mut text = format!("<!-- {note} -->\n\n# Commands\n\n{}\n\n", about(&command));
    text.push_str(
        "Also found by kubectl, as `kubectl usher`, when a link to it named `kubectl-usher` is in `PATH`.\n\n",
    );
    text.push_str(&format!("```text\n{}\n```\n", after(&command)));
    let globals: Vec<&Arg> = command.get_arguments().filter(|arg| arg.is_global_set()).collect();
    text.push_str("\n## Flags of every command\n\n");
    text.push_str(&flags(&globals));
    for sub in command
        .get_subcommands()
        .filter(|c| !c.is_hide_set() && c.get_name() != "help")
    {
        text.push_str(&section(sub));
    }
    text
}

fn section(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let mut text = format!(
        "\n## usher {}\n\n{}\n\n```text\n{usage}\n```\n",
        command.get_name(),
        about(command)
    );
    let own: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_global_set() && !arg.is_hide_set() && !is_standard(arg))
        .collect();
    if !own.is_empty() {
        text.push('\n');
        text.push_str(&flags(&own));
    }
    let after = after(command);
    if !after.is_empty() {
        text.push_str(&format!("\n```text\n{after}\n```\n"));
    }
    text
}

fn is_standard(arg: &Arg) -> bool {
    matches!(
        arg.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    )
}

fn about(command: &Command) -> String {
    let about = command.get_long_about().or_else(|| command.get_about());
    sentence(about.map(ToString::to_string).unwrap_or_default())
}

/// clap takes the last full stop off.
fn sentence(mut text: String) -> String {
    if text.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '`' | ')' | ']')) {
        text.push('.');
    }
    text
}

fn after(command: &Command) -> String {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    text.trim_end().to_owned()
}

fn flags(args: &[&Arg]) -> String {
    let mut text = "| flag | default | what it does |\n|---|---|---|\n".to_owned();
    for arg in args {
        text.push_str(&format!("| {} | {} | {} |\n", name(arg), default(arg), what(arg)));
    }
    text
}

fn name(arg: &Arg) -> String {
    let value = arg.get_value_names().unwrap_or_default().join(" ");
    let value = match (arg.get_action().takes_values(), arg.get_long()) {
        (true, Some(_)) => format!(" {value}"),
        (true, None) => value,
        (false, _) => String::new(),
    };
    match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("`-{short}`, `--{long}{value}`"),
        (None, Some(long)) => format!("`--{long}{value}`"),
        (Some(short), None) => format!("`-{short}{value}`"),
        (None, None) => format!("`{value}`"),
    }
}

fn default(arg: &Arg) -> String {
    if !arg.get_action().takes_values() {
        return String::new();
    }
    let values: Vec<String> = arg
        .get_default_values()
        .iter()
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    values.join(", ")
}

fn what(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let mut text = sentence(help.map(ToString::to_string).unwrap_or_default().replace('\n', " "));
    if arg.get_action().takes_values() {
        let possible: Vec<String> = arg
            .get_possible_values()
            .iter()
            .filter(|value| !value.is_hide_set())
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        if !possible.is_empty() {
            text.push_str(&format!(" One of {}.", possible.join(", ")));
        }
    }
    if let Some(variable) = arg.get_env() {
        text.push_str(&format!(" Environment: `{}`.", variable.to_string_lossy()));
    }
    text.replace('|', "\\|")
}
