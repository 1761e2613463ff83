//! `tine apply`: applies a patch to a fork's files.

use super::Exit;
use super::contents::{file_or_stdin, send_with};
use super::context::Context;
use super::sequencing::{ConflictArgs, call_and_print};
use crate::ops::{ApplyPatch, Failure};

// The help is the operation's doc comment.
#[derive(Debug, clap::Args)]
pub(super) struct Apply {
    #[command(flatten)]
    pub operation: ApplyPatch,

    #[command(flatten)]
    pub conflicts: ConflictArgs,
}

pub(super) fn run(verb: &Apply, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, fork) = context.connect_to(verb.operation.fork.as_ref())?;
    // Fails early if the fork does not exist, before any input is read.
    connection.show(&fork)?;
    send_with(context, file_or_stdin(&verb.operation.file), |content| {
        let request = ApplyPatch {
            content,
            review: verb.conflicts.review_policy(),
            ..verb.operation.clone()
        };
        call_and_print(
            context,
            &mut connection,
            &request,
            &verb.conflicts.resolving,
        )
    })
}
