//! Deletes seats that a later round has replaced, and whole sessions.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use super::{CleanRounds, finishing, session_of, wrong_state};
use crate::deleting;
use crate::failure::Failure;
use crate::locks;
use crate::protocol::{BranchStays, RoundsCleaned, SeatCleaned};
use crate::state::slots::Daemon;
use tine_change::branches;
use tine_change::recovery::{self, RecoverEntry, RecoverKind, Recoverable};
use tine_change::round::{self, KEPT, RoundRecord, Seat, SeatState, Stage};
use tine_git::{GitError, Identity, ObjectId, Repository};
use tine_store::{ForkName, StoreError};
use tine_store::{Lease, LeaseKey};

/// Label of the commit last written to a directory without git.
///
/// Kept commits of a session with other labels are seats of older versions of tine.
const DIRECTORY: &str = "directory";

/// Deletes a seat that a later round has replaced.
///
/// Archives its scratch directory first, with changes made after the finish. `tine recover` lists
/// work that nothing else has. A branch that is checked out stays, and is returned.
pub(super) fn retire(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    record: &mut RoundRecord,
    agent: &ForkName,
    seat: &Seat,
) -> Result<Option<BranchStays>, Failure> {
    finishing::archive_of(daemon, record, agent, seat)?;
    record.save(&daemon.store)?;
    let command = format!("tine round start --session {}", record.session);
    delete_fork(daemon, seat, true, &command)?;
    let Some((branch, tip)) = branch_of(repository, seat)? else {
        return Ok(None);
    };
    let _lease = lease(daemon, &branch)?;
    match repository.checked_out_at(&branch)? {
        None => {
            drop_branch(daemon, repository, seat, (&branch, tip), &command)?;
            Ok(None)
        }
        // A user works on the branch.
        Some(dir) => {
            log::warn!(
                "the branch {branch} stays: it is checked out at {}",
                dir.display()
            );
            Ok(Some(BranchStays {
                branch,
                checkout: dir,
            }))
        }
    }
}

/// Removes stale locks on branches of seats.
///
/// A process that died while it deleted seats leaves them. Only tine takes locks on these branches.
pub(super) fn release_stale_locks(
    repository: &Repository,
    record: &RoundRecord,
) -> Result<(), Failure> {
    if record.stage == Stage::Open {
        return Ok(());
    }
    for branch in record.branches() {
        repository.release_stale_branch_lock(&branch)?;
    }
    Ok(())
}

/// Deletes a seat with its fork and branch, on behalf of `command`.
///
/// With `keeps`, commits of the branch that nothing else reaches become a `tine recover` entry.
/// Returns the numbers of the new entries.
pub(super) fn discard(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    seat: &Seat,
    (command, keeps): (&str, bool),
) -> Result<Vec<u64>, Failure> {
    let mut recover: Vec<u64> = delete_fork(daemon, seat, true, command)?
        .into_iter()
        .collect();
    let _lease = seat
        .branch
        .as_deref()
        .map(|branch| lease(daemon, branch))
        .transpose()?;
    if let Some((branch, tip)) = branch_of(repository, seat)? {
        if keeps {
            recover.extend(drop_branch(
                daemon,
                repository,
                seat,
                (&branch, tip),
                command,
            )?);
        } else {
            repository.delete_branch(&branch, tip)?;
            repository.forget_branch_settings(&branch)?;
        }
    }
    Ok(recover)
}

/// Takes the lease of a seat's branch, which its deletion needs.
fn lease<'d>(daemon: &'d Daemon, branch: &str) -> Result<Lease<'d>, Failure> {
    locks::lease(daemon, "tine round", || {
        Ok(vec![LeaseKey::Branch(branch.to_owned())])
    })
}

/// Deletes a seat's fork, if it exists; returns the entry's number.
fn delete_fork(
    daemon: &Arc<Daemon>,
    seat: &Seat,
    force: bool,
    command: &str,
) -> Result<Option<u64>, Failure> {
    if let Err(StoreError::NoSuchFork(_)) = daemon.store.record(&seat.fork) {
        return Ok(None);
    }
    let deleted = deleting::delete(
        daemon,
        &seat.fork,
        force,
        Some(Identity::tine()),
        Some(command),
    )?;
    Ok(deleted.recover)
}

