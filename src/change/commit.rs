//! Committing a fork's changes, and letting go of contents that git has.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Arc, mpsc};
use std::thread::{self, ScopedJoinHandle};

use super::changeset::{Adoptable, Blobs, Examined, Scope, examine, write_tree};
use super::compare::compare_trees;
use super::going_back::{KnownGoneBack, RevertSource, refuse_taking_back};
use super::{Change, ChangeError, Changeset};
use tine_git::index::{IndexChange, IndexTarget, KnownState, prepare_index};
use tine_git::refs::is_for_layers;
use tine_git::{CommitSpec, GitError, Identity, ObjectId, Repository};
use tine_path::RepoPath;
use tine_workspace::store::IndexStamp;
use tine_workspace::{Fork, ForkName};

/// How a commit is made.
#[derive(Debug, Clone, Default)]
pub struct CommitOptions {
    pub message: String,
    pub author: Option<Identity>,
    pub committer: Option<Identity>,
    /// States that forks went back to: a commit that would take back what they left out is refused.
    pub gone_back: KnownGoneBack,
}

/// A commit that was made.
#[derive(Debug, Clone)]
pub struct CommitOutcome {
    pub commit_id: ObjectId,
    pub tree_id: ObjectId,
    pub parent_id: Option<ObjectId>,
    pub changeset: Changeset,
    /// Whether the contents left the layer.
    pub is_settled: bool,
}

/// What settling found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleOutcome {
    /// How many contents left the layer because HEAD has them.
    Settled(usize),
    /// A `git gc` is at work, which may remove blobs that HEAD has since a moment ago: the contents
    /// stay for now.
    Later,
}

/// Commits what `git add -A && git commit` would, and brings the worktree's index along. Costs
/// O(changes). Before HEAD moves, the new tree is checked to differ from the old one in exactly
/// what the changeset says.
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
    // All of this is on the disk before HEAD moves. The layer, too: a HEAD that is ahead of the
    // view after a power failure would look like changes that take it back.
    let beginning = fork.workspace.beginning();
    let beginning = KnownState {
        token: &beginning,
        changed: fork.workspace.base_attrs().change_time(),
        is_known: &|token| fork.workspace.can_tell_since(token),
    };
    let (tree_id, commit_id, prepared_index) = thread::scope(|scope| {
        let (give_target, target) = mpsc::sync_channel(1);
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
            &options.gone_back,
            parent_id,
            tree_id,
            RevertSource::Commit(name),
        )?;
        // Nobody waits for it where the index could not be locked or read, which is told below.
        let _ = give_target.send(IndexTarget {
            tree_id,
            changes: index_changes(fork, &changeset.changes),
            // All that there is has come into the tree.
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
    // The index goes first: after a crash in between everything is merely staged.
    let updated_index = prepared_index.put_in_place()?;
    let (moved, kept) = thread::scope(|scope| {
        // A commit that HEAD does not get to is kept for nothing, as one that HEAD left.
        let kept = scope.spawn(|| keep_head(repository, name, commit_id));
        let moved = repository.advance_head(&fork.worktree, parent_id, commit_id, &reflog);
        (moved, joined(kept))
    });
    if let Err(error) = moved {
        updated_index.undo();
        return Err(error.into());
    }
    // It has all that the tree has: the next look at the changes need not read it.
    if let Some(stamp) = IndexStamp::of(&fork.worktree.index_path()) {
        fork.memo().remember_removed(&stamp, tree_id, Arc::new([]));
    }
    updated_index.finish(&fork.worktree);
    // The commit stands. What is left only saves space, and settling does it again.
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

/// Refuses where the branch that the fork is on is not where the fork left it: what others
/// committed would look like changes of the fork's that take it back.
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

/// Refuses where another checkout has the branch that the fork is on: it would not follow, and its
/// next commit would take this one back.
fn refuse_held_twice(repository: &Repository, fork: &Fork) -> Result<(), ChangeError> {
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

/// Refuses where the branch that the fork is on was deleted under it: a commit would have no
/// parent.
pub fn refuse_gone_branch(repository: &Repository, fork: &Fork) -> Result<(), ChangeError> {
    match repository.gone_branch(&fork.worktree, &fork.made_on)? {
        Some(gone) => Err(ChangeError::BranchGone(Box::new(gone))),
        None => Ok(()),
    }
}

/// Refuses where git is at work in the fork, or in the middle of something, and where its branch
/// moved under it.
pub(super) fn refuse_work_of_git(repository: &Repository, fork: &Fork) -> Result<(), ChangeError> {
    if let Some(operation) = fork.worktree.operation_in_progress() {
        return Err(ChangeError::OperationInProgress(operation));
    }
    refuse_moved_under(repository, fork)?;
    Ok(repository.check_unlocked(&fork.worktree)?)
}

/// Refuses where HEAD is not at the fork's own commits: amid a rebase or bisection, or where its
/// branch is gone.
pub fn refuse_head_elsewhere(repository: &Repository, fork: &Fork) -> Result<(), ChangeError> {
    match fork.worktree.operation_in_progress() {
        Some(operation @ ("rebase" | "bisect")) => Err(ChangeError::OperationInProgress(operation)),
        _ => refuse_gone_branch(repository, fork),
    }
}

/// What a thread found; a panic goes on where it would have without the thread.
pub(super) fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Lets contents leave the layer that HEAD's tree has by now (after a commit by git inside the
/// mount), and keeps HEAD under `refs/tine/<fork>/`. Does nothing where HEAD has not moved since
/// `last_head`.
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
    // git does not wait for the objects that it writes, and from now on they are all there is of
    // these contents.
    repository.sync_blobs(adoptable.iter().map(|adoptable| adoptable.blob_id))?;
    keep_head(repository, name, head)?;
    adopt(repository, fork, head, &adoptable)
}

/// Checks that `tree_id` differs from HEAD's tree where the changeset says, in what it says, and
/// nowhere else.
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

/// What the index has to say of the changed paths. Where a stat cannot be had, git reads the file
/// once.
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

/// Lets contents leave the layer that `head` has, which was kept from being collected. Blobs that a
/// `git gc` removed before that are written again, out of the layer.
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
    match adopted.is_empty() {
        true => Ok(SettleOutcome::Settled(0)),
        false => Ok(SettleOutcome::Settled(
            fork.workspace.adopt_blobs(&adopted)?,
        )),
    }
}

/// Makes `head` reachable from the refs of the fork, and lets nothing go that was: layers may hold
/// blobs of every HEAD the fork ever had. `head` follows its descendants; where HEAD went elsewhere
/// the old one becomes `held-<n>`.
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
