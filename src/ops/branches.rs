//! Lists, makes, renames and deletes branches, and switches forks between them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::locks::{self, Guards, slots_of};
use super::target::{self, Ready, Target};
use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation};
use crate::protocol::{
    BranchCreated, BranchDeleted, BranchInfo, BranchRenamed, Branches, BranchesDeleted, Switched,
};
use crate::report;
use crate::state::handoffs;
use crate::state::slots::{Daemon, ForkGuard};
use tine_change::branches::{BranchUsage, Holder, Start, existing, follow};
use tine_change::handoff::HandoffRecord;
use tine_change::review::ReviewRecord;
use tine_change::round::RoundRecord;
use tine_change::switch::{self, SwitchOptions};
use tine_change::{ChangeError, FoundPoint, Point, PointTree, branches};
use tine_git::{GitError, Head, MovedUnder, ObjectId, Repository};
use tine_path::shell::shell_word;
use tine_store::{ForkName, SnapshotReason};
use tine_store::{Lease, LeaseKey, RecordKind};
use tine_workspace::{Actor, SwitchMove};

/// List the branches of forks
///
/// One line a branch: its name, its commit, who has it checked out, which fork it was made for, how
/// many commits it is ahead of and behind what it came from, and what its commit is about.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine branch list
  tine branch list --all --json | jq -r '.branches[] | select(.checkout == null) | .name'")]
pub struct ListBranches {
    /// All local branches, those too that no fork has to do with
    #[arg(short, long)]
    #[serde(default)]
    pub all: bool,
}

impl Operation for ListBranches {
    const NAME: &'static str = "branches";
    type Answer = Branches;

    fn run(self, call: &Call<'_>) -> Result<Branches, Failure> {
        list(call.daemon, self.all)
    }
}

/// Make a branch
///
/// It is checked out nowhere: `tine branch switch` puts a fork on it. A branch begins at a commit:
/// of a fork or a snapshot that has uncommitted changes it gets HEAD, and a note says so.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine branch create topic
  tine branch create topic --at origin/topic
  tine branch create before --at fix-parser@before")]
pub struct CreateBranch {
    /// Its name
    #[arg(value_name = "NAME")]
    pub branch: String,

    /// Where it begins: FORK, FORK@SNAPSHOT or a revision [default: HEAD of the fork, else of where
    /// this runs]
    #[arg(long, value_name = "POINT")]
    #[serde(default)]
    pub at: Option<String>,

    /// The fork that is spoken of [default: the one whose mount this is, if any]
    #[arg(long, value_name = "FORK")]
    #[serde(default)]
    pub fork: Option<ForkName>,
}

impl Operation for CreateBranch {
    const NAME: &'static str = "create-branch";
    type Answer = BranchCreated;

    // A fork that the caller names must exist. Without one the operation needs no fork.
    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork).filter(|fork| fork.is_some())
    }

    fn run(self, call: &Call<'_>) -> Result<BranchCreated, Failure> {
        create(call, self)
    }
}

/// Delete branches
///
/// All of them, or none. Refused where one is checked out, and where it has commits that no other
/// branch, no tag and no remote branch has; with --force these are kept under refs/tine/.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine branch delete topic
  tine branch delete try-1 try-2 --force")]
pub struct DeleteBranches {
    /// The branches
    #[arg(value_name = "NAME", required = true)]
    pub branches: Vec<String>,

    /// Delete it even if nothing else has its commits
    #[arg(short, long)]
    #[serde(default)]
    pub force: bool,
}

impl Operation for DeleteBranches {
    const NAME: &'static str = "delete-branches";
    type Answer = BranchesDeleted;

    fn run(self, call: &Call<'_>) -> Result<BranchesDeleted, Failure> {
        delete(call.daemon, &self.branches, self.force)
    }
}

/// Rename a branch
///
/// Its reflog and its settings go with it. Whoever is on it stays on it, forks as well as checkouts
/// of git's, and forks that came from it go on to be merged into it.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Example:
  tine branch rename tine/fix-parser parser")]
