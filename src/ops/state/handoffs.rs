//! Makes mailboxes in the background, and wakes requests that wait for them.
//!
//! A thread makes each mailbox. It holds no fork's lock, because the commits are known and kept. A
//! daemon that ends leaves the records pending, and the next daemon makes the mailboxes.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::slots::Daemon;
use crate::failure::{ErrorCode, Failure};
use tine_change::handoff::{self, HandoffRecord, HandoffSpec, HandoffState, MailboxOutcome};
use tine_git::Repository;
use tine_store::ForkName;
use tine_store::RecordKind;

/// Handoffs that the daemon is making.
#[derive(Default)]
pub struct HandoffRegistry {
    /// Also held while a record is read, changed and written.
    ///
    /// Only the store's own locks are taken after it.
    work: Mutex<Work>,
    /// Notified when a record has changed, or the daemon is ending.
    changed: Condvar,
}

#[derive(Default)]
struct Work {
    /// Handoffs that a thread is making.
    making: BTreeSet<u64>,
    /// Handoffs that stay pending in this process, with the reason.
    ///
    /// Writing their outcome to the record failed.
    stuck: BTreeMap<u64, Failure>,
}

impl Work {
    /// Returns whether a thread will set the record's outcome.
    fn is_coming(&self, record: &HandoffRecord) -> bool {
        record.state == HandoffState::Pending && self.making.contains(&record.id)
    }
}

impl HandoffRegistry {
    /// Returns whether a mailbox is being made.
    pub fn is_busy(&self) -> bool {
        !self.work.lock().making.is_empty()
    }

    /// Wakes all waiting requests because the daemon is ending.
    pub fn wake(&self) {
        // A request about to wait holds the lock from its check of `stopping` until it waits, so it
        // either receives the notification or checks afterwards.
        drop(self.work.lock());
        self.changed.notify_all();
    }
}

/// Changes a handoff's record under the lock, and wakes waiting requests.
///
/// # Errors
/// The error of `change`, or a failure to read or write the record.
pub fn update(
    daemon: &Daemon,
    id: u64,
    change: impl FnOnce(&mut HandoffRecord) -> Result<(), Failure>,
) -> Result<HandoffRecord, Failure> {
    let mut work = daemon.handoffs.work.lock();
    let record = update_locked(daemon, &mut work, id, change);
    daemon.handoffs.changed.notify_all();
    record
}

/// Changes the record of a handoff; the caller holds the lock.
fn update_locked(
    daemon: &Daemon,
    _work: &mut Work,
    id: u64,
    change: impl FnOnce(&mut HandoffRecord) -> Result<(), Failure>,
) -> Result<HandoffRecord, Failure> {
    let mut record = HandoffRecord::load(&daemon.store, id)?;
    change(&mut record)?;
    record.save(&daemon.store)?;
    Ok(record)
}

/// Returns the handoff of these commits; begins one if necessary.
///
/// A new one's mailbox is being made when this returns, as is that of one that had failed. The
/// recipient of an existing handoff must match only if `spec` names one. `default_to` is the
/// recipient of a new one if `spec` names none.
///
/// # Errors
/// If records cannot be read or written, or git cannot keep the commits.
pub fn begin(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    spec: &HandoffSpec,
    default_to: Option<String>,
) -> Result<HandoffRecord, Failure> {
    let mut work = daemon.handoffs.work.lock();
    let (records, _) = daemon
        .store
        .documents::<HandoffRecord>(RecordKind::Handoffs)?;
    let known = records
        .into_iter()
        .filter(|record| record.is_of(spec) && (spec.to.is_none() || spec.to == record.to))
        .min_by_key(|record| record.state == HandoffState::Failed);
    let record = match known {
        None => {
            let spec = HandoffSpec {
                to: spec.to.clone().or(default_to),
                ..spec.clone()
            };
            HandoffRecord::add(&spec, &daemon.store, repository)?
        }
        Some(mut record) => {
            let is_failed = record.state == HandoffState::Failed;
            if is_failed {
                record.begin_again();
            }
            if is_failed || record.uncommitted != spec.uncommitted {
                record.uncommitted = spec.uncommitted;
                record.save(&daemon.store)?;
            }
            record
        }
    };
    if record.state == HandoffState::Pending && work.making.insert(record.id) {
        work.stuck.remove(&record.id);
        let (making, id) = (daemon.clone(), record.id);
        let spawned = thread::Builder::new()
            .name(format!("handoff-{id}"))
            .spawn(move || make(&making, id));
        if let Err(error) = spawned {
            work.making.remove(&id);
            let failure = Failure::io("start a thread for", Path::new("the handoff"), &error);
            return update_locked(daemon, &mut work, id, |record| {
                record_outcome(record, Err(failure))
            });
        }
    }
    Ok(record)
}

/// Makes the mailbox and writes the outcome to the record.
fn make(daemon: &Arc<Daemon>, id: u64) {
    let made = catch_unwind(AssertUnwindSafe(|| {
        let repository = daemon.repository_now()?;
        let record = HandoffRecord::load(&daemon.store, id)?;
        Ok(record.make(&daemon.store, &repository)?)
    }));
    let made = made.unwrap_or_else(|_| {
        Err(Failure::new(
            ErrorCode::Internal,
            "the daemon failed while it made the mailbox",
        ))
    });
    let recorded = update(daemon, id, |record| record_outcome(record, made));
    let mut work = daemon.handoffs.work.lock();
    work.making.remove(&id);
    if let Err(failure) = recorded {
        log::error!("handoff {id} stays pending: {failure}");
        work.stuck.insert(id, failure);
    }
    daemon.handoffs.changed.notify_all();
}

