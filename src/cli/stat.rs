//! `tine stat`: what is at a path of a fork.

use std::ffi::OsString;

use super::context::Context;
use super::inside::Inside;
use super::{Exit, SUCCESS};
use crate::ops;
use crate::ops::protocol::{NodeLine, TimeLine};
use crate::ops::{ErrorCode, Failure};
use crate::render::nodes::{kind_word, mode_text, shown, with_target};

/// Show what is at a path of a fork, mounted or not
///
/// Kind, size, mode, owner, inode number and times, as stat(2) tells them in the mount. A symlink is shown itself.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine stat fix-parser src/main.rs
  tine stat fix-parser src/main.rs --json | jq .size")]
pub struct Stat {
    /// The fork
    #[arg(value_name = "FORK")]
    pub fork: String,

    /// From the fork's root, or absolute in its mount
    #[arg(value_name = "PATH")]
    pub path: OsString,
}

pub fn run(verb: &Stat, context: &Context) -> Result<Exit, Failure> {
    let mut inside = Inside::new(context, &verb.fork)?;
    let path = inside.path(&verb.path)?;
    let fork = inside.fork.clone();
    let nodes = inside.nodes(&ops::Stat { fork, path })?;
    let node = nodes
        .first()
        .ok_or_else(|| Failure::new(ErrorCode::Internal, "the daemon told of nothing"))?;
    match context.output.is_json() {
        true => context.output.json(node)?,
        false => context.output.text(&told(node))?,
    }
    Ok(SUCCESS)
}

fn told(node: &NodeLine) -> String {
    let time = |time: TimeLine| format!("{}.{:09}", time.secs, time.nanos);
    format!(
        "path      {}\nkind      {}\nsize      {}\nmode      {} ({})\nowner     {}:{}\nlinks     {}\ninode     {}\n\
         modified  {}\nchanged   {}\n",
        with_target(shown(&node.path), node),
        kind_word(node.kind),
        node.size,
        mode_text(node),
        node.mode,
        node.uid,
        node.gid,
        node.links,
        node.ino,
        time(node.modified),
        time(node.changed),
    )
}