pub struct RenameBranch {
    /// The branch
    #[arg(value_name = "OLD")]
    pub from: String,

    /// The new name
    #[arg(value_name = "NEW")]
    pub to: String,
}

impl Operation for RenameBranch {
    const NAME: &'static str = "rename-branch";
    type Answer = BranchRenamed;

    fn run(self, call: &Call<'_>) -> Result<BranchRenamed, Failure> {
        rename(call.daemon, &self.from, &self.to)
    }
}

/// Put a fork on another branch
///
/// As `git switch` does, mounted or not: files that differ follow, uncommitted changes stay. Where
/// these are in the way nothing is changed, unless --merge can merge both. What the fork was
/// becomes a snapshot first, and `tine undo` takes the switch back.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine branch switch fix-parser main
  tine branch switch fix-parser second-try --create
  tine branch switch fix-parser topic --create --at origin/topic
  tine branch switch fix-parser -")]
pub struct SwitchBranch {
    /// The fork
    #[arg(value_name = "FORK", required = true)]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// The branch; `-` is the one that it was on before
    #[arg(value_name = "BRANCH")]
    pub branch: String,

    /// Make the branch
    #[arg(short, long)]
    #[serde(default)]
    pub create: bool,

    /// Where it begins: FORK, FORK@SNAPSHOT, or a revision [default: the fork's HEAD]
    #[arg(long, value_name = "POINT", requires = "create")]
    #[serde(default)]
    pub at: Option<String>,

    /// Merge uncommitted changes that are in the way with what the branch has
    #[arg(short, long)]
    #[serde(default)]
    pub merge: bool,
}

impl Operation for SwitchBranch {
    const NAME: &'static str = "switch-branch";
    const PROGRESS: &'static str = "switching";
    type Answer = Switched;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(mut self, call: &Call<'_>) -> Result<Switched, Failure> {
        let fork = call.fork(self.fork.take())?;
        switch(call.daemon, call.by(), &fork, &self)
    }
}

pub(crate) fn list(daemon: &Arc<Daemon>, all: bool) -> Result<Branches, Failure> {
    let repository = daemon.repository_now()?;
    follow(&daemon.store, &repository)?;
    let known = BranchUsage::now(&daemon.store, &repository)?;
    let listed = known.list(all)?;
    let mut damaged: Vec<Failure> = daemon
        .store
        .records()
        .1
        .into_iter()
        .map(Failure::from)
        .collect();
    damaged.extend(known.damaged().into_iter().map(|(fork, reason)| {
        Failure::new(
            ErrorCode::StoreDamaged,
            format!("HEAD of the fork {fork} cannot be read"),
        )
        .cause(reason)
    }));
    damaged.extend(
        repository
            .damaged_branches()?
            .into_iter()
            .map(|branch| branch.into_error().into()),
    );
    let branches = listed.into_iter().map(|listed| {
        let (fork, checkout, is_main) = match listed.holder {
            None => (None, None, false),
            Some(Holder::Fork(fork, dir)) => (Some(fork), Some(dir), false),
            Some(Holder::Main(dir)) => (None, Some(dir), true),
            Some(Holder::Worktree(dir)) => (None, Some(dir), false),
        };
        let (from, distance) = listed.came_from.unzip();
        BranchInfo {
            name: listed.tip.name.as_slice().into(),
            commit: listed.tip.commit_id.to_string(),
            subject: listed.tip.subject,
            fork,
            checkout,
            is_main,
            made_for: listed.made_for,
            from,
            ahead: distance.map(|distance| distance.ahead),
            behind: distance.map(|distance| distance.behind),
        }
    });
    Ok(Branches {
        branches: branches.collect(),
        damaged,
    })
}

