//! The arguments of `tine round`.

use std::path::PathBuf;

use crate::cli::resolving::ResolverArgs;
use crate::cli::trees::FormArgs;
use crate::merge::{Level, Strategy};
use crate::ops::{CleanRounds, CompareRound, CountAttempt, FinishRound, PresentRound, StartRound};
use crate::store::ForkName;

/// Have several agents work in rounds, and keep the books
///
/// In each round every agent gets a fresh fork, sees what the others have finished, and in the end
/// one result is presented. All of it is plain forks and branches, whose names are random: nothing
/// in them tells an agent, a round or a session (docs/rounds.md).
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine round start --agents planner,coder,tester
  tine round show --for coder --prompt
  tine round finish --agent coder --label alpha
  tine round compare
  tine round merge --agents coder,tester --into main --resolver scripts/resolvers/model
  tine round clean")]
pub(crate) struct Round {
    /// The session that is meant
    #[arg(long, global = true, value_name = "NAME", default_value = "default")]
    pub session: ForkName,

    /// The session of a directory that is in no git repository: one of tine's own is made for it,
    /// and `finish` brings the result back
    #[arg(long, global = true, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub no_git: Option<PathBuf>,

    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    Start(StartRound),
    Finish(FinishRound),
    Show(Show),
    Diff(Diff),
    Compare(CompareRound),
    Present(PresentRound),
    Merge(Merge),
    Attempt(CountAttempt),
    #[command(aliases = ["end"])]
    Clean(CleanRounds),
}

/// Show the books, or what one agent may know
///
/// With --for: the agent's own branch, and what the others have finished last under their labels.
/// Neither names of agents are in it nor the reader's own label.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine round show
  tine round show --for coder --json
  tine round show --for coder --prompt")]
pub(crate) struct Show {
    /// As this agent may see it
    #[arg(long = "for", value_name = "A")]
    pub reader: Option<ForkName>,

    /// As a short text for a prompt
    #[arg(long, requires = "reader")]
    pub prompt: bool,
}

/// Show what leads from one agent's work to another's
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine round diff planner coder
  tine round diff planner coder --stat")]
pub(crate) struct Diff {
    /// The agent whose work it leads from
    #[arg(value_name = "A")]
    pub a: ForkName,

    /// The agent whose work it leads to
    #[arg(value_name = "B")]
    pub b: ForkName,

    #[command(flatten)]
    pub form: FormArgs,
}

/// Merge the work of several agents, one after another
///
/// As `tine merge` does it. With a resolver and --auto-commit it goes on with the next agent when
/// the conflicts of one are resolved. Agents must have finished the round.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine round merge --into main
  tine round merge --agents coder,tester --into main --dry-run
  tine round merge --into main --resolver scripts/resolvers/model --auto-commit")]
pub(crate) struct Merge {
    /// Whose, in this order [default: all, in the session's]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub agents: Vec<ForkName>,

    /// The fork or branch to merge into
    #[arg(long, value_name = "TARGET")]
    pub into: String,

    /// Merge lines and follow renames, or only whole files
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "text")]
    pub level: Level,

    /// What becomes of conflicts
    #[arg(long, value_enum, value_name = "HOW", default_value = "abort")]
    pub strategy: Strategy,

    /// Make merge commits even where the target could simply move
    #[arg(long)]
    pub no_ff: bool,

    /// The merge commits' message
    #[arg(short, long, value_name = "MSG")]
    pub message: Vec<String>,

    /// Show what would come of it, and change nothing
    #[arg(short = 'n', long, conflicts_with = "resolver")]
    pub dry_run: bool,

    /// Keep conflicts as a review, to be resolved one by one
    #[arg(long, conflicts_with = "dry_run")]
    pub review: bool,

    /// Merge nothing at all where one agent's work has conflicts
    #[arg(long, conflicts_with = "resolver")]
    pub all_or_nothing: bool,

    /// Merge also what takes commits of the target's back, after `tine restore --exact` in a fork
    #[arg(long)]
    pub allow_revert: bool,

    #[command(flatten)]
    pub resolving: ResolverArgs,
}
