//! Makes forks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::forks::tip_of;
use super::locks::{self, Guards, slots_of};
use super::target::find_target;
use super::{buffers, remotes};
use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation};
use crate::protocol::{AgentTexts, ForkInfo, RemoteFork};
use crate::state::slots::{Daemon, ForkGuard};
use crate::state::{generations, place, taking};
use crate::{monitor, report};
use tine_fuse::UnmountMode;
use tine_git::Repository;
use tine_path::text::optional_host_path;
use tine_store::{
    ForkName, ForkOptions, ForkRecord, ForkState, GitKind, MountProfile, MountRequest,
    MountSettings, ParentOptions, SnapshotEvery, StoreError, Traces, UnmountPolicy, VisiblePath,
};
use tine_store::{LeaseKey, own_branch};
use tine_sys::file::is_same_file;
use tine_workspace::{Caller, CarryRules, DependencyTree};

/// Make a fork, mount it and print its path
///
/// The fork is based on the commit that HEAD names in the worktree the command runs in (inside a
/// fork's mount: that fork's HEAD), or on the one that --from names, and is on a branch of its own.
/// Its path is all that is printed on standard output.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine new fix-parser                           from HEAD, on the branch tine/fix-parser
  tine new hotfix --from v1.2 --branch hotfix   from a tag, on a branch of your choice
  cd \"$(tine new fix-parser)\"                   make it and go there
  tine new other --from-fork fix-parser         from all that another fork has, committed or not
  tine new again --from-fork other@before       from one of its snapshots
  tine new ada --from-remote fix-parser         from what was pushed to a git remote
  tine new try --on-unmount discard             throw the changes away when it is unmounted
  tine new warm --carry target                  see what was built in the main checkout
  tine new pair --overlay-buffers               tests read what you have typed and not saved")]
pub struct New {
    /// The fork's name: letters, digits, '.', '_' and '-'
    #[arg(id = "name", value_name = "NAME")]
    pub fork: ForkName,

    /// Only make it; `tine mount` mounts it later
    #[arg(long, conflicts_with_all = ["allow_other", "suid", "dev", "profile", "overlay_buffers", "no_overlay_buffers"])]
    #[serde(default)]
    pub no_mount: bool,

    /// Have commands that tine runs in the fork see it at the main checkout's path: exec, shell,
    /// tine.setup, an agent's `run` [default: what tine.atOrigin says, or the fork that it begins
    /// as]
    #[arg(long)]
    #[serde(default)]
    pub at_origin: bool,

    /// Have them see it at the path of the fork that it begins as, where what it inherits was built
    #[arg(long, conflicts_with = "at_origin", requires = "from_fork")]
    #[serde(default)]
    pub at_parent: bool,

    /// Have them see it at its own path
    #[arg(long, conflicts_with_all = ["at_origin", "at_parent"])]
    #[serde(default)]
    pub no_at_origin: bool,

    /// True to leave HEAD detached.
    #[arg(skip)]
    #[serde(default)]
    pub detached: bool,

    /// Options that `tine exec --new` also takes.
    #[command(flatten)]
    #[serde(flatten)]
    pub options: NewOptions,
}

impl New {
    /// Returns the operation that makes `fork` from the caller's HEAD.
    ///
    /// It mounts the fork at its default place.
    pub fn of(fork: ForkName) -> New {
        New {
            fork,
            no_mount: false,
            at_origin: false,
            at_parent: false,
            no_at_origin: false,
            detached: false,
            options: NewOptions::default(),
        }
    }

    fn mount_request(&self) -> MountRequest {
        MountRequest {
            at_origin: match (self.at_origin, self.at_parent, self.no_at_origin) {
                (true, ..) => Some(VisiblePath::Origin),
                (_, true, _) => Some(VisiblePath::Parent),
                (.., true) => Some(VisiblePath::Own),
                (false, false, false) => None,
            },
            ..self.options.settings.request()
        }
    }
}

impl Operation for New {
    const NAME: &'static str = "new";
    const PROGRESS: &'static str = "making the fork";
    type Answer = ForkInfo;

    fn run(self, call: &Call<'_>) -> Result<ForkInfo, Failure> {
        make(call.daemon, call.owner(), call.git_dir()?, self, None)
    }
}

// Options of `tine new` and `tine exec --new`.
#[expect(
    missing_docs,
    reason = "a doc comment would become the help of the commands that flatten this"
)]
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize, JsonSchema)]
pub struct NewOptions {
    /// The revision to start from [default: HEAD, or the tip of --branch where it exists]
    #[arg(long, value_name = "REV")]
    #[serde(default)]
    pub from: Option<String>,

