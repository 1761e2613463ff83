//! Resetting a fork to HEAD.

use std::collections::HashSet;

use super::initial::PreparedBase;
use super::{Fork, Store, files};
use crate::StoreError;
use crate::fork::{ForkName, ForkRecord};
use crate::snapshot::{SnapshotReason, SnapshotRecord};
use tine_git::ObjectId;
use tine_git::refs::{HELD, is_for_layers};

/// Files of a git operation in progress that `git reset --hard` removes.
const OPERATION_FILES: [&str; 8] = [
    "MERGE_HEAD",
    "MERGE_MSG",
    "MERGE_MODE",
    "MERGE_RR",
    "AUTO_MERGE",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "SQUASH_MSG",
];

impl Store {
    /// Resets the fork to HEAD: empty layers, HEAD's tree as base, fresh index.
    ///
    /// A merge, cherry-pick or revert in progress is forgotten, as with `git reset --hard`. If the
    /// fork's files differ from HEAD's, they become a snapshot first, which is returned. Otherwise
    /// the layers stay, with the operations in them.
    ///
    /// # Errors
    /// [`StoreError::NoSuchFork`], [`GitError`](tine_git::GitError) if git holds a lock in the
    /// worktree, or an error of the store's files.
    pub fn reset_fork(
        &self,
        name: &ForkName,
        fork: &Fork,
        reason: SnapshotReason,
    ) -> Result<Option<SnapshotRecord>, StoreError> {
        let record = self.places.read_record(name)?;
        let worktree = &fork.worktree;
        self.repository.check_unlocked(worktree)?;
        let commit_id = self.repository.head_of(worktree.git_dir())?.commit_id();
        let (to, prepared) = self.bare_commit(&record, commit_id, reason)?;
        self.hold_kept(name, name)?;
        let is_there = record.base_tree == to.base_tree
            && record.conversions == to.conversions
            && record.frozen_layers.is_empty()
            && fork
                .workspace
                .exclusively(|exclusive| exclusive.is_untouched());
        let before = if is_there {
            None
        } else {
            Some(self.restore(name, fork, &to, reason)?)
        };
        files::replace_atomically(&worktree.index_path(), |temporary| {
            prepared.write_index(temporary)
        })?;
        for file in OPERATION_FILES {
            files::remove_file(&worktree.git_dir().join(file))?;
        }
        if let Some(commit_id) = commit_id {
            self.repository.keep(name.as_str(), "base", commit_id)?;
            self.repository.keep(name.as_str(), "head", commit_id)?;
        }
        Ok(before)
    }

    /// Makes the commit the fork's view, with empty layers.
    ///
    /// `None` is the empty tree. HEAD and the index stay. The former state becomes a snapshot
    /// first, which is returned.
    ///
    /// # Errors
    /// [`StoreError::NoSuchFork`], [`GitError`](tine_git::GitError) if the commit cannot be read,
    /// or an error of the store's files.
    pub fn restore_commit(
        &self,
        name: &ForkName,
        fork: &Fork,
        commit_id: Option<ObjectId>,
        reason: SnapshotReason,
    ) -> Result<SnapshotRecord, StoreError> {
        let record = self.places.read_record(name)?;
        let (mut to, _) = self.bare_commit(&record, commit_id, reason)?;
        if to.base_tree == record.base_tree {
            // The base does not change, and keeps its settings.
            to.conversions.clone_from(&record.conversions);
        }
        self.hold_kept(name, name)?;
        if let Some(commit_id) = commit_id {
            let kept = self.repository.kept(name.as_str())?;
            if kept.iter().all(|(_, id)| *id != commit_id) {
                self.repository.hold(name.as_str(), commit_id)?;
            }
        }
        self.restore(name, fork, &to, reason)
    }

    /// Returns a snapshot record for the bare commit, and its base.
    fn bare_commit(
        &self,
        record: &ForkRecord,
        commit_id: Option<ObjectId>,
        reason: SnapshotReason,
    ) -> Result<(SnapshotRecord, PreparedBase), StoreError> {
        let prepared = self.prepare_base(
            commit_id,
            record.base_attrs,
            record.conversions.as_ref(),
            None,
        )?;
        let to = SnapshotRecord {
            name: record.name.clone(),
            created_secs: record.created_secs,
            message: None,
            reason,
            base_commit: commit_id.map(|id| id.to_string()),
            base_tree: prepared.base.tree_id().to_string(),
            base_attrs: prepared.attrs,
            conversions: Some(prepared.base.settings().clone()),
            head_commit: None,
            branch: None,
            fork_point: None,
            is_sparse: false,
            min_ctime: None,
            frozen_layers: Vec::new(),
            tree: None,
            git_point: None,
        };
        Ok((to, prepared))
    }

    /// Keeps the objects that the layers of `from` need for `to`, too.
    pub(super) fn hold_kept(&self, from: &ForkName, to: &ForkName) -> Result<(), StoreError> {
        let known = self.repository.kept(to.as_str())?.into_iter();
        let held = known.filter(|(label, _)| label.starts_with(HELD));
        let mut held: HashSet<ObjectId> = held.map(|(_, id)| id).collect();
        for (label, id) in self.repository.kept(from.as_str())? {
            if is_for_layers(&label) && held.insert(id) {
                self.repository.hold(to.as_str(), id)?;
            }
        }
        Ok(())
    }
}
