//! Repeating the merge of a review, with its resolutions and amendments.

use super::conflicts::parse_path;
use super::{ConflictRecord, ReviewRecord, VersionRecord, damaged, parse_id};
use crate::ChangeError;
use crate::merge::{Tip, carry_along};
use crate::sequence::{self, RunOptions, SequenceOutcome};
use tine_git::{Identity, ObjectId, Repository, TreeChange};
use tine_merge::conflict::without_entries_below_files;
use tine_merge::{Conflict, MergeInput, MergeOutcome, Resolution, merge};
use tine_store::Store;

/// Outcome of applying resolutions.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// Tree with the resolutions, without the open conflicts.
    pub tree_id: ObjectId,
    /// Conflicts without a resolution.
    pub open: Vec<ConflictRecord>,
    /// Conflicts with a resolution.
    pub resolved: Vec<ConflictRecord>,
}

impl ReviewRecord {
    /// Applies resolutions and amendments to a merge.
    ///
    /// Conflicts without a resolution, or with other contents, stay open.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if the record is damaged, [`ChangeError::Git`] if trees cannot be
    /// read or written.
    pub fn apply_to_merge(
        &self,
        repository: &Repository,
        mut outcome: MergeOutcome,
    ) -> Result<MergeOutcome, ChangeError> {
        let records = outcome.conflicts.iter().map(ConflictRecord::of).collect();
        let Resolved { tree_id, open, .. } = self.resolve(repository, outcome.tree_id, records)?;
        let is_open =
            |conflict: &Conflict| open.iter().any(|open| open.path == (&conflict.path).into());
        let (open, settled): (Vec<_>, Vec<_>) = outcome.conflicts.into_iter().partition(is_open);
        outcome.conflicts = open;
        outcome.settled.extend(settled);
        outcome.settled.sort_by(|a, b| a.path.cmp(&b.path));
        outcome.tree_id = self.amend(repository, tree_id)?;
        Ok(outcome)
    }

    /// Applies resolutions to a tree that leaves `conflicts` out.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if the record is damaged, [`ChangeError::Git`] if trees cannot be
    /// read or written.
    pub fn resolve(
        &self,
        repository: &Repository,
        tree_id: ObjectId,
        conflicts: Vec<ConflictRecord>,
    ) -> Result<Resolved, ChangeError> {
        let mut edits: Vec<TreeChange> = Vec::new();
        let (mut open, mut resolved) = (Vec::new(), Vec::new());
        for conflict in conflicts {
            let known = self
                .conflicts
                .iter()
                .find(|known| known.has_same_inputs(&conflict));
            match known.and_then(|known| known.resolution.as_ref()) {
                None => open.push(conflict),
                Some(resolution) => {
                    let versions = resolution
                        .versions
                        .iter()
                        .map(VersionRecord::version)
                        .collect::<Result<_, _>>()?;
                    edits.extend(conflict.conflict()?.edits(&Resolution::Versions(versions)));
                    resolved.push(ConflictRecord {
                        resolution: Some(resolution.clone()),
                        ..conflict
                    });
                }
            }
        }
        let edits = without_entries_below_files(edits);
        Ok(Resolved {
            tree_id: repository.edit_tree(tree_id, &edits)?,
            open,
            resolved,
        })
    }

    /// Applies the amendments to a tree.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if the record is damaged, [`ChangeError::Git`] if trees cannot be
    /// read or written.
    pub fn amend(
        &self,
        repository: &Repository,
        tree_id: ObjectId,
    ) -> Result<ObjectId, ChangeError> {
        let mut edits = Vec::new();
        for amendment in &self.amendments {
            edits.push(TreeChange {
                path: parse_path(&amendment.path)?,
                new: match &amendment.new {
                    Some(new) => Some((new.kind, new.version()?.id)),
                    None => None,
                },
            });
        }
        Ok(repository.edit_tree(tree_id, &edits)?)
    }

    /// Returns the trees before and after the merge.
    ///
    /// The merge is repeated with the planned sides, and resolutions and amendments are applied.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if the record is damaged, [`ChangeError::Git`] if an object is
    /// missing.
    pub fn trees(
        &self,
        store: &Store,
        repository: &Repository,
    ) -> Result<(ObjectId, ObjectId), ChangeError> {
        let optional = |hex: &Option<String>| hex.as_deref().map(parse_id).transpose();
        let ours = optional(&self.ours_commit)?;
        let ours_tree = repository.tree_of(ours)?;
        let options = self.merge.options();
        if let Some(work) = &self.work {
            let view = optional(&work.view)?;
            let ran = self.run_again(store, repository)?;
            return Ok((view.unwrap_or(ours_tree), ran.tree_id()));
        }
        let theirs = self.theirs_commit.as_ref().unwrap_or(&self.theirs_tree);
        let outcome = merge(
            repository,
            &MergeInput {
                base: optional(&self.merge.base)?,
                ours: ours.unwrap_or(repository.empty_tree_id()),
                theirs: parse_id(theirs)?,
                allow_unrelated: self.merge.allow_unrelated,
            },
            &options,
        )?;
        let merged = self.apply_to_merge(repository, outcome)?;
        let Some(view) = optional(&self.view)? else {
            return Ok((ours_tree, merged.tree_id));
        };
        // Uncommitted changes are merged with everything that is resolved.
        let tip = |tree_id| Tip {
            commit_id: None,
            tree_id,
        };
        let outcome = carry_along(
            repository,
            tip(ours_tree),
            view,
            tip(merged.tree_id),
            &options,
        )?;
        let records = outcome
            .conflicts
            .iter()
            .map(ConflictRecord::of_uncommitted)
            .collect();
        Ok((
            view,
            self.resolve(repository, outcome.tree_id, records)?.tree_id,
        ))
    }

    /// Runs the sequence of this review on its planned sides.
    ///
    /// Resolutions are applied. tine is the author of the resulting commits, which no branch gets.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if this is not a review of a sequence or is damaged, and the errors
    /// of [`sequence::run`].
    pub fn run_again(
        &self,
        store: &Store,
        repository: &Repository,
    ) -> Result<SequenceOutcome, ChangeError> {
        let optional = |hex: &Option<String>| hex.as_deref().map(parse_id).transpose();
        let Some(work) = &self.work else {
            return Err(damaged(&"it is no review of a sequence"));
        };
        let commit_id = optional(&self.ours_commit)?;
        let tip = Tip {
            commit_id,
            tree_id: repository.tree_of(commit_id)?,
        };
        let view = optional(&work.view)?;
        let options = RunOptions {
            merge: self.merge.options(),
            allow_unrelated: self.merge.allow_unrelated,
            author: Some(Identity::tine()),
            committer: Some(Identity::tine()),
            review: Some(self),
        };
        sequence::run(store, repository, &work.sequence, tip, view, &options)
    }
}
