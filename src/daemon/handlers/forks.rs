//! Forks: made, shown, deleted.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use super::target::find_target;
use super::turns::{slots_of, turns_of};
use super::work::base_commit;
use super::{buffers, remotes};
use crate::change::branches;
use crate::change::changeset::{self, Blobs};
use crate::change::commit::{keep_commit, keep_discarded};
use crate::daemon::failure::{ErrorCode, Failure};
use crate::daemon::protocol::{AgentTexts, Answer, Deleted, ForkInfo, NewRequest, Response};
use crate::daemon::slots::{Daemon, Slot, Turn};
use crate::daemon::{handoffs, monitor, place, policy, report};
use crate::fuse::{self, UnmountMode};
use crate::git::{GitError, Identity, LinkedWorktree, Repository};
use crate::sys::process::PeerCredentials;
use crate::workspace::{
    Fork, ForkName, ForkOptions, ForkRecord, MountSettings, ParentOptions, StoreError, Traces,
};

pub fn new(daemon: &Arc<Daemon>, peer: PeerCredentials, request: NewRequest) -> Response {
    let parent_name = request.from_fork.as_deref().map(parse_parent).transpose()?;
    let parent_fork = parent_name.as_ref().map(|(name, _)| name);
    let slots = slots_of(
        daemon,
        [Some(&request.fork), parent_fork].into_iter().flatten().cloned(),
    );
    let mut turns = turns_of(daemon, &slots)?;
    let Some(turn) = turns.remove(&request.fork) else {
        return Err(StoreError::NoSuchFork(request.fork.to_string()).into());
    };
    let slot = daemon.slot(&request.fork);
    let name = &request.fork;
    match daemon.store.record(name) {
        Err(StoreError::NoSuchFork(_)) => {}
        Ok(_) => return Err(StoreError::ForkExists(name.clone()).into()),
        Err(damaged) => return Err(damaged.into()),
    }
    let repository = daemon.repository_now()?;
    check_git_dir(&repository, &request.git_dir)?;
    if let Some(target) = request.on_unmount.target() {
        find_target(daemon, &repository, target)?;
    }
    let is_of_parents_now = matches!(parent_name, Some((_, None)));
    let parent = match (parent_name, turns.values().next()) {
        (Some((parent, snapshot)), Some(parents_turn)) => Some(ParentOptions {
            fork: parents_turn.open_existing()?,
            snapshot: snapshot
                .map(|snapshot| daemon.store.snapshot(&parent, &snapshot))
                .transpose()?,
            name: parent,
        }),
        (Some((parent, _)), None) => return Err(StoreError::NoSuchFork(parent.to_string()).into()),
        (None, _) => None,
    };
    let from_remote = request.from_remote.as_ref();
    let take_up = from_remote
        .map(|from| remotes::take_up(&repository, &request.git_dir, from))
        .transpose()?;
    let dir = match request.dir {
        Some(dir) => dir,
        None => place::default_dir(&repository, name)?,
    };
    // A dead mount of an earlier fork cannot be looked into.
    fuse::detach_stale(&dir)?;
    let (forks, _) = daemon.store.records();
    let dir = place::check(&repository, &forks, name, &dir)?;
    let dir_existed = dir.exists();
    let branch = request.branch.clone().unwrap_or_else(|| own_branch(name));
    repository.check_branch_name(&branch)?;
    let branch_existed = repository.branch(&branch)?.is_some();
    let settings = MountSettings::default().with(request.wishes);
    let options = ForkOptions {
        name: name.clone(),
        git_dir: request.git_dir,
        from: request.from,
        parent,
        take_up: take_up.clone(),
        branch: request.branch,
        detached: request.detached,
        mount_dir: dir.clone(),
        // Should the daemon die before it is, the next one mounts it.
        mounted: request.mount,
        settings,
        on_unmount: request.on_unmount,
        snapshot_every: request.snapshot_every,
        uid: peer.uid,
        gid: peer.gid,
        umask: request.umask,
        carry: request.carry,
    };
    let create = || -> Result<_, StoreError> { daemon.store.create_fork(&options) };
    let parents_turn = turns.values().next().filter(|_| is_of_parents_now);
    let created = match parents_turn {
        Some(parents_turn) => buffers::with_agent_texts(parents_turn, || Ok(create()?)),
        None => create()
            .map(|record| (record, AgentTexts::default()))
            .map_err(Failure::from),
    };
    let (record, agent_texts) = created.map_err(|error| match &take_up {
        Some(take_up) => remotes::other_branch(take_up, error),
        None => error,
    })?;
    monitor::set_up(&turn, &repository);
    if let (Some(from), Some(take_up)) = (from_remote, &take_up)
        && let Err(error) = repository.lease(&from.remote, from.name.as_str(), take_up.commit_id)
    {
        // It will have to be pushed with force.
        log::warn!("{name}: {error}");
    }
    let told = || -> Response {
        Ok(Answer::Fork(ForkInfo {
            agent_texts,
            ..report::fork_info(daemon, &slot, &record)?
        }))
    };
    if !request.mount {
        return told();
    }
    match turn.mount(&dir, settings) {
        Ok(()) => told(),
        Err(failure) => {
            let traces = Traces {
                branch: (!branch_existed).then(|| tip_of(&repository, &record)).flatten(),
                mount_dir: (!dir_existed).then_some(dir),
            };
            undo_new(&turn, &traces);
            Err(failure)
        }
    }
}

