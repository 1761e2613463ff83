//! Mounting, unmounting, and mounting again what an earlier daemon had mounted.

use std::path::PathBuf;
use std::sync::Arc;

use super::{handoffs, target};
use crate::change::{advance, checkout};
use crate::daemon::failure::{ErrorCode, Failure};
use crate::daemon::policy::Signers;
use crate::daemon::protocol::{Answer, Response, SnapshotPolicy, UnmountAction, Unmounted};
use crate::daemon::slots::{Daemon, Turn};
use crate::daemon::{place, policy, report};
use crate::fuse::{self, UnmountMode};

use crate::workspace::{By, ForkName, ForkRecord, MountSettings, MountWishes};

/// Detaches what a daemon that died left mounted, and mounts again what was mounted. What fails is logged and shown by
/// `list`; it keeps nothing else from working.
pub fn recover(daemon: &Arc<Daemon>) {
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
        let turn = daemon.turn_even_stopping(&slot);
        if record.advancing.is_some()
            && let Err(failure) = finish_advance(&turn)
        {
            let failure = failure.context(format!("a merge into {} could not be finished", record.name));
            log::error!("{failure}");
            turn.set_trouble(Some(failure));
        }
        if record.mounted {
            turn.mount_or_note(record.mount_dir, record.settings);
        } else if let Err(error) = fuse::detach_stale(&record.mount_dir) {
            log::error!("{}: {error}", record.name);
        }
    }
}

/// Does the rest of what a daemon that died had begun.
fn finish_advance(turn: &Turn<'_>) -> Result<(), Failure> {
    let daemon = turn.daemon;
    let repository = daemon.repository_now()?;
    advance::finish(&daemon.store, &repository, turn.name(), &*turn.open()?)?;
    Ok(())
}

pub fn mount(
    daemon: &Arc<Daemon>,
    name: &ForkName,
    dir: Option<PathBuf>,
    wishes: MountWishes,
    snapshot_every: Option<SnapshotPolicy>,
) -> Response {
    let slot = daemon.slot(name);
    let turn = daemon.turn(&slot)?;
    let mut record = turn.record()?;
    if let Some(policy) = snapshot_every {
        record = turn.update_record(|record| {
            record.snapshot_every = match policy {
                SnapshotPolicy::Every(every) => Some(every),
                SnapshotPolicy::Never => None,
            };
        })?;
    }
    let dir = dir.unwrap_or_else(|| record.mount_dir.clone());
    if let Some((mounted_at, settings)) = turn.mounted_as() {
        if settings.with(wishes) != settings {
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
        return Ok(Answer::Fork(report::fork_info(daemon, &slot, &record)?));
    }
    // A dead mount cannot be looked into.
    fuse::detach_stale(&dir)?;
    let (forks, _) = daemon.store.records();
    let dir = place::check(&daemon.repository, &forks, name, &dir)?;
    let settings = record.settings.with(wishes);
    turn.mount(&dir, settings)?;
    match remember(&turn, &record, dir, settings) {
        Ok(record) => Ok(Answer::Fork(report::fork_info(daemon, &slot, &record)?)),
        Err(failure) => {
            if let Err(unmount_failure) = turn.unmount(UnmountMode::Force) {
                log::error!("{unmount_failure}");
            }
            Err(failure)
        }
    }
}

/// Tells git and the record where the fork is mounted.
fn remember(
    turn: &Turn<'_>,
    record: &ForkRecord,
    dir: PathBuf,
    settings: MountSettings,
) -> Result<ForkRecord, Failure> {
    if record.mount_dir != dir {
        turn.open()?.worktree.relocate(&dir)?;
    }
    turn.update_record(|record| {
        record.mount_dir = dir;
        record.settings = settings;
        record.mounted = true;
    })
}

pub fn unmount(
    daemon: &Arc<Daemon>,
    by: By<'_>,
    name: &ForkName,
    action: Option<UnmountAction>,
    force: bool,
    signers: Signers,
) -> Response {
    let slot = daemon.slot(name);
    let turn = daemon.turn(&slot)?;
    let record = turn.record()?;
    // The policy belongs to the end of a mount: without one only what was asked for is done.
    let asked_to_act = matches!(
        action,
        Some(
            UnmountAction::Commit { .. }
                | UnmountAction::Discard
                | UnmountAction::Merge { .. }
                | UnmountAction::Handoff { .. }
        )
    );
    if !turn.is_mounted() && !record.mounted && !asked_to_act {
        return Err(
            Failure::new(ErrorCode::NotMounted, format!("{name} is not mounted"))
                .hint(format!("`tine mount {name}` mounts it")),
        );
    }
    if let Some(UnmountAction::Handoff { to, .. }) = &action {
        // What a policy names may be gone by now: that keeps nothing mounted.
        handoffs::named_parent(daemon, to.as_deref())?;
    }
    if let Some(UnmountAction::Merge { into: Some(word), .. }) = &action {
        target::find_target(daemon, &daemon.repository_now()?, word)?;
    }
    let action = action.unwrap_or_else(|| policy::default_action(&record.on_unmount, name));
    let mode = match force {
        true => UnmountMode::Force,
        false => UnmountMode::Clean,
    };
    policy::check(&turn, &action)?;
    let mount_before = turn.mounted_as();
    if mount_before.is_some() {
        let fork = turn.open()?;
        turn.settle(&daemon.repository, &fork)?;
        let leaves_layer = matches!(
            action,
            UnmountAction::Keep
                | UnmountAction::Handoff {
                    include_uncommitted: false,
                    ..
                }
        );
        if !leaves_layer {
            // On a disk that fails it could be neither acted upon nor mounted again.
            fork.workspace.sync()?;
        }
        drop(fork);
        turn.unmount(mode)?;
    }
    let outcome = match policy::apply(&turn, &action, &signers) {
        Ok(outcome) => outcome,
        Err(failure) => {
            // A command that fails changes nothing.
            if let Some((dir, settings)) = mount_before {
                turn.mount_or_note(dir, settings);
            }
            return Err(failure);
        }
    };
    turn.set_trouble(None);
    if record.mounted
        && let Err(failure) = turn.update_record(|record| record.mounted = false)
    {
        // What was asked for is done and cannot be taken back.
        let failure = failure.context(format!(
            "{name} is unmounted, but the next daemon will mount it again"
        ));
        log::error!("{failure}");
        turn.set_trouble(Some(failure));
    }
    drop(turn);
    let policy = policy::policy_of(&action);
    let (mut merge, mut handoff, mut trouble) = (None, None, None);
    match action {
        UnmountAction::Merge { into, message } => {
            merge = Some(policy::merge(daemon, by, name, into, message, &signers)?);
        }
        UnmountAction::Handoff { to, .. } => match handoffs::of_unmounted(daemon, name, to.as_deref()) {
            Ok(record) => handoff = Some(Box::new(handoffs::info(daemon, record))),
            Err(failure) => {
                log::error!("{failure}");
                slot.set_trouble(Some(failure.clone()));
                trouble = Some(failure);
            }
        },
        UnmountAction::Keep | UnmountAction::Commit { .. } | UnmountAction::Discard => {}
    }
    Ok(Answer::Unmounted(Unmounted {
        fork: name.clone(),
        policy,
        commit: outcome.commit,
        snapshot: outcome.snapshot,
        merge,
        handoff,
        trouble,
    }))
}
