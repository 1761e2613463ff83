//! The daemon's state in memory: a slot for each fork, with its open workspace and mount.
//!
//! Lock order: `stopped`, `rounds`, `reviews`, [`Daemon::slots`] (released at once), a slot's
//! `lock`, the store's leases, the lock of `handoffs` or that of `overlays`, the slot's `state`,
//! then the internal locks of store, workspace and mount. A request that changes a fork holds the
//! slot's `lock` for its whole duration, which serialises such requests. `state` is held for
//! moments only, never while waiting for a mount, a disk or a lock earlier in the order.
//!
//! A mount ends because the daemon unmounts it, or from outside (`umount`, `fusermount3 -u`).
//! `MountEnd` records which. In the second case the next holder of the fork's lock applies the
//! fork's unmount policy, once.

mod guard;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::generations::GenerationMaker;
use super::handoffs::HandoffRegistry;
use super::overlay::Overlays;
use super::presence::Presence;
use super::taking::{self, TakeOver, TakeOverState};
use crate::failure::{ErrorCode, Failure};
use tine_attr::Timestamp;
use tine_dotgit::GitDirectory;
use tine_dotgit::guarding::{Refusals, RefusedWrite};
use tine_fuse::{FuseMount, Traffic, Transport};
use tine_git::{ObjectId, Repository};
use tine_store::{Fork, ForkName, MountSettings, Store};
use tine_sys::asker;
use tine_sys::ranked::{Rank, RankedGuard, RankedMutex};
use tine_tools::Buffers;
use tine_tools::path::relative_path;

pub use self::guard::{ForkGuard, busy};
use self::guard::{held_by_waiting_request, interrupted};

/// State of the daemon.
pub struct Daemon {
    /// Repository that the daemon serves. Immutable.
    pub repository: Repository,
    /// Store of the repository. Internally synchronised.
    pub store: Store,
    /// Path of the tine program, which other programs run. Immutable.
    pub program: Option<PathBuf>,
    /// Start of the daemon, in seconds since 1970. Immutable.
    pub started_secs: i64,
    /// Slots of the forks that were requested since the start.
    ///
    /// A slot is never removed, so two requests for one name always share a slot.
    slots: RankedMutex<BTreeMap<ForkName, Arc<Slot>>>,
    /// True while the daemon ends; every request is refused then.
    ///
    /// Changed only by the holder of `stopped`.
    stopping: AtomicBool,
    /// True once everything is unmounted for good.
    ///
    /// Taken before any fork's lock, by the thread that stops the daemon.
    stopped: RankedMutex<bool>,
    /// Clients and unanswered requests. Internally synchronised.
    pub presence: Presence,
    /// Lock on sessions of rounds, held while one is read or changed.
    ///
    /// Taken before any fork's lock.
    pub rounds: RankedMutex<()>,
    /// Lock on reviews, held while one is changed.
    ///
    /// Taken before any fork's lock.
    pub reviews: RankedMutex<()>,
    /// Handoffs that are being made. Internally synchronised.
    ///
    /// Its lock is taken after any fork's lock, and held for moments.
    pub handoffs: HandoffRegistry,
    /// State of the thread that makes generations. Internally synchronised.
    pub generations: GenerationMaker,
    /// Buffers that editors have open. Internally synchronised.
    pub buffers: Buffers,
    /// Editors whose buffers mounts show. Internally synchronised.
    pub overlays: Overlays,
    /// Forks whose commits are to be taken over. Internally synchronised.
    pub take_over: TakeOver,
}

/// One fork in memory.
pub struct Slot {
    /// Name of the fork. Immutable.
    pub name: ForkName,
    /// The fork's lock. Its holder may change the fork; it protects no field.
    lock: RankedMutex<()>,
    state: RankedMutex<State>,
    /// State of taking over its commits. Internally synchronised.
    pub(super) take_over: TakeOverState,
}

