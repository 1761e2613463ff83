//! Completion of the command line in shells.
//!
//! `clap_complete` finds the argument under the cursor and calls the completer that the argument
//! carries. An argument declared in this folder may name its own with `add`; [`completer`] gives
//! one to each of the others, by value name.
//!
//! The scripts run `TINE_COMPLETE=<shell> tine -- WORD…`. Completion reads the store and the
//! repository itself: it neither starts nor asks a daemon, and it prints nothing to standard error.
//! It gives up after [`PATIENCE`], so a hung file system does not block the shell.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::ArgMatches;
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{Elvish, EnvCompleter, Fish, Powershell, Zsh};
use clap_complete::{CompleteEnv, Shell};

use super::args;
use super::names::Names;
use crate::change::handoff::HandoffState;
use crate::change::review::ReviewState;
use crate::store::{ForkName, ForkRecord};

/// Environment variable with which a script asks for candidates.
const VARIABLE: &str = "TINE_COMPLETE";

/// Longest time that a shell waits for candidates.
const PATIENCE: Duration = Duration::from_secs(2);

/// Prints candidates if a shell asks for them. Returns `None` otherwise.
pub(super) fn run() -> Option<ExitCode> {
    std::env::var_os(VARIABLE).filter(|shell| !shell.is_empty())?;
    let (answered, answer) = mpsc::channel();
    let asker = thread::Builder::new().spawn(move || {
        let here = std::env::current_dir().ok();
        let completed = CompleteEnv::with_factory(command)
            .var(VARIABLE)
            .try_complete(std::env::args_os(), here.as_deref());
        // The receiver is gone if the time is up.
        let _ = answered.send(completed.is_ok());
    });
    if asker.is_ok() {
        let _ = answer.recv_timeout(PATIENCE);
    }
    Some(ExitCode::SUCCESS)
}

/// Returns the script that sets up completion in a shell.
pub(super) fn script(shell: Shell) -> Vec<u8> {
    let made = |completer: &dyn EnvCompleter| {
        let mut script = Vec::new();
        // Writing to memory does not fail.
        let _ = completer.write_registration(VARIABLE, "tine", "tine", "tine", &mut script);
        script
    };
    match shell {
        Shell::Zsh => [made(&Zsh), ZSH_AUTOLOADED.into()].concat(),
        Shell::Fish => made(&Fish),
        Shell::Elvish => made(&Elvish),
        Shell::PowerShell => made(&Powershell),
        // clap's own script splits `fork@snapshot` into three words.
        _ => include_bytes!("scripts/completions.bash").into(),
    }
}

/// End of the zsh script that completes when zsh autoloads it.
///
/// zsh loads the script from `$fpath` as the body of a function, which it calls for its first
/// completion.
const ZSH_AUTOLOADED: &str = "
if [[ ${funcstack[1]} == _tine ]]; then
    _clap_dynamic_completer_tine \"$@\"
fi
";

/// Returns the command line with completers on its arguments.
fn command() -> clap::Command {
    let mut command = args::command();
    // Adds the help flags, so that they are hidden too.
    command.build();
    attach(command)
}

/// Attaches completers to the arguments of a command and of its subcommands.
///
/// It hides all flags, because the engine offers hidden candidates only where it has no other. So
/// names come without flags, and flags come from the first dash on.
fn attach(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| {
        let is_flag = argument.get_long().is_some() || argument.get_short().is_some();
        let argument = argument.hide(is_flag);
        match completer(&argument) {
            Some(completer) => argument.add(completer),
            None => argument,
        }
    });
    command.mut_subcommands(attach)
}

/// Returns the completer of an argument.
///
/// An argument that carries none gets the one for its value name. If a value name has several
/// meanings, the argument's id decides.
fn completer(argument: &clap::Arg) -> Option<ArgValueCompleter> {
    if let Some(carried) = argument.get::<ArgValueCompleter>() {
        return Some(carried.clone());
    }
    let value_name = argument.get_value_names()?.first()?.as_str();
    let complete: fn(&OsStr) -> Vec<CompletionCandidate> =
        match (value_name, argument.get_id().as_str()) {
            ("FORK", _) | ("NAME", "fork") => forks,
            ("FORK[@SNAPSHOT]", _) => forks_or_snapshots,
            ("[REMOTE/]FORK", _) => remote_forks,
            ("POINT", _) => points,
            ("OLD" | "BRANCH" | "REV" | "COMMIT", _) | ("NAME", "branches") => branches,
            ("TARGET", _) | ("PARENT", "to") => targets,
            ("SOURCE", _) => sources,
            ("REVIEW", _) => reviews,
            ("ID", _) => handoffs,
            ("NAME", "session") => sessions,
            ("A" | "B" | "A,B", _) => agents,
            ("REMOTE", _) => remotes,
            ("PATH", "conflict") => conflicts,
            ("PATH" | "SRC" | "DST", _) => paths,
            _ => return None,
        };
    Some(ArgValueCompleter::new(complete))
}

