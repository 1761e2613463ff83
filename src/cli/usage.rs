//! Errors of clap as a [`Failure`] with a fitting hint.
//!
//! Also finds the flags that are needed before clap has parsed.

use std::error::Error;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::args;
use super::global::Color;
use crate::ops::{ErrorCode, Failure};
use crate::path::shell::shell_word;
use crate::store::StoreError;

/// Flags of git and other tools, with our equivalent: verb, flag, hint.
pub(super) const WRONG_FLAGS: &[(&str, &str, &str)] = &[
    ("new", "--name", "the name stands alone: `tine new NAME`"),
    ("new", "--base", "say what to start from with `--from REV`"),
    ("new", "--rev", "say what to start from with `--from REV`"),
    ("new", "--ref", "say what to start from with `--from REV`"),
    (
        "new",
        "--commit",
        "say what to start from with `--from REV`",
    ),
    ("new", "--path", "say where to mount with `--at DIR`"),
    ("new", "--dir", "say where to mount with `--at DIR`"),
    (
        "new",
        "--mount",
        "a new fork is mounted unless `--no-mount` is given",
    ),
    (
        "new",
        "--detach",
        "a fork is always on a branch; `git checkout --detach` works inside it",
    ),
    ("mount", "--path", "say where to mount with `--at DIR`"),
    ("mount", "--dir", "say where to mount with `--at DIR`"),
    ("unmount", "--all", "`tine daemon stop` unmounts every fork"),
    (
        "unmount",
        "--lazy",
        "`--force` detaches a mount that is in use",
    ),
    ("unmount", "-l", "`--force` detaches a mount that is in use"),
    (
        "delete",
        "--all",
        "name one fork at a time; `tine list` shows them",
    ),
    (
        "exec",
        "--cwd",
        "the command runs at the fork's root; use `sh -c 'cd DIR && …'`",
    ),
    (
        "commit",
        "-a",
        "every change is committed, as `git add -A` takes it: leave the flag out",
    ),
    (
        "commit",
        "--all",
        "every change is committed, as `git add -A` takes it: leave the flag out",
    ),
    (
        "commit",
        "--amend",
        "let git do it: `tine exec NAME -- git commit --amend`",
    ),
    ("commit", "-F", "give the message with `-m \"$(cat FILE)\"`"),
    (
        "commit",
        "--file",
        "give the message with `-m \"$(cat FILE)\"`",
    ),
    ("commit", "-n", "`--no-verify` skips the hooks"),
    (
        "diff",
        "--cached",
        "what is staged shows with `tine exec NAME -- git diff --cached`",
    ),
    (
        "diff",
        "--staged",
        "what is staged shows with `tine exec NAME -- git diff --cached`",
    ),
    (
        "diff",
        "--patch",
        "the patch is what `tine diff` shows without a flag",
    ),
    (
        "diff",
        "-p",
        "the patch is what `tine diff` shows without a flag",
    ),
    (
        "branch",
        "-a",
        "`tine branch list --all` lists all branches",
    ),
    ("branch", "-d", "`tine branch delete NAME` deletes a branch"),
    (
        "branch",
        "-D",
        "`tine branch delete NAME --force` deletes a branch, and keeps its commits",
    ),
    (
        "branch",
        "-m",
        "`tine branch rename OLD NEW` renames a branch",
    ),
    (
        "branch create",
        "-f",
        "`git branch -f NAME COMMIT` moves a branch",
    ),
    (
        "branch create",
        "--force",
        "`git branch -f NAME COMMIT` moves a branch",
    ),
    (
        "branch create",
        "--from",
        "say where it begins with `--at POINT`",
    ),
    (
        "branch switch",
        "--from",
        "say where it begins with `--at POINT`",
    ),
    (
        "branch switch",
        "--detach",
        "`git switch --detach` works inside the mount",
    ),
    (
        "branch switch",
        "--discard-changes",
        "`tine reset FORK` takes the fork back to HEAD first; what it was becomes a snapshot",
    ),
    (
        "branch switch",
        "--force",
        "`tine reset FORK` takes the fork back to HEAD first; what it was becomes a snapshot",
    ),
    ("status", "--short", "the output is short already"),
    ("status", "-s", "the output is short already"),
    ("status", "--porcelain", "`--json` is the form for scripts"),
    (
        "log",
        "--oneline",
        "the output has one line a commit already",
    ),
    ("list", "--porcelain", "`--json` is the form for scripts"),
    ("list", "-l", "the output is long already"),
    ("list", "-a", "every fork is listed already"),
    ("list", "--all", "every fork is listed already"),
];

