//! Reads and changes of one branch, and the worktrees that use it.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use gix::ObjectId;
use gix::bstr::ByteSlice;
use gix::refs::transaction::{PreviousValue, RefEdit};
use gix::refs::{FullName, Target};

use super::damage::damaged_ref;
use super::reflog_message;
use crate::index::{has_switch_to, is_within, switches_to};
use crate::worktree::Checkout;
use crate::{GitError, Repository, Worktree};

/// Maximum wait for a `git switch` in progress.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(2);

const SWITCH_INTERVAL: Duration = Duration::from_millis(10);

impl Repository {
    /// Returns the commit of the branch `name` (short: `tine/demo`), if it exists.
    ///
    /// # Errors
    /// [`GitError::DamagedRef`] if its file does not contain a ref, or the commit is missing;
    /// [`GitError::AliasLoop`] or [`GitError::DanglingAlias`] for a broken alias.
    pub fn branch(&self, name: &str) -> Result<Option<ObjectId>, GitError> {
        let full_name = branch_ref(name)?;
        self.refuse_pipe_at(full_name.as_bstr())?;
        let repository = self.local();
        let found =
            repository.try_find_reference(full_name.as_ref()).map_err(
                |error| match damaged_ref(self.common_dir(), full_name.as_bstr()) {
                    Some(damaged) => damaged,
                    None => GitError::library("read the branch")(error),
                },
            )?;
        match found {
            Some(mut reference) => {
                let behind = format!("refs/heads/{}", self.branch_behind(name));
                let broken = || {
                    self.broken_alias(name)
                        .or_else(|| damaged_ref(self.common_dir(), behind.as_bytes().as_bstr()))
                        .or_else(|| self.lost_by_ref(&behind))
                };
                let id = reference.peel_to_id().map_err(|error| match broken() {
                    Some(broken) => broken,
                    None => GitError::library("read the branch")(error),
                })?;
                Ok(Some(id.detach()))
            }
            None => Ok(None),
        }
    }

    /// Returns the object id in the branch `name` (short).
    ///
    /// The object need not exist. An alias gives `None`.
    ///
    /// # Errors
    /// [`GitError::DamagedRef`] or [`GitError::Library`] if the branch cannot be read.
    pub fn branch_target(&self, name: &str) -> Result<Option<ObjectId>, GitError> {
        self.target_of(&format!("refs/heads/{name}"))
    }

    /// Returns the object that the ref `name` (full) names directly.
    ///
    /// `None` if there is no such ref, or a symbolic one.
    ///
    /// # Errors
    /// [`GitError::Library`] if it cannot be read.
    pub fn target_of(&self, name: &str) -> Result<Option<ObjectId>, GitError> {
        self.refuse_pipe_at(name.as_bytes().as_bstr())?;
        let repository = self.local();
        let found = repository
            .try_find_reference(name)
            .map_err(GitError::library("read the ref"))?;
        Ok(found.and_then(|found| found.target().try_id().map(ToOwned::to_owned)))
    }

    /// Checks that `name` is a valid short branch name.
    ///
    /// It applies the rules of `git check-ref-format --branch`.
    ///
    /// # Errors
    /// [`GitError::InvalidBranchName`].
    pub fn check_branch_name(&self, name: &str) -> Result<(), GitError> {
        branch_ref(name).map(drop)
    }

