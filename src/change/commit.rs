//! Commits a fork's changes, and frees contents that git has.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Arc, mpsc};
use std::thread::{self, ScopedJoinHandle};

use super::changeset::{Adoptable, Blobs, Examined, Scope, examine, write_tree};
use super::compare::compare_trees;
use super::revert_guard::{RevertRecords, RevertSource, refuse_taking_back};
use super::{Change, ChangeError, Changeset};
use tine_git::index::{IndexChange, IndexTarget, KnownState, prepare_index};
use tine_git::refs::is_for_layers;
use tine_git::{CommitSpec, GitError, Identity, ObjectId, Repository};
use tine_path::RepoPath;
use tine_store::{Fork, ForkName, IndexStamp};

/// Options for making a commit.
#[derive(Debug, Clone, Default)]
pub struct CommitOptions {
    /// Commit message. One of only white space is refused.
    pub message: String,
    /// Author; `None` takes git's own.
    pub author: Option<Identity>,
    /// Committer; `None` takes git's own.
    pub committer: Option<Identity>,
    /// States that forks went back to.
    ///
    /// A commit that would take back commits that such a state lacks is refused.
    pub reverts: RevertRecords,
}

/// Commit that was made.
#[derive(Debug, Clone)]
pub struct CommitOutcome {
    /// Commit that HEAD now names.
    pub commit_id: ObjectId,
    /// Tree of the commit.
    pub tree_id: ObjectId,
    /// Previous commit of HEAD; `None` for the first one of a branch.
    pub parent_id: Option<ObjectId>,
    /// Changes that the commit records.
    pub changeset: Changeset,
    /// True if the committed contents left the layer.
    pub is_settled: bool,
}

/// Outcome of settling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleOutcome {
    /// Number of contents that left the layer because HEAD has them.
    Settled(usize),
    /// Contents stay for now, since a `git gc` is running.
    ///
    /// It may remove blobs that HEAD has had only for a moment.
    Later,
}

/// Commits what `git add -A && git commit` would, in O(changes).
///
/// The worktree's index follows. Before HEAD moves, the new tree is checked to differ from the old
/// one in exactly what the changeset says.
///
/// # Errors
/// [`ChangeError::EmptyMessage`], [`ChangeError::NothingToCommit`], and the refusals of a fork
/// where git is at work, whose branch moved, is gone or is checked out twice, or whose commit would
/// take back others' commits. HEAD has not moved then.
pub fn commit(
    repository: &Repository,
    name: &ForkName,
    fork: &Fork,
    options: &CommitOptions,
) -> Result<CommitOutcome, ChangeError> {
    if options.message.trim().is_empty() {
        return Err(ChangeError::EmptyMessage);
    }
    refuse_work_of_git(repository, fork)?;
    refuse_held_twice(repository, fork)?;
    let parent_id = repository.head_of(fork.worktree.git_dir())?.commit_id();
    let Examined {
        changeset,
        adoptable,
    } = examine(repository, fork, parent_id, Blobs::Write, Scope::Everything)?;
    if changeset.changes.is_empty() {
        return Err(ChangeError::NothingToCommit);
    }
    let parent_ids = parent_id.into_iter().collect();
    // All of this is on disk before HEAD moves, the layer included. After a power failure, a HEAD
    // ahead of the view would look like changes that take the commit back.
    let beginning = fork.workspace.beginning();
    let beginning = KnownState {
        token: &beginning,
        changed: fork.workspace.base_attrs().change_time(),
        is_known: &|token| fork.workspace.can_tell_since(token),
    };
    let (tree_id, commit_id, prepared_index) = thread::scope(|scope| {
        let (send_target, target) = mpsc::sync_channel(1);
        let target = move || {
            target
                .recv()
                .map_err(GitError::library("learn the new tree"))
        };
        let index =
            scope.spawn(|| prepare_index(repository, &fork.worktree, Some(&beginning), target));
        let synced = scope.spawn(|| fork.workspace.sync());
        let tree_id = write_tree(repository, &changeset)?;
        check_landed(repository, &changeset, tree_id)?;
        refuse_taking_back(
            repository,
            &options.reverts,
            parent_id,
            tree_id,
            RevertSource::Commit(name),
        )?;
        // Nobody receives it if the index could not be locked or read; `joined(index)` reports
        // that.
        let _ = send_target.send(IndexTarget {
            tree_id,
            changes: index_changes(fork, &changeset.changes),
            // The tree has all files, so nothing remains an intent to add.
            intents: Vec::new(),
        });
        let commit_id = repository.write_commit(&CommitSpec {
            tree_id,
            parent_ids,
            message: options.message.clone().into(),
            author: options.author.clone(),
            committer: options.committer.clone(),
        })?;
        joined(synced)?;
        Ok::<_, ChangeError>((tree_id, commit_id, joined(index)?))
    })?;
    let summary = repository.commit_info(commit_id)?.summary;
    let reflog = match parent_id {
        Some(_) => format!("commit: {summary}"),
        None => format!("commit (initial): {summary}"),
    };
    // The index goes first: after a crash in between, the changes are merely staged.
    let updated_index = prepared_index.put_in_place()?;
    let (moved, kept) = thread::scope(|scope| {
        // If HEAD does not move, the kept commit is superfluous but harmless.
        let kept = scope.spawn(|| keep_head(repository, name, commit_id));
        let moved = repository.advance_head(&fork.worktree, parent_id, commit_id, &reflog);
        (moved, joined(kept))
    });
    if let Err(error) = moved {
        updated_index.undo();
        return Err(error.into());
    }
    // The index has the same paths as the tree, so the next comparison need not read it.
    if let Some(stamp) = IndexStamp::of(&fork.worktree.index_path()) {
        fork.memo().remember_removed(&stamp, tree_id, Arc::new([]));
    }
    updated_index.finish(&fork.worktree);
    // The commit is final. The rest only saves space, and settling repeats it.
    let settled = kept.and_then(|()| adopt(repository, fork, commit_id, &adoptable));
    let is_settled = settled.unwrap_or_else(|error| {
        log::warn!("contents of {name} stay in its layer for now: {error}");
        SettleOutcome::Later
    }) != SettleOutcome::Later;
    Ok(CommitOutcome {
        commit_id,
        tree_id,
        parent_id,
        changeset,
        is_settled,
    })
}