/// `fork` or `fork@snapshot`.
fn parse_parent(text: &str) -> Result<(ForkName, Option<ForkName>), Failure> {
    let (fork, snapshot) = match text.split_once('@') {
        Some((fork, snapshot)) => (fork, Some(snapshot)),
        None => (text, None),
    };
    Ok((ForkName::parse(fork)?, snapshot.map(ForkName::parse).transpose()?))
}

/// Checks that revisions are to be understood in a worktree of this repository.
fn check_git_dir(repository: &Repository, git_dir: &Path) -> Result<(), Failure> {
    let common_dir = repository.common_dir();
    let found = git_dir
        .canonicalize()
        .map_err(|error| Failure::io("find", git_dir, &error))?;
    if found == common_dir || found.parent() == Some(&common_dir.join("worktrees")) {
        return Ok(());
    }
    Err(Failure::new(
        ErrorCode::Usage,
        format!("{} is no git directory of this repository", git_dir.display()),
    )
    .hint("this is a fault of the program that asks the daemon"))
}

/// Takes a fork back that could not be mounted, so that nothing has changed.
fn undo_new(turn: &Turn<'_>, traces: &Traces) {
    let undone = turn
        .unmount(UnmountMode::Force)
        .and_then(|()| Ok(turn.daemon.store.remove_fork_with(turn.name(), traces)?));
    if let Err(failure) = undone {
        log::error!("{} could not be taken back: {failure}", turn.name());
    }
}

/// The fork's branch and the commit that it stands on, in hex.
fn tip_of(repository: &Repository, record: &ForkRecord) -> Option<(String, String)> {
    let tip = repository.branch(&record.branch).ok()??;
    Some((record.branch.clone(), tip.to_string()))
}

pub fn list(daemon: &Arc<Daemon>) -> Response {
    let (records, errors) = daemon.store.records();
    let mut damaged: Vec<Failure> = errors.into_iter().map(Failure::from).collect();
    let mut forks = Vec::with_capacity(records.len());
    for record in &records {
        let slot = daemon.slot(&record.name);
        match report::fork_info(daemon, &slot, record) {
            Ok(info) => forks.push(info),
            Err(failure) => damaged.push(failure.context(format!("{} is not whole", record.name))),
        }
        damaged.extend(slot.trouble());
    }
    Ok(Answer::Forks { forks, damaged })
}

pub fn show(daemon: &Arc<Daemon>, name: &ForkName) -> Response {
    let record = daemon.store.record(name)?;
    Ok(Answer::Fork(report::fork_info(
        daemon,
        &daemon.slot(name),
        &record,
    )?))
}

