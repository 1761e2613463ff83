//! The commands that are tried: every one of the command line's definitions, completed with what it
//! needs.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

use crate::soaking;

/// A command with what it needs to be understood.
#[derive(Debug, Clone)]
pub struct Subject {
    /// `daemon stop`, in its words.
    path: Vec<String>,
    /// What follows, before what stands behind `--`.
    needed: Vec<(Given, OsString)>,
    behind: Vec<OsString>,
    pub definition: Command,
}

/// What a word of a command is.
#[derive(Debug, Clone, PartialEq)]
enum Given {
    Flag,
    /// The value of the argument of that name.
    Value(String),
}

/// What has to be added, because the definitions alone do not tell: none of these waits for a
/// person or goes on for ever.
const ADDED: [(&str, &[&str]); 10] = [
    ("top", &["--once"]),
    ("ui", &["--no-open"]),
    ("commit", &["-m", "m"]),
    ("resolve", &["--ours"]),
    ("edit", &["--old", "a", "--new", "b"]),
    ("handoff await", &["--timeout=1s"]),
    ("round attempt", &["--agent", "ada"]),
    ("round start", &["--agents", "ada"]),
    ("merge", &["--into", "main"]),
    ("recover purge", &["--all"]),
];

/// Those that go on until they are interrupted, where nothing is wrong. `tests/ui.rs` tries it.
const SERVING: [&str; 1] = ["ui"];

/// Those that take away what others need: they are tried last.
const ENDING: [&str; 4] = ["gc", "unmount", "delete", "daemon stop"];

/// Words for what an argument is called in the help.
fn sample(command: &str, argument: &Arg) -> String {
    let named = argument.get_value_names().and_then(|names| names.first());
    let possible = argument.get_possible_values();
    if let Some(first) = possible.first() {
        return first.get_name().to_owned();
    }
    let word = match named.map_or("", |name| name.as_str()) {
        "NAME" if command == "new" => "made",
        "NAME" | "FORK" | "SOURCE" | "FORK[@SNAPSHOT]" | "PARENT" => "demo",
        "ID" | "N" | "REVIEW" | "COUNT" | "LINE" | "COLUMN" | "SECS" | "BYTES" => "1",
        "PATH" | "FILE" | "SRC" | "OLD" => "a.txt",
        "DST" | "NEW" => "b.txt",
        "A" => "ada",
        "B" => "ben",
        "REV" | "BRANCH" | "POINT" | "COMMIT" | "TARGET" => "main",
        "CMD" | "COMMAND" => "true",
        _ => "x",
    };
    word.to_owned()
}

impl Subject {
    fn of(path: Vec<String>, definition: Command) -> Subject {
        let name = path.join(" ");
        let mut subject = Subject {
            path,
            needed: Vec::new(),
            behind: Vec::new(),
            definition,
        };
        let arguments: Vec<Arg> = subject.definition.get_arguments().cloned().collect();
        for argument in arguments {
            let id = argument.get_id().to_string();
            let value = || OsString::from(sample(&name, &argument));
            let is_fork = argument
                .get_value_names()
                .is_some_and(|names| names.iter().any(|it| it == "NAME" || it == "FORK"));
            if argument.is_last_set() {
                subject.behind.push(value());
            } else if argument.is_positional() && (argument.is_required_set() || is_fork) {
                subject.needed.push((Given::Value(id), value()));
            } else if argument.is_required_set() || is_fork && id == "fork" {
                let long = argument
                    .get_long()
                    .expect("a required option has a long name");
                subject
                    .needed
                    .push((Given::Flag, format!("--{long}").into()));
                subject.needed.push((Given::Value(id), value()));
            }
        }
        let added = ADDED.iter().find(|(added, _)| *added == name);
        for word in added.into_iter().flat_map(|(_, words)| *words) {
            let is_there = subject.needed.iter().any(|(_, there)| there == word);
            if !is_there {
                subject.needed.push((Given::Flag, word.into()));
            }
        }
        subject
    }

