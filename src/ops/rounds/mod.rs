//! Operations on rounds and sessions.
//!
//! A session uses plain forks and branches; this module keeps the session's record.
//!
//! | module | what it does |
//! |---|---|
//! | `starting` | starts a round, and continues an interrupted start |
//! | `finishing` | commits, archives and unmounts; writes a result to a directory without git |
//! | `reading` | reads sessions and results, for the orchestrator and for an agent |
//! | `presenting` | makes the presenter's fork, and counts attempts |
//! | `ending` | deletes seats and sessions |

mod ending;
mod finishing;
mod presenting;
mod reading;
mod starting;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation};
use crate::protocol::{
    AttemptCounted, ReaderShown, Results, RoundCompared, RoundFinished, RoundPresented,
    RoundsCleaned, SessionShown, Sessions,
};
use tine_change::round::{Mode, RoundRecord, Seat, SeatState};
use tine_git::ObjectId;
use tine_path::EntryName;
use tine_path::text::optional_host_path;
use tine_store::ForkName;
use tine_sys::ranked::RankedGuard;

/// Begin a round: a fresh fork on a fresh branch for each agent
///
/// Everybody must have finished the round before. Each agent's branch of that stays for the others
/// to read, and the one of the round before that goes. Interrupted, the same command does the rest.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine round start --agents planner,coder,tester
  tine round start --from-agent coder             the next round, from what coder has finished
  tine round start --round 2                      the same, given twice, is one round
  tine round start --agents a,b --no-branch       layers alone, nothing in refs
  tine round start --agents a,b --no-git notes    a directory without git")]
pub struct StartRound {
    /// Name of the session; `None` is `default`.
    #[arg(skip)]
    #[serde(default)]
    pub session: Option<ForkName>,

    /// The agents, in their order [default: those of the round before]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    #[serde(default)]
    pub agents: Vec<ForkName>,

    /// What others are to know them by, one for each agent [default: the branch's suffix]
    #[arg(long, value_name = "X,Y", value_delimiter = ',')]
    #[serde(default)]
    pub labels: Vec<ForkName>,

    /// The revision to begin at [default: HEAD]
    #[arg(long, value_name = "REV")]
    #[serde(default)]
    pub from: Option<String>,

    /// Begin at what an agent has finished
    #[arg(long, value_name = "A", conflicts_with = "from")]
    #[serde(default)]
    pub from_agent: Option<ForkName>,

    /// The number of the round: where it is under way already it is told, and no other is begun
    #[arg(long, value_name = "N")]
    #[serde(default)]
    pub round: Option<u64>,

    /// No branches: HEAD is detached, `finish` commits nothing
    #[arg(long)]
    #[serde(default)]
    pub no_branch: bool,

    /// The name of the scratch directory in each fork [default: .scratch]
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub scratch: Option<String>,

    /// How many verification attempts each agent may make in a round
    #[arg(long, value_name = "N")]
    #[serde(default)]
    pub budget: Option<u64>,

    /// Plain directory that the session begins as; `None` in a repository.
    #[arg(skip)]
    #[serde(with = "optional_host_path", default)]
    pub directory: Option<PathBuf>,
}

impl StartRound {
    /// Returns the kind of seats that the request asks for, if any.
    fn mode(&self) -> Option<Mode> {
        self.no_branch.then_some(Mode::Layers)
    }
}

impl Operation for StartRound {
    const NAME: &'static str = "start-round";
    const PROGRESS: &'static str = "playing the round";
    type Answer = SessionShown;

    fn run(self, call: &Call<'_>) -> Result<SessionShown, Failure> {
        let _rounds = lock(call)?;
        starting::start(call, &self)
    }
}

/// Finish the round of an agent, or of all
///
/// The fork is unmounted, its scratch directory archived. What is uncommitted becomes the commit
/// `[round N] auto-commit`, the branch stays. Repeated, it does what is left. Without git the
/// result goes back to the directory: the presenter's, else what was merged, else the only agent's.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine round finish
  tine round finish --agent coder --label alpha")]
pub struct FinishRound {
    /// Name of the session; `None` is `default`.
    #[arg(skip)]
    #[serde(default)]
    pub session: Option<ForkName>,

    /// The agent, or the presenter [default: all]
    #[arg(long, value_name = "A")]
    #[serde(default)]
    pub agent: Option<ForkName>,

    /// What others are to know it by [default: the branch's suffix]
    #[arg(long, value_name = "LABEL", requires = "agent")]
    #[serde(default)]
    pub label: Option<ForkName>,

    /// Cut off programs that use the forks
    #[arg(long)]
    #[serde(default)]
    pub force: bool,
}

