//! `tine write`: replaces or creates a file of a fork.

use super::contents::send_with;
use super::context::Context;
use super::{Exit, SUCCESS};
use crate::ops::{Failure, Write};
use crate::render::nodes::shown;

pub(super) fn run(verb: &Write, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, fork) = context.connect_to(verb.fork.as_ref())?;
    // Fails early if the fork does not exist, before any input is read.
    connection.show(&fork)?;
    let written = send_with(context, verb.file.as_deref(), |content| {
        connection.call(&Write {
            content,
            ..verb.clone()
        })
    })?;
    if context.output.is_json() {
        context.output.json(&written)?;
    } else {
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
        context.output.text(&line)?;
    }
    Ok(SUCCESS)
}
