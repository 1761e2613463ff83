//! Takes over what forks made in git directories of their own.
//!
//! A few threads take over each fork shortly after its refs moved. A fork with much to bring does
//! not hold up others. A request that holds the fork's lock takes over first what the threads have
//! not, so it sees every commit of the fork. The same threads protect what is staged, a moment
//! after the index changed.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::slots::{Daemon, Slot};
use crate::failure::{ErrorCode, Failure};
use tine_dotgit::GitChange;
use tine_git::own::{OthersMove, OwnBranch, RefsStamp, RejectedRef, TakenOver};
use tine_path::shell::shell_word;
use tine_store::{ForkName, GitKind, IndexStamp};

/// Pause after a ref moved, in which git finishes its command.
const PAUSE: Duration = Duration::from_millis(5);

/// Pause after the index changed, for which further changes wait.
const INDEX_PAUSE: Duration = Duration::from_millis(100);

/// Pause between looks whether a program prunes what was just taken over.
const HELD_PAUSE: Duration = Duration::from_millis(300);

/// Time after a take-over in which the threads look after it.
const HELD_AGE: Duration = Duration::from_secs(10);

/// Maximum number of threads, each with one fork.
const MAX_THREADS: usize = 4;

/// Time for which a thread waits for the next fork.
const IDLE: Duration = Duration::from_secs(10);

/// Forks whose refs moved, and the threads that take over.
///
/// Its lock is the last one: no other lock is taken while it is held.
#[derive(Default)]
pub struct TakeOver {
    state: Mutex<Pending>,
    changed: Condvar,
}

/// State of the threads; protected by [`TakeOver::state`].
#[derive(Default)]
struct Pending {
    threads: usize,
    /// Threads that wait for a fork.
    idle: usize,
    /// Forks that a thread has at present.
    busy: BTreeSet<ForkName>,
    /// Time at which each fork is due, by what changed there.
    due: BTreeMap<(ForkName, Due), Instant>,
}

/// Work that follows a change in a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The kernel must forget what tine changed.
    Resync,
    TakeOver,
    ProtectIndex,
    /// A program may have pruned what was just taken over.
    RestoreHeld,
}

/// State of taking over one fork.
#[derive(Default)]
pub(super) struct TakeOverState {
    /// True if the main repository may not keep the fork's refs.
    is_pending: AtomicBool,
    /// Held while the fork is taken over.
    busy: Mutex<()>,
    /// Outcome of the last time. Held for moments.
    last: Mutex<TakeOverOutcome>,
    /// Time of the last take-over that changed something. Held for moments.
    taken_at: Mutex<Option<Instant>>,
    /// Index whose blobs were brought last. Held for moments.
    index: Mutex<Option<IndexStamp>>,
    /// Index whose blobs were protected last. Held for moments.
    protected: Mutex<Option<IndexStamp>>,
}

thread_local! {
    /// True while this thread holds a fork's [`Busy`].
    static IS_BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Right to take over a fork.
struct Busy<'a> {
    _held: MutexGuard<'a, ()>,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        IS_BUSY.set(false);
    }
}

/// Outcome of a take-over.
#[derive(Debug, Clone, Default)]
pub struct TakeOverOutcome {
    /// True once the fork was taken over by this daemon.
    is_known: bool,
    /// True if the fork has a git directory of its own.
    pub(super) is_own: bool,
    /// Result of the last time; `None` for a linked worktree.
    taken: Option<TakenOver>,
    /// State of the refs before the last time, if it is certain.
    seen: Option<RefsStamp>,
    /// Reason why the last time failed.
    failure: Option<String>,
}

impl TakeOverOutcome {
    /// Returns the refs that the main repository refuses.
    pub fn rejected(&self) -> &[RejectedRef] {
        self.taken.as_ref().map_or(&[], |taken| &taken.rejected)
    }

    /// Returns whether a `git gc` of the main repository holds it up.
    fn is_held_up(&self) -> bool {
        self.taken.as_ref().is_some_and(|taken| taken.is_pending)
    }

    /// Returns the state of the main repository's branch that follows the fork's.
    pub fn branch(&self) -> Option<&OwnBranch> {
        self.taken.as_ref()?.branch.as_ref()
    }
}

impl TakeOver {
    /// Wakes the threads, so that they see that the daemon is ending.
    pub fn wake(&self) {
        drop(self.state.lock());
        self.changed.notify_all();
    }
}

