//! The index of a fork's worktree.
//!
//! Because inode numbers, times and owners of base nodes are the same in every fork, one index
//! serves all forks of a base: it is built once, cached, and copied into each new worktree, and the
//! first `git status` reads no file. Written in git's version 4 with a TREE extension; read through
//! the git library.

mod base;
mod lock;
mod readers;
mod removed;
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

use super::{GitError, LinkedWorktree, ObjectId, Repository};
use tine_path::RepoPath;

/// git refuses trees that are deeper (`core.maxTreeDepth`'s default).
const MAX_TREE_DEPTH: usize = 2048;

/// Bytes of stack for walking trees of that depth, which the library's reader of the TREE extension
/// and its kin here do by recursion. Only what is used is ever allocated.
const DEEP_STACK_LEN: usize = 64 << 20;

/// Runs `work` on a stack that is deep enough for every tree that git takes. `path` is the index it
/// is for.
fn on_deep_stack<T: Send>(
    path: &Path,
    work: impl FnOnce() -> Result<T, GitError> + Send,
) -> Result<T, GitError> {
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .name("index".to_owned())
            .stack_size(DEEP_STACK_LEN)
            .spawn_scoped(scope, work)
            .map_err(GitError::io("start a thread for", path))?;
        // A panic goes on where it would have without the thread.
        worker.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Refuses a directory that is too deep for git.
fn check_depth(depth: usize, tree_id: ObjectId) -> Result<(), GitError> {
    if depth <= MAX_TREE_DEPTH {
        return Ok(());
    }
    Err(GitError::CorruptObject {
        id: tree_id,
        reason: format!("its directory is more than {MAX_TREE_DEPTH} levels deep"),
    })
}

/// What an index says of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracking {
    Untracked,
    /// A path in conflict counts, and one that is only intended to be added.
    Tracked,
    /// Tracked, and not wanted in the checkout (`git sparse-checkout`): missing there it is no
    /// deletion.
    Skipped,
}

/// What the worktree's index says of `paths`; a missing index holds none.
pub fn tracked_paths(
    repository: &Repository,
    worktree: &LinkedWorktree,
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

/// What the worktree's index has at and beneath `paths`, sorted.
pub fn tracked_beneath(
    repository: &Repository,
    worktree: &LinkedWorktree,
    paths: &[RepoPath],
) -> Result<Vec<RepoPath>, GitError> {
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    on_deep_stack(&worktree.index_path(), || {
        let index = read_index(repository, worktree)?;
        let mut found = BTreeSet::new();
        for path in paths {
            // What sorts between a path and what is beneath it is passed over: `a-b` is between `a`
            // and `a/b`.
            let beneath = [path.as_bytes(), b"/"].concat();
            for start in [path.as_bytes(), &beneath] {
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

/// The paths that are intended to be added (`git add -N`), sorted: no tree that is made of the
/// index has them.
pub fn intents_to_add(
    repository: &Repository,
    worktree: &LinkedWorktree,
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
        None if is_beneath_skipped_directory(index, path) => Tracking::Skipped,
        None => Tracking::Untracked,
    }
}

/// Whether one entry of a sparse index stands for a directory above `path`.
fn is_beneath_skipped_directory(index: &gix::index::File, path: &[u8]) -> bool {
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

/// Reads the worktree's index; a missing one is empty. Its hash is not checked, as git does not
/// check it either.
fn read_index(
    repository: &Repository,
    worktree: &LinkedWorktree,
) -> Result<gix::index::File, GitError> {
    let path = worktree.index_path();
    // The library would wait at a pipe.
    tine_sys::file::check_regular(&path).map_err(GitError::io("read", &path))?;
    gix::index::File::at_or_default(
        path,
        repository.hash_kind(),
        true,
        gix::index::decode::Options::default(),
    )
    .map_err(GitError::library("read the index"))
}
