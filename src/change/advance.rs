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

mod finish;
mod in_the_way;
mod index;
mod plan;

pub use self::finish::finish;
use self::in_the_way::not_followed;
pub(super) use self::in_the_way::{refuse_in_the_way, staged};
pub use self::index::{IndexState, IndexStep};
use self::plan::AdvancePlan;
use super::changeset::{self, Blobs};
use super::commit::{keep_head, refuse_work_of_git};
use super::compare::compare_trees;
use super::revert::hold_trees;
use super::{Change, ChangeError, fork_point};
use tine_git::{GitError, Head, ObjectId, Repository};
use tine_merge::{Level, MergeInput, MergeOptions, merge};
use tine_path::RepoPath;
use tine_store::{Advancing, Fork, ForkName, ForkRecord, Store};
use tine_workspace::{Actor, HeadMove, OperationKind, SwitchMove, UndoneChanges, UpdateMove};

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
        let refs = repository.refs_at(fork.worktree.git_dir());
        if let (Some(branch), Some(reflog)) = (&switch.to, &switch.begins)
            // An existing branch was made by a process that died.
            && refs.branch(branch)? != Some(self.to)
        {
            refs.create_branch(branch, self.to, reflog)?;
            is_new = true;
        }
        let moved = repository.switch_head(&fork.worktree, &head, switch.to.as_deref(), self.to);
        if let (Err(_), true, Some(branch)) = (&moved, is_new, &switch.to)
            && let Err(error) = refs.delete_branch(branch, self.to)
        {
            log::warn!("the branch {branch} stays: {error}");
        }
        moved
    }
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
    let moved = plan.execute(repository, name, fork, by, step);
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