    /// Creates the branch `name` (short) at `commit_id`.
    ///
    /// # Errors
    /// [`GitError::BranchExists`] if the branch exists, or one that conflicts with it (`a` for
    /// `a/b`, or the reverse); [`GitError::InvalidBranchName`]; [`GitError::RefLocked`].
    pub fn create_branch(
        &self,
        name: &str,
        commit_id: ObjectId,
        reflog: &str,
    ) -> Result<(), GitError> {
        let full_name = branch_ref(name)?;
        if let Some(in_the_way) = self.conflicting_branch(name)? {
            return Err(GitError::BranchExists(in_the_way));
        }
        let edit = RefEdit::update(
            full_name,
            commit_id,
            PreviousValue::MustNotExist,
            reflog_message(reflog),
        );
        match self.apply_ref_edit(
            &self.ref_store(None),
            edit,
            &self.common_dir().join("refs/heads").join(name),
        ) {
            // The library accepts a ref that already has the wanted value.
            Ok(Some(_)) | Err(GitError::RefMoved { .. }) => {
                Err(GitError::BranchExists(name.to_owned()))
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Moves the branch `name` (short) from `expected` to `commit_id`.
    ///
    /// The commit must be on disk. The branch must not be checked out.
    ///
    /// # Errors
    /// [`GitError::RefMoved`] if the branch is not at `expected`, or [`GitError::RefLocked`].
    pub fn move_branch(
        &self,
        name: &str,
        expected: ObjectId,
        commit_id: ObjectId,
        reflog: &str,
    ) -> Result<(), GitError> {
        let full_name = branch_ref(name)?;
        let expected = PreviousValue::MustExistAndMatch(Target::Object(expected));
        let edit = RefEdit::update(full_name, commit_id, expected, reflog_message(reflog));
        let path = self.common_dir().join("refs/heads").join(name);
        self.apply_ref_edit(&self.ref_store(None), edit, &path)
            .map(drop)
    }

    /// Checks that the branch `name` (short) is not locked for long.
    ///
    /// Waits up to two seconds for the lock.
    ///
    /// # Errors
    /// [`GitError::RefLocked`].
    pub fn check_branch_unlocked(&self, name: &str) -> Result<(), GitError> {
        branch_ref(name)?;
        self.check_unlocked_for_a_while(&self.common_dir().join("refs/heads").join(name))
    }

    /// Deletes the branch `name` (short) if it is still at `expected`.
    ///
    /// If it is an alias, deletes only the alias.
    ///
    /// # Errors
    /// [`GitError::RefMoved`] if the branch is not at `expected`, or [`GitError::RefLocked`].
    pub fn delete_branch(&self, name: &str, expected: ObjectId) -> Result<(), GitError> {
        let full_name = branch_ref(name)?;
        let target = match self.alias_of(name) {
            Some(target) => Target::Symbolic(
                FullName::try_from(target).map_err(GitError::library("read the branch"))?,
            ),
            None => Target::Object(expected),
        };
        let expected = PreviousValue::MustExistAndMatch(target);
        let path = self.common_dir().join("refs/heads").join(name);
        self.apply_ref_edit(
            &self.ref_store(None),
            RefEdit::delete(full_name, expected),
            &path,
        )
        .map(drop)
    }

    /// Returns the directory of the worktree that uses the branch `name` (short).
    ///
    /// The main worktree counts, and so does a branch that is being rebased or bisected, as in git.
    ///
    /// # Errors
    /// [`GitError::Io`] if the worktrees cannot be listed.
    pub fn checked_out_at(&self, name: &str) -> Result<Option<PathBuf>, GitError> {
        let full_name = format!("refs/heads/{}", self.branch_behind(name));
        let mut checkouts = self.checkouts()?.into_iter();
        let found = checkouts.find(|checkout| checkout.uses(full_name.as_bytes()));
        Ok(found.map(|checkout| checkout.dir))
    }

    /// Returns the directory of another worktree on the branch `name` (short).
    ///
    /// A worktree whose directory is gone does not count.
    ///
    /// # Errors
    /// [`GitError::Io`] if the worktrees cannot be listed.
    pub fn other_checkout_of(
        &self,
        name: &str,
        worktree: &Worktree,
    ) -> Result<Option<PathBuf>, GitError> {
        let full_name = format!("refs/heads/{}", self.branch_behind(name));
        let mut others = self.checkouts()?.into_iter().filter(|checkout| {
            checkout.git_dir != worktree.git_dir()
                && checkout.branch.as_deref() == Some(full_name.as_bytes())
        });
        // A locked one may be a mount of this process, which must not be accessed.
        let is_there =
            |checkout: &Checkout| checkout.git_dir.join("locked").exists() || checkout.dir.exists();
        Ok(others.find(is_there).map(|checkout| checkout.dir))
    }

    /// Waits until no git command is switching to the branch `name`.
    ///
    /// `name` is the short name.
    ///
    /// Such a command has read the branch, but updates HEAD only after index and files. A branch
    /// moved meanwhile would seem to be checked out nowhere. Blocks for at most two seconds.
    ///
    /// # Errors
    /// [`GitError::IndexLocked`] if git still holds the index lock then.
    pub fn await_switch_to(&self, name: &str) -> Result<(), GitError> {
        let deadline = Instant::now() + SWITCH_TIMEOUT;
        loop {
            let locked = self.checkouts_locked_by_git()?;
            let switching = locked.into_iter().find(|(_, dir)| has_switch_to(dir, name));
            let is_late = Instant::now() >= deadline;
            match switching.map(|(lock, _)| lock) {
                Some(lock) if is_late => return Err(GitError::IndexLocked { lock }),
                None if is_late || !self.is_being_checked_out(name)? => return Ok(()),
                _ => thread::sleep(SWITCH_INTERVAL),
            }
        }
    }

    /// Returns whether a git command is switching a checkout to the branch.
    ///
    /// git locks the index only for a part of the time between reading the branch `name` (short)
    /// and moving HEAD.
    fn is_being_checked_out(&self, name: &str) -> Result<bool, GitError> {
        let dirs = switches_to(name);
        if dirs.is_empty() {
            return Ok(false);
        }
        let full_name = format!("refs/heads/{}", self.branch_behind(name));
        let is_about = |checkout: Checkout| {
            checkout.branch.as_deref() != Some(full_name.as_bytes())
                && dirs.iter().any(|dir| is_within(dir, &checkout.dir))
        };
        Ok(self.checkouts()?.into_iter().any(is_about))
    }

    /// Returns an existing branch that conflicts with `name`, if any.
    ///
    /// Two names conflict if one would be a directory of the other.
    pub(crate) fn conflicting_branch(&self, name: &str) -> Result<Option<String>, GitError> {
        for (slash, _) in name.match_indices('/') {
            let above = &name[..slash];
            if self.branch(above)?.is_some() {
                return Ok(Some(above.to_owned()));
            }
        }
        let prefix = format!("refs/heads/{name}/");
        let (refs, failure) = self.refs_below(&prefix)?;
        match (refs.first(), failure) {
            (Some((name, _)), _) => Ok(Some(
                name.strip_prefix("refs/heads/").unwrap_or(name).to_owned(),
            )),
            (None, Some(failure)) => Err(failure),
            (None, None) => Ok(None),
        }
    }
}

/// Returns the full ref name of the branch `name` (short).
pub(crate) fn branch_ref(name: &str) -> Result<FullName, GitError> {
    let invalid = || GitError::InvalidBranchName(name.to_owned());
    // `git check-ref-format --branch` rejects a leading dash as an option, and `@` as HEAD.
    if name.starts_with('-') || name == "@" {
        return Err(invalid());
    }
    // A ref is a file, and its lock file is beside it while it is written.
    let is_too_long = |part: &str| part.len() + ".lock".len() > tine_path::NAME_MAX;
    if name.split('/').any(is_too_long) {
        return Err(invalid());
    }
    let full_name = format!("refs/heads/{name}");
    gix::validate::reference::branch_name(full_name.as_bytes().as_bstr()).map_err(|_| invalid())?;
    FullName::try_from(full_name).map_err(|_| invalid())
}
