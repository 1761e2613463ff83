//! Makes, lists and shows forks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::locks::{self, Guards, slots_of};
use super::target::find_target;
use super::{buffers, remotes};
use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation};
use crate::protocol::{Acknowledged, AgentTexts, ForkInfo, Forks, RemoteFork, Stray};
use crate::state::slots::{Daemon, ForkGuard};
use crate::state::strays::Untold;
use crate::state::{generations, place};
use crate::{monitor, report};
use tine_fuse::UnmountMode;
use tine_git::Repository;
use tine_path::text::{host_path, optional_host_path};
use tine_sys::file::is_same_file;
use tine_sys::process::PeerCredentials;
use tine_workspace::store::{LeaseKey, own_branch};
use tine_workspace::{
    CarryRules, DependencyTree, ForkName, ForkOptions, ForkRecord, MountRequest, MountSettings,
    ParentOptions, SnapshotEvery, StoreError, TakeUp, Traces, UnmountPolicy,
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
    pub wishes: MountRequest,
    pub on_unmount: UnmountPolicy,
    #[serde(default)]
    pub snapshot_every: Option<SnapshotEvery>,
    pub umask: u16,
    #[serde(default)]
    pub carry: CarryRules,
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
            wishes: MountRequest::default(),
            on_unmount: UnmountPolicy::default(),
            snapshot_every: None,
            umask: USUAL_UMASK,
            carry: CarryRules::default(),
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
    let mut guards = Guards::lock(daemon, &slots)?;
    let guard = guards.remove(&request.fork)?;
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
    let parent = match (parent_name, guards.iter().next()) {
        (Some((parent, snapshot)), Some(parent_guard)) => {
            let snapshot = snapshot
                .map(|snapshot| daemon.store.snapshot(&parent, &snapshot))
                .transpose()?;
            let fork = match (parent_guard.open_existing(), &snapshot) {
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
    let _lease = locks::lease(daemon, &format!("tine new {name}"), || {
        Ok(vec![LeaseKey::Branch(branch.clone())])
    })?;
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
    let parent_guard = guards.iter().next().filter(|_| is_of_parents_now);
    let created = match parent_guard {
        Some(parent_guard) => buffers::with_agent_texts(parent_guard, || Ok(create()?)),
        None => create()
            .map(|record| (record, AgentTexts::default()))
            .map_err(Failure::from),
    };
    let (record, agent_texts) = created.map_err(|error| match &take_up {
        Some(take_up) => remotes::other_branch(take_up, error),
        None => error,
    })?;
    monitor::set_up(&guard, &repository);
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
    match guard.mount(&dir, settings) {
        Ok(()) => told(),
        Err(failure) => {
            let traces = Traces {
                branch: (!branch_existed)
                    .then(|| tip_of(&repository, &record))
                    .flatten(),
                mount_dir: (!dir_existed).then(|| dir.clone()),
            };
            tine_fuse::remove_guard(&dir);
            undo_new(&guard, &traces);
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
fn undo_new(guard: &ForkGuard<'_>, traces: &Traces) {
    let undone = guard
        .unmount(UnmountMode::Force)
        .and_then(|()| Ok(guard.daemon.store.remove_fork_with(guard.name(), traces)?));
    if let Err(failure) = undone {
        log::error!("{} could not be taken back: {failure}", guard.name());
    }
}

/// The fork's branch and the commit that it stands on, in hex.
pub(crate) fn tip_of(repository: &Repository, record: &ForkRecord) -> Option<(String, String)> {
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