fn create(call: &Call<'_>, request: CreateBranch) -> Result<BranchCreated, Failure> {
    let (daemon, branch) = (call.daemon, &request.branch);
    let repository = daemon.repository_now()?;
    let context_fork = call.fork_if_any(request.fork);
    let context_fork = context_fork.as_ref();
    let found = match (&request.at, context_fork) {
        (Some(word), Some(fork)) => Point::find(&daemon.store, fork, word)?,
        (Some(word), None) => Point::find_anywhere(&daemon.store, call.git_dir()?, word)?,
        (None, Some(fork)) => head_of_fork(daemon, fork)?,
        (None, None) => {
            let (tree_id, commit_id) = repository.resolve_tree(call.git_dir()?, "HEAD")?;
            FoundPoint {
                point: Point::Revision("HEAD".to_owned()),
                tree: PointTree::Known { tree_id, commit_id },
                others: Vec::new(),
            }
        }
    };
    let slots = slots_of(daemon, fork_of(&found.point, context_fork));
    let _guards = Guards::lock(daemon, &slots)?;
    let _lease = lease(daemon, &[branch], &format!("tine branch create {branch}"))?;
    repository
        .check_branch_is_free(branch)
        .map_err(|error| taken(&repository, error))?;
    let start = Start::at(&daemon.store, &repository, context_fork, found)?;
    let git_dir = match context_fork {
        Some(fork) => daemon.store.worktree_of(fork)?.git_dir().to_owned(),
        None => call.git_dir()?.to_owned(),
    };
    repository
        .begin_branch(&git_dir, branch, &start.revision())
        .map_err(|error| taken(&repository, error))?;
    Ok(BranchCreated {
        branch: branch.clone(),
        commit: start.commit_id.to_string(),
        at: start.point.to_string(),
        also: start.others.iter().map(Point::to_string).collect(),
        uncommitted: start.is_uncommitted,
    })
}

/// Takes the leases of `branches` (short names).
fn lease<'d>(daemon: &'d Daemon, branches: &[&str], by: &str) -> Result<Lease<'d>, Failure> {
    locks::lease(daemon, by, || {
        let branches = branches.iter().copied().map(str::to_owned);
        Ok(branches.map(LeaseKey::Branch).collect())
    })
}

pub(crate) fn delete(
    daemon: &Arc<Daemon>,
    names: &[String],
    force: bool,
) -> Result<BranchesDeleted, Failure> {
    let repository = daemon.repository_now()?;
    let _lease = lease(
        daemon,
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
        &format!("tine branch delete {}", names.join(" ")),
    )?;
    let deleted = BranchUsage::now(&daemon.store, &repository)?.delete(names, force)?;
    Ok(BranchesDeleted {
        branches: deleted
            .into_iter()
            .map(|deleted| BranchDeleted {
                branch: deleted.branch,
                commit: deleted.commit_id.to_string(),
                recover: deleted.recover,
                alias_of: deleted.alias_of,
            })
            .collect(),
    })
}

pub(crate) fn rename(daemon: &Arc<Daemon>, old: &str, new: &str) -> Result<BranchRenamed, Failure> {
    // Reviews and rounds name branches in their records.
    let _rounds = daemon.rounds.lock();
    let _reviews = daemon.reviews.lock();
    let repository = daemon.repository_now()?;
    follow(&daemon.store, &repository)?;
    let forks = loop {
        if let Some(forks) = rename_on(daemon, &repository, old, new)? {
            break forks;
        }
    };
    // The branch is renamed by now, so a record that cannot be changed is not a failure.
    if let Err(failure) = rename_in_documents(daemon, old, new) {
        log::warn!("what names the branch {old} still does: {failure}");
    }
    log::info!("the branch {old} is called {new} now");
    Ok(BranchRenamed {
        from: old.to_owned(),
        branch: new.to_owned(),
        forks,
    })
}

/// Renames the branch, and moves the HEADs and records that name it.
///
/// Returns the forks that follow. `None` means that the branch came to other forks before this call
/// held the locks of `forks`.
fn rename_on(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    old: &str,
    new: &str,
) -> Result<Option<Vec<ForkName>>, Failure> {
    let forks = BranchUsage::now(&daemon.store, repository)?.forks_on(old);
    let slots = slots_of(daemon, forks.clone());
    let _guards = Guards::lock(daemon, &slots)?;
    let _lease = lease(
        daemon,
        &[old, new],
        &format!("tine branch rename {old} {new}"),
    )?;
    let known = BranchUsage::now(&daemon.store, repository)?;
    if known.forks_on(old) != forks {
        return Ok(None);
    }
    let renamed = known.rename(old, new).map_err(|error| match error {
        ChangeError::Git(error) => taken(repository, error),
        error => error.into(),
    })?;
    Ok(Some(renamed))
}

