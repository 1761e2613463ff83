//! `tine cherry-pick`: makes commits again on a fork.

use super::Exit;
use super::context::Context;
use super::resolving::ResolverArgs;
use super::sequencing::carry_out;
use crate::ops::{self, Failure};

// The operation, whose help this has, and who resolves conflicts.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct CherryPick {
    #[command(flatten)]
    pub operation: ops::CherryPick,

    /// Keep conflicts as a review, to be resolved one by one
    #[arg(long, help_heading = "Conflicts")]
    pub review: bool,

    #[command(flatten)]
    pub resolving: ResolverArgs,
}

pub(super) fn run(verb: &CherryPick, context: &Context) -> Result<Exit, Failure> {
    let operation = ops::CherryPick {
        review: verb.resolving.review_wish(verb.review),
        ..verb.operation.clone()
    };
    let mut connection = context.connect_for(&operation)?;
    carry_out(context, &mut connection, &operation, &verb.resolving)
}
