//! The arguments of `tine handoff`.

use std::path::PathBuf;

use crate::cli::sequencing::ConflictArgs;
use crate::cli::trees::FormArgs;
use crate::ops::{AwaitHandoffs, DeleteHandoff, ListHandoffs, ShowHandoff};

/// Hand finished work over as a file that outlives its fork
///
/// The commits of a fork, from where it began to its HEAD, become a mailbox of patches with a
/// number. It stays when the fork, its branch or the daemon go, until it is deleted.
/// `git am --keep --empty=keep` takes the file anywhere, without tine.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine handoff create fix-parser
  tine handoff await 3 4 --timeout 60s
  tine handoff show 3
  git am --keep \"$(tine handoff show 3 --path)\"
  tine handoff import fixes.mbox")]
pub(crate) struct Handoff {
    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    Create(Create),
    #[command(aliases = ["ls"])]
    List(ListHandoffs),
    Show(Show),
    Diff(Diff),
    #[command(aliases = ["wait"])]
    Await(AwaitHandoffs),
    Apply(Apply),
    #[command(aliases = ["remove", "rm"])]
    Delete(DeleteHandoff),
    Import(Import),
}

/// Apply a handoff to a fork or branch
///
/// As `git am --3way` does, all or nothing: authors, dates and messages stay. Patches that are
/// there already are left out. Conflicts change nothing: they are listed with the commit that they
/// are in, and the exit code is 3.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine handoff apply 3                       to whom it is for
  tine handoff apply 3 --into main --dry-run
  tine handoff apply 3 --review              keep conflicts, to be resolved one by one")]
pub(crate) struct Apply {
    /// Its number
    #[arg(value_name = "ID")]
    pub id: u64,

    /// The fork or branch to apply it to [default: whom it is for]
    #[arg(long, value_name = "TARGET")]
    pub into: Option<String>,

    /// Show what would come of it, and change nothing
    #[arg(short = 'n', long, conflicts_with_all = ["review", "resolver"])]
    pub dry_run: bool,

    /// Do not merge where a patch does not fit as it stands
    #[arg(long)]
    pub no_3way: bool,

    /// Apply it even if it was applied, or something is uncommitted there
    #[arg(long)]
    pub force: bool,

    /// Apply also what takes commits of the target's back, after `tine restore --exact` in the fork
    #[arg(long)]
    pub allow_revert: bool,

    #[command(flatten)]
    pub conflicts: ConflictArgs,
}

/// Hand over what a fork has committed
///
/// The same commits are handed over once: asked again, the same handoff is told. One that failed is
/// tried again. Where nothing was committed the handoff is skipped, and the exit code is 7; where
/// it failed it is 1. Merges are left out, as `git format-patch` does: what they bring besides
/// their parents is in no patch.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine handoff create fix-parser
  tine handoff create fix-parser --to main --background
  tine handoff create fix-parser --include-uncommitted -m 'Fix the parser'")]
pub(crate) struct Create {
    /// The fork [default: the one whose mount this is]
    #[arg(value_name = "FORK")]
    pub fork: Option<String>,

    /// The fork or branch that is to apply it [default: what the fork came from]
    #[arg(long, value_name = "PARENT")]
    pub to: Option<String>,

    /// Hand over the commits after this revision [default: those after the fork point]
    #[arg(long, value_name = "REV")]
    pub base: Option<String>,

    /// Commit what is not committed first
    #[arg(long)]
    pub include_uncommitted: bool,

    /// The message of that commit; given again, another paragraph of it
    #[arg(short, long, value_name = "MSG", requires = "include_uncommitted")]
    pub message: Vec<String>,

    /// Skip the hooks pre-commit and commit-msg
    #[arg(long, requires = "include_uncommitted")]
    pub no_verify: bool,

    /// Hand over also what takes commits of others back, after `tine restore --exact` in the fork
    #[arg(long)]
    pub allow_revert: bool,

    /// Do not wait until it is made
    #[arg(long)]
    pub background: bool,
}

/// Show a handoff: how it stands, and its commits
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine handoff show 3
  git am --keep \"$(tine handoff show 3 --path)\"
  tine handoff show 3 --patch | less")]
pub(crate) struct Show {
    #[command(flatten)]
    pub handoff: ShowHandoff,

    /// Print only where its mailbox is
    #[arg(long, conflicts_with = "patch")]
    pub path: bool,

    /// Print the mailbox itself
    #[arg(long)]
    pub patch: bool,
}

/// Show what a handoff changes as a whole
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  tine handoff diff 3 --stat")]
pub(crate) struct Diff {
    #[command(flatten)]
    pub handoff: ShowHandoff,

    #[command(flatten)]
    pub form: FormArgs,
}

/// Take a mailbox of patches from elsewhere as a handoff
///
/// As `git format-patch --stdout` writes it, or another tine.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine handoff import fixes.mbox
  git -C ../other format-patch --stdout main.. | tine handoff import - --to main")]
pub(crate) struct Import {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,

    /// The fork or branch that is to apply it
    #[arg(long, value_name = "PARENT")]
    pub to: Option<String>,
}
