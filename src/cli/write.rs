//! `tine write`: replaces or creates a file of a fork.

use super::contents::{sent_content, store_dir};
use super::context::Context;
use super::{Exit, routes};
use crate::ops::protocol::{ToolAnswer, ToolWritten, WrittenLine};
use crate::ops::{Failure, WriteFile};
use crate::render::nodes::shown;

pub(super) fn run(verb: &WriteFile, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, fork) = if verb.agent.is_agents() && verb.fork.is_none() {
        let Some(mut connection) = context.connect_to_forks()? else {
            return routes::show(verb, &ToolAnswer::passthrough(), context);
        };
        let fork = context.fork_if_here(&mut connection)?;
        (connection, fork)
    } else {
        let (connection, fork) = context.connect_to(verb.fork.as_ref())?;
        (connection, Some(fork))
    };
    if let Some(fork) = &fork {
        // Fails early if the fork does not exist, before any input is read.
        connection.show(fork)?;
    }
    let store_dir = store_dir(context)?;
    let content = sent_content(&store_dir, verb.file.as_deref())?;
    let answer = connection.call(&WriteFile {
        content: content.clone(),
        ..verb.clone()
    });
    if matches!(answer, Err(_) | Ok(ToolAnswer::Passthrough { .. })) {
        content.withdraw(&store_dir);
    }
    routes::show(verb, &answer?, context)
}

impl routes::RoutedVerb<ToolWritten, WrittenLine> for WriteFile {
    fn agents_text(&self, written: &ToolWritten, _context: &Context) -> String {
        let done = if written.created { "made" } else { "wrote" };
        let (path, size) = (shown(&written.path), written.size);
        format!(
            "{done} {path} ({size} bytes){}\n",
            routes::in_buffer(written.route)
        )
    }

    fn show_saved(&self, written: &WrittenLine, context: &Context) -> Result<(), Failure> {
        let (done, back) = if written.created {
            ("made", String::new())
        } else {
            (
                "wrote",
                format!("; `tine undo {}` takes that back", written.fork),
            )
        };
        let line = format!(
            "{done} {} ({} bytes){back}\n",
            shown(&written.path),
            written.size
        );
        context.output.text(&line)
    }
}
