//! Worktrees that git made in a fork with its own git directory.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::dir::{Found, OwnDir};
use super::tips::{MAX_REF_BYTES, WORKTREES};
use crate::GitError;

/// Lists the directories of the worktrees that are registered in `own`.
///
/// They need not exist. `checkout_dir` is the fork's mount, to which their paths may be relative.
///
/// # Errors
/// [`GitError::Io`] if the directory cannot be opened.
pub fn worktrees_in(own: &Path, checkout_dir: &Path) -> Result<Vec<PathBuf>, GitError> {
    let dir = OwnDir::open(own)?;
    let mut found = Vec::new();
    for (name, _) in dir.list(Path::new(WORKTREES)) {
        let worktree = Path::new(WORKTREES).join(OsStr::from_bytes(&name));
        let Found::Good(content) = dir.read(&worktree.join("gitdir"), MAX_REF_BYTES) else {
            continue;
        };
        let dot_git = Path::new(OsStr::from_bytes(content.trim_ascii_end()));
        let dot_git = checkout_dir.join(".git").join(worktree).join(dot_git);
        found.extend(without_dots(&dot_git).parent().map(Path::to_owned));
    }
    found.sort();
    Ok(found)
}

/// Resolves `..` in an absolute path without looking at the disk.
fn without_dots(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(resolved.pop()),
            other => resolved.push(other),
        }
    }
    resolved
}