/// Deletes a seat's branch at `tip`; returns the entry's number.
///
/// Commits that nothing else reaches become the entry first. The caller holds the branch's lease.
fn drop_branch(
    daemon: &Daemon,
    repository: &Repository,
    seat: &Seat,
    (branch, tip): (&str, ObjectId),
    command: &str,
) -> Result<Option<u64>, Failure> {
    let entry = RecoverEntry {
        fork: Some(seat.fork.clone()),
        branch: Some(branch.to_owned()),
        head: Some(tip.to_string()),
        ..RecoverEntry::new(RecoverKind::Branch, command)
    };
    Ok(branches::remove(
        &daemon.store,
        repository,
        (branch, tip),
        Some(entry),
    )?)
}

fn branch_of(repository: &Repository, seat: &Seat) -> Result<Option<(String, ObjectId)>, Failure> {
    let Some(branch) = &seat.branch else {
        return Ok(None);
    };
    Ok(repository.branch(branch)?.map(|tip| (branch.clone(), tip)))
}

/// Stops ignoring a scratch directory's name if no session uses it.
pub(super) fn include_again(
    daemon: &Daemon,
    repository: &Repository,
    name: &str,
) -> Result<(), Failure> {
    let all = RoundRecord::all(&daemon.store)?;
    if all.iter().any(|record| record.scratch == name) {
        return Ok(());
    }
    Ok(repository.include_at_top(name)?)
}

/// A seat with the work that would be lost with it.
struct SeatWork {
    agent: ForkName,
    seat: Seat,
    /// Last commit.
    tip: Option<ObjectId>,
    /// Number of uncommitted paths.
    uncommitted: usize,
    unmerged: bool,
    /// True if the directory of a session without git has its result.
    is_written: bool,
    /// True if an agent may be working, with unarchived scratch.
    is_open: bool,
}

pub(super) fn clean(daemon: &Arc<Daemon>, request: &CleanRounds) -> Result<RoundsCleaned, Failure> {
    let repository = daemon.repository_now()?;
    let mut record = RoundRecord::load(&daemon.store, &session_of(request.session.as_ref())?)?;
    release_stale_locks(&repository, &record)?;
    let branches = record.branches();
    let branches: Vec<&str> = branches.iter().map(String::as_str).collect();
    let mut left = Vec::new();
    for (agent, seat) in record.seats() {
        refuse_held(daemon, &repository, &seat)?;
        left.push(examine_seat(
            daemon,
            &repository,
            &record,
            agent,
            seat,
            &branches,
        )?);
    }
    match request.force {
        false => refuse_loss(&record, &left)?,
        true if request.archives => {}
        true => archive_open(daemon, &mut record, &left)?,
    }
    record.stage = Stage::Cleaning;
    record.save(&daemon.store)?;
    let command = format!("tine round clean {}", record.session);
    // Entries of an interrupted run count, too. Unreadable ones are reported by `tine recover`.
    let mut earlier: Vec<Recoverable> = recovery::list(&repository)?.0;
    earlier.retain(|known| known.entry.command == command);
    let mut seats = Vec::new();
    for SeatWork {
        agent,
        seat,
        tip,
        unmerged,
        is_written,
        uncommitted,
        ..
    } in left
    {
        let of_fork = delete_fork(daemon, &seat, request.force, &command)?;
        let of_seat = |known: &&Recoverable| known.entry.fork.as_ref() == Some(&seat.fork);
        let earlier: Vec<&Recoverable> = earlier.iter().filter(of_seat).collect();
        let uncommitted_as = match of_fork {
            Some(id) => recovery::find(&repository, id)?.entry.uncommitted,
            None => earlier
                .iter()
                .find_map(|known| known.entry.uncommitted.clone()),
        };
        let was_uncommitted = uncommitted > 0
            || earlier
                .iter()
                .any(|known| known.entry.uncommitted.is_some());
        let earlier: Vec<u64> = earlier.iter().map(|known| known.id).collect();
        let of_branch = discard(daemon, &repository, &seat, (&command, !is_written))?;
        seats.push(SeatCleaned {
            agent,
            round: seat.round,
            fork: seat.fork,
            branch: seat.branch,
            commit: uncommitted_as.or(tip.map(|id| id.to_string())),
            unmerged: unmerged || was_uncommitted,
            recover: earlier
                .into_iter()
                .chain(of_fork)
                .chain(of_branch)
                .collect(),
        });
    }
    let prefix = format!("{}-", record.id);
    for (label, commit_id) in repository.kept(KEPT)? {
        let Some(of) = label.strip_prefix(&prefix) else {
            continue;
        };
        if of != DIRECTORY && repository.reached_otherwise(commit_id, &[])?.is_none() {
            let entry = RecoverEntry {
                head: Some(commit_id.to_string()),
                ..RecoverEntry::new(RecoverKind::Branch, command.as_str())
            };
            recovery::keep(&daemon.store, &repository, entry, &[])?;
        }
        repository.release(KEPT, &label)?;
    }
    let archives = remove_session_files(daemon, &record, request.archives)?;
    record.remove(&daemon.store)?;
    include_again(daemon, &repository, &record.scratch)?;
    daemon.store.collect()?;
    log::info!("the session {} is cleaned away", record.session);
    Ok(RoundsCleaned {
        session: record.session,
        seats,
        archives,
    })
}

