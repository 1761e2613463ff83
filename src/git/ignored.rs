//! Listing of ignored files in the main checkout, by git.

use std::path::Path;

use super::{GitError, Repository, program};
use tine_path::RepoPath;

/// A path that git ignores.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IgnoredPath {
    /// Path relative to the checkout.
    pub path: RepoPath,
    /// True for a directory whose whole content is ignored.
    pub is_dir: bool,
}

impl Repository {
    /// Returns the main checkout, or `None` for a bare repository.
    pub fn main_checkout(&self) -> Option<&Path> {
        let dir = self.checkout_dir();
        (dir != self.common_dir()).then_some(dir)
    }

    /// Lists the ignored paths of a checkout.
    ///
    /// A directory in which everything is ignored is one path.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if git cannot list the files.
    pub fn ignored_paths(&self, checkout: &Path) -> Result<Vec<IgnoredPath>, GitError> {
        let mut command = program::command(checkout);
        // Otherwise git would refresh the index.
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

/// Parses NUL-terminated paths, with a slash at the end of a directory.
///
/// Paths that a fork cannot have are left out.
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
