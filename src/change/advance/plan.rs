//! Planned effects of a move, and their execution.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::thread;

use super::in_the_way::{is_there_as_directory, not_followed};
use super::{IndexState, IndexStep, Step};
use crate::changeset::{self, Blobs};
use crate::commit::{index_changes, joined};
use crate::compare::compare_trees;
use crate::revert::{hold_blobs, is_repository, replacements};
use crate::view::stale_as_ref_moved;
use crate::{Change, ChangeError};
use tine_git::index::{IndexTarget, KnownState, prepare_index};
use tine_git::{GitError, ObjectId, Repository};
use tine_layer::LogPosition;
use tine_path::RepoPath;
use tine_store::{Fork, ForkName, IndexStamp};
use tine_sys::pause;
use tine_workspace::{
    Actor, Advance, ApplyOptions, FileChange, OperationKind, Replacement, UndoneChanges,
};

/// Planned effects of a move.
pub(super) struct AdvancePlan {
    /// Changes from the old commit to the new one, sorted by path.
    pub changes: Vec<Change>,
    /// Changes that the view does not have yet.
    pub open: Vec<Change>,
    /// Position in the layer's log when the view was read.
    since: LogPosition,
    /// Tree of the old commit.
    pub from_tree: ObjectId,
    /// Tree of the view after the move.
    pub new_tree: ObjectId,
    /// Tree of the new commit.
    pub to_tree: ObjectId,
    /// Tree of the view before the move, if it has some changes.
    ///
    /// Undo restores it. `None` if no uncommitted change equals an incoming one.
    pub followed: Option<ObjectId>,
    /// Index before and after.
    index: IndexStep,
    /// Stamp of the index before it was read.
    index_stamp: Option<IndexStamp>,
}

impl AdvancePlan {
    /// Plans a step, and refuses uncommitted changes in the way.
    pub(super) fn make(
        repository: &Repository,
        fork: &Fork,
        step: &Step,
    ) -> Result<AdvancePlan, ChangeError> {
        let from_tree = repository.tree_of(step.from)?;
        let to_tree = repository.commit_info(step.to)?.tree_id;
        let changes = compare_trees(repository, from_tree, to_tree)?;
        let since = fork.workspace.position();
        let index_stamp = IndexStamp::of(&fork.worktree.index_path());
        let local = changeset::changeset(repository, fork, Blobs::Write)?;
        if local.head_commit != step.from {
            return Err(GitError::RefMoved {
                name: "HEAD".to_owned(),
            }
            .into());
        }
        let view_tree = changeset::write_tree(repository, &local)?;
        let (open, new_tree, followed) = match step.update {
            None => {
                let open = not_followed(&changes, &local.changes)?;
                let edits: Vec<_> = open.iter().map(Change::edit).collect();
                let new_tree = repository.edit_tree(view_tree, &edits)?;
                let is_followed = open.len() < changes.len();
                (open, new_tree, is_followed.then_some(view_tree))
            }
            Some(update) => {
                let mut open = compare_trees(repository, view_tree, update.view_to)?;
                if view_tree != update.view_from {
                    // A repeated move may have changed the view already.
                    open.retain(|change| !is_there_as_directory(fork, change));
                    if !open.is_empty() {
                        return Err(GitError::RefMoved {
                            name: "the view".to_owned(),
                        }
                        .into());
                    }
                }
                (open, update.view_to, None)
            }
        };
        let views = step.update.map(|update| (update.view_from, update.view_to));
        let index = IndexStep::plan(
            repository,
            fork,
            step,
            (from_tree, to_tree),
            &changes,
            views,
        )?;
        // The commit of a submodule is not the fork's concern.
        let open = open
            .into_iter()
            .filter(|change| !is_repository(fork, change))
            .collect();
        Ok(AdvancePlan {
            changes,
            open,
            since,
            from_tree,
            new_tree,
            to_tree,
            followed,
            index,
            index_stamp,
        })
    }

