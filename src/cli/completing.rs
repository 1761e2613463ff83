//! What fits at a place of the command line, for shells that complete it: `clap_complete` knows the
//! verbs and the flags, and asks here for the names.
//!
//! The scripts run `TINE_COMPLETE=<shell> tine -- WORD…`. No daemon is started or asked for that,
//! nothing is said on standard error, and whoever pressed a key does not wait for a file system
//! that hangs.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{Elvish, EnvCompleter, Fish, Powershell, Zsh};
use clap_complete::{CompleteEnv, Shell};

use super::args;
use super::names::Names;
use crate::change::handoff::HandoffState;
use crate::change::review::ReviewState;
use crate::workspace::{ForkName, ForkRecord};

/// The variable by which a script asks.
const VARIABLE: &str = "TINE_COMPLETE";

/// How long a shell waits for an answer at most.
const PATIENCE: Duration = Duration::from_secs(2);

/// Answers a shell, if one asks.
pub(super) fn run() -> Option<ExitCode> {
    std::env::var_os(VARIABLE).filter(|shell| !shell.is_empty())?;
    let (answered, answer) = mpsc::channel();
    let asker = thread::Builder::new().spawn(move || {
        let here = std::env::current_dir().ok();
        let completed = CompleteEnv::with_factory(command)
            .var(VARIABLE)
            .try_complete(std::env::args_os(), here.as_deref());
        // Nobody listens any more where the time is up.
        let _ = answered.send(completed.is_ok());
    });
    if asker.is_ok() {
        let _ = answer.recv_timeout(PATIENCE);
    }
    Some(ExitCode::SUCCESS)
}

/// The script that lets a shell complete tine's command line.
pub(super) fn script(shell: Shell) -> Vec<u8> {
    let made = |completer: &dyn EnvCompleter| {
        let mut script = Vec::new();
        // Memory takes all of it.
        let _ = completer.write_registration(VARIABLE, "tine", "tine", "tine", &mut script);
        script
    };
    match shell {
        Shell::Zsh => [made(&Zsh), ZSH_AUTOLOADED.into()].concat(),
        Shell::Fish => made(&Fish),
        Shell::Elvish => made(&Elvish),
        Shell::PowerShell => made(&Powershell),
        // clap's own takes `fork@snapshot` for three words.
        _ => include_bytes!("scripts/completions.bash").into(),
    }
}

/// As a file in `$fpath` the script is the body of a function, which is called for its first
/// completion.
const ZSH_AUTOLOADED: &str = "
if [[ ${funcstack[1]} == _tine ]]; then
    _clap_dynamic_completer_tine \"$@\"
fi
";

/// The command line with what completes each argument.
fn command() -> clap::Command {
    // Among names nobody looks for flags: they are offered from the first dash on.
    let hides_flags = Line::typed().current.is_empty();
    attach("", args::command(), hides_flags)
}

fn attach(verb: &str, command: clap::Command, hides_flags: bool) -> clap::Command {
    let of = verb.to_owned();
    let command = command.disable_help_flag(hides_flags).mut_args(|argument| {
        let argument = match kind_of(&of, &argument) {
            Some(kind) => argument.add(ArgValueCompleter::new(kind)),
            None => argument,
        };
        let is_flag = argument.get_long().is_some() || argument.get_short().is_some();
        match is_flag && hides_flags {
            true => argument.hide(true),
            false => argument,
        }
    });
    command.mut_subcommands(|command| {
        let name = format!("{verb} {}", command.get_name());
        attach(name.trim(), command, hides_flags)
    })
}

/// What an argument names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Fork,
    /// A fork, or `fork@snapshot`.
    ForkOrSnapshot,
    /// A snapshot of the fork that the line is about.
    Snapshot,
    /// What [`Point`](crate::change::Point) understands.
    Point,
    Branch,
    /// A fork or branch.
    Target,
    /// What can be merged.
    Source,
    Review,
    /// A path with a conflict of the review that the line is about.
    Conflict,
    Handoff,
    /// What `tine recover` lists.
    Entry,
    Session,
    Agent,
    Remote,
    /// `remote/fork`.
    RemoteFork,
    /// A path of the fork that the line is about.
    Path,
}

