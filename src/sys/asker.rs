//! Which process asked for what this thread does. One that this process runs, a hook of git's, must
//! not wait for a lock for long: a request that has the lock may be waiting for the hook.

use std::cell::Cell;
use std::fs;
use std::time::Duration;

/// How long a program that this process runs waits for a lock.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// How many parents are looked at.
const MAX_DEPTH: usize = 64;

thread_local! {
    static ASKER: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Runs `run` for the process `pid`.
pub fn serve<T>(pid: u32, run: impl FnOnce() -> T) -> T {
    let before = ASKER.replace(Some(pid));
    let result = run();
    ASKER.set(before);
    result
}

/// Whether what this thread does was asked for by a program that this process runs, at any depth.
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
    // The name in parentheses may hold anything; after it come the state and the parent.
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
