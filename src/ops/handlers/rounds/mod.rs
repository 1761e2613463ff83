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

use std::sync::Arc;

use crate::failure::{ErrorCode, Failure};
use crate::protocol::{Answer, Response, RoundAnswer, RoundRequest};
use crate::slots::Daemon;
use tine_change::round::{RoundRecord, Seat, SeatState};
use tine_git::ObjectId;
use tine_path::EntryName;
use tine_sys::process::PeerCredentials;
use tine_workspace::ForkName;

/// Answers a request about rounds.
pub fn answer(daemon: &Arc<Daemon>, peer: PeerCredentials, request: RoundRequest) -> Response {
    let _rounds = daemon.rounds.lock();
    daemon.refuse_if_stopping()?;
    let answer = match request {
        RoundRequest::Start(request) => RoundAnswer::Session(starting::start(daemon, peer, &request)?),
        RoundRequest::Finish(request) => RoundAnswer::Finished(finishing::finish(daemon, peer, &request)?),
        RoundRequest::Show {
            session,
            reader: None,
        } => RoundAnswer::Session(looking::show(daemon, &session)?),
        RoundRequest::Show {
            session,
            reader: Some(reader),
        } => RoundAnswer::Reader(looking::show_to(daemon, &session, &reader)?),
        RoundRequest::Sessions => RoundAnswer::Sessions {
            sessions: looking::sessions(daemon)?,
        },
        RoundRequest::Results {
            session,
            agents,
            finished,
        } => RoundAnswer::Results {
            results: looking::results(daemon, &session, &agents, finished)?,
        },
        RoundRequest::Compare { session, agents } => {
            RoundAnswer::Compared(looking::compare(daemon, &session, &agents)?)
        }
        RoundRequest::Present(request) => {
            RoundAnswer::Presented(presenting::present(daemon, peer, &request)?)
        }
        RoundRequest::Attempt { of, budget } => {
            RoundAnswer::Attempt(presenting::attempt(daemon, &of, budget)?)
        }
        RoundRequest::Clean(request) => RoundAnswer::Cleaned(ending::clean(daemon, &request)?),
    };
    Ok(Answer::Round(Box::new(answer)))
}

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
