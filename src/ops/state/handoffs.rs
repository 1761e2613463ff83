//! Mailboxes that are being made, and who waits for them.
//!
//! Each is made by a thread of its own, which has no fork's turn: the commits are known and kept. A
//! daemon that ends leaves the records pending, and the next one makes the mailboxes.

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
use tine_workspace::ForkName;
use tine_workspace::store::RecordKind;

/// The handoffs of a daemon.
#[derive(Default)]
pub struct HandoffRegistry {
    /// Held, too, while a record is read, changed and written. Nothing but the store's own locks is
    /// taken after it.
    work: Mutex<Work>,
    /// A record has changed, or the daemon is ending.
    changed: Condvar,
}

#[derive(Default)]
struct Work {
    /// Those that a thread is making.
    making: BTreeSet<u64>,
    /// Those that are pending for good in this process: what came of making them could not be
    /// written down.
    stuck: BTreeMap<u64, Failure>,
}

impl Work {
    /// Whether somebody who waits for it will be told.
    fn is_coming(&self, record: &HandoffRecord) -> bool {
        record.state == HandoffState::Pending && self.making.contains(&record.id)
    }
}

impl HandoffRegistry {
    /// Whether a mailbox is being made.
    pub fn is_busy(&self) -> bool {
        !self.work.lock().making.is_empty()
    }

    /// Lets everybody who waits look again: the daemon is ending.
    pub fn wake(&self) {
        // Who is about to wait has either looked already, and is told, or looks afterwards.
        drop(self.work.lock());
        self.changed.notify_all();
    }
}

/// Changes the record of a handoff, which nobody else does meanwhile, and tells who waits.
pub fn update(
    daemon: &Daemon,
    id: u64,
    change: impl FnOnce(&mut HandoffRecord) -> Result<(), Failure>,
) -> Result<HandoffRecord, Failure> {
    let mut work = daemon.handoffs.work.lock();
    let record = changed(daemon, &mut work, id, change);
    daemon.handoffs.changed.notify_all();
    record
}

/// As [`update`], for who has the lock.
fn changed(
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

/// The handoff of these commits: the one that is there, else a new one, whose mailbox is being made
/// when this returns. Whoever it is for is asked for only where `spec` names somebody.
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
            return changed(daemon, &mut work, id, |record| told(record, Err(failure)));
        }
    }
    Ok(record)
}

/// Makes the mailbox, and says in the record what came of it.
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
    let told = update(daemon, id, |record| told(record, made));
    let mut work = daemon.handoffs.work.lock();
    work.making.remove(&id);
    if let Err(failure) = told {
        log::error!("handoff {id} stays pending: {failure}");
        work.stuck.insert(id, failure);
    }
    daemon.handoffs.changed.notify_all();
}

/// Says in the record, and in the log, what came of making the mailbox.
fn told(record: &mut HandoffRecord, made: Result<MailboxOutcome, Failure>) -> Result<(), Failure> {
    let id = record.id;
    if let Err(failure) = &made {
        log::error!("handoff {id} failed: {failure}");
    }
    record.finish(made.map_err(|failure| failure.to_string()));
    log::info!("handoff {id} is {}", record.state.word());
    Ok(())
}

/// Puts right what a daemon that died has left, and makes what it did not come to make, in the
/// background.
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

/// Waits until none of these is pending; all of them then. The caller has no turn.
///
/// # Errors
/// [`ErrorCode::Timeout`] where one still is at `deadline`.
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

/// Waits until no handoff of the fork is being made. The caller has no turn.
pub fn wait_for_fork(daemon: &Daemon, fork: &ForkName) -> Result<(), Failure> {
    let mut work = daemon.handoffs.work.lock();
    while has_pending(daemon, &work, fork)? {
        daemon.refuse_if_stopping()?;
        daemon.handoffs.changed.wait(&mut work);
    }
    Ok(())
}

/// Whether a handoff of the fork is being made.
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

/// Removes a handoff, unless `refuse` has something against it.
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
