//! Mounts and unmounts forks, and mounts them again after a daemon died.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{handoffs, target};
use crate::failure::{ErrorCode, Failure};
use crate::making::MountFlags;
use crate::operation::{Call, Operation};
use crate::policy::Signers;
use crate::protocol::{ForkInfo, SnapshotPolicy, UnmountAction, Unmounted};
use crate::state::place;
use crate::state::slots::{Daemon, ForkGuard};
use crate::{policy, report};
use tine_change::{advance, checkout, with_git};
use tine_fuse::UnmountMode;
use tine_git::Repository;
use tine_path::text::optional_host_path;
use tine_store::default_mount_root;
use tine_store::{ForkName, ForkRecord, MountRequest, MountSettings, SnapshotEvery};
use tine_workspace::Actor;

/// Mount a fork and print its path
///
/// A fork that is mounted already stays where it is. With --at the place is remembered.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine mount fix-parser
  tine mount fix-parser --at /srv/agents/3
  tine mount fix-parser --overlay-buffers     tests read what you have typed and not saved")]
pub struct Mount {
    /// The fork
    #[arg(value_name = "NAME")]
    pub fork: ForkName,

    /// Where to mount; an empty or missing directory [default: where it was last]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    #[serde(default, with = "optional_host_path")]
    pub at: Option<PathBuf>,

    /// Take a snapshot every so often from now on, as with `tine new`; or `never`
    #[arg(long, value_name = "30s|100ops|never", value_parser = snapshot_policy)]
    #[serde(default)]
    pub snapshot_every: Option<SnapshotPolicy>,

    /// Options that `tine new` also takes.
    #[command(flatten)]
    #[serde(flatten)]
    pub settings: MountFlags,
}

fn snapshot_policy(word: &str) -> Result<SnapshotPolicy, String> {
    match word {
        "never" => Ok(SnapshotPolicy::Never),
        _ => SnapshotEvery::try_from(word.to_owned()).map(SnapshotPolicy::Every),
    }
}

impl Mount {
    /// Returns the operation that mounts `fork` where and how it was last.
    pub fn of(fork: ForkName) -> Mount {
        Mount {
            fork,
            at: None,
            snapshot_every: None,
            settings: MountFlags::default(),
        }
    }
}

impl Operation for Mount {
    const NAME: &'static str = "mount";
    const PROGRESS: &'static str = "mounting";
    type Answer = ForkInfo;

    fn run(self, call: &Call<'_>) -> Result<ForkInfo, Failure> {
        mount(
            call.daemon,
            &self.fork,
            self.at,
            self.settings.request(),
            self.snapshot_every,
        )
    }
}

/// Unmount a fork and keep, commit, merge or discard its changes
///
/// Without a flag the fork's own policy decides (`tine new --on-unmount`), as it does after a plain
/// `umount`. What is discarded is kept as a snapshot, from which it can be brought back. What is
/// committed goes through the hooks that `tine commit` runs; one that refuses leaves the fork
/// mounted.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine unmount fix-parser
  tine unmount fix-parser --commit -m 'Fix the parser'
  tine unmount fix-parser --merge=main
  tine unmount fix-parser --handoff --include-uncommitted
  tine unmount fix-parser --discard")]
pub struct Unmount {
    /// The fork [default: the one whose mount this is]
    #[arg(value_name = "NAME")]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// Leave the changes in the layer
    #[arg(long, group = "action")]
    #[serde(default)]
    pub keep: bool,

    /// Commit the changes to the fork's branch
    #[arg(long, group = "action", requires = "message")]
    #[serde(default)]
    pub commit: bool,

    /// Throw the changes away
    #[arg(long, group = "action")]
    #[serde(default)]
    pub discard: bool,

    /// Commit the changes and merge them into a fork or branch [default: the branch that the fork
    /// came from]; conflicts become a review
    #[arg(long, group = "action", value_name = "TARGET", num_args = 0..=1, default_missing_value = "", require_equals = true)]
    #[serde(default)]
    pub merge: Option<String>,

    /// Hand over what is committed, as `tine handoff create` does
    #[arg(long, group = "action")]
    #[serde(default)]
    pub handoff: bool,

    /// The fork or branch that is to apply it [default: what the fork came from]
    #[arg(long, value_name = "PARENT", requires = "handoff")]
    #[serde(default)]
    pub to: Option<String>,

    /// Commit what is not committed before it is handed over
    #[arg(long, requires = "handoff")]
    #[serde(default)]
    pub include_uncommitted: bool,

    /// Hand over also what takes commits of others back, after `tine restore --exact` in the fork
    #[arg(long, requires = "handoff")]
    #[serde(default)]
    pub allow_revert: bool,