impl Operation for FinishRound {
    const NAME: &'static str = "finish-round";
    const PROGRESS: &'static str = "playing the round";
    type Answer = RoundFinished;

    fn run(self, call: &Call<'_>) -> Result<RoundFinished, Failure> {
        let _rounds = lock(call)?;
        finishing::finish(call, &self)
    }
}

/// Shows a session to its orchestrator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ShowRound {
    /// Name of the session.
    pub session: ForkName,
}

impl Operation for ShowRound {
    const NAME: &'static str = "round";
    const PROGRESS: &'static str = "playing the round";
    type Answer = SessionShown;

    fn run(self, call: &Call<'_>) -> Result<SessionShown, Failure> {
        let _rounds = lock(call)?;
        reading::show(call.daemon, &self.session)
    }
}

/// Shows a session to one agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ShowRoundTo {
    /// Name of the session.
    pub session: ForkName,
    /// Agent that asks.
    pub reader: ForkName,
}

impl Operation for ShowRoundTo {
    const NAME: &'static str = "round-of";
    const PROGRESS: &'static str = "playing the round";
    type Answer = ReaderShown;

    fn run(self, call: &Call<'_>) -> Result<ReaderShown, Failure> {
        let _rounds = lock(call)?;
        reading::show_to(call.daemon, &self.session, &self.reader)
    }
}

/// Lists all sessions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListSessions {}

impl Operation for ListSessions {
    const NAME: &'static str = "sessions";
    const PROGRESS: &'static str = "playing the round";
    type Answer = Sessions;

    fn run(self, call: &Call<'_>) -> Result<Sessions, Failure> {
        let _rounds = lock(call)?;
        let sessions = reading::sessions(call.daemon)?;
        Ok(Sessions { sessions })
    }
}

/// Reads the results of agents.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadResults {
    /// Name of the session.
    pub session: ForkName,
    /// Agents to read the results of; all if empty.
    pub agents: Vec<ForkName>,
    /// True to fail if one of them has not finished the round.
    pub finished: bool,
}

impl Operation for ReadResults {
    const NAME: &'static str = "results";
    const PROGRESS: &'static str = "playing the round";
    type Answer = Results;

    fn run(self, call: &Call<'_>) -> Result<Results, Failure> {
        let _rounds = lock(call)?;
        let results = reading::results(call.daemon, &self.session, &self.agents, self.finished)?;
        Ok(Results { results })
    }
}

/// Set all agents' work against each other: sizes, overlaps, conflicts
///
/// What is not committed counts. Nothing is changed.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine round compare
  tine round compare --agents planner,coder --json")]
pub struct CompareRound {
    /// Name of the session; `None` is `default`.
    #[arg(skip)]
    #[serde(default)]
    pub session: Option<ForkName>,

    /// Only these
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    #[serde(default)]
    pub agents: Vec<ForkName>,
}

impl Operation for CompareRound {
    const NAME: &'static str = "compare-round";
    const PROGRESS: &'static str = "playing the round";
    type Answer = RoundCompared;

    fn run(self, call: &Call<'_>) -> Result<RoundCompared, Failure> {
        let _rounds = lock(call)?;
        reading::compare(
            call.daemon,
            &session_of(self.session.as_ref())?,
            &self.agents,
        )
    }
}

/// Make a fork of the winner's work, under a name of its own
///
/// The fork and its branch (tine/NAME) bear the label; its path is printed. It goes with the
/// session.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  cd \"$(tine round present --winner coder)\"
  tine round present --winner coder --label release")]
pub struct PresentRound {
    /// Name of the session; `None` is `default`.
    #[arg(skip)]
    #[serde(default)]
    pub session: Option<ForkName>,

    /// Whose work it is
    #[arg(long, value_name = "A")]
    pub winner: ForkName,

    /// The fork's name
    #[arg(long, value_name = "NAME", default_value = "presenter")]
    pub label: ForkName,
}

impl Operation for PresentRound {
    const NAME: &'static str = "present-round";
    const PROGRESS: &'static str = "playing the round";
    type Answer = RoundPresented;

    fn run(self, call: &Call<'_>) -> Result<RoundPresented, Failure> {
        let _rounds = lock(call)?;
        presenting::present(call, &self)
    }
}

/// Count a verification attempt of an agent
///
/// Past the budget it is refused, with exit code 9. Each round counts from zero; the budget stays
/// until another is named. `tine exec --attempt` counts before it runs a command.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine round attempt --agent coder --budget 3
  tine exec \"$TINE_FORK\" --attempt -- make test")]
pub struct CountAttempt {
    /// Name of the session; `None` is `default`.
    #[arg(skip)]
    #[serde(default)]
    pub session: Option<ForkName>,

    /// The agent
    #[arg(long, value_name = "A")]
    pub agent: ForkName,

