//! Restores a fork's files together with HEAD, refs and index.
//!
//! | step | a process that dies after it leaves, and what the next daemon does |
//! |---|---|
//! | git's lock of the index is taken, the new index is written beside it | all as it was |
//! | the snapshot before, and its git point | the same, one snapshot more |
//! | the fork's record: the other view, and the point to go to | the other view: it does the rest |
//! | refs, then HEAD | some or all of them moved: it does the rest |
//! | the index | the same |
//! | the fork's record: nothing is left to do | all is restored |
//!
//! If a ref cannot move, because git in the fork moved or locked it, all goes back.

use super::ChangeError;
use super::commit::{keep_head, refuse_work_of_git};
use super::point::damaged;
use tine_git::index::{IndexTarget, PreparedIndex, prepare_index};
use tine_git::own::GitPoint;
use tine_git::{ObjectId, Repository};
use tine_store::{Fork, ForkName, Restoring, SnapshotReason, SnapshotRecord, Store, StoreError};
use tine_sys::pause;
use tine_workspace::{Actor, Caller, FileChange, GitSwitch, OperationKind};

/// Restores a fork to its snapshot, with HEAD, refs and index.
///
/// Returns the snapshot of the state before, and the commit of HEAD after. Takes git's lock of the
/// index, and blocks on the disk.
///
/// # Errors
/// [`StoreError::NoRefsOfItsOwn`] and [`StoreError::NoGitPoint`] if the snapshot cannot be restored
/// so, [`ChangeError::OperationInProgress`] amid a rebase and the like,
/// [`GitError::RefMoved`](tine_git::GitError::RefMoved) and the other errors of locks if git in the
/// fork was faster, and the errors of [`Store::restore`]. Nothing is changed then.
pub fn restore_with_git(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    fork: &Fork,
    to: &SnapshotRecord,
    command: &str,
) -> Result<(SnapshotRecord, Option<ObjectId>), ChangeError> {
    if !fork.worktree.is_own() {
        return Err(StoreError::NoRefsOfItsOwn(name.clone()).into());
    }
    let refused = |reason| {
        ChangeError::from(StoreError::NoGitPoint {
            fork: name.clone(),
            reason,
        })
    };
    refuse_work_of_git(repository, fork)?;
    let noted = to
        .git_point
        .as_ref()
        .ok_or_else(|| refused("they were not recorded with that snapshot"))?;
    let point = read(repository, name, &noted.tree)?;
    if point.operation().is_some() {
        return Err(refused(
            "a rebase, merge or the like was in progress then, and its state is not recorded",
        ));
    }
    let prepared = prepare(repository, fork, &point)?
        .ok_or_else(|| refused("the index had paths in conflict then"))?;
    repository.check_point(&fork.worktree, &point)?;
    if let Some(head) = point.head_commit() {
        keep_head(repository, name, head)?;
    }
    let begun = |point: &str| Restoring {
        point: point.to_owned(),
        command: command.to_owned(),
        before: None,
    };
    let reason = SnapshotReason::BeforeRestore;
    let before = store.restore_with_git(name, fork, to, reason, begun(&noted.tree))?;
    pause::at("files-restored");
    let former = before.git_point.as_ref().map_or("", |point| &point.tree);
    let from = read(repository, name, former)?;
    if let Err(error) = repository.move_to_point(&fork.worktree, &from, &point, command) {
        let back = || -> Result<(), ChangeError> {
            let now = repository.point_now(&fork.worktree)?;
            let back = from.after_failed_move(&point, &now);
            repository.move_to_point(&fork.worktree, &now, &back, command)?;
            let tried = store.restore(name, fork, &before, reason)?;
            store.update_record(name, |record| {
                record.fork_point.clone_from(&before.fork_point)
            })?;
            store.remove_snapshot(name, &tried.name)?;
            Ok(store.remove_snapshot(name, &before.name)?)
        };
        if let Err(error) = back() {
            log::error!(
                "{name}: its files are restored, and HEAD, refs and index are not: {error}"
            );
        }
        return Err(error.into());
    }
    finish_index(store, name, fork, prepared)?;
    Ok((before, point.head_commit()))
}

/// Finishes a restore that a process began before it died.
///
/// # Errors
/// [`ChangeError::Store`] if the record is damaged, and the errors of writing refs and index.
pub fn finish(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    fork: &Fork,
) -> Result<(), ChangeError> {
    let Some(begun) = store.record(name)?.restoring else {
        return Ok(());
    };
    let point = read(repository, name, &begun.point)?;
    let now = repository.point_now(&fork.worktree)?;
    repository.check_point(&fork.worktree, &point)?;
    repository.move_to_point(&fork.worktree, &now, &point, &begun.command)?;
    let prepared = prepare(repository, fork, &point)?;
    let prepared = prepared.ok_or_else(|| damaged(name)("the point has no index"))?;
    if let Some(before) = &begun.before
        && !is_recorded(fork, before)?
    {
        let attrs = fork.workspace.base_attrs();
        let by = Actor {
            caller: Caller::new(attrs.uid, attrs.gid),
            command: &begun.command,
        };
        let head = point.head_commit().map(|id| id.to_string());
        let git = Some(GitSwitch { head });
        let recorded =
            fork.workspace
                .record_switch(by, before.as_str(), OperationKind::Switch, None, git);
        if let Err(error) = recorded {
            log::warn!("{name}: `tine undo` does not know of a restore: {error}");
        }
    }
    finish_index(store, name, fork, prepared)?;
    log::info!("{name}: what was begun is done: HEAD, refs and index are restored");
    Ok(())
}

/// Returns whether the newest operation is the restore after this snapshot.
fn is_recorded(fork: &Fork, snapshot: &ForkName) -> Result<bool, ChangeError> {
    let newest = fork.workspace.operations(1)?.into_iter().next();
    Ok(newest.is_some_and(|(operation, _)| {
        operation.changes.iter().any(|change| match change {
            FileChange::Switched { before, .. } => before == snapshot.as_str(),
            _ => false,
        })
    }))
}

fn read(repository: &Repository, name: &ForkName, hex: &str) -> Result<GitPoint, ChangeError> {
    let id = ObjectId::from_hex(hex.as_bytes()).map_err(damaged(name))?;
    Ok(repository.point(id)?)
}

/// Writes the point's index beside the present one, which stays locked.
///
/// The new index has no token of the file system monitor, so git looks at all files.
fn prepare(
    repository: &Repository,
    fork: &Fork,
    point: &GitPoint,
) -> Result<Option<PreparedIndex>, ChangeError> {
    let Some((tree_id, intents)) = point.index() else {
        return Ok(None);
    };
    let target = || {
        Ok(IndexTarget {
            tree_id,
            changes: Vec::new(),
            intents,
        })
    };
    Ok(Some(prepare_index(
        repository,
        &fork.worktree,
        None,
        target,
    )?))
}

fn finish_index(
    store: &Store,
    name: &ForkName,
    fork: &Fork,
    prepared: PreparedIndex,
) -> Result<(), ChangeError> {
    prepared.put_in_place()?.finish(&fork.worktree);
    store.update_record(name, |record| record.restoring = None)?;
    Ok(())
}
