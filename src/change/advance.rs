//! Moves a fork's HEAD and view to another commit.
//!
//! Uncommitted changes stay. The branch of HEAD moves to that commit, or HEAD switches to another
//! branch.
//!
//! As in git, the move is refused if it changes a path that has an uncommitted change. It is
//! allowed if both make the same change, or if the caller gives the merged result ([`UpdateStep`]).
//! Other paths of the view are not touched. These are the steps, and what the next daemon finds if
//! the process dies after one:
//!
//! | step | state after a crash, and what the next daemon does |
//! |---|---|
//! | the record names the move | HEAD at the old commit, the old view: it does the rest |
//! | the view changes, in one operation | the new view: it does the rest |
//! | the index changes | the new index: it does the rest |
//! | a new branch is created | the new branch: it does the rest |
//! | HEAD moves | HEAD at the new commit or branch: it updates the record |
//!
//! git's lock of the index is held over all of it.

mod in_the_way;
mod index;

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::thread;

use self::in_the_way::{is_there_as_directory, not_followed};
pub(super) use self::in_the_way::{refuse_in_the_way, staged};
pub use self::index::{IndexState, IndexStep};
use super::changeset::{self, Blobs};
use super::commit::{index_changes, joined, keep_head, refuse_work_of_git};
use super::compare::compare_trees;
use super::point::damaged;
use super::revert::{hold_blobs, hold_trees, is_repository, replacements};
use super::view::stale_as_ref_moved;
use super::{Change, ChangeError, fork_point};
use tine_git::index::{IndexTarget, KnownState, prepare_index};
use tine_git::{GitError, Head, ObjectId, Repository};
use tine_layer::LogPosition;
use tine_merge::{Level, MergeInput, MergeOptions, merge};
use tine_path::RepoPath;
use tine_store::IndexStamp;
use tine_store::{Advancing, Fork, ForkName, ForkRecord, Store};
use tine_sys::pause;
use tine_workspace::{
    Actor, Advance, ApplyOptions, Caller, HeadMove, OperationKind, Replacement, SwitchMove,
    UndoneChanges, UpdateMove,
};

/// Move of HEAD.
#[derive(Debug, Clone)]
pub struct Step {
    /// Commit of HEAD before the move; `None` on an unborn branch.
    pub from: Option<ObjectId>,
    /// Commit of HEAD after the move.
    pub to: ObjectId,
    /// Merged uncommitted changes; `None` leaves them as they are.
    pub update: Option<UpdateStep>,
    /// Switch to another branch, which is at `to`.
    ///
    /// `None` moves the branch that HEAD is on.
    pub switch: Option<SwitchMove>,
    /// Change of the index; `None` plans one that keeps staged changes.
    pub index: Option<IndexStep>,
    /// Message for the reflog of HEAD and its branch.
    pub reflog: String,
    /// Kind of the operation in the journal.
    pub kind: OperationKind,
    /// Operation that this move undoes or redoes; `None` for others.
    pub undoes: Option<UndoneChanges>,
}

/// Change of the view in a move that merges uncommitted changes.
#[derive(Debug, Clone, Copy)]
pub struct UpdateStep {
    /// Tree of the view that the merge started from.
    pub view_from: ObjectId,
    /// Tree of the view after the move.
    pub view_to: ObjectId,
    /// Fork point before the move.
    pub point_from: Option<ObjectId>,
    /// Fork point after the move.
    pub point_to: Option<ObjectId>,
}

impl Step {
    /// Updates the record after the move.
    fn note_done(&self, record: &mut ForkRecord, is_done: bool) {
        record.advancing = None;
        if let Some(update) = self.update.filter(|_| is_done) {
            record.put_fork_point(update.point_to);
        }
    }

    /// Returns the step as the fork's record and journal store it.
    fn head_move(&self) -> HeadMove {
        let hex = |id: Option<ObjectId>| id.map(|id| id.to_string());
        HeadMove {
            from: hex(self.from),
            to: Some(self.to.to_string()),
            update: self.update.map(|update| {
                Box::new(UpdateMove {
                    view_from: update.view_from.to_string(),
                    view_to: update.view_to.to_string(),
                    point_from: hex(update.point_from),
                    point_to: hex(update.point_to),
                })
            }),
            switch: self.switch.clone().map(Box::new),
            index: self.index.as_ref().map(|index| Box::new(index.noted())),
        }
    }

