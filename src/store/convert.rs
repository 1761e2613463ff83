//! Conversion of a fork's kind of git directory.
//!
//! The new git directory is made beside the old one. The record that names it decides; what it does
//! not name is removed, here or at the next opening of the store.

use std::fs;

use super::initial::copy_index;
use super::rollback::Rollback;
use super::worktree::lock_reason;
use super::{Fork, Store, files};
use crate::StoreError;
use crate::fork::{ForkName, ForkRecord, GitKind};
use tine_git::own::OwnStart;
use tine_git::{GitError, Head, Worktree};

impl Store {
    /// Makes the fork a repository of its own, or a linked worktree.
    ///
    /// HEAD, its reflog and the index stay. The caller has the fork unmounted and no operation of
    /// git in progress in it. A fork that is of that kind stays as it is.
    ///
    /// # Errors
    /// [`StoreError::NoSuchFork`], [`GitError::BranchExists`] if the main repository's branch of
    /// that name is elsewhere, [`GitError::BranchCheckedOut`] if another checkout has it, or an
    /// error of reading or writing the git directories.
    pub fn convert_fork(
        &self,
        name: &ForkName,
        fork: &Fork,
        kind: GitKind,
    ) -> Result<ForkRecord, StoreError> {
        let _admin = self.admin.lock();
        let record = self.places.read_record(name)?;
        match (record.git_kind, kind) {
            (GitKind::Linked, GitKind::Own) => self.convert_to_own(record, fork),
            (GitKind::Own, GitKind::Linked) => self.convert_to_linked(record, fork),
            _ => Ok(record),
        }
    }

    fn convert_to_own(
        &self,
        mut record: ForkRecord,
        fork: &Fork,
    ) -> Result<ForkRecord, StoreError> {
        let (repository, linked) = (&self.repository, &fork.worktree);
        repository.check_unlocked(linked)?;
        let head = repository.head_of(linked.git_dir())?;
        let git_dir = self.places.git_dir(&record.name);
        // Left by a conversion whose process died.
        files::remove_dir(&git_dir)?;
        let config = self.own_config()?;
        let start = OwnStart {
            checkout_dir: &record.mount_dir,
            head: &head,
            config: &config,
            reflog: "tine: converted from a linked worktree",
        };
        let mut undo = Rollback::default();
        undo.push(|| files::remove_dir(&git_dir));
        let own = Worktree::create_own(repository, &git_dir, &start)?;
        // Refs that it had when it was a repository of its own before.
        let refs = repository.refs_at(&git_dir);
        for (name, id) in repository.kept_in_own(record.name.as_str())? {
            if head.branch() != Some(name.as_str()) {
                refs.create_ref(&name, id)?;
            }
        }
        copy_log(linked, &own)?;
        if linked.index_path().exists() {
            copy_index(&linked.index_path(), &own.index_path())?;
        }
        files::sync_files_in(&git_dir)?;
        record.followed_branch = head.short_branch().map(str::to_owned);
        record.git_kind = GitKind::Own;
        record.worktree_id = String::new();
        files::write_json(&self.places.record(&record.name), &record)?;
        undo.disarm();
        if let Err(error) = linked.clone().remove() {
            log::warn!("the next opening of the store removes the worktree: {error}");
        }
        Ok(record)
    }

    fn convert_to_linked(
        &self,
        mut record: ForkRecord,
        fork: &Fork,
    ) -> Result<ForkRecord, StoreError> {
        let (repository, own) = (&self.repository, &fork.worktree);
        repository.check_unlocked(own)?;
        let head = repository.head_of(own.git_dir())?;
        let mut new_branch = None;
        if let (Some(branch), Some(commit_id)) = (head.short_branch(), head.commit_id()) {
            match repository.branch(branch)? {
                Some(tip) if tip == commit_id => {}
                Some(_) => return Err(GitError::BranchExists(branch.to_owned()).into()),
                None => {
                    let reflog = format!("branch: Created from {}", record.name);
                    repository.create_branch(branch, commit_id, &reflog)?;
                    new_branch = Some((branch.to_owned(), commit_id));
                }
            }
        }
        let mut undo = Rollback::default();
        undo.push(move || match new_branch {
            Some((branch, commit_id)) => Ok(repository.delete_branch(&branch, commit_id)?),
            None => Ok(()),
        });
        self.refuse_branch_of_checkout(&record, &head)?;
        let linked = Worktree::register(
            repository,
            record.name.as_str(),
            &record.mount_dir,
            &head,
            &lock_reason(&record.name),
        )?;
        let registered = linked.clone();
        undo.push(move || Ok(registered.remove()?));
        copy_log(own, &linked)?;
        if own.index_path().exists() {
            copy_index(&own.index_path(), &linked.index_path())?;
        }
        files::sync_files_in(linked.git_dir())?;
        record.git_kind = GitKind::Linked;
        record.worktree_id = linked.id().unwrap_or_default().to_owned();
        record.followed_branch = None;
        files::write_json(&self.places.record(&record.name), &record)?;
        undo.disarm();
        if let Err(error) = own.clone().remove() {
            log::warn!("the next opening of the store removes the git directory: {error}");
        }
        Ok(record)
    }

    /// Refuses if another checkout has the branch that HEAD is on.
    fn refuse_branch_of_checkout(
        &self,
        record: &ForkRecord,
        head: &Head,
    ) -> Result<(), StoreError> {
        let Some(branch) = head.short_branch() else {
            return Ok(());
        };
        let mut others = self.records().0;
        others.retain(|other| other.name != record.name);
        let checkouts = self.checkouts_with(&others)?;
        let full_name = format!("refs/heads/{branch}");
        match checkouts
            .into_iter()
            .find(|checkout| checkout.uses(full_name.as_bytes()))
        {
            Some(checkout) => Err(GitError::BranchCheckedOut {
                branch: branch.to_owned(),
                at: checkout.dir,
            }
            .into()),
            None => Ok(()),
        }
    }

    /// Removes git directories of forks that are linked worktrees.
    ///
    /// A conversion whose process died leaves one.
    pub(super) fn clean_converted(places: &super::places::Places, records: &[ForkRecord]) {
        for record in records.iter().filter(|record| record.git_kind.is_linked()) {
            if let Err(error) = files::remove_dir(&places.git_dir(&record.name)) {
                log::warn!("{error}");
            }
        }
    }
}

/// Gives a worktree the reflog that HEAD has in another.
fn copy_log(from: &Worktree, to: &Worktree) -> Result<(), StoreError> {
    let log = from.git_dir().join("logs/HEAD");
    let copy = to.git_dir().join("logs/HEAD");
    if !log.exists() {
        return Ok(());
    }
    if let Some(dir) = copy.parent() {
        fs::create_dir_all(dir).map_err(StoreError::io("create", dir))?;
    }
    fs::copy(&log, &copy).map_err(StoreError::io("write", &copy))?;
    tine_sys::file::sync(&copy).map_err(StoreError::io("sync", &copy))
}