#[derive(Default)]
struct State {
    /// Open fork, while it is mounted.
    fork: Option<Arc<Fork>>,
    mounted: Option<Mounted>,
    /// Refusals of the last mount, if the fork is untrusted.
    refusals: Option<Arc<Refusals>>,
    settled: Settled,
    /// Branch that was last written to the record, as a short name.
    branch: Option<String>,
    /// Time of the last periodic snapshot.
    ///
    /// Before the first one: the time of the first check whether one is due.
    snapshot_at: Option<Instant>,
    /// HEAD for which automatic settling failed.
    ///
    /// `Some(None)` is an unborn HEAD.
    settle_failed: Option<Option<ObjectId>>,
    /// Failure of automatic work. `tine list` shows it until the work succeeds.
    trouble: Option<Failure>,
    /// Note about automatic work. `tine list` shows it until the daemon ends.
    note: Option<String>,
}

struct Mounted {
    mount: Arc<FuseMount>,
    /// The fork's own git directory, as the mount shows it.
    git_dir: Option<Arc<GitDirectory>>,
    ending: Arc<MountEnd>,
    settings: MountSettings,
}

/// HEAD for which the layer was last settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Settled {
    /// Not settled since the daemon started, or to settle again.
    #[default]
    Never,
    /// The layer was settled for this HEAD; `None` is an unborn HEAD.
    At(Option<ObjectId>),
}

/// State of a mount's end: whether the daemon or an outside unmount ended it.
struct MountEnd(Mutex<Phase>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Live,
    /// The daemon is unmounting it.
    Unmounting,
    /// It ended while the daemon was unmounting it.
    Ended,
    /// It ended from outside; the unmount policy still has to be applied.
    Outside,
}

impl MountEnd {
    /// Records that the mount's session has ended; returns whether from outside.
    fn session_ended(&self) -> bool {
        let mut phase = self.0.lock();
        *phase = match *phase {
            Phase::Live | Phase::Outside => Phase::Outside,
            Phase::Unmounting | Phase::Ended => Phase::Ended,
        };
        *phase == Phase::Outside
    }

    /// Records that the daemon unmounts; false if it ended from outside.
    fn begin_unmount(&self) -> bool {
        let mut phase = self.0.lock();
        if *phase == Phase::Live {
            *phase = Phase::Unmounting;
        }
        *phase != Phase::Outside
    }

    /// Records that unmounting failed; returns whether the mount still exists.
    fn unmount_failed(&self) -> bool {
        let mut phase = self.0.lock();
        if *phase == Phase::Unmounting {
            *phase = Phase::Live;
        }
        *phase == Phase::Live
    }

    fn is_outside(&self) -> bool {
        *self.0.lock() == Phase::Outside
    }
}

impl Daemon {
    /// Makes the state of a daemon that has no fork open.
    ///
    /// `program` is the path of tine, if it is known.
    pub fn new(repository: Repository, store: Store, program: Option<PathBuf>) -> Arc<Daemon> {
        let daemon = Arc::new(Daemon {
            repository,
            store,
            program,
            started_secs: Timestamp::now().secs,
            slots: RankedMutex::new(Rank::Slots, BTreeMap::new()),
            stopping: AtomicBool::new(false),
            stopped: RankedMutex::new(Rank::Stopped, false),
            presence: Presence::default(),
            rounds: RankedMutex::new(Rank::Rounds, ()),
            reviews: RankedMutex::new(Rank::Reviews, ()),
            handoffs: HandoffRegistry::default(),
            generations: GenerationMaker::default(),
            buffers: Buffers::default(),
            overlays: Overlays::default(),
            take_over: TakeOver::default(),
        });
        let bringing = Arc::downgrade(&daemon);
        daemon.repository.set_bringer(Box::new(move |git_dir| {
            if let Some(daemon) = bringing.upgrade() {
                taking::bring_git_dir(&daemon, git_dir);
            }
        }));
        daemon
    }

