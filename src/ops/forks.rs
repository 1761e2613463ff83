//! Forks: made, shown, deleted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::target::find_target;
use super::turns::{slots_of, turns_of};
use super::work::base_commit;
use super::{buffers, remotes};
use crate::failure::{self, ErrorCode, Failure};
use crate::operation::{Call, Operation};
use crate::protocol::{Acknowledged, AgentTexts, Deleted, ForkInfo, Forks, RemoteFork, Stray};
use crate::state::slots::{Daemon, Slot, Turn};
use crate::state::strays::{self, Untold};
use crate::state::{generations, handoffs, place};
use crate::{monitor, policy, report};
use tine_change::changeset::{self, Blobs};
use tine_change::commit::refuse_gone_branch;
use tine_change::fork_point::fork_point;
use tine_change::recovery::{self, KeptSnapshot, RecoverEntry, RecoverKind};
use tine_change::superseded::superseded;
use tine_change::{ChangeError, branches};
use tine_fuse::UnmountMode;
use tine_git::{Head, Identity, LinkedWorktree, ObjectId, Repository};
use tine_path::text::{host_path, optional_host_path};
use tine_sys::file::is_same_file;
use tine_sys::process::PeerCredentials;
use tine_workspace::store::{LeaseKey, own_branch};
use tine_workspace::{
    CarryWish, DependencyTree, Fork, ForkName, ForkOptions, ForkRecord, MountSettings, MountWishes,
    ParentOptions, SnapshotEvery, SnapshotReason, StoreError, TakeUp, Traces, UnmountPolicy,
};

/// Of a caller who does not say.
const USUAL_UMASK: u16 = 0o022;

/// Makes a fork.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct New {
    pub fork: ForkName,
    /// The private git directory of the worktree that the caller stands in: revisions are
    /// understood there.
    #[serde(with = "host_path")]
    pub git_dir: PathBuf,
    pub from: Option<String>,
    /// The fork to begin as, or `fork@snapshot`.
    #[serde(default)]
    pub from_fork: Option<String>,
    /// The fork on a remote to take up, as it was last fetched or sent.
    #[serde(default)]
    pub from_remote: Option<RemoteFork>,
    pub branch: Option<String>,
    /// HEAD is on no branch.
    #[serde(default)]
    pub detached: bool,
    /// Default: `<repository>.forks/<fork>`, or beneath `tine.mountRoot`.
    /// Absolute.
    #[serde(with = "optional_host_path", default)]
    pub dir: Option<PathBuf>,
    pub mount: bool,
    #[serde(flatten)]
    pub wishes: MountWishes,
    pub on_unmount: UnmountPolicy,
    #[serde(default)]
    pub snapshot_every: Option<SnapshotEvery>,
    pub umask: u16,
    #[serde(default)]
    pub carry: CarryWish,
}

impl New {
    /// A fork of HEAD of the worktree with `git_dir`, mounted at its usual place, where nothing
    /// else is said.
    pub fn of(fork: ForkName, git_dir: PathBuf) -> New {
        New {
            fork,
            git_dir,
            from: None,
            from_fork: None,
            from_remote: None,
            branch: None,
            detached: false,
            dir: None,
            mount: true,
            wishes: MountWishes::default(),
            on_unmount: UnmountPolicy::default(),
            snapshot_every: None,
            umask: USUAL_UMASK,
            carry: CarryWish::default(),
        }
    }
}

impl Operation for New {
    const NAME: &'static str = "new";
    const DOING: &'static str = "making the fork";
    type Answer = ForkInfo;

    fn run(self, call: &Call<'_>) -> Result<ForkInfo, Failure> {
        make(call.daemon, call.peer, self, None)
    }
}

/// All forks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListForks {}

impl Operation for ListForks {
    const NAME: &'static str = "list";
    type Answer = Forks;

    fn run(self, call: &Call<'_>) -> Result<Forks, Failure> {
        Ok(list(call.daemon))
    }
}

/// One fork.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ShowFork {
    pub fork: ForkName,
}

