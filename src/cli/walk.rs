//! `tine walk`: every path of a fork, or beneath one.

use std::ffi::OsString;

use super::context::Context;
use super::inside::Inside;
use super::ls::Nodes;
use super::output::{Cell, table};
use super::{Exit, SUCCESS};
use crate::ops;
use crate::ops::Failure;
use crate::render::nodes::{kind_letter, with_target};
use crate::render::text::quoted;

/// List every path beneath a directory of a fork, mounted or not
///
/// One line a path, sorted by bytes: its kind as `ls -l` has it (- file, d directory, l symlink), its size, the path from
/// the fork's root. Symlinks are not followed beneath PATH. The fork's own .git is left out; what git ignores is not.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine walk fix-parser
  tine walk fix-parser src --json | jq -r '.nodes[] | select(.kind == \"file\") | .path'")]
pub struct Walk {
    /// The fork
    #[arg(value_name = "FORK")]
    pub fork: String,

    /// From the fork's root, or absolute in its mount
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: OsString,
}

pub fn run(verb: &Walk, context: &Context) -> Result<Exit, Failure> {
    let mut inside = Inside::new(context, &verb.fork)?;
    let path = inside.path(&verb.path)?;
    let fork = inside.fork.clone();
    let nodes = inside.nodes(&ops::ListEntries {
        fork: fork.clone(),
        path,
        deep: true,
    })?;
    let output = &context.output;
    if output.is_json() {
        output.json(&Nodes { fork, nodes })?;
        return Ok(SUCCESS);
    }
    let rows: Vec<Vec<Cell>> = nodes
        .iter()
        .map(|node| {
            vec![
                Cell::new(kind_letter(node.kind).to_string()),
                Cell::new(node.size.to_string()).right(),
                Cell::new(with_target(quoted(&node.path), node)),
            ]
        })
        .collect();
    output.long(&table(&rows))?;
    Ok(SUCCESS)
}