    /// Returns the repository with git's configuration as it is now.
    ///
    /// A user may have followed a hint and set `user.name`.
    ///
    /// # Errors
    /// If a named pipe is in the place of refs, or the repository cannot be opened.
    pub fn repository_now(&self) -> Result<Repository, Failure> {
        self.repository.refuse_pipes()?;
        Ok(self.repository.reopened()?)
    }

    /// Returns the slot of `name`, and makes it if there is none.
    ///
    /// The fork need not exist.
    pub fn slot(&self, name: &ForkName) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        let slot = slots.entry(name.clone()).or_insert_with(|| {
            Arc::new(Slot {
                name: name.clone(),
                lock: RankedMutex::new(Rank::Fork, ()),
                state: RankedMutex::new(Rank::Slot, State::default()),
                take_over: TakeOverState::default(),
            })
        });
        slot.clone()
    }

    /// Returns the slot of `name` if the fork was requested before.
    pub fn known_slot(&self, name: &ForkName) -> Option<Arc<Slot>> {
        self.slots.lock().get(name).cloned()
    }

    /// Returns the fork whose mount contains `dir`, if any.
    pub fn fork_at(&self, dir: &Path) -> Option<ForkName> {
        let mounted = self.slots().into_iter().filter_map(|slot| {
            let mount_dir = slot.mount_dir().filter(|_| slot.is_mounted())?;
            relative_path(&mount_dir, dir)?;
            Some((mount_dir.as_os_str().len(), slot.name.clone()))
        });
        Some(mounted.max()?.1)
    }

    /// Returns all slots, sorted by name.
    pub fn slots(&self) -> Vec<Arc<Slot>> {
        self.slots.lock().values().cloned().collect()
    }

    /// Returns the number of mounted forks.
    pub fn mounts(&self) -> usize {
        self.slots().iter().filter(|slot| slot.is_mounted()).count()
    }

    /// Stops the daemon: refuses requests and runs `unmount_all`.
    ///
    /// Does nothing if the daemon is already stopped. If `unmount_all` fails, the daemon continues.
    ///
    /// # Errors
    /// The error of `unmount_all`.
    pub fn stop_with(
        &self,
        unmount_all: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut stopped = self.stopped.lock();
        if *stopped {
            return Ok(());
        }
        self.stopping.store(true, Ordering::SeqCst);
        let outcome = unmount_all();
        match &outcome {
            Ok(()) => {
                *stopped = true;
                self.handoffs.wake();
                self.generations.wake();
                self.buffers.wake();
                self.take_over.wake();
            }
            Err(_) => self.stopping.store(false, Ordering::SeqCst),
        }
        outcome
    }

    /// Refuses a request if the daemon is ending.
    ///
    /// The request has changed nothing, so the client sends it to the next daemon.
    ///
    /// # Errors
    /// [`ErrorCode::DaemonUnreachable`] if the daemon is ending.
    pub fn refuse_if_stopping(&self) -> Result<(), Failure> {
        if self.stopping.load(Ordering::SeqCst) {
            return Err(
                Failure::new(ErrorCode::DaemonUnreachable, "the daemon is ending")
                    .hint("try again in a moment"),
            );
        }
        Ok(())
    }

    /// Locks a fork for a request that changes it.
    ///
    /// The fork need not exist.
    ///
    /// Blocks while another request holds the lock. Applies the unmount policy if the mount ended
    /// from outside.
    ///
    /// # Errors
    /// [`ErrorCode::DaemonUnreachable`] if the daemon is ending. [`ErrorCode::LeaseHeld`] if a
    /// program that the daemon runs sent the request and the lock stays held: its holder may be
    /// waiting for that program.
    pub fn lock_fork<'a>(
        self: &'a Arc<Daemon>,
        slot: &'a Arc<Slot>,
    ) -> Result<ForkGuard<'a>, Failure> {
        let held = match slot.lock.try_lock() {
            Some(held) => held,
            None if asker::is_own_program() => slot
                .lock
                .try_lock_for(asker::PATIENCE)
                .ok_or_else(|| held_by_waiting_request(&slot.name))?,
            None => slot.lock.lock(),
        };
        let guard = self.guard_held(slot, held);
        self.refuse_if_stopping()?;
        Ok(guard)
    }

    /// Locks a fork even if the daemon is ending.
    ///
    /// The thread that stops the daemon uses it. Blocks.
    pub fn lock_even_stopping<'a>(self: &'a Arc<Daemon>, slot: &'a Arc<Slot>) -> ForkGuard<'a> {
        let held = slot.lock.lock();
        self.guard_held(slot, held)
    }

    fn guard_held<'a>(
        self: &'a Arc<Daemon>,
        slot: &'a Arc<Slot>,
        held: RankedGuard<'a, ()>,
    ) -> ForkGuard<'a> {
        let guard = ForkGuard {
            daemon: self,
            slot,
            _held: held,
        };
        guard.finish_outside_end();
        guard.bring_git_dir();
        guard
    }

    /// Maintains a fork every few seconds.
    ///
    /// Does nothing while a request holds the lock.
    ///
    /// It takes over commits, repairs the worktree's registration, adopts blobs after a commit by
    /// git in the mount, takes a snapshot if one is due, and writes changes to the disk.
    pub fn maintain(self: &Arc<Daemon>, slot: &Arc<Slot>) {
        let Some(held) = slot.lock.try_lock() else {
            return;
        };
        if self.refuse_if_stopping().is_err() {
            return;
        }
        let guard = ForkGuard {
            daemon: self,
            slot,
            _held: held,
        };
        guard.finish_outside_end();
        // Refs of the main repository may have moved, which the fork's follow, or a gc has ended.
        let taken = if slot.take_over.is_own() {
            taking::take_over(self, slot)
        } else {
            taking::take_over_if_pending(self, slot)
        };
        if let Err(failure) = taken {
            log::warn!("{}: its commits are not taken over: {failure}", slot.name);
        }
        let fork = slot.state.lock().fork.clone();
        if let Some(fork) = fork {
            guard.repair_worktree(&fork);
            guard.settle_quietly(&fork);
            guard.snapshot_if_due(&fork);
            guard.sync(&fork);
            fork.workspace.shrink();
        }
    }
}

