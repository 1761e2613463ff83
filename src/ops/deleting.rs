//! Deletes forks, and keeps what `tine recover` brings back.

mod refusals;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(crate) use self::refusals::refuse_worktrees;
use self::refusals::{refuse_snapshots, refuse_submodules};
use super::buffers;
use super::forks::tip_of;
use super::work::base_commit;
use crate::failure::{self, ErrorCode, Failure};
use crate::locks;
use crate::operation::{Call, Operation};
use crate::policy;
use crate::protocol::Deleted;
use crate::state::slots::{Daemon, ForkGuard, Slot};
use crate::state::{handoffs, place, strays, taking};
use tine_change::changeset::{self, Blobs};
use tine_change::commit::refuse_gone_branch;
use tine_change::fork_point::fork_point;
use tine_change::recovery::{self, KeptRef, KeptSnapshot, RecoverEntry, RecoverKind};
use tine_change::superseded::superseded;
use tine_change::{ChangeError, branches};
use tine_fuse::UnmountMode;
use tine_git::own::unpushed_submodules;
use tine_git::{Head, Identity, ObjectId, Repository, Worktree};
use tine_store::{ForkName, ForkRecord, SnapshotReason, StoreError, Traces};
use tine_store::{LeaseKey, own_branch};

/// Remove a fork
///
/// Its branch stays, unless it has no commit of its own; `tine recover` brings back its other
/// branches, tags and stashes. A fork with uncommitted changes is removed with --force only, and
/// they and its snapshots come back in the same way. So is one in which submodules were cloned
/// (`git submodule update --init`): their repositories go with it, unless they have commits that no
/// remote branch has. So is one with worktrees (`git worktree add`), whose files stay without a
/// repository. What programs put into its mount place while it was not mounted stays there, and is
/// named. Files that git ignores go without --force and do not come back, as with `git worktree
/// remove`. Where something cannot be kept by itself, as in a damaged layer, the fork is set aside
/// as it is, and `tine check --put-back` brings it back.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine delete fix-parser
  tine delete try --force")]
pub struct Delete {
    /// The fork
    #[arg(value_name = "NAME", required = true)]
    pub fork: Option<ForkName>,

    /// Remove it even if it has uncommitted changes or programs use its mount
    #[arg(short, long)]
    pub force: bool,
}

impl Operation for Delete {
    const NAME: &'static str = "delete";
    const PROGRESS: &'static str = "deleting the fork";
    type Answer = Deleted;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn frees_space(&self) -> bool {
        true
    }

    fn run(self, call: &Call<'_>) -> Result<Deleted, Failure> {
        let fork = call.fork(self.fork)?;
        delete(
            call.daemon,
            &fork,
            self.force,
            call.from.committer.clone(),
            None,
        )
    }
}

