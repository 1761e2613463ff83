//! Mails and patches in a sequence.

use std::collections::BTreeSet;
use std::fs;

use super::{ItemOutcome, Runner};
use crate::ChangeError;
use crate::resolver::JsonBytes;
use crate::review::parse_id;
use crate::review::{ConflictRecord, Rejected, VersionRecord};
use crate::sequence::SequenceItem;
use tine_git::{
    GitError, Identity, ObjectId, PatchFile, Patched, PatchedFiles, RejectedFile, TreeChange,
};
use tine_merge::{ConflictKind, MergeOptions, Strategy};
use tine_path::RepoPath;

/// When a patch is merged with the versions that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThreeWay {
    /// Never.
    Never,
    /// Before it is applied, as `git apply --3way`.
    First,
    /// If it does not apply, as `git am --3way`.
    Fallback,
}

/// Returns the paths of a conflict that is not one of texts.
///
/// git does not merge them, and is less strict about other modes, renames and deletions.
fn unmerged_paths(conflict: &ConflictRecord) -> Vec<RepoPath> {
    use ConflictKind::{Binary, BothAdded, BothModified};
    match conflict.kind {
        Binary | BothAdded | BothModified => Vec::new(),
        _ => {
            let paths = conflict.paths.iter();
            paths
                .filter_map(|path| RepoPath::parse(path.to_bytes()).ok())
                .collect()
        }
    }
}

/// Returns the change of a conflict's path by the patch.
fn patched_entry(conflict: &ConflictRecord) -> Option<TreeChange> {
    let version = conflict.theirs.first()?;
    Some(TreeChange {
        path: RepoPath::parse(version.path.to_bytes()).ok()?,
        new: Some((version.kind, parse_id(&version.id).ok()?)),
    })
}

