//! Forks that are repositories of their own: creation and repair of the git directory.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::Store;
use super::check::{move_to, next_aside};
use super::create::ForkOptions;
use super::create::start::Start;
use super::initial::InitialContent;
use super::worktree::lock_reason;
use crate::fork::{ForkRecord, GitKind};
use crate::{StoreError, files};
use tine_git::own::settings::{MONITOR_COMMAND, OwnSettings, own_settings};
use tine_git::own::{OwnStart, copy_own};
use tine_git::{Checkout, Head, ObjectId, Worktree};

impl Store {
    /// Creates the worktree of a new fork, without its index.
    pub(super) fn create_worktree(
        &self,
        options: &ForkOptions,
        start: &Start,
    ) -> Result<Worktree, StoreError> {
        let name = &options.name;
        let repository = &self.repository;
        let head = start.head();
        if options.git_kind.is_linked() {
            let reason = lock_reason(name);
            let dir = &options.mount_dir;
            let registered = Worktree::register(repository, name.as_str(), dir, &head, &reason);
            return Ok(registered?);
        }
        let reflog = options.reflog();
        let config = self.own_config()?;
        let own = OwnStart {
            checkout_dir: &options.mount_dir,
            head: &head,
            config: &config,
            reflog: &reflog,
        };
        let git_dir = self.places.git_dir(name);
        let parent = options.parent.as_ref().map(|parent| &parent.fork.worktree);
        Ok(match parent.filter(|worktree| worktree.is_own()) {
            Some(parent) => copy_own(repository, parent, &git_dir, &own)?,
            None => Worktree::create_own(repository, &git_dir, &own)?,
        })
    }

    /// Returns the configuration of a new fork's own git directory.
    ///
    /// # Errors
    /// [`GitError`](tine_git::GitError) if the main repository's cannot be read.
    pub fn own_config(&self) -> Result<Vec<u8>, StoreError> {
        let is_asked = self.repository.config_bool("tine.fsmonitor") != Some(false);
        let monitor_command = is_asked.then(|| MONITOR_COMMAND.to_vec());
        let settings = OwnSettings::for_fork_of(&self.repository, monitor_command)?;
        Ok(own_settings(&settings))
    }

    /// Lists all checkouts: the main repository's, and the forks' of these records.
    ///
    /// A fork that is a repository of its own has its branch only if the main repository's branch
    /// of that name follows it.
    ///
    /// # Errors
    /// [`GitError`](tine_git::GitError) if the linked worktrees cannot be listed.
    pub fn checkouts_with(&self, records: &[ForkRecord]) -> Result<Vec<Checkout>, StoreError> {
        let mut checkouts = self.repository.checkouts()?;
        let own = records
            .iter()
            .filter(|record| record.git_kind == GitKind::Own);
        checkouts.extend(own.map(|record| {
            let followed = record.followed_branch.as_deref();
            Checkout::of_own(
                &self.worktree_dir(record),
                record.mount_dir.clone(),
                followed,
            )
        }));
        Ok(checkouts)
    }

    /// Creates a fork's git directory again if it is not complete.
    ///
    /// Refs come back as the main repository keeps them. HEAD is on the fork's branch, or else on
    /// its base. What is left of the directory is set aside.
    pub(super) fn restore_own(&self, record: &ForkRecord) -> Result<(), StoreError> {
        let git_dir = self.places.git_dir(&record.name);
        if Worktree::open_own(git_dir.clone()).is_ok() {
            return Ok(());
        }
        // What is there and cannot be read is not made again.
        let head = git_dir.join("HEAD");
        if let Err(error) = std::fs::symlink_metadata(&head)
            && !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        {
            return Err(StoreError::io("open", &head)(error));
        }
        let _admin = self.admin.lock();
        if Worktree::open_own(git_dir.clone()).is_ok() {
            // Another thread was faster.
            return Ok(());
        }
        log::warn!(
            "the git directory of the fork {} is gone, making it again",
            record.name
        );
        self.set_own_aside(&git_dir)?;
        let name = record.head_branch.as_ref().unwrap_or(&record.branch);
        let kept = self.repository.kept_in_own(record.name.as_str())?;
        let full_name = format!("refs/heads/{name}");
        let tip = kept.iter().find(|(name, _)| *name == full_name);
        let base = record.base_commit.as_deref();
        let base = base.and_then(|hex| ObjectId::from_hex(hex.as_bytes()).ok());
        let mut tip = tip.map(|(_, id)| *id);
        if tip.is_none() && record.followed_branch.as_ref() == Some(name) {
            tip = self.repository.branch(name)?;
        }
        if tip.is_none() {
            tip = self.repository.kept_as(record.name.as_str(), "head")?;
        }
        let head = match tip.or(base) {
            Some(commit_id) => Head::Branch {
                name: full_name,
                commit_id,
            },
            None => Head::Unborn { name: full_name },
        };
        let config = self.own_config()?;
        let own = OwnStart {
            checkout_dir: &record.mount_dir,
            head: &head,
            config: &config,
            reflog: "tine: made again",
        };
        let prepared = self.prepare_base(
            head.commit_id(),
            record.base_attrs,
            record.conversions.as_ref(),
            None,
        )?;
        let worktree = Worktree::create_own(&self.repository, &git_dir, &own)?;
        let refs = self.repository.refs_at(&git_dir);
        for (name, id) in &kept {
            if head.branch() != Some(name.as_str()) {
                refs.create_ref(name, *id)?;
            }
        }
        InitialContent::of_base(prepared, head.commit_id(), None)
            .fill_worktree(&self.repository, &worktree)
    }

    /// Moves what is left of a fork's own git directory aside.
    ///
    /// The directory itself stays, since a mount may show it, and so do objects, which only the
    /// fork may have.
    fn set_own_aside(&self, git_dir: &Path) -> Result<(), StoreError> {
        if std::fs::symlink_metadata(git_dir).is_err() {
            return Ok(());
        }
        let aside = next_aside(&self.places)?;
        let within = git_dir.strip_prefix(self.places.root()).unwrap_or(git_dir);
        if !git_dir.is_dir() {
            return move_to(git_dir, &aside.join(within));
        }
        let stays = |path: &PathBuf| path.ends_with("objects") && path.is_dir();
        let is_made_again = |path: &PathBuf| path.ends_with(".git") || path.ends_with("info");
        let objects_dir = git_dir.join("objects");
        let mut leaves = files::list(git_dir)?;
        leaves.retain(|path| !stays(path));
        if objects_dir.is_dir() {
            leaves.extend(files::list(&objects_dir)?.into_iter().filter(is_made_again));
        }
        for path in leaves {
            let within = path.strip_prefix(self.places.root()).unwrap_or(&path);
            move_to(&path, &aside.join(within))?;
        }
        Ok(())
    }
}
