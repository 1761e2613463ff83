//! A worktree's index as a tree: what a commit of git's would be made of.

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
    /// Writes the worktree's index as a tree. What is only intended to be added is no part of it.
    pub fn index_tree(&self, worktree: &LinkedWorktree) -> Result<IndexTree, GitError> {
        let command = |args: &[&str]| {
            let mut command = program::command(self.common_dir());
            command.arg("--git-dir").arg(worktree.git_dir()).args(args);
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