    /// Changes view, index and HEAD in this order, under the index lock.
    ///
    /// If index or HEAD cannot follow, the view is rolled back.
    pub(super) fn execute(
        &self,
        repository: &Repository,
        name: &ForkName,
        fork: &Fork,
        by: Actor<'_>,
        step: &Step,
    ) -> Result<(), ChangeError> {
        let forth = replacements(repository, fork, &self.open, self.new_tree)?;
        // The layer is about to name its blobs, and git does not sync what it writes.
        repository.sync_tree(self.to_tree, self.from_tree)?;
        repository.sync_tree(self.index.to.tree_id, self.to_tree)?;
        let uncommitted = match step.update {
            None => BTreeSet::new(),
            Some(_) => {
                let uncommitted = compare_trees(repository, self.to_tree, self.new_tree)?;
                uncommitted.into_iter().map(|change| change.path).collect()
            }
        };
        let is_uncommitted = |path: &RepoPath| uncommitted.contains(path);
        hold_blobs(
            repository,
            name,
            forth
                .iter()
                .filter(|replacement| is_uncommitted(&replacement.path)),
            None,
        )?;
        let beginning = fork.workspace.beginning();
        let beginning = KnownState {
            token: &beginning,
            changed: fork.workspace.base_attrs().change_time(),
            // The fork may have other layers then, whose log does not know earlier tokens.
            is_known: &|_| false,
        };
        let apply = |replacements: &[Replacement], kind: OperationKind, advance: Advance, since| {
            let options = ApplyOptions {
                force: false,
                kind: Some(kind),
                advance: Some(advance),
                since,
            };
            let applied = fork.workspace.apply(by, replacements, &options);
            applied.map_err(stale_as_ref_moved)
        };
        let forward = Advance {
            moved: step.head_move(),
            undoes: step.undoes.clone(),
        };
        let is_in_journal = forth.is_empty() && is_in_journal(fork, step)?;
        thread::scope(|scope| {
            let (locked, is_locked) = mpsc::sync_channel(1);
            let (send_target, target) = mpsc::sync_channel(1);
            let target = move || {
                // The receiver learns of a failure from the end of the thread.
                let _ = locked.send(());
                target
                    .recv()
                    .map_err(GitError::library("learn the new tree"))
            };
            let index =
                scope.spawn(|| prepare_index(repository, &fork.worktree, Some(&beginning), target));
            if is_locked.recv().is_err() {
                // The thread ends without asking for the target only if it failed.
                return joined(index).map(drop).map_err(ChangeError::from);
            }
            pause::at("before-view");
            // A git process that had the lock before may have staged something.
            if IndexStamp::of(&fork.worktree.index_path()) != self.index_stamp {
                self.index.refuse_moved(repository, fork)?;
            }
            let applied = if is_in_journal {
                Ok(())
            } else {
                apply(&forth, step.kind, forward, Some(self.since)).map(drop)
            };
            if applied.is_ok() {
                let _ = send_target.send(IndexTarget {
                    tree_id: self.index.to.tree_id,
                    changes: index_changes(
                        fork,
                        self.changes
                            .iter()
                            .filter(|change| !is_uncommitted(&change.path)),
                    ),
                    intents: self.index.to.intents.clone(),
                });
            }
            drop(send_target);
            let prepared = joined(index);
            applied?;
            let moved = prepared.map_err(ChangeError::from).and_then(|prepared| {
                fork.workspace.sync()?;
                let updated = prepared.put_in_place()?;
                if let Err(error) = step.move_head(repository, fork) {
                    updated.undo();
                    return Err(error.into());
                }
                pause::at("head-moved");
                updated.finish(&fork.worktree);
                Ok(())
            });
            if moved.is_err() {
                let back = self.replacements_back(repository, fork);
                // A rollback must not be undone a second time.
                let undoes = fork.workspace.operations(1).ok().and_then(|newest| {
                    let (operation, _) = newest.into_iter().next()?;
                    Some(UndoneChanges {
                        operation: operation.id,
                        changes: (0_u32..).zip(&operation.changes).map(|(n, _)| n).collect(),
                    })
                });
                let kind = match step.kind {
                    OperationKind::Undo => OperationKind::Redo,
                    _ => OperationKind::Undo,
                };
                let advance = Advance {
                    moved: step.head_move().reversed(),
                    undoes,
                };
                let back = back.and_then(|replacements| apply(&replacements, kind, advance, None));
                if let Err(error) = back {
                    log::error!("the view is ahead of HEAD: {error}");
                }
            }
            moved
        })
    }

    /// Returns the change of the index; `None` if nothing is ever staged.
    pub(super) fn staged(&self) -> Option<IndexStep> {
        let is_clean = |state: &IndexState, tree_id| *state == IndexState::clean(tree_id);
        let is_clean =
            is_clean(&self.index.from, self.from_tree) && is_clean(&self.index.to, self.to_tree);
        (!is_clean).then(|| self.index.clone())
    }

    /// Returns the replacements from the new view to the old one.
    fn replacements_back(
        &self,
        repository: &Repository,
        fork: &Fork,
    ) -> Result<Vec<Replacement>, ChangeError> {
        let back: Vec<Change> = self
            .open
            .iter()
            .map(|change| Change {
                path: change.path.clone(),
                old: change.new.clone(),
                new: change.old.clone(),
                attr: None,
            })
            .collect();
        let edits: Vec<_> = back.iter().map(Change::edit).collect();
        let old_tree = repository.edit_tree(self.new_tree, &edits)?;
        replacements(repository, fork, &back, old_tree)
    }
}

/// Returns whether the newest operation in the journal is this step.
///
/// It is if a process changed the view and was killed before it finished the step.
fn is_in_journal(fork: &Fork, step: &Step) -> Result<bool, ChangeError> {
    let newest = fork.workspace.operations(1)?.into_iter().next();
    let moved = step.head_move();
    Ok(newest.is_some_and(|(operation, _)| {
        operation.changes.iter().any(|change| match change {
            FileChange::Advanced(noted) => {
                (&noted.from, &noted.to, &noted.switch) == (&moved.from, &moved.to, &moved.switch)
            }
            _ => false,
        })
    }))
}
