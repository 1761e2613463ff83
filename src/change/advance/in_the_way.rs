//! Changes and files that prevent a fork from moving.
//!
//! They are uncommitted changes, and files that are in no changeset.

use std::collections::{BTreeMap, BTreeSet};

use crate::changeset::Side;
use crate::compare::compare_trees;
use crate::revert::is_repository;
use crate::{Change, ChangeError};
use tine_attr::FileKind;
use tine_git::index::IndexTree;
use tine_git::{ObjectId, Repository, TreeEntryKind};
use tine_path::{EntryName, RepoPath};
use tine_store::Fork;
use tine_workspace::{FsError, OperationError};

/// Returns whether the change is of a submodule shown as a directory.
///
/// Its commit is then known from HEAD or from the submodule's repository.
pub(super) fn is_there_as_directory(fork: &Fork, change: &Change) -> bool {
    let is_gitlink = |side: &Side| side.kind == TreeEntryKind::Submodule;
    let is_directory = || {
        let attr = fork.workspace.resolve(&change.path);
        attr.is_ok_and(|attr| attr.kind == FileKind::Directory)
    };
    is_repository(fork, change) || change.new.as_ref().is_some_and(is_gitlink) && is_directory()
}

/// Returns the index's changes against the tree of HEAD.
pub(crate) fn staged(
    repository: &Repository,
    fork: &Fork,
    head_tree: ObjectId,
) -> Result<Vec<Change>, ChangeError> {
    match repository.index_tree(&fork.worktree)? {
        IndexTree::Whole(tree_id) => Ok(compare_trees(repository, head_tree, tree_id)?),
        IndexTree::Unmerged(paths) => Err(ChangeError::LocalChanges(paths)),
    }
}

/// Returns the changes that the view does not have yet.
///
/// # Errors
/// [`ChangeError::LocalChanges`] if an uncommitted change would be overwritten.
pub(super) fn not_followed(
    changes: &[Change],
    local: &[Change],
) -> Result<Vec<Change>, ChangeError> {
    let (incoming, uncommitted) = (by_path(changes), by_path(local));
    let is_there = |change: &&Change| change.new.is_some();
    let mut in_the_way = BTreeSet::new();
    let mut open = Vec::new();
    for change in changes {
        match uncommitted.get(&change.path) {
            Some(local) if local.new == change.new => continue,
            Some(_) => {
                in_the_way.insert(change.path.clone());
            }
            None => open.push(change.clone()),
        }
        // An uncommitted file is where the change needs a directory.
        if change.new.is_some() {
            let above = change
                .path
                .directories_above()
                .filter_map(|path| uncommitted.get(&path).copied())
                .filter(is_there);
            in_the_way.extend(above.map(|local| local.path.clone()));
        }
    }
    for local in local.iter().filter(is_there) {
        let is_in_the_way = local
            .path
            .directories_above()
            .filter_map(|path| incoming.get(&path))
            .any(|change| change.new.is_some());
        if is_in_the_way {
            in_the_way.insert(local.path.clone());
        }
    }
    if in_the_way.is_empty() {
        Ok(open)
    } else {
        Err(ChangeError::LocalChanges(in_the_way.into_iter().collect()))
    }
}

fn by_path(changes: &[Change]) -> BTreeMap<&RepoPath, &Change> {
    changes
        .iter()
        .map(|change| (&change.path, change))
        .collect()
}

/// Refuses if a path in no changeset is in the way.
///
/// It may be an ignored file, a fifo or a repository. The view refuses the change as well. This
/// check is for callers that must know before.
pub(crate) fn refuse_in_the_way(fork: &Fork, open: &[Change]) -> Result<(), ChangeError> {
    let removed: BTreeSet<&RepoPath> = open
        .iter()
        .filter(|change| change.old.is_some())
        .map(|change| &change.path)
        .collect();
    for change in open.iter().filter(|change| change.new.is_some()) {
        let is_taken =
            |path: &RepoPath, kind| kind != FileKind::Directory && !removed.contains(path);
        let above = change.path.directories_above().map(|path| (false, path));
        for (is_place, path) in above.chain([(true, change.path.clone())]) {
            let kind = match fork.workspace.resolve(&path) {
                Ok(attr) => attr.kind,
                Err(FsError::NotFound | FsError::NotADirectory) => continue,
                Err(error) => return Err(error.into()),
            };
            let is_in_the_way = match (is_place, kind) {
                // Files below it belong to that repository.
                (false, FileKind::Directory) => has_dot_git(fork, &path)?,
                (true, FileKind::Directory) => !is_empty_without(fork, &path, &removed)?,
                _ => is_taken(&path, kind),
            };
            if is_in_the_way {
                return Err(OperationError::InTheWay(path).into());
            }
        }
    }
    Ok(())
}

/// Returns whether `dir` is the root of a git repository.
fn has_dot_git(fork: &Fork, dir: &RepoPath) -> Result<bool, ChangeError> {
    match fork.workspace.resolve(&dir.join(&EntryName::dot_git())) {
        Ok(_) => Ok(true),
        Err(FsError::NotFound | FsError::NotADirectory) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether only directories remain without `removed`.
fn is_empty_without(
    fork: &Fork,
    dir: &RepoPath,
    removed: &BTreeSet<&RepoPath>,
) -> Result<bool, ChangeError> {
    let mut rest = vec![dir.clone()];
    while let Some(dir) = rest.pop() {
        for (name, kind, _) in fork.workspace.list_path(&dir)? {
            let path = dir.join(&name);
            match kind {
                FileKind::Directory => rest.push(path),
                _ if removed.contains(&path) => {}
                _ => return Ok(false),
            }
        }
    }
    Ok(true)
}
