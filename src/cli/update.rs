//! `tine update`: brings a fork up to where the branch is that it came from.

use super::context::Context;
use super::sequencing::{ConflictArgs, carry_out, request};
use super::{Exit, SUCCESS};
use crate::client::{Client, leads};
use crate::ops;
use crate::ops::protocol::SequenceWish;
use crate::ops::{ErrorCode, ExitCode, Failure};
use crate::path::shell::shell_word;
use crate::render::text::{human_size, quoted};
use crate::workspace::ForkName;

/// Bring a fork up to date with the branch that it came from
///
/// The fork moves to where that branch is now, or to --from, and its own changes are merged onto it: commits by a merge commit, or
/// with --rebase made again one by one, and what is uncommitted stays uncommitted. A fork without commits of its own merely moves.
/// Mounted or not, it is one step, and only files that differ are touched.
///
/// Conflicts change nothing: they are listed, and the exit code is 3. It is 7 where there is nothing new. `ours` is the fork's, `theirs`
/// what comes; with --rebase it is the other way round, as with git.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine update fix-parser                    to where its branch is now
  tine update fix-parser --fetch --rebase   ask the remote first, and make its commits again
  tine update fix-parser --from v2.0        to a tag
  tine update fix-parser --carried          take up the node_modules that the main checkout has now
  tine update fix-parser --review           keep conflicts, to be resolved one by one")]
pub struct Update {
    /// The fork [default: the one you stand in]
    #[arg(value_name = "FORK")]
    pub name: Option<String>,

    /// What to bring it up to: a revision, or another fork's HEAD [default: the branch that it came from]
    #[arg(long, value_name = "REV")]
    pub from: Option<String>,

    /// Fetch from the remote first, and go to what the branch follows there
    #[arg(long)]
    pub fetch: bool,

    /// Make the fork's commits again, instead of merging
    #[arg(long)]
    pub rebase: bool,

    /// The merge commit's message
    #[arg(short, long, value_name = "MSG", conflicts_with = "rebase")]
    pub message: Vec<String>,

    /// Take up the dependency trees (node_modules, .venv, vendor) that the main checkout has now, and nothing else; `previous`: show
    /// those again that were shown before
    #[arg(
        long,
        value_name = "WHICH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "present",
        conflicts_with_all = ["from", "fetch", "rebase", "message", "dry_run", "review", "resolver"]
    )]
    pub carried: Option<CarriedTrees>,

    /// Show what would come of it, and change nothing
    #[arg(short = 'n', long, conflicts_with_all = ["review", "resolver"])]
    pub dry_run: bool,

    #[command(flatten)]
    pub conflicts: ConflictArgs,
}

/// Which dependency trees a fork is to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum CarriedTrees {
    /// As the main checkout has them now
    Present,
    /// As the fork showed them before others were taken up
    Previous,
}

pub fn run(verb: &Update, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, name) = context.connect_to_fork(verb.name.as_deref())?;
    if let Some(which) = verb.carried {
        return take_up(context, &mut connection, name, which);
    }
    let from = match verb.fetch {
        false => verb.from.clone(),
        true => {
            let branch = match &verb.from {
                Some(from) => from.clone(),
                None => connection
                    .show(&name)?
                    .from_branch
                    .ok_or_else(|| no_branch(&name))?,
            };
            Some(fetched(context, &branch)?)
        }
    };
    let wish = SequenceWish::Update {
        from,
        rebase: verb.rebase,
    };
    let mut request = request(context, Some(&name), wish, &verb.conflicts, verb.dry_run)?;
    request.message = (!verb.message.is_empty()).then(|| verb.message.join("\n\n"));
    carry_out(context, &mut connection, request, &verb.conflicts.resolving)
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
    leads::again(context, connection, &fork);
    if context.output.is_json() {
        context.output.json(&taken)?;
    } else {
        for tree in &taken.trees {
            let path = quoted(&tree.path);
            context.output.text(&match (tree.changed, tree.missing) {
                (true, _) => format!("{path} is taken up, {} copied\n", human_size(tree.copied_bytes)),
                (false, true) => format!("{path} stays: the main checkout does not have it any more\n"),
                (false, false) => format!("{path} is as the main checkout has it\n"),
            })?;
        }
        let changed = taken.trees.iter().any(|tree| tree.changed);
        if changed && which == CarriedTrees::Present {
            let note = format!("`tine update {fork} --carried=previous` shows what it showed before");
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
