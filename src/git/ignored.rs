//! What git ignores in the main checkout, as git itself lists it.

use std::path::Path;

use super::{GitError, Repository, program};
use tine_path::RepoPath;

/// A path that git ignores.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IgnoredPath {
    pub path: RepoPath,
    pub is_dir: bool,
}

impl Repository {
    /// The main checkout; `None` where the repository is bare.
    pub fn main_checkout(&self) -> Option<&Path> {
        let dir = self.checkout_dir();
        (dir != self.common_dir()).then_some(dir)
    }

    /// All that git ignores in the checkout, a directory of which it ignores everything as one.
    pub fn ignored_paths(&self, checkout: &Path) -> Result<Vec<IgnoredPath>, GitError> {
        let mut command = program::command(checkout);
        // Looking must not write: git would refresh the index.
        command.env("GIT_OPTIONAL_LOCKS", "0");
        command.args([
            "ls-files",
            "--others",
            "--ignored",
            "--exclude-standard",
            "--directory",
            "-z",
        ]);
        let output = program::run(&mut command, b"")?;
        Ok(parse(&output))
    }
}

/// Paths end in NUL, directories in a slash before it. What cannot be a path in a fork is left out.
fn parse(output: &[u8]) -> Vec<IgnoredPath> {
    output
        .split(|byte| *byte == 0)
        .filter(|path| !path.is_empty())
        .filter_map(|path| {
            Some(IgnoredPath {
                is_dir: path.ends_with(b"/"),
                path: RepoPath::parse(path).ok().filter(|path| !path.is_root())?,
            })
        })
        .collect()
}
