//! Trees of snapshots, written on first use and kept with them.

use super::ChangeError;
use super::changeset::{self, Blobs, Scope, examine};
use super::point::damaged;
use tine_git::{ObjectId, Repository};
use tine_store::tree_label;
use tine_store::{ForkName, SnapshotRecord, Store};

/// Returns the tree of the snapshot's view, if written and still there.
pub fn written_tree(repository: &Repository, snapshot: &SnapshotRecord) -> Option<ObjectId> {
    let tree_id = ObjectId::from_hex(snapshot.tree.as_ref()?.as_bytes()).ok()?;
    repository.has_object(tree_id).then_some(tree_id)
}

/// Returns the commit that HEAD of the fork was at.
///
/// `None`: the fork was on an unborn branch.
///
/// # Errors
/// [`ChangeError::Store`] if the record's commit id cannot be parsed.
pub fn head_commit(
    name: &ForkName,
    snapshot: &SnapshotRecord,
) -> Result<Option<ObjectId>, ChangeError> {
    let id = |hex: &String| ObjectId::from_hex(hex.as_bytes()).map_err(damaged(name));
    snapshot.head_commit.as_ref().map(id).transpose()
}

/// Returns the tree of the snapshot's view, and keeps it.
///
/// The tree has what `git add -A` would have taken at that time. The snapshot must not be removed
/// meanwhile.
///
/// # Errors
/// [`ChangeError::Store`] if the record is damaged or cannot be updated, and the errors of reading
/// the snapshot's files and of writing its objects.
pub fn snapshot_tree(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    snapshot: &SnapshotRecord,
) -> Result<ObjectId, ChangeError> {
    if let Some(tree_id) = written_tree(repository, snapshot) {
        return Ok(tree_id);
    }
    let tree_id = view_tree(store, repository, name, snapshot)?;
    // This includes all objects that were written.
    repository.sync_blobs(std::iter::once(tree_id))?;
    repository.keep(name.as_str(), &tree_label(&snapshot.name), tree_id)?;
    store.note_snapshot_tree(name, &snapshot.name, tree_id)?;
    Ok(tree_id)
}

/// Returns the tree of the snapshot's view; the caller must keep it.
///
/// [`snapshot_tree`] keeps the tree itself.
///
/// # Errors
/// [`ChangeError::Store`] if the snapshot cannot be opened, and the errors of reading its files and
/// of writing its objects.
pub fn view_tree(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    snapshot: &SnapshotRecord,
) -> Result<ObjectId, ChangeError> {
    if let Some(tree_id) = written_tree(repository, snapshot) {
        return Ok(tree_id);
    }
    let view = store.open_snapshot(name, snapshot)?;
    let head_commit = head_commit(name, snapshot)?;
    // The index says which ignored files are tracked. There is only today's index, which is wrong
    // for another HEAD.
    let is_same_head =
        repository.head_left_at(&view.worktree, name.as_str(), &view.made_on)? == head_commit;
    let scope = if is_same_head {
        Scope::Everything
    } else {
        Scope::WithoutIndex
    };
    let changeset = examine(repository, &view, head_commit, Blobs::Write, scope)?.changeset;
    changeset::write_tree(repository, &changeset)
}