/// What an argument names: the word that stands for it in the help says it, and of what is called
/// NAME the verb.
fn kind_of(verb: &str, argument: &clap::Arg) -> Option<Kind> {
    let word = argument.get_value_names()?.first()?.as_str();
    let kind = match (word, verb) {
        ("NAME", "branch delete") | ("OLD" | "BRANCH" | "REV" | "COMMIT", _) => Kind::Branch,
        ("NAME", "snapshot") => Kind::Snapshot,
        ("NAME", "round") if argument.get_id() == "session" => Kind::Session,
        ("NAME", "new" | "mcp" | "push" | "branch create") => return None,
        ("NAME", _) if verb.starts_with("round") => return None,
        ("NAME", "recover") => return None,
        ("FORK" | "NAME", _) => Kind::Fork,
        ("FORK[@SNAPSHOT]", _) => Kind::ForkOrSnapshot,
        ("[REMOTE/]FORK", _) => Kind::RemoteFork,
        ("POINT", _) => Kind::Point,
        // The number of a parent of a merge.
        ("PARENT", "cherry-pick") => return None,
        ("TARGET" | "PARENT", _) => Kind::Target,
        ("SOURCE", _) => Kind::Source,
        ("REVIEW", _) => Kind::Review,
        ("ID", "recover" | "recover show" | "recover purge") => Kind::Entry,
        ("ID", _) => Kind::Handoff,
        ("A" | "B" | "A,B", _) => Kind::Agent,
        ("REMOTE", _) => Kind::Remote,
        ("PATH", "resolve") => Kind::Conflict,
        // From where one stands.
        ("PATH" | "SRC" | "DST", _) if !verb.starts_with("tool") => Kind::Path,
        _ => return None,
    };
    Some(kind)
}

/// The line that is being typed.
struct Line {
    /// What stands before the word, without the program.
    before: Vec<String>,
    /// The word, as far as it is typed.
    current: String,
}

impl Line {
    fn typed() -> Line {
        let mut words: Vec<OsString> = std::env::args_os()
            .skip_while(|word| word != "--")
            .skip(1)
            .collect();
        let index = std::env::var("_CLAP_COMPLETE_INDEX").ok();
        if let Some(index) = index.and_then(|index| index.parse::<usize>().ok()) {
            words.resize(
                index.saturating_add(1).min(words.len().saturating_add(1)),
                OsString::new(),
            );
        }
        let current = words.pop().unwrap_or_default();
        let text = |word: OsString| word.to_string_lossy().into_owned();
        Line {
            before: words.into_iter().skip(1).map(text).collect(),
            current: text(current),
        }
    }

    /// Where the command will run.
    fn dir(&self) -> Option<PathBuf> {
        let mut dir = std::env::current_dir().ok()?;
        let mut words = self.before.iter().take_while(|word| *word != "--");
        while let Some(word) = words.next() {
            if let Some(given) = word.strip_prefix("-C") {
                dir.push(if given.is_empty() {
                    words.next()?
                } else {
                    given
                });
            }
        }
        Some(dir)
    }

    /// The fork that the line is about: the first that it names, else the one whose mount this is.
    fn fork(&self, names: &Names, dir: &Path) -> Option<ForkRecord> {
        let mut forks = names.forks();
        let named = self.before.iter().find_map(|word| {
            let at = forks.iter().position(|fork| fork.name.as_str() == word)?;
            Some(forks.swap_remove(at))
        });
        named.or_else(|| names.fork_at(dir))
    }

    /// The value of a flag.
    fn value_of(&self, flag: &str) -> Option<&str> {
        let mut words = self.before.iter();
        while let Some(word) = words.next() {
            match word.strip_prefix(flag) {
                Some("") => return words.next().map(String::as_str),
                Some(rest) if rest.starts_with('=') => return rest.get(1..),
                _ => {}
            }
        }
        None
    }
}

impl ValueCompleter for Kind {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let line = Line::typed();
        let Some(dir) = line.dir() else {
            return Vec::new();
        };
        let Some(names) = Names::around(&dir) else {
            return Vec::new();
        };
        let typed = current.to_string_lossy();
        if *self == Kind::Path {
            return paths(&line, &names, &dir, current);
        }
        let mut candidates = self.candidates(&line, &names, &dir, &typed);
        candidates.retain(|candidate| candidate.get_value().to_string_lossy().starts_with(&*typed));
        candidates
    }
}

