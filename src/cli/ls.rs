//! `tine ls`: lists a directory of a fork, or everything below it.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Exit;
use super::context::Context;
use super::output::{Cell, table};
use super::routes;
use crate::ops::protocol::{NodeLine, Nodes, ToolAnswer, ToolListed};
use crate::ops::{Failure, ListDirectory};
use crate::path::text::PathText;
use crate::render::nodes::{kind_letter, mode_text, with_target};
use crate::render::text::{human_age, now_secs, quoted};

// The help is the operation's. A doc comment here would replace it.
#[derive(Debug, clap::Args)]
pub(super) struct Ls {
    #[command(flatten)]
    pub list: ListDirectory,

    /// Show mode, size and age, and where symlinks lead
    #[arg(short, long)]
    pub long: bool,
}

pub(super) fn run(verb: &Ls, context: &Context) -> Result<Exit, Failure> {
    let answer = routes::call(&verb.list, context)?;
    if verb.long && !context.output.is_json() {
        let (nodes, is_deep) = match &answer {
            ToolAnswer::Agents(listed) => (&listed.entries, true),
            ToolAnswer::Saved(listed) => (&listed.nodes, verb.list.deep),
            ToolAnswer::Passthrough { .. } => return routes::show(&verb.list, &answer, context),
        };
        context.output.text(&long(nodes, is_deep))?;
        return Ok(super::SUCCESS);
    }
    routes::show(&verb.list, &answer, context)
}

impl routes::RoutedVerb<ToolListed, Nodes> for ListDirectory {
    fn agents_text(&self, answer: &ToolListed, _context: &Context) -> String {
        let mut text = String::new();
        for node in &answer.entries {
            let line = with_target(quoted(&node.path), node);
            let _ = writeln!(text, "{} {line}", kind_letter(node.kind));
        }
        text
    }

    fn show_saved(&self, listed: &Nodes, context: &Context) -> Result<(), Failure> {
        if !self.deep {
            let rows = listed.nodes.iter().map(|node| vec![Cell::new(name(node))]);
            return context.output.text(&table(&rows.collect::<Vec<_>>()));
        }
        let rows = listed.nodes.iter().map(|node| {
            vec![
                Cell::new(kind_letter(node.kind).to_string()),
                Cell::new(node.size.to_string()).right(),
                Cell::new(with_target(quoted(&node.path), node)),
            ]
        });
        context.output.long(&table(&rows.collect::<Vec<_>>()))
    }
}

fn long(nodes: &[NodeLine], has_paths: bool) -> String {
    let now_secs = now_secs();
    let rows = nodes.iter().map(|node| {
        let shown = if has_paths {
            quoted(&node.path)
        } else {
            name(node)
        };
        vec![
            Cell::new(mode_text(node)),
            Cell::new(node.size.to_string()).right(),
            Cell::new(human_age(node.modified.secs, now_secs)).right(),
            Cell::new(with_target(shown, node)),
        ]
    });
    table(&rows.collect::<Vec<_>>())
}

/// Returns the last component of the path.
fn name(node: &NodeLine) -> String {
    let path = node.path.to_bytes();
    let path = Path::new(std::ffi::OsStr::from_bytes(&path));
    let name = path.file_name().unwrap_or_default();
    quoted(&PathText::from(name.as_bytes()))
}