impl Operation for ShowFork {
    const NAME: &'static str = "show";
    type Answer = ForkInfo;

    fn run(self, call: &Call<'_>) -> Result<ForkInfo, Failure> {
        show(call.daemon, &self.fork)
    }
}

/// Says that somebody was told of these strays.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NoteToldStrays {
    pub fork: ForkName,
    pub strays: Vec<Stray>,
}

impl Operation for NoteToldStrays {
    const NAME: &'static str = "told-strays";
    type Answer = Acknowledged;

    fn run(self, call: &Call<'_>) -> Result<Acknowledged, Failure> {
        Untold::told(&call.daemon.store, &self.fork, &self.strays);
        Ok(Acknowledged {})
    }
}

/// Remove a fork
///
/// Its branch stays, unless it has no commit of its own. A fork with uncommitted changes is removed
/// with --force only; `tine recover` brings them back, and its snapshots. So is one in which
/// submodules were cloned (`git submodule update --init`): their repositories go with it. What
/// programs put into its mount place while it was not mounted stays there, and is named. Files that
/// git ignores go without --force and do not come back, as with `git worktree remove`. Where
/// something cannot be kept by itself, as in a damaged layer, the fork is set aside as it is, and
/// `tine check --put-back` brings it back.
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
    const DOING: &'static str = "deleting the fork";
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

