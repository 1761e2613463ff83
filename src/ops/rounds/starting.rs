//! Starts a round: saves the whole plan first, then makes each fork.
//!
//! If a step fails, the round is removed again. If the daemon dies, the same command continues it.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::{
    StartRound, ending, reading, recorded_commit, refuse_unless_finished, scratch_name, session_of,
    wrong_state,
};
use crate::failure::{ErrorCode, Failure};
use crate::making::{self, NewOptions};
use crate::operation::Call;
use crate::protocol::SessionShown;
use crate::state::slots::Daemon;
use crate::state::taking;
use crate::{New, deleting, mounting};
use tine_attr::Timestamp;
use tine_change::round::{Mode, NextRound, RoundRecord, Seat, SeatState, Stage, repeated};
use tine_change::scratch;
use tine_git::Repository;
use tine_path::{EntryName, RepoPath};
use tine_store::{ForkName, MountRequest, StoreError};
use tine_workspace::Actor;

/// Default name of scratch directories.
const SCRATCH: &str = ".scratch";

pub(super) fn start(call: &Call<'_>, request: &StartRound) -> Result<SessionShown, Failure> {
    let daemon = call.daemon;
    let repository = daemon.repository_now()?;
    let known = RoundRecord::find(&daemon.store, &session_of(request.session.as_ref())?)?;
    let mut record = match &known {
        Some(record) if record.stage == Stage::Cleaning => {
            return Err(wrong_state(format!(
                "the session {} is being cleaned away",
                record.session
            ))
            .hint("`tine round clean`, given again, does the rest"));
        }
        Some(record) if request.round == Some(record.round) && record.stage == Stage::Open => {
            return reading::shown(daemon, &repository, record);
        }
        Some(record) if record.stage == Stage::Starting => {
            refuse_another(record, request)?;
            ending::release_stale_locks(&repository, record)?;
            record.clone()
        }
        _ => planned(call, &repository, known.clone(), request)?,
    };
    let is_new = known
        .as_ref()
        .is_none_or(|known| known.stage == Stage::Open);
    for seat in record
        .agents
        .iter()
        .filter_map(|agent| agent.outgoing.as_ref())
    {
        deleting::refuse_repositories_in(daemon, &seat.fork)?;
    }
    record.save(&daemon.store)?;
    if let Err(failure) = begin(call, &repository, &mut record) {
        return Err(if is_new {
            take_back(daemon, &repository, &record, known, failure)
        } else {
            failure
        });
    }
    let mut stays = Vec::new();
    for agent in record.agents.clone() {
        if let Some(seat) = &agent.outgoing {
            stays.extend(ending::retire(
                daemon,
                &repository,
                &mut record,
                &agent.name,
                seat,
            )?);
        }
    }
    record.opened();
    record.save(&daemon.store)?;
    log::info!("round {} of {} is begun", record.round, record.session);
    let shown = reading::shown(daemon, &repository, &record)?;
    Ok(SessionShown { stays, ..shown })
}

/// Fails if the request differs from the interrupted start that it continues.
fn refuse_another(record: &RoundRecord, request: &StartRound) -> Result<(), Failure> {
    let seated: Vec<&ForkName> = record.seated().map(|(agent, _)| &agent.name).collect();
    let is_other = !request.agents.is_empty()
        && request.agents.iter().collect::<Vec<_>>() != seated
        || request.round.is_some_and(|round| round != record.round);
    if is_other {
        Err(wrong_state(format!("round {} was not begun to its end", record.round))
            .hint("`tine round start` with the same agents does the rest; `tine round clean` lets go of it"))
    } else {
        Ok(())
    }
}

/// Returns the record of the session with the next round planned.
fn planned(
    call: &Call<'_>,
    repository: &Repository,
    known: Option<RoundRecord>,
    request: &StartRound,
) -> Result<RoundRecord, Failure> {
    let mut record = match known {
        Some(record) => {
            refuse_other_settings(&record, request)?;
            record
        }
        None => {
            let name = request
                .scratch
                .clone()
                .unwrap_or_else(|| SCRATCH.to_owned());
            check_scratch_name(&name)?;
            let mode = request.mode().unwrap_or_default();
            let session = session_of(request.session.as_ref())?;
            let mut record = RoundRecord::new(session, mode, name, Timestamp::now().secs);
            record.directory = request.directory.clone();
            record
        }
    };
    for (agent, seat) in record.seated() {
        refuse_unless_finished(&agent.name, seat)?;
    }
    let next = next_round(call, repository, &record, request)?;
    if record.directory.is_some() && record.written_commit.is_none() {
        record.written_commit = Some(next.base_commit.clone());
    }
    let base = recorded_commit(&record, &next.base_commit)?;
    let tree_id = repository.commit_info(base)?.tree_id;
    let scratch = RepoPath::root().join(&scratch_name(&record)?);
    if repository.tree_entry(tree_id, &scratch)?.is_some() {
        return Err(usage(
            format!(
                "{:?} is tracked, so it cannot be a scratch directory",
                record.scratch
            ),
            "`--scratch NAME` names another",
        ));
    }
    record.plan(&next, &mut || free_name(call.daemon, repository))?;
    Ok(record)
}