impl Kind {
    fn candidates(
        self,
        line: &Line,
        names: &Names,
        dir: &Path,
        typed: &str,
    ) -> Vec<CompletionCandidate> {
        match self {
            Kind::Fork => forks(names),
            Kind::ForkOrSnapshot => forks_or_snapshots(names, typed),
            Kind::Snapshot => match line.fork(names, dir) {
                Some(fork) => snapshots(names, &fork.name, ""),
                None => Vec::new(),
            },
            Kind::Point => {
                let of_fork = Kind::Snapshot.candidates(line, names, dir, typed);
                let all = [
                    of_fork,
                    forks_or_snapshots(names, typed),
                    pristine(),
                    branches(names),
                ];
                all.into_iter().flatten().collect()
            }
            Kind::Branch => branches(names),
            Kind::Target => [forks(names), branches(names)]
                .into_iter()
                .flatten()
                .collect(),
            Kind::Source => {
                let all = [forks_or_snapshots(names, typed), branches(names)];
                all.into_iter().flatten().collect()
            }
            Kind::Review => {
                let open = names.reviews().into_iter();
                open.filter(|review| review.state == ReviewState::Open)
                    .map(|review| {
                        let about = format!("{} into {}", review.merge.source, review.merge.into);
                        candidate(review.id.to_string(), about)
                    })
                    .collect()
            }
            Kind::Conflict => conflicts(line, names),
            Kind::Handoff => {
                let handoffs = names.handoffs().into_iter();
                handoffs
                    .filter(|handoff| {
                        handoff.state != HandoffState::Skipped && handoff.applied_secs.is_none()
                    })
                    .map(|handoff| {
                        let whose = handoff.fork.as_ref().map(ToString::to_string);
                        let whose = whose.or(handoff.imported_from).unwrap_or_default();
                        candidate(
                            handoff.id.to_string(),
                            format!("{whose}, {}", handoff.state.word()),
                        )
                    })
                    .collect()
            }
            Kind::Entry => {
                let entries = names.recoverable().into_iter();
                entries
                    .map(|found| candidate(found.id.to_string(), found.entry.command))
                    .collect()
            }
            Kind::Session => {
                let sessions = names.sessions().into_iter();
                sessions
                    .map(|session| {
                        candidate(
                            session.session.to_string(),
                            format!("round {}", session.round),
                        )
                    })
                    .collect()
            }
            Kind::Agent => {
                let session = line.value_of("--session").unwrap_or("default");
                let sessions = names.sessions().into_iter();
                sessions
                    .filter(|record| record.session.as_str() == session)
                    .flat_map(|record| record.agents)
                    .map(|agent| candidate(agent.name.to_string(), String::new()))
                    .collect()
            }
            Kind::Remote => {
                let remotes = names.remotes().into_iter();
                remotes.map(|name| candidate(name, String::new())).collect()
            }
            Kind::RemoteFork => {
                let forks = names.remote_forks().into_iter();
                forks
                    .map(|(remote, name)| candidate(format!("{remote}/{name}"), String::new()))
                    .collect()
            }
            // Those are found otherwise.
            Kind::Path => Vec::new(),
        }
    }
}

fn candidate(value: String, about: String) -> CompletionCandidate {
    let about = crate::render::text::one_line(&about);
    CompletionCandidate::new(value).help((!about.is_empty()).then(|| about.into()))
}

fn forks(names: &Names) -> Vec<CompletionCandidate> {
    let forks = names.forks().into_iter();
    forks
        .map(|fork| {
            let branch = fork.head_branch.unwrap_or(fork.branch);
            let mounted = if fork.mounted { "" } else { ", not mounted" };
            candidate(fork.name.to_string(), format!("{branch}{mounted}"))
        })
        .collect()
}

/// Forks, and once an `@` is typed the snapshots of the one before it.
fn forks_or_snapshots(names: &Names, typed: &str) -> Vec<CompletionCandidate> {
    let Some((fork, _)) = typed.split_once('@') else {
        return forks(names);
    };
    match ForkName::parse(fork) {
        Ok(name) => snapshots(names, &name, &format!("{fork}@")),
        Err(_) => Vec::new(),
    }
}