/// Deletes the fork `name`.
///
/// `command` is the command that `tine recover` shows. `None` means `tine delete`.
pub(crate) fn delete(
    daemon: &Arc<Daemon>,
    name: &ForkName,
    force: bool,
    identity: Option<Identity>,
    command: Option<&str>,
) -> Result<Deleted, Failure> {
    let command = match (command, force) {
        (Some(command), _) => command.to_owned(),
        (None, true) => format!("tine delete {name} --force"),
        (None, false) => format!("tine delete {name}"),
    };
    let slot = daemon.slot(name);
    let guard = lock_without_handoffs(daemon, &slot)?;
    let repository = daemon.repository_now()?;
    // The branch may have been renamed since the record was written.
    if let Err(error) = branches::follow(&daemon.store, &repository) {
        log::warn!("{name}: {error}");
    }
    let record = match guard.record() {
        Err(failure) if force && failure.code == ErrorCode::StoreDamaged => {
            return delete_damaged(&guard, &failure, &command);
        }
        record => record?,
    };
    daemon.store.check_can_remove(name)?;
    if !force {
        refuse_texts_in_buffers(&guard)?;
        refuse_under_way(&guard, &repository)?;
        refuse_uncommitted(&guard, &repository)?;
        refuse_worktrees(name, &*guard.open()?, &record.mount_dir)?;
    }
    let _lease = locks::lease(daemon, &command, || {
        Ok(vec![LeaseKey::Branch(record.branch.clone())])
    })?;
    let mount_before = guard.mounted_as();
    guard.unmount(if force {
        UnmountMode::Force
    } else {
        UnmountMode::Clean
    })?;
    // No program writes any more, so changes since the first check count, too.
    let kept = if force {
        buffers::with_all_agent_texts(&guard, || {
            keep(&guard, &repository, &record, (&command, force), identity)
        })
    } else {
        refuse_under_way(&guard, &repository)
            .and_then(|()| refuse_uncommitted(&guard, &repository))
            .and_then(|()| keep(&guard, &repository, &record, (&command, force), identity))
    };
    let kept = match kept {
        Ok(kept) => kept,
        Err(failure) => {
            if let Some((dir, settings)) = mount_before {
                guard.mount_or_note(dir, settings);
            }
            return Err(failure);
        }
    };
    buffers::end_in(&guard)?;
    tine_fuse::detach_stale(&record.mount_dir)?;
    tine_fuse::remove_guard(&record.mount_dir);
    daemon.store.await_closed(name);
    if !kept.lost.is_empty() && !kept.no_room {
        return set_aside(&guard, kept, &record.mount_dir);
    }
    let removing = daemon.store.removing_branches();
    // A branch that stays is not a failure.
    let loses_nothing = own_branch_loses_nothing(&repository, &record).unwrap_or_else(|failure| {
        log::warn!("the branch {} stays: {failure}", record.branch);
        false
    });
    let left = strays::left_in_place(&record.mount_dir);
    let traces = Traces {
        branch: loses_nothing
            .then(|| tip_of(&repository, &record))
            .flatten(),
        mount_dir: Some(record.mount_dir),
    };
    let branch_deleted = daemon.store.remove_fork_with(name, &traces)?;
    drop(removing);
    guard.set_trouble(None);
    daemon.buffers.forget_fork(&daemon.store, name);
    log::info!("{name} is deleted");
    Ok(Deleted {
        branch_deleted,
        left,
        ..kept.answer(name)
    })
}

/// Sets aside a fork with a part that could not be kept.
fn set_aside(guard: &ForkGuard<'_>, kept: Kept, mount_dir: &Path) -> Result<Deleted, Failure> {
    let (daemon, name) = (guard.daemon, guard.name());
    let number = daemon.store.set_aside_fork(name)?;
    guard.set_trouble(None);
    log::warn!("{name} is set aside: `tine check --put-back {number}` brings it back");
    Ok(Deleted {
        set_aside: Some(number),
        left: strays::left_in_place(mount_dir),
        ..kept.answer(name)
    })
}

/// Locks a fork of which no handoff is pending.
///
/// It waits for a pending handoff without the lock, which other operations may need.
fn lock_without_handoffs<'a>(
    daemon: &'a Arc<Daemon>,
    slot: &'a Arc<Slot>,
) -> Result<ForkGuard<'a>, Failure> {
    loop {
        handoffs::wait_for_fork(daemon, &slot.name)?;
        let guard = daemon.lock_fork(slot)?;
        if !handoffs::is_pending_of(daemon, &slot.name)? {
            return Ok(guard);
        }
    }
}

