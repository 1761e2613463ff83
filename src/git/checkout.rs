//! How the files of the main checkout compare with a commit, and how old they are.

use std::path::Path;

use super::{GitError, ObjectId, Repository, program};
use crate::path::RepoPath;

impl Repository {
    /// The modification time of the oldest tracked file in the main checkout, in seconds since 1970, as its index has it.
    pub fn oldest_file_secs(&self) -> Result<Option<i64>, GitError> {
        let index = gix::index::File::at_or_default(
            self.common_dir().join("index"),
            self.hash_kind(),
            true,
            gix::index::decode::Options::default(),
        )
        .map_err(GitError::library("read the main checkout's index"))?;
        let times = index
            .entries()
            .iter()
            .map(|entry| i64::from(entry.stat.mtime.secs));
        Ok(times.filter(|secs| *secs > 0).min())
    }

    /// The paths at which the checkout's files are not as the commit has them, staged or not.
    pub fn paths_that_differ(&self, checkout: &Path, commit_id: ObjectId) -> Result<Vec<RepoPath>, GitError> {
        let mut git = program::command(checkout);
        // Looking must not write: git would refresh the index.
        git.env("GIT_OPTIONAL_LOCKS", "0");
        git.args(["diff", "--name-only", "-z", "--no-renames", "--no-ext-diff"]);
        git.arg(commit_id.to_string()).arg("--");
        let output = program::run(&mut git, b"")?;
        let paths = output.split(|byte| *byte == 0);
        Ok(paths
            .filter(|path| !path.is_empty())
            .filter_map(|path| RepoPath::parse(path).ok())
            .collect())
    }
}
