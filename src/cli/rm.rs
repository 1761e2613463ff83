//! `tine rm`: removes paths of a fork.

use std::ffi::OsString;

use serde::Serialize;

use super::context::Context;
use super::inside::Inside;
use super::{Exit, SUCCESS};
use crate::ops;
use crate::ops::Failure;
use crate::render::nodes::shown;

use crate::path::text::PathText;
use crate::workspace::ForkName;

/// Remove paths of a fork, mounted or not
///
/// All of them in one step, or nothing. A directory goes with all beneath it, with -r only; a symlink goes itself.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine rm fix-parser src/old.rs notes.md
  tine rm -r fix-parser target")]
pub struct Rm {
    /// The fork
    #[arg(value_name = "FORK")]
    pub fork: String,

    /// From the fork's root, or absolute in its mount
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<OsString>,

    /// Remove directories, with all beneath them
    #[arg(short, long)]
    pub recursive: bool,
}

#[derive(Serialize)]
struct Removed {
    fork: ForkName,
    removed: Vec<PathText>,
}

pub fn run(verb: &Rm, context: &Context) -> Result<Exit, Failure> {
    let mut inside = Inside::new(context, &verb.fork)?;
    let paths = inside.paths(verb.paths.iter().map(OsString::as_os_str))?;
    let fork = inside.fork.clone();
    let request = ops::Remove {
        fork: fork.clone(),
        paths,
        recursive: verb.recursive,
    };
    let removed = inside.connection.call(&request)?.paths;
    if context.output.is_json() {
        context.output.json(&Removed { fork, removed })?;
        return Ok(SUCCESS);
    }
    let lines = removed.iter().map(|path| format!("removed {}\n", shown(path)));
    let back = format!(
        "`tine undo {fork}` brings {} back\n",
        if removed.len() == 1 { "it" } else { "them" }
    );
    context.output.text(&lines.chain([back]).collect::<String>())?;
    Ok(SUCCESS)
}