/// Completes the name of a fork.
pub(super) fn forks(current: &OsStr) -> Vec<CompletionCandidate> {
    matching(current, Line::forks)
}

/// Completes a fork, or `fork@snapshot`.
fn forks_or_snapshots(current: &OsStr) -> Vec<CompletionCandidate> {
    matching(current, |line| line.forks_or_snapshots(current))
}

/// Completes a snapshot of the line's fork.
pub(super) fn snapshots(current: &OsStr) -> Vec<CompletionCandidate> {
    matching(current, Line::snapshots)
}

/// Completes a [`Point`](crate::change::Point).
fn points(current: &OsStr) -> Vec<CompletionCandidate> {
    matching(current, |line| {
        let pristine = vec![candidate("pristine", "the fork point")];
        let lists = [
            line.snapshots(),
            line.forks_or_snapshots(current),
            pristine,
            line.branches(),
        ];
        lists.into_iter().flatten().collect()
    })
}

/// Completes the name of a branch.
fn branches(current: &OsStr) -> Vec<CompletionCandidate> {
    matching(current, Line::branches)
}

/// Completes a fork or a branch.
fn targets(current: &OsStr) -> Vec<CompletionCandidate> {
    matching(current, |line| {
        let lists = [line.forks(), line.branches()];
        lists.into_iter().flatten().collect()
    })
}

/// Completes a source of a merge: a fork, `fork@snapshot` or a branch.
fn sources(current: &OsStr) -> Vec<CompletionCandidate> {
    matching(current, |line| {
        let lists = [line.forks_or_snapshots(current), line.branches()];
        lists.into_iter().flatten().collect()
    })
}

/// Completes the number of an open review.
fn reviews(current: &OsStr) -> Vec<CompletionCandidate> {
    matching(current, |line| {
        let open = line.names.reviews().into_iter();
        open.filter(|review| review.state == ReviewState::Open)
            .map(|review| {
                let about = format!("{} into {}", review.merge.source, review.merge.into);
                candidate(review.id.to_string(), &about)
            })
            .collect()
    })
}

/// Completes the path of a conflict of the line's review.
pub(super) fn conflicts(current: &OsStr) -> Vec<CompletionCandidate> {
    matching(current, |line| {
        let number = line.value_of("review");
        let number = number.and_then(|number| number.parse::<u64>().ok());
        let review = line
            .names
            .reviews()
            .into_iter()
            .find(|review| Some(review.id) == number);
        let conflicts = review.map(|review| review.conflicts).unwrap_or_default();
        conflicts
            .into_iter()
            .filter_map(|conflict| {
                let about = match &conflict.resolution {
                    Some(_) => "resolved",
                    None => "open",
                };
                let path = String::from_utf8(conflict.path.to_bytes()).ok()?;
                Some(candidate(path, about))
            })
            .collect()
    })
}

/// Completes the number of a handoff that is neither applied nor skipped.
fn handoffs(current: &OsStr) -> Vec<CompletionCandidate> {
    matching(current, |line| {
        let handoffs = line.names.handoffs().into_iter();
        handoffs
            .filter(|handoff| {
                handoff.state != HandoffState::Skipped && handoff.applied_secs.is_none()
            })
            .map(|handoff| {
                let whose = handoff.fork.as_ref().map(ToString::to_string);
                let whose = whose.or(handoff.imported_from).unwrap_or_default();
                let about = format!("{whose}, {}", handoff.state.word());
                candidate(handoff.id.to_string(), &about)
            })
            .collect()
    })
}

/// Completes the number of an entry of `tine recover`.
pub(super) fn entries(current: &OsStr) -> Vec<CompletionCandidate> {
    matching(current, |line| {
        let entries = line.names.recoverable().into_iter();
        entries
            .map(|found| candidate(found.id.to_string(), &found.entry.command))
            .collect()
    })
}

/// Completes the name of a session of rounds.
fn sessions(current: &OsStr) -> Vec<CompletionCandidate> {
    matching(current, |line| {
        let sessions = line.names.sessions().into_iter();
        sessions
            .map(|session| {
                let about = format!("round {}", session.round);
                candidate(session.session.to_string(), &about)
            })
            .collect()
    })
}