    /// Begin as another fork is at this moment, uncommitted and ignored files and all, or as it was
    /// when a snapshot was taken
    #[arg(long, value_name = "FORK[@SNAPSHOT]", conflicts_with = "from")]
    #[serde(default)]
    pub from_fork: Option<String>,

    /// Take up a fork that was pushed to a remote, uncommitted changes and all, as it was last
    /// fetched (which is done where it never was)
    #[arg(long, value_name = "[REMOTE/]FORK", conflicts_with_all = ["from", "from_fork"])]
    #[schemars(skip)]
    #[serde(skip)]
    pub from_remote: Option<String>,

    /// Fork on a remote that the caller resolved from `from_remote` and fetched.
    #[arg(skip)]
    #[schemars(skip)]
    #[serde(default)]
    pub remote_fork: Option<RemoteFork>,

    /// The branch to be on; made where it does not exist [default: tine/NAME]
    #[arg(short, long, value_name = "BRANCH")]
    #[serde(default)]
    pub branch: Option<String>,

    /// Have the main repository's branch of --branch follow what is committed in the fork, where
    /// the fork is a repository of its own and the branch was there before
    #[arg(long, requires = "branch")]
    #[schemars(skip)]
    #[serde(default)]
    pub follow: bool,

    /// What git finds in the fork: a repository of its own, or a linked worktree [default: as the
    /// fork that it begins as, or what tine.git says, or own]
    #[arg(long, value_enum, value_name = "KIND")]
    #[schemars(skip)]
    #[serde(default)]
    pub git: Option<GitKind>,

    /// Do not trust what runs in the fork: nothing can be written there that makes git run a
    /// program. It is a repository of its own [default: as the fork that it begins as, or what
    /// tine.untrusted says]
    #[arg(long)]
    #[schemars(skip)]
    #[serde(default)]
    pub untrusted: bool,

    /// Where to mount; an empty or missing directory [default: <repository>.forks/NAME]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    #[schemars(skip)]
    #[serde(default, with = "optional_host_path")]
    pub at: Option<PathBuf>,

    /// Ignored files of the main checkout that the fork sees without copying them, beside those
    /// that tine.carry or .worktreeinclude names: a pattern as in .gitignore, or `ignored` for all;
    /// may be repeated
    #[arg(long, value_name = "PATTERN")]
    #[schemars(skip)]
    #[serde(default)]
    pub carry: Vec<String>,

    /// As --carry, and nothing of what tine.carry or .worktreeinclude names
    #[arg(long, value_name = "PATTERN", conflicts_with = "carry")]
    #[schemars(skip)]
    #[serde(default)]
    pub carry_only: Vec<String>,

    /// See no ignored files of the main checkout
    #[arg(long, conflicts_with_all = ["carry", "carry_only"])]
    #[schemars(skip)]
    #[serde(default)]
    pub no_carry: bool,

    /// Do not run the command that tine.setup names
    #[arg(long)]
    #[schemars(skip)]
    #[serde(skip)]
    pub no_setup: bool,

    /// What unmounting does with uncommitted changes: `keep`, `commit`, `discard` (they are kept as
    /// a snapshot), `merge` (into the branch that it came from) or `merge:TARGET`, `handoff` (hand
    /// over what is committed) or `handoff:TARGET`
    #[arg(long, value_parser = parse_policy, value_name = "POLICY", default_value = "keep")]
    #[schemars(skip)]
    #[serde(default)]
    pub on_unmount: UnmountPolicy,

    /// Take a snapshot every so often while it is mounted, if anything was written: a time (30s,
    /// 5m, 2h) or a number of changes (100ops)
    #[arg(long, value_name = "30s|100ops", value_parser = snapshot_every)]
    #[schemars(skip)]
    #[serde(default)]
    pub snapshot_every: Option<SnapshotEvery>,

    /// Options that `tine mount` also takes.
    #[command(flatten)]
    #[schemars(skip)]
    #[serde(flatten)]
    pub settings: MountFlags,
}

impl NewOptions {
    fn carry_rules(&self) -> CarryRules {
        if self.no_carry {
            CarryRules::Nothing
        } else if !self.carry_only.is_empty() {
            CarryRules::Only(self.carry_only.clone())
        } else if !self.carry.is_empty() {
            CarryRules::Also(self.carry.clone())
        } else {
            CarryRules::AsConfigured
        }
    }
}

