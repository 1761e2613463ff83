//! Linked worktrees of forks: found, and registered again if they are gone.

use std::fs;
use std::path::PathBuf;

use super::check::{move_to, next_aside};
use super::initial::InitialContent;
use super::rollback::Rollback;
use super::{LeaseKey, Store};
use crate::StoreError;
use crate::fork::{ForkName, ForkRecord, GitKind};
use tine_git::refs::is_for_layers;
use tine_git::{Checkout, Head, ObjectId, Worktree};

impl Store {
    /// Opens the worktree of the fork `name` without opening the fork.
    ///
    /// A worktree that was removed outside tine is registered again.
    ///
    /// # Errors
    /// [`StoreError::NoSuchFork`] or [`StoreError::Damaged`] for the record, or the error of git
    /// that prevents the worktree from being opened or registered.
    pub fn worktree_of(&self, name: &ForkName) -> Result<Worktree, StoreError> {
        let record = self.places.read_record(name)?;
        self.restore_worktree(&record)?;
        Ok(record.open_worktree(&self.repository)?)
    }

    /// Returns the path of the fork's own git directory.
    pub fn own_git_dir(&self, name: &ForkName) -> PathBuf {
        self.places.git_dir(name)
    }

    /// Returns the private git directory of the fork's worktree.
    pub fn worktree_dir(&self, record: &ForkRecord) -> PathBuf {
        match record.git_kind {
            GitKind::Own => self.places.git_dir(&record.name),
            GitKind::Linked => {
                let worktrees = self.repository.common_dir().join("worktrees");
                worktrees.join(&record.worktree_id)
            }
        }
    }

    /// Registers the worktree of a fork again if git has removed it.
    ///
    /// `git worktree remove --force --force` removes it, and the layers can be reached only through
    /// it. HEAD is put on the fork's branch, or else on its base. The index is that of the commit
    /// at which the fork left the branch, so that all uncommitted work is there, unstaged. The
    /// reflog of HEAD says where the fork left its branch.
    pub(super) fn restore_worktree(&self, record: &ForkRecord) -> Result<(), StoreError> {
        if record.git_kind == GitKind::Own {
            return self.restore_own(record);
        }
        let dir = self.worktree_dir(record);
        if dir.is_dir() {
            return Ok(Worktree::repair(&dir, &record.mount_dir)?);
        }
        let name = record.head_branch.as_ref().unwrap_or(&record.branch);
        let by = format!("tine mount {}", record.name);
        let _lease = self.lease_now(LeaseKey::Branch(name.clone()), &by)?;
        let _admin = self.admin.lock();
        if dir.is_dir() {
            // Another thread was faster.
            return Ok(());
        }
        // A link that cannot be followed now may lead to the whole worktree.
        if fs::symlink_metadata(&dir).is_ok_and(|found| !found.is_symlink()) {
            let aside = next_aside(&self.places)?;
            let id = dir.file_name().unwrap_or_default();
            move_to(&dir, &aside.join("worktrees").join(id))?;
        }
        log::warn!(
            "the worktree of the fork {} is gone, registering it again",
            record.name
        );
        let branch = format!("refs/heads/{name}");
        let tip = match self.checked_out_at(name)? {
            Some(_) => None,
            None => self.repository.branch(name)?,
        };
        let base_commit = record
            .base_commit
            .as_deref()
            .and_then(|hex| ObjectId::from_hex(hex.as_bytes()).ok());
        let head = match (tip, base_commit) {
            (Some(commit_id), _) => Head::Branch {
                name: branch,
                commit_id,
            },
            (None, Some(commit_id)) => Head::Detached { commit_id },
            (None, None) => Head::Unborn { name: branch },
        };
        let left_at = match &head {
            Head::Branch { commit_id, .. } => Some(self.kept_left_at(record, *commit_id)?),
            head => head.commit_id(),
        };
        // With the base's index, `git commit` would revert what was committed since.
        let indexed = left_at
            .filter(|id| self.repository.has_object(*id))
            .or(base_commit);
        let prepared = self.prepare_base(
            indexed,
            record.base_attrs,
            record.conversions.as_ref(),
            None,
        )?;
        let worktree = Worktree::register_again(
            &self.repository,
            record.name.as_str(),
            &record.mount_dir,
            &head,
            left_at,
            &lock_reason(&record.name),
        )?;
        let mut undo = Rollback::default();
        let registered = worktree.clone();
        undo.push(move || Ok(registered.remove()?));
        if worktree.id() != Some(record.worktree_id.as_str()) {
            // The `.git` file in the layer leads to the old worktree.
            return Err(StoreError::Damaged {
                path: dir,
                reason: "the fork's worktree is gone and cannot be registered under its name"
                    .to_owned(),
            });
        }
        InitialContent::of_base(prepared, indexed, None)
            .fill_worktree(&self.repository, &worktree)?;
        undo.disarm();
        Ok(())
    }

