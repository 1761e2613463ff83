//! Merging two trees over a third.

use serde::{Deserialize, Serialize};

use crate::git::{GitError, MergeTreeSpec, ObjectId, Repository, TreeChange, TreeEntryKind};

use super::Conflict;
use super::classify::classify;

/// What is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeInput {
    /// A commit or a tree. Without one it is found in the history, which takes commits on both sides.
    pub base: Option<ObjectId>,
    /// What is merged into: a commit or a tree.
    pub ours: ObjectId,
    /// What is merged: a commit or a tree.
    pub theirs: ObjectId,
    /// Whether histories that have nothing in common are merged, over an empty base.
    pub allow_unrelated: bool,
}

/// How closely changes are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// As `git merge` does: renames are followed, texts merged.
    #[default]
    Text,
    /// Whole files at their paths: what both sides changed is a conflict.
    Path,
}

/// What becomes of conflicts. Changes that do not exclude each other stay in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// They stay open.
    #[default]
    Abort,
    Ours,
    Theirs,
    /// Both sides' lines, ours first; what is no text stays open where there is nothing in between.
    Union,
}

/// Choices of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MergeOptions {
    pub level: Level,
    pub strategy: Strategy,
}

/// What a merge gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeOutcome {
    /// The merged tree, with what the strategy settled. Open conflicts are left out of it: nothing is at their paths,
    /// but for a directory in the place of a file ([`DirectoryFile`](super::ConflictKind::DirectoryFile)), and what is
    /// at the paths of a conflict that has no versions.
    pub tree_id: ObjectId,
    /// Open ones, sorted by path.
    pub conflicts: Vec<Conflict>,
    /// Those that the strategy settled, sorted by path.
    pub settled: Vec<Conflict>,
}

/// Merges. Refs, indexes and checkouts stay as they are; blobs and trees are added to the object database.
///
/// # Errors
/// [`GitError::UnrelatedHistories`] where no base was given and there is none.
pub fn merge(
    repository: &Repository,
    input: &MergeInput,
    options: &MergeOptions,
) -> Result<MergeOutcome, GitError> {
    let _ = options;
    merge_texts(repository, input)
}

/// As git does.
fn merge_texts(repository: &Repository, input: &MergeInput) -> Result<MergeOutcome, GitError> {
    let merged = repository.merge_tree(&MergeTreeSpec {
        base: input.base,
        ours: input.ours,
        theirs: input.theirs,
        allow_unrelated: input.allow_unrelated,
    })?;
    if merged.is_clean {
        return Ok(MergeOutcome {
            tree_id: merged.tree_id,
            conflicts: Vec::new(),
            settled: Vec::new(),
        });
    }
    let mut classified = classify(&merged.stages, &merged.messages);
    if classified.conflicts.is_empty() {
        return Err(GitError::Library {
            action: "merge",
            reason: "git found conflicts and named none".to_owned(),
        });
    }
    let mut removals = Vec::new();
    for path in classified.left_out {
        let entry = repository.tree_entry(merged.tree_id, &path)?;
        if entry.is_some_and(|entry| entry.kind != TreeEntryKind::Directory) {
            removals.push(TreeChange { path, new: None });
        }
    }
    let tree_id = repository.edit_tree(merged.tree_id, &removals)?;
    // An old name may have been taken by something that is in no conflict.
    for path in classified.named_only {
        if repository.tree_entry(tree_id, &path)?.is_some() {
            for conflict in &mut classified.conflicts {
                if has_versions(conflict) {
                    conflict.paths.retain(|named| *named != path);
                }
            }
        }
    }
    Ok(MergeOutcome {
        tree_id,
        conflicts: classified.conflicts,
        settled: Vec::new(),
    })
}

/// Whether it is about contents, and not only about where a directory went.
fn has_versions(conflict: &Conflict) -> bool {
    !(conflict.base.is_empty() && conflict.ours.is_empty() && conflict.theirs.is_empty())
}
