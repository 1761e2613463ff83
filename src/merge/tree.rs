//! Merge of two trees with a third as base.

use serde::{Deserialize, Serialize};

use super::Conflict;
use super::classify::classify;
use super::settle::{MAX_TEXT_BYTES, settle};
use super::text::is_binary;
use super::walk::{Trees, walk};
use tine_git::{
    GitError, MergeTreeSpec, ObjectId, Repository, TreeChange, TreeEntry, TreeEntryKind,
};

/// Objects to merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeInput {
    /// Merge base: a commit or a tree.
    ///
    /// `None` finds it in the history; then both sides must be commits.
    pub base: Option<ObjectId>,
    /// Side that is merged into: a commit or a tree.
    pub ours: ObjectId,
    /// Side that is merged: a commit or a tree.
    pub theirs: ObjectId,
    /// Allows histories without a common ancestor, with an empty base.
    pub allow_unrelated: bool,
}

/// Unit in which changes are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Inside files, line by line
    // As `git merge` does: it follows renames and merges texts.
    #[default]
    Text,
    /// Whole files
    // Renames are not followed. A file that both sides changed is a conflict.
    Path,
}

/// Rule for conflicts.
///
/// Changes that do not exclude each other are always kept.
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
    // Ours first. A conflict that is not about text stays open unless both sides can be kept.
    Union,
}

/// Choices of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MergeOptions {
    /// Unit of comparison: lines or whole files.
    pub level: Level,
    /// Treatment of conflicts.
    pub strategy: Strategy,
    /// True if files added to a directory stay there after its rename.
    ///
    /// One side adds the file, the other renames the directory (`merge.directoryRenames`).
    pub ignore_directory_renames: bool,
}

/// Result of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeOutcome {
    /// Merged tree, with the conflicts that the strategy settled.
    ///
    /// Open conflicts are left out: nothing is at their paths. There are two exceptions: a
    /// directory in the place of a file ([`DirectoryFile`](super::ConflictKind::DirectoryFile)),
    /// and the entries at the paths of a conflict without versions.
    pub tree_id: ObjectId,
    /// Open conflicts, sorted by path.
    pub conflicts: Vec<Conflict>,
    /// Conflicts that the strategy settled, sorted by path.
    pub settled: Vec<Conflict>,
}

/// Merges two commits or trees.
///
/// Refs, indexes and checkouts are not changed. Blobs and trees are added to the object database.
///
/// At [`Level::Path`] without a base, the best common ancestor is the base. Of several, the first
/// one is taken: git would merge them into one, but that needs a merge of texts.
///
/// # Errors
/// [`GitError::UnrelatedHistories`] if no base is given and there is none, another [`GitError`] if
/// an object cannot be read or written.
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

/// Merges line by line, with git.
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
    // An entry without a conflict may have taken an old name.
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

/// Merges whole files.
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
