//! A worktree's index as a tree: what a commit of git's would be made of.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::lock::remove_if_there;
use crate::git::refs::lock_of;
use crate::git::{GitError, LinkedWorktree, ObjectId, Repository, program};
use crate::path::RepoPath;

/// What there is to be committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexTree {
    Whole(ObjectId),
    /// Paths in conflict, sorted: it is no tree before they are resolved.
    Unmerged(Vec<RepoPath>),
}

impl Repository {
    /// Writes the worktree's index as a tree. What is only intended to be added is no part of it. One caller at a time:
    /// it holds the fork's turn.
    pub fn index_tree(&self, worktree: &LinkedWorktree) -> Result<IndexTree, GitError> {
        let index = ReadIndex::of(worktree)?;
        let command = |args: &[&str]| {
            let mut command = program::command(self.common_dir());
            command.env("GIT_INDEX_FILE", index.path());
            // Who asks for a tree of the index does not care for what differs from it.
            command.args(["-c", "core.fsmonitor=false", "--git-dir"]);
            command.arg(worktree.git_dir()).args(args);
            command
        };
        let mut write = command(&["write-tree"]);
        let finished = program::finish(&mut write, b"")?;
        if finished.status.success() {
            let id = ObjectId::from_hex(finished.stdout.trim_ascii());
            return Ok(IndexTree::Whole(
                id.map_err(GitError::library("write the index as a tree"))?,
            ));
        }
        let listed = program::run(&mut command(&["ls-files", "--unmerged", "-z"]), b"")?;
        // `<mode> <id> <stage>`, a tab, and the path; once for each stage.
        let paths = listed.split(|byte| *byte == 0).filter_map(|line| {
            let tab = line.iter().position(|byte| *byte == b'\t')?;
            RepoPath::parse(line.get(tab.saturating_add(1)..)?).ok()
        });
        let mut paths: Vec<RepoPath> = paths.collect();
        paths.dedup();
        match paths.is_empty() {
            true => Err(program::failed(&write, &finished)),
            false => Ok(IndexTree::Unmerged(paths)),
        }
    }
}

/// Another name of the index, for a git command that only reads and would lock it nevertheless: killed together with the
/// daemon, it would leave its lock for good. Dropping it removes the name and all that git made beside it.
struct ReadIndex<'a> {
    worktree: &'a LinkedWorktree,
    path: PathBuf,
}

impl ReadIndex<'_> {
    /// A worktree without an index has none under the other name, either.
    fn of(worktree: &LinkedWorktree) -> Result<ReadIndex<'_>, GitError> {
        remove_left(worktree)?;
        let read = ReadIndex {
            worktree,
            path: read_path(worktree),
        };
        let index_path = worktree.index_path();
        let made = match fs::hard_link(&index_path, &read.path) {
            Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) => {
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

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ReadIndex<'_> {
    fn drop(&mut self) {
        if let Err(error) = remove_left(self.worktree) {
            log::warn!("{error}");
        }
    }
}

/// Removes what a process of tine's that died left of reading the index.
pub(super) fn remove_left(worktree: &LinkedWorktree) -> Result<(), GitError> {
    let path = read_path(worktree);
    remove_if_there(&lock_of(&path))?;
    remove_if_there(&path)
}

fn read_path(worktree: &LinkedWorktree) -> PathBuf {
    worktree.git_dir().join("index.tine-read")
}