/// Makes a fork, which takes up `given` where that is something.
pub(crate) fn make(
    daemon: &Arc<Daemon>,
    peer: PeerCredentials,
    request: New,
    given: Option<TakeUp>,
) -> Result<ForkInfo, Failure> {
    let parent_name = request.from_fork.as_deref().map(parse_parent).transpose()?;
    let parent_fork = parent_name.as_ref().map(|(name, _)| name);
    let slots = slots_of(
        daemon,
        [Some(&request.fork), parent_fork]
            .into_iter()
            .flatten()
            .cloned(),
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
        (Some((parent, snapshot)), Some(parents_turn)) => {
            let snapshot = snapshot
                .map(|snapshot| daemon.store.snapshot(&parent, &snapshot))
                .transpose()?;
            let fork = match (parents_turn.open_existing(), &snapshot) {
                // The snapshot may be whole where what the fork has now is not.
                (Err(failure), Some(snapshot)) if failure.code == ErrorCode::StoreDamaged => {
                    daemon.store.open_snapshot(&parent, snapshot)?
                }
                (fork, _) => fork?,
            };
            Some(ParentOptions {
                name: parent,
                fork,
                snapshot,
            })
        }
        (Some((parent, _)), None) => return Err(StoreError::NoSuchFork(parent.to_string()).into()),
        (None, _) => None,
    };
    let from_remote = request.from_remote.as_ref();
    let take_up = from_remote
        .map(|from| remotes::take_up(&repository, &request.git_dir, from))
        .transpose()?
        .or(given);
    let dir = match request.dir {
        Some(dir) => dir,
        None => place::default_dir(&repository, name)?,
    };
    // A dead mount of an earlier fork cannot be looked into.
    tine_fuse::detach_stale(&dir)?;
    let (forks, _) = daemon.store.records();
    let dir = place::check(&repository, &forks, name, &dir)?;
    let dir_existed = dir.exists();
    // An alias means the branch behind it.
    if let Some(branch) = &request.branch {
        repository.branch(branch)?;
    }
    let asked_branch = request
        .branch
        .map(|branch| repository.branch_behind(&branch));
    let branch = asked_branch.clone().unwrap_or_else(|| own_branch(name));
    repository.check_branch_name(&branch)?;
    // Until the fork is mounted, or taken back with the branch.
    let _lease = daemon.store.lease(
        [LeaseKey::Branch(branch.clone())],
        &format!("tine new {name}"),
    )?;
    let branch_existed = repository.branch(&branch)?.is_some();
    // What a fork inherits was built where its parent was seen.
    let at_origin = match &parent {
        Some(parent) => daemon.store.record(&parent.name)?.settings.at_origin,
        None => None,
    };
    let settings = MountSettings {
        at_origin,
        ..MountSettings::default()
    }
    .with(request.wishes);
    let options = ForkOptions {
        name: name.clone(),
        git_dir: request.git_dir,
        from: request.from,
        parent,
        take_up: take_up.clone(),
        branch: asked_branch,
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
    let mut trees = record.carry.iter().flat_map(|carry| &carry.trees);
    if trees.any(DependencyTree::is_wanted) {
        generations::make_wanted(daemon);
    }
    if let (Some(from), Some(take_up)) = (from_remote, &take_up)
        && let Err(error) = repository.lease(&from.remote, from.name.as_str(), take_up.commit_id)
    {
        // It will have to be pushed with force.
        log::warn!("{name}: {error}");
    }
    let told = || {
        Ok(ForkInfo {
            agent_texts,
            ..report::fork_info(daemon, &slot, &record)?
        })
    };
    if !request.mount {
        return told();
    }
    match turn.mount(&dir, settings) {
        Ok(()) => told(),
        Err(failure) => {
            let traces = Traces {
                branch: (!branch_existed)
                    .then(|| tip_of(&repository, &record))
                    .flatten(),
                mount_dir: (!dir_existed).then(|| dir.clone()),
            };
            tine_fuse::remove_guard(&dir);
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
    Ok((
        ForkName::parse(fork)?,
        snapshot.map(ForkName::parse).transpose()?,
    ))
}

/// Checks that revisions are to be understood in a worktree of this repository.
fn check_git_dir(repository: &Repository, git_dir: &Path) -> Result<(), Failure> {
    let common_dir = repository.common_dir();
    let found = git_dir
        .canonicalize()
        .map_err(|error| Failure::io("find", git_dir, &error))?;
    let worktree = found
        .file_name()
        .map(|id| common_dir.join("worktrees").join(id));
    // Through a bind mount it has another path.
    if is_same_file(&found, common_dir)
        || worktree.is_some_and(|worktree| is_same_file(&found, &worktree))
    {
        return Ok(());
    }
    Err(Failure::new(
        ErrorCode::Usage,
        format!(
            "{} is no git directory of this repository",
            git_dir.display()
        ),
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

fn list(daemon: &Arc<Daemon>) -> Forks {
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
        damaged.extend(Untold::of(&daemon.store, &record.name).failed);
    }
    Forks { forks, damaged }
}

pub(crate) fn show(daemon: &Arc<Daemon>, name: &ForkName) -> Result<ForkInfo, Failure> {
    let record = daemon.store.record(name)?;
    report::fork_info(daemon, &daemon.slot(name), &record)
}

/// `command` is what `tine recover` names, if it is not `tine delete`.
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
    let turn = turn_without_handoffs(daemon, &slot)?;
    let repository = daemon.repository_now()?;
    // Its branch may have another name by now.
    if let Err(error) = branches::follow(&daemon.store, &repository) {
        log::warn!("{name}: {error}");
    }
    let record = match turn.record() {
        Err(failure) if force && failure.code == ErrorCode::StoreDamaged => {
            return delete_damaged(&turn, &failure, &command);
        }
        record => record?,
    };
    daemon.store.check_can_remove(name)?;
    if !force {
        refuse_texts_in_buffers(&turn)?;
        refuse_under_way(&turn, &repository)?;
        refuse_uncommitted(&turn, &repository)?;
    }
    let _lease = daemon
        .store
        .lease([LeaseKey::Branch(record.branch.clone())], &command)?;
    let mount_before = turn.mounted_as();
    turn.unmount(match force {
        true => UnmountMode::Force,
        false => UnmountMode::Clean,
    })?;
    // Now nobody writes any more: what was written since the first look counts, too.
    let kept = match force {
        true => buffers::with_all_agent_texts(&turn, || {
            keep(&turn, &repository, &record, (&command, force), identity)
        }),
        false => refuse_under_way(&turn, &repository)
            .and_then(|()| refuse_uncommitted(&turn, &repository))
            .and_then(|()| keep(&turn, &repository, &record, (&command, force), identity)),
    };
    let kept = match kept {
        Ok(kept) => kept,
        Err(failure) => {
            if let Some((dir, settings)) = mount_before {
                turn.mount_or_note(dir, settings);
            }
            return Err(failure);
        }
    };
    buffers::end_in(&turn)?;
    tine_fuse::detach_stale(&record.mount_dir)?;
    tine_fuse::remove_guard(&record.mount_dir);
    if !kept.lost.is_empty() && !kept.no_room {
        return set_aside(&turn, kept, &record.mount_dir);
    }
    let removing = daemon.store.removing_branches();
    // A branch that stays is no failure.
    let loses_nothing = own_branch_loses_nothing(&repository, &record).unwrap_or_else(|failure| {
        log::warn!("the branch {} stays: {failure}", record.branch);
        false
    });
    let left = strays::left_at(&record.mount_dir);
    let traces = Traces {
        branch: loses_nothing
            .then(|| tip_of(&repository, &record))
            .flatten(),
        mount_dir: Some(record.mount_dir),
    };
    let branch_deleted = daemon.store.remove_fork_with(name, &traces)?;
    drop(removing);
    turn.set_trouble(None);
    daemon.buffers.forget_fork(&daemon.store, name);
    log::info!("{name} is deleted");
    Ok(Deleted {
        branch_deleted,
        left,
        ..kept.told(name)
    })
}

/// Ends the delete of a fork of which something could not be kept by itself: it goes out of the way
/// as a whole.
fn set_aside(turn: &Turn<'_>, kept: Kept, mount_dir: &Path) -> Result<Deleted, Failure> {
    let (daemon, name) = (turn.daemon, turn.name());
    let number = daemon.store.set_aside_fork(name)?;
    turn.set_trouble(None);
    log::warn!("{name} is set aside: `tine check --put-back {number}` brings it back");
    Ok(Deleted {
        set_aside: Some(number),
        left: strays::left_at(mount_dir),
        ..kept.told(name)
    })
}

/// The turn of a fork of which no handoff is being made. It is not waited for in the turn, which
/// others may want.
fn turn_without_handoffs<'a>(
    daemon: &'a Arc<Daemon>,
    slot: &'a Arc<Slot>,
) -> Result<Turn<'a>, Failure> {
    loop {
        handoffs::wait_for_fork(daemon, &slot.name)?;
        let turn = daemon.turn(slot)?;
        if !handoffs::is_pending_of(daemon, &slot.name)? {
            return Ok(turn);
        }
    }
}

/// Deletes a fork whose record cannot be read.
fn delete_damaged(turn: &Turn<'_>, failure: &Failure, command: &str) -> Result<Deleted, Failure> {
    turn.unmount(UnmountMode::Force)?;
    let (store, repository) = (&turn.daemon.store, &turn.daemon.repository_now()?);
    let superseded = superseded(repository, turn.name(), None, &BTreeSet::new(), &[])?;
    let mut kept = Kept {
        superseded: superseded.len(),
        ..Kept::default()
    };
    for what in [UNCOMMITTED, SNAPSHOTS] {
        kept.lose(what, &failure.message);
    }
    if kept.superseded > 0 {
        let entry = RecoverEntry {
            fork: Some(turn.name().clone()),
            snapshots: superseded,
            ..RecoverEntry::new(RecoverKind::Fork, command)
        };
        kept.entry = Some(recovery::keep(store, repository, entry, &[])?);
        kept.snapshots_only = true;
    }
    let dir = place::default_dir(&turn.daemon.repository, turn.name())?;
    tine_fuse::detach_stale(&dir)?;
    tine_fuse::remove_guard(&dir);
    set_aside(turn, kept, &dir)
}

/// What agents wrote to open buffers would go with the fork. A refusal leaves the buffers as they
/// are.
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
        "save in the editor, or `tine commit {name} -m MESSAGE`; with `--force` it stays under refs/tine/{name}/"
    ));
    let others = paths.iter().skip(1);
    Err(others.fold(failure, |failure, path| failure.cause(path.to_string())))
}

