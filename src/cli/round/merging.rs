//! `tine round merge`: `tine merge` of agents' work, going on where a resolver has resolved.

use serde::Serialize;

use super::Rounds;
use super::arguments::Merge;
use crate::cli::context::Context;
use crate::cli::resolving::{self, Left};
use crate::cli::{Exit, merge as merging};
use crate::client::Client;
use crate::client::hooks::HookOutput;
use crate::client::merging::HookOptions;
use crate::ops::protocol::{Merged, ReviewOutcome};
use crate::ops::{ErrorCode, ExitCode, Failure};
use crate::{client, ops};

/// What `tine round merge --json` prints.
#[derive(Serialize)]
struct Document {
    /// In the order in which they were made.
    merges: Vec<serde_json::Value>,
    /// The agents whose work was not looked at any more.
    left: Vec<String>,
}

pub(super) fn merge(verb: &Merge, round: &Rounds<'_>) -> Result<Exit, Failure> {
    let context = round.context;
    let mut connection = round.connect()?;
    let results = round.results(&mut connection, &verb.agents, true)?;
    let points: Vec<&str> = results.iter().map(|result| result.point.as_str()).collect();
    // A review is of one source: with a resolver each is merged by itself, and the next one after
    // it.
    let steps: Vec<&[&str]> = match verb.resolving.resolver.is_some() {
        true => points.chunks(1).collect(),
        false => vec![&points],
    };
    let (mut merges, mut exit, mut done) = (Vec::new(), ExitCode::Nothing.code(), 0);
    for step in steps {
        let merged = merging::ask(&asked(verb, step), context, &mut connection)?;
        done += merged.sources.len();
        let review = merged.review;
        let of_step = merging::exit_of(merged.status);
        merges.push(merged);
        let Some(review) = review.filter(|_| verb.resolving.resolver.is_some()) else {
            exit = worse(exit, of_step);
            if of_step == ExitCode::Refused.code() {
                break;
            }
            continue;
        };
        match resolved(verb, context, &mut connection, review)? {
            Some(committed) => {
                exit = worse(exit, merging::exit_of(committed.status));
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
    tell(context, &merges, left.collect())?;
    Ok(exit)
}

/// Something was merged, or refused: that says more than that there was nothing to do.
fn worse(exit: Exit, next: Exit) -> Exit {
    match next == ExitCode::Nothing.code() {
        true => exit,
        false => next,
    }
}

/// Has the resolver look at a review; the merge, if it was made.
fn resolved(
    verb: &Merge,
    context: &Context,
    connection: &mut Client,
    review: u64,
) -> Result<Option<Merged>, Failure> {
    let left = resolving::resolve(&verb.resolving, context, connection, review)?;
    if left != Left::Resolved || !verb.resolving.auto_commit {
        return Ok(None);
    }
    let hooks = HookOptions {
        output: HookOutput::Shown,
        no_verify: false,
    };
    match client::review::commit(
        context,
        connection,
        review,
        None,
        false,
        verb.allow_revert,
        hooks,
    )? {
        ReviewOutcome::Merge(merged) => Ok(Some(*merged)),
        ReviewOutcome::Sequenced(_) => Err(Failure::new(
            ErrorCode::Internal,
            "a merge became something else",
        )),
    }
}

/// What `tine merge` is to do.
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
            // What an agent finished is its result, committed or not.
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

fn tell(context: &Context, merges: &[Merged], left: Vec<String>) -> Result<(), Failure> {
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
            .text(&merging::told(merged, false, &context.output))?;
    }
    if !left.is_empty() {
        context
            .output
            .note(&format!("not looked at any more: {}", left.join(", ")));
    }
    Ok(())
}