/// Verbs that people try, with our equivalent.
pub(super) const WRONG_VERBS: &[(&str, &str)] = &[
    (
        "cd",
        "`cd \"$(tine path NAME)\"`, `tcd NAME` once your shell runs `tine shell-init`, or `tine shell NAME`",
    ),
    ("enter", "`tine shell NAME` opens a shell in the fork"),
    (
        "checkout",
        "`tine new NAME --from REV` makes a fork of a revision, `tine branch switch FORK BRANCH` puts one on a branch",
    ),
    (
        "switch",
        "`tine branch switch FORK BRANCH` puts a fork on a branch, `tine shell NAME` opens a shell in one",
    ),
    ("branches", "`tine branch list` shows the branches of forks"),
    ("fork", "`tine new NAME` makes a fork"),
    ("clone", "`tine new NAME` makes a fork"),
    (
        "worktree",
        "`tine new`, `tine list` and `tine delete` do what `git worktree` does",
    ),
    ("init", "nothing needs to be set up: `tine new NAME`"),
    (
        "start",
        "`tine daemon start`; every command starts the daemon by itself",
    ),
    ("stop", "`tine daemon stop`"),
    (
        "restart",
        "`tine daemon stop`; the next command starts the daemon again",
    ),
    (
        "prune",
        "`tine list` shows every fork with its age and size, `tine delete NAME` removes one",
    ),
    (
        "clean",
        "`tine list` shows every fork with its age and size, `tine delete NAME` removes one",
    ),
    (
        "discard",
        "`tine unmount NAME --discard` throws the changes away and keeps the fork",
    ),
    (
        "format-patch",
        "`tine handoff create NAME` makes patches of a fork's commits",
    ),
    ("show", "`tine status NAME` or `tine diff NAME`"),
    ("info", "`tine status NAME`"),
    ("version", "`tine --version`"),
    ("fsck", "`tine check`"),
    ("verify", "`tine check`"),
    ("metrics", "`tine stats --prometheus`"),
    (
        "walk",
        "`tine ls --deep --fork FORK` lists everything in a fork",
    ),
    ("tool", FOR_TOOLS),
    ("tools", FOR_TOOLS),
];

/// Hint for the former `tine tool`.
const FOR_TOOLS: &str =
    "the file commands take `--agent`: `tine cat --agent PATH`, `tine write --agent PATH`";

/// File commands with a fixed number of arguments, and these.
const FILE_VERBS: &[(&str, &str)] = &[
    ("ls", " PATH"),
    ("stat", " PATH"),
    ("write", " PATH"),
    ("edit", " PATH --old TEXT --new TEXT"),
    ("mv", " SRC DST"),
    ("search", " REGEX PATH"),
    ("context", ""),
];

/// Actions of the former `tine tool`, with their present verbs.
const TOOL_ACTIONS: &[(&str, &str)] = &[
    ("read", "cat --agent"),
    ("write", "write --agent"),
    ("edit", "edit"),
    ("delete", "rm --agent"),
    ("rm", "rm --agent"),
    ("move", "mv --agent"),
    ("mv", "mv --agent"),
    ("list", "ls --agent"),
    ("ls", "ls --agent"),
    ("search", "search"),
    ("run", "run"),
    ("exec", "run"),
    ("context", "context"),
];

