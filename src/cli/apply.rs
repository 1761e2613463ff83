//! `tine apply`: applies a patch to a fork's files.

use super::Exit;
use super::contents::{sent_content, store_dir};
use super::context::Context;
use super::sequencing::{LeftArgs, carry_out};
use crate::ops::{ApplyPatch, Failure};

// The operation's doc comment is the help.
#[derive(Debug, clap::Args)]
pub(super) struct Apply {
    #[command(flatten)]
    pub operation: ApplyPatch,

    #[command(flatten)]
    pub left: LeftArgs,
}

pub(super) fn run(verb: &Apply, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, fork) = context.connect_to(verb.operation.fork.as_ref())?;
    // Before anything is read: the fork may not be there.
    connection.show(&fork)?;
    let file = verb.operation.file.as_path();
    let store_dir = store_dir(context)?;
    let content = sent_content(&store_dir, (file.as_os_str() != "-").then_some(file))?;
    let request = ApplyPatch {
        content: content.clone(),
        review: verb.left.wish(),
        ..verb.operation.clone()
    };
    carry_out(context, &mut connection, &request, &verb.left.resolving)
        .inspect_err(|_| content.withdraw(&store_dir))
}