    /// Returns whether HEAD is at a commit and on a switch's branch.
    fn is_at(
        &self,
        head: &Head,
        branch: impl Fn(&SwitchMove) -> Option<&str>,
        id: Option<ObjectId>,
    ) -> bool {
        let is_on = |switch| head.short_branch() == branch(switch);
        head.commit_id() == id && self.switch.as_ref().is_none_or(is_on)
    }

    /// Returns whether HEAD is where the move starts.
    fn starts_at(&self, head: &Head) -> bool {
        self.is_at(head, |switch| switch.from.as_deref(), self.from)
    }

    /// Returns whether HEAD is where the move ends.
    fn ends_at(&self, head: &Head) -> bool {
        self.is_at(head, |switch| switch.to.as_deref(), Some(self.to))
    }

    /// Moves HEAD and its branch, or switches HEAD and creates the branch.
    ///
    /// A branch that was created is deleted if the switch fails.
    fn move_head(&self, repository: &Repository, fork: &Fork) -> Result<(), GitError> {
        let Some(switch) = &self.switch else {
            return repository.advance_head(&fork.worktree, self.from, self.to, &self.reflog);
        };
        let head = repository.head_of(fork.worktree.git_dir())?;
        if !self.starts_at(&head) {
            return Err(GitError::RefMoved {
                name: "HEAD".to_owned(),
            });
        }
        let mut is_new = false;
        if let (Some(branch), Some(reflog)) = (&switch.to, &switch.begins)
            // An existing branch was made by a process that died.
            && repository.branch(branch)? != Some(self.to)
        {
            repository.create_branch(branch, self.to, reflog)?;
            is_new = true;
        }
        let moved = repository.switch_head(&fork.worktree, &head, switch.to.as_deref(), self.to);
        if let (Err(_), true, Some(branch)) = (&moved, is_new, &switch.to)
            && let Err(error) = repository.delete_branch(branch, self.to)
        {
            log::warn!("the branch {branch} stays: {error}");
        }
        moved
    }
}

/// Planned effects of a move.
struct AdvancePlan {
    /// Changes from the old commit to the new one, sorted by path.
    changes: Vec<Change>,
    /// Changes that the view does not have yet.
    open: Vec<Change>,
    /// Position in the layer's log when the view was read.
    since: LogPosition,
    /// Tree of the old commit.
    from_tree: ObjectId,
    /// Tree of the view after the move.
    new_tree: ObjectId,
    /// Tree of the new commit.
    to_tree: ObjectId,
    /// Tree of the view before the move, if it has some changes.
    ///
    /// Undo restores it. `None` if no uncommitted change equals an incoming one.
    followed: Option<ObjectId>,
    /// Index before and after.
    index: IndexStep,
    /// Stamp of the index before it was read.
    index_stamp: Option<IndexStamp>,
}

/// Returns the changes of a move, without moving.
///
/// # Errors
/// The same refusals as [`advance`], except for errors of carrying it out.
pub fn preview(
    repository: &Repository,
    fork: &Fork,
    step: &Step,
) -> Result<Vec<Change>, ChangeError> {
    refuse_work_of_git(repository, fork)?;
    let plan = AdvancePlan::make(repository, fork, step)?;
    refuse_in_the_way(fork, &plan.open)?;
    Ok(plan.changes)
}

