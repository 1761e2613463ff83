//! Moves a fork's HEAD and its view to another commit, and keeps uncommitted changes. The branch of
//! HEAD moves to that commit, or HEAD switches to another branch.
//!
//! As in git, the move is refused if it changes a path that has an uncommitted change. It is
//! allowed if both make the same change, or if the caller gives the merged result
//! ([`UpdateStep`]). Other paths of the view are not touched. The steps, and what a process that
//! dies leaves behind:
//!
//! | step | found by the next daemon |
//! |---|---|
//! | the record says what is about to be done | HEAD at the old commit, the old view: it does the rest |
//! | the view follows, in one operation | the new view: it does the rest |
//! | the index follows | likewise |
//! | a branch that is to be made is made | likewise |
//! | HEAD moves | HEAD at the new commit, or on the new branch: nothing is left but to say so in the record |
//!
//! Git's lock of the index is held over all of it.

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
use super::view::unless_the_view_moved;
use super::{Change, ChangeError, fork_point};
use tine_git::index::{IndexTarget, KnownState, prepare_index};
use tine_git::{GitError, Head, ObjectId, Repository};
use tine_layer::LogPosition;
use tine_merge::{Level, MergeInput, MergeOptions, merge};
use tine_path::RepoPath;
use tine_sys::pause;
use tine_workspace::store::IndexStamp;
use tine_workspace::{
    Actor, Advance, Advancing, ApplyOptions, Caller, Fork, ForkName, ForkRecord, HeadMove,
    OperationKind, Replacement, Store, SwitchMove, Undoes, UpdateMove,
};

/// Where HEAD goes.
#[derive(Debug, Clone)]
pub struct Step {
    /// Where it is; `None` on a branch without a commit.
    pub from: Option<ObjectId>,
    pub to: ObjectId,
    /// Default: what is uncommitted stays as it is.
    pub update: Option<UpdateStep>,
    /// Default: the branch that HEAD is on moves. Else HEAD is put on another one, which is at
    /// `to`.
    pub switch: Option<SwitchMove>,
    /// Default: what is staged stays so.
    pub index: Option<IndexStep>,
    pub reflog: String,
    pub kind: OperationKind,
    /// What this takes back, or does again.
    pub undoes: Option<Undoes>,
}

/// What becomes of uncommitted changes that HEAD's move is about, too.
#[derive(Debug, Clone, Copy)]
pub struct UpdateStep {
    /// The view as whoever merged it saw it: a tree.
    pub view_from: ObjectId,
    pub view_to: ObjectId,
    /// Where the fork's own commits begin, before and after.
    pub point_from: Option<ObjectId>,
    pub point_to: Option<ObjectId>,
}

impl Step {
    /// What the record says when the move is over.
    fn note_done(&self, record: &mut ForkRecord, is_done: bool) {
        record.advancing = None;
        if let Some(update) = self.update.filter(|_| is_done) {
            record.put_fork_point(update.point_to);
        }
    }

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

    /// Whether HEAD is where the move begins, or where it ends.
    fn is_at(
        &self,
        head: &Head,
        branch: impl Fn(&SwitchMove) -> Option<&str>,
        id: Option<ObjectId>,
    ) -> bool {
        let is_on = |switch| head.short_branch() == branch(switch);
        head.commit_id() == id && self.switch.as_ref().is_none_or(is_on)
    }

    fn is_ahead_of(&self, head: &Head) -> bool {
        self.is_at(head, |switch| switch.from.as_deref(), self.from)
    }

    fn is_done_at(&self, head: &Head) -> bool {
        self.is_at(head, |switch| switch.to.as_deref(), Some(self.to))
    }