/// Completes the name of an agent in the line's session.
fn agents(current: &OsStr) -> Vec<CompletionCandidate> {
    matching(current, |line| {
        let session = line.value_of("session");
        let sessions = line.names.sessions().into_iter();
        sessions
            .filter(|record| Some(record.session.as_str()) == session)
            .flat_map(|record| record.agents)
            .map(|agent| candidate(agent.name.to_string(), ""))
            .collect()
    })
}

/// Completes the name of a remote.
fn remotes(current: &OsStr) -> Vec<CompletionCandidate> {
    matching(current, |line| {
        let remotes = line.names.remotes().into_iter();
        remotes.map(|name| candidate(name, "")).collect()
    })
}

/// Completes `remote/fork`.
fn remote_forks(current: &OsStr) -> Vec<CompletionCandidate> {
    matching(current, |line| {
        let forks = line.names.remote_forks().into_iter();
        forks
            .map(|(remote, name)| candidate(format!("{remote}/{name}"), ""))
            .collect()
    })
}

/// Completes a path in the line's fork, if it is mounted.
fn paths(current: &OsStr) -> Vec<CompletionCandidate> {
    let fork = Line::typed().and_then(|line| line.fork());
    match fork.filter(|fork| fork.mounted) {
        Some(fork) => PathCompleter::any()
            .current_dir(fork.mount_dir)
            .complete(current),
        None => Vec::new(),
    }
}

/// Returns the candidates of `list` that begin with `current`.
fn matching(
    current: &OsStr,
    list: impl FnOnce(&Line) -> Vec<CompletionCandidate>,
) -> Vec<CompletionCandidate> {
    let mut candidates = Line::typed().map(|line| list(&line)).unwrap_or_default();
    let typed = current.as_encoded_bytes();
    candidates.retain(|candidate| {
        let value = candidate.get_value().as_encoded_bytes();
        value.starts_with(typed)
    });
    candidates
}

fn candidate(value: impl Into<OsString>, about: &str) -> CompletionCandidate {
    let about = crate::render::text::one_line(about);
    CompletionCandidate::new(value).help((!about.is_empty()).then(|| about.into()))
}

/// Command line that is being typed, as clap parses it.
struct Line {
    /// Arguments of the innermost command, as far as they are valid.
    arguments: ArgMatches,
    /// Directory that the command would run in.
    dir: PathBuf,
    /// Names of the repository around `dir`.
    names: Names,
}

impl Line {
    /// Parses the words that the shell passed after `--`.
    ///
    /// Returns `None` if the command would run outside of a repository.
    fn typed() -> Option<Line> {
        let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
        let command = args::command().ignore_errors(true);
        let mut arguments = command.try_get_matches_from(words).ok()?;
        while let Some((_, inner)) = arguments.remove_subcommand() {
            arguments = inner;
        }
        let mut dir = std::env::current_dir().ok()?;
        dir.extend(raw_values(&arguments, "dirs"));
        let names = Names::around(&dir)?;
        Some(Line {
            arguments,
            dir,
            names,
        })
    }

    /// Returns the value of an argument, or its default.
    fn value_of(&self, id: &str) -> Option<&str> {
        raw_values(&self.arguments, id).next()?.to_str()
    }

    /// Returns the line's fork: the named one, or the one mounted around `dir`.
    fn fork(&self) -> Option<ForkRecord> {
        let mut forks = self.names.forks();
        // Commands that take [NAME] call their fork `name`.
        let named = ["fork", "name"].into_iter().find_map(|id| {
            let name = self.value_of(id)?;
            let at = forks.iter().position(|fork| fork.name.as_str() == name)?;
            Some(forks.swap_remove(at))
        });
        named.or_else(|| self.names.fork_at(&self.dir))
    }

    fn forks(&self) -> Vec<CompletionCandidate> {
        let forks = self.names.forks().into_iter();
        forks
            .map(|fork| {
                let branch = fork.head_branch.unwrap_or(fork.branch);
                let mounted = if fork.mounted { "" } else { ", not mounted" };
                candidate(fork.name.to_string(), &format!("{branch}{mounted}"))
            })
            .collect()
    }

    /// Lists forks, or after `fork@` the snapshots of that fork.
    fn forks_or_snapshots(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let current = current.to_string_lossy();
        let Some((fork, _)) = current.split_once('@') else {
            return self.forks();
        };
        match ForkName::parse(fork) {
            Ok(name) => self.snapshots_of(&name, &format!("{fork}@")),
            Err(_) => Vec::new(),
        }
    }

    fn snapshots(&self) -> Vec<CompletionCandidate> {
        match self.fork() {
            Some(fork) => self.snapshots_of(&fork.name, ""),
            None => Vec::new(),
        }
    }

