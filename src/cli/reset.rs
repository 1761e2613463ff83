//! `tine reset`: takes a fork back to HEAD.

use super::context::Context;
use super::restore::told;
use super::{Exit, SUCCESS};
use crate::client::leads;
use crate::ops;
use crate::ops::Failure;

/// Take a fork back to HEAD, with nothing changed
///
/// Uncommitted changes and ignored files go, and a merge, cherry-pick or revert that is under way is forgotten; commits stay.
/// Programs in the mount see it at once. What the fork was becomes a snapshot first, which is named.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine reset fix-parser
  tine restore fix-parser before-reset-1          take that back again")]
pub struct Reset {
    /// The fork
    #[arg(value_name = "FORK")]
    pub fork: String,
}

pub fn run(verb: &Reset, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, fork) = context.connect_to_fork(Some(&verb.fork))?;
    let restored = connection.call(&ops::Reset { fork })?;
    leads::again(context, &mut connection, &restored.fork);
    match context.output.is_json() {
        true => context.output.json(&restored)?,
        false => context.output.text(&told(&restored, "is at HEAD, unchanged"))?,
    }
    Ok(SUCCESS)
}
