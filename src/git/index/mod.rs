//! The index of a fork's worktree.
//!
//! Because inode numbers, times and owners of base nodes are the same in every fork, one index serves all forks of a
//! base: it is built once, cached, and copied into each new worktree, and the first `git status` reads no file. Written
//! in git's version 4 with a TREE extension; read through the git library.

mod base;
mod update;
mod writer;

#[cfg(test)]
mod tests;

pub use self::base::{BaseStat, write_base_index};
pub use self::update::{IndexChange, update_index};

use gix::bstr::ByteSlice;

use super::{GitError, LinkedWorktree, Repository};
use crate::path::RepoPath;

/// Those of `paths` that the worktree's index holds (a missing index holds none). A path in conflict counts, and one
/// that is only intended to be added.
pub fn tracked_paths(
    repository: &Repository,
    worktree: &LinkedWorktree,
    paths: &[RepoPath],
) -> Result<Vec<bool>, GitError> {
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let index = read_index(repository, worktree)?;
    Ok(paths
        .iter()
        .map(|path| {
            let path = path.as_bytes().as_bstr();
            let found = index
                .entries()
                .binary_search_by(|entry| entry.path(&index).cmp(path));
            found.is_ok()
        })
        .collect())
}

/// Reads the worktree's index; a missing one is empty. Its hash is not checked, as git does not check it either.
fn read_index(repository: &Repository, worktree: &LinkedWorktree) -> Result<gix::index::File, GitError> {
    gix::index::File::at_or_default(
        worktree.index_path(),
        repository.hash_kind(),
        true,
        gix::index::decode::Options::default(),
    )
    .map_err(GitError::library("read the index"))
}
