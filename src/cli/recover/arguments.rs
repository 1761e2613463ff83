//! The arguments of `tine recover`.

use std::path::PathBuf;

use clap_complete::engine::ArgValueCompleter;

use super::super::completing;
use crate::ops::{ListRecover, Purge, ShowRecover};

/// Bring back what was deleted or discarded
///
/// Without an ID it lists everything that a command dropped: forks deleted with uncommitted changes
/// or snapshots, branches, snapshots and handoffs that were deleted, seats of rounds; when, by
/// which command, how large it is, and the command that brings it back. Below that is what
/// other commands bring back.
///
/// With an ID it brings that back: a fork or snapshot as a fork (its path is printed), anything
/// else as a branch. Commits come back under their own ids, and what was uncommitted is uncommitted
/// again. The entry stays until it is purged or expires.
///
/// An entry expires after 90 days (git's setting tine.recoverAge: 12h, 30d, never), and the oldest
/// go when all take more than 10 GiB (tine.recoverSize: 500m, unlimited); size lets go of none that
/// is younger than a day.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_long_help = "\
Examples:
  tine recover                                  list everything
  tine recover 5                                bring entry 5 back under its old name
  tine recover 5 again                          as the fork or branch `again`
  tine recover 5 before --snapshot before-reset-1
  tine recover show 5
  tine recover purge 5 6
  tine recover purge --older-than 30d")]
pub(crate) struct Recover {
    /// The number of the entry to bring back
    #[arg(value_name = "ID", add = ArgValueCompleter::new(completing::entries))]
    pub id: Option<u64>,

    /// The name of the fork or branch [default: as before]
    #[arg(value_name = "NAME", requires = "id")]
    pub name: Option<String>,

    /// Bring back this snapshot of a deleted fork
    #[arg(long, value_name = "SNAPSHOT", requires = "id")]
    pub snapshot: Option<String>,

    /// Where to mount a fork [default: <repository>.forks/NAME]
    #[arg(long, value_name = "DIR", requires = "id", value_hint = clap::ValueHint::DirPath)]
    pub at: Option<PathBuf>,

    /// Do not mount a fork
    #[arg(long, requires = "id")]
    pub no_mount: bool,

    #[command(subcommand)]
    pub action: Option<Action>,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    #[command(aliases = ["ls"])]
    List(ListRecover),
    #[command(mut_arg("id", |id| id.add(ArgValueCompleter::new(completing::entries))))]
    Show(ShowRecover),
    #[command(mut_arg("ids", |ids| ids.add(ArgValueCompleter::new(completing::entries))))]
    Purge(Purge),
}
