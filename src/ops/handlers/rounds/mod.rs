//! Rounds: sessions begun, looked at, finished and cleaned away. Every step is made of what there is for plain forks and branches;
//! what is kept here are the books.
//!
//! | module | what it does |
//! |---|---|
//! | `starting` | begins a round, and goes on where that was interrupted |
//! | `finishing` | commits, archives and unmounts; brings a result back to a directory without git |
//! | `looking` | what is told of sessions and results, to the orchestrator and to an agent |
//! | `presenting` | the presenter's fork, and attempts |
//! | `ending` | lets go of seats, and of sessions |

mod ending;
mod finishing;
mod looking;
mod presenting;
mod starting;

use serde::{Deserialize, Serialize};

use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation};
use crate::protocol::{
    AttemptCounted, AttemptOf, CleanRounds, FinishRound, PresentRound, ReaderShown, Results, RoundCompared,
    RoundFinished, RoundPresented, RoundsCleaned, SessionShown, Sessions, StartRound,
};
use tine_change::round::{RoundRecord, Seat, SeatState};
use tine_git::ObjectId;
use tine_path::EntryName;
use tine_workspace::ForkName;

impl Operation for StartRound {
    const NAME: &'static str = "start-round";
    const DOING: &'static str = "playing the round";
    type Answer = SessionShown;

    fn run(self, call: &Call<'_>) -> Result<SessionShown, Failure> {
        let _rounds = call.daemon.rounds.lock();
        call.daemon.refuse_if_stopping()?;
        starting::start(call.daemon, call.peer, &self)
    }
}

impl Operation for FinishRound {
    const NAME: &'static str = "finish-round";
    const DOING: &'static str = "playing the round";
    type Answer = RoundFinished;

    fn run(self, call: &Call<'_>) -> Result<RoundFinished, Failure> {
        let _rounds = call.daemon.rounds.lock();
        call.daemon.refuse_if_stopping()?;
        finishing::finish(call, &self)
    }
}

/// A session as its orchestrator sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ShowRound {
    pub session: ForkName,
}

impl Operation for ShowRound {
    const NAME: &'static str = "round";
    const DOING: &'static str = "playing the round";
    type Answer = SessionShown;

    fn run(self, call: &Call<'_>) -> Result<SessionShown, Failure> {
        let _rounds = call.daemon.rounds.lock();
        call.daemon.refuse_if_stopping()?;
        looking::show(call.daemon, &self.session)
    }
}

/// A session as one agent may see it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ShowRoundTo {
    pub session: ForkName,
    pub reader: ForkName,
}

impl Operation for ShowRoundTo {
    const NAME: &'static str = "round-of";
    const DOING: &'static str = "playing the round";
    type Answer = ReaderShown;

    fn run(self, call: &Call<'_>) -> Result<ReaderShown, Failure> {
        let _rounds = call.daemon.rounds.lock();
        call.daemon.refuse_if_stopping()?;
        looking::show_to(call.daemon, &self.session, &self.reader)
    }
}

/// All sessions, in a few words each.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListSessions {}

impl Operation for ListSessions {
    const NAME: &'static str = "sessions";
    const DOING: &'static str = "playing the round";
    type Answer = Sessions;

    fn run(self, call: &Call<'_>) -> Result<Sessions, Failure> {
        let _rounds = call.daemon.rounds.lock();
        call.daemon.refuse_if_stopping()?;
        let sessions = looking::sessions(call.daemon)?;
        Ok(Sessions { sessions })
    }
}

/// What agents have.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadResults {
    pub session: ForkName,
    /// All where none is named.
    pub agents: Vec<ForkName>,
    /// Refused where one has not finished.
    pub finished: bool,
}

impl Operation for ReadResults {
    const NAME: &'static str = "results";
    const DOING: &'static str = "playing the round";
    type Answer = Results;

    fn run(self, call: &Call<'_>) -> Result<Results, Failure> {
        let _rounds = call.daemon.rounds.lock();
        call.daemon.refuse_if_stopping()?;
        let results = looking::results(call.daemon, &self.session, &self.agents, self.finished)?;
        Ok(Results { results })
    }
}

/// What agents have, each compared with each.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CompareRound {
    pub session: ForkName,
    /// All where none is named.
    pub agents: Vec<ForkName>,
}

impl Operation for CompareRound {
    const NAME: &'static str = "compare-round";
    const DOING: &'static str = "playing the round";
    type Answer = RoundCompared;

    fn run(self, call: &Call<'_>) -> Result<RoundCompared, Failure> {
        let _rounds = call.daemon.rounds.lock();
        call.daemon.refuse_if_stopping()?;
        looking::compare(call.daemon, &self.session, &self.agents)
    }
}

impl Operation for PresentRound {
    const NAME: &'static str = "present-round";
    const DOING: &'static str = "playing the round";
    type Answer = RoundPresented;

    fn run(self, call: &Call<'_>) -> Result<RoundPresented, Failure> {
        let _rounds = call.daemon.rounds.lock();
        call.daemon.refuse_if_stopping()?;
        presenting::present(call.daemon, call.peer, &self)
    }
}

/// Counts an attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CountAttempt {
    pub of: AttemptOf,
    /// Replaces the budget.
    pub budget: Option<u64>,
}

impl Operation for CountAttempt {
    const NAME: &'static str = "attempt";
    const DOING: &'static str = "playing the round";
    type Answer = AttemptCounted;

    fn run(self, call: &Call<'_>) -> Result<AttemptCounted, Failure> {
        let _rounds = call.daemon.rounds.lock();
        call.daemon.refuse_if_stopping()?;
        presenting::attempt(call.daemon, &self.of, self.budget)
    }
}

impl Operation for CleanRounds {
    const NAME: &'static str = "clean-rounds";
    const DOING: &'static str = "playing the round";
    type Answer = RoundsCleaned;

    fn run(self, call: &Call<'_>) -> Result<RoundsCleaned, Failure> {
        let _rounds = call.daemon.rounds.lock();
        call.daemon.refuse_if_stopping()?;
        ending::clean(call.daemon, &self)
    }
}

/// Answers a request about rounds.
/// A round that is at another step.
fn state(message: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::RoundState, message).hint("`tine round show` says how the session stands")
}

/// Fails unless the session can be worked in.
fn refuse_unless_open(record: &RoundRecord) -> Result<(), Failure> {
    use tine_change::round::Stage;
    match record.stage {
        Stage::Open => Ok(()),
        Stage::Starting => Err(state(format!("round {} was not begun to its end", record.round))
            .hint("`tine round start`, given again, does the rest")),
        Stage::Cleaning => Err(
            state(format!("the session {} is being cleaned away", record.session))
                .hint("`tine round clean`, given again, does the rest"),
        ),
    }
}

/// Fails unless the agent has finished the round.
fn refuse_unless_finished(name: &ForkName, seat: &Seat) -> Result<(), Failure> {
    match seat.state {
        SeatState::Finished => Ok(()),
        _ => Err(state(format!("{name} has not finished round {}", seat.round))
            .hint(format!("`tine round finish --agent {name}` finishes it"))),
    }
}

/// A commit as the books have it.
fn commit_in_books(record: &RoundRecord, hex: &str) -> Result<ObjectId, Failure> {
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
    .hint("its forks and branches stay, as plain ones: `tine list` and `tine branch list` show them")
}
