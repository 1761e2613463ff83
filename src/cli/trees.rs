//! The difference between two trees, as output.

use std::os::unix::process::CommandExt;

use serde::Serialize;

use super::context::Context;
use super::{Exit, SUCCESS};
use crate::git::{GitError, program};
use crate::ops::Failure;
use crate::ops::protocol::ChangeLine;

/// How much is shown of what lies between two trees.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct FormArgs {
    /// Show how many lines changed in each file
    #[arg(long, group = "form")]
    pub stat: bool,

    /// Show only the names of changed files
    #[arg(long, group = "form")]
    pub name_only: bool,

    /// Show the names of changed files and what happened to each
    #[arg(long, group = "form")]
    pub name_status: bool,
}

impl FormArgs {
    /// Returns the flags of `git diff` for this form.
    pub(super) fn flags(self) -> &'static [&'static str] {
        match (self.stat, self.name_only, self.name_status) {
            (true, ..) => &["--stat"],
            (_, true, _) => &["--name-only"],
            (.., true) => &["--name-status", "--no-renames"],
            _ => &[],
        }
    }
}

/// Two trees and their difference.
#[derive(Serialize)]
pub(super) struct Difference<'a> {
    pub old_tree: &'a str,
    pub new_tree: &'a str,
    pub changes: &'a [ChangeLine],
}

impl Difference<'_> {
    /// Prints JSON, or replaces this process by `git diff` with `flags`.
    pub(super) fn show(&self, context: &Context, flags: &[&str]) -> Result<Exit, Failure> {
        if context.output.is_json() {
            context.output.json(self)?;
            return Ok(SUCCESS);
        }
        become_git_diff(context, (self.old_tree, self.new_tree), flags)
    }
}

/// Replaces this process by `git diff` between two trees.
pub(super) fn become_git_diff(
    context: &Context,
    (old_tree, new_tree): (&str, &str),
    flags: &[&str],
) -> Result<Exit, Failure> {
    let mut git = program::command(context.repository()?.common_dir());
    context.output.page(&mut git);
    git.arg(format!("--attr-source={new_tree}")).arg("diff");
    git.args(context.output.color_flag());
    git.args(flags).args([old_tree, new_tree]);
    Err(GitError::GitMissing(git.exec()).into())
}
