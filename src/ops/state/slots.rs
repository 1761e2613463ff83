//! The daemon's state in memory: a slot for each fork, with its open workspace and mount.
//!
//! Lock order: `stopped`, `rounds`, `reviews`, [`Daemon::slots`] (released at once), a slot's
//! `lock`, the store's leases, the lock of `handoffs` or that of `overlays`, the slot's `state`,
//! then the internal locks of store, workspace and mount. A request that changes a fork holds the
//! slot's `lock` for its whole duration, which serialises such requests. `state` is held for
//! moments only, never while waiting for a mount, a disk or a lock earlier in the order.
//!
//! A mount ends because the daemon unmounts it, or from outside (`umount`, `fusermount3 -u`).
//! `Ending` records which. In the second case the next holder of the fork's lock applies the
//! fork's unmount policy, once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::generations::GenerationMaker;
use super::handoffs::HandoffRegistry;
use super::overlay::{self, Overlays};
use super::presence::Presence;
use super::{place, room, strays};
use crate::failure::{ErrorCode, Failure};
use crate::{monitor, policy};
use tine_attr::Timestamp;
use tine_change::{CommitOutcome, SettleOutcome, branches, fork_point};
use tine_fuse::{FuseMount, MountError, MountOptions, Traffic, Transport, UnmountMode};
use tine_git::{Head, ObjectId, Repository};
use tine_sys::asker;
use tine_sys::ranked::{Rank, RankedGuard, RankedMutex};
use tine_tools::Buffers;
use tine_tools::path::beneath;
use tine_workspace::{
    Fork, ForkName, ForkRecord, MountSettings, SnapshotEvery, SnapshotOptions, SnapshotReason,
    Store,
};

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
}

/// One fork in memory.
pub struct Slot {
    /// Name of the fork. Immutable.
    pub name: ForkName,
    /// The fork's lock. Its holder may change the fork; it protects no field.
    lock: RankedMutex<()>,
    state: RankedMutex<State>,
}

#[derive(Default)]
struct State {
    /// Open fork, while it is mounted.
    fork: Option<Arc<Fork>>,
    mounted: Option<Mounted>,
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
    ending: Arc<Ending>,
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
struct Ending(Mutex<Phase>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Live,
    /// The daemon is unmounting it.
    Ours,
    /// It ended while the daemon was unmounting it.
    Ended,
    /// It ended from outside; the unmount policy still has to be applied.
    Outside,
}

impl Ending {
    /// Records that the mount's session has ended; returns whether from outside.
    fn session_ended(&self) -> bool {
        let mut phase = self.0.lock();
        *phase = match *phase {
            Phase::Live | Phase::Outside => Phase::Outside,
            Phase::Ours | Phase::Ended => Phase::Ended,
        };
        *phase == Phase::Outside
    }

    /// Records that the daemon unmounts; false if it ended from outside.
    fn claim(&self) -> bool {
        let mut phase = self.0.lock();
        if *phase == Phase::Live {
            *phase = Phase::Ours;
        }
        *phase != Phase::Outside
    }

