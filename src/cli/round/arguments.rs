//! The arguments of `tine round`.

use std::path::PathBuf;

use crate::cli::resolving::ResolverArgs;
use crate::cli::trees::FormArgs;
use crate::merge::{Level, Strategy};
use crate::workspace::ForkName;

/// Have several agents work in rounds, and keep the books
///
/// In each round every agent gets a fresh fork, sees what the others have finished, and in the end one result is presented. All of it
/// is plain forks and branches, whose names are random: nothing in them tells an agent, a round or a session (docs/rounds.md).
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine round start --agents planner,coder,tester
  tine round show --for coder --prompt
  tine round finish --agent coder --label alpha
  tine round compare
  tine round merge --agents coder,tester --into main --resolver scripts/resolvers/model
  tine round clean")]
pub struct Round {
    /// The session that is meant
    #[arg(long, global = true, value_name = "NAME", default_value = "default")]
    pub session: ForkName,

    /// The session of a directory that is in no git repository: one of tine's own is made for it, and `finish` brings the
    /// result back
    #[arg(long, global = true, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub no_git: Option<PathBuf>,

    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, clap::Subcommand)]
pub enum Action {
    Start(Start),
    Finish(Finish),
    Show(Show),
    Diff(Diff),
    Compare(Compare),
    Present(Present),
    Merge(Merge),
    Attempt(Attempt),
    #[command(aliases = ["end"])]
    Clean(Clean),
}

/// Begin a round: a fresh fork on a fresh branch for each agent
///
/// Everybody must have finished the round before. Each agent's branch of that stays for the others to read, and the one of the round
/// before that goes. Interrupted, the same command does the rest.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine round start --agents planner,coder,tester
  tine round start --from-agent coder             the next round, from what coder has finished
  tine round start --round 2                      the same, given twice, is one round
  tine round start --agents a,b --no-branch       layers alone, nothing in refs
  tine round start --agents a,b --no-git notes    a directory without git")]
pub struct Start {
    /// The agents, in their order [default: those of the round before]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub agents: Vec<ForkName>,

    /// What others are to know them by, one for each agent [default: the branch's suffix]
    #[arg(long, value_name = "X,Y", value_delimiter = ',')]
    pub labels: Vec<ForkName>,

    /// The revision to begin at [default: HEAD]
    #[arg(long, value_name = "REV")]
    pub from: Option<String>,

    /// Begin at what an agent has finished
    #[arg(long, value_name = "A", conflicts_with = "from")]
    pub from_agent: Option<ForkName>,

    /// The number of the round: where it is under way already it is told, and no other is begun
    #[arg(long, value_name = "N")]
    pub round: Option<u64>,

    /// No branches: HEAD is detached, `finish` commits nothing
    #[arg(long)]
    pub no_branch: bool,

    /// The name of the scratch directory in each fork [default: .scratch]
    #[arg(long, value_name = "NAME")]
    pub scratch: Option<String>,

    /// How many verification attempts each agent may make in a round
    #[arg(long, value_name = "N")]
    pub budget: Option<u64>,
}

/// Finish the round of an agent, or of all
///
/// The fork is unmounted, its scratch directory archived. What is uncommitted becomes the commit `[round N] auto-commit`, the branch stays. Repeated, it does what is left. Without git the
/// result goes back to the directory: the presenter's, else what was merged, else the only agent's.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine round finish
  tine round finish --agent coder --label alpha")]
pub struct Finish {
    /// The agent, or the presenter [default: all]
    #[arg(long, value_name = "A")]
    pub agent: Option<ForkName>,

    /// What others are to know it by [default: the branch's suffix]
    #[arg(long, value_name = "LABEL", requires = "agent")]
    pub label: Option<ForkName>,

    /// Cut off programs that use the forks
    #[arg(long)]
    pub force: bool,
}

/// Show the books, or what one agent may know
///
/// With --for: the agent's own branch, and what the others have finished last under their labels. Neither names of agents are in it
/// nor the reader's own label.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine round show
  tine round show --for coder --json
  tine round show --for coder --prompt")]
pub struct Show {
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
pub struct Diff {
    /// The agent whose work it leads from
    #[arg(value_name = "A")]
    pub a: ForkName,

    /// The agent whose work it leads to
    #[arg(value_name = "B")]
    pub b: ForkName,

    #[command(flatten)]
    pub form: FormArgs,
}

/// Set all agents' work against each other: sizes, overlaps, conflicts
///
/// What is not committed counts. Nothing is changed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine round compare
  tine round compare --agents planner,coder --json")]
pub struct Compare {
    /// Only these
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub agents: Vec<ForkName>,
}

/// Make a fork of the winner's work, under a name of its own
///
/// The fork and its branch (tine/NAME) bear the label; its path is printed. It goes with the session.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  cd \"$(tine round present --winner coder)\"
  tine round present --winner coder --label release")]
pub struct Present {
    /// Whose work it is
    #[arg(long, value_name = "A")]
    pub winner: ForkName,

    /// The fork's name
    #[arg(long, value_name = "NAME", default_value = "presenter")]
    pub label: ForkName,
}

/// Merge the work of several agents, one after another
///
/// As `tine merge` does it. With a resolver and --auto-commit it goes on with the next agent when the conflicts of one are resolved.
/// Agents must have finished the round.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine round merge --into main
  tine round merge --agents coder,tester --into main --dry-run
  tine round merge --into main --resolver scripts/resolvers/model --auto-commit")]
pub struct Merge {
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

/// Count a verification attempt of an agent
///
/// Past the budget it is refused, with exit code 9. Each round counts anew; the budget stays until another is named. `tine exec
/// --attempt` counts before it runs a command.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine round attempt --agent coder --budget 3
  tine exec \"$TINE_FORK\" --attempt -- make test")]
pub struct Attempt {
    /// The agent
    #[arg(long, value_name = "A")]
    pub agent: ForkName,

    /// How many it may make in a round
    #[arg(long, value_name = "N")]
    pub budget: Option<u64>,
}

/// End a session: its forks and branches go
///
/// What is merged nowhere, or not committed, is named, and nothing is changed; --force lets it go. Archived scratch stays.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine round clean
  tine round clean --force --archives")]
pub struct Clean {
    /// Let go of what is merged nowhere, and cut off programs that use the forks
    #[arg(long)]
    pub force: bool,

    /// Remove archived scratch, too
    #[arg(long)]
    pub archives: bool,
}
