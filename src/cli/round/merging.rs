//! `tine round merge`: merges agents' work as `tine merge`, continuing after a resolver.

use serde::Serialize;

use super::Rounds;
use super::arguments::Merge;
use crate::cli::context::Context;
use crate::cli::resolving::{self, ReviewProgress};
use crate::cli::{Exit, merge as merging};
use crate::client::Client;
use crate::client::hooks::HookOutput;
use crate::client::merging::HookOptions;
use crate::ops::protocol::{Merged, ReviewOutcome};
use crate::ops::{ErrorCode, ExitCode, Failure};
use crate::{client, ops};

/// Output of `tine round merge --json`.
#[derive(Serialize)]
struct Document {
    /// In the order in which they were made.
    merges: Vec<serde_json::Value>,
    /// Agents whose work was not reached.
    left: Vec<String>,
}

pub(super) fn merge(verb: &Merge, round: &Rounds<'_>) -> Result<Exit, Failure> {
    let context = round.context;
    let mut connection = round.connect()?;
    let results = round.results(&mut connection, &verb.agents, true)?;
    let points: Vec<&str> = results.iter().map(|result| result.point.as_str()).collect();
    // A review has one source. With a resolver each source is merged alone, after the one before
    // it.
    let steps: Vec<&[&str]> = if verb.resolving.resolver.is_some() {
        points.chunks(1).collect()
    } else {
        vec![&points]
    };
    let (mut merges, mut exit, mut done) = (Vec::new(), ExitCode::Nothing.code(), 0);
    for step in steps {
        let merged = merging::ask(&asked(verb, step), context, &mut connection)?;
        done += merged.sources.len();
        let review = merged.review;
        let of_step = merging::exit_of(merged.status);
        merges.push(merged);
        let Some(review) = review.filter(|_| verb.resolving.resolver.is_some()) else {
            exit = combine(exit, of_step);
            if of_step == ExitCode::Refused.code() {
                break;
            }
            continue;
        };
        match resolved(verb, context, &mut connection, review)? {
            Some(committed) => {
                exit = combine(exit, merging::exit_of(committed.status));
                merges.push(committed);
            }
            None => {
                exit = ExitCode::Refused.code();
                break;
            }
        }
    }
    let left = results
        .iter()
        .skip(done)
        .map(|result| result.agent.to_string());
    print_merges(context, &merges, left.collect())?;
    Ok(exit)
}

/// Combines two exit codes: a merge or refusal outranks "nothing to merge".
fn combine(exit: Exit, next: Exit) -> Exit {
    if next == ExitCode::Nothing.code() {
        exit
    } else {
        next
    }
}

/// Asks the resolver about a review. Returns the merge, if it was made.
fn resolved(
    verb: &Merge,
    context: &Context,
    connection: &mut Client,
    review: u64,
) -> Result<Option<Merged>, Failure> {
    let progress = resolving::resolve(&verb.resolving, context, connection, review)?;
    if progress != ReviewProgress::Resolved || !verb.resolving.auto_commit {
        return Ok(None);
    }
    let hooks = HookOptions {
        output: HookOutput::Shown,
        no_verify: false,
    };
    let request = ops::CommitReview {
        review,
        allow_revert: verb.allow_revert,
        ..ops::CommitReview::default()
    };
    match client::review::commit(context, connection, request, hooks)? {
        ReviewOutcome::Merge(merged) => Ok(Some(*merged)),
        ReviewOutcome::Sequenced(_) => Err(Failure::new(
            ErrorCode::Internal,
            "a merge became something else",
        )),
    }
}

/// Builds the equivalent `tine merge` command.
fn asked(verb: &Merge, points: &[&str]) -> merging::Merge {
    merging::Merge {
        operation: ops::Merge {
            sources: points.iter().map(ToString::to_string).collect(),
            into: Some(verb.into.clone()),
            level: verb.level,
            strategy: verb.strategy,
            no_ff: verb.no_ff,
            message: verb.message.clone(),
            dry_run: verb.dry_run,
            // An agent's result is its finished work, committed or not.
            with_uncommitted: true,
            all_or_nothing: verb.all_or_nothing,
            allow_revert: verb.allow_revert,
            ..ops::Merge::default()
        },
        review: verb.review,
        markers: None,
        resolving: verb.resolving.clone(),
        no_verify: false,
    }
}

fn print_merges(context: &Context, merges: &[Merged], left: Vec<String>) -> Result<(), Failure> {
    if context.output.is_json() {
        let merges = merges
            .iter()
            .map(|merged| merging::with_contents(context, merged, &merged.conflicts))
            .collect::<Result<_, _>>()?;
        return context.output.json(&Document { merges, left });
    }
    for merged in merges {
        context
            .output
            .text(&merging::format_merged(merged, false, &context.output))?;
    }
    if !left.is_empty() {
        context
            .output
            .note(&format!("not looked at any more: {}", left.join(", ")));
    }
    Ok(())
}
