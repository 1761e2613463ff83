//! The shared part of updates, cherry-picks and patches.
//!
//! That is the handling of conflicts and the output.

use serde::Serialize;

use super::context::Context;
use super::merge::{conflict_table, exit_of, print_with_contents, undo_line, with_contents};
use super::output::Output;
use super::resolving::{self, ResolverArgs, ReviewProgress};
use super::{Exit, review};
use crate::change::sequence::ItemResult;
use crate::client::{Client, identity};
use crate::ops;
use crate::ops::protocol::{MergeStatus, ReviewPolicy, Sequenced, SequencedCommit};
use crate::ops::{ExitCode, Failure, Operation};
use crate::render::merging::target_name;
use crate::render::text::{counted, short_id};

// Options for conflicts that no strategy settles.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ConflictArgs {
    /// Keep conflicts as a review, to be resolved one by one
    #[arg(long, help_heading = "Conflicts")]
    pub review: bool,

    #[command(flatten)]
    pub resolving: ResolverArgs,
}

/// Calls the operation, asks a resolver about conflicts, and shows the result.
pub(super) fn call_and_print(
    context: &Context,
    connection: &mut Client,
    operation: &impl Operation<Answer = Sequenced>,
    resolving: &ResolverArgs,
) -> Result<Exit, Failure> {
    let signers = identity::signers(context.repository()?.common_dir())?;
    let done = connection.call_as(operation, &signers)?;
    resolve_and_print(context, connection, &done, resolving)
}

/// Asks a resolver about conflicts, and shows the result.
pub(super) fn resolve_and_print(
    context: &Context,
    connection: &mut Client,
    done: &Sequenced,
    resolving: &ResolverArgs,
) -> Result<Exit, Failure> {
    let Some(review) = done.review.filter(|_| resolving.resolver.is_some()) else {
        return print_sequenced(context, done);
    };
    let commit = ops::CommitReview {
        review,
        ..ops::CommitReview::default()
    };
    resolve_review(context, connection, commit, done, resolving)
}

/// Asks a resolver about a review, then commits or shows it.
///
/// JSON shows the command's `answer`, with its conflicts as resolved so far.
pub(super) fn resolve_review(
    context: &Context,
    connection: &mut Client,
    commit: ops::CommitReview,
    answer: &impl Serialize,
    resolving: &ResolverArgs,
) -> Result<Exit, Failure> {
    let review = commit.review;
    let progress = resolving::resolve(resolving, context, connection, review)?;
    if progress == ReviewProgress::Resolved && resolving.auto_commit {
        return review::commit(context, connection, commit);
    }
    let request = ops::ShowReview { review };
    if context.output.is_json() {
        let shown = connection.call(&request)?;
        let conflicts = &shown.info.record.conflicts;
        let answer = with_contents(context, answer, conflicts)?;
        context.output.json(&answer)?;
    } else {
        review::show(&request, context, connection)?;
    }
    Ok(ExitCode::Refused.code())
}

impl ConflictArgs {
    /// Returns the policy for making a review.
    pub(super) fn review_policy(&self) -> ReviewPolicy {
        self.resolving.review_policy(self.review)
    }
}

impl ResolverArgs {
    /// Returns the policy for making a review.
    pub(super) fn review_policy(&self, is_asked_for: bool) -> ReviewPolicy {
        match (self.semantic, is_asked_for || self.resolver.is_some()) {
            (true, _) => ReviewPolicy::Always,
            (false, true) => ReviewPolicy::OnConflict,
            (false, false) => ReviewPolicy::Never,
        }
    }
}

/// Shows the result and returns its exit code.
pub(super) fn print_sequenced(context: &Context, done: &Sequenced) -> Result<Exit, Failure> {
    let output = &context.output;
    print_with_contents(context, done, &done.conflicts, || {
        format_sequenced(done, output)
    })?;
    Ok(exit_of(done.status))
}

fn format_sequenced(done: &Sequenced, output: &Output) -> String {
    let target = match &done.target.fork {
        Some(fork) => fork.to_string(),
        None => target_name(&done.target),
    };
    let mut text: String = done.commits.iter().map(format_of).collect();
    let would = if done.dry_run { "would be" } else { "is" };
    let changed = counted(done.changes.len(), "path");
    match done.status {
        MergeStatus::NothingToMerge => {
            text.push_str(&format!("nothing to do: {target} has all of it\n"))
        }
        MergeStatus::Merged if done.before != done.after => {
            let short =
                |id: &Option<String>| short_id(id.as_deref().unwrap_or_default()).to_owned();
            text.push_str(&format!(
                "{target} {would} at {}, was at {}; {changed} changed\n",
                short(&done.after),
                short(&done.before)
            ));
        }
        MergeStatus::Merged => text.push_str(&if done.dry_run {
            format!("{changed} would change in {target}\n")
        } else {
            format!("{changed} changed in {target}; `tine undo {target}` takes that back\n")
        }),
        MergeStatus::Conflicts | MergeStatus::Reviewed => {}
    }
    text.push_str(&undo_line(&done.target, done.snapshot.as_ref()));
    text.push_str(&conflict_table(&done.conflicts, output, |conflict| {
        let rejected = conflict.rejected.as_ref()?;
        Some(rejected.reason.clone())
    }));
    if done.status == MergeStatus::Conflicts || done.status == MergeStatus::Reviewed {
        let changed = if done.dry_run {
            "nothing would be changed"
        } else {
            "nothing was changed"
        };
        text.push_str(&match done.review {
            Some(review) => {
                format!("{changed}; `tine review show {review}` is where to go on\n")
            }
            None => {
                format!("{changed}; `--review` keeps it for resolving, `--strategy` settles it, `--json` shows it whole\n")
            }
        });
    }
    text
}

fn format_of(commit: &SequencedCommit) -> String {
    let made = short_id(commit.commit.as_deref().unwrap_or_default());
    let what = match commit.how {
        None => "conflicts".to_owned(),
        Some(ItemResult::Committed) => made.to_owned(),
        Some(ItemResult::FastForward) => format!("{made} (as it is)"),
        Some(ItemResult::Contained | ItemResult::LeftOut) => "nothing left".to_owned(),
        Some(ItemResult::Applied) => return String::new(),
    };
    format!("{what}  {}\n", commit.subject)
}