pub fn delete(daemon: &Arc<Daemon>, name: &ForkName, force: bool, identity: Option<Identity>) -> Response {
    let slot = daemon.slot(name);
    let turn = turn_without_handoffs(daemon, &slot)?;
    let repository = daemon.repository_now()?;
    // Its branch may have another name by now.
    if let Err(error) = branches::follow(&daemon.store, &repository) {
        log::warn!("{name}: {error}");
    }
    let record = match turn.record() {
        Err(failure) if force && failure.code == ErrorCode::StoreDamaged => {
            return delete_damaged(&turn, &failure);
        }
        record => record?,
    };
    if !force {
        refuse_texts_in_buffers(&turn)?;
        refuse_uncommitted(&turn, &repository)?;
    }
    let mount_before = turn.mounted_as();
    turn.unmount(match force {
        true => UnmountMode::Force,
        false => UnmountMode::Clean,
    })?;
    // Now nobody writes any more: what was written since the first look counts, too.
    let kept = match force {
        true => buffers::with_all_agent_texts(&turn, || keep(&turn, &repository, &record, identity)),
        false => refuse_uncommitted(&turn, &repository).map(|()| None),
    };
    let kept = kept.and_then(|kept_as| match kept_as {
        // It stands on HEAD, whatever that is on.
        Some(kept_as) => Ok(Some(kept_as)),
        None => keep_detached_head(&repository, &record),
    });
    let kept_as = match kept {
        Ok(kept_as) => kept_as,
        Err(failure) => {
            if let Some((dir, settings)) = mount_before {
                turn.mount_or_note(dir, settings);
            }
            return Err(failure);
        }
    };
    buffers::end_in(&turn)?;
    fuse::detach_stale(&record.mount_dir)?;
    // A branch that stays is no failure.
    let loses_nothing = own_branch_loses_nothing(&repository, &record).unwrap_or_else(|failure| {
        log::warn!("the branch {} stays: {failure}", record.branch);
        false
    });
    let traces = Traces {
        branch: loses_nothing.then(|| tip_of(&repository, &record)).flatten(),
        mount_dir: Some(record.mount_dir),
    };
    let branch_deleted = daemon.store.remove_fork_with(name, &traces)?;
    turn.set_trouble(None);
    log::info!("{name} is deleted");
    Ok(Answer::Deleted(Deleted {
        fork: name.clone(),
        kept_as,
        branch_deleted,
    }))
}

/// The turn of a fork of which no handoff is being made. It is not waited for in the turn, which others may want.
fn turn_without_handoffs<'a>(daemon: &'a Arc<Daemon>, slot: &'a Arc<Slot>) -> Result<Turn<'a>, Failure> {
    loop {
        handoffs::wait_for_fork(daemon, &slot.name)?;
        let turn = daemon.turn(slot)?;
        if !handoffs::is_pending_of(daemon, &slot.name)? {
            return Ok(turn);
        }
    }
}

/// Deletes a fork whose record cannot be read: nothing of it can be kept.
fn delete_damaged(turn: &Turn<'_>, failure: &Failure) -> Response {
    log::error!("{}: nothing can be kept: {failure}", turn.name());
    turn.unmount(UnmountMode::Force)?;
    turn.daemon.store.remove_fork(turn.name())?;
    turn.set_trouble(None);
    Ok(Answer::Deleted(Deleted {
        fork: turn.name().clone(),
        kept_as: None,
        branch_deleted: false,
    }))
}

/// What agents wrote to open buffers would go with the fork. A refusal leaves the buffers as they are.
fn refuse_texts_in_buffers(turn: &Turn<'_>) -> Result<(), Failure> {
    let name = turn.name();
    let paths = buffers::in_buffers_only(turn.daemon, name);
    let Some(first) = paths.first() else {
        return Ok(());
    };
    let failure = Failure::new(
        ErrorCode::UncommittedChanges,
        format!("{name} has what agents wrote to open buffers, in no file yet: {first}"),
    )
    .hint(format!(
        "save in the editor, or `tine commit {name}`; with `--force` it stays under refs/tine/{name}/"
    ));
    let others = paths.iter().skip(1);
    Err(others.fold(failure, |failure, path| failure.cause(path.to_string())))
}

fn refuse_uncommitted(turn: &Turn<'_>, repository: &Repository) -> Result<(), Failure> {
    let fork = turn.open()?;
    let name = turn.name();
    let changeset = changeset::changeset(repository, &fork, Blobs::Hash)?;
    let changed = changeset.changes.len();
    if changed == 0 {
        policy::refuse_nested_repositories(name, &fork, &changeset)?;
        refuse_submodules(name, &fork)?;
        return refuse_snapshots(turn);
    }
    let paths = match changed {
        1 => "1 path".to_owned(),
        _ => format!("{changed} paths"),
    };
    Err(Failure::new(
        ErrorCode::UncommittedChanges,
        format!("{name} has changes in {paths} that are not committed"),
    )
    .hint(format!(
        "`tine status {name}` shows them, `tine commit` keeps them; with `--force` they stay under refs/tine/{name}/"
    )))
}