fn snapshots(names: &Names, fork: &ForkName, before: &str) -> Vec<CompletionCandidate> {
    let snapshots = names.snapshots(fork).into_iter();
    snapshots
        .map(|snapshot| {
            candidate(
                format!("{before}{}", snapshot.name),
                snapshot.message.unwrap_or_default(),
            )
        })
        .collect()
}

fn pristine() -> Vec<CompletionCandidate> {
    vec![candidate(
        "pristine".to_owned(),
        "the fork point".to_owned(),
    )]
}

fn branches(names: &Names) -> Vec<CompletionCandidate> {
    let branches = names.branches().into_iter();
    branches
        .filter_map(|tip| Some(candidate(String::from_utf8(tip.name).ok()?, tip.subject)))
        .collect()
}

/// The paths of the first review that the line names.
fn conflicts(line: &Line, names: &Names) -> Vec<CompletionCandidate> {
    let number = line.before.iter().find_map(|word| word.parse::<u64>().ok());
    let review = names
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
            Some(candidate(path, about.to_owned()))
        })
        .collect()
}

/// Paths of the fork, where it is mounted.
fn paths(line: &Line, names: &Names, dir: &Path, current: &OsStr) -> Vec<CompletionCandidate> {
    match line.fork(names, dir).filter(|fork| fork.mounted) {
        Some(fork) => PathCompleter::any()
            .current_dir(fork.mount_dir)
            .complete(current),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What stands for an argument that names nothing that there is: texts, numbers, files of the
    /// host, choices.
    const OTHERS: [&str; 41] = [
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
        "PATH",
        "SRC",
        "DST",
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

    fn walk(verb: &str, command: &clap::Command, others: &mut BTreeSet<String>) {
        for argument in command.get_arguments() {
            let takes_values = argument.get_action().takes_values();
            let is_chosen = !argument.get_possible_values().is_empty();
            if takes_values && !is_chosen && kind_of(verb, argument).is_none() {
                let words = argument.get_value_names().unwrap_or_default();
                others.extend(words.iter().map(ToString::to_string));
            }
        }
        for command in command.get_subcommands() {
            walk(
                format!("{verb} {}", command.get_name()).trim(),
                command,
                others,
            );
        }
    }

    #[test]
    fn every_argument_that_names_something_is_completed() {
        let mut others = BTreeSet::new();
        walk("", &args::command(), &mut others);
        let unknown: Vec<&String> = others
            .iter()
            .filter(|word| !OTHERS.contains(&word.as_str()))
            .collect();
        assert!(unknown.is_empty(), "what completes {unknown:?}?");
    }

    #[test]
    fn an_argument_called_name_means_what_its_verb_says() {
        let command = args::command();
        let kind = |verb: &str, id: &str| {
            let mut found = &command;
            for word in verb.split(' ') {
                found = found.find_subcommand(word).unwrap();
            }
            let argument = found
                .get_arguments()
                .find(|argument| argument.get_id() == id);
            kind_of(
                verb,
                argument.unwrap_or_else(|| panic!("{verb} has no {id}")),
            )
        };
        assert_eq!(kind("new", "name"), None);
        assert_eq!(kind("new", "from_fork"), Some(Kind::ForkOrSnapshot));
        assert_eq!(kind("new", "from_remote"), Some(Kind::RemoteFork));
        assert_eq!(kind("delete", "fork"), Some(Kind::Fork));
        assert_eq!(kind("snapshot", "name"), Some(Kind::Snapshot));
        assert_eq!(kind("branch delete", "branches"), Some(Kind::Branch));
        assert_eq!(kind("branch create", "branch"), None);
        assert_eq!(kind("round", "session"), Some(Kind::Session));
        assert_eq!(kind("round present", "winner"), Some(Kind::Agent));
        assert_eq!(kind("round present", "label"), None);
        assert_eq!(kind("cherry-pick", "mainline"), None);
        assert_eq!(kind("resolve", "path"), Some(Kind::Conflict));
    }
}