/// Renames the branch in reviews, handoffs and sessions.
///
/// The caller holds the locks of reviews and rounds.
fn rename_in_documents(daemon: &Arc<Daemon>, old: &str, new: &str) -> Result<(), Failure> {
    let store = &daemon.store;
    for mut review in store.documents::<ReviewRecord>(RecordKind::Reviews)?.0 {
        if review.rename_branch(old, new) {
            store.write_document(RecordKind::Reviews, review.id, &review)?;
        }
    }
    for handoff in store.documents::<HandoffRecord>(RecordKind::Handoffs)?.0 {
        if handoff.clone().rename_branch(old, new) {
            handoffs::update(daemon, handoff.id, |record| {
                record.rename_branch(old, new);
                Ok(())
            })?;
        }
    }
    for mut round in store.documents::<RoundRecord>(RecordKind::Rounds)?.0 {
        if round.rename_branch(old, new) {
            round.save(store)?;
        }
    }
    Ok(())
}

fn switch(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    fork: &ForkName,
    request: &SwitchBranch,
) -> Result<Switched, Failure> {
    let repository = daemon.repository_now()?;
    daemon.store.record(fork)?;
    let found = match (request.create, &request.at) {
        (true, Some(word)) => Some(Point::find(&daemon.store, fork, word)?),
        (true, None) | (false, _) => None,
    };
    let mut forks = vec![fork.clone()];
    forks.extend(
        found
            .as_ref()
            .and_then(|found| fork_of(&found.point, Some(fork))),
    );
    let slots = slots_of(daemon, forks);
    let guards = Guards::lock(daemon, &slots)?;
    let guard = guards.get(fork)?;
    let open = guard.open_existing()?;
    guard.settle(&repository, &open)?;
    let git_dir = open.worktree.git_dir();
    let head = repository.head_of(git_dir)?;
    let branch = match request.branch.as_str() {
        "-" if !request.create => repository
            .branch_before(git_dir)
            .map_err(|error| no_branch_before(fork, error))?,
        branch => branch.to_owned(),
    };
    let branch = if request.create {
        branch
    } else {
        repository.branch(&branch)?;
        repository.branch_behind(&branch)
    };
    let is_on = |name: &str| name == branch || repository.branch_behind(name) == branch;
    if !request.create && head.short_branch().is_some_and(is_on) {
        return Ok(stays(fork, &head, branch));
    }
    let start = match (request.create, found) {
        (false, _) => None,
        (true, Some(found)) => Some(Start::at(&daemon.store, &repository, Some(fork), found)?),
        // Uncommitted changes come along, and the branch begins at HEAD.
        (true, None) => Some(Start {
            point: Point::Revision("HEAD".to_owned()),
            others: Vec::new(),
            commit_id: head
                .commit_id()
                .ok_or_else(|| GitError::UnknownRevision("HEAD".to_owned()))?,
            is_uncommitted: false,
        }),
    };
    let options = SwitchOptions {
        branch: &branch,
        begins: start.as_ref().map(|start| {
            (
                start.commit_id,
                format!("branch: Created from {}", start.revision()),
            )
        }),
        merge: request.merge,
    };
    let store = &daemon.store;
    let _lease = lease(
        daemon,
        &[&branch],
        &format!("tine branch switch {fork} {branch}"),
    )?;
    if let (true, None, Some(moved)) = (
        request.create,
        &request.at,
        repository.moved_under(&open.worktree, fork.as_str(), &open.made_on)?,
    ) {
        return step_off(guard, &repository, &head, &moved, branch);
    }
    if !request.create {
        existing(&repository, &branch).map_err(|error| match error {
            ChangeError::NoSuchBranch(_) => no_branch_to_go_to(fork, &branch, error.into()),
            error => error.into(),
        })?;
        BranchUsage::now(store, &repository)?.refuse_held(&branch)?;
    }
    let (step, changes) = switch::plan(store, &repository, fork, &open, by, &head, &options)
        .map_err(|error| match error {
            ChangeError::Git(error) => taken(&repository, error),
            error => in_the_way(request, error.into()),
        })?;
    let target = Target {
        daemon,
        by,
        repository: &repository,
        holder: &target::Holder::Fork(fork.clone()),
        guard: Some(guard),
    };
    let snapshot = target.go(Ready::fork(), &step, SnapshotReason::BeforeSwitch)?;
    if let Some(Start {
        point: Point::Revision(revision),
        ..
    }) = &start
    {
        repository.follow_remote_branch(git_dir, &branch, revision);
    }
    note_head(guard, &repository);
    log::info!("{fork} is on {branch}");
    Ok(Switched {
        fork: fork.clone(),
        branch,
        commit: Some(step.to.to_string()),
        from_branch: head.short_branch().map(str::to_owned),
        from_commit: head.commit_id().map(|id| id.to_string()),
        created: start.is_some(),
        merged: step.update.is_some(),
        uncommitted: start.is_some_and(|start| start.is_uncommitted),
        changes: changes.iter().map(report::change_line).collect(),
        snapshot,
    })
}

