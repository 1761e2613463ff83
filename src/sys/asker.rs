//! The process on whose request the current thread works.
//!
//! A program that this process runs, such as a git hook, must not wait long for a lock: a request
//! that holds the lock may be waiting for the hook.

use std::cell::Cell;
use std::fs;
use std::time::Duration;

/// Longest wait for a lock by a program of this process.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Number of ancestors that are checked.
const MAX_DEPTH: usize = 64;

thread_local! {
    /// Process ID of the asker, while [`serve`] runs.
    static ASKER: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Runs `run` on behalf of the process `pid`.
pub fn serve<T>(pid: u32, run: impl FnOnce() -> T) -> T {
    let before = ASKER.replace(Some(pid));
    let result = run();
    ASKER.set(before);
    result
}

/// Returns whether the asker is a descendant of this process.
///
/// False if no asker is set.
pub fn is_own_program() -> bool {
    ASKER.get().is_some_and(is_descendant)
}

fn is_descendant(pid: u32) -> bool {
    let own = std::process::id();
    let mut pid = pid;
    for _ in 0..MAX_DEPTH {
        match parent_of(pid) {
            Some(parent) if parent == own => return true,
            Some(parent) if parent > 1 => pid = parent,
            _ => return false,
        }
    }
    false
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold any byte. The state and the parent follow it.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_program_that_this_process_runs_is_told_from_others() {
        assert!(!is_own_program(), "nobody asked");
        assert!(!serve(1, is_own_program));
        assert!(
            !serve(std::process::id(), is_own_program),
            "a thread of its own"
        );
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(serve(child.id(), is_own_program));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!is_own_program());
    }
}