    /// Records that unmounting failed; returns whether the mount still exists.
    fn give_back(&self) -> bool {
        let mut phase = self.0.lock();
        if *phase == Phase::Ours {
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
    pub fn new(repository: Repository, store: Store, program: Option<PathBuf>) -> Daemon {
        Daemon {
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
        }
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
            beneath(&mount_dir, dir)?;
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
        guard
    }

    /// Maintains a fork every few seconds.
    ///
    /// Does nothing while a request holds the lock.
    ///
    /// It repairs the worktree's registration, adopts blobs after a commit by git in the mount,
    /// takes a snapshot if one is due, and writes changes to the disk.
    pub fn look_after(self: &Arc<Daemon>, slot: &Arc<Slot>) {
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
        let fork = slot.state.lock().fork.clone();
        if let Some(fork) = fork {
            guard.mend(&fork);
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

/// Makes the failure of a fork that a panic made read-only.
fn interrupted(name: &ForkName) -> Failure {
    Failure::new(
        ErrorCode::ForkInterrupted,
        format!("{name} is read-only: a fault of tine interrupted a change"),
    )
    .hint(format!(
        "`tine unmount --keep {name}` and `tine mount {name}` open it again, with all that was acknowledged"
    ))
}

/// Guard of a fork's lock: the right of one request to change the fork.
///
/// If the request panics, dropping the guard makes the fork read-only.
pub struct ForkGuard<'a> {
    /// Daemon that has the fork.
    pub daemon: &'a Arc<Daemon>,
    slot: &'a Arc<Slot>,
    _held: RankedGuard<'a, ()>,
}

impl Drop for ForkGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking()
            && let Some(fork) = self.slot.open_fork()
        {
            fork.workspace.interrupt();
        }
    }
}

impl ForkGuard<'_> {
    /// Returns the fork's name.
    pub fn name(&self) -> &ForkName {
        &self.slot.name
    }

    /// Reads the fork's record.
    ///
    /// # Errors
    /// If there is no such fork, or its record cannot be read.
    pub fn record(&self) -> Result<ForkRecord, Failure> {
        Ok(self.daemon.store.record(self.name())?)
    }

    /// Changes the fork's record and writes it.
    ///
    /// # Errors
    /// If there is no such fork, or its record cannot be read or written.
    pub fn update_record(
        &self,
        change: impl FnOnce(&mut ForkRecord),
    ) -> Result<ForkRecord, Failure> {
        Ok(self.daemon.store.update_record(self.name(), change)?)
    }

    /// Returns whether the fork is mounted.
    pub fn is_mounted(&self) -> bool {
        self.slot.is_mounted()
    }

    /// Sets or clears the failure that `tine list` shows.
    pub fn set_trouble(&self, trouble: Option<Failure>) {
        self.slot.set_trouble(trouble);
    }

    /// Returns the branch (short name) that the fork's HEAD is on.
    ///
    /// `None` if HEAD is detached.
    ///
    /// # Errors
    /// If the fork's worktree or its HEAD cannot be read.
    pub fn head_branch(&self, repository: &Repository) -> Result<Option<String>, Failure> {
        let worktree = self.daemon.store.worktree_of(self.name())?;
        let head = repository.head_of(worktree.git_dir())?;
        Ok(head.short_branch().map(str::to_owned))
    }

    /// Returns the mount's open fork, or opens the fork for this request.
    ///
    /// # Errors
    /// If the store cannot open the fork.
    pub fn open(&self) -> Result<Arc<Fork>, Failure> {
        let open = self.slot.state.lock().fork.clone();
        match open {
            Some(fork) => {
                self.mend(&fork);
                Ok(fork)
            }
            None => Ok(self.daemon.store.open_fork(self.name())?),
        }
    }

    /// Repairs the worktree's registration and the fork's `.git` file.
    ///
    /// A program may have removed or damaged them.
    fn mend(&self, fork: &Fork) {
        let name = self.name();
        if !fork.worktree.git_dir().exists()
            && let Err(error) = self.daemon.store.worktree_of(name)
        {
            log::warn!("{name}: its worktree is gone: {error}");
        }
        if let Err(error) = fork.mend_dot_git() {
            log::warn!("{name}: `.git` leads nowhere: {error}");
        }
    }

    /// Checks that the fork exists, and opens it as [`ForkGuard::open`] does.
    ///
    /// # Errors
    /// [`ErrorCode::NoSuchFork`] if there is no such fork; or if it cannot be opened.
    pub fn open_existing(&self) -> Result<Arc<Fork>, Failure> {
        self.record()?;
        self.open()
    }

    /// Adopts blobs of HEAD if HEAD moved since the last time.
    ///
    /// Contents of the layer that are blobs in HEAD are freed.
    ///
    /// # Errors
    /// If HEAD or its objects cannot be read, or the layer cannot be written.
    pub fn settle(&self, repository: &Repository, fork: &Fork) -> Result<(), Failure> {
        if fork.workspace.is_interrupted() {
            return Ok(());
        }
        let head = repository.head_of(fork.worktree.git_dir())?;
        self.note_branch(repository, &head);
        let head = head.commit_id();
        let settled = self.slot.state.lock().settled;
        if settled == Settled::At(head) {
            return Ok(());
        }
        // The layer's contents are changes against the commit where the fork left its branch.
        if repository
            .moved_under(&fork.worktree, self.name().as_str(), &fork.made_on)?
            .is_some()
        {
            return Ok(());
        }
        let last_head = match settled {
            Settled::Never => None,
            Settled::At(head) => head,
        };
        if let Some(head) = head {
            let last = repository.kept_as(self.name().as_str(), "head")?;
            if let Err(error) =
                fork_point::follow(&self.daemon.store, repository, self.name(), last, head)
            {
                log::warn!(
                    "{}: the fork point is not brought along: {error}",
                    self.name()
                );
            }
        }
        match tine_change::commit::settle(repository, self.name(), fork, last_head)? {
            SettleOutcome::Settled(adopted) => {
                log::debug!("{}: {adopted} contents left the layer", self.name());
                self.slot.state.lock().settled = Settled::At(head);
            }
            SettleOutcome::Later => {}
        }
        Ok(())
    }

    /// Writes the branch that HEAD is on to the fork's record.
    ///
    /// git may have switched or renamed it in the mount.
    fn note_branch(&self, repository: &Repository, head: &Head) {
        let branch = head.short_branch().map(str::to_owned);
        if self.slot.state.lock().branch == branch {
            return;
        }
        match branches::note_head(&self.daemon.store, repository, self.name(), head) {
            Ok(()) => self.slot.state.lock().branch = branch,
            Err(error) => log::warn!("{}: {error}", self.name()),
        }
    }

    /// Settles the fork without a request; logs a failure.
    ///
    /// Skips a fork amid a rebase or the like, because each step would be kept. Skips a HEAD for
    /// which settling failed.
    fn settle_quietly(&self, fork: &Fork) {
        if fork.worktree.operation_in_progress().is_some() {
            return;
        }
        let repository = &self.daemon.repository;
        let Ok(head) = repository.head_of(fork.worktree.git_dir()) else {
            return;
        };
        let head = head.commit_id();
        if self.slot.state.lock().settle_failed == Some(head) {
            return;
        }
        if let Err(failure) = self.settle(repository, fork) {
            log::warn!("{} could not be settled: {failure}", self.name());
            self.slot.state.lock().settle_failed = Some(head);
        }
    }

    /// Takes a snapshot if the policy requires it and the fork changed.
    fn snapshot_if_due(&self, fork: &Fork) {
        let Ok(Some(every)) = self.record().map(|record| record.snapshot_every) else {
            return;
        };
        let since = *self
            .slot
            .state
            .lock()
            .snapshot_at
            .get_or_insert_with(Instant::now);
        let is_due = match every {
            SnapshotEvery::Secs(secs) => since.elapsed() >= Duration::from_secs(secs),
            SnapshotEvery::Changes(changes) => fork.workspace.steps() >= changes,
        };
        if !is_due || fork.workspace.is_unwritten() {
            return;
        }
        let (store, options) = (
            &self.daemon.store,
            SnapshotOptions::because(SnapshotReason::Periodic),
        );
        let taken = store
            .take_snapshot(self.name(), fork, &options)
            .and_then(|_| store.thin_snapshots(self.name()))
            .and_then(|_| store.merge_if_deep(self.name()));
        if let Err(error) = taken {
            log::error!("{}: no snapshot: {error}", self.name());
        }
        self.slot.state.lock().snapshot_at = Some(Instant::now());
    }

    /// Writes changes to the disk.
    fn sync(&self, fork: &Fork) {
        if !fork.workspace.is_dirty() {
            return;
        }
        let trouble = fork.workspace.sync().err().map(|error| {
            Failure::from(error)
                .context(format!("{} could not be brought to the disk", self.name()))
        });
        // Retried every few seconds; logged only when the failure changes.
        if let Some(failure) = &trouble
            && self.slot.trouble().as_ref() != Some(failure)
        {
            log::error!("{failure}");
        }
        self.set_trouble(trouble);
    }

    /// Records the HEAD for which a commit settled the layer.
    pub fn note_settled(&self, made: &CommitOutcome) {
        self.slot.state.lock().settled = if made.is_settled {
            Settled::At(Some(made.commit_id))
        } else {
            Settled::Never
        };
    }

    /// Forgets the settled HEAD, because an operation moved the fork.
    pub fn forget_settled(&self) {
        self.slot.state.lock().settled = Settled::Never;
    }

    /// Mounts the fork at `dir`, which the caller has checked.
    ///
    /// Detaches a stale mount there first. The caller updates the fork's record.
    ///
    /// # Errors
    /// If too few descriptors are free, the fork cannot be opened, or the mount fails.
    pub fn mount(&self, dir: &Path, settings: MountSettings) -> Result<(), Failure> {
        tine_fuse::detach_stale(dir)?;
        room::check_free_for_mount()?;
        let fork = self.open()?;
        monitor::update(self.daemon, self.name(), &fork);
        let options = MountOptions {
            dir: dir.to_owned(),
            name: self.name().to_string(),
            settings,
            transport: place::transport(&self.daemon.repository)?,
            guarded: true,
        };
        let ending = Arc::new(Ending(Mutex::new(Phase::Live)));
        let ended = ended_callback(
            Arc::downgrade(self.daemon),
            self.slot.clone(),
            ending.clone(),
        );
        let mount = FuseMount::start(fork.workspace.clone(), &options, ended)?;
        log::info!("{} is mounted at {}", self.name(), dir.display());
        strays::under(&self.daemon.store, self.name(), &fork, &mount);
        let mut state = self.slot.state.lock();
        state.fork = Some(fork);
        state.mounted = Some(Mounted {
            mount: Arc::new(mount),
            ending,
            settings,
        });
        state.trouble = None;
        drop(state);
        overlay::show_all(self.daemon, self.slot);
        Ok(())
    }

    /// Mounts the fork; logs a failure and shows it in `tine list`.
    pub fn mount_or_note(&self, dir: PathBuf, settings: MountSettings) {
        if let Err(failure) = self.mount(&dir, settings) {
            let failure = failure.context(format!(
                "{} could not be mounted at {}",
                self.name(),
                dir.display()
            ));
            log::error!("{failure}");
            self.set_trouble(Some(failure));
        }
    }

    /// Unmounts the fork if it is mounted, and closes it.
    ///
    /// # Errors
    /// [`ErrorCode::Busy`] with the names of the processes that use the mount; or the error of
    /// unmounting.
    pub fn unmount(&self, mode: UnmountMode) -> Result<(), Failure> {
        let (mount, ending) = match &self.slot.state.lock().mounted {
            Some(mounted) => (mounted.mount.clone(), mounted.ending.clone()),
            None => return Ok(()),
        };
        if ending.claim()
            && let Err(error) = mount.unmount(mode)
            && ending.give_back()
        {
            return Err(match error {
                MountError::Busy(dir) => busy(self.name(), &dir, tine_fuse::users_of(&dir)),
                other => other.into(),
            });
        }
        if ending.is_outside() {
            // It ended after this guard was taken. Only the record's flag is left to set, which
            // every caller does.
            log::debug!("{}: somebody else unmounted it first", self.name());
        }
        log::info!(
            "{} is unmounted from {}",
            self.name(),
            mount.dir().display()
        );
        drop(mount);
        self.close();
        Ok(())
    }

    /// Returns the directory and the settings of the present mount.
    pub fn mounted_as(&self) -> Option<(PathBuf, MountSettings)> {
        let state = self.slot.state.lock();
        let mounted = state.mounted.as_ref()?;
        Some((mounted.mount.dir().to_owned(), mounted.settings))
    }

    /// Drops mount and open fork, after writing changes to the disk.
    fn close(&self) {
        let fork = {
            let mut state = self.slot.state.lock();
            state.mounted = None;
            state.fork.take()
        };
        if let Some(fork) = fork {
            self.sync(&fork);
        }
    }

    /// Closes the fork and applies its policy after an outside unmount.
    fn finish_outside_end(&self) {
        let ended_outside = {
            let state = self.slot.state.lock();
            state
                .mounted
                .as_ref()
                .is_some_and(|mounted| mounted.ending.is_outside())
        };
        if !ended_outside {
            return;
        }
        self.close();
        log::info!("{} was unmounted from outside", self.name());
        if let Err(failure) = policy::after_outside_unmount(self) {
            let failure = policy_failed(self.name(), failure);
            log::error!("{failure}");
            self.set_trouble(Some(failure));
        }
    }
}

/// Adds to a policy's failure that all changes are kept.
fn policy_failed(name: &ForkName, failure: Failure) -> Failure {
    let kept = format!(
        "the changes are kept: `tine commit {name} -m MESSAGE` commits them, `tine mount {name}` goes on with them"
    );
    let hint = match &failure.hint {
        Some(first) => format!("{first}; {kept}"),
        None => kept,
    };
    failure
        .context(format!(
            "{name} was unmounted, but its policy could not be applied; the layer is as it was"
        ))
        .hint(hint)
}

/// Returns the callback that a mount calls when its session has ended.
///
/// A new thread does the work: it waits for the fork's lock, whose holder may be waiting for the
/// caller.
fn ended_callback(
    daemon: Weak<Daemon>,
    slot: Arc<Slot>,
    ending: Arc<Ending>,
) -> Box<dyn FnOnce() + Send> {
    Box::new(move || {
        if !ending.session_ended() {
            return;
        }
        let name = format!("ended-{}", slot.name);
        let finish = move || {
            if let Some(daemon) = daemon.upgrade() {
                // Locking the fork applies the policy.
                drop(daemon.lock_fork(&slot));
            }
        };
        if let Err(error) = thread::Builder::new().name(name).spawn(finish) {
            log::error!("no thread for what follows an unmount, the next request does it: {error}");
        }
    })
}

/// Makes the failure of a hook whose fork is locked.
///
/// The lock's holder may be the command that runs the hook.
fn held_by_waiting_request(name: &ForkName) -> Failure {
    Failure::new(
        ErrorCode::LeaseHeld,
        format!("{name} is in use by a command that may be waiting for this program, which tine runs"),
    )
    .hint("let the hook do this in the background, or after the command: `post-merge` runs when nothing is held")
}

/// Makes the failure of a mount that these processes use.
///
/// Each of `users` is a process id and a command name.
pub fn busy(name: &ForkName, dir: &Path, users: Vec<(u32, String)>) -> Failure {
    let failure = Failure::new(
        ErrorCode::Busy,
        format!("{name} is in use at {}", dir.display()),
    )
    .hint("end these programs or let them leave the directory, or add `--force`");
    users.into_iter().fold(failure, |failure, (pid, command)| {
        failure.cause(format!("{command} (process {pid})"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending() -> Ending {
        Ending(Mutex::new(Phase::Live))
    }

    #[test]
    fn an_end_from_outside_is_told_from_our_own() {
        let outside = ending();
        assert!(outside.session_ended());
        assert!(outside.is_outside());
        assert!(!outside.claim(), "there is nothing left to unmount");

        let own = ending();
        assert!(own.claim());
        assert!(!own.session_ended());
        assert!(!own.is_outside());
    }

    #[test]
    fn a_mount_that_was_busy_can_still_end_from_outside() {
        let ending = ending();
        assert!(ending.claim());
        assert!(ending.give_back(), "it is still there");
        assert!(ending.session_ended());
    }

    #[test]
    fn a_mount_that_ended_while_it_was_busy_is_ours() {
        let ending = ending();
        assert!(ending.claim());
        assert!(!ending.session_ended());
        assert!(!ending.give_back(), "it is gone");
    }

    #[test]
    fn a_stop_that_fails_lets_the_daemon_go_on_and_one_that_succeeds_is_final() {
        let place = tine_git::testing::TestRepository::new();
        let repository = place.open();
        let store = Store::open(&repository).expect("a new store");
        let daemon = Arc::new(Daemon::new(repository, store, None));
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
