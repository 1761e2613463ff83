//! Snapshots of forks, resets, and garbage collection.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::buffers::with_agent_texts;
use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation};
use crate::protocol::{
    Collected, IndexKept, RestoreMethod, Restored, SnapshotDeleted, SnapshotInfo, Snapshots,
};
use crate::report;
use crate::state::slots::{Daemon, ForkGuard};
use tine_attr::Timestamp;
use tine_change::recovery::{self, KeptSnapshot, RecoverEntry, RecoverKind};
use tine_change::with_git;
use tine_store::{Fork, ForkName, ForkPoint, SnapshotOptions, SnapshotReason, SnapshotRecord};
use tine_workspace::{Actor, GitSwitch, OperationKind};

/// Mark a point of a fork to come back to
///
/// All that the fork has at this moment is kept, uncommitted and ignored files included, while
/// programs go on working in it. It costs milliseconds and no disk, however much has changed. The
/// name is all that is printed on standard output.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize, JsonSchema)]
pub struct TakeSnapshot {
    /// The fork
    #[arg(value_name = "FORK", required = true)]
    #[schemars(skip)]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// The snapshot's name: letters, digits, '.', '_' and '-' [default: snapshot-NUMBER]
    #[arg(value_name = "NAME")]
    #[schemars(with = "Option<String>")]
    #[serde(default)]
    pub name: Option<ForkName>,

    /// What to remember about it
    #[arg(short, long, value_name = "TEXT")]
    #[serde(default)]
    pub message: Option<String>,
}

impl Operation for TakeSnapshot {
    const NAME: &'static str = "snapshot";
    const PROGRESS: &'static str = "taking the snapshot";
    type Answer = SnapshotInfo;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<SnapshotInfo, Failure> {
        let (daemon, fork) = (call.daemon, &call.fork(self.fork)?);
        let slot = daemon.slot(fork);
        let guard = daemon.lock_fork(&slot)?;
        let open = guard.open_existing()?;
        let options = SnapshotOptions {
            name: self.name,
            message: self.message,
            reason: SnapshotReason::Asked,
        };
        let (snapshot, agent_texts) = with_agent_texts(&guard, || {
            Ok(daemon.store.take_snapshot(fork, &open, &options)?)
        })?;
        log::info!("{fork}: snapshot {}", snapshot.name);
        Ok(SnapshotInfo {
            agent_texts,
            ..report::snapshot_info(fork, &snapshot)
        })
    }
}

/// List the snapshots of a fork
///
/// The oldest comes first. Those that tine took by itself, before something was thrown away, say
/// so; `tine gc` lets these go after 30 days.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize, JsonSchema)]
#[command(after_long_help = "\
Examples:
  tine snapshots fix-parser
  tine snapshots fix-parser --json | jq -r '.snapshots[].name'")]
pub struct ListSnapshots {
    /// The fork [default: the one this runs in]
    #[arg(value_name = "FORK")]
    #[schemars(skip)]
    #[serde(default)]
    pub fork: Option<ForkName>,
}

impl Operation for ListSnapshots {
    const NAME: &'static str = "snapshots";
    type Answer = Snapshots;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<Snapshots, Failure> {
        let fork = &call.fork(self.fork)?;
        let snapshots = call.daemon.store.snapshots(fork)?;
        Ok(Snapshots {
            fork: fork.clone(),
            snapshots: snapshots
                .iter()
                .map(|snapshot| report::snapshot_info(fork, snapshot))
                .collect(),
        })
    }
}

/// Deletes a snapshot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeleteSnapshot {
    /// Fork of the snapshot.
    pub fork: ForkName,
    /// Name of the snapshot.
    pub name: ForkName,
    /// True to delete also a snapshot that a command asked for.
    #[serde(default)]
    pub force: bool,
}

impl Operation for DeleteSnapshot {
    const NAME: &'static str = "remove-snapshot";
    type Answer = SnapshotDeleted;

    fn frees_space(&self) -> bool {
        true
    }

    fn run(self, call: &Call<'_>) -> Result<SnapshotDeleted, Failure> {
        let (daemon, fork, name) = (call.daemon, &self.fork, &self.name);
        let slot = daemon.slot(fork);
        let _guard = daemon.lock_fork(&slot)?;
        let snapshot = daemon.store.snapshot(fork, name)?;
        if !snapshot.reason.is_automatic() && !self.force {
            return Err(Failure::new(
                ErrorCode::UncommittedChanges,
                format!("{fork}@{name} may hold what nothing else has"),
            )
            .hint(format!(
                "`tine new OTHER --from-fork {fork}@{name}` keeps it as a fork; after `--force` `tine recover` brings it back"
            )));
        }
        let recover = keep(daemon, fork, &snapshot, self.force)?;
        daemon.store.remove_snapshot(fork, name)?;
        Ok(SnapshotDeleted { recover })
    }
}

