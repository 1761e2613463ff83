//! Git directories of forks: each fork is a repository of its own.
//!
//! Such a directory holds HEAD, index, refs, logs, configuration and new objects of one fork. The
//! main repository lends it objects, refs and hooks, and takes over what was made in it:
//!
//! ```text
//! own git directory (untrusted)              main repository
//!   HEAD, refs, logs ── tips ──┐
//!   objects ── walk ── copies ─┴─► quarantine ── git checks ─► objects ─► refs/tine/<fork>/git/… ─► refs/heads/tine/<fork>
//! ```
//!
//! A confined program may have written everything in an own git directory. It is therefore read
//! here, without symlinks and without git: no git program runs on it, and its configuration is
//! never read. git checks private copies of the objects, with the main repository's configuration.

mod creation;
mod dir;
mod former;
mod found;
mod held;
mod index;
mod large_files;
mod logged;
mod object;
mod own_branch;
mod point;
mod quarantine;
mod ref_changes;
mod refs;
mod rejected;
mod removal;
pub mod settings;
mod sparse;
mod submodules;
mod taking;
#[cfg(test)]
mod tests;
mod tips;
mod transfer;
mod walk;
mod worktrees;

use std::path::{Path, PathBuf};

use crate::{ObjectId, Repository, program};
use tine_sys::file;

/// File of a mounted git directory that names its fork.
///
/// It has two lines: the main repository's common directory, and the fork's name.
pub const IDENTITY_NAME: &str = "tine/fork";

/// Returns the path of a fork's own git directory.
pub fn dir_of(common_dir: &Path, fork: &str) -> PathBuf {
    common_dir.join("tine/forks").join(fork).join("git")
}

/// Returns whether `git_dir` is a fork's own git directory in this repository.
pub fn is_in_store(common_dir: &Path, git_dir: &Path) -> bool {
    let fork = git_dir.parent().and_then(Path::file_name);
    fork.and_then(|fork| fork.to_str())
        .is_some_and(|fork| dir_of(common_dir, fork) == git_dir)
}

/// Returns the main repository's common directory and the host's git directory.
///
/// `git_dir` is a git directory as a program sees it. `None` unless it is in a fork's mount.
pub(crate) fn behind_mount(git_dir: &Path) -> Option<(PathBuf, PathBuf)> {
    if !file::is_on_fuse(git_dir).unwrap_or(false) {
        return None;
    }
    let identity = file::read_to_string(&git_dir.join(IDENTITY_NAME)).ok()?;
    let mut lines = identity.lines();
    let common_dir = PathBuf::from(lines.next()?);
    let dir = dir_of(&common_dir, lines.next()?);
    dir.is_dir().then_some((common_dir, dir))
}

/// Returns whether a label belongs to the fork's own git directory.
///
/// The ref `refs/tine/<fork>/<label>` with such a label keeps what that directory names.
pub fn is_of_git_dir(label: &str) -> bool {
    label.starts_with("git/") || label.starts_with("git-")
}

impl Repository {
    /// Returns whether a fork's own git directory has an object.
    ///
    /// Objects of the main repository count as well. git is asked, with the main repository's
    /// configuration.
    pub fn has_own_object(&self, git_dir: &Path, id: ObjectId) -> bool {
        let mut command = program::command(self.common_dir());
        command
            .env("GIT_DIR", self.common_dir())
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", git_dir.join("objects"))
            .args(["cat-file", "-e", &id.to_string()]);
        program::run(&mut command, b"").is_ok()
    }
}

pub use self::creation::{OwnStart, alternates_of, copy_own};
pub use self::former::{former_dir_of, parts_of_its_own, tips_of};
pub use self::found::forks_with_kept_head;
pub use self::own_branch::{OthersMove, OwnBranch};
pub use self::point::{GitPoint, is_in_points};
pub use self::rejected::RejectedRef;
pub use self::sparse::carry_sparse;
pub use self::submodules::unpushed_submodules;
pub use self::taking::{RemoveObject, TakenOver};
pub use self::tips::{OwnTip, OwnTipKind, RefsStamp, own_tips};
pub use self::worktrees::worktrees_in;