/// Puts a fork whose branch moved under it on a new branch.
///
/// The new branch begins at the commit where the fork left the old one. The view and the index
/// belong to that commit, and stay.
fn step_off(
    guard: &ForkGuard<'_>,
    repository: &Repository,
    head: &Head,
    moved: &MovedUnder,
    branch: String,
) -> Result<Switched, Failure> {
    let open = guard.open()?;
    repository
        .create_branch(&branch, moved.left_at, "branch: Created from HEAD")
        .map_err(|error| taken(repository, error))?;
    if let Err(error) = repository.switch_head(&open.worktree, head, Some(&branch), moved.left_at) {
        repository.delete_branch(&branch, moved.left_at)?;
        return Err(error.into());
    }
    guard.forget_settled();
    note_head(guard, repository);
    let fork = guard.name();
    log::info!("{fork} is on {branch}, where it left {}", moved.branch);
    Ok(Switched {
        fork: fork.clone(),
        branch,
        commit: Some(moved.left_at.to_string()),
        from_branch: Some(moved.branch.clone()),
        from_commit: Some(moved.now.to_string()),
        created: true,
        merged: false,
        uncommitted: false,
        changes: Vec::new(),
        snapshot: None,
    })
}

/// Fails if a switch of HEAD cannot be taken back.
///
/// This is so if HEAD or the earlier branch has moved since. The last argument is the switch, the
/// commit to go back to and the commit that HEAD must be at. The caller holds the branch's lease.
pub(crate) fn check_way_back(
    daemon: &Daemon,
    repository: &Repository,
    fork: &ForkName,
    head: &Head,
    (switch, back_to, head_at): (&SwitchMove, ObjectId, ObjectId),
) -> Result<(), Failure> {
    let way = match &switch.from {
        Some(branch) => format!(
            "`tine branch switch {fork} {}` goes to that branch",
            shell_word(branch)
        ),
        None => format!("`git switch --detach {back_to}` in the mount goes there"),
    };
    if head.short_branch() != switch.to.as_deref() || head.commit_id() != Some(head_at) {
        return Err(Failure::new(
            ErrorCode::CannotUndo,
            "HEAD has moved on since the operation",
        )
        .hint(way));
    }
    let Some(branch) = &switch.from else {
        return Ok(());
    };
    match repository.branch(branch)? {
        None => Err(Failure::new(
            ErrorCode::CannotUndo,
            format!("the branch {branch:?} is gone since the operation"),
        )
        .hint(format!(
            "`git branch {} {back_to}` brings the branch back; then try again",
            shell_word(branch)
        ))),
        Some(tip) if tip != back_to => Err(Failure::new(
            ErrorCode::CannotUndo,
            format!("the branch {branch:?} has moved on since the operation"),
        )
        .hint(way)),
        Some(_) => Ok(BranchUsage::now(&daemon.store, repository)?.refuse_held(branch)?),
    }
}