    /// Returns the commit at which the fork left its branch.
    ///
    /// This is the branch's current commit `tip` if the kept refs show that the fork had that
    /// commit, if git moved the branch there in a checkout, which can only have been the fork's, or
    /// if no HEAD is kept. Otherwise it is the kept HEAD.
    fn kept_left_at(&self, record: &ForkRecord, tip: ObjectId) -> Result<ObjectId, StoreError> {
        let mut head = None;
        for (label, id) in self.repository.kept(record.name.as_str())? {
            if !is_for_layers(&label) || !self.repository.has_object(id) {
                continue;
            }
            if tip == id || self.repository.is_ancestor(tip, id)? {
                return Ok(tip);
            }
            if label == "head" {
                head = Some(id);
            }
        }
        let branch = record.head_branch.as_ref().unwrap_or(&record.branch);
        Ok(match head {
            Some(head) if !self.repository.was_moved_in_checkout(branch, head, tip)? => head,
            _ => tip,
        })
    }

    /// Returns where the branch (short name) is checked out, if anywhere.
    ///
    /// A fork with an unreadable HEAD counts as on the branch in its record.
    pub(super) fn checked_out_at(&self, branch: &str) -> Result<Option<PathBuf>, StoreError> {
        let records = self.records().0;
        let mut checkouts = self.checkouts_with(&records)?;
        assume_branches(&mut checkouts, &records);
        let full_name = format!("refs/heads/{}", self.repository.branch_behind(branch));
        let mut checkouts = checkouts.into_iter();
        let found = checkouts.find(|checkout| checkout.uses(full_name.as_bytes()));
        Ok(found.map(|checkout| checkout.dir))
    }
}

/// Gives checkouts with an unreadable HEAD the branch of their fork's record.
///
/// So no other checkout can take that branch.
pub fn assume_branches(checkouts: &mut [Checkout], records: &[ForkRecord]) {
    for checkout in checkouts
        .iter_mut()
        .filter(|checkout| checkout.damage.is_some())
    {
        if let Some(record) = records
            .iter()
            .find(|record| record.has_git_dir(&checkout.git_dir))
        {
            let branch = record.head_branch.as_ref().unwrap_or(&record.branch);
            checkout.branch = Some(format!("refs/heads/{branch}").into_bytes());
        }
    }
}

/// Returns the reason with which git locks the worktree of a fork.
///
/// git shows it to a user who tries to remove the worktree.
pub(super) fn lock_reason(name: &ForkName) -> String {
    format!("tine fork {name}, which `tine delete {name}` removes")
}

/// Parses the fork's name out of a lock reason that tine wrote.
pub(super) fn fork_of_lock_reason(reason: &str) -> Option<ForkName> {
    let (name, _) = reason.strip_prefix("tine fork ")?.split_once(',')?;
    ForkName::parse(name).ok()
}