/// Deletes a fork whose record cannot be read.
fn delete_damaged(
    guard: &ForkGuard<'_>,
    failure: &Failure,
    command: &str,
) -> Result<Deleted, Failure> {
    guard.unmount(UnmountMode::Force)?;
    let (store, repository) = (&guard.daemon.store, &guard.daemon.repository_now()?);
    let superseded = superseded(repository, guard.name(), None, &BTreeSet::new(), &[])?;
    let mut kept = Kept {
        superseded: superseded.len(),
        ..Kept::default()
    };
    for what in [UNCOMMITTED, SNAPSHOTS] {
        kept.lose(what, &failure.message);
    }
    if kept.superseded > 0 {
        let entry = RecoverEntry {
            fork: Some(guard.name().clone()),
            snapshots: superseded,
            ..RecoverEntry::new(RecoverKind::Fork, command)
        };
        kept.entry = Some(recovery::keep(store, repository, entry, &[])?);
        kept.snapshots_only = true;
    }
    let dir = place::default_dir(&guard.daemon.repository, guard.name())?;
    tine_fuse::detach_stale(&dir)?;
    tine_fuse::remove_guard(&dir);
    set_aside(guard, kept, &dir)
}

/// Refuses if agents' texts in open buffers would be lost.
///
/// A refusal leaves the buffers as they are.
fn refuse_texts_in_buffers(guard: &ForkGuard<'_>) -> Result<(), Failure> {
    let name = guard.name();
    let paths = buffers::in_buffers_only(guard.daemon, name);
    let Some(first) = paths.first() else {
        return Ok(());
    };
    let failure = Failure::new(
        ErrorCode::UncommittedChanges,
        format!("{name} has what agents wrote to open buffers, in no file yet: {first}"),
    )
    .hint(format!(
        "save in the editor, or `tine commit {name} -m MESSAGE`; with `--force` it stays under refs/tine/{name}/"
    ));
    let others = paths.iter().skip(1);
    Err(others.fold(failure, |failure, path| failure.cause(path.to_string())))
}

/// Refuses if the fork has repositories or submodules that commits cannot keep.
///
/// A fork that does not exist has none.
pub(crate) fn refuse_repositories_in(daemon: &Arc<Daemon>, name: &ForkName) -> Result<(), Failure> {
    if let Err(StoreError::NoSuchFork(_)) = daemon.store.record(name) {
        return Ok(());
    }
    let slot = daemon.slot(name);
    let guard = daemon.lock_fork(&slot)?;
    let fork = guard.open()?;
    let repository = daemon.repository_now()?;
    let changeset = changeset::changeset(&repository, &fork, Blobs::Hash)?;
    policy::refuse_nested_repositories(name, &fork, &changeset)?;
    refuse_submodules(name, &fork)?;
    policy::refuse_nested_checkouts(name, &fork, &changeset)
}

/// Refuses during an operation of git, or if the branch is gone.
///
/// The delete would lose the operation's stashes and the way back to the branch.
fn refuse_under_way(guard: &ForkGuard<'_>, repository: &Repository) -> Result<(), Failure> {
    let fork = guard.open()?;
    if let Some(operation) = fork.worktree.operation_in_progress() {
        return Err(ChangeError::OperationInProgress(operation).into());
    }
    Ok(refuse_gone_branch(repository, &fork)?)
}

fn refuse_uncommitted(guard: &ForkGuard<'_>, repository: &Repository) -> Result<(), Failure> {
    let fork = guard.open()?;
    let name = guard.name();
    let changeset = changeset::changeset(repository, &fork, Blobs::Hash)?;
    let changed = changeset.changes.len();
    if changed == 0 {
        policy::refuse_nested_repositories(name, &fork, &changeset)?;
        refuse_submodules(name, &fork)?;
        policy::refuse_nested_checkouts(name, &fork, &changeset)?;
        return refuse_snapshots(guard);
    }
    let paths = match changed {
        1 => "1 path".to_owned(),
        _ => format!("{changed} paths"),
    };
    let failure = Failure::new(
        ErrorCode::UncommittedChanges,
        format!("{name} has changes in {paths} that are not committed"),
    );
    if let Err(submodules) = refuse_submodules(name, &fork) {
        return Err(failure.cause(submodules.message).hint(format!(
            "`tine commit {name} -m MESSAGE` keeps the changes; push what was committed in submodules; after `--force` `tine recover` brings the changes back, and the repositories stay only if no remote branch has their commits"
        )));
    }
    Err(failure.hint(format!(
        "`tine status {name}` shows them, `tine commit {name} -m MESSAGE` keeps them; after `--force` `tine recover` brings them back"
    )))
}

