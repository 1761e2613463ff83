//! The index of a fork when HEAD moves: staged changes stay staged.
//!
//! | a staged path | its entry after the move |
//! |---|---|
//! | HEAD's move does not change it | unchanged |
//! | staged as the file is | as the file is after the move, incoming changes merged in |
//! | staged, and the file has further changes | staged and incoming merged, as for a file; a conflict stops the move |
//! | intended to be added | unchanged, unless the new HEAD has the path |
//!
//! Going back restores the earlier entry, and keeps what was staged since.

use std::collections::BTreeSet;

use super::in_the_way::not_followed;
use super::{Step, followed, without_change};
use crate::compare::compare_trees;
use crate::{Change, ChangeError};
use tine_git::commit::TreeChange;
use tine_git::index::{IndexTree, intents_to_add};
use tine_git::{GitError, ObjectId, Repository, TreeEntry, TreeEntryKind};
use tine_merge::{MergeInput, MergeOptions, merge};
use tine_path::RepoPath;
use tine_path::text::PathText;
use tine_store::Fork;
use tine_workspace::{IndexContent, IndexMove};

/// Content of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexState {
    /// Tree that a commit of the index would have.
    pub tree_id: ObjectId,
    /// Paths that are intended to be added, sorted.
    pub intents: Vec<RepoPath>,
}

/// Index before and after a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexStep {
    /// Index before the move.
    pub from: IndexState,
    /// Index after the move.
    pub to: IndexState,
}

impl IndexState {
    /// Reads the index of a fork.
    ///
    /// # Errors
    /// [`ChangeError::LocalChanges`] if it has paths in conflict.
    pub fn of(repository: &Repository, fork: &Fork) -> Result<IndexState, ChangeError> {
        match repository.index_tree(&fork.worktree)? {
            IndexTree::Whole(tree_id) => Ok(IndexState {
                tree_id,
                intents: intents_to_add(repository, &fork.worktree)?,
            }),
            IndexTree::Unmerged(paths) => Err(ChangeError::LocalChanges(paths)),
        }
    }

    pub(super) fn clean(tree_id: ObjectId) -> IndexState {
        IndexState {
            tree_id,
            intents: Vec::new(),
        }
    }

    fn content(&self) -> IndexContent {
        IndexContent {
            tree: self.tree_id.to_string(),
            intents: self.intents.iter().map(PathText::from).collect(),
        }
    }

    fn read(content: &IndexContent) -> Result<IndexState, GitError> {
        let path = |text: &PathText| RepoPath::parse(text.to_bytes());
        let intents = content.intents.iter().map(path).collect::<Result<_, _>>();
        Ok(IndexState {
            tree_id: ObjectId::from_hex(content.tree.as_bytes())
                .map_err(GitError::library("read an id"))?,
            intents: intents.map_err(GitError::library("read a path"))?,
        })
    }
}

impl IndexStep {
    /// Reads a step from the record of a fork.
    ///
    /// # Errors
    /// [`GitError`] if an id or path is invalid.
    pub fn read(noted: &IndexMove) -> Result<IndexStep, GitError> {
        Ok(IndexStep {
            from: IndexState::read(&noted.from)?,
            to: IndexState::read(&noted.to)?,
        })
    }

    /// Returns the index step of a move that a process began.
    ///
    /// The process died. `from` and `to` are the commits of the move. `None` if the index is
    /// neither in the state before nor in the state after.
    pub(super) fn begun(
        repository: &Repository,
        fork: &Fork,
        (from, to): (Option<ObjectId>, ObjectId),
        noted: Option<&IndexMove>,
    ) -> Result<Option<IndexStep>, ChangeError> {
        let begun = match noted {
            Some(noted) => IndexStep::read(noted)?,
            // Nothing was staged.
            None => {
                let from_tree = repository.tree_of(from)?;
                IndexStep {
                    from: IndexState::clean(from_tree),
                    to: IndexState::clean(repository.commit_info(to)?.tree_id),
                }
            }
        };
        let now = IndexState::of(repository, fork)?;
        Ok((now == begun.from || now.tree_id == begun.to.tree_id).then_some(begun))
    }

    pub(super) fn noted(&self) -> IndexMove {
        IndexMove {
            from: self.from.content(),
            to: self.to.content(),
        }
    }

    /// Plans the way back of a step, keeping later staged changes.
    ///
    /// # Errors
    /// [`ChangeError::StagedInTheWay`] if a later staged change is in the way.
    pub fn back(
        repository: &Repository,
        fork: &Fork,
        done: &IndexStep,
    ) -> Result<IndexStep, ChangeError> {
        let now = IndexState::of(repository, fork)?;
        let trees = (done.from.tree_id, done.to.tree_id);
        let tree_id =
            without_change(repository, now.tree_id, trees)?.map_err(ChangeError::StagedInTheWay)?;
        let intents: BTreeSet<&RepoPath> = now.intents.iter().chain(&done.from.intents).collect();
        let intents = intents.into_iter().cloned().collect();
        Ok(IndexStep {
            from: now,
            to: IndexState { tree_id, intents },
        })
    }

