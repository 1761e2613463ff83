//! A worktree's index as a tree, as `git commit` would write it.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

use super::lock::remove_if_there;
use crate::refs::lock_of;
use crate::{GitError, ObjectId, Repository, Worktree, program};
use tine_path::RepoPath;

/// The tree of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexTree {
    /// Tree of an index without conflicts.
    Whole(ObjectId),
    /// Paths in conflict, sorted, which must be resolved first.
    Unmerged(Vec<RepoPath>),
}

impl Repository {
    /// Writes the worktree's index as a tree, without intents to add.
    ///
    /// The caller holds the fork's lock, so that there is only one caller at a time.
    ///
    /// # Errors
    /// [`GitError::Io`] if the index cannot be read, [`GitError::GitFailed`] if git cannot write
    /// the tree.
    pub fn index_tree(&self, worktree: &Worktree) -> Result<IndexTree, GitError> {
        let index = ReadIndex::of(worktree)?;
        let mut write = index.command(self, &["write-tree"]);
        let finished = program::finish(&mut write, b"")?;
        if finished.status.success() {
            return Ok(IndexTree::Whole(written(&finished.stdout)?));
        }
        let listed = program::run(
            &mut index.command(self, &["ls-files", "--unmerged", "-z"]),
            b"",
        )?;
        // Each line is `<mode> <id> <stage>`, a tab, and the path, once for each stage.
        let paths = listed.split(|byte| *byte == 0).filter_map(|line| {
            let tab = line.iter().position(|byte| *byte == b'\t')?;
            RepoPath::parse(line.get(tab.saturating_add(1)..)?).ok()
        });
        let mut paths: Vec<RepoPath> = paths.collect();
        paths.dedup();
        if paths.is_empty() {
            Err(program::failed(&write, &finished))
        } else {
            Ok(IndexTree::Unmerged(paths))
        }
    }

    /// Writes the index as a tree without the paths in conflict.
    ///
    /// Also returns these paths, sorted.
    ///
    /// # Errors
    /// Fails as [`Repository::index_tree`].
    pub fn merged_index_tree(
        &self,
        worktree: &Worktree,
    ) -> Result<(ObjectId, Vec<RepoPath>), GitError> {
        let unmerged = match self.index_tree(worktree)? {
            IndexTree::Whole(tree_id) => return Ok((tree_id, Vec::new())),
            IndexTree::Unmerged(paths) => paths,
        };
        let index = ReadIndex::of(worktree)?;
        let names: Vec<u8> = unmerged
            .iter()
            .flat_map(|path| [path.as_bytes(), b"\0"].concat())
            .collect();
        // git writes a new file and renames it, so the index itself does not change.
        let remove = ["update-index", "--force-remove", "-z", "--stdin"];
        program::run(&mut index.command(self, &remove), &names)?;
        let output = program::run(&mut index.command(self, &["write-tree"]), b"")?;
        Ok((written(&output)?, unmerged))
    }
}

fn written(output: &[u8]) -> Result<ObjectId, GitError> {
    ObjectId::from_hex(output.trim_ascii()).map_err(GitError::library("write the index as a tree"))
}

/// A second name of the index for git commands that only read.
///
/// They would lock the index even so, and if they were killed together with the daemon, the lock
/// would stay forever. Dropping this removes the name, and all files that git created beside it.
struct ReadIndex<'a> {
    worktree: &'a Worktree,
    path: PathBuf,
}

impl ReadIndex<'_> {
    /// Creates the second name, unless the worktree has no index.
    fn of(worktree: &Worktree) -> Result<ReadIndex<'_>, GitError> {
        remove_left(worktree)?;
        let read = ReadIndex {
            worktree,
            path: read_path(worktree),
        };
        let index_path = worktree.index_path();
        let made = match fs::hard_link(&index_path, &read.path) {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::PermissionDenied | ErrorKind::Unsupported
                ) =>
            {
                fs::copy(&index_path, &read.path).map(drop)
            }
            made => made,
        };
        match made {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(GitError::io("read", &index_path)(error))
            }
            _ => Ok(read),
        }
    }

    fn command(&self, repository: &Repository, args: &[&str]) -> Command {
        let mut command = program::command(repository.common_dir());
        command.env("GIT_INDEX_FILE", &self.path);
        // The caller needs the tree, not the files that differ from it.
        command.args(["-c", "core.fsmonitor=false", "--git-dir"]);
        // git neither trusts a fork's own git directory here nor writes objects there.
        let git_dir = if self.worktree.is_own() {
            repository.common_dir()
        } else {
            self.worktree.git_dir()
        };
        command.arg(git_dir).args(args);
        command
    }
}

impl Drop for ReadIndex<'_> {
    fn drop(&mut self) {
        if let Err(error) = remove_left(self.worktree) {
            log::warn!("{error}");
        }
    }
}

/// Removes a dead tine process's second name of the index.
pub(super) fn remove_left(worktree: &Worktree) -> Result<(), GitError> {
    let path = read_path(worktree);
    remove_if_there(&lock_of(&path))?;
    remove_if_there(&path)
}

fn read_path(worktree: &Worktree) -> PathBuf {
    worktree.git_dir().join("index.tine-read")
}