/// As `git worktree remove` does: what was committed in a submodule is nowhere else until it is pushed.
fn refuse_submodules(name: &ForkName, fork: &Fork) -> Result<(), Failure> {
    if !fork.worktree.has_submodules() {
        return Ok(());
    }
    Err(Failure::new(
        ErrorCode::UncommittedChanges,
        format!("{name} has repositories of submodules, which would go with it"),
    )
    .hint("push what was committed in them; `--force` deletes them"))
}

/// Snapshots that somebody asked for go with their fork: not unasked.
fn refuse_snapshots(turn: &Turn<'_>) -> Result<(), Failure> {
    let name = turn.name();
    let snapshots = turn.daemon.store.snapshots(name)?;
    let asked: Vec<&str> = snapshots
        .iter()
        .filter(|snapshot| !snapshot.reason.is_automatic())
        .map(|snapshot| snapshot.name.as_str())
        .collect();
    match asked.first() {
        None => Ok(()),
        Some(first) => Err(Failure::new(
            ErrorCode::UncommittedChanges,
            format!(
                "{name} has snapshots, which would go with it: {}",
                asked.join(", ")
            ),
        )
        .hint(format!(
            "`tine new OTHER --from-fork {name}@{first}` keeps one as a fork; `--force` deletes them"
        ))),
    }
}

/// Keeps what is uncommitted; the ref's name. A layer or a worktree that is damaged or gone does not keep its fork from
/// going: then nothing can be kept, and the log says so.
fn keep(
    turn: &Turn<'_>,
    repository: &Repository,
    record: &ForkRecord,
    identity: Option<Identity>,
) -> Result<Option<String>, Failure> {
    let kept = turn
        .open()
        .and_then(|fork| keep_discarded(repository, turn.name(), &fork, identity).map_err(Failure::from));
    let failure = match kept {
        Ok(kept) => return Ok(kept.map(|(name, _)| name)),
        Err(failure) => failure,
    };
    let worktree_is_gone = matches!(
        LinkedWorktree::open(repository, &record.worktree_id),
        Err(GitError::Io { source, .. }) if source.kind() == ErrorKind::NotFound
    );
    if failure.code == ErrorCode::StoreDamaged || worktree_is_gone {
        log::error!("{}: nothing can be kept: {failure}", turn.name());
        return Ok(None);
    }
    Err(failure)
}

/// Keeps the commits that only a detached HEAD reaches: with the worktree their last trace would go. The ref that does.
fn keep_detached_head(repository: &Repository, record: &ForkRecord) -> Result<Option<String>, Failure> {
    let Ok(worktree) = LinkedWorktree::open(repository, &record.worktree_id) else {
        return Ok(None);
    };
    let head = repository.head_of(worktree.git_dir())?;
    let Some(commit_id) = head.commit_id().filter(|_| head.branch().is_none()) else {
        return Ok(None);
    };
    if repository.reached_otherwise(commit_id, &[])?.is_some() {
        return Ok(None);
    }
    Ok(Some(keep_commit(repository, &record.name, commit_id)?))
}

/// The branch that a fork gets if nobody names one.
fn own_branch(name: &ForkName) -> String {
    format!("tine/{name}")
}

/// Whether the fork's branch is its own and deleting it loses nothing: it has no commit beyond the base, and another ref
/// reaches its tip (the base itself may be work of an earlier fork that only this branch holds).
fn own_branch_loses_nothing(repository: &Repository, record: &ForkRecord) -> Result<bool, Failure> {
    let branch = &record.branch;
    if *branch != own_branch(&record.name) {
        return Ok(false);
    }
    let (Some(tip), Some(base)) = (repository.branch(branch)?, base_commit(record)?) else {
        return Ok(false);
    };
    Ok(repository.is_ancestor(tip, base)? && repository.reached_otherwise(tip, &[branch])?.is_some())
}
