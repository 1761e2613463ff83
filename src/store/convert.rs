//! Conversion of a fork's kind of git directory.
//!
//! The new git directory is made beside the old one, and the record that names it decides:
//!
//! ```text
//! own ──► linked: register the worktree ─► record ─► git becomes former-git
//! linked ──► own: bring former-git up to date ─► former-git becomes git ─► record ─► remove the worktree
//! ```
//!
//! What a process that died left is finished or undone at the next opening of the store. So a fork
//! that becomes a repository of its own again has all that it had: refs, reflogs, stash, settings.

use std::fs;
use std::path::{Path, PathBuf};

use super::initial::copy_index;
use super::places::{Places, is_there};
use super::rollback::Rollback;
use super::worktree::lock_reason;
use super::{Fork, Store, files};
use crate::StoreError;
use crate::fork::{ForkName, ForkRecord, GitKind};
use tine_git::own::{OwnStart, carry_sparse};
use tine_git::{GitError, Head, Worktree};

/// Message in the reflog of the branch that HEAD is on.
const REFLOG: &str = "tine: converted from a linked worktree";

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
        let name = record.name.clone();
        let (git_dir, former_dir) = (self.places.git_dir(&name), self.former_of(&record, &head)?);
        let former = Worktree::open_own(former_dir.clone())?;
        let refs = repository.refs_at(&former_dir);
        // The worktree may have moved this branch before it was switched to another one.
        if let Some(branch) = repository.head_of(&former_dir)?.short_branch()
            && let Some(tip) = repository.branch(branch)?
        {
            refs.move_ref(&format!("refs/heads/{branch}"), tip, REFLOG)?;
        }
        former.relocate(&record.mount_dir)?;
        Worktree::replace_head(&former_dir, &head)?;
        if let Head::Branch { name, commit_id } = &head {
            refs.move_ref(name, *commit_id, REFLOG)?;
        }
        copy_log(linked, &former)?;
        if linked.index_path().exists() {
            copy_index(&linked.index_path(), &former.index_path())?;
        }
        carry_sparse(repository, linked, &former)?;
        files::sync_files_in(&former_dir)?;
        let mut undo = Rollback::default();
        rename(&former_dir, &git_dir)?;
        undo.push(|| rename(&git_dir, &former_dir));
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
        carry_sparse(repository, own, &linked)?;
        if own.index_path().exists() {
            copy_index(&own.index_path(), &linked.index_path())?;
        }
        files::sync_files_in(linked.git_dir())?;
        record.git_kind = GitKind::Linked;
        record.worktree_id = linked.id().unwrap_or_default().to_owned();
        record.followed_branch = None;
        files::write_json(&self.places.record(&record.name), &record)?;
        undo.disarm();
        if let Err(error) = keep_former(&self.places, &record.name) {
            log::warn!("the next opening of the store keeps the git directory: {error}");
        }
        Ok(record)
    }

    /// Returns the former git directory of a fork, made if missing.
    ///
    /// A new one has the refs that the main repository keeps, from when an older tine converted the
    /// fork.
    fn former_of(&self, record: &ForkRecord, head: &Head) -> Result<PathBuf, StoreError> {
        keep_former(&self.places, &record.name)?;
        let former_dir = self.places.former_git_dir(&record.name);
        if Worktree::open_own(former_dir.clone()).is_ok() {
            return Ok(former_dir);
        }
        files::remove_dir(&former_dir)?;
        let new_dir = former_dir.with_extension("new");
        files::remove_dir(&new_dir)?;
        let config = self.own_config()?;
        let start = OwnStart {
            checkout_dir: &record.mount_dir,
            head,
            config: &config,
            reflog: REFLOG,
        };
        let repository = &self.repository;
        Worktree::create_own(repository, &new_dir, &start)?;
        let refs = repository.refs_at(&new_dir);
        for (name, id) in repository.kept_in_own(record.name.as_str())? {
            if head.branch() != Some(name.as_str()) {
                refs.create_ref(&name, id)?;
            }
        }
        rename(&new_dir, &former_dir)?;
        Ok(former_dir)
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

    /// Moves git directories of forks that are linked worktrees.
    ///
    /// A conversion whose process died leaves one, which becomes the former one.
    pub(super) fn clean_converted(places: &Places, records: &[ForkRecord]) {
        for record in records.iter().filter(|record| record.git_kind.is_linked()) {
            if let Err(error) = keep_former(places, &record.name) {
                log::warn!("{error}");
            }
        }
    }
}

/// Makes the git directory of a fork its former one.
///
/// The fork is a linked worktree. Does nothing if there is none.
fn keep_former(places: &Places, name: &ForkName) -> Result<(), StoreError> {
    let git_dir = places.git_dir(name);
    if !is_there(&git_dir) {
        return Ok(());
    }
    if Worktree::open_own(git_dir.clone()).is_err() {
        return files::remove_dir(&git_dir);
    }
    let former_dir = places.former_git_dir(name);
    files::remove_dir(&former_dir)?;
    rename(&git_dir, &former_dir)
}

/// Renames a directory beside itself durably.
fn rename(from: &Path, to: &Path) -> Result<(), StoreError> {
    fs::rename(from, to).map_err(StoreError::io("rename", from))?;
    files::sync_parent(to)
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
