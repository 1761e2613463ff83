//! `tine restore`: lets a fork be as it was at a snapshot.

use std::ffi::OsString;

use super::context::Context;
use super::{Exit, SUCCESS, revert};
use crate::daemon::Failure;
use crate::daemon::protocol::{Request, Restored};
use crate::workspace::ForkName;

/// Let a fork be as it was when a snapshot was taken
///
/// Everything is as it was then, ignored files and times included; programs in the mount see it at once, and what they have
/// open stays as they opened it. HEAD and the index are left alone. What the fork was becomes a snapshot first, which is
/// named.
///
/// With --path only these paths go back, as `tine revert --to` does it; then any point will do.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine restore fix-parser tried-regex
  tine restore fix-parser before-restore-1        take that back again
  tine restore fix-parser tried-regex --path src/lexer.rs")]
pub struct Restore {
    /// The fork
    #[arg(value_name = "FORK")]
    pub fork: String,

    /// The snapshot to go back to
    #[arg(value_name = "SNAPSHOT")]
    pub to: String,

    /// Only this path, with all beneath it; may be given again
    #[arg(long = "path", value_name = "PATH")]
    pub paths: Vec<OsString>,
}

pub fn run(verb: &Restore, context: &Context) -> Result<Exit, Failure> {
    if !verb.paths.is_empty() {
        let wish = revert::Wish {
            fork: &verb.fork,
            paths: &verb.paths,
            to: Some(&verb.to),
            force: false,
            dry_run: false,
        };
        return wish.carry_out(context);
    }
    let (mut connection, fork) = context.connect_to_fork(Some(&verb.fork))?;
    let to = ForkName::parse(&verb.to)?;
    let restored = connection.restored(&Request::Restore { fork, to: to.clone() })?;
    match context.output.is_json() {
        true => context.output.json(&restored)?,
        false => context
            .output
            .text(&told(&restored, &format!("is as it was at {to}")))?,
    }
    Ok(SUCCESS)
}

/// What happened, and the way back.
pub fn told(restored: &Restored, what: &str) -> String {
    let fork = &restored.fork;
    match &restored.before {
        Some(before) => format!("{fork} {what}; `tine restore {fork} {before}` takes that back\n"),
        None => format!("{fork} {what}\n"),
    }
}
