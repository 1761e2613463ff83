//! Staged contents that no file of the fork has.
//!
//! A snapshot holds files, so it lacks these.

use std::collections::HashMap;

use super::KeptSnapshot;
use super::views::commit_view;
use crate::changeset::{Blobs, Examined, Scope, Side, examine};
use crate::compare::compare_trees;
use crate::{Change, ChangeError};
use tine_attr::Timestamp;
use tine_git::commit::TreeChange;
use tine_git::{Identity, ObjectId, Repository, TreeEntryKind};
use tine_path::RepoPath;
use tine_store::{Fork, ForkName, SnapshotReason};

/// Name of the snapshot.
const NAME: &str = "staged";

/// Returns the index as a snapshot, if it has unique contents.
///
/// It has if a staged content is neither in the fork's file nor in HEAD. Paths in conflict are as
/// in HEAD, since their sides are in commits. Costs O(changes) and a git process.
///
/// # Errors
/// [`ChangeError::Git`] if index or HEAD cannot be read, [`ChangeError::Unstable`] if a file keeps
/// changing.
pub fn staged_only(
    repository: &Repository,
    name: &ForkName,
    fork: &Fork,
    reason: SnapshotReason,
) -> Result<Option<KeptSnapshot>, ChangeError> {
    let head = repository.head_left_at(&fork.worktree, name.as_str(), &fork.made_on)?;
    let head_tree = repository.tree_of(head)?;
    let (index_tree, unmerged) = repository.merged_index_tree(&fork.worktree)?;
    let staged = compare_trees(repository, head_tree, index_tree)?;
    let mut texts = staged
        .iter()
        .filter(|change| text(change.new.as_ref()).is_some())
        .peekable();
    if texts.peek().is_none() {
        return Ok(None);
    }
    let Examined { changeset, .. } =
        examine(repository, fork, head, Blobs::Name, Scope::Everything)?;
    let files: HashMap<&RepoPath, &Change> = changeset
        .changes
        .iter()
        .map(|change| (&change.path, change))
        .collect();
    let is_in_file = |change: &Change| {
        let file = files.get(&change.path).and_then(|file| file.new.as_ref());
        text(file) == text(change.new.as_ref())
    };
    if texts.all(is_in_file) {
        return Ok(None);
    }
    let as_in_head = |path: RepoPath| -> Result<TreeChange, ChangeError> {
        let entry = repository.tree_entry(head_tree, &path)?;
        let new = entry.map(|entry| (entry.kind, entry.id));
        Ok(TreeChange { path, new })
    };
    let edits = unmerged
        .into_iter()
        .map(as_in_head)
        .collect::<Result<Vec<_>, _>>()?;
    let tree_id = repository.edit_tree(index_tree, &edits)?;
    let message = format!("tine: what was staged in {name}\n");
    let view = commit_view(repository, tree_id, head, message, Some(Identity::tine()))?;
    Ok(Some(KeptSnapshot {
        name: ForkName::parse(NAME)?,
        created_secs: Timestamp::now().secs,
        message: Some("what was staged and in no file".to_owned()),
        reason,
        head: head.map(|id| id.to_string()),
        view: view.to_string(),
    }))
}

/// Returns the content of a file or link.
///
/// A change of mode alone is not worth keeping.
fn text(side: Option<&Side>) -> Option<ObjectId> {
    side.filter(|side| side.kind != TreeEntryKind::Submodule)
        .map(|side| side.id)
}
