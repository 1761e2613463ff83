//! Letting a fork's view become another tree while HEAD stays where it is.

use super::ChangeError;
use super::advance::refuse_in_the_way;
use super::changeset::{self, Blobs, Change};
use super::compare::compare_trees;
use super::revert::{hold_blobs, is_repository, replacements};
use tine_git::{GitError, ObjectId, Repository};
use tine_workspace::{Actor, ApplyOptions, Fork, ForkName, FsError, OperationError, OperationKind};

/// The view as a tree: HEAD's, with all that `git add -A` would take. It is written.
pub fn view_tree(repository: &Repository, fork: &Fork) -> Result<ObjectId, ChangeError> {
    let local = changeset::changeset(repository, fork, Blobs::Write)?;
    changeset::write_tree(repository, &local)
}

/// Refuses where something in no changeset is in the way of that move.
pub fn check_move(
    repository: &Repository,
    fork: &Fork,
    (from, to): (ObjectId, ObjectId),
) -> Result<(), ChangeError> {
    let mut changes = compare_trees(repository, from, to)?;
    changes.retain(|change| !is_repository(fork, change));
    refuse_in_the_way(fork, &changes)
}

/// Takes the view from the tree `from` to the tree `to`, in one operation; what changed. What
/// submodules stand on is their own affair.
///
/// # Errors
/// [`GitError::RefMoved`] where the view is `from` no more.
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
    applied.map_err(unless_the_view_moved)?;
    Ok(changes)
}

/// Somebody changed meanwhile what was to be replaced: who planned it plans again.
pub(super) fn unless_the_view_moved(error: OperationError) -> ChangeError {
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