impl Slot {
    /// Returns whether the fork is mounted.
    ///
    /// False also if its mount was ended from outside.
    pub fn is_mounted(&self) -> bool {
        let state = self.state.lock();
        state
            .mounted
            .as_ref()
            .is_some_and(|mounted| !mounted.ending.is_outside())
    }

    /// Returns the directory at which the fork is mounted now.
    pub fn mount_dir(&self) -> Option<PathBuf> {
        let state = self.state.lock();
        state
            .mounted
            .as_ref()
            .map(|mounted| mounted.mount.dir().to_owned())
    }

    /// Returns the git directory that the mount shows, and the mount.
    ///
    /// `None` if the fork is not mounted or is a linked worktree.
    pub(super) fn git_directory(&self) -> Option<(Arc<GitDirectory>, Arc<FuseMount>)> {
        let state = self.state.lock();
        let mounted = state.mounted.as_ref()?;
        Some((mounted.git_dir.clone()?, mounted.mount.clone()))
    }

    /// Makes the kernel forget what changed in the fork's git directory.
    pub(super) fn resync_git_dir(&self) {
        if let Some((directory, mount)) = self.git_directory() {
            let steps = directory.resync(|outdated| mount.invalidate(outdated));
            mount.tell_watchers(steps);
        }
    }

    /// Returns the changes that the fork's mount refused, the newest first.
    pub fn refused(&self) -> Vec<RefusedWrite> {
        let refusals = self.state.lock().refusals.clone();
        refusals.map_or_else(Vec::new, |refusals| refusals.refused())
    }

    /// Returns the settings of the fork's present mount.
    pub fn mount_settings(&self) -> Option<MountSettings> {
        let state = self.state.lock();
        state.mounted.as_ref().map(|mounted| mounted.settings)
    }

