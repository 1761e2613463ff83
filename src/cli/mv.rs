//! `tine mv`: moves a path of a fork.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use super::context::Context;
use super::inside::Inside;
use super::{Exit, SUCCESS};
use crate::ops;
use crate::ops::Failure;
use crate::render::nodes::shown;

/// Move or rename a path of a fork, mounted or not
///
/// One step, whatever is beneath. It goes into DST where that is a directory. An existing file is replaced with --force
/// only, a directory never. Modes, times and inode numbers stay.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine mv fix-parser src/old.rs src/new.rs
  tine mv fix-parser src/lexer lib/")]
pub struct Mv {
    /// The fork
    #[arg(value_name = "FORK")]
    pub fork: String,

    /// From the fork's root, or absolute in its mount
    #[arg(value_name = "SRC")]
    pub from: OsString,

    /// The new path, or a directory to move into
    #[arg(value_name = "DST")]
    pub to: OsString,

    /// Replace a file that is there
    #[arg(short, long)]
    pub force: bool,
}

pub fn run(verb: &Mv, context: &Context) -> Result<Exit, Failure> {
    let mut inside = Inside::new(context, &verb.fork)?;
    let request = ops::Move {
        from: inside.path(&verb.from)?,
        to: inside.path(&verb.to)?,
        fork: inside.fork.clone(),
        into: verb.to.as_bytes().last() == Some(&b'/'),
        force: verb.force,
    };
    let moved = inside.connection.call(&request)?;
    match context.output.is_json() {
        true => context.output.json(&moved)?,
        false => {
            let back = match moved.replaced {
                true => format!("; `tine undo {}` brings back what was there", moved.fork),
                false => String::new(),
            };
            let line = format!("moved {} to {}{back}\n", shown(&moved.from), shown(&moved.to));
            context.output.text(&line)?;
        }
    }
    Ok(SUCCESS)
}
