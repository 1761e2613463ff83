//! The guard of one fork: what an operation may do to it while it holds the fork's lock.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::super::overlay;
use super::super::{lent_settings, place, room, strays, taking};
use crate::failure::{ErrorCode, Failure};
use crate::{monitor, policy};
use tine_change::{CommitOutcome, SettleOutcome, branches, fork_point};
use tine_dotgit::guarding::Refusals;
use tine_dotgit::{Callbacks, GitDirectory};
use tine_fuse::{FuseMount, MountError, MountOptions, UnmountMode};
use tine_git::own::alternates_of;
use tine_git::{Head, Repository, Worktree};
use tine_store::{
    Fork, ForkName, ForkRecord, MountSettings, SnapshotEvery, SnapshotOptions, SnapshotReason,
};
use tine_sys::ranked::RankedGuard;

use super::{Daemon, MountEnd, Mounted, Phase, Settled, Slot};

/// Makes the failure of a fork that a panic made read-only.
pub(super) fn interrupted(name: &ForkName) -> Failure {
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
    pub(super) slot: &'a Arc<Slot>,
    pub(super) _held: RankedGuard<'a, ()>,
}

impl Drop for ForkGuard<'_> {
    fn drop(&mut self) {
        self.tell_git_dir();
        if thread::panicking()
            && let Some(fork) = self.slot.open_fork()
        {
            fork.workspace.interrupt();
        }
    }
}

impl ForkGuard<'_> {
    /// Updates mount and main repository after changes in the git directory.
    ///
    /// An operation may have changed it. Does nothing for a linked worktree.
    fn tell_git_dir(&self) {
        if !self.slot.take_over.is_own() || thread::panicking() {
            return;
        }
        self.slot.resync_git_dir();
        if let Err(failure) = taking::take_over_if_moved(self.daemon, self.slot) {
            log::warn!("{}: its commits are not taken over: {failure}", self.name());
        }
    }

    /// Brings what git did in the fork to the main repository.
    ///
    /// That is what it committed and what it staged. Does nothing for a linked worktree.
    pub(super) fn bring_git_dir(&self) {
        taking::bring(self.daemon, self.slot);
        if let Err(failure) = taking::bring_staged(self.daemon, self.slot) {
            log::warn!("{}: what is staged is not brought: {failure}", self.name());
        }
    }

    /// Opens the fork's own git directory for a mount.
    ///
    /// `None` for a linked worktree.
    fn open_git_dir(
        &self,
        fork: &Arc<Fork>,
        dir: &Path,
    ) -> Result<Option<Arc<GitDirectory>>, Failure> {
        if !fork.worktree.is_own() {
            return Ok(None);
        }
        let untrusted = self.record()?.untrusted;
        let refusals = untrusted.then(|| self.refusals(dir));
        let repository = &self.daemon.repository;
        let (git_dir, main) = (fork.worktree.git_dir(), repository.common_dir());
        let borrowed = alternates_of(&main.join("objects"));
        let directory = GitDirectory::open(git_dir, main, &borrowed, self.name().as_str())
            .map_err(|error| Failure::io("open", git_dir, &error))?
            .guarded_by(refusals);
        let (daemon, slot) = (Arc::downgrade(self.daemon), Arc::downgrade(self.slot));
        let workspace = fork.workspace.clone();
        directory.set_callbacks(Callbacks {
            changed: Some(Arc::new(move |token| {
                monitor::answer(&workspace, std::str::from_utf8(token).ok()?)
            })),
            settings: Some(lent_settings::lender(repository, untrusted)),
            observer: Some(Arc::new(move |change| {
                if let (Some(daemon), Some(slot)) = (daemon.upgrade(), slot.upgrade()) {
                    taking::changed(&daemon, &slot, change);
                }
            })),
        });
        Ok(Some(Arc::new(directory)))
    }

    /// Returns the refusals of an untrusted fork for a mount at `dir`.
    ///
    /// They are those of the last mount if the place is the same.
    fn refusals(&self, dir: &Path) -> Arc<Refusals> {
        let mut state = self.slot.state.lock();
        let known = state.refusals.take();
        let refusals = known
            .filter(|known| known.mount_dir() == dir)
            .unwrap_or_else(|| {
                let name = self.name().as_str();
                Arc::new(Refusals::new(name, dir.to_owned()))
            });
        state.refusals = Some(refusals.clone());
        refusals
    }

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
                self.repair_worktree(&fork);
                Ok(fork)
            }
            None => Ok(self.daemon.store.open_fork(self.name())?),
        }
    }

    /// Repairs the worktree's registration and the fork's `.git` file.
    ///
    /// A program may have removed or damaged them.
    pub(super) fn repair_worktree(&self, fork: &Fork) {
        let name = self.name();
        let git_dir = fork.worktree.git_dir();
        let is_there = if fork.worktree.is_own() {
            Worktree::open_own(git_dir.to_owned()).is_ok()
        } else {
            git_dir.exists()
        };
        if !is_there && let Err(error) = self.daemon.store.worktree_of(name) {
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
    pub(super) fn note_branch(&self, repository: &Repository, head: &Head) {
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
    pub(super) fn settle_quietly(&self, fork: &Fork) {
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
    pub(super) fn snapshot_if_due(&self, fork: &Fork) {
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
    pub(super) fn sync(&self, fork: &Fork) {
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

    /// Writes changes to the disk if the fork is unmounted.
    ///
    /// The maintenance of mounted forks does not reach it.
    pub(crate) fn sync_if_unmounted(&self, fork: &Fork) -> Result<(), Failure> {
        if !self.is_mounted() {
            fork.workspace.sync()?;
        }
        Ok(())
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
        let ending = Arc::new(MountEnd(Mutex::new(Phase::Live)));
        let ended = ended_callback(
            Arc::downgrade(self.daemon),
            self.slot.clone(),
            ending.clone(),
        );
        let git_dir = self.open_git_dir(&fork, dir)?;
        let mount = FuseMount::start(fork.workspace.clone(), git_dir.clone(), &options, ended)?;
        log::info!("{} is mounted at {}", self.name(), dir.display());
        strays::import_strays(&self.daemon.store, self.name(), &fork, &mount);
        let mut state = self.slot.state.lock();
        state.fork = Some(fork);
        state.mounted = Some(Mounted {
            mount: Arc::new(mount),
            git_dir,
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
        if ending.begin_unmount()
            && let Err(error) = mount.unmount(mode)
            && ending.unmount_failed()
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
    pub(super) fn close(&self) {
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
    pub(super) fn finish_outside_end(&self) {
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
        // The policy may commit, merge or hand over what git has just done.
        self.bring_git_dir();
        if let Err(failure) = policy::after_outside_unmount(self) {
            let failure = policy_failed(self.name(), failure);
            log::error!("{failure}");
            self.set_trouble(Some(failure));
        }
    }
}

/// Adds to a policy's failure that all changes are kept.
pub(super) fn policy_failed(name: &ForkName, failure: Failure) -> Failure {
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
pub(super) fn ended_callback(
    daemon: Weak<Daemon>,
    slot: Arc<Slot>,
    ending: Arc<MountEnd>,
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
pub(super) fn held_by_waiting_request(name: &ForkName) -> Failure {
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