/// Refuses where the fork, if it is there, holds repositories or submodules that no commit can
/// keep.
pub(crate) fn refuse_repositories_in(daemon: &Arc<Daemon>, name: &ForkName) -> Result<(), Failure> {
    if let Err(StoreError::NoSuchFork(_)) = daemon.store.record(name) {
        return Ok(());
    }
    let slot = daemon.slot(name);
    let turn = daemon.turn(&slot)?;
    let fork = turn.open()?;
    let repository = daemon.repository_now()?;
    let changeset = changeset::changeset(&repository, &fork, Blobs::Hash)?;
    policy::refuse_nested_repositories(name, &fork, &changeset)?;
    refuse_submodules(name, &fork)?;
    policy::refuse_nested_checkouts(name, &fork, &changeset)
}

/// git's own work in the fork would go with it: stashes of an operation, and the way back to its
/// branch.
fn refuse_under_way(turn: &Turn<'_>, repository: &Repository) -> Result<(), Failure> {
    let fork = turn.open()?;
    if let Some(operation) = fork.worktree.operation_in_progress() {
        return Err(ChangeError::OperationInProgress(operation).into());
    }
    Ok(refuse_gone_branch(repository, &fork)?)
}

fn refuse_uncommitted(turn: &Turn<'_>, repository: &Repository) -> Result<(), Failure> {
    let fork = turn.open()?;
    let name = turn.name();
    let changeset = changeset::changeset(repository, &fork, Blobs::Hash)?;
    let changed = changeset.changes.len();
    if changed == 0 {
        policy::refuse_nested_repositories(name, &fork, &changeset)?;
        refuse_submodules(name, &fork)?;
        policy::refuse_nested_checkouts(name, &fork, &changeset)?;
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
        "`tine status {name}` shows them, `tine commit {name} -m MESSAGE` keeps them; after `--force` `tine recover` brings them back"
    )))
}

