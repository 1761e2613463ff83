//! Staged text that no file of the fork has. A snapshot holds files, so it does not hold that.

use std::collections::HashMap;

use super::{KeptSnapshot, commit_view};
use crate::changeset::{Blobs, Examined, Scope, Side, examine};
use crate::compare::compare_trees;
use crate::{Change, ChangeError};
use tine_attr::Timestamp;
use tine_git::commit::TreeChange;
use tine_git::{Identity, ObjectId, Repository, TreeEntryKind};
use tine_path::RepoPath;
use tine_workspace::{Fork, ForkName, SnapshotReason};

/// The name of the snapshot.
const NAME: &str = "staged";

/// The fork's index as a snapshot in an entry, where something in it is in no file of the fork and
/// not in HEAD; without the paths in conflict, whose sides are commits. Costs O(changes) and a git
/// process.
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

/// The content of a file or link. Its mode alone is nobody's work.
fn text(side: Option<&Side>) -> Option<ObjectId> {
    side.filter(|side| side.kind != TreeEntryKind::Submodule)
        .map(|side| side.id)
}