/// Largest size in bytes of uncommitted changes kept on a full disk.
///
/// Larger ones are not tried, because the parts written before the disk is full again would stay.
const KEPT_OF_FULL_DISK: u64 = 1 << 20;

/// Names of a fork's parts in answers.
const UNCOMMITTED: &str = "what was not committed";
const SNAPSHOTS: &str = "its snapshots";

/// Parts of a deleted fork that were kept or lost.
#[derive(Default)]
struct Kept {
    /// Number of the entry of `tine recover`, if one was made.
    entry: Option<u64>,
    /// True if the entry holds only snapshots and superseded commits.
    snapshots_only: bool,
    /// Number of commits in the entry that only the fork had.
    ///
    /// HEAD once was on them, or git kept them for the fork alone.
    superseded: usize,
    /// Number of refs in the entry.
    refs: usize,
    /// True if uncommitted changes are lost because the disk is full. A forced delete must make
    /// room.
    no_room: bool,
    /// Parts that could not be kept by themselves, in words.
    lost: Vec<String>,
    /// First reason why a part could not be kept.
    because: Option<String>,
}

impl Kept {
    /// Notes that the part `what` (in words) is lost, for `reason`.
    fn lose(&mut self, what: impl Into<String>, reason: &impl ToString) {
        self.lost.push(what.into());
        self.because.get_or_insert_with(|| reason.to_string());
    }

    /// Returns the answer to the delete, without a deleted branch or strays.
    fn answer(self, fork: &ForkName) -> Deleted {
        Deleted {
            fork: fork.clone(),
            recover: self.entry,
            snapshots_only: self.snapshots_only,
            superseded: self.superseded,
            refs: self.refs,
            branch_deleted: false,
            not_kept: self.no_room,
            lost: self.lost,
            because: self.because,
            set_aside: None,
            left: None,
        }
    }
}

/// Keeps staged text that no file has, as a snapshot.
///
/// Returns `None` if there is none, or if the fork cannot be opened.
fn keep_staged(
    guard: &ForkGuard<'_>,
    repository: &Repository,
) -> Result<Option<KeptSnapshot>, Failure> {
    let Ok(open) = guard.open() else {
        return Ok(None);
    };
    let reason = SnapshotReason::BeforeDiscard;
    Ok(recovery::staged_only(
        repository,
        guard.name(),
        &open,
        reason,
    )?)
}

/// Outcome of keeping uncommitted changes.
enum Uncommitted {
    /// Commit that keeps them.
    Kept(ObjectId),
    /// Nothing is uncommitted.
    Nothing,
    /// The disk is full.
    NoRoom,
    /// They cannot be committed, for this reason.
    Failed(Failure),
}

