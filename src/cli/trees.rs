//! What lies between two trees, shown.

use std::os::unix::process::CommandExt;

use serde::Serialize;

use super::context::Context;
use super::{Exit, SUCCESS};
use crate::daemon::Failure;
use crate::daemon::protocol::ChangeLine;
use crate::git::{GitError, program};

/// Two trees, and what lies between them.
#[derive(Serialize)]
pub struct Difference<'a> {
    pub old_tree: &'a str,
    pub new_tree: &'a str,
    pub changes: &'a [ChangeLine],
}

impl Difference<'_> {
    /// As JSON, or as `git diff` with `flags` shows it: this process becomes git then.
    pub fn show(&self, context: &Context, flags: &[&str]) -> Result<Exit, Failure> {
        if context.output.is_json() {
            context.output.json(self)?;
            return Ok(SUCCESS);
        }
        let mut git = program::command(context.repository()?.common_dir());
        git.arg(format!("--attr-source={}", self.new_tree)).arg("diff");
        git.args(context.output.color_flag());
        git.args(flags).args([self.old_tree, self.new_tree]);
        Err(GitError::GitMissing(git.exec()).into())
    }
}
