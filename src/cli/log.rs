//! `tine log`: the commits of a fork since its fork point.

use std::os::unix::process::CommandExt;

use clap_complete::engine::ArgValueCompleter;

use super::context::Context;
use super::{Exit, SUCCESS, completing};
use crate::git::{GitError, program};
use crate::ops;
use crate::ops::Failure;
use crate::render::text::short_id;

/// More commits than any fork has.
const NO_LIMIT: usize = i32::MAX as usize;

/// Show the commits of a fork since its fork point
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine log fix-parser
  tine log fix-parser -n 1 --json")]
pub(super) struct Log {
    /// The fork [default: the one whose mount this is]
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(completing::forks))]
    pub name: Option<String>,

    /// Show at most COUNT commits
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub max_count: Option<usize>,
}

pub(super) fn run(verb: &Log, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, name) = context.connect_to_fork(verb.name.as_deref())?;
    if context.output.is_json() {
        let limit = verb.max_count.unwrap_or(NO_LIMIT);
        context
            .output
            .json(&connection.call(&ops::Log { fork: name, limit })?)?;
        return Ok(SUCCESS);
    }
    let fork = connection.show(&name)?;
    let Some(head) = fork.head_commit else {
        context.output.note("there are no commits yet");
        return Ok(SUCCESS);
    };
    if fork.fork_point.as_ref() == Some(&head) {
        context.output.note(&format!(
            "there are no commits since the fork point {}",
            short_id(&head)
        ));
        return Ok(SUCCESS);
    }
    let mut git = program::command(context.repository()?.common_dir());
    context.output.page(&mut git);
    git.args(["log", "--oneline"])
        .args(context.output.color_flag());
    if let Some(count) = verb.max_count {
        git.arg(format!("--max-count={count}"));
    }
    git.arg(&head);
    if let Some(base) = &fork.fork_point {
        git.arg(format!("^{base}"));
    }
    git.arg("--");
    Err(GitError::GitMissing(git.exec()).into())
}
