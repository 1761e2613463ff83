//! Mails and patches in a sequence.

use std::fs;
use std::path::Path;

use super::{Outcome, Runner, parse_id};
use crate::ChangeError;
use crate::resolver::JsonBytes;
use crate::review::{ConflictRecord, Rejected, VersionRecord};
use crate::sequence::Item;
use tine_git::{GitError, Identity, ObjectId, PatchFile, Patched, RejectedFile, TreeChange};
use tine_merge::{ConflictKind, MergeOptions, Strategy};

impl Runner<'_> {
    /// As `git am` does it: the patch as it stands, and a merge of three where it does not fit.
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
            None => Outcome::clean(before),
            Some(patch) => {
                self.patched(item, before, parse_id(patch)?, (1, false), three_way, false)?
            }
        };
        let Some(tree_id) = self.resolved(index, outcome)? else {
            return Ok(());
        };
        let message = self.repository.read_blob(parse_id(message)?)?;
        self.commit_unless_empty(index, tree_id, patch.is_none(), message, author.clone())
    }

    /// What a patch makes of a tree. A merge of three is tried first, or only where the patch does
    /// not fit.
    pub(super) fn patched(
        &self,
        item: &Item,
        tree_id: ObjectId,
        patch_id: ObjectId,
        (strip, reverse): (u8, bool),
        three_way: bool,
        three_way_first: bool,
    ) -> Result<Outcome, ChangeError> {
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
            && let Some(outcome) = self.merged_patch(item, tree_id, patch, scratch.path())?
        {
            // git merges texts, and asks less of what has another mode, is renamed or goes.
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
                    Patched::Applied(tree_id) => Outcome::clean(tree_id),
                    Patched::Rejected { .. } => outcome,
                },
            );
        }
        match repository.patch_tree(tree_id, patch, scratch.path())? {
            Patched::Applied(tree_id) => Ok(Outcome::clean(tree_id)),
            Patched::Rejected {
                tree_id: fitted,
                files,
            } => {
                if three_way
                    && !three_way_first
                    && let Some(outcome) =
                        self.merged_patch(item, tree_id, patch, scratch.path())?
                {
                    return Ok(outcome);
                }
                self.rejected(item, fitted, &files)
            }
        }
    }

    /// Merges what the patch says to lead from, and to; `None` where the repository has not got
    /// that.
    fn merged_patch(
        &self,
        item: &Item,
        tree_id: ObjectId,
        patch: PatchFile<'_>,
        scratch: &Path,
    ) -> Result<Option<Outcome>, ChangeError> {
        let Some((old, new)) = self.repository.patch_sides(tree_id, patch, scratch)? else {
            return Ok(None);
        };
        // Of the sides nothing is known but some files, so nothing can be said of where directories
        // went.
        let options = MergeOptions {
            ignore_directory_renames: true,
            ..self.options.merge
        };
        let outcome = self.merged_with(old, tree_id, new, &options)?;
        Ok(Some(Outcome::of(outcome, item)))
    }

    /// Files that a patch does not fit, as conflicts.
    fn rejected(
        &self,
        item: &Item,
        tree_id: ObjectId,
        files: &[RejectedFile],
    ) -> Result<Outcome, ChangeError> {
        let mut outcome = Outcome::clean(tree_id);
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
