//! What updating, making commits again and applying patches have in common: what becomes of
//! conflicts, and what is told.

use super::context::Context;
use super::merge::with_contents;
use super::output::{Cell, Output, Tone, table};
use super::resolving::{self, Left, ResolverArgs};
use super::{Exit, SUCCESS, review};
use crate::change::sequence::ItemResult;
use crate::client::{Client, identity};
use crate::ops;
use crate::ops::protocol::{MergeStatus, ReviewPolicy, Sequenced, SequencedCommit};
use crate::ops::{ExitCode, Failure, Operation};
use crate::render::merging::{kind_in_words, target_name};
use crate::render::text::{counted, quoted, short_id};

// What becomes of conflicts that no strategy settles.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct LeftArgs {
    /// Keep conflicts as a review, to be resolved one by one
    #[arg(long, help_heading = "Conflicts")]
    pub review: bool,

    #[command(flatten)]
    pub resolving: ResolverArgs,
}

/// Sends it, lets a resolver look at conflicts, and tells what came of it.
pub(super) fn carry_out(
    context: &Context,
    connection: &mut Client,
    operation: &impl Operation<Answer = Sequenced>,
    resolving: &ResolverArgs,
) -> Result<Exit, Failure> {
    let signers = identity::signers(context.repository()?.common_dir())?;
    let done = connection.call_as(operation, &signers)?;
    go_on(context, connection, &done, resolving)
}

/// Lets a resolver look at conflicts, and tells what came of it.
pub(super) fn go_on(
    context: &Context,
    connection: &mut Client,
    done: &Sequenced,
    resolving: &ResolverArgs,
) -> Result<Exit, Failure> {
    let Some(review) = done.review.filter(|_| resolving.resolver.is_some()) else {
        return tell(context, done);
    };
    let left = resolving::resolve(resolving, context, connection, review)?;
    if left == Left::Resolved && resolving.auto_commit {
        return review::commit(context, connection, review, None, false, false);
    }
    let request = ops::ShowReview { review };
    match context.output.is_json() {
        true => {
            let shown = connection.call(&request)?;
            context.output.json(&with_contents(
                context,
                &done,
                &shown.info.record.conflicts,
            )?)?;
        }
        false => drop(review::show(&request, context, connection)?),
    }
    Ok(ExitCode::Refused.code())
}

impl LeftArgs {
    /// When a review is to be made.
    pub(super) fn wish(&self) -> ReviewPolicy {
        self.resolving.review_wish(self.review)
    }
}

impl ResolverArgs {
    /// When a review is to be made.
    pub(super) fn review_wish(&self, is_asked_for: bool) -> ReviewPolicy {
        match (self.semantic, is_asked_for || self.resolver.is_some()) {
            (true, _) => ReviewPolicy::Always,
            (false, true) => ReviewPolicy::OnConflict,
            (false, false) => ReviewPolicy::Never,
        }
    }
}

/// Shows what came of it; the exit code that says it.
pub(super) fn tell(context: &Context, done: &Sequenced) -> Result<Exit, Failure> {
    match context.output.is_json() {
        true => context
            .output
            .json(&with_contents(context, done, &done.conflicts)?)?,
        false => context.output.text(&told(done, &context.output))?,
    }
    Ok(match done.status {
        MergeStatus::Merged => SUCCESS,
        MergeStatus::NothingToMerge => ExitCode::Nothing.code(),
        MergeStatus::Conflicts | MergeStatus::Reviewed => ExitCode::Refused.code(),
    })
}

fn told(done: &Sequenced, output: &Output) -> String {
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
        MergeStatus::Merged => text.push_str(&match done.dry_run {
            true => format!("{changed} would change in {target}\n"),
            false => {
                format!("{changed} changed in {target}; `tine undo {target}` takes that back\n")
            }
        }),
        MergeStatus::Conflicts | MergeStatus::Reviewed => {}
    }
    if let (Some(fork), Some(snapshot)) = (&done.target.fork, &done.snapshot) {
        text.push_str(&format!(
            "`tine undo {fork}` takes that back; what it was is the snapshot {snapshot}\n"
        ));
    }
    if !done.conflicts.is_empty() {
        let rows: Vec<Vec<Cell>> = done
            .conflicts
            .iter()
            .map(|conflict| {
                let mut row = vec![
                    Cell::new(format!("  {}", kind_in_words(conflict))).toned(output, Tone::Bad),
                    Cell::new(quoted(&conflict.path)),
                ];
                row.extend(
                    conflict
                        .rejected
                        .as_ref()
                        .map(|rejected| Cell::new(rejected.reason.as_str())),
                );
                row
            })
            .collect();
        text.push_str(&table(&rows));
    }
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
