//! Changes a fork's view to another tree, while HEAD stays.

use super::ChangeError;
use super::advance::refuse_in_the_way;
use super::changeset::{self, Blobs, Change};
use super::compare::compare_trees;
use super::revert::{hold_blobs, is_repository, replacements};
use tine_git::{GitError, ObjectId, Repository};
use tine_store::{Fork, ForkName};
use tine_workspace::{Actor, ApplyOptions, FsError, OperationError, OperationKind};

/// Writes the view's tree, as `git add -A` would take it.
///
/// # Errors
/// [`ChangeError::Unstable`] if a file keeps changing, and the errors of reading the fork and of
/// writing objects.
pub fn view_tree(repository: &Repository, fork: &Fork) -> Result<ObjectId, ChangeError> {
    let local = changeset::changeset(repository, fork, Blobs::Write)?;
    changeset::write_tree(repository, &local)
}

/// Refuses if a path in no changeset is in the way.
///
/// # Errors
/// [`OperationError::InTheWay`].
pub fn check_move(
    repository: &Repository,
    fork: &Fork,
    (from, to): (ObjectId, ObjectId),
) -> Result<(), ChangeError> {
    let mut changes = compare_trees(repository, from, to)?;
    changes.retain(|change| !is_repository(fork, change));
    refuse_in_the_way(fork, &changes)
}

/// Changes the view from one tree to another, in one operation.
///
/// Returns the changes. Commits of submodules are not changed.
///
/// # Errors
/// [`GitError::RefMoved`] if the view is not `from` any more, and the errors of applying the
/// changes.
pub fn move_view(
    repository: &Repository,
    name: &ForkName,
    fork: &Fork,
    by: Actor<'_>,
    (from, to): (ObjectId, ObjectId),
    kind: OperationKind,
) -> Result<Vec<Change>, ChangeError> {
    let since = fork.workspace.position();
    if view_tree(repository, fork)? != from {
        return Err(GitError::RefMoved {
            name: format!("the view of {name}"),
        }
        .into());
    }
    let mut changes = compare_trees(repository, from, to)?;
    changes.retain(|change| !is_repository(fork, change));
    if changes.is_empty() {
        return Ok(changes);
    }
    let replacements = replacements(repository, fork, &changes, to)?;
    hold_blobs(repository, name, &replacements, None)?;
    let options = ApplyOptions {
        kind: Some(kind),
        since: Some(since),
        ..ApplyOptions::default()
    };
    let applied = fork.workspace.apply(by, &replacements, &options);
    applied.map_err(stale_as_ref_moved)?;
    Ok(changes)
}

/// Maps "a path changed since it was planned" to [`GitError::RefMoved`].
///
/// The caller plans again then.
pub(super) fn stale_as_ref_moved(error: OperationError) -> ChangeError {
    match error {
        OperationError::Fs { source, .. } if matches!(*source, FsError::Stale) => {
            GitError::RefMoved {
                name: "the view".to_owned(),
            }
            .into()
        }
        other => other.into(),
    }
}
