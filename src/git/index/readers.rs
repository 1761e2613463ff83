//! git processes that may restore an old index.
//!
//! `git commit`, `git merge` and some others read the index before they lock it, and write what
//! they read. Suppose that one reads before tine replaces the index, and locks after tine has
//! released the lock. It restores the old index: the files that tine added are then untracked, and
//! the next commit removes them from the branch. tine therefore holds the lock until those
//! processes have ended. They find the index locked and stop, as when two git commands meet.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tine_sys::process::{ProcessId, is_waiting_for_child};

/// Maximum time to hold the lock.
///
/// Between reading and locking, git only compares the files with the index.
const TIMEOUT: Duration = Duration::from_secs(2);

const INTERVAL: Duration = Duration::from_millis(2);

/// Subcommands that run for long and never write an index.
const NEVER_WRITE_INDEX: [&[u8]; 18] = [
    b"blame",
    b"cat-file",
    b"daemon",
    b"fetch",
    b"fsmonitor--daemon",
    b"gc",
    b"grep",
    b"index-pack",
    b"log",
    b"maintenance",
    b"pack-objects",
    b"prune",
    b"push",
    b"receive-pack",
    b"repack",
    b"rev-list",
    b"show",
    b"upload-pack",
];

/// Waits for the git processes in `checkout_dir` that are running now.
///
/// Those that wait for a child (an editor, a pager, a hook) have written their index already. The
/// caller holds the lock of the index. Blocks for at most two seconds.
pub(super) fn wait_for_readers(checkout_dir: &Path) {
    let deadline = Instant::now() + TIMEOUT;
    let mut readers = readers(checkout_dir);
    loop {
        readers.retain(|reader| reader.is_running() && !is_waiting_for_child(reader.pid()));
        if readers.is_empty() {
            return;
        }
        if Instant::now() >= deadline {
            let dir = checkout_dir.display();
            log::info!("{dir}: git was at work when the index was replaced, and still is");
            return;
        }
        thread::sleep(INTERVAL);
    }
}

/// Returns whether a git process may be switching a checkout to `branch`.
///
/// git has locked the index of `checkout_dir`. The arguments of such a process name the branch
/// (short name) or an earlier checkout, or it is a command that ends on the branch where it began
/// (`rebase`, `bisect`, `pull`).
pub(crate) fn has_switch_to(checkout_dir: &Path, branch: &str) -> bool {
    let ends_there: [&[u8]; 3] = [b"rebase", b"bisect", b"pull"];
    let is_switch = |line: &[u8]| names(line, branch) || has_word(line, &ends_there);
    !processes(checkout_dir, is_switch).is_empty()
}

/// Returns the directories of git processes that switch to `branch`.
///
/// These are `git switch` or `checkout` with the branch (short name) or an earlier checkout as an
/// argument. It looks at each process of the machine once.
pub(crate) fn switches_to(branch: &str) -> Vec<PathBuf> {
    let verbs: [&[u8]; 2] = [b"switch", b"checkout"];
    let is_switch = |proc_dir: &Path| {
        is_git(proc_dir, |line| {
            has_word(line, &verbs) && names(line, branch)
        })
    };
    let current_dir =
        |process: ProcessId| fs::read_link(format!("/proc/{}/cwd", process.pid())).ok();
    ProcessId::all_where(is_switch)
        .into_iter()
        .filter_map(current_dir)
        .collect()
}

/// Returns whether a command line names `branch` or an earlier checkout.
///
/// `branch` is a short name.
fn names(command_line: &[u8], branch: &str) -> bool {
    let full_name = format!("refs/heads/{branch}");
    let is_earlier = |word: &[u8]| word.starts_with(b"@{-");
    has_word(
        command_line,
        &[branch.as_bytes(), full_name.as_bytes(), b"-"],
    ) || words(command_line).any(is_earlier)
}

fn has_word(command_line: &[u8], wanted: &[&[u8]]) -> bool {
    words(command_line).any(|word| wanted.contains(&word))
}

fn words(command_line: &[u8]) -> impl Iterator<Item = &[u8]> {
    command_line.split(|byte| *byte == 0)
}

/// Lists the git processes in `checkout_dir` that may write its index.
fn readers(checkout_dir: &Path) -> Vec<ProcessId> {
    processes(checkout_dir, may_write_index)
}

/// Lists the git processes in `checkout_dir` with a matching command line.
///
/// It reads only links in `/proc`, and nothing in a mount.
fn processes(checkout_dir: &Path, has_line: impl Fn(&[u8]) -> bool) -> Vec<ProcessId> {
    let is_in_there = |proc_dir: &Path| {
        fs::read_link(proc_dir.join("cwd")).is_ok_and(|cwd| is_within(&cwd, checkout_dir))
    };
    ProcessId::all_where(|proc_dir| is_git(proc_dir, &has_line) && is_in_there(proc_dir))
}

/// Returns whether a process is a git with a matching command line.
///
/// `proc_dir` is its directory in `/proc`.
fn is_git(proc_dir: &Path, has_line: impl Fn(&[u8]) -> bool) -> bool {
    fs::read(proc_dir.join("comm")).is_ok_and(|name| name == b"git\n")
        && fs::read(proc_dir.join("cmdline")).is_ok_and(|line| has_line(&line))
}

/// Returns whether a process's resolved current directory is in the checkout.
pub(crate) fn is_within(dir: &Path, checkout_dir: &Path) -> bool {
    dir.starts_with(checkout_dir)
        || resolved(checkout_dir).is_some_and(|root| dir.starts_with(root))
}

/// Resolves the symlinks above a directory.
///
/// The directory itself may be a mount, and is not accessed.
fn resolved(dir: &Path) -> Option<PathBuf> {
    let parent = dir.parent()?.canonicalize().ok()?;
    Some(parent.join(dir.file_name()?))
}

fn may_write_index(command_line: &[u8]) -> bool {
    !has_word(command_line, &NEVER_WRITE_INDEX)
}
