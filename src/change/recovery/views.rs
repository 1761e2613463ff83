//! Uncommitted changes and snapshots of a fork, as commits in entries.

use serde::{Deserialize, Serialize};

use crate::ChangeError;
use crate::changeset::{Blobs, Examined, Scope, examine, write_tree};
use crate::commit::check_landed;
use crate::snapshots::{head_commit, view_tree};
use tine_git::{CommitSpec, GitError, Identity, ObjectId, Repository};
use tine_store::{Fork, ForkName, SnapshotReason, SnapshotRecord, Store};

/// Number of automatic snapshots that an entry of a deleted fork keeps.
///
/// The newest are kept.
const MAX_AUTOMATIC_SNAPSHOTS: usize = 50;

/// Beginning of the subject of a commit of uncommitted changes.
pub(super) const UNCOMMITTED: &str = "tine: discarded state of ";

/// Snapshot in an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSnapshot {
    /// Name of the snapshot.
    pub name: ForkName,
    /// Time of the snapshot in seconds since 1970.
    pub created_secs: i64,
    /// Message of the snapshot, if any.
    #[serde(default)]
    pub message: Option<String>,
    /// Reason that the snapshot was taken.
    pub reason: SnapshotReason,
    /// Commit of HEAD at that time, in hex; `None` if unborn.
    #[serde(default)]
    pub head: Option<String>,
    /// Commit over HEAD whose tree is the snapshot's view, in hex.
    pub view: String,
}

/// Commits the fork's view over HEAD.
///
/// `None` if nothing is uncommitted.
///
/// # Errors
/// [`ChangeError::Unstable`] if a file keeps changing, [`ChangeError::NotLanded`] if the new tree
/// is wrong, and the errors of reading the fork and writing objects.
pub fn commit_uncommitted(
    repository: &Repository,
    name: &ForkName,
    fork: &Fork,
    committer: Option<Identity>,
) -> Result<Option<ObjectId>, ChangeError> {
    // Without an existing HEAD the commit has no parent, and all files.
    let parent_id = match repository.head_left_at(&fork.worktree, name.as_str(), &fork.made_on) {
        Ok(head) => head.filter(|id| repository.has_object(*id)),
        Err(error) => {
            log::warn!("{name}: HEAD cannot be read: {error}");
            None
        }
    };
    let Examined { changeset, .. } =
        examine(repository, fork, parent_id, Blobs::Write, Scope::Everything)?;
    if changeset.changes.is_empty() {
        return Ok(None);
    }
    let tree_id = write_tree(repository, &changeset)?;
    check_landed(repository, &changeset, tree_id)?;
    let message = format!("{UNCOMMITTED}{name}\n\nWhat was uncommitted when it was dropped.\n");
    commit_view(repository, tree_id, parent_id, message, committer).map(Some)
}

/// Writes a commit of a view.
///
/// If no identity is configured, tine is the author: work must not be lost because a name is
/// missing.
pub(super) fn commit_view(
    repository: &Repository,
    tree_id: ObjectId,
    parent_id: Option<ObjectId>,
    message: String,
    committer: Option<Identity>,
) -> Result<ObjectId, ChangeError> {
    let mut spec = CommitSpec {
        tree_id,
        parent_ids: parent_id.into_iter().collect(),
        message: message.into(),
        author: committer.clone(),
        committer,
    };
    match repository.write_commit(&spec) {
        Err(GitError::NoIdentity(_)) => {
            spec.author = Some(Identity::tine());
            spec.committer = Some(Identity::tine());
            Ok(repository.write_commit(&spec)?)
        }
        written => Ok(written?),
    }
}

/// Returns a fork's snapshots as an entry keeps them.
///
/// They are those that a user asked for and the newest automatic ones, unless equal to HEAD of
/// their time. Snapshots that cannot be kept are in the second list, with the reason; the others
/// are kept even so.
pub fn kept_snapshots(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    snapshots: &[SnapshotRecord],
) -> (Vec<KeptSnapshot>, Vec<(ForkName, ChangeError)>) {
    let automatic = snapshots
        .iter()
        .filter(|snapshot| snapshot.reason.is_automatic())
        .count();
    let mut surplus = automatic.saturating_sub(MAX_AUTOMATIC_SNAPSHOTS);
    let (mut kept, mut lost) = (Vec::new(), Vec::new());
    for snapshot in snapshots {
        if snapshot.reason.is_automatic() && surplus > 0 {
            surplus -= 1;
            continue;
        }
        match kept_snapshot(store, repository, name, snapshot) {
            Ok(one) => kept.extend(one),
            Err(error) => lost.push((snapshot.name.clone(), error)),
        }
    }
    (kept, lost)
}

/// Returns a snapshot as an entry keeps it.
///
/// `None` for an automatic one that equals its HEAD, if a branch still has that commit.
///
/// # Errors
/// [`ChangeError::Store`] if the snapshot cannot be opened, [`ChangeError::Git`] if the commit
/// cannot be written.
pub fn kept_snapshot(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    snapshot: &SnapshotRecord,
) -> Result<Option<KeptSnapshot>, ChangeError> {
    let head = head_commit(name, snapshot)?;
    let tree_id = view_tree(store, repository, name, snapshot)?;
    let head_tree = repository.tree_of(head)?;
    let is_reached = match head {
        Some(head) => repository.reached_otherwise(head, &[])?.is_some(),
        None => true,
    };
    if tree_id == head_tree && is_reached && snapshot.reason.is_automatic() {
        return Ok(None);
    }
    let message = format!("tine: snapshot {} of {name}\n", snapshot.name);
    let view = commit_view(repository, tree_id, head, message, Some(Identity::tine()))?;
    Ok(Some(KeptSnapshot {
        name: snapshot.name.clone(),
        created_secs: snapshot.created_secs,
        message: snapshot.message.clone(),
        reason: snapshot.reason,
        head: head.map(|id| id.to_string()),
        view: view.to_string(),
    }))
}
