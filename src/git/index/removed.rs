//! Paths of a tree that a worktree's index lacks.

use std::ops::Range;

use gix::bstr::ByteSlice;
use gix::index::State;
use gix::index::extension::Tree;

use super::{check_depth, on_deep_stack, read_index};
use crate::{GitError, ObjectId, Repository, TreeEntry, TreeEntryKind, Worktree};
use tine_path::RepoPath;

/// A path that the index lacks, with the tree's entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedPath {
    /// Path in the tree.
    pub path: RepoPath,
    /// Mode in the tree.
    pub kind: TreeEntryKind,
    /// Object id in the tree.
    pub id: ObjectId,
}

/// Lists the paths that `git rm --cached` took out of the index.
///
/// These are the files, symlinks and gitlinks of the tree `tree_id` without an entry in the
/// worktree's index. Conflicts and intents to add count as entries. A directory is not read if the
/// index knows its tree id. A sparse index, which leaves out whole directories, gives an empty
/// list.
///
/// # Errors
/// [`GitError::Io`] or [`GitError::Library`] if the index cannot be read; fails if a tree cannot be
/// read.
pub fn removed_paths(
    repository: &Repository,
    worktree: &Worktree,
    tree_id: ObjectId,
) -> Result<Vec<RemovedPath>, GitError> {
    on_deep_stack(&worktree.index_path(), || {
        let index = read_index(repository, worktree)?;
        let mut search = Search {
            repository,
            index: &index,
            removed: Vec::new(),
        };
        if !index.is_sparse() {
            search.directory(
                &RepoPath::root(),
                tree_id,
                0..index.entries().len(),
                index.tree(),
            )?;
        }
        Ok(search.removed)
    })
}

struct Search<'a> {
    repository: &'a Repository,
    index: &'a gix::index::File,
    removed: Vec<RemovedPath>,
}

impl Search<'_> {
    /// Searches the directory `dir`.
    ///
    /// `range` are the entries under it, and `cached` is the TREE node for it.
    fn directory(
        &mut self,
        dir: &RepoPath,
        tree_id: ObjectId,
        range: Range<usize>,
        cached: Option<&Tree>,
    ) -> Result<(), GitError> {
        if cached.is_some_and(|tree| tree.id == tree_id && tree.num_entries.is_some()) {
            return Ok(());
        }
        check_depth(dir.components().count(), tree_id)?;
        for TreeEntry { name, kind, id } in self.repository.read_tree(tree_id)? {
            let path = dir.join(&name);
            if kind == TreeEntryKind::Directory {
                let entries_under = entries_under(self.index, &path, range.clone());
                let child = |tree: &&Tree| tree.name[..] == *name.as_bytes();
                let below = cached.and_then(|tree| tree.children.iter().find(child));
                self.directory(&path, id, entries_under, below)?;
            } else if !self.has(&path, range.clone()) {
                self.removed.push(RemovedPath { path, kind, id });
            }
        }
        Ok(())
    }

    fn has(&self, path: &RepoPath, range: Range<usize>) -> bool {
        let entries = &self.index.entries()[range];
        let path = path.as_bytes().as_bstr();
        entries
            .binary_search_by(|entry| entry.path(self.index).cmp(path))
            .is_ok()
    }
}

/// Returns the part of `range` with the entries under `dir`.
pub(crate) fn entries_under(index: &State, dir: &RepoPath, range: Range<usize>) -> Range<usize> {
    let prefix = [dir.as_bytes(), b"/"].concat();
    let entries = &index.entries()[range.clone()];
    let start = entries.partition_point(|entry| entry.path(index) < prefix);
    let len = entries[start..].partition_point(|entry| entry.path(index).starts_with(&prefix));
    range.start + start..range.start + start + len
}
