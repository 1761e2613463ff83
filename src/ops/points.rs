//! Resolves points that requests name, and writes their missing trees.

use std::path::Path;
use std::sync::Arc;

use super::failure::{ErrorCode, Failure};
use super::protocol::{PointInfo, PointKind};
use super::state::slots::Daemon;
use super::state::taking;
use tine_change::changeset::{self, Blobs};
use tine_change::{FoundPoint, Point, PointTree, snapshots};
use tine_git::{ObjectId, Repository};
use tine_store::ForkName;

/// Point and its tree in the object database. Nothing protects the tree from `git gc` yet.
#[derive(Debug, Clone)]
pub struct ResolvedPoint {
    /// Point that the word names.
    pub point: Point,
    /// Tree of the point.
    pub tree_id: ObjectId,
    /// Commit of the point, if it has one.
    pub commit_id: Option<ObjectId>,
    /// Other points that the word also names.
    pub others: Vec<Point>,
}

/// Finds what `word` means for the fork `name`. Writes no tree.
///
/// A branch that follows a fork is where the fork is now.
///
/// # Errors
/// Fails as [`Point::find`].
pub(crate) fn find(daemon: &Daemon, name: &ForkName, word: &str) -> Result<FoundPoint, Failure> {
    taking::bring_named(daemon, word);
    Ok(Point::find(&daemon.store, name, word)?)
}

/// Finds what `word` means without a fork in question. Otherwise as [`find`].
///
/// # Errors
/// Fails as [`Point::find_anywhere`].
pub(crate) fn find_anywhere(
    daemon: &Daemon,
    git_dir: &Path,
    word: &str,
) -> Result<FoundPoint, Failure> {
    taking::bring_named(daemon, word);
    Ok(Point::find_anywhere(&daemon.store, git_dir, word)?)
}

/// Resolves `word` for the fork `name`, and writes that point's tree.
///
/// The caller must not hold the lock of any fork, because this locks the fork that `word` names.
pub(crate) fn resolve(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    name: &ForkName,
    word: &str,
) -> Result<ResolvedPoint, Failure> {
    if word == "pristine" {
        follow_head(daemon, repository, name)?;
    }
    complete(daemon, repository, name, find(daemon, name, word)?)
}

/// Returns the fork point of the fork `name`.
///
/// It ignores other points called `pristine`.
pub(crate) fn pristine(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    name: &ForkName,
) -> Result<ResolvedPoint, Failure> {
    follow_head(daemon, repository, name)?;
    complete(
        daemon,
        repository,
        name,
        Point::Pristine.found(&daemon.store, name)?,
    )
}

/// Makes the fork point follow HEAD, which git may have moved.
fn follow_head(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    name: &ForkName,
) -> Result<(), Failure> {
    let slot = daemon.slot(name);
    let guard = daemon.lock_fork(&slot)?;
    let fork = guard.open_existing()?;
    guard.settle(repository, &fork)
}

/// Writes the point's tree if it is missing. The caller must not hold the lock of any fork.
pub(crate) fn complete(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    name: &ForkName,
    FoundPoint {
        point,
        tree,
        others,
    }: FoundPoint,
) -> Result<ResolvedPoint, Failure> {
    let (tree_id, commit_id) = match (tree, &point) {
        (PointTree::Known { tree_id, commit_id }, _) => (tree_id, commit_id),
        (PointTree::Unwritten, Point::Fork(fork)) => (view_tree(daemon, repository, fork)?, None),
        (PointTree::Unwritten, Point::Snapshot(snapshot)) => {
            (snapshot_tree(daemon, repository, name, snapshot)?, None)
        }
        (PointTree::Unwritten, Point::SnapshotOf(fork, snapshot)) => {
            (snapshot_tree(daemon, repository, fork, snapshot)?, None)
        }
        (PointTree::Unwritten, Point::Pristine | Point::Revision(_)) => {
            return Err(Failure::new(
                ErrorCode::Internal,
                format!("{point} has no tree"),
            ));
        }
    };
    Ok(ResolvedPoint {
        point,
        tree_id,
        commit_id,
        others,
    })
}

/// Writes the tree of a fork's view.
fn view_tree(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    name: &ForkName,
) -> Result<ObjectId, Failure> {
    let slot = daemon.slot(name);
    let guard = daemon.lock_fork(&slot)?;
    let fork = guard.open_existing()?;
    guard.settle(repository, &fork)?;
    let changeset = changeset::changeset(repository, &fork, Blobs::Write)?;
    Ok(changeset::write_tree(repository, &changeset)?)
}

/// Writes the tree of a snapshot, under its fork's lock.
///
/// The lock keeps the snapshot from being deleted meanwhile.
fn snapshot_tree(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    name: &ForkName,
    snapshot: &ForkName,
) -> Result<ObjectId, Failure> {
    let slot = daemon.slot(name);
    let _guard = daemon.lock_fork(&slot)?;
    let snapshot = daemon.store.snapshot(name, snapshot)?;
    Ok(snapshots::snapshot_tree(
        &daemon.store,
        repository,
        name,
        &snapshot,
    )?)
}

impl From<&ResolvedPoint> for PointInfo {
    fn from(resolved: &ResolvedPoint) -> PointInfo {
        PointInfo {
            kind: match &resolved.point {
                Point::Snapshot(_) | Point::SnapshotOf(..) => PointKind::Snapshot,
                Point::Fork(_) => PointKind::Fork,
                Point::Pristine => PointKind::Pristine,
                Point::Revision(_) => PointKind::Revision,
            },
            point: resolved.point.to_string(),
            tree: resolved.tree_id.to_string(),
            commit: resolved.commit_id.map(|id| id.to_string()),
            also: resolved.others.iter().map(Point::to_string).collect(),
        }
    }
}