/// Notes a change in the fork's git directory. Does not block.
pub fn changed(daemon: &Arc<Daemon>, slot: &Slot, change: GitChange) {
    let (work, pause) = match change {
        GitChange::Outdated => (Due::Resync, Duration::ZERO),
        GitChange::Refs => (Due::TakeOver, PAUSE),
        GitChange::Index => (Due::ProtectIndex, INDEX_PAUSE),
    };
    if work == Due::TakeOver {
        slot.take_over.is_pending.store(true, Ordering::Release);
    }
    let mut state = daemon.take_over.state.lock();
    let due = Instant::now() + pause;
    state.due.entry((slot.name.clone(), work)).or_insert(due);
    // All wait for different times.
    daemon.take_over.changed.notify_all();
    provide(daemon, &mut state);
}

/// Starts a thread if none is free for what is due.
fn provide(daemon: &Arc<Daemon>, state: &mut Pending) {
    let mut due = state.due.keys();
    let is_free = |(name, _): &(ForkName, Due)| !state.busy.contains(name);
    if state.idle > 0 || state.threads >= MAX_THREADS || !due.any(is_free) {
        return;
    }
    let taking = daemon.clone();
    let spawned = thread::Builder::new()
        .name("take-over".into())
        .spawn(move || run(&taking));
    match spawned {
        Ok(_) => state.threads += 1,
        Err(error) => log::error!("no thread to take over commits: {error}"),
    }
}

fn run(daemon: &Arc<Daemon>) {
    let mut state = daemon.take_over.state.lock();
    while let Some((name, work)) = next(daemon, &mut state) {
        state.busy.insert(name.clone());
        provide(daemon, &mut state);
        drop(state);
        let slot = daemon.slot(&name);
        match work {
            Due::Resync => slot.resync_git_dir(),
            Due::TakeOver => {
                if let Err(failure) = take_over(daemon, &slot) {
                    log::warn!("{name}: its commits are not taken over: {failure}");
                }
            }
            Due::RestoreHeld => {
                let repository = &daemon.repository;
                if let Err(error) = repository.restore_held_of(name.as_str(), HELD_AGE) {
                    log::warn!("objects that forks made could not be looked at: {error}");
                }
            }
            Due::ProtectIndex => {
                if let Err(failure) = protect_staged(daemon, &slot) {
                    log::warn!("{name}: what is staged is not protected: {failure}");
                }
            }
        }
        let taken_at = *slot.take_over.taken_at.lock();
        let is_looked_after = matches!(work, Due::TakeOver | Due::RestoreHeld)
            && taken_at.is_some_and(|at| at.elapsed() < HELD_AGE);
        state = daemon.take_over.state.lock();
        state.busy.remove(&name);
        if is_looked_after {
            let looking = (name, Due::RestoreHeld);
            let next_look = Instant::now() + HELD_PAUSE;
            state.due.entry(looking).or_insert(next_look);
        }
        // Others may have left it work that is due.
        daemon.take_over.changed.notify_all();
    }
    state.threads -= 1;
}

/// Waits for the next work that is due.
///
/// Forks that another thread has are left out. `None` if the daemon ends, and after some time
/// without work.
fn next(daemon: &Daemon, state: &mut MutexGuard<'_, Pending>) -> Option<(ForkName, Due)> {
    let idle_until = Instant::now() + IDLE;
    loop {
        daemon.refuse_if_stopping().ok()?;
        let now = Instant::now();
        let free = state
            .due
            .iter()
            .filter(|((name, _), _)| !state.busy.contains(name));
        let next = free.min_by_key(|(_, due)| **due);
        let next = next.map(|(next, due)| (next.clone(), *due));
        let until = match next {
            Some((next, due)) if due <= now => {
                state.due.remove(&next);
                return Some(next);
            }
            Some((_, due)) => due,
            None if idle_until <= now => return None,
            None => idle_until,
        };
        state.idle += 1;
        daemon.take_over.changed.wait_until(state, until);
        state.idle -= 1;
    }
}

/// Takes over what the fork has, if its refs may have moved.
///
/// # Errors
/// If the record, the fork's refs or the main repository's cannot be read or written.
pub fn take_over_if_pending(daemon: &Daemon, slot: &Slot) -> Result<(), Failure> {
    // Waits for a take-over that another thread has begun.
    let _busy = slot.take_over.hold();
    let is_known = slot.take_over.last.lock().is_known;
    if is_known && !slot.take_over.is_pending.load(Ordering::Acquire) {
        return Ok(());
    }
    take_over_now(daemon, slot)
}

/// Does the same as [`take_over_if_pending`] for a reader. A failure is logged.
pub fn bring(daemon: &Daemon, slot: &Slot) {
    if let Err(failure) = take_over_if_pending(daemon, slot) {
        log::warn!("{}: its commits are not taken over: {failure}", slot.name);
    }
}

/// Does the same as [`bring`] for a name that may be nobody's.
pub fn bring_fork(daemon: &Daemon, fork: &ForkName) {
    // The record is read only if need be: this is a part of every operation.
    let slot = daemon.known_slot(fork).or_else(|| {
        let is_there = daemon.store.record(fork).is_ok();
        is_there.then(|| daemon.slot(fork))
    });
    if let Some(slot) = slot {
        bring(daemon, &slot);
    }
}