/// Keeps the parts of the fork that the delete would lose.
///
/// These are its uncommitted changes (only with `force`; otherwise there are none), its snapshots,
/// and commits that only the fork reaches.
fn keep(
    guard: &ForkGuard<'_>,
    repository: &Repository,
    record: &ForkRecord,
    (command, force): (&str, bool),
    identity: Option<Identity>,
) -> Result<Kept, Failure> {
    let name = guard.name();
    let mut kept = Kept::default();
    // git may have gone on until the unmount.
    if let Err(failure) = taking::take_over_all(guard.daemon, &guard.daemon.slot(name)) {
        if !force {
            return Err(failure);
        }
        kept.lose("its newest commits", &failure);
    }
    let uncommitted = if force {
        keep_uncommitted(guard, repository, identity)?
    } else {
        Uncommitted::Nothing
    };
    let mut uncommitted_id = None;
    match uncommitted {
        Uncommitted::Kept(commit_id) => uncommitted_id = Some(commit_id),
        Uncommitted::Nothing => {}
        Uncommitted::NoRoom => kept.no_room = true,
        Uncommitted::Failed(failure) => kept.lose(UNCOMMITTED, &failure),
    }
    let worktree = record.open_worktree(repository).ok();
    let head = worktree
        .as_ref()
        .map(|worktree| repository.head_of(worktree.git_dir()));
    let head = match head.transpose() {
        Err(error) if force => {
            log::warn!("{name}: HEAD cannot be read: {error}");
            kept.lose("its HEAD", &error);
            None
        }
        head => head?,
    };
    let gone = worktree
        .as_ref()
        .and_then(|worktree| repository.gone_branch(worktree, &record.branch).ok()?);
    let commit_id = match (&head, &worktree) {
        // The uncommitted changes are relative to this commit, also if the branch has moved under
        // the fork.
        (Some(_), Some(worktree)) => {
            repository.head_left_at(worktree, name.as_str(), &record.branch)?
        }
        _ => None,
    };
    let commit_id = commit_id
        .or(gone.as_ref().map(|gone| gone.left_at))
        .filter(|id| repository.has_object(*id));
    let branch = head.as_ref().and_then(Head::short_branch);
    let is_only_here = match commit_id {
        // Without the worktree, nothing may lead to these commits.
        Some(commit_id) if branch.is_none() || gone.is_some() => {
            repository.reached_otherwise(commit_id, &[])?.is_none()
        }
        _ => false,
    };
    let snapshots = match guard.daemon.store.snapshots(name) {
        Err(error) if force => {
            log::error!("{name}: its snapshots cannot be kept: {error}");
            kept.lose(SNAPSHOTS, &error);
            Vec::new()
        }
        Err(error) => return Err(error.into()),
        Ok(snapshots) => {
            let (whole, damaged) =
                recovery::kept_snapshots(&guard.daemon.store, repository, name, &snapshots);
            for (snapshot, error) in damaged {
                if !force {
                    return Err(error.into());
                }
                log::error!("{name}: its snapshot {snapshot} cannot be kept: {error}");
                kept.lose(format!("the snapshot {snapshot}"), &error);
            }
            whole
        }
    };
    if let Some(worktree) = &worktree {
        for submodule in unpushed_submodules(repository, worktree) {
            kept.lose(
                format!("the repository of the submodule {submodule}"),
                &"it has commits that no remote branch has",
            );
        }
    }
    let known = uncommitted_id.into_iter().chain(commit_id).collect();
    let superseded = match superseded(repository, name, worktree.as_ref(), &known, &snapshots) {
        Err(error) if force => {
            log::error!("{name}: commits that it alone has cannot be kept: {error}");
            kept.lose("commits that it alone has", &error);
            Vec::new()
        }
        found => found?,
    };
    let refs = match &worktree {
        Some(worktree) => keep_refs(repository, (name, worktree), &mut kept, force)?,
        None => BTreeMap::new(),
    };
    let staged = match keep_staged(guard, repository) {
        Err(failure) if failure.code == ErrorCode::NoSpace => {
            log::error!("{name}: what is staged is not kept: {failure}");
            None
        }
        Err(failure) if force => {
            kept.lose("what is staged", &failure);
            None
        }
        staged => staged?,
    };
    if uncommitted_id.is_none()
        && !is_only_here
        && snapshots.is_empty()
        && superseded.is_empty()
        && refs.is_empty()
        && staged.is_none()
    {
        return Ok(kept);
    }
    let (superseded_count, refs_count) = (superseded.len(), refs.len());
    let fork_point = fork_point(repository, record, commit_id).unwrap_or_else(|error| {
        log::warn!("{name}: {error}");
        None
    });
    let entry = RecoverEntry {
        fork: Some(name.clone()),
        branch: branch.map(str::to_owned),
        head: commit_id.map(|id| id.to_string()),
        uncommitted: uncommitted_id.map(|id| id.to_string()),
        fork_point: fork_point.map(|id| id.to_string()),
        from_branch: record.from_branch.clone(),
        snapshots: superseded
            .into_iter()
            .chain(staged)
            .chain(snapshots)
            .collect(),
        refs,
        ..RecoverEntry::new(RecoverKind::Fork, command)
    };
    match recovery::keep(&guard.daemon.store, repository, entry, &[]).map_err(Failure::from) {
        Ok(id) => {
            kept.entry = Some(id);
            kept.snapshots_only = uncommitted_id.is_none() && !is_only_here;
            kept.superseded = superseded_count;
            kept.refs = refs_count;
        }
        Err(failure) if failure.code == ErrorCode::NoSpace => {
            if !force || is_only_here || superseded_count > 0 || refs_count > 0 {
                return Err(failure);
            }
            log::error!("{name}: nothing is kept: {failure}");
            kept.no_room = true;
        }
        Err(failure) if force => {
            kept.lose("an entry of `tine recover`", &failure);
        }
        Err(failure) => return Err(failure),
    }
    Ok(kept)
}