/// Refuses if the fork's branch is not where the fork left it.
///
/// Otherwise commits of others would look like changes of the fork that take them back.
///
/// # Errors
/// [`ChangeError::MovedUnder`] or [`ChangeError::BranchGone`].
pub fn refuse_moved_under(repository: &Repository, fork: &Fork) -> Result<(), ChangeError> {
    if let Some(moved) =
        repository.moved_under(&fork.worktree, fork.name().as_str(), &fork.made_on)?
    {
        let mut numbers = 2u64..;
        let free = loop {
            let number = numbers.next().unwrap_or(u64::MAX);
            let name = format!("{}-{number}", moved.branch);
            if number == u64::MAX || repository.branch(&name)?.is_none() {
                break name;
            }
        };
        let (left_at, now) = (moved.left_at, moved.now);
        let is_rewritten =
            !repository.is_ancestor(left_at, now)? && !repository.is_ancestor(now, left_at)?;
        return Err(ChangeError::MovedUnder {
            fork: fork.name().clone(),
            moved: Box::new(moved),
            free,
            is_rewritten,
        });
    }
    refuse_gone_branch(repository, fork)
}

/// Refuses if another checkout has the fork's branch.
///
/// That checkout would not follow, and its next commit would take this one back. The branch of a
/// repository of its own is no other checkout's.
fn refuse_held_twice(repository: &Repository, fork: &Fork) -> Result<(), ChangeError> {
    if fork.worktree.is_own() {
        return Ok(());
    }
    let head = repository.head_of(fork.worktree.git_dir())?;
    let Some(branch) = head.short_branch() else {
        return Ok(());
    };
    match repository.other_checkout_of(branch, &fork.worktree)? {
        Some(at) => Err(GitError::BranchCheckedOut {
            branch: branch.to_owned(),
            at,
        }
        .into()),
        None => Ok(()),
    }
}

/// Refuses if the fork's branch was deleted: a commit would have no parent.
///
/// # Errors
/// [`ChangeError::BranchGone`].
pub fn refuse_gone_branch(repository: &Repository, fork: &Fork) -> Result<(), ChangeError> {
    match repository.gone_branch(&fork.worktree, &fork.made_on)? {
        Some(gone) => Err(ChangeError::BranchGone(Box::new(gone))),
        None => Ok(()),
    }
}

/// Refuses if git works in the fork or its branch moved.
///
/// git works there if an operation such as a rebase is unfinished, or if a lock file exists.
pub(super) fn refuse_work_of_git(repository: &Repository, fork: &Fork) -> Result<(), ChangeError> {
    if let Some(operation) = fork.worktree.operation_in_progress() {
        return Err(ChangeError::OperationInProgress(operation));
    }
    refuse_moved_under(repository, fork)?;
    Ok(repository.check_unlocked(&fork.worktree)?)
}

/// Refuses if HEAD is not at the fork's own commits.
///
/// This is so amid a rebase or bisection, and if the branch is gone.
///
/// # Errors
/// [`ChangeError::OperationInProgress`] or [`ChangeError::BranchGone`].
pub fn refuse_head_elsewhere(repository: &Repository, fork: &Fork) -> Result<(), ChangeError> {
    match fork.worktree.operation_in_progress() {
        Some(operation @ ("rebase" | "bisect")) => Err(ChangeError::OperationInProgress(operation)),
        _ => refuse_gone_branch(repository, fork),
    }
}

