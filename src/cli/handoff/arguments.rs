//! The arguments of `tine handoff`.

use crate::cli::sequencing::ConflictArgs;
use crate::cli::trees::FormArgs;
use crate::ops::{
    ApplyHandoff, AwaitHandoffs, CreateHandoff, DeleteHandoff, ImportHandoff, ListHandoffs,
    ShowHandoff,
};

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
    Import(ImportHandoff),
}

// The help is the operation's doc comment.
#[derive(Debug, clap::Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    pub operation: ApplyHandoff,

    #[command(flatten)]
    pub conflicts: ConflictArgs,
}

// The help is the operation's doc comment.
#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    #[command(flatten)]
    pub operation: CreateHandoff,

    /// Skip the hooks pre-commit and commit-msg
    #[arg(long, requires = "include_uncommitted")]
    pub no_verify: bool,

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