/// Take a fork back to HEAD, with nothing changed
///
/// Uncommitted changes and ignored files go, and a merge, cherry-pick or revert that is under way
/// is forgotten; commits stay. Programs in the mount see it at once. What the fork was becomes a
/// snapshot first, which is named.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine reset fix-parser
  tine restore fix-parser before-reset-1          take that back again")]
pub struct Reset {
    /// The fork
    #[arg(value_name = "FORK", required = true)]
    #[serde(default)]
    pub fork: Option<ForkName>,
}

impl Operation for Reset {
    const NAME: &'static str = "reset";
    const PROGRESS: &'static str = "resetting";
    type Answer = Restored;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn frees_space(&self) -> bool {
        true
    }

    fn run(self, call: &Call<'_>) -> Result<Restored, Failure> {
        let (by, fork) = (call.by(), &call.fork(self.fork)?);
        let slot = call.daemon.slot(fork);
        let guard = call.daemon.lock_fork(&slot)?;
        let dropped = reset_to_head(&guard, SnapshotReason::BeforeReset, by.command)?;
        if let Some(before) = &dropped.snapshot {
            record_switch(&guard, by, before, OperationKind::Switch, None, None);
        }
        Ok(Restored {
            fork: fork.clone(),
            to: None,
            before: dropped.snapshot,
            how: RestoreMethod::Exact,
            left_out: Vec::new(),
            git: None,
            index: dropped.index,
        })
    }
}

/// Free what no fork and no snapshot reaches
///
/// Snapshots that tine took by itself are let go of after 30 days, and what `tine recover` lists by
/// its own rules. The daemon does the same now and then.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine gc
  tine gc --json")]
pub struct Collect {}

impl Operation for Collect {
    const NAME: &'static str = "collect";
    const PROGRESS: &'static str = "freeing what nothing reaches";
    type Answer = Collected;

    fn frees_space(&self) -> bool {
        true
    }

    fn run(self, call: &Call<'_>) -> Result<Collected, Failure> {
        let daemon = call.daemon;
        let expired = recovery::maintain(
            &daemon.store,
            &daemon.repository_now()?,
            Timestamp::now().secs,
        )?;
        let freed = daemon.store.collect()?;
        Ok(Collected {
            expired: expired.entries,
            layers: freed.layers,
            snapshots: freed.snapshots,
            freed_bytes: freed.freed_bytes,
            kept_bytes: freed.kept_bytes,
        })
    }
}

/// Keeps a snapshot before its deletion, as an entry of `tine recover`.
///
/// Returns the entry's number, or `None` if the snapshot is no more than HEAD was. With `force` a
/// snapshot that cannot be read is not kept.
fn keep(
    daemon: &Arc<Daemon>,
    fork: &ForkName,
    snapshot: &SnapshotRecord,
    force: bool,
) -> Result<Option<u64>, Failure> {
    let repository = daemon.repository_now()?;
    let kept = match recovery::kept_snapshot(&daemon.store, &repository, fork, snapshot) {
        Err(error) if force => {
            log::error!("{fork}@{} cannot be kept: {error}", snapshot.name);
            None
        }
        kept => kept?,
    };
    let command = format!("tine snapshot {fork} {} --delete", snapshot.name);
    kept.map(|kept| {
        keep_as_entry(
            daemon,
            fork,
            kept,
            snapshot.branch.clone(),
            snapshot.fork_point.as_ref(),
            &command,
        )
    })
    .transpose()
}

/// Makes an entry of `tine recover` of a snapshot.
///
/// Returns the entry's number.
fn keep_as_entry(
    daemon: &Daemon,
    fork: &ForkName,
    kept: KeptSnapshot,
    branch: Option<String>,
    fork_point: Option<&ForkPoint>,
    command: &str,
) -> Result<u64, Failure> {
    let entry = RecoverEntry {
        fork: Some(fork.clone()),
        branch,
        head: kept.head.clone(),
        fork_point: fork_point.and_then(ForkPoint::commit).map(str::to_owned),
        from_branch: daemon.store.record(fork)?.from_branch,
        snapshots: vec![kept],
        ..RecoverEntry::new(RecoverKind::Snapshot, command)
    };
    Ok(recovery::keep(
        &daemon.store,
        &daemon.repository_now()?,
        entry,
        &[],
    )?)
}