impl Runner<'_> {
    /// Applies a mail as `git am` does.
    ///
    /// A three-way merge is tried if the patch does not apply.
    pub(super) fn apply_mail(
        &mut self,
        index: usize,
        item: &SequenceItem,
        patch: Option<&str>,
        message: &str,
        author: &Identity,
        three_way: bool,
    ) -> Result<(), ChangeError> {
        let before = self.ran.tip.tree_id;
        let outcome = match patch {
            None => ItemOutcome::clean(before),
            Some(patch) => {
                let three_way = if three_way {
                    ThreeWay::Fallback
                } else {
                    ThreeWay::Never
                };
                self.apply_patch(item, before, parse_id(patch)?, (1, false), three_way)?
            }
        };
        let Some(tree_id) = self.apply_resolutions(index, outcome)? else {
            return Ok(());
        };
        let message = self.repository.read_blob(parse_id(message)?)?;
        self.commit_unless_empty(index, tree_id, patch.is_none(), message, author.clone())
    }

    /// Applies a patch to a tree.
    pub(super) fn apply_patch(
        &self,
        item: &SequenceItem,
        tree_id: ObjectId,
        patch_id: ObjectId,
        (strip, reverse): (u8, bool),
        three_way: ThreeWay,
    ) -> Result<ItemOutcome, ChangeError> {
        let scratch = self.store.scratch_dir()?;
        let path = scratch.path().join("patch");
        fs::write(&path, self.repository.read_blob(patch_id)?)
            .map_err(GitError::io("write", &path))?;
        let patch = PatchFile {
            path: &path,
            strip,
            reverse,
            files: PatchedFiles::All,
        };
        if three_way == ThreeWay::First
            && let Some(outcome) = self.merge_file_by_file(item, tree_id, patch)?
        {
            return Ok(outcome);
        }
        match self.patch_directly(tree_id, patch)? {
            Patched::Applied(tree_id) => Ok(ItemOutcome::clean(tree_id)),
            Patched::Rejected {
                tree_id: fitted,
                files,
            } => {
                if three_way == ThreeWay::Fallback
                    && let Some(outcome) = self.merge_patch(item, tree_id, patch)?
                {
                    return Ok(outcome);
                }
                self.rejected(item, fitted, &files)
            }
        }
    }

    /// Merges a patch file by file, as `git apply --3way`.
    ///
    /// The files that cannot be merged are patched without a merge. `None` if the repository lacks blobs of a file and the patch does not apply to that file.
    fn merge_file_by_file(
        &self,
        item: &SequenceItem,
        tree_id: ObjectId,
        patch: PatchFile<'_>,
    ) -> Result<Option<ItemOutcome>, ChangeError> {
        let merged = self.merge_with_modes(item, tree_id, patch)?;
        let mut apart: BTreeSet<RepoPath> = match &merged {
            Some(outcome) => outcome.conflicts.iter().flat_map(unmerged_paths).collect(),
            None => {
                let scratch = self.store.scratch_dir()?;
                self.repository
                    .patched_without_sides(tree_id, patch, scratch.path())?
            }
        };
        if apart.is_empty() {
            return Ok(merged);
        }
        // A file takes the place of a directory only with the files in it.
        let scratch = self.store.scratch_dir()?;
        for path in self.repository.patched_paths(patch, scratch.path())? {
            let is_near = |other: &RepoPath| path.starts_with(other) || other.starts_with(&path);
            if apart.iter().any(is_near) {
                apart.insert(path);
            }
        }
        let directly = PatchFile {
            files: PatchedFiles::Only(&apart),
            ..patch
        };
        let Patched::Applied(tree_id) = self.patch_directly(tree_id, directly)? else {
            return Ok(merged);
        };
        let rest = PatchFile {
            files: PatchedFiles::Except(&apart),
            ..patch
        };
        let outcome = self.merge_with_modes(item, tree_id, rest)?;
        let is_merged = |outcome: &ItemOutcome| {
            let mut conflicts = outcome.conflicts.iter();
            conflicts.all(|conflict| unmerged_paths(conflict).is_empty())
        };
        Ok(outcome.filter(is_merged).or(merged))
    }

    /// Merges a patch; its mode counts where the content is the same.
    fn merge_with_modes(
        &self,
        item: &SequenceItem,
        tree_id: ObjectId,
        patch: PatchFile<'_>,
    ) -> Result<Option<ItemOutcome>, ChangeError> {
        let Some(mut outcome) = self.merge_patch(item, tree_id, patch)? else {
            return Ok(None);
        };
        let (modes, rest): (Vec<_>, Vec<_>) = outcome
            .conflicts
            .into_iter()
            .partition(|conflict| conflict.kind == ConflictKind::ModeChanged);
        outcome.conflicts = rest;
        let edits: Vec<_> = modes.iter().filter_map(patched_entry).collect();
        outcome.tree_id = self.repository.edit_tree(outcome.tree_id, &edits)?;
        Ok(Some(outcome))
    }

    /// Applies a patch to a tree without a merge.
    fn patch_directly(
        &self,
        tree_id: ObjectId,
        patch: PatchFile<'_>,
    ) -> Result<Patched, ChangeError> {
        let scratch = self.store.scratch_dir()?;
        Ok(self.repository.patch_tree(tree_id, patch, scratch.path())?)
    }

    /// Merges the two sides that a patch names into a tree.
    ///
    /// `None` if the repository lacks them.
    fn merge_patch(
        &self,
        item: &SequenceItem,
        tree_id: ObjectId,
        patch: PatchFile<'_>,
    ) -> Result<Option<ItemOutcome>, ChangeError> {
        let scratch = self.store.scratch_dir()?;
        let sides = self
            .repository
            .patch_sides(tree_id, patch, scratch.path())?;
        let Some((old, new)) = sides else {
            return Ok(None);
        };
        // The sides have only a few files, so renamed directories cannot be detected.
        let options = MergeOptions {
            ignore_directory_renames: true,
            ..self.options.merge
        };
        let outcome = self.merged_with(old, tree_id, new, &options)?;
        Ok(Some(ItemOutcome::of(outcome, item)))
    }

    /// Records the files that a patch does not apply to as conflicts.
    fn rejected(
        &self,
        item: &SequenceItem,
        tree_id: ObjectId,
        files: &[RejectedFile],
    ) -> Result<ItemOutcome, ChangeError> {
        let mut outcome = ItemOutcome::clean(tree_id);
        let mut edits = Vec::new();
        for file in files {
            let versions = |entry: Option<_>| -> Vec<VersionRecord> {
                let version = entry.map(|(kind, id): (_, ObjectId)| VersionRecord {
                    path: (&file.path).into(),
                    kind,
                    id: id.to_string(),
                });
                version.into_iter().collect()
            };
            let record = ConflictRecord {
                kind: ConflictKind::Rejected,
                path: (&file.path).into(),
                paths: vec![(&file.path).into()],
                base: Vec::new(),
                ours: versions(file.before),
                theirs: versions(file.after),
                of: item.name(),
                rejected: Some(Rejected {
                    reason: file.reason.clone(),
                    hunks: file.hunks.clone().map(JsonBytes::from),
                }),
                resolution: None,
            };
            if self.options.merge.strategy == Strategy::Ours {
                edits.push(TreeChange {
                    path: file.path.clone(),
                    new: file.before,
                });
                outcome.settled.push(record);
            } else {
                outcome.conflicts.push(record);
            }
        }
        outcome.tree_id = self.repository.edit_tree(tree_id, &edits)?;
        Ok(outcome)
    }
}
