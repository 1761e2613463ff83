//! `tine mount`: mounts a fork if needed and prints its mount place.

use super::context::Context;
use super::list::note_unrequested_changes;
use super::{Exit, SUCCESS};
use crate::client::embedded_paths;
use crate::ops::{Failure, Mount};

pub(super) fn run(verb: &Mount, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, _) = context.connect_to(Some(&verb.fork))?;
    let at = verb.at.as_deref().map(|dir| context.absolute(dir));
    let fork = connection.call(&Mount { at, ..verb.clone() })?;
    context.check_mounted_here(&connection, &fork)?;
    context
        .output
        .json_or(&fork, || context.output.path(&fork.mount_dir))?;
    embedded_paths::rewrite_again(context, &mut connection, &fork.name);
    note_unrequested_changes(&fork, &mut connection, &context.output);
    Ok(SUCCESS)
}