/// Writes the outcome of making a mailbox to record and log.
fn record_outcome(
    record: &mut HandoffRecord,
    made: Result<MailboxOutcome, Failure>,
) -> Result<(), Failure> {
    let id = record.id;
    if let Err(failure) = &made {
        log::error!("handoff {id} failed: {failure}");
    }
    record.finish(made.map_err(|failure| failure.to_string()));
    log::info!("handoff {id} is {}", record.state.word());
    Ok(())
}

/// Repairs the handoffs of a daemon that died.
///
/// Makes their missing mailboxes in the background.
pub fn recover(daemon: &Arc<Daemon>) {
    let to_make = match handoff::recover(&daemon.store, &daemon.repository) {
        Ok(to_make) => to_make,
        Err(error) => {
            log::error!("handoffs could not be looked through: {error}");
            return;
        }
    };
    if to_make.is_empty() {
        return;
    }
    daemon.handoffs.work.lock().making.extend(&to_make);
    let (making, ids) = (daemon.clone(), to_make.clone());
    let spawned = thread::Builder::new()
        .name("handoffs".into())
        .spawn(move || {
            for id in ids {
                make(&making, id);
            }
        });
    if let Err(error) = spawned {
        log::error!("no thread to make handoffs: {error}");
        let mut work = daemon.handoffs.work.lock();
        work.making.retain(|id| !to_make.contains(id));
    }
}

/// Waits until none of these handoffs is pending, and returns their records.
///
/// Blocks. The caller holds no fork's lock.
///
/// # Errors
/// [`ErrorCode::Timeout`] if one is still pending at `deadline`. Also if making one was given up, a
/// record cannot be read, or the daemon is ending.
pub fn wait(
    daemon: &Daemon,
    ids: &[u64],
    deadline: Option<Instant>,
) -> Result<Vec<HandoffRecord>, Failure> {
    let mut work = daemon.handoffs.work.lock();
    loop {
        let records = ids
            .iter()
            .map(|id| HandoffRecord::load(&daemon.store, *id))
            .collect::<Result<Vec<_>, _>>()?;
        let pending: Vec<&HandoffRecord> = records
            .iter()
            .filter(|record| record.state == HandoffState::Pending)
            .collect();
        let Some(first) = pending.first() else {
            return Ok(records);
        };
        if let Some(lost) = pending.iter().find(|record| !work.is_coming(record)) {
            return Err(not_coming(&work, lost.id));
        }
        daemon.refuse_if_stopping()?;
        match deadline {
            None => daemon.handoffs.changed.wait(&mut work),
            Some(deadline) if Instant::now() >= deadline => {
                return Err(timed_out(&pending, first.id));
            }
            Some(deadline) => drop(daemon.handoffs.changed.wait_until(&mut work, deadline)),
        }
    }
}

/// Waits until no handoff of the fork is being made.
///
/// Blocks. The caller holds no fork's lock.
///
/// # Errors
/// If records cannot be read, or the daemon is ending.
pub fn wait_for_fork(daemon: &Daemon, fork: &ForkName) -> Result<(), Failure> {
    let mut work = daemon.handoffs.work.lock();
    while has_pending(daemon, &work, fork)? {
        daemon.refuse_if_stopping()?;
        daemon.handoffs.changed.wait(&mut work);
    }
    Ok(())
}

/// Returns whether a handoff of the fork is being made.
///
/// # Errors
/// If records cannot be read.
pub fn is_pending_of(daemon: &Daemon, fork: &ForkName) -> Result<bool, Failure> {
    has_pending(daemon, &daemon.handoffs.work.lock(), fork)
}

fn has_pending(daemon: &Daemon, work: &Work, fork: &ForkName) -> Result<bool, Failure> {
    if work.making.is_empty() {
        return Ok(false);
    }
    let (records, _) = daemon
        .store
        .documents::<HandoffRecord>(RecordKind::Handoffs)?;
    Ok(records
        .iter()
        .any(|record| record.fork.as_ref() == Some(fork) && work.is_coming(record)))
}

/// Removes a handoff, unless `refuse` returns an error.
///
/// # Errors
/// The error of `refuse`; [`ErrorCode::HandoffState`] if the mailbox is being made; or a failure to
/// read or remove the record.
pub fn remove(
    daemon: &Daemon,
    repository: &Repository,
    id: u64,
    refuse: impl FnOnce(&HandoffRecord) -> Result<(), Failure>,
) -> Result<HandoffRecord, Failure> {
    let work = daemon.handoffs.work.lock();
    let record = HandoffRecord::load(&daemon.store, id)?;
    if work.is_coming(&record) {
        return Err(Failure::new(
            ErrorCode::HandoffState,
            format!("the handoff {id} is being made"),
        )
        .hint(format!("`tine handoff await {id}` waits for it")));
    }
    refuse(&record)?;
    record.remove(&daemon.store, repository)?;
    daemon.handoffs.changed.notify_all();
    Ok(record)
}

fn not_coming(work: &Work, id: u64) -> Failure {
    match work.stuck.get(&id) {
        Some(failure) => failure.clone().context(format!(
            "what came of handoff {id} could not be written down"
        )),
        None => Failure::new(
            ErrorCode::Internal,
            format!("nobody makes the handoff {id}"),
        ),
    }
}

fn timed_out(pending: &[&HandoffRecord], first: u64) -> Failure {
    let ids: Vec<String> = pending.iter().map(|record| record.id.to_string()).collect();
    Failure::new(ErrorCode::Timeout, "not every handoff was ready in time")
        .cause(format!("still pending: {}", ids.join(", ")))
        .hint(format!(
            "`tine handoff await {first}` goes on waiting; it is made in any case"
        ))
}
