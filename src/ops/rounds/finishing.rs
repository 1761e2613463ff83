//! Finishes a round: commits, archives the scratch directory, unmounts.
//!
//! Each step detects whether it was done already, so the whole can be repeated.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{
    FinishRound, reading, recorded_commit, refuse_unless_open, scratch_name, session_of,
    wrong_state,
};
use crate::failure::{ErrorCode, Failure};
use crate::mounting;
use crate::operation::Call;
use crate::protocol::{DirectoryWritten, FinishedSeat, RoundFinished, UnmountAction};
use crate::state::slots::Daemon;
use tine_change::round::{self, ArchiveRecord, Mode, RoundRecord, Seat, SeatState};
use tine_change::{scratch, write_back};
use tine_git::Repository;
use tine_path::shell::shell_word;
use tine_store::{ForkName, StoreError};
use tine_workspace::Actor;

pub(super) fn finish(call: &Call<'_>, request: &FinishRound) -> Result<RoundFinished, Failure> {
    let daemon = call.daemon;
    let repository = daemon.repository_now()?;
    let mut record = RoundRecord::load(&daemon.store, &session_of(request.session.as_ref())?)?;
    refuse_unless_open(&record)?;
    let names: Vec<ForkName> = match &request.agent {
        Some(name) => vec![record.seat(name).map(|_| name.clone())?],
        None => {
            let agents = record.seated().map(|(agent, _)| agent.name.clone());
            let presenter = record.presenter.iter().map(|seat| seat.label().clone());
            agents.chain(presenter).collect()
        }
    };
    if let (Some(label), [name]) = (&request.label, names.as_slice()) {
        give_label(&mut record, name, label)?;
    }
    for name in &names {
        refuse_elsewhere(daemon, &repository, name, record.seat(name)?)?;
    }
    let mut finished = Vec::new();
    for name in &names {
        finished.push(finish_seat(call, request, &mut record, name)?);
    }
    let written = match &record.directory {
        Some(directory) => {
            let directory = directory.clone();
            write_result(daemon, &repository, &mut record, &directory, request)?
        }
        None => None,
    };
    Ok(RoundFinished {
        session: record.session,
        round: record.round,
        finished,
        written,
    })
}

/// Sets an agent's label, which is possible until its scratch is archived.
fn give_label(record: &mut RoundRecord, name: &ForkName, label: &ForkName) -> Result<(), Failure> {
    let seat = record.seat(name)?;
    if seat.label() == label {
        return Ok(());
    }
    if seat.state != SeatState::Open {
        return Err(
            wrong_state(format!("{name} is known as {} already", seat.label()))
                .hint("labels are given before an agent has finished"),
        );
    }
    let is_presenter = record
        .presenter
        .as_ref()
        .is_some_and(|seat| seat.label() == name || seat.label() == label);
    if is_presenter || !record.is_label_free(name, label) {
        return Err(Failure::new(
            ErrorCode::Usage,
            format!("{label} cannot be the label of {name}"),
        )
        .hint("each agent has a label of its own, and the presenter's is its name"));
    }
    record.seat_mut(name)?.label = Some(label.clone());
    Ok(())
}

/// Fails if the fork is not on the seat's branch.
///
/// Other agents read that branch.
fn refuse_elsewhere(
    daemon: &Daemon,
    repository: &Repository,
    name: &ForkName,
    seat: &Seat,
) -> Result<(), Failure> {
    let Some(branch) = seat
        .branch
        .as_ref()
        .filter(|_| seat.state != SeatState::Finished)
    else {
        return Ok(());
    };
    let record = match daemon.store.record(&seat.fork) {
        Err(StoreError::NoSuchFork(_)) => return Ok(()),
        record => record?,
    };
    let worktree = record.open_worktree(repository)?;
    let head = repository.head_of(worktree.git_dir())?;
    if head.short_branch() == Some(branch) || worktree.operation_in_progress().is_some() {
        return Ok(());
    }
    let fork = &seat.fork;
    Err(
        wrong_state(format!("the fork {fork} of {name} is not on its branch {branch}")).hint(format!(
            "`tine merge rev:COMMIT --into {word}` brings work there, `tine branch switch {fork} {word}` puts the fork back on it",
            word = shell_word(branch)
        )),
    )
}

fn finish_seat(
    call: &Call<'_>,
    request: &FinishRound,
    record: &mut RoundRecord,
    name: &ForkName,
) -> Result<FinishedSeat, Failure> {
    let daemon = call.daemon;
    let seat = record.seat(name)?.clone();
    let mut committed = None;
    if seat.state != SeatState::Finished {
        record.seat_mut(name)?.state = SeatState::Finishing;
        record.save(&daemon.store)?;
        committed = leave(call, request, record, &seat)?;
        archive_of(daemon, record, name, &seat)?;
        record.seat_mut(name)?.state = SeatState::Finished;
        record.save(&daemon.store)?;
    }
    let archive = record
        .archives
        .iter()
        .find(|archive| archive.agent == *name && archive.round == seat.round);
    Ok(FinishedSeat {
        agent: name.clone(),
        label: seat.label().clone(),
        fork: seat.fork.clone(),
        branch: seat.branch.clone(),
        committed,
        archive: archive.map(|archive| reading::archive_path(daemon, record, archive)),
    })
}

