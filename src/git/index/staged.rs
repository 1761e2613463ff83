//! A worktree's index as a tree: what a commit of git's would be made of.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

use super::lock::remove_if_there;
use crate::refs::lock_of;
use crate::{GitError, LinkedWorktree, ObjectId, Repository, program};
use tine_path::RepoPath;

/// What there is to be committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexTree {
    Whole(ObjectId),
    /// Paths in conflict, sorted: it is no tree before they are resolved.
    Unmerged(Vec<RepoPath>),
}

impl Repository {
    /// Writes the worktree's index as a tree. What is only intended to be added is no part of it.
    /// One caller at a time: it holds the fork's turn.
    pub fn index_tree(&self, worktree: &LinkedWorktree) -> Result<IndexTree, GitError> {
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

    /// As [`Repository::index_tree`], without the paths in conflict, and these.
    pub fn merged_index_tree(
        &self,
        worktree: &LinkedWorktree,
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
        // git writes another file and gives it the name: the index itself stays as it is.
        let remove = ["update-index", "--force-remove", "-z", "--stdin"];
        program::run(&mut index.command(self, &remove), &names)?;
        let output = program::run(&mut index.command(self, &["write-tree"]), b"")?;
        Ok((written(&output)?, unmerged))
    }
}

fn written(output: &[u8]) -> Result<ObjectId, GitError> {
    ObjectId::from_hex(output.trim_ascii()).map_err(GitError::library("write the index as a tree"))
}

/// Another name of the index, for a git command that only reads and would lock it nevertheless:
/// killed together with the daemon, it would leave its lock for good. Dropping it removes the name
/// and all that git made beside it.
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
        // Who asks for a tree of the index does not care for what differs from it.
        command.args(["-c", "core.fsmonitor=false", "--git-dir"]);
        command.arg(self.worktree.git_dir()).args(args);
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

/// Removes what a process of tine's that died left of reading the index.
pub(super) fn remove_left(worktree: &LinkedWorktree) -> Result<(), GitError> {
    let path = read_path(worktree);
    remove_if_there(&lock_of(&path))?;
    remove_if_there(&path)
}

fn read_path(worktree: &LinkedWorktree) -> PathBuf {
    worktree.git_dir().join("index.tine-read")
}