    pub fn name(&self) -> String {
        self.path.join(" ")
    }

    fn words(&self, inserted: &[OsString]) -> Vec<OsString> {
        let mut words: Vec<OsString> = self.path.iter().map(OsString::from).collect();
        words.extend_from_slice(inserted);
        words.extend(self.needed.iter().map(|(_, word)| word.clone()));
        if !self.behind.is_empty() {
            words.push("--".into());
            words.extend(self.behind.iter().cloned());
        }
        words
    }

    pub fn plain(&self) -> Vec<OsString> {
        self.words(&[])
    }

    pub fn with_json(&self) -> Vec<OsString> {
        self.words(&["--json".into()])
    }

    /// With words more, before what stands behind `--`.
    pub fn with(&self, words: &[&str]) -> Vec<OsString> {
        let mut inserted: Vec<OsString> = vec!["--json".into()];
        inserted.extend(words.iter().map(OsString::from));
        self.words(&inserted)
    }

    /// Without what it needs.
    pub fn bare(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = self.path.iter().map(OsString::from).collect();
        words.push("--json".into());
        words
    }

    /// With `value` for one of its arguments, the `number`th of those that take one; `None` where
    /// none takes any.
    pub fn with_value(&self, number: usize, value: &OsString) -> Option<Vec<OsString>> {
        let takers: Vec<&Arg> = self
            .definition
            .get_arguments()
            .filter(|argument| matches!(argument.get_action(), ArgAction::Set | ArgAction::Append))
            .collect();
        let taker = takers.get(number.checked_rem(takers.len())?)?;
        let id = taker.get_id().to_string();
        let mut changed = self.clone();
        let there = changed
            .needed
            .iter_mut()
            .find(|(given, _)| *given == Given::Value(id.clone()));
        match (there, taker.get_long()) {
            (Some((_, word)), _) => *word = value.clone(),
            (None, _) if taker.is_last_set() => changed.behind = vec![value.clone()],
            (None, Some(long)) => {
                let mut word = OsString::from(format!("--{long}="));
                word.push(value);
                changed.needed.push((Given::Flag, word));
            }
            (None, None) => changed.needed.push((Given::Value(id), value.clone())),
        }
        Some(changed.with_json())
    }

    /// How many arguments take a value.
    pub fn takers(&self) -> usize {
        self.definition
            .get_arguments()
            .filter(|argument| matches!(argument.get_action(), ArgAction::Set | ArgAction::Append))
            .count()
    }

    pub fn serves(&self) -> bool {
        SERVING.contains(&self.name().as_str())
    }
}

/// Every public command.
pub fn all() -> Vec<Subject> {
    let mut subjects = Vec::new();
    let mut command = tine::cli::command();
    command.build();
    gather(&command, &[], &mut subjects);
    assert!(subjects.len() > 70, "only {} commands", subjects.len());
    subjects.sort_by_key(|subject| {
        ENDING
            .iter()
            .position(|name| *name == subject.name())
            .map_or(0, |at| at + 1)
    });
    subjects
}

fn gather(command: &Command, path: &[String], subjects: &mut Vec<Subject>) {
    for verb in command.get_subcommands() {
        if verb.get_name() == "help" || verb.is_hide_set() {
            continue;
        }
        let mut path = path.to_vec();
        path.push(verb.get_name().to_owned());
        match verb.has_subcommands() {
            true => gather(verb, &path, subjects),
            false => subjects.push(Subject::of(path, verb.clone())),
        }
    }
}

/// The commands that are tried in one condition.
pub fn chosen(condition: usize) -> Vec<Subject> {
    const PARTS: usize = 3;
    all()
        .into_iter()
        .enumerate()
        .filter(|(number, subject)| {
            let is_ones = soaking() || (number + condition).is_multiple_of(PARTS);
            is_ones && !subject.serves()
        })
        .map(|(_, subject)| subject)
        .collect()
}