/// Restores the fork to the snapshot, and returns the snapshot before.
pub(crate) fn restore_in(
    guard: &ForkGuard<'_>,
    open: &Fork,
    snapshot: &SnapshotRecord,
) -> Result<ForkName, Failure> {
    let fork = guard.name();
    let before = guard
        .daemon
        .store
        .restore(fork, open, snapshot, SnapshotReason::BeforeRestore)?;
    log::info!(
        "{fork}: restored to {}; what it was is {}",
        snapshot.name,
        before.name
    );
    Ok(before.name)
}

/// Restores the fork to the snapshot, with HEAD, refs and index.
///
/// Returns the snapshot before, and HEAD after.
pub(crate) fn restore_with_git_in(
    guard: &ForkGuard<'_>,
    open: &Fork,
    snapshot: &SnapshotRecord,
    by: Actor<'_>,
) -> Result<(ForkName, GitSwitch), Failure> {
    let (daemon, fork) = (guard.daemon, guard.name());
    let repository = daemon.repository_now()?;
    let restored =
        with_git::restore_with_git(&daemon.store, &repository, fork, open, snapshot, by.command);
    let (before, head) = restored?;
    log::info!(
        "{fork}: restored to {}, with HEAD, refs and index; what it was is {}",
        snapshot.name,
        before.name
    );
    let head = head.map(|id| id.to_string());
    Ok((before.name, GitSwitch { head }))
}

/// Records a switch of the fork to another state, for `tine undo`.
///
/// Returns the operation's number. A failure is only logged, because the fork has the requested
/// state already and the snapshot `before` leads back.
pub(crate) fn record_switch(
    guard: &ForkGuard<'_>,
    by: Actor<'_>,
    before: &ForkName,
    kind: OperationKind,
    undoes: Option<u64>,
    git: Option<GitSwitch>,
) -> Option<u64> {
    let recorded = guard.open().and_then(|open| {
        let workspace = &open.workspace;
        Ok(workspace.record_switch(by, before.as_str(), kind, undoes, git)?)
    });
    recorded
        .inspect_err(|failure| log::warn!("{}: {failure}", guard.name()))
        .ok()
}

/// Ways back after a reset to HEAD.
pub(crate) struct Dropped {
    /// Snapshot of the state before, if it differed from HEAD.
    pub snapshot: Option<ForkName>,
    /// Numbers of the kept staged text and of a set-aside index.
    pub index: IndexKept,
}

/// Resets the fork to HEAD.
pub(crate) fn reset_to_head(
    guard: &ForkGuard<'_>,
    reason: SnapshotReason,
    command: &str,
) -> Result<Dropped, Failure> {
    let open = guard.open_existing()?;
    // A fork with a damaged HEAD has no other state to go to, so this repairs HEAD first.
    let (daemon, name) = (guard.daemon, guard.name());
    let store = &daemon.store;
    if let Some(done) = store.mend_lost_head(name)? {
        daemon
            .slot(name)
            .set_note(format!("its HEAD was damaged: {done}"));
    }
    daemon.repository_now()?.check_unlocked(&open.worktree)?;
    let mut index = IndexKept::default();
    match keep_staged(guard, &open, reason, command) {
        Ok(kept) => index.staged = kept,
        // A reset frees space, so a full disk must not make it fail.
        Err(failure) if failure.code == ErrorCode::NoSpace => {
            log::error!("{name}: what is staged is not kept: {failure}");
        }
        Err(failure) => {
            log::warn!("{name}: its index is set aside: {failure}");
            index.set_aside = store.set_index_aside(name)?;
        }
    }
    match store.reset_fork(name, &open, reason) {
        Ok(before) => {
            guard.forget_settled();
            Ok(Dropped {
                snapshot: before.map(|snapshot| snapshot.name),
                index,
            })
        }
        Err(error) => {
            if let Some(id) = index.staged {
                recovery::purge(store, &daemon.repository_now()?, &[id]);
            }
            if let Some(number) = index.set_aside {
                store.put_back(number)?;
            }
            Err(error.into())
        }
    }
}

fn keep_staged(
    guard: &ForkGuard<'_>,
    open: &Fork,
    reason: SnapshotReason,
    command: &str,
) -> Result<Option<u64>, Failure> {
    let (daemon, name) = (guard.daemon, guard.name());
    let repository = daemon.repository_now()?;
    let Some(kept) = recovery::staged_only(&repository, name, open, reason)? else {
        return Ok(None);
    };
    let head = repository.head_of(open.worktree.git_dir())?;
    let branch = head.short_branch().map(str::to_owned);
    let record = guard.record()?;
    keep_as_entry(
        daemon,
        name,
        kept,
        branch,
        record.fork_point.as_ref(),
        command,
    )
    .map(Some)
}
