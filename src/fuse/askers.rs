//! Detection of programs that record files, such as git.
//!
//! They must not see text that is shown but not saved.

use std::fs;
use std::path::Path;

/// Number of ancestors that are checked. The result is unknown past that.
const MAX_DEPTH: usize = 256;
/// Number of attempts, each after a process ended during the one before.
const TRIES: usize = 3;

/// Names of programs other than git that record files.
const RECORDERS: [&str; 5] = ["gitui", "gix", "ein", "jj", "sl"];

/// Process as described by `/proc`.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    /// Process ID.
    pid: u32,
    /// Process ID of the parent; 0 if it is not visible.
    parent: u32,
    /// Name of the executable, and command name, which may be a script's.
    names: [Option<String>; 2],
}

impl Process {
    /// Reads the process of a thread.
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

    /// Returns whether the program records files.
    fn records_files(&self) -> bool {
        self.names.iter().flatten().any(|name| is_recorder(name))
    }
}

/// Returns the value of a field of `/proc/<pid>/status`.
pub(super) fn status_field<'a>(status: &'a str, field: &str) -> Option<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.trim())
}

/// Returns whether a name is that of git or another recorder.
///
/// Git's names include `git-lfs`, `git.real` and `.git-wrapped`.
fn is_recorder(name: &str) -> bool {
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let after_git = name.trim_start_matches('.').strip_prefix("git");
    let is_git = after_git.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphabetic()));
    is_git || RECORDERS.contains(&name)
}

/// Returns whether the process of a thread gets the saved content.
///
/// It does if it is an editor, or if it or an ancestor records files. A child of git, such as a
/// filter or hook, may record on behalf of git. Also true if this cannot be determined.
pub(super) fn gets_saved_content(thread: u32, is_editor: impl Fn(u32) -> bool) -> bool {
    if thread == 0 {
        // The process is in a PID namespace that is not below ours, or there is none.
        return true;
    }
    (0..TRIES)
        .find_map(|_| try_gets_saved_content(thread, &is_editor))
        .unwrap_or(true)
}

/// Makes one attempt; `None` if a process ended meanwhile.
fn try_gets_saved_content(thread: u32, is_editor: &impl Fn(u32) -> bool) -> Option<bool> {
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

/// Returns the process and its visible ancestors.
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
        assert!(gets_saved_content(0, |_| false));
        assert!(gets_saved_content(u32::MAX, |_| false));
    }

    #[test]
    fn an_editor_sees_what_is_saved() {
        let own = std::process::id();
        assert!(gets_saved_content(own, |pid| pid == own));
    }
}
