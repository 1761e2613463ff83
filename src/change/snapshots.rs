//! The trees of snapshots: written when somebody asks for them, and kept with the snapshot from
//! then on.

use super::ChangeError;
use super::changeset::{self, Blobs, Scope, examine};
use super::point::damaged;
use tine_git::{ObjectId, Repository};
use tine_workspace::store::tree_label;
use tine_workspace::{ForkName, SnapshotRecord, Store};

/// The tree of the snapshot's view, if it was written and is still there.
pub fn written_tree(repository: &Repository, snapshot: &SnapshotRecord) -> Option<ObjectId> {
    let tree_id = ObjectId::from_hex(snapshot.tree.as_ref()?.as_bytes()).ok()?;
    repository.has_object(tree_id).then_some(tree_id)
}

/// The commit that HEAD of the fork was on; `None` on a branch without one.
pub fn head_commit(
    name: &ForkName,
    snapshot: &SnapshotRecord,
) -> Result<Option<ObjectId>, ChangeError> {
    let id = |hex: &String| ObjectId::from_hex(hex.as_bytes()).map_err(damaged(name));
    snapshot.head_commit.as_ref().map(id).transpose()
}

/// The tree of the snapshot's view: what `git add -A` would have taken then. The snapshot must not
/// be removed meanwhile.
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
    // All that was written, with it.
    repository.sync_blobs(std::iter::once(tree_id))?;
    repository.keep(name.as_str(), &tree_label(&snapshot.name), tree_id)?;
    store.note_snapshot_tree(name, &snapshot.name, tree_id)?;
    Ok(tree_id)
}

/// As [`snapshot_tree`], for a caller that keeps the tree itself.
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
    // The index says which ignored files are tracked. It is that of now, and has nothing to say of
    // another HEAD.
    let scope = match repository.head_left_at(&view.worktree, name.as_str(), &view.made_on)?
        == head_commit
    {
        true => Scope::Everything,
        false => Scope::WithoutIndex,
    };
    let changeset = examine(repository, &view, head_commit, Blobs::Write, scope)?.changeset;
    changeset::write_tree(repository, &changeset)
}
