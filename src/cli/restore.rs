//! `tine restore`: lets a fork be as it was at a point.

use std::ffi::OsString;

use super::context::Context;
use super::inside::{Inside, command_line};
use super::{Exit, SUCCESS};
use crate::daemon::Failure;
use crate::daemon::protocol::{Request, RestoreRequest, Restored};

/// Let a fork, or paths of it, be as they were at a point
///
/// Of a snapshot, and of its base, a fork gets everything back as it was, ignored files and times included. Of another fork or
/// a revision it gets what git takes; ignored files stay. Programs in the mount see it at once, and what they have open stays
/// as they opened it. HEAD and the index are left alone. What the fork was becomes a snapshot first, which is named.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine restore fix-parser tried-regex
  tine restore fix-parser pristine                what it was made from
  tine restore fix-parser HEAD~2 --path src       one directory, as a commit has it
  tine restore fix-parser before-restore-1        take that back again")]
pub struct Restore {
    /// The fork
    #[arg(value_name = "FORK")]
    pub fork: String,

    /// Where to: a snapshot or its tree id, `pristine` (its base), another fork, or any revision of the repository
    #[arg(value_name = "POINT")]
    pub to: String,

    /// Restore only this path, and what is beneath, in so far as git takes it; may be given several times
    #[arg(long = "path", value_name = "PATH")]
    pub paths: Vec<OsString>,

    /// Let go what is in the way and git ignores, where not all is restored from a snapshot
    #[arg(short, long)]
    pub force: bool,
}

pub fn run(verb: &Restore, context: &Context) -> Result<Exit, Failure> {
    let mut inside = Inside::new(context, &verb.fork)?;
    let paths = inside.paths(verb.paths.iter().map(OsString::as_os_str))?;
    let request = Request::Restore(RestoreRequest {
        fork: inside.fork.clone(),
        to: verb.to.clone(),
        paths,
        force: verb.force,
        command: command_line(),
    });
    let restored = inside.connection.restored(&request)?;
    let to = restored.to.as_deref().unwrap_or(&verb.to);
    let what = match verb.paths.len() {
        0 => format!("is as at {to}"),
        1 => format!("has 1 path as at {to}"),
        count => format!("has {count} paths as at {to}"),
    };
    match context.output.is_json() {
        true => context.output.json(&restored)?,
        false => context.output.text(&told(&restored, &what))?,
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