/// Returns the present form of a command line with `tool` or `walk`.
fn renamed(words: &[OsString]) -> Option<String> {
    let words: Vec<_> = words
        .iter()
        .skip(1)
        .map(|word| word.to_string_lossy())
        .collect();
    let at = words
        .iter()
        .position(|word| matches!(word.as_ref(), "tool" | "tools" | "walk"))?;
    let mut rest: Vec<String> = Vec::new();
    let mut first = None;
    let mut agent = None;
    let mut following = words.iter().skip(at + 1);
    while let Some(word) = following.next() {
        match word.as_ref() {
            "--" => {
                rest.push("--".to_owned());
                rest.extend(following.by_ref().map(|word| shell_word(word.as_bytes())));
            }
            "--agent" => agent = following.next().map(|name| shell_word(name.as_bytes())),
            named if named.starts_with("--agent=") => {
                agent = named.strip_prefix("--agent=").map(shell_word);
            }
            "--fork" => {
                let fork = following.next().map(|name| shell_word(name.as_bytes()));
                rest.extend(["--fork".to_owned()].into_iter().chain(fork));
            }
            positional if first.is_none() && !positional.starts_with('-') => {
                first = Some(positional.to_owned());
            }
            word => rest.push(shell_word(word.as_bytes())),
        }
    }
    let first = first?;
    let verb = if words[at] == "walk" {
        format!("ls --deep --fork {first}")
    } else {
        let (_, verb) = TOOL_ACTIONS.iter().find(|(action, _)| *action == first)?;
        match (*verb, agent) {
            ("run", _) => {
                rest.retain(|word| word != "--no-buffers");
                "run".to_owned()
            }
            (verb, None) => verb.to_owned(),
            (verb, Some(agent)) => {
                format!("{} --agent={agent}", verb.trim_end_matches(" --agent"))
            }
        }
    };
    let before = words
        .iter()
        .take(at)
        .map(|word| shell_word(word.as_bytes()));
    let line: Vec<String> = ["tine".to_owned()]
        .into_iter()
        .chain(before)
        .chain([verb])
        .chain(rest)
        .collect();
    Some(format!("it is `{}` now", line.join(" ")))
}

/// Returns whether `words` contain `--json` before a `--`.
pub(super) fn asks_for_json(words: &[OsString]) -> bool {
    words
        .iter()
        .take_while(|word| *word != "--")
        .any(|word| word == "--json")
}

/// Returns the value of the last `--color` in `words` before a `--`.
pub(super) fn color_of(words: &[OsString]) -> Color {
    let mut color = Color::Auto;
    let mut words = words.iter().take_while(|word| *word != "--").peekable();
    while let Some(word) = words.next() {
        let word = word.to_string_lossy();
        let value = match word.strip_prefix("--color=") {
            Some(value) => Some(value.to_owned()),
            None if word == "--color" => {
                words.peek().map(|next| next.to_string_lossy().into_owned())
            }
            None => None,
        };
        match value.as_deref() {
            Some("always") => color = Color::Always,
            Some("never") => color = Color::Never,
            Some("auto") => color = Color::Auto,
            _ => {}
        }
    }
    color
}

/// Converts clap's error about `words`.
pub(super) fn explain(error: &clap::Error, words: &[OsString]) -> Failure {
    let source = error.source();
    if let Some(failure) = source.and_then(|error| error.downcast_ref::<Failure>()) {
        return failure.clone();
    }
    // For an option, only its own message says what the name is for.
    let is_option = error
        .get(ContextKind::InvalidArg)
        .is_some_and(|argument| argument.to_string().starts_with('-'));
    if let Some(StoreError::InvalidName { name, reason }) =
        source.and_then(|error| error.downcast_ref())
        && !is_option
    {
        return StoreError::InvalidName {
            name: name.clone(),
            reason,
        }
        .into();
    }
    let rendered = error.render().to_string();
    let verb = verb_of(words);
    let help = match verb.as_str() {
        "" => "`tine --help` lists the commands".to_owned(),
        verb => format!("`tine {verb} --help` shows how it is used"),
    };
    let hint = match own_hint(error, &verb, words).or_else(|| tips(&rendered)) {
        Some(hint) => format!("{hint}; {help}"),
        None => help,
    };
    Failure::new(ErrorCode::Usage, message_of(error, &rendered)).hint(hint)
}

/// Returns the message: clap's first paragraph without its label.
fn message_of(error: &clap::Error, rendered: &str) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a command is missing".to_owned();
    }
    let paragraph = rendered.split("\n\n").next().unwrap_or(rendered);
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    let message = words.join(" ");
    message
        .strip_prefix("error: ")
        .unwrap_or(&message)
        .to_owned()
}

/// Returns clap's own tips.
fn tips(rendered: &str) -> Option<String> {
    let tips: Vec<&str> = rendered
        .lines()
        .filter_map(|line| line.trim().strip_prefix("tip: "))
        .collect();
    (!tips.is_empty()).then(|| tips.join("; "))
}

