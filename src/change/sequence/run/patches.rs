//! Mails and patches in a sequence.

use std::fs;
use std::path::Path;

use super::{ItemOutcome, Runner, parse_id};
use crate::ChangeError;
use crate::resolver::JsonBytes;
use crate::review::{ConflictRecord, Rejected, VersionRecord};
use crate::sequence::Item;
use tine_git::{GitError, Identity, ObjectId, PatchFile, Patched, RejectedFile, TreeChange};
use tine_merge::{ConflictKind, MergeOptions, Strategy};

impl Runner<'_> {
    /// Applies a mail as `git am` does.
    ///
    /// A three-way merge is tried if the patch does not apply.
    pub(super) fn apply_mail(
        &mut self,
        index: usize,
        item: &Item,
        patch: Option<&str>,
        message: &str,
        author: &Identity,
        three_way: bool,
    ) -> Result<(), ChangeError> {
        let before = self.ran.tip.tree_id;
        let outcome = match patch {
            None => ItemOutcome::clean(before),
            Some(patch) => {
                self.apply_patch(item, before, parse_id(patch)?, (1, false), three_way, false)?
            }
        };
        let Some(tree_id) = self.apply_resolutions(index, outcome)? else {
            return Ok(());
        };
        let message = self.repository.read_blob(parse_id(message)?)?;
        self.commit_unless_empty(index, tree_id, patch.is_none(), message, author.clone())
    }

    /// Applies a patch to a tree.
    ///
    /// A three-way merge is tried first, or only if the patch does not apply.
    pub(super) fn apply_patch(
        &self,
        item: &Item,
        tree_id: ObjectId,
        patch_id: ObjectId,
        (strip, reverse): (u8, bool),
        three_way: bool,
        three_way_first: bool,
    ) -> Result<ItemOutcome, ChangeError> {
        let repository = self.repository;
        let scratch = self.store.scratch_dir()?;
        let path = scratch.path().join("patch");
        fs::write(&path, repository.read_blob(patch_id)?).map_err(GitError::io("write", &path))?;
        let patch = PatchFile {
            path: &path,
            strip,
            reverse,
        };
        if three_way_first
            && three_way
            && let Some(outcome) = self.merge_patch(item, tree_id, patch, scratch.path())?
        {
            // git merges texts, and is less strict about other modes, renames and deletions.
            let is_text = |conflict: &ConflictRecord| {
                use ConflictKind::{Binary, BothAdded, BothModified};
                matches!(conflict.kind, Binary | BothAdded | BothModified)
            };
            if outcome.conflicts.is_empty() || outcome.conflicts.iter().any(is_text) {
                return Ok(outcome);
            }
            let scratch = self.store.scratch_dir()?;
            return Ok(
                match repository.patch_tree(tree_id, patch, scratch.path())? {
                    Patched::Applied(tree_id) => ItemOutcome::clean(tree_id),
                    Patched::Rejected { .. } => outcome,
                },
            );
        }
        match repository.patch_tree(tree_id, patch, scratch.path())? {
            Patched::Applied(tree_id) => Ok(ItemOutcome::clean(tree_id)),
            Patched::Rejected {
                tree_id: fitted,
                files,
            } => {
                if three_way
                    && !three_way_first
                    && let Some(outcome) = self.merge_patch(item, tree_id, patch, scratch.path())?
                {
                    return Ok(outcome);
                }
                self.rejected(item, fitted, &files)
            }
        }
    }

    /// Merges the two sides that a patch names into a tree.
    ///
    /// `None` if the repository lacks them.
    fn merge_patch(
        &self,
        item: &Item,
        tree_id: ObjectId,
        patch: PatchFile<'_>,
        scratch: &Path,
    ) -> Result<Option<ItemOutcome>, ChangeError> {
        let Some((old, new)) = self.repository.patch_sides(tree_id, patch, scratch)? else {
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
        item: &Item,
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