/// Fails if the seat's branch is checked out by another worktree.
fn refuse_held(daemon: &Daemon, repository: &Repository, seat: &Seat) -> Result<(), Failure> {
    let Some((branch, _)) = branch_of(repository, seat)? else {
        return Ok(());
    };
    let Some(at) = repository.checked_out_at(&branch)? else {
        return Ok(());
    };
    let own = daemon.store.record(&seat.fork).map(|fork| fork.mount_dir);
    if own.is_ok_and(|dir| dir == at) {
        Ok(())
    } else {
        Err(GitError::BranchCheckedOut { branch, at }.into())
    }
}

fn examine_seat(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    record: &RoundRecord,
    agent: ForkName,
    seat: Seat,
    branches: &[&str],
) -> Result<SeatWork, Failure> {
    let found = super::reading::find_work(daemon, repository, record, &seat)?;
    let tip = found.as_ref().and_then(|work| work.commit);
    let uncommitted = found.as_ref().map_or(0, |work| work.uncommitted);
    let is_written = match (&record.written_commit, tip) {
        (Some(written), Some(tip)) => {
            repository.is_ancestor(tip, super::recorded_commit(record, written)?)?
        }
        _ => false,
    };
    let unmerged = match tip {
        Some(tip) => !is_written && repository.reached_otherwise(tip, branches)?.is_none(),
        None => false,
    };
    let has_fork = !matches!(
        daemon.store.record(&seat.fork),
        Err(StoreError::NoSuchFork(_))
    );
    // A seat whose start was interrupted has a fork, too.
    let is_open = has_fork && seat.state != SeatState::Finished;
    Ok(SeatWork {
        agent,
        seat,
        tip,
        uncommitted,
        unmerged,
        is_written,
        is_open,
    })
}

/// Archives the scratch of open seats, which is deleted with them.
fn archive_open(
    daemon: &Arc<Daemon>,
    record: &mut RoundRecord,
    left: &[SeatWork],
) -> Result<(), Failure> {
    for SeatWork { agent, seat, .. } in left.iter().filter(|left| left.is_open) {
        finishing::archive_of(daemon, record, agent, seat)?;
        record.save(&daemon.store)?;
    }
    Ok(())
}

/// Fails with the names of the work that would be lost.
fn refuse_loss(record: &RoundRecord, left: &[SeatWork]) -> Result<(), Failure> {
    let mut causes = Vec::new();
    for SeatWork {
        agent,
        seat,
        tip,
        uncommitted,
        unmerged,
        is_open,
        ..
    } in left
    {
        let what = seat.branch.clone().unwrap_or_else(|| seat.fork.to_string());
        if *is_open {
            causes.push(format!(
                "{what} of {agent}: the seat is open, and its scratch is not archived"
            ));
        }
        if *uncommitted > 0 {
            let paths = if *uncommitted == 1 { "path" } else { "paths" };
            causes.push(format!(
                "{what} of {agent}: {uncommitted} {paths} not committed"
            ));
        }
        if let (true, Some(tip)) = (unmerged, tip) {
            causes.push(format!("{what} of {agent}: {tip} is merged nowhere"));
        }
    }
    if causes.is_empty() {
        return Ok(());
    }
    let failure = wrong_state(format!("work of the session {} would be lost", record.session)).hint(
        "`tine round finish` closes open seats, `tine round merge` keeps their work; after `--force` `tine recover` brings back commits, and scratch is archived first; nothing was changed",
    );
    Err(causes.into_iter().fold(failure, Failure::cause))
}

/// Removes the session's files, or returns the directory of its archives.
fn remove_session_files(
    daemon: &Daemon,
    record: &RoundRecord,
    with_archives: bool,
) -> Result<Option<PathBuf>, Failure> {
    let dir = round::session_dir(daemon.store.dir(), &record.session);
    let archives = round::archive_dir(daemon.store.dir(), &record.session);
    let has_archives = fs::read_dir(&archives).is_ok_and(|mut entries| entries.next().is_some());
    if has_archives && !with_archives {
        return Ok(Some(archives));
    }
    match fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Failure::io("remove", &dir, &error))
        }
        _ => Ok(None),
    }
}