fn parse_policy(word: &str) -> Result<UnmountPolicy, String> {
    UnmountPolicy::try_from(word.to_owned())
}

fn snapshot_every(word: &str) -> Result<SnapshotEvery, String> {
    SnapshotEvery::try_from(word.to_owned())
}

// Options of `tine new` and `tine mount` for the mount.
#[expect(
    missing_docs,
    reason = "a doc comment would become the help of the commands that flatten this"
)]
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
pub struct MountFlags {
    /// Let other users enter the mount
    #[arg(long)]
    #[serde(default)]
    pub allow_other: bool,

    /// Let set-user-id programs and file capabilities have their effect (root only)
    #[arg(long)]
    #[serde(default)]
    pub suid: bool,

    /// Let device nodes lead to devices (root only)
    #[arg(long)]
    #[serde(default)]
    pub dev: bool,

    /// What kind of work to mount it for [default: everyday, or as before]
    #[arg(long, value_enum, value_name = "PROFILE")]
    #[serde(default)]
    pub profile: Option<MountProfile>,

    /// Have programs in the mount read what a person has in an editor and has not saved; git sees
    /// and records what is saved
    #[arg(long, conflicts_with = "no_overlay_buffers")]
    #[serde(default)]
    pub overlay_buffers: bool,

    /// Have them read what is saved, as usual; for a fork that was mounted with --overlay-buffers
    #[arg(long)]
    #[serde(default)]
    pub no_overlay_buffers: bool,
}

impl MountFlags {
    /// Returns the mount request of the flags.
    pub(crate) fn request(&self) -> MountRequest {
        MountRequest {
            allow_other: self.allow_other,
            suid: self.suid,
            dev: self.dev,
            profile: self.profile,
            overlay_buffers: (self.overlay_buffers || self.no_overlay_buffers)
                .then_some(self.overlay_buffers),
            at_origin: None,
        }
    }
}

