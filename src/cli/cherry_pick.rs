//! `tine cherry-pick`: makes commits again on a fork.

use super::Exit;
use super::context::Context;
use super::sequencing::{LeftArgs, carry_out};
use crate::ops::{self, Failure};

// The operation, whose help this has, and who resolves conflicts.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct CherryPick {
    #[command(flatten)]
    pub operation: ops::CherryPick,

    #[command(flatten)]
    pub left: LeftArgs,
}

pub(super) fn run(verb: &CherryPick, context: &Context) -> Result<Exit, Failure> {
    let mut operation = verb.operation.clone();
    operation.onto.review = verb.left.wish();
    let mut connection = context.connect_for(&operation)?;
    carry_out(context, &mut connection, &operation, &verb.left.resolving)
}