/// Brings what is committed in the fork with this own git directory.
///
/// Git may have committed there after an operation began. Does nothing during a take-over.
pub fn bring_git_dir(daemon: &Daemon, git_dir: &Path) {
    let name = git_dir.parent().and_then(|dir| dir.file_name()?.to_str());
    let name = name.and_then(|name| ForkName::parse(name).ok());
    if let Some(slot) = name.and_then(|name| daemon.known_slot(&name))
        && !IS_BUSY.get()
        && let Err(failure) = take_over_if_moved(daemon, &slot)
    {
        log::warn!("{}: its commits are not taken over: {failure}", slot.name);
    }
}

/// Brings what is committed in the forks that a revision may name.
///
/// They are those whose branch, or whose refs in the main repository, are a part of it.
pub fn bring_named(daemon: &Daemon, revision: &str) {
    for record in daemon.store.records().0 {
        let branch = record.followed_branch.as_deref();
        let refs = format!("tine/{}/", record.name);
        if branch.is_some_and(|branch| revision.contains(branch)) || revision.contains(&refs) {
            bring(daemon, &daemon.slot(&record.name));
        }
    }
}

/// Brings what is staged in the fork.
///
/// Does nothing for a linked worktree, and while the index is the same.
///
/// # Errors
/// If the index cannot be read, or a blob cannot be written.
pub fn bring_staged(daemon: &Daemon, slot: &Slot) -> Result<(), Failure> {
    if !slot.take_over.is_own() {
        return Ok(());
    }
    let git_dir = daemon.store.own_git_dir(&slot.name);
    // The whole index need not be read where there is nothing to bring.
    if !daemon.repository.has_own_loose_objects(&git_dir)? {
        return Ok(());
    }
    let _busy = slot.take_over.hold();
    let stamp = IndexStamp::of(&git_dir.join("index"));
    if *slot.take_over.index.lock() == stamp {
        return Ok(());
    }
    daemon
        .repository
        .bring_index(&git_dir, slot.name.as_str())?;
    *slot.take_over.index.lock() = stamp;
    Ok(())
}

/// Keeps what is staged and only the main repository has.
///
/// Does nothing for a linked worktree, and while the index is the same.
fn protect_staged(daemon: &Daemon, slot: &Slot) -> Result<(), Failure> {
    // After a start of the daemon it is not known what the fork is.
    take_over_if_pending(daemon, slot)?;
    if !slot.take_over.is_own() {
        return Ok(());
    }
    let _busy = slot.take_over.hold();
    let git_dir = daemon.store.own_git_dir(&slot.name);
    let stamp = IndexStamp::of(&git_dir.join("index"));
    if *slot.take_over.index.lock() == stamp || *slot.take_over.protected.lock() == stamp {
        return Ok(());
    }
    daemon
        .repository
        .protect_index(&git_dir, slot.name.as_str())?;
    *slot.take_over.protected.lock() = stamp;
    Ok(())
}

/// Takes over what the fork has, if its refs moved.
///
/// # Errors
/// Fails as [`take_over_if_pending`].
pub fn take_over_if_moved(daemon: &Daemon, slot: &Slot) -> Result<(), Failure> {
    let _busy = slot.take_over.hold();
    let seen = slot.take_over.last.lock().seen.clone();
    let is_same = seen.is_some() && RefsStamp::of(&daemon.store.own_git_dir(&slot.name)) == seen;
    if is_same && !slot.take_over.is_pending.load(Ordering::Acquire) {
        return Ok(());
    }
    take_over_now(daemon, slot)
}

/// Takes over what the fork has: objects and refs.
///
/// # Errors
/// Fails as [`take_over_if_pending`].
pub fn take_over(daemon: &Daemon, slot: &Slot) -> Result<(), Failure> {
    let _busy = slot.take_over.hold();
    take_over_now(daemon, slot)
}

/// Takes over all that an unmounted fork has. Blocks.
///
/// It waits for a take-over that another thread has begun.
///
/// # Errors
/// Fails as [`take_over_if_pending`], and if a `git gc` in the main repository holds it up.
pub fn take_over_all(daemon: &Daemon, slot: &Slot) -> Result<(), Failure> {
    take_over(daemon, slot)?;
    if !outcome(slot).is_held_up() {
        return Ok(());
    }
    Err(Failure::new(
        ErrorCode::NotTakenOver,
        format!(
            "the main repository does not have the newest commits of {}",
            slot.name
        ),
    )
    .cause("a `git gc` there would remove them before they are kept")
    .hint("wait until it has ended"))
}

