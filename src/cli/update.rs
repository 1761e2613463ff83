//! `tine update`: brings a fork up to the tip of its branch.

use super::context::Context;
use super::sequencing::{ConflictArgs, call_and_print};
use super::{Exit, SUCCESS};
use crate::client::{Client, embedded_paths};
use crate::ops;
use crate::ops::{ErrorCode, ExitCode, Failure};
use crate::path::shell::shell_word;
use crate::render::text::{human_size, quoted};
use crate::store::ForkName;

// The operation, whose doc comment is the help, and the caller's options.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Update {
    #[command(flatten)]
    pub operation: ops::Update,

    /// Fetch from the remote first, and go to what the branch follows there
    #[arg(long)]
    pub fetch: bool,

    /// Take up the dependency trees (node_modules, .venv, vendor) that the main checkout has now,
    /// and nothing else; `previous`: show those again that were shown before
    #[arg(
        long,
        value_name = "WHICH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "present",
        conflicts_with_all = ["from", "fetch", "rebase", "message", "dry_run", "review", "resolver"]
    )]
    pub carried: Option<CarriedTrees>,

    #[command(flatten)]
    pub conflicts: ConflictArgs,
}

/// Which dependency trees a fork is to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum CarriedTrees {
    /// As the main checkout has them now
    Present,
    /// As the fork showed them before others were taken up
    Previous,
}

pub(super) fn run(verb: &Update, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, name) = context.connect_to(verb.operation.fork.as_ref())?;
    if let Some(which) = verb.carried {
        return take_up(context, &mut connection, name, which);
    }
    let from = if verb.fetch {
        let branch = match &verb.operation.from {
            Some(from) => from.clone(),
            None => connection
                .show(&name)?
                .from_branch
                .ok_or_else(|| no_branch(&name))?,
        };
        Some(fetched(context, &branch)?)
    } else {
        verb.operation.from.clone()
    };
    let mut operation = ops::Update {
        fork: Some(name),
        from,
        ..verb.operation.clone()
    };
    operation.onto.review = verb.conflicts.review_policy();
    call_and_print(
        context,
        &mut connection,
        &operation,
        &verb.conflicts.resolving,
    )
}

/// Switches the fork's dependency trees and fixes embedded paths in them.
fn take_up(
    context: &Context,
    connection: &mut Client,
    fork: ForkName,
    which: CarriedTrees,
) -> Result<Exit, Failure> {
    let request = ops::TakeUpTrees {
        fork: fork.clone(),
        previous: which == CarriedTrees::Previous,
    };
    let taken = connection.call(&request)?;
    embedded_paths::rewrite_again(context, connection, &fork);
    if context.output.is_json() {
        context.output.json(&taken)?;
    } else {
        for tree in &taken.trees {
            let path = quoted(&tree.path);
            context.output.text(&match (tree.changed, tree.missing) {
                (true, _) => format!(
                    "{path} is taken up, {} copied\n",
                    human_size(tree.copied_bytes)
                ),
                (false, true) => {
                    format!("{path} stays: the main checkout does not have it any more\n")
                }
                (false, false) => format!("{path} is as the main checkout has it\n"),
            })?;
        }
        let changed = taken.trees.iter().any(|tree| tree.changed);
        if changed && which == CarriedTrees::Present {
            let note =
                format!("`tine update {fork} --carried=previous` shows what it showed before");
            context.output.note(&note);
        }
    }
    Ok(if taken.trees.iter().any(|tree| tree.changed) {
        SUCCESS
    } else {
        ExitCode::Nothing.code()
    })
}

fn no_branch(name: &ForkName) -> Failure {
    Failure::new(
        ErrorCode::Usage,
        format!("{name} began at a commit, and on no branch"),
    )
    .hint("name the revision to bring it up to: `--from REV`")
}

/// Fetches the upstream of `branch`. Returns the revision to update to.
fn fetched(context: &Context, branch: &str) -> Result<String, Failure> {
    let repository = context.repository()?;
    let Some(followed) = repository.followed_by(branch)? else {
        return Err(Failure::new(
            ErrorCode::Usage,
            format!("{branch} follows no branch of a remote"),
        )
        .hint(format!(
            "`git branch --set-upstream-to REMOTE/BRANCH {}` lets it; or name one: `--from REMOTE/BRANCH`",
            shell_word(branch)
        )));
    };
    let output = &context.output;
    Ok(output.with_progress(|progress| repository.fetch_followed(&followed, progress))?)
}
