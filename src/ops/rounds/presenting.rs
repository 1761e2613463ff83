//! Makes the presenter's fork from the winner's result, and counts attempts.

use std::sync::Arc;

use super::{
    PresentRound, refuse_unless_finished, refuse_unless_open, session_of, starting, wrong_state,
};
use crate::failure::{ErrorCode, Failure};
use crate::operation::Call;
use crate::protocol::{AttemptCounted, RoundPresented};
use crate::report;
use crate::state::slots::Daemon;
use tine_change::ChangeError;
use tine_change::round::{RoundRecord, Seat, SeatState};
use tine_store::{ForkName, StoreError};

pub(super) fn present(call: &Call<'_>, request: &PresentRound) -> Result<RoundPresented, Failure> {
    let daemon = call.daemon;
    let repository = daemon.repository_now()?;
    let mut record = RoundRecord::load(&daemon.store, &session_of(request.session.as_ref())?)?;
    refuse_unless_open(&record)?;
    let label = &request.label;
    if let Some(presenter) = &record.presenter
        && presenter.label() != label
    {
        return Err(
            wrong_state(format!("{} presents already", presenter.label())).hint(format!(
                "`tine path {}` says where; `tine round clean` ends it with the session",
                presenter.fork
            )),
        );
    }
    let is_taken = record.presenter.is_none() && !record.is_label_free(label, label);
    if record.agent(label).is_ok() || is_taken {
        return Err(Failure::new(
            ErrorCode::Usage,
            format!("{label} is an agent, or its label"),
        )
        .hint("`--label NAME` names the presenter"));
    }
    let winner =
        record
            .agent(&request.winner)?
            .seat
            .clone()
            .ok_or_else(|| ChangeError::NoSuchAgent {
                session: record.session.clone(),
                agent: request.winner.clone(),
            })?;
    refuse_unless_finished(&request.winner, &winner)?;
    let base_commit = match &winner.branch {
        Some(branch) => repository
            .resolve_commit(call.git_dir()?, &format!("refs/heads/{branch}"))?
            .to_string(),
        None => winner.base_commit.clone(),
    };
    if record.presenter.is_none() {
        match daemon.store.record(label) {
            Err(StoreError::NoSuchFork(_)) => {}
            Ok(_) => return Err(StoreError::ForkExists(label.clone()).into()),
            Err(damaged) => return Err(damaged.into()),
        }
        let branch = winner.branch.is_some().then(|| format!("tine/{label}"));
        if let Some(branch) = &branch {
            repository.check_branch_is_free(branch)?;
        }
        record.presenter = Some(Seat {
            round: record.round,
            label: Some(label.clone()),
            fork: label.clone(),
            branch,
            base_commit: base_commit.clone(),
            state: SeatState::Planned,
            attempts: 0,
        });
        record.save(&daemon.store)?;
    }
    let seat = record.seat(label)?.clone();
    if seat.state == SeatState::Planned {
        let begun = RoundRecord {
            from_fork: winner.branch.is_none().then(|| winner.fork.clone()),
            ..record.clone()
        };
        if let Err(failure) = starting::make(call, &begun, &seat) {
            super::ending::discard(daemon, &repository, &seat, ("tine round present", true))?;
            record.presenter = None;
            record.save(&daemon.store)?;
            return Err(failure);
        }
        record.seat_mut(label)?.state = SeatState::Open;
        record.save(&daemon.store)?;
    }
    let fork = daemon.store.record(&seat.fork)?;
    Ok(RoundPresented {
        winner: request.winner.clone(),
        label: label.clone(),
        commit: Some(seat.base_commit),
        fork: report::fork_info(daemon, &daemon.slot(&seat.fork), &fork)?,
    })
}

pub(super) fn attempt(
    daemon: &Arc<Daemon>,
    mut record: RoundRecord,
    agent: &ForkName,
    budget: Option<u64>,
) -> Result<AttemptCounted, Failure> {
    refuse_unless_open(&record)?;
    let known = record.agent(agent)?.budget;
    let budget = budget.or(known);
    let seat = record.seat_mut(agent)?;
    // The message names the fork: the agent itself may ask, and must not learn its name.
    let fork = seat.fork.clone();
    if let Some(budget) = budget.filter(|budget| seat.attempts >= *budget) {
        return Err(Failure::new(
            ErrorCode::BudgetSpent,
            format!("{fork} has made {} of {budget} attempts", seat.attempts),
        )
        .hint("`tine round attempt --agent A --budget N` allows more"));
    }
    seat.attempts = seat.attempts.saturating_add(1);
    let (round, attempts) = (seat.round, seat.attempts);
    record.agent_mut(agent)?.budget = budget;
    record.save(&daemon.store)?;
    Ok(AttemptCounted {
        fork,
        round,
        attempts,
        budget,
    })
}

/// Returns the session and the agent that a fork belongs to.
pub(super) fn agent_of_fork(
    daemon: &Daemon,
    fork: &ForkName,
) -> Result<(RoundRecord, ForkName), Failure> {
    for record in RoundRecord::all(&daemon.store)? {
        let agent = record.seated().find(|(_, seat)| seat.fork == *fork);
        if let Some(agent) = agent.map(|(agent, _)| agent.name.clone()) {
            return Ok((record, agent));
        }
    }
    Err(Failure::new(
        ErrorCode::NoSuchAgent,
        format!("{fork} is not an agent's fork"),
    )
    .hint("`tine round show` lists the agents and their forks"))
}