/// Returns the result of a thread, and continues its panic.
pub(super) fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Frees contents that are now blobs in HEAD's tree, and keeps HEAD.
///
/// This follows a commit by git inside the mount. A ref under `refs/tine/<fork>/` keeps HEAD. No-op
/// if HEAD is still `last_head`.
///
/// # Errors
/// [`ChangeError::Unstable`] if a file keeps changing, and the errors of reading the fork, writing
/// refs and syncing blobs.
pub fn settle(
    repository: &Repository,
    name: &ForkName,
    fork: &Fork,
    last_head: Option<ObjectId>,
) -> Result<SettleOutcome, ChangeError> {
    let head = repository.head_of(fork.worktree.git_dir())?.commit_id();
    let Some(head) = head.filter(|_| head != last_head) else {
        return Ok(SettleOutcome::Settled(0));
    };
    let Examined { mut adoptable, .. } =
        examine(repository, fork, Some(head), Blobs::Hash, Scope::InHead)?;
    adoptable.retain(|adoptable| adoptable.is_in_head);
    // git does not sync the objects that it writes, and from now on they are the only copy.
    repository.sync_blobs(adoptable.iter().map(|adoptable| adoptable.blob_id))?;
    keep_head(repository, name, head)?;
    adopt(repository, fork, head, &adoptable)
}

/// Checks that `tree_id` differs from HEAD's tree exactly as the changeset says.
pub(super) fn check_landed(
    repository: &Repository,
    changeset: &Changeset,
    tree_id: ObjectId,
) -> Result<(), ChangeError> {
    let mut landed: BTreeMap<RepoPath, Change> =
        compare_trees(repository, changeset.head_tree, tree_id)?
            .into_iter()
            .map(|change| (change.path.clone(), change))
            .collect();
    for change in &changeset.changes {
        match landed.remove(&change.path) {
            Some(landed) if landed.old == change.old && landed.new == change.new => {}
            _ => return Err(ChangeError::NotLanded(change.path.clone())),
        }
    }
    match landed.pop_first() {
        Some((path, _)) => Err(ChangeError::NotLanded(path)),
        None => Ok(()),
    }
}

/// Returns the index entries of the changed paths.
///
/// A path without a stat is left out, and git reads that file once.
pub(super) fn index_changes<'c>(
    fork: &Fork,
    changes: impl IntoIterator<Item = &'c Change>,
) -> Vec<IndexChange> {
    let of_change = |change: &Change| {
        let new = match &change.new {
            None => None,
            Some(side) => {
                let attr = match change.attr {
                    Some(attr) => attr,
                    None => fork.workspace.resolve(&change.path).ok()?,
                };
                Some((side.kind, side.id, attr))
            }
        };
        Some(IndexChange {
            path: change.path.clone(),
            new,
        })
    };
    changes.into_iter().filter_map(of_change).collect()
}

/// Frees contents of the layer that the commit `head` has.
///
/// A ref must already keep `head`. Blobs that a `git gc` removed before that are written again from
/// the layer.
fn adopt(
    repository: &Repository,
    fork: &Fork,
    head: ObjectId,
    adoptable: &[Adoptable],
) -> Result<SettleOutcome, ChangeError> {
    if adoptable.is_empty() {
        return Ok(SettleOutcome::Settled(0));
    }
    if repository.is_being_collected() {
        return Ok(SettleOutcome::Later);
    }
    let missing =
        || repository.missing_objects(adoptable.iter().map(|adoptable| adoptable.blob_id));
    let mut gone = missing()?;
    if !gone.is_empty() {
        log::info!("writing {} blobs again that a git gc removed", gone.len());
        examine(repository, fork, Some(head), Blobs::Write, Scope::InHead)?;
        repository.sync_blobs(gone.iter().copied())?;
        gone = missing()?;
    }
    let adopted: Vec<_> = adoptable
        .iter()
        .filter(|adoptable| !gone.contains(&adoptable.blob_id))
        .map(|adoptable| (adoptable.ino, adoptable.ctime, adoptable.blob_id))
        .collect();
    if adopted.is_empty() {
        Ok(SettleOutcome::Settled(0))
    } else {
        Ok(SettleOutcome::Settled(
            fork.workspace.adopt_blobs(&adopted)?,
        ))
    }
}

/// Makes `head` reachable from the fork's refs, and drops no earlier one.
///
/// Layers may hold blobs of every HEAD that the fork ever had. The ref `head` moves on to
/// descendants. If HEAD went elsewhere, the old commit becomes `held-<n>`.
pub(super) fn keep_head(
    repository: &Repository,
    name: &ForkName,
    head: ObjectId,
) -> Result<(), ChangeError> {
    let kept = repository.kept(name.as_str())?;
    for (label, id) in &kept {
        if is_for_layers(label) && repository.is_ancestor(head, *id)? {
            return Ok(());
        }
    }
    let old = kept
        .iter()
        .find(|(label, _)| label == "head")
        .map(|(_, id)| *id);
    if let Some(old) = old
        && !repository.is_ancestor(old, head)?
    {
        repository.hold(name.as_str(), old)?;
    }
    Ok(repository.keep(name.as_str(), "head", head)?)
}
