//! The reference of all commands in Markdown, as in `docs/reference.md`.
//!
//! It is generated from the definitions of the command line, so that it matches the help.

use super::man::{subcommands, with_subcommands};

/// Text above the commands.
const HEAD: &str = "\
# Reference

Every command, its arguments and its examples, as `tine help COMMAND` shows them. This page is made by `tine man --markdown`
of the definitions in `src/cli`: change those. What is true for all commands, and what is worth knowing beyond, is in [cli.md](cli.md).
";

/// Renders the reference of `root`, on which `build` was called.
pub(super) fn of(root: &clap::Command) -> String {
    let mut text = HEAD.to_owned();
    let commands: Vec<&clap::Command> = with_subcommands(root).into_iter().skip(1).collect();
    text.push_str("\n## Options of every command\n\n");
    for argument in root.get_arguments().filter(|argument| is_shown(argument)) {
        text.push_str(&line_of(argument));
    }
    text.push_str("\n## Commands\n\n");
    for command in &commands {
        let depth = full_name(command).split(' ').count().saturating_sub(2);
        text.push_str(&"  ".repeat(depth));
        text.push_str(&item(command));
    }
    for command in commands {
        text.push_str(&section(command));
    }
    text
}

/// Renders one command as a list item that links its section.
fn item(command: &clap::Command) -> String {
    let name = full_name(command);
    let anchor = name.replace(' ', "-");
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    format!("- [`{name}`](#{anchor}): {}\n", prose(&about))
}

/// Renders the section of one command.
fn section(command: &clap::Command) -> String {
    let name = full_name(command);
    let mut text = format!("\n## `{name}`\n\n");
    let about = command.get_long_about().or_else(|| command.get_about());
    if let Some(about) = about {
        text.push_str(&format!("{}\n\n", prose(&about.to_string())));
    }
    text.push_str(&format!("```text\n{}\n```\n", usage(command).join("\n")));
    let aliases: Vec<String> = command
        .get_all_aliases()
        .map(|alias| format!("`{alias}`"))
        .collect();
    if !aliases.is_empty() {
        text.push_str(&format!("\nAlso called {}.\n", aliases.join(", ")));
    }
    let arguments: Vec<&clap::Arg> = command
        .get_arguments()
        .filter(|argument| {
            is_shown(argument) && !argument.is_global_set() && argument.get_id() != "help"
        })
        .collect();
    if !arguments.is_empty() {
        text.push('\n');
    }
    for argument in arguments {
        text.push_str(&line_of(argument));
    }
    if !subcommands(command).is_empty() {
        text.push('\n');
    }
    for own in subcommands(command) {
        text.push_str(&item(own));
    }
    let (examples, remarks) = examples(command);
    if !examples.is_empty() {
        text.push_str(&format!("\n```sh\n{}\n```\n", examples.join("\n")));
    }
    for remark in remarks {
        text.push_str(&format!("\n{}\n", prose(&remark)));
    }
    text
}

/// Returns a command's usage, one form on each line.
pub(super) fn usage(command: &clap::Command) -> Vec<String> {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").lines();
    usage.map(|line| line.trim().to_owned()).collect()
}

/// Returns the full name, such as `tine round start`.
fn full_name(command: &clap::Command) -> &str {
    command.get_bin_name().unwrap_or_else(|| command.get_name())
}

fn is_shown(argument: &clap::Arg) -> bool {
    !argument.is_hide_set()
}

/// Renders one argument as a list item.
fn line_of(argument: &clap::Arg) -> String {
    let help = argument.get_long_help().or_else(|| argument.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let mut text = format!(
        "- `{}`: {}",
        written(argument),
        prose(&help).replace('\n', "\n  ")
    );
    let takes_values = argument.get_action().takes_values();
    let values: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|value| takes_values && !value.is_hide_set())
        .map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({})", value.get_name(), prose(&help.to_string())),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    if !values.is_empty() && !argument.is_hide_possible_values_set() {
        text.push_str(&format!(". One of {}", values.join(", ")));
    }
    let defaults: Vec<String> = argument
        .get_default_values()
        .iter()
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    if takes_values && !defaults.is_empty() && !argument.is_hide_default_value_set() {
        text.push_str(&format!(". Default: {}", defaults.join(", ")));
    }
    text.push('\n');
    text
}

/// Returns an argument's usage: `-m, --message <MSG>`, `[PATH]...`.
fn written(argument: &clap::Arg) -> String {
    match argument.get_short() {
        // The library shows only the long form if there is one.
        Some(short) if argument.get_long().is_some() => format!("-{short}, {argument}"),
        _ => argument.to_string(),
    }
}

/// Splits a command's trailing help into example lines and paragraphs.
///
/// Example lines lose their indentation.
pub(super) fn examples(command: &clap::Command) -> (Vec<String>, Vec<String>) {
    let after = command.get_after_long_help().map(ToString::to_string);
    let after = after.unwrap_or_default();
    let mut examples: Vec<String> = Vec::new();
    let mut remarks = Vec::new();
    for line in after.lines() {
        match line.strip_prefix("  ") {
            Some(example) => examples.push(example.to_owned()),
            None if matches!(line, "Example:" | "Examples:") => {}
            // Keeps the blank lines between groups of examples.
            None if line.is_empty() => examples.push(String::new()),
            None => remarks.push(line.to_owned()),
        }
    }
    while examples.last().is_some_and(String::is_empty) {
        examples.pop();
    }
    (examples, remarks)
}

/// Escapes help text for Markdown: only code in backticks is markup.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let mut written = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '`' => is_code = !is_code,
            '<' | '*' | '|' if !is_code => written.push('\\'),
            _ => {}
        }
        written.push(character);
    }
    written
}
