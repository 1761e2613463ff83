//! `tine write`: replaces a file of a fork, or makes it.

use std::ffi::OsString;
use std::path::PathBuf;

use super::context::Context;
use super::inside::{Inside, sent_content, store_dir};
use super::{Exit, SUCCESS};
use crate::ops;
use crate::ops::Failure;
use crate::render::nodes::shown;

/// Write a file of a fork, mounted or not
///
/// The content comes from standard input, or from --file. It takes the place of the old one in one
/// step: nobody sees half of it. The file keeps its mode; what is no regular file is refused.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine write fix-parser notes.md < notes.md
  tine write fix-parser tools/run.sh -p --executable --file run.sh")]
pub(super) struct Write {
    /// The fork
    #[arg(value_name = "FORK")]
    pub fork: String,

    /// From the fork's root, or absolute in its mount
    #[arg(value_name = "PATH")]
    pub path: OsString,

    /// Take the content from FILE
    #[arg(short = 'F', long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: Option<PathBuf>,

    /// Make directories that are missing
    #[arg(short, long)]
    pub parents: bool,

    /// Let whoever may read it execute it
    #[arg(short = 'x', long)]
    pub executable: bool,
}

pub(super) fn run(verb: &Write, context: &Context) -> Result<Exit, Failure> {
    let mut inside = Inside::new(context, &verb.fork)?;
    let path = inside.path(&verb.path)?;
    // Before anything is read: the fork may not be there.
    inside.connection.show(&inside.fork)?;
    let store_dir = store_dir(context)?;
    let content = sent_content(&store_dir, verb.file.as_deref())?;
    let request = ops::Write {
        fork: inside.fork.clone(),
        path,
        content: content.clone(),
        parents: verb.parents,
        executable: verb.executable,
    };
    let written = inside.connection.call(&request);
    let written = written.inspect_err(|_| content.withdraw(&store_dir))?;
    match context.output.is_json() {
        true => context.output.json(&written)?,
        false => {
            let (done, back) = match written.created {
                true => ("made", String::new()),
                false => (
                    "wrote",
                    format!("; `tine undo {}` takes that back", written.fork),
                ),
            };
            let line = format!(
                "{done} {} ({} bytes){back}\n",
                shown(&written.path),
                written.size
            );
            context.output.text(&line)?;
        }
    }
    Ok(SUCCESS)
}