/// Decides the next round's starting point and agents.
fn next_round(
    call: &Call<'_>,
    repository: &Repository,
    record: &RoundRecord,
    request: &StartRound,
) -> Result<NextRound, Failure> {
    let agents: Vec<ForkName> = if request.agents.is_empty() {
        record
            .seated()
            .map(|(agent, _)| agent.name.clone())
            .collect()
    } else {
        request.agents.clone()
    };
    if agents.is_empty() {
        return Err(usage(
            "no agent is named",
            "name some: `tine round start --agents A,B`",
        ));
    }
    if let Some(twice) = repeated(&agents).or_else(|| repeated(&request.labels)) {
        return Err(usage(
            format!("{twice} is named twice"),
            "each name means one agent",
        ));
    }
    if !request.labels.is_empty() && request.labels.len() != agents.len() {
        return Err(usage(
            format!(
                "{} agents have {} labels",
                agents.len(),
                request.labels.len()
            ),
            "`--labels` names one for each agent, in their order",
        ));
    }
    if let Some(presenter) = &record.presenter
        && (agents.contains(presenter.label()) || request.labels.contains(presenter.label()))
    {
        return Err(usage(
            format!("{} is the presenter", presenter.label()),
            "choose another name for the agent, or its label",
        ));
    }
    let git_dir = call.git_dir()?;
    let (base, from_branch, from_fork) = match &request.from_agent {
        Some(agent) => {
            let seat = record.seat(agent)?;
            refuse_unless_finished(agent, seat)?;
            let base = match &seat.branch {
                Some(branch) => {
                    repository.resolve_commit(git_dir, &format!("refs/heads/{branch}"))?
                }
                None => recorded_commit(record, &seat.base_commit)?,
            };
            let fork = (record.mode == Mode::Layers).then(|| seat.fork.clone());
            (base, record.from_branch.clone(), fork)
        }
        None => {
            let word = request.from.as_deref().unwrap_or("HEAD");
            taking::bring_named(call.daemon, word);
            let mut base = repository.resolve_commit(git_dir, word)?;
            if let (None, Some(written)) = (&request.from, &record.written_commit) {
                // The commit last written to the directory need not be merged.
                let written = recorded_commit(record, written)?;
                if !repository.is_ancestor(written, base)? {
                    base = written;
                }
            }
            (base, branch_called(repository, git_dir, word)?, None)
        }
    };
    let mut labels = request.labels.iter().cloned();
    Ok(NextRound {
        agents: agents
            .into_iter()
            .map(|agent| (agent, labels.next()))
            .collect(),
        base_commit: base.to_string(),
        from_branch,
        from_fork,
        budget: request.budget,
    })
}

/// Returns the branch that `word` names, if it names one.
fn branch_called(
    repository: &Repository,
    git_dir: &Path,
    word: &str,
) -> Result<Option<String>, Failure> {
    if matches!(word, "HEAD" | "@") {
        let head = repository.head_of(git_dir)?;
        return Ok(head.short_branch().map(str::to_owned));
    }
    let name = word.strip_prefix("refs/heads/").unwrap_or(word);
    let is_branch =
        repository.check_branch_name(name).is_ok() && repository.branch(name)?.is_some();
    Ok(is_branch.then(|| name.to_owned()))
}

/// Fails if the request differs from settings that the first round fixed.
fn refuse_other_settings(record: &RoundRecord, request: &StartRound) -> Result<(), Failure> {
    let is_other = request.mode().is_some_and(|mode| mode != record.mode)
        || request
            .scratch
            .as_ref()
            .is_some_and(|name| *name != record.scratch);
    if is_other {
        Err(usage(
            format!("the session {} was begun in another way", record.session),
            "`--no-branch` and `--scratch` are for its first round; `--session` names another session",
        ))
    } else {
        Ok(())
    }
}

