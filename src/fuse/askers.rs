//! Which programs ask for files to record what they hold. What is shown and not saved is not for
//! them.

use std::fs;
use std::path::Path;

/// How many processes above each other are looked at. Past that nobody is known.
const MAX_DEPTH: usize = 256;
/// How often the look is begun again, when a process ends meanwhile.
const TRIES: usize = 3;

/// Programs that record files in a git repository and have no name like git's.
const RECORDERS: [&str; 5] = ["gitui", "gix", "ein", "jj", "sl"];

/// What `/proc` tells of a process.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    /// 0 where there is none that can be seen.
    parent: u32,
    /// Of its program, and as it calls itself: a script has its own here.
    names: [Option<String>; 2],
}

impl Process {
    /// That of any of its threads.
    fn of(thread: u32) -> Option<Process> {
        let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
        let number = |field: &str| status_field(&status, field)?.parse::<u32>().ok();
        let pid = number("Tgid:")?;
        let command = fs::read_to_string(format!("/proc/{pid}/comm")).ok();
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok();
        Some(Process {
            pid,
            parent: number("PPid:")?,
            names: [
                program
                    .as_deref()
                    .and_then(Path::file_name)
                    .map(|name| name.to_string_lossy().into_owned()),
                command.map(|command| command.trim_end().to_owned()),
            ],
        })
    }

    fn records_files(&self) -> bool {
        self.names.iter().flatten().any(|name| is_recorder(name))
    }
}

fn status_field<'a>(status: &'a str, field: &str) -> Option<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.trim())
}

/// `git`, `git-lfs`, `git.real`, `.git-wrapped`, and those that are known otherwise.
fn is_recorder(name: &str) -> bool {
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let after_git = name.trim_start_matches('.').strip_prefix("git");
    let is_git = after_git.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphabetic()));
    is_git || RECORDERS.contains(&name)
}

/// Whether the process of a thread is an editor, or it or one of those above it records files: what
/// git starts (a filter, a hook) may record in its name. Also true where that cannot be found out.
pub(super) fn sees_what_is_saved(thread: u32, is_editor: impl Fn(u32) -> bool) -> bool {
    if thread == 0 {
        // Of a PID namespace that is not beneath ours, or nobody.
        return true;
    }
    (0..TRIES)
        .find_map(|_| look(thread, &is_editor))
        .unwrap_or(true)
}

/// `None` where a process has ended meanwhile.
fn look(thread: u32, is_editor: &impl Fn(u32) -> bool) -> Option<bool> {
    let mut process = Process::of(thread)?;
    if is_editor(process.pid) {
        return Some(true);
    }
    for _ in 0..MAX_DEPTH {
        if process.records_files() {
            return Some(true);
        }
        if process.parent == 0 {
            return Some(false);
        }
        process = Process::of(process.parent)?;
    }
    None
}

/// The process and those above it, as far as they can be seen.
pub fn process_and_above(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut next = pid;
    while next != 0 && found.len() < MAX_DEPTH {
        let Some(process) = Process::of(next) else {
            break;
        };
        found.push(process.pid);
        next = process.parent;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_is_known_by_any_of_its_names() {
        for name in [
            "git",
            "git-lfs",
            "git-remote-https",
            "git.real",
            ".git-wrapped",
            "git2.47",
            "git (deleted)",
            "jj",
            "gitui",
        ] {
            assert!(is_recorder(name), "{name}");
        }
        for name in ["cat", "gitlab-runner", "digit", "legit", "github-cli", ""] {
            assert!(!is_recorder(name), "{name}");
        }
    }

    #[test]
    fn a_process_is_found_with_those_above_it() {
        let own = std::process::id();
        let chain = process_and_above(own);
        assert_eq!(chain.first(), Some(&own));
        assert!(chain.len() > 1, "somebody runs the tests");
        assert!(process_and_above(0).is_empty());
    }

    #[test]
    fn who_cannot_be_known_sees_what_is_saved() {
        assert!(sees_what_is_saved(0, |_| false));
        assert!(sees_what_is_saved(u32::MAX, |_| false));
    }

    #[test]
    fn an_editor_sees_what_is_saved() {
        let own = std::process::id();
        assert!(sees_what_is_saved(own, |pid| pid == own));
    }
}