    /// The commit's message
    #[arg(short, long, value_name = "MSG", requires = "action", conflicts_with_all = ["keep", "discard"])]
    #[serde(default)]
    pub message: Option<String>,

    /// Detach the mount even while programs use it
    #[arg(short, long)]
    #[serde(default)]
    pub force: bool,
}

impl Unmount {
    /// Returns the action of the flags. `None` means the fork's own policy.
    pub fn action(&self) -> Option<UnmountAction> {
        if self.handoff {
            return Some(UnmountAction::Handoff {
                to: self.to.clone(),
                include_uncommitted: self.include_uncommitted,
                message: self.message.clone(),
                allow_revert: self.allow_revert,
            });
        }
        match (&self.merge, &self.message, self.keep, self.discard) {
            (Some(into), message, ..) => Some(UnmountAction::Merge {
                into: (!into.is_empty()).then(|| into.clone()),
                message: message.clone(),
            }),
            (None, Some(message), ..) => Some(UnmountAction::Commit {
                message: message.clone(),
            }),
            (None, None, true, _) => Some(UnmountAction::Keep),
            (None, None, false, true) => Some(UnmountAction::Discard),
            (None, None, false, false) => None,
        }
    }
}

impl Operation for Unmount {
    const NAME: &'static str = "unmount";
    const PROGRESS: &'static str = "unmounting";
    type Answer = Unmounted;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn frees_space(&self) -> bool {
        matches!(
            self.action(),
            None | Some(UnmountAction::Keep | UnmountAction::Discard)
        )
    }

    fn run(self, call: &Call<'_>) -> Result<Unmounted, Failure> {
        let by = Actor {
            command: "tine unmount --merge",
            ..call.by()
        };
        let action = self.action();
        let fork = call.fork(self.fork)?;
        unmount(call.daemon, by, &fork, action, self.force, call.signers())
    }
}

/// Mounts again the forks that a dead daemon had mounted.
///
/// It first detaches the mounts that are left. A failure is logged and shown by `list`, and does
/// not affect the other forks.
pub fn recover(daemon: &Arc<Daemon>) {
    if let Err(failure) = settle_places(daemon) {
        log::error!("the mount places stay where they were: {failure}");
    }
    let (records, damaged) = daemon.store.records();
    for error in damaged {
        log::error!("{error}");
    }
    match daemon.repository_now() {
        Ok(repository) => checkout::finish(&daemon.store, &repository, None),
        Err(failure) => log::error!("{failure}"),
    }
    for record in records {
        let slot = daemon.slot(&record.name);
        let guard = daemon.lock_even_stopping(&slot);
        if record.advancing.is_some()
            && let Err(failure) = finish_advance(&guard)
        {
            let failure = failure.context(format!(
                "a merge into {} could not be finished",
                record.name
            ));
            log::error!("{failure}");
            guard.set_trouble(Some(failure));
        }
        if record.restoring.is_some()
            && let Err(failure) = finish_restore(&guard)
        {
            let failure = failure.context(format!(
                "HEAD, refs and index of {} could not be restored with its files",
                record.name
            ));
            log::error!("{failure}");
            guard.set_trouble(Some(failure));
        }
        if record.mounted {
            guard.mount_or_note(record.mount_dir, record.settings);
        } else {
            leave_place(&record.mount_dir);
        }
    }
    // These guards are of forks that exist no more.
    for dir in tine_fuse::guards_below(&default_mount_root(daemon.repository.checkout_dir())) {
        let (records, _) = daemon.store.records();
        if !records
            .iter()
            .any(|record| record.mounted && record.mount_dir == dir)
        {
            tine_fuse::remove_guard(&dir);
        }
    }
}

/// Removes a dead daemon's mount and guard from an unused place.
fn leave_place(dir: &Path) {
    if let Err(error) = tine_fuse::detach_stale(dir) {
        log::error!("{}: {error}", dir.display());
    }
    tine_fuse::remove_guard(dir);
}

/// Gives forks of a moved or copied repository new mount places.
///
/// The places in the records belong to the repository that was there before, or to the original.
fn settle_places(daemon: &Arc<Daemon>) -> Result<(), Failure> {
    let store = &daemon.store;
    let Some(displaced) = store.displaced() else {
        return Ok(store.settle_home()?);
    };
    let repository = daemon.repository_now()?;
    let (records, _) = store.records();
    for record in records {
        let name = &record.name;
        // A fork carries from this repository's main checkout, and the kept trees are in this
        // store.
        if let Some(checkout) = repository.main_checkout() {
            store.update_record(name, |record| {
                if let Some(carry) = &mut record.carry {
                    checkout.clone_into(&mut carry.from);
                }
            })?;
        }
        let dir = if displaced.is_copy {
            own_dir(&repository, name)?
        } else {
            store.followed(&displaced, &record.mount_dir)
        };
        if dir == record.mount_dir {
            continue;
        }
        store.update_record(name, |record| record.mount_dir = dir.clone())?;
        // A damaged worktree must not stop the other forks.
        if let Err(failure) = relocate(daemon, name, &dir) {
            log::error!("{name}: {failure}");
            daemon.slot(name).set_trouble(Some(failure));
        }
        let came = if displaced.is_copy {
            "the repository is a copy of"
        } else {
            "the repository was moved from"
        };
        let note = format!(
            "its mount place is {} now: {came} {}",
            dir.display(),
            displaced.from.display()
        );
        log::warn!("{name}: {note}");
        daemon.slot(name).set_note(note);
        if !displaced.is_copy {
            leave_place(&record.mount_dir);
            remove_default_place(&record.mount_dir);
        }
    }
    Ok(store.settle_home()?)
}

