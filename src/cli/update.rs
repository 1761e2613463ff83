//! `tine update`: brings a fork up to where the branch is that it came from.

use super::context::Context;
use super::sequencing::{LeftArgs, carry_out};
use super::{Exit, SUCCESS};
use crate::client::{Client, embedded_paths};
use crate::ops;
use crate::ops::{ErrorCode, ExitCode, Failure};
use crate::path::shell::shell_word;
use crate::render::text::{human_size, quoted};
use crate::workspace::ForkName;

// The operation, whose help this has, and what the caller does for it.
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
    pub left: LeftArgs,
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
    let from = match verb.fetch {
        false => verb.operation.from.clone(),
        true => {
            let branch = match &verb.operation.from {
                Some(from) => from.clone(),
                None => connection
                    .show(&name)?
                    .from_branch
                    .ok_or_else(|| no_branch(&name))?,
            };
            Some(fetched(context, &branch)?)
        }
    };
    let mut operation = ops::Update {
        fork: Some(name),
        from,
        ..verb.operation.clone()
    };
    operation.onto.review = verb.left.wish();
    carry_out(context, &mut connection, &operation, &verb.left.resolving)
}

/// Lets the fork show other dependency trees, and makes right what leads elsewhere in them.
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
    embedded_paths::again(context, connection, &fork);
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
    Ok(match taken.trees.iter().any(|tree| tree.changed) {
        true => SUCCESS,
        false => ExitCode::Nothing.code(),
    })
}

fn no_branch(name: &ForkName) -> Failure {
    Failure::new(
        ErrorCode::Usage,
        format!("{name} began at a commit, and on no branch"),
    )
    .hint("name what it is to be brought up to: `--from REV`")
}

/// Fetches what `branch` follows; what is to be gone to then.
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
    let mut progress = context.output.progress();
    let listener = progress.as_mut().map(|told| told as &mut dyn FnMut(&[u8]));
    Ok(repository.fetch_followed(&followed, listener)?)
}
