//! Switches forks to other branches, and checks undos of switches.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::{fork_of, lease, taken};
use crate::failure::{ErrorCode, Failure};
use crate::locks::{Guards, slots_of};
use crate::operation::{Call, Operation};
use crate::points;
use crate::protocol::Switched;
use crate::report;
use crate::state::slots::{Daemon, ForkGuard};
use crate::target::{self, Ready, Target};
use tine_change::branches::{self, BranchUsage, Start, existing};
use tine_change::switch::{self, SwitchOptions};
use tine_change::{ChangeError, Point};
use tine_git::{GitError, Head, MovedUnder, ObjectId, Repository};
use tine_path::shell::shell_word;
use tine_store::{ForkName, SnapshotReason};
use tine_workspace::{Actor, SwitchMove};

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

fn switch(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    fork: &ForkName,
    request: &SwitchBranch,
) -> Result<Switched, Failure> {
    let repository = daemon.repository_now()?;
    daemon.store.record(fork)?;
    let found = match (request.create, &request.at) {
        (true, Some(word)) => Some(points::find(daemon, fork, word)?),
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
    let is_own = open.worktree.is_own();
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
    let leased: &[&str] = if is_own { &[] } else { &[&branch] };
    let by_switch = format!("tine branch switch {fork} {branch}");
    let _lease = lease(daemon, leased, &by_switch)?;
    if let (true, None, Some(moved)) = (
        request.create,
        &request.at,
        repository.moved_under(&open.worktree, fork.as_str(), &open.made_on)?,
    ) {
        return step_off(guard, &repository, &head, &moved, branch);
    }
    if !request.create && !is_own {
        existing(&repository, &branch).map_err(|error| match error {
            ChangeError::NoSuchBranch(_) => no_branch_to_go_to(fork, &branch, error.into()),
            error => error.into(),
        })?;
        BranchUsage::now(store, &repository)?.refuse_held(&branch)?;
    }
    let (step, changes) = switch::plan(store, &repository, fork, &open, by, &head, &options)
        .map_err(|error| match error {
            ChangeError::Git(error) => taken(&repository, error),
            ChangeError::NoSuchBranch(_) => no_branch_to_go_to(fork, &branch, error.into()),
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
        repository.follow_remote_branch(&open.worktree, &branch, revision);
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
pub(crate) fn check_switch_can_be_undone(
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
    let worktree = daemon.store.worktree_of(fork)?;
    match repository.refs_at(worktree.git_dir()).branch(branch)? {
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
        Some(_) if worktree.is_own() => Ok(()),
        Some(_) => Ok(BranchUsage::now(&daemon.store, repository)?.refuse_held(branch)?),
    }
}

/// Notes in the fork's record where HEAD is. A failure is only logged, because git's HEAD decides.
fn note_head(guard: &ForkGuard<'_>, repository: &Repository) {
    let noted = guard.open().and_then(|open| {
        let head = repository.head_of(open.worktree.git_dir())?;
        branches::note_head(&guard.daemon.store, repository, guard.name(), &head)?;
        Ok(())
    });
    if let Err(failure) = noted {
        log::warn!("{}: {failure}", guard.name());
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
