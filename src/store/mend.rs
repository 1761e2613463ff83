//! Repair of a fork's `.git` file, which leads to its worktree.
//!
//! The record determines the content of the `.git` file at the root of a fork. So nothing that a
//! program wrote in its place is worth keeping.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Fork;
use crate::StoreError;
use tine_attr::FileKind;
use tine_git::Worktree;
use tine_layer::LayerError;
use tine_path::{EntryName, RepoPath};
use tine_workspace::{Caller, FsError, Workspace};

/// State of a fork's `.git` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DotGit {
    /// It leads to the fork's worktree, or to another place by choice.
    Right,
    /// It leads nowhere, for this reason, and can be rewritten.
    Broken(String),
    /// It is not a regular file, and may hold work.
    Other,
}

impl Fork {
    /// Returns the state of the `.git` file.
    pub fn dot_git(&self) -> DotGit {
        if self.worktree.is_own() {
            return DotGit::Right;
        }
        examine(&self.workspace, &self.worktree)
    }

    /// Rewrites a missing or damaged `.git` file; returns whether it did.
    ///
    /// A directory in its place stays.
    ///
    /// # Errors
    /// [`StoreError::Fs`] if the file cannot be written.
    pub fn mend_dot_git(&self) -> Result<bool, StoreError> {
        mend_dot_git(&self.workspace, &self.worktree)
    }
}

/// Rewrites the `.git` file if needed, like [`Fork::mend_dot_git`].
pub(super) fn mend_dot_git(workspace: &Workspace, worktree: &Worktree) -> Result<bool, StoreError> {
    if worktree.is_own() {
        // The mount shows the directory in place of whatever the layers have.
        return Ok(false);
    }
    let DotGit::Broken(reason) = examine(workspace, worktree) else {
        return Ok(false);
    };
    log::info!(
        "leading `.git` to {} again: {reason}",
        worktree.git_dir().display()
    );
    let attrs = workspace.base_attrs();
    let caller = Caller::new(attrs.uid, attrs.gid);
    workspace.repair_path(caller, &dot_git_path(), &worktree.dot_git())?;
    Ok(true)
}

pub(super) fn dot_git_path() -> RepoPath {
    RepoPath::root().join(&EntryName::dot_git())
}

/// Examines the `.git` file.
///
/// A path to another place, or a relative path, is the user's choice: it may be valid where tine
/// cannot look.
fn examine(workspace: &Workspace, worktree: &Worktree) -> DotGit {
    let path = dot_git_path();
    match workspace.resolve(&path).map(|attr| attr.kind) {
        Ok(FileKind::Regular) => {}
        Ok(_) => return DotGit::Other,
        Err(FsError::NotFound) => return DotGit::Broken("it is gone".to_owned()),
        Err(_) => return DotGit::Right,
    }
    let content = match workspace.read_path(&path) {
        Ok(content) => content,
        Err(FsError::Layer(LayerError::Corrupt { .. })) => {
            return DotGit::Broken("its bytes are lost".to_owned());
        }
        // If it cannot be read now, it may be readable later.
        Err(_) => return DotGit::Right,
    };
    let broken = || DotGit::Broken(format!("it holds {:?}", String::from_utf8_lossy(&content)));
    let Some(rest) = content.strip_prefix(b"gitdir: ") else {
        return broken();
    };
    let named = Path::new(OsStr::from_bytes(rest.trim_ascii_end()));
    if named.as_os_str().is_empty() || rest.contains(&0) {
        return broken();
    }
    // The path before the repository was moved or copied.
    let is_former = named.is_absolute()
        && worktree
            .id()
            .is_some_and(|id| named.ends_with(Path::new("worktrees").join(id)))
        && named.canonicalize().ok().as_deref() != Some(worktree.git_dir());
    if is_former { broken() } else { DotGit::Right }
}
