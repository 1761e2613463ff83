//! The groups of commands in `tine --help`, by task.
//!
//! clap itself lists all commands under one heading.

use std::fmt::Write as _;

use clap::builder::StyledStr;

/// Headings, each with its commands. Each command is in one group.
pub(super) const GROUPS: &[(&str, &[&str])] = &[
    (
        "Have forks, and work in them",
        &[
            "new", "list", "tree", "path", "mount", "unmount", "delete", "convert", "exec", "shell",
        ],
    ),
    (
        "See and commit what changed",
        &["status", "diff", "commit", "log", "branch"],
    ),
    (
        "Go back",
        &[
            "undo",
            "redo",
            "op",
            "revert",
            "snapshot",
            "snapshots",
            "restore",
            "reset",
            "recover",
        ],
    ),
    (
        "Bring work together",
        &[
            "merge",
            "update",
            "cherry-pick",
            "apply",
            "review",
            "resolve",
            "handoff",
            "round",
            "push",
            "fetch",
        ],
    ),
    (
        "Read and change files, mounted or not",
        &["ls", "stat", "cat", "write", "edit", "mv", "rm", "search"],
    ),
    (
        "Serve agents and editors",
        &["mcp", "run", "context", "buffer"],
    ),
    (
        "Watch, and keep in order",
        &["ui", "top", "stats", "doctor", "check", "gc", "daemon"],
    ),
    (
        "tine itself",
        &["completions", "shell-init", "man", "uninstall", "help"],
    ),
];

/// Returns the template of `tine --help`. All groups align command names in one column.
pub(super) fn help_template(command: &clap::Command) -> StyledStr {
    let styles = command.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let width = GROUPS
        .iter()
        .flat_map(|(_, names)| names.iter())
        .map(|name| name.len())
        .max()
        .unwrap_or_default();
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n\n");
    for (heading, names) in GROUPS {
        // A write to a string cannot fail.
        let _ = writeln!(text, "{header}{heading}:{header:#}");
        for name in *names {
            let about = match command
                .find_subcommand(name)
                .and_then(clap::Command::get_about)
            {
                Some(about) => about.to_string(),
                None => "Explain tine, or one command".to_owned(),
            };
            let _ = writeln!(text, "  {literal}{name:width$}{literal:#}  {about}");
        }
        text.push('\n');
    }
    let _ = write!(
        text,
        "{header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    StyledStr::from(text)
}
