//! `tine cherry-pick`: makes commits again on a fork.

use super::Exit;
use super::context::Context;
use super::sequencing::{ConflictArgs, call_and_print};
use crate::ops::{self, Failure};

// The operation, whose doc comment is the help, and the choice of a resolver.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct CherryPick {
    #[command(flatten)]
    pub operation: ops::CherryPick,

    #[command(flatten)]
    pub conflicts: ConflictArgs,
}

pub(super) fn run(verb: &CherryPick, context: &Context) -> Result<Exit, Failure> {
    let mut operation = verb.operation.clone();
    operation.onto.review = verb.conflicts.review_policy();
    let mut connection = context.connect_for(&operation)?;
    call_and_print(
        context,
        &mut connection,
        &operation,
        &verb.conflicts.resolving,
    )
}
