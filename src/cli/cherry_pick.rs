//! `tine cherry-pick`: makes commits again on a fork.

use super::Exit;
use super::context::Context;
use super::sequencing::{ConflictArgs, carry_out, request};
use crate::change::sequence::Emptied;
use crate::ops::Failure;
use crate::ops::protocol::SequenceWish;

/// Make commits again on a fork
///
/// As `git cherry-pick`, mounted or not, and all or nothing: authors, dates and messages stay. What is uncommitted in the fork stays,
/// too; where a commit would overwrite it, it is refused.
///
/// Conflicts change nothing: they are listed with the commit that they are in, and the exit code is 3.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine cherry-pick fix-parser main~2          one commit
  tine cherry-pick fix-parser main~5..main    a range
  tine cherry-pick fix-parser 3f2a91c -x      and say in the message where it is from")]
pub struct CherryPick {
    /// The fork
    #[arg(value_name = "FORK")]
    pub fork: String,

    /// Commits and ranges, as git understands them
    #[arg(value_name = "COMMIT", required = true)]
    pub commits: Vec<String>,

    /// Say in each message which commit it is from
    #[arg(short = 'x')]
    pub says_origin: bool,

    /// Of merges: take what changed against this parent, counted from 1
    #[arg(short, long, value_name = "PARENT")]
    pub mainline: Option<usize>,

    /// What becomes of commits that would change nothing
    #[arg(long, value_enum, value_name = "HOW", default_value = "stop")]
    pub empty: Emptied,

    /// Show what would come of it, and change nothing
    #[arg(short = 'n', long, conflicts_with_all = ["review", "resolver"])]
    pub dry_run: bool,

    #[command(flatten)]
    pub conflicts: ConflictArgs,
}

pub fn run(verb: &CherryPick, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, name) = context.connect_to_fork(Some(&verb.fork))?;
    let wish = SequenceWish::CherryPick {
        commits: verb.commits.clone(),
        mainline: verb.mainline,
        says_origin: verb.says_origin,
        emptied: verb.empty,
    };
    let request = request(context, Some(&name), wish, &verb.conflicts, verb.dry_run)?;
    carry_out(context, &mut connection, request, &verb.conflicts.resolving)
}
