//! What the daemon has in memory: one slot for each fork, with its open file system and its mount.
//!
//! Lock order: `stopped` → `rounds` → `reviews` → [`Daemon::slots`] (let go of at once) → a slot's
//! `guard` → the store's leases → that of `handoffs`, or that of `overlays` → the slot's `state` →
//! whatever store, workspace and mount lock themselves. `guard` is held for the whole of a request
//! that changes a fork and is what serialises those; `state` is held for moments only, never while
//! waiting for a mount, a disk or a lock of the left.
//!
//! A mount ends for one of two reasons, and [`Ending`] decides which: because the daemon unmounts
//! it, or because somebody else did (`umount`, `fusermount3 -u`). In the second case the fork's
//! policy is applied once, by whoever has the fork's next turn.

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

/// The daemon's whole state.
pub struct Daemon {
    /// Immutable.
    pub repository: Repository,
    /// Internally synchronised.
    pub store: Store,
    /// tine itself, for others to run. Immutable.
    pub program: Option<PathBuf>,
    /// Immutable.
    pub started_secs: i64,
    /// Forks that were asked for since the start. A slot stays for good, so that two requests for
    /// one name always meet in the same one.
    slots: RankedMutex<BTreeMap<ForkName, Arc<Slot>>>,
    /// Set while the daemon ends: no request gets a turn any more. Changed by who holds `stopped`
    /// only.
    stopping: AtomicBool,
    /// Whether everything is unmounted for good. Taken before any turn, by who stops the daemon.
    stopped: RankedMutex<bool>,
    /// Internally synchronised.
    pub presence: Presence,
    /// Held while a session of rounds is looked at or changed; taken before any turn.
    pub rounds: RankedMutex<()>,
    /// Held while a review is changed; taken before any turn.
    pub reviews: RankedMutex<()>,
    /// Internally synchronised; what it locks is taken after any turn, and held for moments.
    pub handoffs: HandoffRegistry,
    /// Internally synchronised.
    pub generations: GenerationMaker,
    /// Internally synchronised.
    pub buffers: Buffers,
    /// Internally synchronised.
    pub overlays: Overlays,
}

/// One fork in memory.
pub struct Slot {
    /// Immutable.
    pub name: ForkName,
    /// Protects nothing by itself: whoever has it may change the fork.
    lock: RankedMutex<()>,
    state: RankedMutex<State>,
}

#[derive(Default)]
struct State {
    /// The open fork, while it is mounted.
    fork: Option<Arc<Fork>>,
    mounted: Option<Mounted>,
    settled: Settled,
    /// The branch that the record was told last.
    branch: Option<String>,
    /// When a snapshot was last taken by policy, or could have been first.
    snapshot_at: Option<Instant>,
    /// The HEAD for which settling without being asked failed.
    settle_failed: Option<Option<ObjectId>>,
    /// What went wrong without anybody asking: shown by `list` until it is right again.
    trouble: Option<Failure>,
    /// What was done without anybody asking: shown by `list` as long as the daemon lives.
    note: Option<String>,
}

struct Mounted {
    mount: Arc<FuseMount>,
    ending: Arc<Ending>,
    settings: MountSettings,
}

/// The HEAD for which the layer was settled last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Settled {
    /// Not since the daemon started.
    #[default]
    Never,
    At(Option<ObjectId>),
}

/// Who ends a mount.
struct Ending(Mutex<Phase>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Live,
    /// The daemon is unmounting it.
    Ours,
    /// It ended while the daemon was unmounting it.
    Ended,
    /// It ended by itself: the policy is still to be applied.
    Outside,
}

impl Ending {
    /// The mount's session has ended; whether that came from outside.
    fn session_ended(&self) -> bool {
        let mut phase = self.0.lock();
        *phase = match *phase {
            Phase::Live | Phase::Outside => Phase::Outside,
            Phase::Ours | Phase::Ended => Phase::Ended,
        };
        *phase == Phase::Outside
    }

    /// The daemon wants to unmount; whether nobody else did before.
    fn claim(&self) -> bool {
        let mut phase = self.0.lock();
        if *phase == Phase::Live {
            *phase = Phase::Ours;
        }
        *phase != Phase::Outside
    }

    /// The daemon could not unmount; whether the mount is still there.
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

    /// The repository with the configuration that it has now: somebody may have followed a hint and
    /// set `user.name`.
    pub fn repository_now(&self) -> Result<Repository, Failure> {
        self.repository.refuse_pipes()?;
        Ok(self.repository.reopened()?)
    }

    /// The slot of `name`, whether there is such a fork or not.
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

    /// The slot of `name`, where somebody asked for the fork before.
    pub fn known_slot(&self, name: &ForkName) -> Option<Arc<Slot>> {
        self.slots.lock().get(name).cloned()
    }