/// Returns the verb that `words` name (`daemon stop`), or an empty string.
fn verb_of(words: &[OsString]) -> String {
    let mut command = args::command();
    let mut verb: Vec<String> = Vec::new();
    let mut words = words.iter().skip(1).take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        if word == "-C" || word == "--color" {
            words.next();
        } else if let Some(found) = command.find_subcommand(word).cloned() {
            verb.push(found.get_name().to_owned());
            command = found;
        } else if !word.to_string_lossy().starts_with('-') {
            break;
        }
    }
    verb.join(" ")
}

/// Returns the verbs that clap finds similar, by their visible names.
fn similar_verbs(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::Strings(similar)) = error.get(ContextKind::SuggestedSubcommand) else {
        return None;
    };
    let command = args::command();
    let mut verbs: Vec<String> = similar
        .iter()
        .filter_map(|name| command.find_subcommand(name))
        .map(|verb| format!("`tine {}`", verb.get_name()))
        .collect();
    verbs.dedup();
    (!verbs.is_empty()).then(|| format!("similar: {}", verbs.join(", ")))
}

fn own_hint(error: &clap::Error, verb: &str, words: &[OsString]) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        Some(ContextValue::Strings(texts)) => texts.first().map(String::as_str),
        _ => None,
    };
    if error.kind() == ErrorKind::InvalidSubcommand {
        let given = text(ContextKind::InvalidSubcommand)?;
        if verb == "branch" {
            return Some(format!(
                "`tine branch create {given}` makes a branch, `tine branch switch FORK {given}` puts a fork on one"
            ));
        }
        if matches!(given, "tool" | "tools" | "walk")
            && let Some(hint) = renamed(words)
        {
            return Some(hint);
        }
        return match WRONG_VERBS.iter().find(|(wrong, _)| *wrong == given) {
            Some((_, hint)) => Some((*hint).to_owned()),
            None => similar_verbs(error),
        };
    }
    let arg = text(ContextKind::InvalidArg)?;
    if error.kind() == ErrorKind::MissingRequiredArgument {
        return match (verb, arg) {
            ("commit", arg) if arg.contains("-m") => {
                Some("give the message: `tine commit -m MSG`".to_owned())
            }
            ("unmount", arg) if arg.contains("-m") => Some(
                "give the message of the commit: `tine unmount NAME --commit -m MSG`".to_owned(),
            ),
            ("unmount", arg) if arg.contains("--commit") => {
                Some("a message goes with a commit: `tine unmount NAME --commit -m MSG`".to_owned())
            }
            ("exec", arg) if arg.contains("CMD") => Some(
                "say what to run: `tine exec NAME -- CMD…`, or open a shell: `tine shell NAME`"
                    .to_owned(),
            ),
            ("new" | "mount" | "delete", arg) if arg.contains("NAME") => {
                Some(format!("name the fork: `tine {verb} NAME`"))
            }
            ("rm", _) => Some(
                "`tine rm PATH…` removes paths in a fork, `tine delete NAME` removes a fork"
                    .to_owned(),
            ),
            ("exec", arg) if arg.contains("--new") => {
                Some("add `--new`: only a fork that is being made takes these options".to_owned())
            }
            _ => None,
        };
    }
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let flag = arg.split('=').next().unwrap_or(arg);
    let file_verb = FILE_VERBS.iter().find(|(file_verb, _)| *file_verb == verb);
    if let Some((_, arguments)) = file_verb
        && !arg.starts_with('-')
    {
        if words.iter().any(|word| word == "--agent") {
            return Some("an agent's name follows `=`: `--agent=NAME`".to_owned());
        }
        return Some(format!(
            "name the fork with `--fork`: `tine {verb} --fork FORK{arguments}`"
        ));
    }
    if verb == "run" && !arg.starts_with('-') {
        return Some(
            "`tine exec NAME -- CMD…` runs a command in a fork, `tine run --fork NAME -- CMD…` within bounds"
                .to_owned(),
        );
    }
    if verb == "exec" && !arg.starts_with('-') {
        return Some("put `--` before the command: `tine exec NAME -- CMD…`".to_owned());
    }
    if verb == "diff" && !arg.starts_with('-') {
        return Some("put `--` before paths: `tine diff NAME -- PATH…`".to_owned());
    }
    WRONG_FLAGS
        .iter()
        .find(|(of, wrong, _)| *of == verb && *wrong == flag)
        .map(|(_, _, hint)| (*hint).to_owned())
}