    fn move_head(&self, repository: &Repository, fork: &Fork) -> Result<(), GitError> {
        let Some(switch) = &self.switch else {
            return repository.advance_head(&fork.worktree, self.from, self.to, &self.reflog);
        };
        let head = repository.head_of(fork.worktree.git_dir())?;
        if !self.is_ahead_of(&head) {
            return Err(GitError::RefMoved {
                name: "HEAD".to_owned(),
            });
        }
        let mut is_new = false;
        if let (Some(branch), Some(reflog)) = (&switch.to, &switch.begins)
            // One that is there was made by a process that died then.
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

/// What follows a move.
struct Plan {
    /// From the old commit to the new one, sorted by path.
    changes: Vec<Change>,
    /// Those that the view has not followed yet.
    open: Vec<Change>,
    /// When the view was looked at.
    since: LogPosition,
    /// The tree of the old commit.
    from_tree: ObjectId,
    /// The tree that the view will be.
    new_tree: ObjectId,
    /// The tree of the new commit.
    to_tree: ObjectId,
    /// The tree of the view before the move, where uncommitted changes are the same as changes that
    /// come: undo restores them.
    followed: Option<ObjectId>,
    index: IndexStep,
    /// The stamp of the index before it was read.
    index_stamp: Option<IndexStamp>,
}

/// What moving would change; fails where moving would.
pub fn preview(
    repository: &Repository,
    fork: &Fork,
    step: &Step,
) -> Result<Vec<Change>, ChangeError> {
    refuse_work_of_git(repository, fork)?;
    let plan = Plan::make(repository, fork, step)?;
    refuse_in_the_way(fork, &plan.open)?;
    Ok(plan.changes)
}

/// Returns the tree of the view `view_tree` after HEAD moved from one tree to another, or `None` if
/// an uncommitted change is in the way.
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

/// Moves HEAD with its branch, all or nothing; what changed.
pub fn advance(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    fork: &Fork,
    by: Actor<'_>,
    step: &Step,
) -> Result<Vec<Change>, ChangeError> {
    refuse_work_of_git(repository, fork)?;
    let plan = Plan::make(repository, fork, step)?;
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
    // Before the layer names its blobs, and an operation its trees.
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
    // A record that stays leads to nothing worse than looking at it again.
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

/// Does the rest of a move that was begun by a process that died.
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
    if step.is_ahead_of(&head) && !step.is_done_at(&head) {
        if let Some(switch) = &mut step.switch {
            stand_by_itself_if_taken(repository, switch, to)?;
        }
        step.index = IndexStep::begun(
            repository,
            fork,
            (step.from, to),
            begun.moved.index.as_deref(),
        )?;
        let plan = Plan::make(repository, fork, &step)?;
        let attrs = fork.workspace.base_attrs();
        let by = Actor {
            caller: Caller::new(attrs.uid, attrs.gid),
            command: &begun.command,
        };
        plan.carry_out(repository, name, fork, by, &step)?;
        log::info!("{name}: what was begun is done: HEAD is {}", step.to);
    }
    let is_done = step.is_done_at(&repository.head_of(fork.worktree.git_dir())?);
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

/// Returns true if the newest operation in the journal is this step: a process changed the view and
/// was killed before it finished the step.
fn is_noted(fork: &Fork, step: &Step) -> Result<bool, ChangeError> {
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

/// Detaches HEAD if another process moved or checked out the branch since the switch was planned.
fn stand_by_itself_if_taken(
    repository: &Repository,
    switch: &mut SwitchMove,
    to: ObjectId,
) -> Result<(), ChangeError> {
    let Some(branch) = &switch.to else {
        return Ok(());
    };
    if switch.begins.is_some() {
        // The process may have died with it.
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
    /// The way back of an update whose view went from one tree to another: what was changed since
    /// stays.
    ///
    /// # Errors
    /// [`ChangeError::LocalChanges`] where that is in the way.
    pub fn back(
        repository: &Repository,
        fork: &Fork,
        (view_from, view_to): (ObjectId, ObjectId),
        (point_from, point_to): (Option<ObjectId>, Option<ObjectId>),
    ) -> Result<UpdateStep, ChangeError> {
        let local = changeset::changeset(repository, fork, Blobs::Write)?;
        let now = changeset::write_tree(repository, &local)?;
        let then = taken_back(repository, now, (view_from, view_to))?
            .map_err(ChangeError::LocalChanges)?;
        Ok(UpdateStep {
            view_from: now,
            view_to: then,
            point_from: point_to,
            point_to: point_from,
        })
    }
}

/// The tree `now` without the step from `from` to `to`, and with what changed since; `Err` has the
/// paths in which the two conflict.
fn taken_back(
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
    Ok(match merged.conflicts.is_empty() {
        true => Ok(merged.tree_id),
        false => Err(merged
            .conflicts
            .into_iter()
            .map(|conflict| conflict.path)
            .collect()),
    })
}

impl Plan {
    fn make(repository: &Repository, fork: &Fork, step: &Step) -> Result<Plan, ChangeError> {
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
                    // A move that is done again may have come as far as the view.
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
        // What a submodule stands on is its own affair.
        let open = open
            .into_iter()
            .filter(|change| !is_repository(fork, change))
            .collect();
        Ok(Plan {
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

    fn carry_out(
        &self,
        repository: &Repository,
        name: &ForkName,
        fork: &Fork,
        by: Actor<'_>,
        step: &Step,
    ) -> Result<(), ChangeError> {
        let forth = replacements(repository, fork, &self.open, self.new_tree)?;
        // The layer is about to name its blobs, and git does not wait for those that it writes.
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
            // It may stand on other layers then, and have a log that knows no earlier moment.
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
            applied.map_err(unless_the_view_moved)
        };
        let forward = Advance {
            moved: step.head_move(),
            undoes: step.undoes.clone(),
        };
        let is_noted = forth.is_empty() && is_noted(fork, step)?;
        thread::scope(|scope| {
            let (locked, is_locked) = mpsc::sync_channel(1);
            let (give_target, target) = mpsc::sync_channel(1);
            let target = move || {
                // Who waits for it learns of a failure by the end of the thread.
                let _ = locked.send(());
                target
                    .recv()
                    .map_err(GitError::library("learn the new tree"))
            };
            let index =
                scope.spawn(|| prepare_index(repository, &fork.worktree, Some(&beginning), target));
            if is_locked.recv().is_err() {
                // It ends without having asked for the target only where it failed.
                return joined(index).map(drop).map_err(ChangeError::from);
            }
            pause::at("before-view");
            // Git that had the lock before may have staged something.
            if IndexStamp::of(&fork.worktree.index_path()) != self.index_stamp {
                self.index.refuse_moved(repository, fork)?;
            }
            let applied = match is_noted {
                true => Ok(()),
                false => put(&forth, step.kind, forward, Some(self.since)).map(drop),
            };
            if applied.is_ok() {
                let _ = give_target.send(IndexTarget {
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
            drop(give_target);
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
                // What is taken back here is not to be taken back once more.
                let undoes = fork.workspace.operations(1).ok().and_then(|newest| {
                    let (operation, _) = newest.into_iter().next()?;
                    Some(Undoes {
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

    /// The change of the index; `None` where nothing is staged before or after it.
    fn staged(&self) -> Option<IndexStep> {
        let is_clean = |state: &IndexState, tree_id| *state == IndexState::clean(tree_id);
        let is_clean =
            is_clean(&self.index.from, self.from_tree) && is_clean(&self.index.to, self.to_tree);
        (!is_clean).then(|| self.index.clone())
    }

    /// What leads from the new view to the old one.
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