/// Notes in the fork's record where HEAD is. A failure is only logged, because git's HEAD decides.
pub(crate) fn note_head(guard: &ForkGuard<'_>, repository: &Repository) {
    let noted = guard.open().and_then(|open| {
        let head = repository.head_of(open.worktree.git_dir())?;
        branches::note_head(&guard.daemon.store, repository, guard.name(), &head)?;
        Ok(())
    });
    if let Err(failure) = noted {
        log::warn!("{}: {failure}", guard.name());
    }
}

/// Returns HEAD of the fork as a point.
fn head_of_fork(daemon: &Daemon, fork: &ForkName) -> Result<FoundPoint, Failure> {
    Ok(Point::Fork(fork.clone()).found(&daemon.store, fork)?)
}

/// Returns the fork whose view or snapshot `point` is.
fn fork_of(point: &Point, context_fork: Option<&ForkName>) -> Option<ForkName> {
    match point {
        Point::Fork(fork) | Point::SnapshotOf(fork, _) => Some(fork.clone()),
        Point::Snapshot(_) => context_fork.cloned(),
        Point::Pristine | Point::Revision(_) => None,
    }
}

fn stays(fork: &ForkName, head: &Head, branch: String) -> Switched {
    let commit = head.commit_id().map(|id| id.to_string());
    Switched {
        fork: fork.clone(),
        from_branch: Some(branch.clone()),
        from_commit: commit.clone(),
        branch,
        commit,
        created: false,
        merged: false,
        uncommitted: false,
        changes: Vec::new(),
        snapshot: None,
    }
}

/// Adds a hint with commands that free the branch's name.
fn taken(repository: &Repository, error: GitError) -> Failure {
    let GitError::BranchExists(branch) = &error else {
        return error.into();
    };
    let tip = repository.branch(branch);
    let branch = shell_word(branch);
    let hint = match tip {
        Ok(Some(tip)) => format!(
            "it is at {tip}: `git branch -f {branch} COMMIT` moves it, `tine branch delete {branch}` removes it; or choose another name"
        ),
        _ => "choose another name".to_owned(),
    };
    Failure::from(error).hint(hint)
}

/// Converts the error of `-` if HEAD was on no branch before.
fn no_branch_before(fork: &ForkName, error: GitError) -> Failure {
    match error {
        GitError::UnknownRevision(_) => Failure::new(
            ErrorCode::NoSuchBranch,
            format!("{fork} was on no other branch before"),
        )
        .hint(format!(
            "`tine branch list` shows the branches, `tine branch switch {fork} BRANCH` goes to one"
        )),
        error => error.into(),
    }
}

/// Adds a hint with commands that list branches or make this one.
fn no_branch_to_go_to(fork: &ForkName, branch: &str, failure: Failure) -> Failure {
    let branch = shell_word(branch);
    failure.hint(format!(
        "`tine branch list --all` shows the branches; `tine branch switch {fork} {branch} --create` makes it, with `--at \
         origin/{branch}` from a remote one"
    ))
}

fn in_the_way(request: &SwitchBranch, failure: Failure) -> Failure {
    match (failure.code, request.merge) {
        (ErrorCode::LocalChanges, false) => failure.hint(
            "commit them (`tine commit -m MESSAGE`), take them back (`tine revert`), or merge them with what the branch has (`--merge`); nothing \
             was changed",
        ),
        (ErrorCode::LocalChanges, true) => failure.hint(
            "the branch has other changes in the same places, or they are staged: commit them (`tine commit -m MESSAGE`), unstage them (`git reset` in \
             the mount), or take them back (`tine revert`); nothing was changed",
        ),
        _ => failure,
    }
}
