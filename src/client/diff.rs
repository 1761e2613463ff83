//! Diffs in git's format.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::failures::lines;
use tine_git::program;
use tine_ops::protocol::Difference;
use tine_ops::{ErrorCode, Failure};

/// Checks that git accepts the pathspecs `paths`.
///
/// `place` is the directory in which git runs.
///
/// # Errors
/// `path-refused` with git's messages as causes, or `git-missing` if git cannot be run.
pub fn check_paths(
    difference: &Difference,
    place: &Path,
    paths: &[OsString],
) -> Result<(), Failure> {
    if paths.is_empty() {
        return Ok(());
    }
    // git compares a tree to itself, so it checks only the paths.
    let tree = &difference.old_tree;
    let mut git = program::command(place);
    git.args(["diff", "--quiet", tree, tree, "--"]).args(paths);
    let finished = program::finish(&mut git, b"")?;
    if finished.status.success() {
        return Ok(());
    }
    let failure = Failure::new(ErrorCode::PathRefused, "git does not understand the paths").hint(
        "name them from the fork's root, or in its mount from where you stand; `.` is everything there",
    );
    Err(lines(&finished.stderr)
        .into_iter()
        .fold(failure, Failure::cause))
}

/// Returns the command `git diff` between the two trees of `difference`.
///
/// It runs in the directory `place` and reads attributes from the fork's view. The caller sets its
/// standard streams and runs it.
pub fn git_diff(
    difference: &Difference,
    place: &Path,
    flags: &[&str],
    paths: &[OsString],
) -> Command {
    let mut command = program::command(place);
    command
        .arg(format!("--attr-source={}", difference.view_tree))
        .arg("diff")
        .args(flags)
        .args([&difference.old_tree, &difference.new_tree])
        .arg("--")
        .args(paths);
    command
}