fn check_scratch_name(name: &str) -> Result<(), Failure> {
    let is_plain = name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    let is_dot_git = EntryName::new(name).is_ok_and(|name| name.is_dot_git());
    let is_name = EntryName::new(name).is_ok() && name.len() <= 64;
    if is_plain && is_name && !is_dot_git {
        Ok(())
    } else {
        Err(usage(
            format!("{name:?} is not a valid name for a scratch directory"),
            "take letters, digits, '.', '_' and '-', as in `.scratch`",
        ))
    }
}

fn usage(message: impl Into<String>, hint: &str) -> Failure {
    Failure::new(ErrorCode::Usage, message).hint(hint)
}

/// Returns a random name that no fork and no branch has.
fn free_name(daemon: &Daemon, repository: &Repository) -> Result<ForkName, StoreError> {
    loop {
        let mut bytes = [0; 4];
        let source = Path::new("/dev/urandom");
        File::open(source)
            .and_then(|mut random| random.read_exact(&mut bytes))
            .map_err(StoreError::io("read", source))?;
        let name = ForkName::parse(&format!("{:08x}", u32::from_ne_bytes(bytes)))?;
        let has_fork = !matches!(daemon.store.record(&name), Err(StoreError::NoSuchFork(_)));
        if !has_fork && repository.branch(&format!("tine/{name}"))?.is_none() {
            return Ok(name);
        }
    }
}

/// Makes the planned seats of the record.
fn begin(
    call: &Call<'_>,
    repository: &Repository,
    record: &mut RoundRecord,
) -> Result<(), Failure> {
    let _daemon = call.daemon;
    // Before there is a fork whose `git status` would show the scratch directory.
    repository.exclude_at_top(&record.scratch)?;
    let agents: Vec<ForkName> = record
        .seated()
        .map(|(agent, _)| agent.name.clone())
        .collect();
    for name in &agents {
        let seat = record.seat(name)?.clone();
        if seat.state == SeatState::Planned {
            make(call, record, &seat)?;
            record.seat_mut(name)?.state = SeatState::Open;
        }
    }
    Ok(())
}

/// Makes a seat's fork and mounts it; skips the parts that exist.
pub(super) fn make(call: &Call<'_>, record: &RoundRecord, seat: &Seat) -> Result<(), Failure> {
    let (daemon, owner) = (call.daemon, call.owner());
    if let Err(StoreError::NoSuchFork(_)) = daemon.store.record(&seat.fork) {
        let from_fork = record.from_fork.as_ref().map(ForkName::to_string);
        let new = New {
            no_mount: true,
            detached: seat.branch.is_none(),
            options: NewOptions {
                from: from_fork.is_none().then(|| seat.base_commit.clone()),
                from_fork,
                branch: seat.branch.clone(),
                ..NewOptions::default()
            },
            ..New::of(seat.fork.clone())
        };
        making::make(daemon, owner, call.git_dir()?, new, None)?;
    }
    let slot = daemon.slot(&seat.fork);
    {
        let guard = daemon.lock_fork(&slot)?;
        // All seats start at the same commit; this is the name of the branch that it came from.
        let fork = guard.update_record(|fork| fork.from_branch = record.from_branch.clone())?;
        let by = Actor {
            caller: owner,
            command: "tine round start",
        };
        // After the mount the scratch directory is the agent's, so an interrupted start must not
        // touch it.
        if !fork.mounted {
            scratch::make(&guard.open()?.workspace, by, &scratch_name(record)?)?;
        }
    }
    mounting::mount(daemon, &seat.fork, None, MountRequest::default(), None)?;
    Ok(())
}

/// Removes a round that could not be made.
///
/// Returns `failure`, with the names of what is left if the removal fails.
fn take_back(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    record: &RoundRecord,
    known: Option<RoundRecord>,
    failure: Failure,
) -> Failure {
    let undone = || -> Result<(), Failure> {
        for (_, seat) in record.seated() {
            ending::discard(daemon, repository, seat, ("tine round start", true))?;
        }
        match known {
            Some(mut known) => known.save(&daemon.store)?,
            None => {
                record.remove(&daemon.store)?;
                ending::include_again(daemon, repository, &record.scratch)?;
            }
        }
        Ok(())
    };
    let Err(stuck) = undone() else {
        return failure;
    };
    let (round, session) = (record.round, &record.session);
    log::error!("round {round} of {session} could not be taken back: {stuck}");
    let left = record.seated().map(|(_, seat)| seat.fork.to_string());
    let left: Vec<String> = left.collect();
    failure
        .cause(format!(
            "what was made of round {round} of {session} may still be there ({}): {}",
            left.join(", "),
            stuck.message
        ))
        .hint(format!(
            "`tine round clean --session {session}` lets go of it; the same `tine round start` goes on with it"
        ))
}
