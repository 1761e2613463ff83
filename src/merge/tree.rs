//! Merging two trees over a third.

use serde::{Deserialize, Serialize};

use super::Conflict;
use super::classify::classify;
use super::settle::{MAX_TEXT_BYTES, settle};
use super::text::is_binary;
use super::walk::{Trees, walk};
use tine_git::{
    GitError, MergeTreeSpec, ObjectId, Repository, TreeChange, TreeEntry, TreeEntryKind,
};

/// What is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeInput {
    /// A commit or a tree. Without one it is found in the history, which takes commits on both
    /// sides.
    pub base: Option<ObjectId>,
    /// What is merged into: a commit or a tree.
    pub ours: ObjectId,
    /// What is merged: a commit or a tree.
    pub theirs: ObjectId,
    /// Whether histories that have nothing in common are merged, over an empty base.
    pub allow_unrelated: bool,
}

/// How closely changes are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Inside files, line by line
    // As `git merge` does: renames are followed, texts merged.
    #[default]
    Text,
    /// Whole files
    // At their paths: what both sides changed is a conflict.
    Path,
}

/// What becomes of conflicts. Changes that do not exclude each other stay in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Nothing is changed
    #[default]
    Abort,
    /// What the target has
    Ours,
    /// What the source has
    Theirs,
    /// The lines of both
    // Ours first; what is no text stays open where there is nothing in between.
    Union,
}

/// Choices of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MergeOptions {
    pub level: Level,
    pub strategy: Strategy,
    /// Files that one side adds stay where it has them, even if the other renamed the directory
    /// (`merge.directoryRenames`).
    pub ignore_directory_renames: bool,
}

/// What a merge gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeOutcome {
    /// The merged tree, with what the strategy settled. Open conflicts are left out of it: nothing
    /// is at their paths, but for a directory in the place of a file
    /// ([`DirectoryFile`](super::ConflictKind::DirectoryFile)), and what is at the paths of a
    /// conflict that has no versions.
    pub tree_id: ObjectId,
    /// Open ones, sorted by path.
    pub conflicts: Vec<Conflict>,
    /// Those that the strategy settled, sorted by path.
    pub settled: Vec<Conflict>,
}

/// Merges. Refs, indexes and checkouts stay as they are; blobs and trees are added to the object
/// database.
///
/// At [`Level::Path`] without a base, the best common ancestor is taken, and of several the first:
/// git's would be made of all of them, by merging texts.
///
/// # Errors
/// [`GitError::UnrelatedHistories`] where no base was given and there is none.
pub fn merge(
    repository: &Repository,
    input: &MergeInput,
    options: &MergeOptions,
) -> Result<MergeOutcome, GitError> {
    let (tree_id, conflicts) = match options.level {
        Level::Text => merge_texts(repository, input, options)?,
        Level::Path => merge_paths(repository, input)?,
    };
    settle(repository, tree_id, conflicts, options)
}

/// As git does.
fn merge_texts(
    repository: &Repository,
    input: &MergeInput,
    options: &MergeOptions,
) -> Result<(ObjectId, Vec<Conflict>), GitError> {
    let merged = repository.merge_tree(&MergeTreeSpec {
        base: input.base,
        ours: input.ours,
        theirs: input.theirs,
        allow_unrelated: input.allow_unrelated,
        ignore_directory_renames: options.ignore_directory_renames,
    })?;
    if merged.is_clean {
        return Ok((merged.tree_id, Vec::new()));
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
                if conflict.has_versions() {
                    conflict.paths.retain(|named| *named != path);
                }
            }
        }
    }
    Ok((tree_id, classified.conflicts))
}

/// Whole files.
fn merge_paths(
    repository: &Repository,
    input: &MergeInput,
) -> Result<(ObjectId, Vec<Conflict>), GitError> {
    let base = match input.base {
        Some(base) => Some(base),
        None => match repository.merge_bases(input.ours, input.theirs)?.first() {
            None if !input.allow_unrelated => return Err(GitError::UnrelatedHistories),
            first => first.copied(),
        },
    };
    let base_tree_id = base.map(|base| repository.peel_to_tree(base)).transpose()?;
    let ours_tree_id = repository.peel_to_tree(input.ours)?;
    let theirs_tree_id = repository.peel_to_tree(input.theirs)?;
    let walked = walk(repository, base_tree_id, ours_tree_id, theirs_tree_id)?;
    let tree_id = repository.edit_tree(ours_tree_id, &walked.changes)?;
    Ok((tree_id, walked.conflicts))
}

impl Trees for Repository {
    fn entries(&self, tree_id: ObjectId) -> Result<Vec<TreeEntry>, GitError> {
        self.read_tree(tree_id)
    }

    fn is_binary(&self, blob_id: ObjectId) -> Result<bool, GitError> {
        Ok(self.blob_size(blob_id)? > MAX_TEXT_BYTES || is_binary(&self.read_blob(blob_id)?))
    }
}