    /// Returns the open fork, while it is mounted.
    pub fn open_fork(&self) -> Option<Arc<Fork>> {
        self.state.lock().fork.clone()
    }

    /// Returns the mount's transport and its request counters.
    ///
    /// A counter has the name and number of one kind of request. `None` if the fork is not mounted.
    pub fn requests(&self) -> Option<(Transport, Vec<(&'static str, u64)>)> {
        let state = self.state.lock();
        let mount = &state.mounted.as_ref()?.mount;
        Some((mount.transport(), mount.counters()))
    }

    /// Returns the mount's transport and traffic; `None` if not mounted.
    ///
    /// With `watch` the mount counts reads and writes of each file for a while.
    pub fn traffic(&self, watch: bool) -> Option<(Transport, Traffic)> {
        let mount = self.state.lock().mounted.as_ref()?.mount.clone();
        Some((mount.transport(), mount.traffic(watch)))
    }

    /// Calls `read` with the fork, if it is open.
    ///
    /// The slot's state is locked meanwhile, so `read` must not block.
    pub fn with_open_fork<T>(&self, read: impl FnOnce(&Fork) -> T) -> Option<T> {
        self.state.lock().fork.as_deref().map(read)
    }

    /// Returns the note that `tine list` shows about automatic work.
    pub fn note(&self) -> Option<String> {
        self.state.lock().note.clone()
    }

    /// Sets the note that `tine list` shows until the daemon ends.
    pub fn set_note(&self, note: String) {
        self.state.lock().note = Some(note);
    }

    /// Returns the failure that `tine list` shows for the fork, if any.
    pub fn trouble(&self) -> Option<Failure> {
        let state = self.state.lock();
        if state
            .fork
            .as_ref()
            .is_some_and(|fork| fork.workspace.is_interrupted())
        {
            return Some(interrupted(&self.name));
        }
        state.trouble.clone()
    }

    /// Sets or clears the failure that `tine list` shows.
    pub fn set_trouble(&self, trouble: Option<Failure>) {
        self.state.lock().trouble = trouble;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending() -> MountEnd {
        MountEnd(Mutex::new(Phase::Live))
    }

    #[test]
    fn an_end_from_outside_is_told_from_our_own() {
        let outside = ending();
        assert!(outside.session_ended());
        assert!(outside.is_outside());
        assert!(!outside.begin_unmount(), "there is nothing left to unmount");

        let own = ending();
        assert!(own.begin_unmount());
        assert!(!own.session_ended());
        assert!(!own.is_outside());
    }

    #[test]
    fn a_mount_that_was_busy_can_still_end_from_outside() {
        let ending = ending();
        assert!(ending.begin_unmount());
        assert!(ending.unmount_failed(), "it is still there");
        assert!(ending.session_ended());
    }

    #[test]
    fn a_mount_that_ended_while_it_was_busy_is_ours() {
        let ending = ending();
        assert!(ending.begin_unmount());
        assert!(!ending.session_ended());
        assert!(!ending.unmount_failed(), "it is gone");
    }

    #[test]
    fn a_stop_that_fails_lets_the_daemon_go_on_and_one_that_succeeds_is_final() {
        let place = tine_git::testing::TestRepository::new();
        let repository = place.open();
        let store = Store::open(&repository).expect("a new store");
        let daemon = Daemon::new(repository, store, None);
        let slot = daemon.slot(&ForkName::parse("demo").expect("a good name"));
        let refused = daemon.stop_with(|| {
            assert!(
                daemon.lock_fork(&slot).is_err(),
                "nobody gets the lock meanwhile"
            );
            Err(Failure::new(ErrorCode::Busy, "in use"))
        });
        assert!(refused.is_err());
        assert!(daemon.lock_fork(&slot).is_ok());
        daemon.stop_with(|| Ok(())).expect("nothing keeps it");
        assert!(daemon.lock_fork(&slot).is_err());
        daemon
            .stop_with(|| unreachable!("everything is unmounted"))
            .expect("it has stopped");
    }
}