/// As `git worktree remove` does: what was committed in a submodule is nowhere else until it is
/// pushed.
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
            "`tine new OTHER --from-fork {name}@{first}` keeps one as a fork; after `--force` `tine recover` brings them back"
        ))),
    }
}

/// On a full disk more uncommitted bytes than these are not even tried to be kept: what was written
/// before the disk is full again would stay.
const KEPT_OF_FULL_DISK: u64 = 1 << 20;

/// What a fork has, in the words of an answer.
const UNCOMMITTED: &str = "what was not committed";
const SNAPSHOTS: &str = "its snapshots";

/// What was kept of a fork that goes.
#[derive(Default)]
struct Kept {
    /// The number of the entry.
    entry: Option<u64>,
    /// Whether snapshots and superseded commits are all that is in the entry.
    snapshots_only: bool,
    /// How many commits of the entry HEAD once was on, or git kept for the fork alone.
    superseded: usize,
    /// Whether something uncommitted goes, because the disk is full: a forced delete must make
    /// room.
    no_room: bool,
    /// What could not be kept by itself, in words.
    lost: Vec<String>,
    /// The first reason for that.
    because: Option<String>,
}

impl Kept {
    /// Notes that `what` (in words) cannot be kept by itself, and why.
    fn lose(&mut self, what: impl Into<String>, reason: &impl ToString) {
        self.lost.push(what.into());
        self.because.get_or_insert_with(|| reason.to_string());
    }

    /// The answer to the delete of a fork that left its branch, and nothing beside it.
    fn told(self, fork: &ForkName) -> Deleted {
        Deleted {
            fork: fork.clone(),
            recover: self.entry,
            snapshots_only: self.snapshots_only,
            superseded: self.superseded,
            branch_deleted: false,
            not_kept: self.no_room,
            lost: self.lost,
            because: self.because,
            set_aside: None,
            left: None,
        }
    }
}

/// The staged text that no file has, as a snapshot; `None` where the fork cannot be opened.
fn keep_staged(turn: &Turn<'_>, repository: &Repository) -> Result<Option<KeptSnapshot>, Failure> {
    let Ok(open) = turn.open() else {
        return Ok(None);
    };
    let reason = SnapshotReason::BeforeDiscard;
    Ok(recovery::staged_only(
        repository,
        turn.name(),
        &open,
        reason,
    )?)
}