/// Takes over what the fork has. The caller has its [`Busy`].
fn take_over_now(daemon: &Daemon, slot: &Slot) -> Result<(), Failure> {
    slot.take_over.is_pending.store(false, Ordering::Release);
    let record = match daemon.store.record(&slot.name) {
        Ok(record) => record,
        Err(tine_store::StoreError::NoSuchFork(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if record.git_kind == GitKind::Linked {
        *slot.take_over.last.lock() = TakeOverOutcome {
            is_known: true,
            ..TakeOverOutcome::default()
        };
        return Ok(());
    }
    let before = {
        let mut last = slot.take_over.last.lock();
        // Also if this fails: the mount must follow what tine changes in the git directory.
        last.is_own = true;
        last.clone()
    };
    let git_dir = daemon.store.worktree_dir(&record);
    let seen = RefsStamp::of(&git_dir);
    let followed = record.followed_branch.as_deref();
    let shown = slot.git_directory();
    let remove = |path: &Path| match &shown {
        Some((directory, mount)) => {
            mount.invalidate(directory.remove(path.as_os_str().as_bytes())?);
            Ok(())
        }
        None => Ok(()),
    };
    let taken = daemon.repository.take_over(
        &git_dir,
        slot.name.as_str(),
        followed,
        before.taken.as_ref(),
        shown.is_some().then_some(&remove),
    );
    let taken = taken.inspect_err(|error| {
        slot.take_over.is_pending.store(true, Ordering::Release);
        slot.take_over.last.lock().failure = Some(error.to_string());
    })?;
    if !taken.changed.is_empty() {
        *slot.take_over.taken_at.lock() = Some(Instant::now());
    }
    if taken.is_pending {
        // The next operation tries again.
        slot.take_over.is_pending.store(true, Ordering::Release);
    }
    *slot.take_over.last.lock() = TakeOverOutcome {
        is_known: true,
        is_own: true,
        seen: seen.filter(|_| !taken.is_pending),
        failure: None,
        taken: Some(taken),
    };
    Ok(())
}

impl TakeOverState {
    /// Waits for the right to take over the fork.
    fn hold(&self) -> Busy<'_> {
        let held = self.busy.lock();
        IS_BUSY.set(true);
        Busy { _held: held }
    }

    /// Returns whether the fork is known as a repository of its own.
    pub(super) fn is_own(&self) -> bool {
        self.last.lock().is_own
    }
}

/// Returns the outcome of the fork's last take-over.
pub fn outcome(slot: &Slot) -> TakeOverOutcome {
    slot.take_over.last.lock().clone()
}

/// Forgets what is known of the fork, whose git directory was converted.
pub fn forget(slot: &Slot) {
    *slot.take_over.last.lock() = TakeOverOutcome::default();
    slot.take_over.is_pending.store(true, Ordering::Release);
}

/// Returns the note of `tine list` about the last take-over.
pub fn note(slot: &Slot) -> Option<String> {
    let outcome = outcome(slot);
    if let Some(failure) = &outcome.failure {
        return Some(format!("its commits are not taken over: {failure}"));
    }
    if let Some(rejected) = outcome.rejected().first() {
        return Some(format!(
            "{} is in the fork alone: the main repository refuses it ({})",
            rejected.name, rejected.reason
        ));
    }
    if outcome.is_held_up() {
        return Some(
            "its newest commits may be in the fork alone until a `git gc` in the main repository has ended, which would prune them"
                .to_owned(),
        );
    }
    let fork = &slot.name;
    match outcome.branch()? {
        OwnBranch::Moved { .. } | OwnBranch::Same => None,
        OwnBranch::CheckedOut { at } => Some(format!(
            "its branch stays, as {} has it checked out; `git merge refs/tine/{fork}/git/HEAD` there joins both",
            at.display()
        )),
        OwnBranch::MovedByOthers { branch, at, way } => {
            let joins = match way {
                OthersMove::On => format!("`git merge {at}` in the fork joins both"),
                // The fork has all that the branch has, so a merge would do nothing.
                OthersMove::Back => format!(
                    "`git branch -f {} {}` there moves it on",
                    shell_word(branch),
                    shell_word(format!("refs/tine/{fork}/git/heads/{branch}"))
                ),
                OthersMove::Rewritten { former } => format!(
                    "`git rebase --onto {at} {former}` in the fork goes on with the rewritten history, and `git merge {at}` \
                     joins both"
                ),
            };
            Some(format!(
                "its branch stays at {at} in the main repository, where somebody moved it; {joins}"
            ))
        }
        OwnBranch::DeletedInMain => Some(
            "its branch was deleted in the main repository, and goes on in the fork".to_owned(),
        ),
        OwnBranch::InTheWay { branch } => Some(format!(
            "its branch is in the fork alone: the branch {branch} is in the way"
        )),
    }
}