/// Returns the fork's own refs.
///
/// With `force`, notes those that cannot be kept as lost.
fn keep_refs(
    repository: &Repository,
    (name, worktree): (&ForkName, &Worktree),
    kept: &mut Kept,
    force: bool,
) -> Result<BTreeMap<String, KeptRef>, Failure> {
    let own = match recovery::own_refs(repository, name, worktree) {
        Err(error) if force => {
            kept.lose("its refs", &error);
            return Ok(BTreeMap::new());
        }
        own => own?,
    };
    for name in own.in_fork_alone {
        let because = "the main repository does not have its object";
        if !force {
            return Err(ChangeError::RefInForkAlone(name).into());
        }
        kept.lose(format!("the ref {name}"), &because);
    }
    Ok(own.refs)
}

/// Commits the uncommitted changes.
///
/// A full disk or changes that cannot be committed do not prevent the delete.
fn keep_uncommitted(
    guard: &ForkGuard<'_>,
    repository: &Repository,
    identity: Option<Identity>,
) -> Result<Uncommitted, Failure> {
    let name = guard.name();
    let kept = guard
        .open()
        .and_then(|fork| {
            if guard.daemon.store.reserve_is_short()
                && fork.workspace.stats().content_bytes > KEPT_OF_FULL_DISK
            {
                return Err(failure::no_space(name.as_str()));
            }
            Ok(fork)
        })
        .and_then(|fork| {
            recovery::commit_uncommitted(repository, name, &fork, identity).map_err(Failure::from)
        });
    let failure = match kept {
        Ok(Some(commit_id)) => return Ok(Uncommitted::Kept(commit_id)),
        Ok(None) => return Ok(Uncommitted::Nothing),
        Err(failure) => failure,
    };
    if failure.code == ErrorCode::NoSpace {
        log::error!(
            "{}: what is uncommitted is not kept: {failure}",
            guard.name()
        );
        return Ok(Uncommitted::NoRoom);
    }
    log::error!("{name}: what is uncommitted cannot be committed: {failure}");
    Ok(Uncommitted::Failed(failure))
}

/// Returns whether deleting the fork's own branch loses nothing.
///
/// This is so if the branch has no commit beyond the base and another ref reaches its tip. The base
/// itself may be work of an earlier fork that only this branch holds. Returns false for a branch
/// that was not made for the fork.
fn own_branch_loses_nothing(repository: &Repository, record: &ForkRecord) -> Result<bool, Failure> {
    let branch = &record.branch;
    if *branch != own_branch(&record.name) {
        return Ok(false);
    }
    let (Some(tip), Some(base)) = (repository.branch(branch)?, base_commit(record)?) else {
        return Ok(false);
    };
    Ok(repository.is_ancestor(tip, base)?
        && repository.reached_otherwise(tip, &[branch])?.is_some())
}
