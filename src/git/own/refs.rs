//! Refs of a fork's own git directory, as a repository.

use std::path::Path;

use gix::ObjectId;
use gix::refs::FullName;
use gix::refs::transaction::{PreviousValue, RefEdit};

use super::tips::ref_of_label;
use crate::refs::reflog_message;
use crate::{GitError, Repository};

/// Prefix of the labels that keep a fork's own refs.
const OF_REFS: &str = "git/";

impl Repository {
    /// Returns whether `git_dir` is a fork's own git directory.
    ///
    /// Otherwise it is the common directory, or a linked worktree's private directory.
    pub fn is_own_git_dir(&self, git_dir: &Path) -> bool {
        let common_dir = self.common_dir();
        git_dir != common_dir && git_dir.parent() != Some(&common_dir.join("worktrees"))
    }

    /// Returns the directory with the refs of the worktree with `git_dir`.
    pub(crate) fn refs_dir_of<'a>(&'a self, git_dir: &'a Path) -> &'a Path {
        if self.is_own_git_dir(git_dir) {
            git_dir
        } else {
            self.common_dir()
        }
    }

    /// Returns the repository whose branches the worktree with `git_dir` has.
    ///
    /// For a fork's own git directory, only refs and reflogs are read and written there. Objects
    /// and configuration are the main repository's.
    #[must_use]
    pub fn refs_at(&self, git_dir: &Path) -> Repository {
        if self.is_own_git_dir(git_dir) {
            self.with_refs_in(git_dir)
        } else {
            self.clone()
        }
    }

    /// Returns the fork's own refs that the main repository keeps.
    ///
    /// Names are full (`refs/heads/…`), as in the fork.
    ///
    /// # Errors
    /// Fails as [`Repository::kept`].
    pub fn kept_in_own(&self, fork: &str) -> Result<Vec<(String, ObjectId)>, GitError> {
        let kept = self.kept(fork)?.into_iter();
        let refs = kept.filter_map(|(label, id)| {
            let name = label.strip_prefix(OF_REFS)?;
            Some((ref_of_label(name)?, id))
        });
        Ok(refs.collect())
    }

    /// Moves the ref `name` (full) to `id`, and logs it.
    ///
    /// Does nothing if it is there.
    ///
    /// # Errors
    /// Fails as [`Repository::create_ref`].
    pub fn move_ref(&self, name: &str, id: ObjectId, reflog: &str) -> Result<(), GitError> {
        if self.target_of(name)? == Some(id) {
            return Ok(());
        }
        self.set_ref(name, id, reflog_message(reflog))
    }

    /// Creates the ref `name` (full), or moves it, without a reflog message.
    ///
    /// # Errors
    /// [`GitError::RefLocked`], or [`GitError::Io`] if the ref cannot be written.
    pub fn create_ref(&self, name: &str, id: ObjectId) -> Result<(), GitError> {
        self.set_ref(name, id, "")
    }

    fn set_ref(
        &self,
        name: &str,
        id: ObjectId,
        message: impl Into<gix::bstr::BString>,
    ) -> Result<(), GitError> {
        let path = self.common_dir().join(name);
        let full_name = FullName::try_from(name).map_err(GitError::library("name the ref"))?;
        let edit = RefEdit::update(full_name, id, PreviousValue::Any, message);
        self.apply_ref_edit(&self.ref_store(None), edit, &path)
            .map(drop)
    }
}
