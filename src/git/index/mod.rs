//! The index of a fork's worktree.
//!
//! Inode numbers, times and owners of base nodes are the same in every fork, so one index serves
//! all forks of a base. It is built once, cached, and copied into each new worktree, and the first
//! `git status` reads no file. It is written in git's version 4 with a TREE extension, and read by
//! the git library.

mod base;
mod lock;
mod readers;
pub(crate) mod removed;
mod staged;
mod stamp;
mod untracked;
mod update;
mod writer;

#[cfg(test)]
mod tests;

pub use self::base::{BaseStat, write_base_index};
pub(super) use self::lock::{IndexLock, locked_by_git, release_stale_at};
pub use self::lock::{PreparedIndex, UpdatedIndex, release_stale_lock};
pub(super) use self::readers::{has_switch_to, is_within, switches_to};
pub use self::removed::{RemovedPath, removed_paths};
pub use self::staged::IndexTree;
pub use self::stamp::{Stamp, write_stamped_index};
pub(super) use self::update::kind_of;
#[cfg(test)]
use self::update::update_index;
pub use self::update::{IndexChange, IndexTarget, KnownState, prepare_index};

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

use gix::bstr::ByteSlice;
use gix::index::entry::Flags;

use super::{GitError, ObjectId, Repository, Worktree};
use tine_path::RepoPath;

/// Maximum depth of a tree that git accepts (`core.maxTreeDepth`'s default).
const MAX_TREE_DEPTH: usize = 2048;

/// Bytes of stack for walking trees of that depth.
///
/// The library's reader of the TREE extension and its counterparts here recurse. Only used stack is
/// allocated.
const DEEP_STACK_LEN: usize = 64 << 20;

/// Runs `work` on a stack that is deep enough for every tree.
///
/// `path` is its index, for errors.
pub(crate) fn on_deep_stack<T: Send>(
    path: &Path,
    work: impl FnOnce() -> Result<T, GitError> + Send,
) -> Result<T, GitError> {
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .name("index".to_owned())
            .stack_size(DEEP_STACK_LEN)
            .spawn_scoped(scope, work)
            .map_err(GitError::io("start a thread for", path))?;
        // Propagate a panic as if there were no thread.
        worker.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Refuses a directory that is too deep for git.
pub(crate) fn check_depth(depth: usize, tree_id: ObjectId) -> Result<(), GitError> {
    if depth <= MAX_TREE_DEPTH {
        return Ok(());
    }
    Err(GitError::CorruptObject {
        id: tree_id,
        reason: format!("its directory is more than {MAX_TREE_DEPTH} levels deep"),
    })
}

/// The state of a path in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracking {
    /// Path without an entry.
    Untracked,
    /// Path with an entry, including conflicts and intents to add.
    Tracked,
    /// Tracked path that the checkout leaves out (`git sparse-checkout`).
    ///
    /// Its absence from the checkout is not a deletion.
    Skipped,
}

/// Looks up `paths` in the worktree's index. A missing index is empty.
///
/// # Errors
/// [`GitError::Io`] or [`GitError::Library`] if the index cannot be read.
pub fn tracked_paths(
    repository: &Repository,
    worktree: &Worktree,
    paths: &[RepoPath],
) -> Result<Vec<Tracking>, GitError> {
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    on_deep_stack(&worktree.index_path(), || {
        let index = read_index(repository, worktree)?;
        Ok(paths
            .iter()
            .map(|path| tracking(&index, path.as_bytes()))
            .collect())
    })
}

/// Lists the entries of the worktree's index at and under `paths`, sorted.
///
/// # Errors
/// [`GitError::Io`] or [`GitError::Library`] if the index cannot be read.
pub fn tracked_below(
    repository: &Repository,
    worktree: &Worktree,
    paths: &[RepoPath],
) -> Result<Vec<RepoPath>, GitError> {
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    on_deep_stack(&worktree.index_path(), || {
        let index = read_index(repository, worktree)?;
        let mut found = BTreeSet::new();
        for path in paths {
            // Skip what sorts between a path and the paths under it: `a-b` is between `a` and
            // `a/b`.
            let prefix = [path.as_bytes(), b"/"].concat();
            for start in [path.as_bytes(), &prefix] {
                let first = index
                    .entries()
                    .partition_point(|entry| entry.path(&index) < start.as_bstr());
                let entries = index.entries().iter().skip(first);
                let names = entries.map(|entry| RepoPath::parse(entry.path(&index).as_bytes()));
                let names = names.map_while(|name| name.ok().filter(|name| name.starts_with(path)));
                found.extend(names);
            }
        }
        Ok(found.into_iter().collect())
    })
}

/// Lists the intents to add (`git add -N`), sorted.
///
/// A tree that is written from the index does not contain them.
///
/// # Errors
/// [`GitError::Io`] or [`GitError::Library`] if the index cannot be read.
pub fn intents_to_add(
    repository: &Repository,
    worktree: &Worktree,
) -> Result<Vec<RepoPath>, GitError> {
    on_deep_stack(&worktree.index_path(), || {
        let index = read_index(repository, worktree)?;
        let intents = index
            .entries()
            .iter()
            .filter(|entry| entry.flags.contains(Flags::INTENT_TO_ADD));
        let paths = intents.filter_map(|entry| RepoPath::parse(entry.path(&index).as_bytes()).ok());
        Ok(paths.collect())
    })
}

fn tracking(index: &gix::index::File, path: &[u8]) -> Tracking {
    match find_entry(index, path) {
        Some(entry) if entry.flags.contains(Flags::SKIP_WORKTREE) => Tracking::Skipped,
        Some(_) => Tracking::Tracked,
        None if is_in_skipped_directory(index, path) => Tracking::Skipped,
        None => Tracking::Untracked,
    }
}

/// Returns whether a sparse index skips a directory above `path`.
fn is_in_skipped_directory(index: &gix::index::File, path: &[u8]) -> bool {
    let slashes = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
    index.is_sparse()
        && slashes
            .map(|(at, _)| &path[..=at])
            .any(|dir| find_entry(index, dir).is_some())
}

fn find_entry<'a>(index: &'a gix::index::File, path: &[u8]) -> Option<&'a gix::index::Entry> {
    let entries = index.entries();
    let at = entries.binary_search_by(|entry| entry.path(index).cmp(path.as_bstr()));
    entries.get(at.ok()?)
}

/// Reads the worktree's index. A missing one is empty.
///
/// Like git, it does not verify the hash.
fn read_index(repository: &Repository, worktree: &Worktree) -> Result<gix::index::File, GitError> {
    let path = worktree.index_path();
    // The library would block on a pipe.
    tine_sys::file::check_regular(&path).map_err(GitError::io("read", &path))?;
    gix::index::File::at_or_default(
        path,
        repository.hash_kind(),
        true,
        gix::index::decode::Options::default(),
    )
    .map_err(GitError::library("read the index"))
}
