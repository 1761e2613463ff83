//! The index of a fork when HEAD moves: staged changes stay staged.
//!
//! | a staged path | its entry afterwards |
//! |---|---|
//! | nothing comes to it | as it was |
//! | staged as the file is | as the file is then, with what comes merged into it |
//! | staged, and the file goes on from there | both merged, as for a file; a conflict keeps HEAD from moving |
//! | intended to be added | as it was, unless HEAD has the path then |
//!
//! Going back gives it as it was before, with what was staged since.

use std::collections::BTreeSet;

use super::in_the_way::not_followed;
use super::{Step, followed, taken_back};
use crate::compare::compare_trees;
use crate::{Change, ChangeError};
use tine_git::commit::TreeChange;
use tine_git::index::{IndexTree, intents_to_add};
use tine_git::{GitError, ObjectId, Repository, TreeEntry, TreeEntryKind};
use tine_merge::{MergeInput, MergeOptions, merge};
use tine_path::RepoPath;
use tine_path::text::PathText;
use tine_workspace::{Fork, IndexContent, IndexMove};

/// The content of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexState {
    /// What a commit would be made of.
    pub tree_id: ObjectId,
    /// Paths that are intended to be added, sorted.
    pub intents: Vec<RepoPath>,
}

/// An index before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexStep {
    pub from: IndexState,
    pub to: IndexState,
}

impl IndexState {
    /// What the fork's index has.
    ///
    /// # Errors
    /// [`ChangeError::LocalChanges`] where paths in it are in conflict.
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
    /// What was noted of it.
    pub fn read(noted: &IndexMove) -> Result<IndexStep, GitError> {
        Ok(IndexStep {
            from: IndexState::read(&noted.from)?,
            to: IndexState::read(&noted.to)?,
        })
    }

    /// The step between the trees of these commits that a process which died had begun; `None`
    /// where the index is neither as before nor as after.
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

    /// The way back of a step that was done: what was staged since stays.
    ///
    /// # Errors
    /// [`ChangeError::StagedInTheWay`] where that is in the way.
    pub fn back(
        repository: &Repository,
        fork: &Fork,
        done: &IndexStep,
    ) -> Result<IndexStep, ChangeError> {
        let now = IndexState::of(repository, fork)?;
        let trees = (done.from.tree_id, done.to.tree_id);
        let tree_id =
            taken_back(repository, now.tree_id, trees)?.map_err(ChangeError::StagedInTheWay)?;
        let intents: BTreeSet<&RepoPath> = now.intents.iter().chain(&done.from.intents).collect();
        let intents = intents.into_iter().cloned().collect();
        Ok(IndexStep {
            from: now,
            to: IndexState { tree_id, intents },
        })
    }

    /// What the index comes to in a step from one tree to another by these changes. With the trees
    /// of the view before and after, where what is uncommitted is merged along.
    ///
    /// # Errors
    /// [`ChangeError::LocalChanges`] where something staged is in the way, with `view`
    /// [`ChangeError::StagedInTheWay`]; [`GitError::RefMoved`] where the index is neither as before
    /// nor as after a step that says what it is.
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
            // A process that died may have come as far as the index.
            return match from == known.from || from.tree_id == known.to.tree_id {
                true => Ok(known.clone()),
                false => Err(moved()),
            };
        }
        let staged = compare_trees(repository, trees.0, from.tree_id)?;
        let tree_id = match view {
            None => {
                not_followed(changes, &staged)?;
                let edits: Vec<_> = staged.iter().map(Change::edit).collect();
                repository.edit_tree(trees.1, &edits)?
            }
            Some(view) => merged_along(repository, trees, from.tree_id, &staged, view)?,
        };
        let to = IndexState {
            tree_id,
            intents: from.intents.clone(),
        };
        Ok(IndexStep { from, to })
    }

    /// Refuses where the index has become another one than the step begins with.
    pub(super) fn refuse_moved(
        &self,
        repository: &Repository,
        fork: &Fork,
    ) -> Result<(), ChangeError> {
        let now = IndexState::of(repository, fork)?;
        match now == self.from || now.tree_id == self.to.tree_id {
            true => Ok(()),
            false => Err(moved()),
        }
    }
}

fn moved() -> ChangeError {
    let name = "the index".to_owned();
    GitError::RefMoved { name }.into()
}

/// The tree of the index `index_tree`, in which these changes are `staged`, when what is
/// uncommitted is merged along.
fn merged_along(
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
    // What is staged as the file is has been merged with it.
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
            // What is in a directory is at paths of its own.
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
    match in_the_way.is_empty() {
        true => Ok(repository.edit_tree(merged_tree, &edits)?),
        false => Err(ChangeError::StagedInTheWay(
            in_the_way.into_iter().collect(),
        )),
    }
}

/// What stands at a path that is no directory.
fn entry_of(entry: &TreeEntry) -> Option<(TreeEntryKind, ObjectId)> {
    (entry.kind != TreeEntryKind::Directory).then_some((entry.kind, entry.id))
}