    fn snapshots_of(&self, fork: &ForkName, prefix: &str) -> Vec<CompletionCandidate> {
        let snapshots = self.names.snapshots(fork).into_iter();
        snapshots
            .map(|snapshot| {
                let about = snapshot.message.unwrap_or_default();
                candidate(format!("{prefix}{}", snapshot.name), &about)
            })
            .collect()
    }

    fn branches(&self) -> Vec<CompletionCandidate> {
        let branches = self.names.branches().into_iter();
        branches
            .filter_map(|tip| Some(candidate(String::from_utf8(tip.name).ok()?, &tip.subject)))
            .collect()
    }
}

/// Iterates over an argument's values: none if the command lacks the argument.
fn raw_values<'a>(arguments: &'a ArgMatches, id: &str) -> impl Iterator<Item = &'a OsStr> {
    let values = arguments.try_get_raw(id).ok().flatten();
    values.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Value names without a completer: texts, numbers, files of the host, choices.
    const OTHERS: [&str; 38] = [
        "30s|100ops",
        "30s|100ops|never",
        "ADDR",
        "AGE",
        "NUMBER",
        "SNAPSHOT",
        "AUTHOR",
        "BYTES",
        "CMD",
        "COLUMN",
        "COUNT",
        "DIR",
        "FILE",
        "GLOB",
        "HOW",
        "LABEL",
        "LEVEL",
        "LINE",
        "MSG",
        "N",
        "NAME",
        "NEW",
        "PARENT",
        "PATTERN",
        "POLICY",
        "PROFILE",
        "REGEX",
        "SECS",
        "SHELL",
        "STYLE",
        "TEXT",
        "TIME",
        "WHEN",
        "WHOSE",
        "X,Y",
        "COMMAND",
        "SIDE",
        "BY",
    ];

    fn walk(command: &clap::Command, others: &mut BTreeSet<String>) {
        for argument in command.get_arguments() {
            let takes_values = argument.get_action().takes_values();
            let is_chosen = !argument.get_possible_values().is_empty();
            if takes_values && !is_chosen && completer(argument).is_none() {
                let words = argument.get_value_names().unwrap_or_default();
                others.extend(words.iter().map(ToString::to_string));
            }
        }
        for command in command.get_subcommands() {
            walk(command, others);
        }
    }

    #[test]
    fn every_argument_that_names_something_is_completed() {
        let mut others = BTreeSet::new();
        walk(&args::command(), &mut others);
        let unknown: Vec<&String> = others
            .iter()
            .filter(|word| !OTHERS.contains(&word.as_str()))
            .collect();
        assert!(unknown.is_empty(), "what completes {unknown:?}?");
    }

    #[test]
    fn an_argument_called_name_is_completed_where_it_names_something() {
        let command = args::command();
        let is_completed = |verb: &str, id: &str| {
            let mut found = &command;
            for word in verb.split(' ') {
                found = found.find_subcommand(word).unwrap();
            }
            let argument = found
                .get_arguments()
                .find(|argument| argument.get_id() == id);
            completer(argument.unwrap_or_else(|| panic!("{verb} has no {id}"))).is_some()
        };
        for (verb, id) in [
            ("commit", "fork"),
            ("delete", "fork"),
            ("diff", "name"),
            ("exec", "name"),
            ("log", "name"),
            ("mount", "fork"),
            ("path", "name"),
            ("shell", "name"),
            ("status", "name"),
            ("unmount", "fork"),
            ("search", "fork"),
            ("snapshot", "name"),
            ("branch delete", "branches"),
            ("round", "session"),
        ] {
            assert!(is_completed(verb, id), "{verb} {id}");
        }
        for (verb, id) in [
            ("new", "name"),
            ("mcp", "new"),
            ("push", "name"),
            ("branch create", "branch"),
            ("recover", "name"),
            ("round present", "label"),
            ("cherry-pick", "mainline"),
        ] {
            assert!(!is_completed(verb, id), "{verb} {id}");
        }
    }

    /// Completion hides all flags, and could not tell one that the help hides from the others.
    #[test]
    fn no_flag_is_hidden_from_the_help() {
        fn walk(command: &clap::Command) {
            for argument in command.get_arguments() {
                let aliases = argument.get_aliases().unwrap_or_default();
                assert!(
                    !argument.is_hide_set() && aliases.is_empty(),
                    "{} of {}",
                    argument.get_id(),
                    command.get_name()
                );
            }
            command.get_subcommands().for_each(walk);
        }
        walk(&args::command());
    }
}