    /// How many it may make in a round
    #[arg(long, value_name = "N")]
    #[serde(default)]
    pub budget: Option<u64>,
}

impl Operation for CountAttempt {
    const NAME: &'static str = "attempt";
    const PROGRESS: &'static str = "playing the round";
    type Answer = AttemptCounted;

    fn run(self, call: &Call<'_>) -> Result<AttemptCounted, Failure> {
        let _rounds = lock(call)?;
        let record = RoundRecord::load(&call.daemon.store, &session_of(self.session.as_ref())?)?;
        presenting::attempt(call.daemon, record, &self.agent, self.budget)
    }
}

/// Counts an attempt of the agent that has a fork.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CountAttemptIn {
    /// Fork of the agent.
    pub fork: ForkName,
}

impl Operation for CountAttemptIn {
    const NAME: &'static str = "attempt-in";
    const PROGRESS: &'static str = "playing the round";
    type Answer = AttemptCounted;

    fn run(self, call: &Call<'_>) -> Result<AttemptCounted, Failure> {
        let _rounds = lock(call)?;
        let (record, agent) = presenting::agent_of_fork(call.daemon, &self.fork)?;
        presenting::attempt(call.daemon, record, &agent, None)
    }
}

/// End a session: its forks and branches go
///
/// What is merged nowhere, or not committed, is named, and nothing is changed; --force lets it go.
/// Archived scratch stays.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine round clean
  tine round clean --force --archives")]
pub struct CleanRounds {
    /// Name of the session; `None` is `default`.
    #[arg(skip)]
    #[serde(default)]
    pub session: Option<ForkName>,

    /// Let go of what is merged nowhere, and cut off programs that use the forks
    #[arg(long)]
    #[serde(default)]
    pub force: bool,

    /// Remove archived scratch, too
    #[arg(long)]
    #[serde(default)]
    pub archives: bool,
}

impl Operation for CleanRounds {
    const NAME: &'static str = "clean-rounds";
    const PROGRESS: &'static str = "playing the round";
    type Answer = RoundsCleaned;

    fn run(self, call: &Call<'_>) -> Result<RoundsCleaned, Failure> {
        let _rounds = lock(call)?;
        ending::clean(call.daemon, &self)
    }
}

/// Returns the named session, or `default`.
fn session_of(named: Option<&ForkName>) -> Result<ForkName, Failure> {
    match named {
        Some(session) => Ok(session.clone()),
        None => Ok(ForkName::parse("default")?),
    }
}

/// Makes the failure of a step in the wrong state.
fn wrong_state(message: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::RoundState, message)
        .hint("`tine round show` says how the session stands")
}

/// Fails unless the session is open: neither starting nor being cleaned.
fn refuse_unless_open(record: &RoundRecord) -> Result<(), Failure> {
    use tine_change::round::Stage;
    match record.stage {
        Stage::Open => Ok(()),
        Stage::Starting => Err(wrong_state(format!(
            "round {} was not begun to its end",
            record.round
        ))
        .hint("`tine round start`, given again, does the rest")),
        Stage::Cleaning => Err(wrong_state(format!(
            "the session {} is being cleaned away",
            record.session
        ))
        .hint("`tine round clean`, given again, does the rest")),
    }
}

/// Locks out all other steps of rounds while the guard lives.
fn lock<'c>(call: &Call<'c>) -> Result<RankedGuard<'c, ()>, Failure> {
    let rounds = call.daemon.rounds.lock();
    call.daemon.refuse_if_stopping()?;
    Ok(rounds)
}

/// Fails unless the agent has finished the round.
fn refuse_unless_finished(name: &ForkName, seat: &Seat) -> Result<(), Failure> {
    match seat.state {
        SeatState::Finished => Ok(()),
        _ => Err(
            wrong_state(format!("{name} has not finished round {}", seat.round))
                .hint(format!("`tine round finish --agent {name}` finishes it")),
        ),
    }
}

/// Parses a commit id of the session's record.
fn recorded_commit(record: &RoundRecord, hex: &str) -> Result<ObjectId, Failure> {
    ObjectId::from_hex(hex.as_bytes()).map_err(|error| damaged(record, error.to_string()))
}

fn scratch_name(record: &RoundRecord) -> Result<EntryName, Failure> {
    EntryName::new(&record.scratch).map_err(|error| damaged(record, error.to_string()))
}

fn damaged(record: &RoundRecord, reason: String) -> Failure {
    Failure::new(
        ErrorCode::StoreDamaged,
        format!("the record of the session {} is damaged", record.session),
    )
    .cause(reason)
    .hint(
        "its forks and branches stay, as plain ones: `tine list` and `tine branch list` show them",
    )
}
