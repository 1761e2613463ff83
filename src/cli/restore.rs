//! `tine restore`: lets a fork be as it was at a snapshot.

use super::context::Context;
use super::{Exit, SUCCESS};
use crate::daemon::Failure;
use crate::daemon::protocol::{Request, Restored};
use crate::workspace::ForkName;

/// Let a fork be as it was when a snapshot was taken
///
/// Everything is as it was then, ignored files and times included; programs in the mount see it at once, and what they have
/// open stays as they opened it. HEAD and the index are left alone. What the fork was becomes a snapshot first, which is
/// named.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine restore fix-parser tried-regex
  tine restore fix-parser before-restore-1        take that back again")]
pub struct Restore {
    /// The fork
    #[arg(value_name = "FORK")]
    pub fork: String,

    /// The snapshot to go back to
    #[arg(value_name = "SNAPSHOT")]
    pub to: String,
}

pub fn run(verb: &Restore, context: &Context) -> Result<Exit, Failure> {
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
