//! `tine mount`: mounts a fork that is not, or says where it is.

use super::context::Context;
use super::list::tell_what_was_done;
use super::{Exit, SUCCESS};
use crate::client::embedded_paths;
use crate::ops::{Failure, Mount};

pub(super) fn run(verb: &Mount, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, _) = context.connect_to(Some(&verb.fork))?;
    let at = verb.at.as_deref().map(|dir| context.absolute(dir));
    let fork = connection.call(&Mount { at, ..verb.clone() })?;
    context.check_mounted_here(&connection, &fork)?;
    match context.output.is_json() {
        true => context.output.json(&fork)?,
        false => context.output.path(&fork.mount_dir)?,
    }
    embedded_paths::again(context, &mut connection, &fork.name);
    tell_what_was_done(&fork, &mut connection, &context.output);
    Ok(SUCCESS)
}
