//! Worktrees, main and linked, with the branches that they use.

use std::path::{Path, PathBuf};

use super::{registered_checkout_dir, registered_git_dirs};
use crate::index::locked_by_git;
use crate::refs::read_if_there;
use crate::{GitError, ObjectId, Repository};
use tine_sys::file;

/// A worktree, main or linked, with the branches that it uses.
///
/// No other worktree may check these out meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkout {
    /// Private git directory; the common directory for the main worktree.
    pub git_dir: PathBuf,
    /// Directory of the checkout.
    pub dir: PathBuf,
    /// Branch of HEAD (full name, in bytes), with aliases resolved.
    ///
    /// It is `None` if HEAD is detached.
    pub branch: Option<Vec<u8>>,
    /// Branch or alias in HEAD, unresolved.
    pub named: Option<Vec<u8>>,
    /// Branches that a rebase or bisection will return to, or move.
    pub pending: Vec<Vec<u8>>,
    /// Cause if HEAD cannot be read; the branch is then unknown.
    pub damage: Option<String>,
}

impl Checkout {
    /// Reads the checkout with the private directory `git_dir`.
    ///
    /// A read error is recorded as this checkout's damage.
    fn read(git_dir: &Path, dir: PathBuf) -> Checkout {
        let mut checkout = Checkout {
            git_dir: git_dir.to_owned(),
            dir,
            branch: None,
            named: None,
            pending: Vec::new(),
            damage: None,
        };
        if let Err(error) = checkout.read_branches() {
            checkout.damage = Some(error.to_string());
        }
        checkout
    }

    fn read_branches(&mut self) -> Result<(), GitError> {
        let git_dir = &self.git_dir;
        let read = |name: &str| read_if_there(&git_dir.join(name));
        let head_path = git_dir.join("HEAD");
        let head = file::read(&head_path).map_err(GitError::io("read", &head_path))?;
        let branch = head
            .strip_prefix(b"ref:")
            .map(|name| name.trim_ascii().to_vec());
        if branch.is_none() && ObjectId::from_hex(head.trim_ascii()).is_err() {
            return Err(GitError::DamagedHead {
                path: head_path,
                reason: "it names no branch and no commit".to_owned(),
            });
        }
        self.named.clone_from(&branch);
        self.branch = branch;
        let mut pending = Vec::new();
        for name in ["rebase-merge/head-name", "rebase-apply/head-name"] {
            pending.extend(read(name)?.map(|content| content.trim_ascii_end().to_vec()));
        }
        if let Some(content) = read("BISECT_START")? {
            let start = content.trim_ascii_end();
            // The file contains a branch's short name.
            pending.push(if start.starts_with(b"refs/heads/") {
                start.to_vec()
            } else {
                [b"refs/heads/", start].concat()
            });
        }
        // Each ref that `rebase --update-refs` will move has three lines: its name, and the ids
        // before and after.
        let update_refs = read("rebase-merge/update-refs")?.unwrap_or_default();
        let moved = update_refs.split(|&b| b == b'\n').step_by(3);
        pending.extend(moved.filter(|name| !name.is_empty()).map(<[u8]>::to_vec));
        self.pending = pending;
        Ok(())
    }

    /// Reads a fork's own git directory as a checkout.
    ///
    /// Its branches are not the main repository's, except for `followed` (short name).
    pub fn of_own(git_dir: &Path, dir: PathBuf, followed: Option<&str>) -> Checkout {
        let mut checkout = Checkout::read(git_dir, dir);
        let followed = followed.map(|name| format!("refs/heads/{name}").into_bytes());
        let is_followed = |name: &Vec<u8>| Some(name) == followed.as_ref();
        checkout.branch = checkout.branch.filter(is_followed);
        checkout.named = checkout.named.filter(is_followed);
        checkout.pending.retain(is_followed);
        checkout
    }

    /// Returns whether the branch `full_name` is checked out or pending there.
    pub fn uses(&self, full_name: &[u8]) -> bool {
        self.branch.as_deref() == Some(full_name) || self.is_pending(full_name)
    }

    /// Returns whether a rebase or bisection there uses the branch.
    pub fn is_pending(&self, full_name: &[u8]) -> bool {
        self.pending.iter().any(|pending| pending == full_name)
    }
}

impl Repository {
    /// Lists all worktrees, the main one first unless the repository is bare.
    ///
    /// # Errors
    /// [`GitError::Io`] if the linked worktrees cannot be listed.
    pub fn checkouts(&self) -> Result<Vec<Checkout>, GitError> {
        let mut checkouts = Vec::new();
        if !self.local().is_bare() {
            checkouts.push(Checkout::read(
                self.common_dir(),
                self.checkout_dir().to_owned(),
            ));
        }
        for git_dir in registered_git_dirs(self.common_dir())? {
            // git ignores a registration without a readable `gitdir` as well.
            if let Ok(dir) = registered_checkout_dir(&git_dir) {
                checkouts.push(Checkout::read(&git_dir, dir));
            }
        }
        for checkout in &mut checkouts {
            let names = checkout.branch.iter_mut().chain(&mut checkout.pending);
            names.for_each(|name| *name = self.full_branch_behind(name));
        }
        Ok(checkouts)
    }

    /// Lists the checkouts whose index git has locked, as lock and directory.
    ///
    /// It costs one lookup for each checkout.
    pub(crate) fn checkouts_locked_by_git(&self) -> Result<Vec<(PathBuf, PathBuf)>, GitError> {
        let mut locked = Vec::new();
        if let Some(lock) = locked_by_git(self.common_dir()) {
            locked.push((lock, self.checkout_dir().to_owned()));
        }
        for git_dir in registered_git_dirs(self.common_dir())? {
            if let Some(lock) = locked_by_git(&git_dir)
                && let Ok(dir) = registered_checkout_dir(&git_dir)
            {
                locked.push((lock, dir));
            }
        }
        Ok(locked)
    }
}
