//! `tine ls`: lists a directory of a fork.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::context::Context;
use super::output::{Cell, table};
use super::{Exit, SUCCESS};
use crate::ops::protocol::NodeLine;
use crate::ops::{Failure, ListEntries};
use crate::path::text::PathText;
use crate::render::nodes::{mode_text, with_target};
use crate::render::text::{human_age, now_secs, quoted};

// The help is the operation's. A doc comment here would replace it.
#[derive(Debug, clap::Args)]
pub(super) struct Ls {
    #[command(flatten)]
    pub list: ListEntries,

    /// Show mode, size and age, and where symlinks lead
    #[arg(short, long)]
    pub long: bool,
}

pub(super) fn run(verb: &Ls, context: &Context) -> Result<Exit, Failure> {
    let listed = context.connect_for(&verb.list)?.call(&verb.list)?;
    let output = &context.output;
    if output.is_json() {
        output.json(&listed)?;
        return Ok(SUCCESS);
    }
    let now_secs = now_secs();
    let rows: Vec<Vec<Cell>> = listed
        .nodes
        .iter()
        .map(|node| {
            if verb.long {
                vec![
                    Cell::new(mode_text(node)),
                    Cell::new(node.size.to_string()).right(),
                    Cell::new(human_age(node.modified.secs, now_secs)).right(),
                    Cell::new(with_target(name(node), node)),
                ]
            } else {
                vec![Cell::new(name(node))]
            }
        })
        .collect();
    output.text(&table(&rows))?;
    Ok(SUCCESS)
}
/// Returns the last component of the path.
fn name(node: &NodeLine) -> String {
    let path = node.path.to_bytes();
    let path = Path::new(std::ffi::OsStr::from_bytes(&path));
    let name = path.file_name().unwrap_or_default();
    quoted(&PathText::from(name.as_bytes()))
}
