//! `tine resolve`: resolves a conflict of a review.

use std::path::PathBuf;

use super::contents::send_with;
use super::context::Context;
use super::{Exit, review};
use crate::ops;
use crate::ops::Failure;

// The help is the operation's doc comment.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Resolve {
    #[command(flatten)]
    pub operation: ops::Resolve,

    /// The content of FILE
    #[arg(short = 'F', long, group = "how", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: Option<PathBuf>,

    /// The content of standard input
    #[arg(long, group = "how")]
    pub stdin: bool,
}

pub(super) fn run(verb: &Resolve, context: &Context) -> Result<Exit, Failure> {
    let mut connection = context.connect()?;
    if !verb.stdin && verb.file.is_none() {
        return review::show(&verb.operation, context, &mut connection);
    }
    send_with(context, verb.file.as_deref(), |content| {
        let operation = ops::Resolve {
            content: Some(content),
            ..verb.operation.clone()
        };
        review::show(&operation, context, &mut connection)
    })
}