/// Unmounts the fork and commits its uncommitted changes; returns the commit.
///
/// Does nothing if the fork was deleted.
fn leave(
    call: &Call<'_>,
    request: &FinishRound,
    record: &RoundRecord,
    seat: &Seat,
) -> Result<Option<String>, Failure> {
    let daemon = call.daemon;
    let fork = match daemon.store.record(&seat.fork) {
        Err(StoreError::NoSuchFork(_)) => return Ok(None),
        fork => fork?,
    };
    let action = match record.mode {
        Mode::Branches => UnmountAction::Commit {
            message: format!("[round {}] auto-commit", seat.round),
        },
        Mode::Layers if !fork.mounted && !daemon.slot(&seat.fork).is_mounted() => return Ok(None),
        Mode::Layers => UnmountAction::Keep,
    };
    let by = Actor {
        command: "tine round finish",
        ..call.by()
    };
    let unmounted = mounting::unmount(
        daemon,
        by,
        &seat.fork,
        Some(action),
        request.force,
        call.signers(),
    )?;
    Ok(unmounted.commit)
}

/// Archives the seat's scratch directory, if it has one, and records that.
pub(super) fn archive_of(
    daemon: &Arc<Daemon>,
    record: &mut RoundRecord,
    name: &ForkName,
    seat: &Seat,
) -> Result<(), Failure> {
    if archive(daemon, record, seat)? {
        record.note_archive(ArchiveRecord {
            agent: name.clone(),
            label: seat.label().clone(),
            round: seat.round,
        });
    }
    Ok(())
}

/// Copies the scratch directory to its archive; returns whether it had content.
///
/// A repeated call replaces the archive.
pub(super) fn archive(
    daemon: &Arc<Daemon>,
    record: &RoundRecord,
    seat: &Seat,
) -> Result<bool, Failure> {
    if let Err(StoreError::NoSuchFork(_)) = daemon.store.record(&seat.fork) {
        return Ok(false);
    }
    let dir = round::archive_dir(daemon.store.dir(), &record.session);
    let place = dir.join(seat.label().as_str());
    let new = dir.join(format!("{}~new", seat.label()));
    remove(&new)?;
    let slot = daemon.slot(&seat.fork);
    let guard = daemon.lock_fork(&slot)?;
    if !scratch::copy_out(&guard.open()?.workspace, &scratch_name(record)?, &new)? {
        return Ok(false);
    }
    // An archive of an earlier round under this label is renamed to have the round's number, unless
    // it was already.
    let earlier = record
        .archives
        .iter()
        .filter(|archive| archive.label == *seat.label());
    let earlier = earlier
        .map(|archive| archive.round)
        .filter(|round| *round != seat.round)
        .max();
    match earlier.map(|round| dir.join(round::older_archive(seat.label(), round))) {
        Some(older) if !older.exists() => rename(&place, &older)?,
        _ => remove(&place)?,
    }
    rename(&new, &place)?;
    Ok(true)
}

fn rename(from: &Path, to: &Path) -> Result<(), Failure> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Failure::io("rename", from, &error))
        }
        _ => Ok(()),
    }
}

fn remove(dir: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Failure::io("remove", dir, &error))
        }
        _ => Ok(()),
    }
}

/// Writes the result of a session without git to its directory.
///
/// The result is the presenter's work, or else what was merged, or else the only agent's work.
/// Returns `None` if there is none of these.
fn write_result(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    record: &mut RoundRecord,
    directory: &Path,
    request: &FinishRound,
) -> Result<Option<DirectoryWritten>, Failure> {
    let seated: Vec<&Seat> = record.seated().map(|(_, seat)| seat).collect();
    let before = record
        .written_commit
        .clone()
        .unwrap_or_else(|| record.base_commit.clone());
    let base = recorded_commit(record, &before)?;
    let merged = match &record.from_branch {
        Some(branch) => repository.branch(branch)?,
        None => None,
    };
    let result = match (&record.presenter, merged, seated.as_slice()) {
        (Some(presenter), ..) => {
            let agent = request.agent.as_ref();
            if agent.is_none_or(|name| name == presenter.label()) {
                reading::find_work(daemon, repository, record, presenter)?
            } else {
                None
            }
        }
        (None, Some(tip), _) if tip != base && !repository.is_ancestor(tip, base)? => {
            Some(reading::Work {
                commit: Some(tip),
                tree: repository.commit_info(tip)?.tree_id,
                uncommitted: 0,
            })
        }
        (None, _, [only]) => reading::find_work(daemon, repository, record, only)?,
        _ => None,
    };
    let Some(result) = result else {
        return Ok(None);
    };
    let base_tree = repository.commit_info(base)?.tree_id;
    let written = write_back::write_back(repository, base_tree, result.tree, directory)?;
    let after = reading::commit_of(repository, &result)?.to_string();
    repository.keep(
        round::KEPT,
        &format!("{}-directory", record.id),
        recorded_commit(record, &after)?,
    )?;
    record.written_commit = Some(after.clone());
    record.save(&daemon.store)?;
    Ok(Some(DirectoryWritten {
        directory: PathBuf::from(directory),
        before,
        after,
        written: written.written.iter().map(Into::into).collect(),
        deleted: written.deleted.iter().map(Into::into).collect(),
    }))
}