    /// The fork in whose mount `dir` is, if it is in one.
    pub fn fork_at(&self, dir: &Path) -> Option<ForkName> {
        let mounted = self.slots().into_iter().filter_map(|slot| {
            let mount_dir = slot.mount_dir().filter(|_| slot.is_mounted())?;
            beneath(&mount_dir, dir)?;
            Some((mount_dir.as_os_str().len(), slot.name.clone()))
        });
        Some(mounted.max()?.1)
    }

    /// All slots, by name.
    pub fn slots(&self) -> Vec<Arc<Slot>> {
        self.slots.lock().values().cloned().collect()
    }

    pub fn mounts(&self) -> usize {
        self.slots().iter().filter(|slot| slot.is_mounted()).count()
    }

    /// Runs `unmount_all` while no request gets a turn; where it fails the daemon goes on. Who
    /// stops a daemon that is stopped already has nothing to do.
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

    /// Refuses a request that meets the daemon's end. Nothing was done for it: the client asks the
    /// next daemon.
    pub fn refuse_if_stopping(&self) -> Result<(), Failure> {
        match self.stopping.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(
                Failure::new(ErrorCode::DaemonUnreachable, "the daemon is ending")
                    .hint("try again in a moment"),
            ),
        }
    }

    /// Waits for the turn of a request that changes `name`, which need not exist.
    ///
    /// # Errors
    /// Where the daemon stops; where the fork stays busy and a program asks that the daemon runs,
    /// which the other request may wait for.
    pub fn lock_fork<'a>(
        self: &'a Arc<Daemon>,
        slot: &'a Arc<Slot>,
    ) -> Result<ForkGuard<'a>, Failure> {
        let held = match slot.lock.try_lock() {
            Some(held) => held,
            None if asker::is_own_program() => slot
                .lock
                .try_lock_for(asker::PATIENCE)
                .ok_or_else(|| held_by_who_waits(&slot.name))?,
            None => slot.lock.lock(),
        };
        let guard = self.guard_of(slot, held);
        self.refuse_if_stopping()?;
        Ok(guard)
    }

    /// As [`Daemon::guard`], for the one who stops the daemon.
    pub fn lock_even_stopping<'a>(self: &'a Arc<Daemon>, slot: &'a Arc<Slot>) -> ForkGuard<'a> {
        let held = slot.lock.lock();
        self.guard_of(slot, held)
    }

    fn guard_of<'a>(
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

    /// What is done for a fork every few seconds, unless a request has its turn: brings to the disk
    /// what was written, and lets contents leave the layer after a commit by git in the mount.
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
    /// Whether the fork is mounted (and its mount was not ended from outside).
    pub fn is_mounted(&self) -> bool {
        let state = self.state.lock();
        state
            .mounted
            .as_ref()
            .is_some_and(|mounted| !mounted.ending.is_outside())
    }

    /// Where the fork is mounted now.
    pub fn mount_dir(&self) -> Option<PathBuf> {
        let state = self.state.lock();
        state
            .mounted
            .as_ref()
            .map(|mounted| mounted.mount.dir().to_owned())
    }

    /// How the fork is mounted now.
    pub fn mount_settings(&self) -> Option<MountSettings> {
        let state = self.state.lock();
        state.mounted.as_ref().map(|mounted| mounted.settings)
    }

    /// The open fork, while it is mounted.
    pub fn open_fork(&self) -> Option<Arc<Fork>> {
        self.state.lock().fork.clone()
    }

    /// How requests come to the mount, and how many of each kind came, if the fork is mounted.
    pub fn requests(&self) -> Option<(Transport, Vec<(&'static str, u64)>)> {
        let state = self.state.lock();
        let mount = &state.mounted.as_ref()?.mount;
        Some((mount.transport(), mount.counters()))
    }

    /// How requests come to the mount, and what came, if the fork is mounted. With `watch` its
    /// files are counted for a while.
    pub fn traffic(&self, watch: bool) -> Option<(Transport, Traffic)> {
        let mount = self.state.lock().mounted.as_ref()?.mount.clone();
        Some((mount.transport(), mount.traffic(watch)))
    }

    /// Calls `read` with the open fork, if it is open. The slot's state is locked meanwhile:
    /// nothing that waits.
    pub fn with_open_fork<T>(&self, read: impl FnOnce(&Fork) -> T) -> Option<T> {
        self.state.lock().fork.as_deref().map(read)
    }

    pub fn note(&self) -> Option<String> {
        self.state.lock().note.clone()
    }

    pub fn set_note(&self, note: String) {
        self.state.lock().note = Some(note);
    }

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

    pub fn set_trouble(&self, trouble: Option<Failure>) {
        self.state.lock().trouble = trouble;
    }
}

/// A panic has ended that the fork takes changes.
fn interrupted(name: &ForkName) -> Failure {
    Failure::new(
        ErrorCode::ForkInterrupted,
        format!("{name} is read-only: a fault of tine interrupted a change"),
    )
    .hint(format!(
        "`tine unmount --keep {name}` and `tine mount {name}` open it anew, with all that was acknowledged"
    ))
}