/// What became of what is uncommitted.
enum Uncommitted {
    /// The commit that keeps it.
    Kept(ObjectId),
    Nothing,
    NoRoom,
    /// It cannot be committed, for this reason.
    Failed(Failure),
}

/// Keeps what goes with the fork: what is uncommitted (with `force`; else nothing is), its
/// snapshots, and commits that only the fork reaches.
fn keep(
    turn: &Turn<'_>,
    repository: &Repository,
    record: &ForkRecord,
    (command, force): (&str, bool),
    identity: Option<Identity>,
) -> Result<Kept, Failure> {
    let name = turn.name();
    let uncommitted = match force {
        true => keep_uncommitted(turn, repository, identity)?,
        false => Uncommitted::Nothing,
    };
    let mut kept = Kept::default();
    let mut uncommitted_id = None;
    match uncommitted {
        Uncommitted::Kept(commit_id) => uncommitted_id = Some(commit_id),
        Uncommitted::Nothing => {}
        Uncommitted::NoRoom => kept.no_room = true,
        Uncommitted::Failed(failure) => kept.lose(UNCOMMITTED, &failure),
    }
    let worktree = LinkedWorktree::open(repository, &record.worktree_id).ok();
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
        // What was uncommitted are changes to that, also where the branch has moved under the fork.
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
        // With the worktree their last trace would go.
        Some(commit_id) if branch.is_none() || gone.is_some() => {
            repository.reached_otherwise(commit_id, &[])?.is_none()
        }
        _ => false,
    };
    let snapshots = match turn.daemon.store.snapshots(name) {
        Err(error) if force => {
            log::error!("{name}: its snapshots cannot be kept: {error}");
            kept.lose(SNAPSHOTS, &error);
            Vec::new()
        }
        Err(error) => return Err(error.into()),
        Ok(snapshots) => {
            let (whole, damaged) =
                recovery::kept_snapshots(&turn.daemon.store, repository, name, &snapshots);
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
    let known = uncommitted_id.into_iter().chain(commit_id).collect();
    let superseded = match superseded(repository, name, worktree.as_ref(), &known, &snapshots) {
        Err(error) if force => {
            log::error!("{name}: commits that it alone has cannot be kept: {error}");
            kept.lose("commits that it alone has", &error);
            Vec::new()
        }
        found => found?,
    };
    let staged = match keep_staged(turn, repository) {
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
        && staged.is_none()
    {
        return Ok(kept);
    }
    let superseded_count = superseded.len();
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
        ..RecoverEntry::new(RecoverKind::Fork, command)
    };
    match recovery::keep(&turn.daemon.store, repository, entry, &[]).map_err(Failure::from) {
        Ok(id) => {
            kept.entry = Some(id);
            kept.snapshots_only = uncommitted_id.is_none() && !is_only_here;
            kept.superseded = superseded_count;
        }
        Err(failure) if failure.code == ErrorCode::NoSpace => {
            if !force || is_only_here || superseded_count > 0 {
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

/// Commits what is uncommitted. A full disk, or what cannot be committed, does not keep its fork
/// from going.
fn keep_uncommitted(
    turn: &Turn<'_>,
    repository: &Repository,
    identity: Option<Identity>,
) -> Result<Uncommitted, Failure> {
    let name = turn.name();
    let kept = turn
        .open()
        .and_then(|fork| match turn.daemon.store.reserve_is_short() {
            true if fork.workspace.stats().content_bytes > KEPT_OF_FULL_DISK => {
                Err(failure::no_space(name.as_str()))
            }
            _ => Ok(fork),
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
            turn.name()
        );
        return Ok(Uncommitted::NoRoom);
    }
    log::error!("{name}: what is uncommitted cannot be committed: {failure}");
    Ok(Uncommitted::Failed(failure))
}

/// Whether the fork's branch is its own and deleting it loses nothing: it has no commit beyond the
/// base, and another ref reaches its tip (the base itself may be work of an earlier fork that only
/// this branch holds).
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