/// Sets the path of the fork's checkout in git's worktree data.
fn relocate(daemon: &Arc<Daemon>, name: &ForkName, dir: &Path) -> Result<(), Failure> {
    Ok(daemon.store.worktree_of(name)?.relocate(dir)?)
}

/// Returns the default mount place of a copied repository's fork.
///
/// It must not be a place of the original.
fn own_dir(repository: &Repository, name: &ForkName) -> Result<PathBuf, Failure> {
    let root = default_mount_root(repository.checkout_dir());
    let dir = place::default_dir(repository, name)?;
    let is_shared = repository.has_setting("tine", "mountRoot") && !dir.starts_with(&root);
    Ok(if is_shared {
        // The copied configuration has an absolute `tine.mountRoot`.
        root.join(name.as_str())
    } else {
        dir
    })
}

/// Removes an empty default mount place, and its root if empty.
fn remove_default_place(dir: &Path) {
    let is_default = dir.parent().is_some_and(|root| {
        root.extension()
            .is_some_and(|extension| extension == "forks")
    });
    if is_default && fs::remove_dir(dir).is_ok() {
        // The root holds other places, or is gone.
        let _ = dir.parent().map(fs::remove_dir);
    }
}

/// Finishes a move of the fork that a dead daemon began.
fn finish_advance(guard: &ForkGuard<'_>) -> Result<(), Failure> {
    let daemon = guard.daemon;
    let repository = daemon.repository_now()?;
    advance::finish(&daemon.store, &repository, guard.name(), &*guard.open()?)?;
    Ok(())
}

fn finish_restore(guard: &ForkGuard<'_>) -> Result<(), Failure> {
    let daemon = guard.daemon;
    let repository = daemon.repository_now()?;
    with_git::finish(&daemon.store, &repository, guard.name(), &*guard.open()?)?;
    Ok(())
}

pub(crate) fn mount(
    daemon: &Arc<Daemon>,
    name: &ForkName,
    dir: Option<PathBuf>,
    request: MountRequest,
    snapshot_every: Option<SnapshotPolicy>,
) -> Result<ForkInfo, Failure> {
    let slot = daemon.slot(name);
    let guard = daemon.lock_fork(&slot)?;
    let mut record = guard.record()?;
    if let Some(policy) = snapshot_every {
        record = guard.update_record(|record| {
            record.snapshot_every = match policy {
                SnapshotPolicy::Every(every) => Some(every),
                SnapshotPolicy::Never => None,
            };
        })?;
    }
    let dir = dir.unwrap_or_else(|| record.mount_dir.clone());
    if let Some((mounted_at, settings)) = guard.mounted_as() {
        if settings.with(request) != settings {
            return Err(Failure::new(
                ErrorCode::Busy,
                format!("{name} is mounted already, and not with these settings"),
            )
            .hint(format!("unmount it first: `tine unmount --keep {name}`")));
        }
        if mounted_at != dir && dir.canonicalize().ok().as_ref() != Some(&mounted_at) {
            return Err(Failure::new(
                ErrorCode::Busy,
                format!("{name} is mounted already, at {}", mounted_at.display()),
            )
            .hint(format!("unmount it first: `tine unmount --keep {name}`")));
        }
        return report::fork_info(daemon, &slot, &record);
    }
    // A stale mount must be detached before its directory can be read.
    tine_fuse::detach_stale(&dir)?;
    let (forks, _) = daemon.store.records();
    let dir = place::check(&daemon.repository, &forks, name, &dir)?;
    let settings = record.settings.with(request);
    let place_before = record.mount_dir.clone();
    if let Err(failure) = guard.mount(&dir, settings) {
        if !(record.mounted && place_before == dir) {
            tine_fuse::remove_guard(&dir);
        }
        return Err(failure);
    }
    if place_before != dir {
        leave_place(&place_before);
        remove_default_place(&place_before);
    }
    match remember(&guard, &record, dir, settings) {
        Ok(record) => report::fork_info(daemon, &slot, &record),
        Err(failure) => {
            if let Err(unmount_failure) = guard.unmount(UnmountMode::Force) {
                log::error!("{unmount_failure}");
            }
            Err(failure)
        }
    }
}