    /// Plans the index of a move from one tree to another.
    ///
    /// `changes` lead from one tree to the other. `view` has the trees of the view before and
    /// after, if uncommitted changes are merged along.
    ///
    /// # Errors
    /// [`ChangeError::LocalChanges`] if a staged change is in the way,
    /// [`ChangeError::StagedInTheWay`] if `view` is given. [`GitError::RefMoved`] if `step` names
    /// an index state and the index is in neither that state nor the one after.
    pub(super) fn plan(
        repository: &Repository,
        fork: &Fork,
        step: &Step,
        trees: (ObjectId, ObjectId),
        changes: &[Change],
        view: Option<(ObjectId, ObjectId)>,
    ) -> Result<IndexStep, ChangeError> {
        let from = IndexState::of(repository, fork)?;
        if let Some(known) = &step.index {
            // A process that died may have changed the index already.
            let is_known = from == known.from || from.tree_id == known.to.tree_id;
            return if is_known {
                Ok(known.clone())
            } else {
                Err(moved())
            };
        }
        let staged = compare_trees(repository, trees.0, from.tree_id)?;
        let tree_id = match view {
            None => {
                not_followed(changes, &staged)?;
                let edits: Vec<_> = staged.iter().map(Change::edit).collect();
                repository.edit_tree(trees.1, &edits)?
            }
            Some(view) => merge_uncommitted(repository, trees, from.tree_id, &staged, view)?,
        };
        let to = IndexState {
            tree_id,
            intents: from.intents.clone(),
        };
        Ok(IndexStep { from, to })
    }

    /// Refuses if the index is not at either end of the step.
    pub(super) fn refuse_moved(
        &self,
        repository: &Repository,
        fork: &Fork,
    ) -> Result<(), ChangeError> {
        let now = IndexState::of(repository, fork)?;
        if now == self.from || now.tree_id == self.to.tree_id {
            Ok(())
        } else {
            Err(moved())
        }
    }
}

fn moved() -> ChangeError {
    let name = "the index".to_owned();
    GitError::RefMoved { name }.into()
}

/// Returns the index tree after uncommitted changes are merged along.
///
/// `index_tree` is the index before, and `staged` its changes against `from_tree`.
fn merge_uncommitted(
    repository: &Repository,
    (from_tree, to_tree): (ObjectId, ObjectId),
    index_tree: ObjectId,
    staged: &[Change],
    (view_from, view_to): (ObjectId, ObjectId),
) -> Result<ObjectId, ChangeError> {
    if staged.is_empty() {
        return Ok(to_tree);
    }
    if index_tree == view_from {
        return Ok(view_to);
    }
    let (merged_tree, conflicts) = match followed(repository, (from_tree, to_tree), index_tree)? {
        Some(tree_id) => (tree_id, Vec::new()),
        None => {
            let input = MergeInput {
                base: Some(from_tree),
                ours: index_tree,
                theirs: to_tree,
                allow_unrelated: false,
            };
            let merged = merge(repository, &input, &MergeOptions::default())?;
            (merged.tree_id, merged.conflicts)
        }
    };
    // A path that is staged as the file is was merged with the file.
    let mut as_files = BTreeSet::new();
    for change in staged {
        let file = repository.tree_entry(view_from, &change.path)?;
        if file.as_ref().and_then(entry_of) == change.new.as_ref().map(|side| (side.kind, side.id))
        {
            as_files.insert(&change.path);
        }
    }
    let mut in_the_way = BTreeSet::new();
    for conflict in &conflicts {
        let staged = staged.iter().map(|change| &change.path);
        let mut own = staged
            .filter(|path| conflict.paths.contains(path))
            .peekable();
        match own.peek() {
            Some(_) => in_the_way.extend(own.filter(|path| !as_files.contains(path)).cloned()),
            None => {
                in_the_way.insert(conflict.path.clone());
            }
        }
    }
    let mut edits = Vec::new();
    let paths: BTreeSet<&RepoPath> = conflicts
        .iter()
        .flat_map(|conflict| &conflict.paths)
        .collect();
    for path in paths.union(&as_files) {
        let there = repository.tree_entry(merged_tree, path)?;
        let is_directory = |entry: &TreeEntry| entry.kind == TreeEntryKind::Directory;
        let file = repository.tree_entry(view_to, path)?;
        match (there.as_ref(), file.as_ref()) {
            // Files in a directory are paths themselves.
            (_, Some(file)) if is_directory(file) => {}
            (Some(there), None) if is_directory(there) => {}
            (Some(there), Some(_)) if is_directory(there) => {
                in_the_way.insert((*path).clone());
            }
            (_, file) => edits.push(TreeChange {
                path: (*path).clone(),
                new: file.and_then(entry_of),
            }),
        }
    }
    for path in edits
        .iter()
        .filter(|edit| edit.new.is_some())
        .map(|edit| &edit.path)
    {
        for above in path.directories_above() {
            let entry = repository.tree_entry(merged_tree, &above)?;
            if entry.is_some_and(|entry| entry.kind != TreeEntryKind::Directory) {
                in_the_way.insert(path.clone());
            }
        }
    }
    if in_the_way.is_empty() {
        Ok(repository.edit_tree(merged_tree, &edits)?)
    } else {
        Err(ChangeError::StagedInTheWay(
            in_the_way.into_iter().collect(),
        ))
    }
}

/// Returns kind and id of an entry that is not a directory.
fn entry_of(entry: &TreeEntry) -> Option<(TreeEntryKind, ObjectId)> {
    (entry.kind != TreeEntryKind::Directory).then_some((entry.kind, entry.id))
}