/// The right to change one fork, for one request.
pub struct ForkGuard<'a> {
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
    pub fn name(&self) -> &ForkName {
        &self.slot.name
    }

    pub fn record(&self) -> Result<ForkRecord, Failure> {
        Ok(self.daemon.store.record(self.name())?)
    }

    pub fn update_record(
        &self,
        change: impl FnOnce(&mut ForkRecord),
    ) -> Result<ForkRecord, Failure> {
        Ok(self.daemon.store.update_record(self.name(), change)?)
    }

    pub fn is_mounted(&self) -> bool {
        self.slot.is_mounted()
    }

    pub fn set_trouble(&self, trouble: Option<Failure>) {
        self.slot.set_trouble(trouble);
    }

    /// The branch (short name) that the fork's HEAD is on.
    pub fn head_branch(&self, repository: &Repository) -> Result<Option<String>, Failure> {
        let worktree = self.daemon.store.worktree_of(self.name())?;
        let head = repository.head_of(worktree.git_dir())?;
        Ok(head.short_branch().map(str::to_owned))
    }

    /// The fork's file system: that of the mount, or opened for this request.
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

    /// Registers the worktree again, and writes the fork's `.git` file anew, where a program
    /// removed or damaged them.
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

    /// As [`ForkGuard::open`], after a look whether there is such a fork at all.
    pub fn open_existing(&self) -> Result<Arc<Fork>, Failure> {
        self.record()?;
        self.open()
    }

    /// Lets contents leave the layer that git has by now, if HEAD moved since the last time.
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
        // The layer's contents are changes to where the fork left its branch.
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

    /// Has the record name the branch that HEAD is on, which git may have exchanged or renamed in
    /// the mount.
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

    /// As [`ForkGuard::settle`] where nobody asked: not amid a rebase or the like, whose every step
    /// would be kept, and not again where it failed.
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

    /// Takes a snapshot where the fork's policy says so and something was written.
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

    /// Brings what was written to the disk.
    fn sync(&self, fork: &Fork) {
        if !fork.workspace.is_dirty() {
            return;
        }
        let trouble = fork.workspace.sync().err().map(|error| {
            Failure::from(error)
                .context(format!("{} could not be brought to the disk", self.name()))
        });
        // Tried every few seconds, said once.
        if let Some(failure) = &trouble
            && self.slot.trouble().as_ref() != Some(failure)
        {
            log::error!("{failure}");
        }
        self.set_trouble(trouble);
    }

    /// Notes for which HEAD a commit settled the layer.
    pub fn note_settled(&self, made: &CommitOutcome) {
        self.slot.state.lock().settled = match made.is_settled {
            true => Settled::At(Some(made.commit_id)),
            false => Settled::Never,
        };
    }

    /// Notes that the fork stands elsewhere now.
    pub fn forget_settled(&self) {
        self.slot.state.lock().settled = Settled::Never;
    }

    /// Mounts the fork at `dir`, which was found fit. A stale mount there is detached first.
    /// Records are the caller's.
    pub fn mount(&self, dir: &Path, settings: MountSettings) -> Result<(), Failure> {
        tine_fuse::detach_stale(dir)?;
        room::for_a_mount()?;
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

    /// As [`ForkGuard::mount`] where nobody waits for the outcome: a failure is logged and shown by
    /// `list`.
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

    /// Unmounts, if it is mounted, and closes the fork. Fails with [`ErrorCode::Busy`] and the
    /// users' names.
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
            // Between this turn's beginning and now. Only the flag is left to do, which every
            // caller sets.
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

    /// Where the fork is mounted now, and what the mount allows.
    pub fn mounted_as(&self) -> Option<(PathBuf, MountSettings)> {
        let state = self.slot.state.lock();
        let mounted = state.mounted.as_ref()?;
        Some((mounted.mount.dir().to_owned(), mounted.settings))
    }

    /// Forgets mount and open fork; what was written goes to the disk first.
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

    /// If the mount was ended from outside: closes the fork and does what its policy says.
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

/// What is told of a policy that failed after an unmount from outside: nothing is lost, and the way
/// on.
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

/// What a mount calls when its session has ended. The work is done by a thread of its own: it waits
/// for the fork's turn, and whoever has that may be waiting for the caller.
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
                // Taking the turn is what finishes it.
                drop(daemon.lock_fork(&slot));
            }
        };
        if let Err(error) = thread::Builder::new().name(name).spawn(finish) {
            log::error!("no thread for what follows an unmount, the next request does it: {error}");
        }
    })
}

/// A hook asks for a fork that the request which runs the hook may have.
fn held_by_who_waits(name: &ForkName) -> Failure {
    Failure::new(
        ErrorCode::LeaseHeld,
        format!("{name} is in use by a command that may be waiting for this program, which tine runs"),
    )
    .hint("let the hook do this in the background, or after the command: `post-merge` runs when nothing is held")
}

/// The mount is in use, by these processes.
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
