//! `tine write`: replaces a file of a fork, or makes it.

use super::contents::{sent_content, store_dir};
use super::context::Context;
use super::{Exit, SUCCESS};
use crate::ops::{Failure, Write};
use crate::render::nodes::shown;

pub(super) fn run(verb: &Write, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, fork) = context.connect_to(verb.fork.as_ref())?;
    // Before anything is read: the fork may not be there.
    connection.show(&fork)?;
    let store_dir = store_dir(context)?;
    let content = sent_content(&store_dir, verb.file.as_deref())?;
    let request = Write {
        content: content.clone(),
        ..verb.clone()
    };
    let written = connection.call(&request);
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
