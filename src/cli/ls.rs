//! `tine ls`: what a directory of a fork holds.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::context::Context;
use super::inside::Inside;
use super::output::{Cell, table};
use super::{Exit, SUCCESS};
use crate::ops;
use crate::ops::Failure;
use crate::ops::protocol::NodeLine;
use crate::path::text::PathText;
use crate::render::nodes::{mode_text, with_target};
use crate::render::text::{human_age, quoted};
use crate::workspace::ForkName;

/// List a directory of a fork, mounted or not
///
/// One name a line, sorted by bytes; a file is listed itself. Symlinks are followed within the fork. The fork's own .git
/// is left out.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine ls fix-parser src
  tine ls fix-parser -l
  tine ls fix-parser --json | jq -r '.nodes[].path'")]
pub struct Ls {
    /// The fork
    #[arg(value_name = "FORK")]
    pub fork: String,

    /// From the fork's root, or absolute in its mount
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: OsString,

    /// Show mode, size and age, and where symlinks lead
    #[arg(short, long)]
    pub long: bool,
}

/// Paths of a fork.
#[derive(Serialize)]
pub struct Nodes {
    pub fork: ForkName,
    pub nodes: Vec<NodeLine>,
}

pub fn run(verb: &Ls, context: &Context) -> Result<Exit, Failure> {
    let mut inside = Inside::new(context, &verb.fork)?;
    let path = inside.path(&verb.path)?;
    let fork = inside.fork.clone();
    let deep = false;
    let nodes = inside.nodes(&ops::ListEntries {
        fork: fork.clone(),
        path,
        deep,
    })?;
    let output = &context.output;
    if output.is_json() {
        output.json(&Nodes { fork, nodes })?;
        return Ok(SUCCESS);
    }
    let now_secs = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    let rows: Vec<Vec<Cell>> = nodes
        .iter()
        .map(|node| match verb.long {
            false => vec![Cell::new(name(node))],
            true => vec![
                Cell::new(mode_text(node)),
                Cell::new(node.size.to_string()).right(),
                Cell::new(human_age(node.modified.secs, now_secs)).right(),
                Cell::new(with_target(name(node), node)),
            ],
        })
        .collect();
    output.text(&table(&rows))?;
    Ok(SUCCESS)
}

/// The last name of the path.
fn name(node: &NodeLine) -> String {
    let path = node.path.to_bytes();
    let path = Path::new(std::ffi::OsStr::from_bytes(&path));
    let name = path.file_name().unwrap_or_default();
    quoted(&PathText::from(name.as_bytes()))
}