/// Returns the tree that a view has after HEAD moved.
///
/// `view_tree` is the view before HEAD moves from one tree to another. `None` if an uncommitted
/// change is in the way.
///
/// # Errors
/// [`ChangeError::Git`] if trees cannot be read or written.
pub fn followed(
    repository: &Repository,
    (from_tree, to_tree): (ObjectId, ObjectId),
    view_tree: ObjectId,
) -> Result<Option<ObjectId>, ChangeError> {
    let changes = compare_trees(repository, from_tree, to_tree)?;
    let local = compare_trees(repository, from_tree, view_tree)?;
    match not_followed(&changes, &local) {
        Ok(open) => {
            let edits: Vec<_> = open.iter().map(Change::edit).collect();
            Ok(Some(repository.edit_tree(view_tree, &edits)?))
        }
        Err(ChangeError::LocalChanges(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Moves HEAD with its branch, all or nothing. Returns the changes.
///
/// # Errors
/// [`ChangeError::LocalChanges`] or [`ChangeError::StagedInTheWay`] if a change is in the way,
/// [`GitError::RefMoved`] if HEAD, view or index changed meanwhile, the refusals of a fork where
/// git is at work or whose branch moved, and the errors of writing.
pub fn advance(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    fork: &Fork,
    by: Actor<'_>,
    step: &Step,
) -> Result<Vec<Change>, ChangeError> {
    refuse_work_of_git(repository, fork)?;
    let plan = AdvancePlan::make(repository, fork, step)?;
    let step = &Step {
        index: plan.staged(),
        update: match (step.update, plan.followed) {
            (None, Some(view_from)) => {
                let point = fork_point::fork_point(repository, &store.record(name)?, step.from)?;
                Some(UpdateStep {
                    view_from,
                    view_to: plan.new_tree,
                    point_from: point,
                    point_to: point,
                })
            }
            (update, _) => update,
        },
        ..step.clone()
    };
    let last = repository.kept_as(name.as_str(), "head")?;
    // Done before the layer names the blobs, and an operation the trees.
    keep_head(repository, name, step.to)?;
    if let Some(update) = step.update {
        hold_trees(
            repository,
            name,
            [
                (update.view_from, plan.from_tree),
                (update.view_to, plan.to_tree),
            ],
        )?;
    }
    if let Some(IndexStep { from, to }) = &step.index {
        let trees = [(from.tree_id, plan.from_tree), (to.tree_id, plan.to_tree)];
        hold_trees(repository, name, trees)?;
    }
    let begun = Advancing {
        moved: step.head_move(),
        reflog: step.reflog.clone(),
        command: by.command.to_owned(),
    };
    store.update_record(name, |record| record.advancing = Some(begun))?;
    let moved = plan.carry_out(repository, name, fork, by, step);
    // A leftover entry in the record only causes another look at the fork.
    if let Err(error) = store.update_record(name, |record| step.note_done(record, moved.is_ok())) {
        log::warn!("{name}: {error}");
    }
    moved?;
    let is_update = step.update.is_some() && plan.followed.is_none();
    if (!is_update || step.switch.is_some())
        && let Err(error) = fork_point::follow(store, repository, name, last.or(step.from), step.to)
    {
        log::warn!("{name}: the fork point is not brought along: {error}");
    }
    Ok(plan.changes)
}

/// Finishes a move that a process began before it died.
///
/// # Errors
/// [`ChangeError::Store`] if the record is damaged, and the errors of [`advance`].
pub fn finish(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    fork: &Fork,
) -> Result<(), ChangeError> {
    let Some(begun) = store.record(name)?.advancing else {
        return Ok(());
    };
    let id = |hex: &String| ObjectId::from_hex(hex.as_bytes()).map_err(damaged(name));
    let optional = |hex: &Option<String>| hex.as_ref().map(id).transpose();
    let Some(to) = optional(&begun.moved.to)? else {
        return Err(damaged(name)("HEAD is to move nowhere"));
    };
    let update = match &begun.moved.update {
        None => None,
        Some(update) => Some(UpdateStep {
            view_from: id(&update.view_from)?,
            view_to: id(&update.view_to)?,
            point_from: optional(&update.point_from)?,
            point_to: optional(&update.point_to)?,
        }),
    };
    let mut step = Step {
        from: optional(&begun.moved.from)?,
        to,
        update,
        reflog: begun.reflog,
        kind: match (&begun.moved.switch, update) {
            (Some(_), _) => OperationKind::Switch,
            (None, Some(_)) => OperationKind::Update,
            (None, None) => OperationKind::Merge,
        },
        switch: begun.moved.switch.map(|switch| *switch),
        index: None,
        undoes: None,
    };
    let head = repository.head_of(fork.worktree.git_dir())?;
    if step.starts_at(&head) && !step.ends_at(&head) {
        if let Some(switch) = &mut step.switch {
            detach_head_if_taken(repository, switch, to)?;
        }
        step.index = IndexStep::begun(
            repository,
            fork,
            (step.from, to),
            begun.moved.index.as_deref(),
        )?;
        let plan = AdvancePlan::make(repository, fork, &step)?;
        let attrs = fork.workspace.base_attrs();
        let by = Actor {
            caller: Caller::new(attrs.uid, attrs.gid),
            command: &begun.command,
        };
        plan.carry_out(repository, name, fork, by, &step)?;
        log::info!("{name}: what was begun is done: HEAD is {}", step.to);
    }
    let is_done = step.ends_at(&repository.head_of(fork.worktree.git_dir())?);
    match &step.switch {
        _ if !is_done => {}
        Some(switch) => {
            let (from, to) = (switch.from.as_deref(), switch.to.as_deref());
            repository.finish_switch(&fork.worktree, (from, step.from), (to, step.to))?;
        }
        None => repository.finish_advance(&fork.worktree, step.from, step.to, &step.reflog)?,
    }
    store.update_record(name, |record| step.note_done(record, is_done))?;
    Ok(())
}

/// Returns whether the newest operation in the journal is this step.
///
/// It is if a process changed the view and was killed before it finished the step.
fn is_in_journal(fork: &Fork, step: &Step) -> Result<bool, ChangeError> {
    let newest = fork.workspace.operations(1)?.into_iter().next();
    let moved = step.head_move();
    Ok(newest.is_some_and(|(operation, _)| {
        operation.changes.iter().any(|change| match change {
            tine_workspace::FileChange::Advanced(noted) => {
                (&noted.from, &noted.to, &noted.switch) == (&moved.from, &moved.to, &moved.switch)
            }
            _ => false,
        })
    }))
}

/// Detaches HEAD if another process moved or checked out the branch.
///
/// It may have done so since the switch was planned.
fn detach_head_if_taken(
    repository: &Repository,
    switch: &mut SwitchMove,
    to: ObjectId,
) -> Result<(), ChangeError> {
    let Some(branch) = &switch.to else {
        return Ok(());
    };
    if switch.begins.is_some() {
        // The process may have died while it held the lock.
        repository.release_stale_branch_lock(branch)?;
    }
    let is_there = match repository.branch(branch)? {
        None => switch.begins.is_some(),
        Some(tip) => tip == to,
    };
    if !is_there || repository.checked_out_at(branch)?.is_some() {
        log::warn!("the branch {branch} is elsewhere by now: HEAD is detached at {to}");
        switch.to = None;
    }
    Ok(())
}

impl UpdateStep {
    /// Plans the way back of an update, keeping later changes.
    ///
    /// The update changed the view from one tree to another.
    ///
    /// # Errors
    /// [`ChangeError::LocalChanges`] if a later change is in the way.
    pub fn back(
        repository: &Repository,
        fork: &Fork,
        (view_from, view_to): (ObjectId, ObjectId),
        (point_from, point_to): (Option<ObjectId>, Option<ObjectId>),
    ) -> Result<UpdateStep, ChangeError> {
        let local = changeset::changeset(repository, fork, Blobs::Write)?;
        let now = changeset::write_tree(repository, &local)?;
        let then = without_change(repository, now, (view_from, view_to))?
            .map_err(ChangeError::LocalChanges)?;
        Ok(UpdateStep {
            view_from: now,
            view_to: then,
            point_from: point_to,
            point_to: point_from,
        })
    }
}

/// Returns the tree `now` without the change from `from` to `to`.
///
/// Later changes stay. `Err` has the conflicting paths.
fn without_change(
    repository: &Repository,
    now: ObjectId,
    (from, to): (ObjectId, ObjectId),
) -> Result<Result<ObjectId, Vec<RepoPath>>, ChangeError> {
    let input = MergeInput {
        base: Some(to),
        ours: now,
        theirs: from,
        allow_unrelated: false,
    };
    let options = MergeOptions {
        level: Level::Path,
        ..MergeOptions::default()
    };
    let merged = merge(repository, &input, &options)?;
    Ok(if merged.conflicts.is_empty() {
        Ok(merged.tree_id)
    } else {
        Err(merged
            .conflicts
            .into_iter()
            .map(|conflict| conflict.path)
            .collect())
    })
}

impl AdvancePlan {
    /// Plans a step, and refuses uncommitted changes in the way.
    fn make(repository: &Repository, fork: &Fork, step: &Step) -> Result<AdvancePlan, ChangeError> {
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
    fn carry_out(
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
        let put = |replacements: &[Replacement], kind: OperationKind, advance: Advance, since| {
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
                put(&forth, step.kind, forward, Some(self.since)).map(drop)
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
                let back = self.take_back(repository, fork);
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
                let back = back.and_then(|replacements| put(&replacements, kind, advance, None));
                if let Err(error) = back {
                    log::error!("the view is ahead of HEAD: {error}");
                }
            }
            moved
        })
    }

    /// Returns the change of the index; `None` if nothing is ever staged.
    fn staged(&self) -> Option<IndexStep> {
        let is_clean = |state: &IndexState, tree_id| *state == IndexState::clean(tree_id);
        let is_clean =
            is_clean(&self.index.from, self.from_tree) && is_clean(&self.index.to, self.to_tree);
        (!is_clean).then(|| self.index.clone())
    }

    /// Returns the replacements from the new view to the old one.
    fn take_back(
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