/// Makes a fork. It takes up `given` if that is `Some` and the request names no remote fork.
pub(crate) fn make(
    daemon: &Arc<Daemon>,
    owner: Caller,
    git_dir: &Path,
    request: New,
    given: Option<ForkState>,
) -> Result<ForkInfo, Failure> {
    let parent_name = request
        .options
        .from_fork
        .as_deref()
        .map(parse_parent)
        .transpose()?;
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
    check_git_dir(&repository, git_dir)?;
    if let Some(target) = request.options.on_unmount.target() {
        find_target(daemon, &repository, target)?;
    }
    let is_of_parents_now = matches!(parent_name, Some((_, None)));
    let parent = match (parent_name, guards.iter().next()) {
        (Some((parent, snapshot)), Some(parent_guard)) => {
            let snapshot = snapshot
                .map(|snapshot| daemon.store.snapshot(&parent, &snapshot))
                .transpose()?;
            let fork = match (parent_guard.open_existing(), &snapshot) {
                // The snapshot may be whole even if the fork's present state is damaged.
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
    let from_remote = request.options.remote_fork.as_ref();
    let take_up = from_remote
        .map(|from| remotes::take_up(&repository, git_dir, from))
        .transpose()?
        .or(given);
    let dir = match request.options.at.clone() {
        Some(dir) => dir,
        None => place::default_dir(&repository, name)?,
    };
    // A stale mount of an earlier fork must be detached before its directory can be read.
    tine_fuse::detach_stale(&dir)?;
    let (forks, _) = daemon.store.records();
    let dir = place::check(&repository, &forks, name, &dir)?;
    let dir_existed = dir.exists();
    // A branch alias means the branch behind it.
    if let Some(branch) = &request.options.branch {
        repository.branch(branch)?;
    }
    let asked_branch = request.options.branch.as_deref();
    let asked_branch = asked_branch.map(|branch| repository.branch_behind(branch));
    let branch = asked_branch.clone().unwrap_or_else(|| own_branch(name));
    repository.check_branch_name(&branch)?;
    // The lease is held until the fork is mounted, or rolled back with the branch.
    let _lease = locks::lease(daemon, &format!("tine new {name}"), || {
        Ok(vec![LeaseKey::Branch(branch.clone())])
    })?;
    let branch_existed = repository.branch(&branch)?.is_some();
    // Inherited build output contains the path at which the parent was seen.
    let of_parent = match &parent {
        Some(parent) => Some(daemon.store.record(&parent.name)?),
        None => None,
    };
    let at_origin = of_parent
        .as_ref()
        .and_then(|record| record.settings.at_origin);
    let (git_kind, untrusted) = kind_and_trust(&repository, &request.options, of_parent.as_ref())?;
    let settings = MountSettings {
        at_origin,
        ..MountSettings::default()
    }
    .with(request.mount_request());
    if let Some(revision) = &request.options.from {
        taking::bring_named(daemon, revision);
    }
    let options = ForkOptions {
        name: name.clone(),
        git_dir: git_dir.to_owned(),
        from: request.options.from.clone(),
        parent,
        state: take_up.clone(),
        branch: asked_branch,
        detached: request.detached,
        git_kind,
        untrusted,
        follow: request.options.follow,
        mount_dir: dir.clone(),
        // If the daemon dies before the mount, the next daemon mounts it.
        mounted: !request.no_mount,
        settings,
        on_unmount: request.options.on_unmount.clone(),
        snapshot_every: request.options.snapshot_every,
        uid: owner.uid,
        gid: owner.gid,
        umask: owner.umask,
        carry: request.options.carry_rules(),
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
    if let Err(failure) = taking::take_over(daemon, &slot) {
        // It is tried again with the next change.
        log::warn!("{name}: its refs are not kept in the main repository: {failure}");
    }
    let mut trees = record.carry.iter().flat_map(|carry| &carry.trees);
    if trees.any(DependencyTree::is_wanted) {
        generations::make_wanted(daemon);
    }
    if let (Some(from), Some(take_up)) = (from_remote, &take_up)
        && let Err(error) = repository.lease(&from.remote, from.name.as_str(), take_up.commit_id)
    {
        // The next push needs force.
        log::warn!("{name}: {error}");
    }
    let answer = || {
        Ok(ForkInfo {
            agent_texts,
            ..report::fork_info(daemon, &slot, &record)?
        })
    };
    if request.no_mount {
        return answer();
    }
    match guard.mount(&dir, settings) {
        Ok(()) => answer(),
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

/// Decides the kind of git directory, and the trust.
///
/// An untrusted fork is a repository of its own: a linked worktree uses the main repository's
/// configuration and hooks.
fn kind_and_trust(
    repository: &Repository,
    options: &NewOptions,
    parent: Option<&ForkRecord>,
) -> Result<(GitKind, bool), Failure> {
    let untrusted = options.untrusted
        || parent.is_some_and(|record| record.untrusted)
        || repository.config_bool("tine.untrusted") == Some(true);
    let kind = match (options.git, untrusted) {
        (Some(GitKind::Linked), true) => {
            return Err(Failure::new(
                ErrorCode::Usage,
                "an untrusted fork cannot be a linked worktree",
            )
            .cause("git would use the main repository's configuration there, and change it")
            .hint("leave out `--git linked`"));
        }
        (_, true) => GitKind::Own,
        (Some(kind), false) => kind,
        (None, false) => match parent {
            Some(record) => record.git_kind,
            None => place::git_kind(repository)?,
        },
    };
    Ok((kind, untrusted))
}

/// Parses `fork` or `fork@snapshot`.
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

/// Checks that `git_dir` belongs to a worktree of this repository.
fn check_git_dir(repository: &Repository, git_dir: &Path) -> Result<(), Failure> {
    if tine_git::own::is_in_store(repository.common_dir(), git_dir) {
        return Ok(());
    }
    let common_dir = repository.common_dir();
    let found = git_dir
        .canonicalize()
        .map_err(|error| Failure::io("find", git_dir, &error))?;
    let worktree = found
        .file_name()
        .map(|id| common_dir.join("worktrees").join(id));
    // A bind mount gives it another path.
    if is_same_file(&found, common_dir)
        || worktree.is_some_and(|worktree| is_same_file(&found, &worktree))
    {
        return Ok(());
    }
    Err(Failure::new(
        ErrorCode::Usage,
        format!(
            "{} is not a git directory of this repository",
            git_dir.display()
        ),
    )
    .hint("this is a fault of the program that asks the daemon"))
}

/// Removes a fork that could not be mounted, and its traces.
fn undo_new(guard: &ForkGuard<'_>, traces: &Traces) {
    let undone = guard
        .unmount(UnmountMode::Force)
        .and_then(|()| Ok(guard.daemon.store.remove_fork_with(guard.name(), traces)?));
    if let Err(failure) = undone {
        log::error!("{} could not be taken back: {failure}", guard.name());
    }
}
