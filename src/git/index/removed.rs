//! What a worktree's index has let go of though a tree has it.

use std::ops::Range;

use gix::bstr::ByteSlice;
use gix::index::extension::Tree;

use super::{check_depth, on_deep_stack, read_index};
use crate::{GitError, LinkedWorktree, ObjectId, Repository, TreeEntry, TreeEntryKind};
use tine_path::RepoPath;

/// A path that the index lacks, and what the tree has there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedPath {
    pub path: RepoPath,
    pub kind: TreeEntryKind,
    pub id: ObjectId,
}

/// The files, symlinks and gitlinks of the tree `tree_id` that the worktree's index has no entry
/// for, conflicts and intentions to add included: what `git rm --cached` took out of it.
/// Directories that the index knows to be the tree's own are not read. A sparse index, which leaves
/// out whole directories, has let go of nothing.
pub fn removed_paths(
    repository: &Repository,
    worktree: &LinkedWorktree,
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
    /// `range` are the entries beneath `dir`, `cached` is what the index says of its tree.
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
                let beneath = self.beneath(&path, range.clone());
                let child = |tree: &&Tree| tree.name[..] == *name.as_bytes();
                let below = cached.and_then(|tree| tree.children.iter().find(child));
                self.directory(&path, id, beneath, below)?;
            } else if !self.has(&path, range.clone()) {
                self.removed.push(RemovedPath { path, kind, id });
            }
        }
        Ok(())
    }

    /// Where the entries beneath the directory `dir` are in `range`.
    fn beneath(&self, dir: &RepoPath, range: Range<usize>) -> Range<usize> {
        let prefix = [dir.as_bytes(), b"/"].concat();
        let entries = &self.index.entries()[range.clone()];
        let start = entries.partition_point(|entry| entry.path(self.index) < prefix);
        let len =
            entries[start..].partition_point(|entry| entry.path(self.index).starts_with(&prefix));
        range.start + start..range.start + start + len
    }

    fn has(&self, path: &RepoPath, range: Range<usize>) -> bool {
        let entries = &self.index.entries()[range];
        let path = path.as_bytes().as_bstr();
        entries
            .binary_search_by(|entry| entry.path(self.index).cmp(path))
            .is_ok()
    }
}