/// Records how the fork is mounted, for git and for tine.
fn remember(
    guard: &ForkGuard<'_>,
    record: &ForkRecord,
    dir: PathBuf,
    settings: MountSettings,
) -> Result<ForkRecord, Failure> {
    if record.mount_dir != dir {
        guard.open()?.worktree.relocate(&dir)?;
    }
    guard.update_record(|record| {
        record.mount_dir = dir;
        record.settings = settings;
        record.mounted = true;
    })
}

pub(crate) fn unmount(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    name: &ForkName,
    action: Option<UnmountAction>,
    force: bool,
    signers: Signers,
) -> Result<Unmounted, Failure> {
    let slot = daemon.slot(name);
    let guard = daemon.lock_fork(&slot)?;
    let record = guard.record()?;
    // A policy applies at the end of a mount. Without a mount only a requested action is done.
    let asked_to_act = matches!(
        action,
        Some(
            UnmountAction::Commit { .. }
                | UnmountAction::Discard
                | UnmountAction::Merge { .. }
                | UnmountAction::Handoff { .. }
        )
    );
    if !guard.is_mounted() && !record.mounted && !asked_to_act {
        return Err(
            Failure::new(ErrorCode::NotMounted, format!("{name} is not mounted"))
                .hint(format!("`tine mount {name}` mounts it")),
        );
    }
    if let Some(UnmountAction::Handoff { to, .. }) = &action {
        // A parent that only the policy names may be gone by now, and must not keep the fork
        // mounted.
        handoffs::named_parent(daemon, to.as_deref())?;
    }
    if let Some(UnmountAction::Merge {
        into: Some(word), ..
    }) = &action
    {
        target::find_target(daemon, &daemon.repository_now()?, word)?;
    }
    let action = action.unwrap_or_else(|| policy::default_action(&record.on_unmount, name));
    let mode = if force {
        UnmountMode::Force
    } else {
        UnmountMode::Clean
    };
    policy::check(&guard, &action)?;
    let mount_before = guard.mounted_as();
    if mount_before.is_some() {
        let fork = guard.open()?;
        let settled = guard.settle(&daemon.repository, &fork);
        let leaves_layer = matches!(
            action,
            UnmountAction::Keep
                | UnmountAction::Handoff {
                    include_uncommitted: false,
                    ..
                }
        );
        match settled {
            // If the layer stays as it is, a HEAD that cannot be read must not keep the fork
            // mounted.
            Err(failure) if leaves_layer => log::warn!("{name} could not be settled: {failure}"),
            settled => settled?,
        }
        if !leaves_layer {
            // If the disk fails, the action and the next mount would fail, so the fork stays
            // mounted.
            fork.workspace.sync()?;
        }
        drop(fork);
        guard.unmount(mode)?;
    }
    let outcome = match policy::apply(&guard, &action, &signers) {
        Ok(outcome) => outcome,
        Err(failure) => {
            // A command that fails changes nothing.
            if let Some((dir, settings)) = mount_before {
                guard.mount_or_note(dir, settings);
            }
            return Err(failure);
        }
    };
    guard.set_trouble(None);
    if record.mounted
        && let Err(failure) = guard.update_record(|record| record.mounted = false)
    {
        // The action is done and cannot be rolled back.
        let failure = failure.context(format!(
            "{name} is unmounted, but the next daemon will mount it again"
        ));
        log::error!("{failure}");
        guard.set_trouble(Some(failure));
    }
    tine_fuse::remove_guard(&record.mount_dir);
    drop(guard);
    let policy = policy::policy_of(&action);
    let (mut merge, mut handoff, mut trouble) = (None, None, None);
    match action {
        UnmountAction::Merge { into, message } => {
            merge = Some(policy::merge(daemon, by, name, into, message, &signers)?);
        }
        UnmountAction::Handoff {
            to, allow_revert, ..
        } => match handoffs::of_unmounted(daemon, name, to.as_deref(), allow_revert) {
            Ok(record) => handoff = Some(Box::new(handoffs::info(daemon, record))),
            Err(failure) => {
                log::error!("{failure}");
                slot.set_trouble(Some(failure.clone()));
                trouble = Some(failure);
            }
        },
        UnmountAction::Keep | UnmountAction::Commit { .. } | UnmountAction::Discard => {}
    }
    Ok(Unmounted {
        fork: name.clone(),
        policy,
        commit: outcome.commit,
        snapshot: outcome.snapshot,
        index: outcome.index,
        merge,
        handoff,
        trouble,
    })
}
