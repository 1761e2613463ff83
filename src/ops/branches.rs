//! Lists, makes and deletes branches.

mod renaming;
mod switching;

use serde::{Deserialize, Serialize};

pub use self::renaming::RenameBranch;
pub use self::switching::SwitchBranch;
pub(crate) use self::switching::check_switch_can_be_undone;
use super::locks::{self, Guards, slots_of};
use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation};
use crate::points;
use crate::protocol::{BranchCreated, BranchDeleted, BranchInfo, Branches, BranchesDeleted};
use crate::state::slots::Daemon;
use tine_change::branches::{BranchUsage, Holder, Start, follow};
use tine_change::{FoundPoint, Point, PointTree};
use tine_git::{GitError, Repository};
use tine_path::shell::shell_word;
use tine_store::{ForkName, Lease, LeaseKey};

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
        let daemon = call.daemon;
        let repository = daemon.repository_now()?;
        follow(&daemon.store, &repository)?;
        let known = BranchUsage::now(&daemon.store, &repository)?;
        let listed = known.list(self.all)?;
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
        let (daemon, branch) = (call.daemon, &self.branch);
        let repository = daemon.repository_now()?;
        let context_fork = call.fork_if_any(self.fork);
        let context_fork = context_fork.as_ref();
        let found = match (&self.at, context_fork) {
            (Some(word), Some(fork)) => points::find(daemon, fork, word)?,
            (Some(word), None) => points::find_anywhere(daemon, call.git_dir()?, word)?,
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
        let worktree = context_fork.map(|fork| daemon.store.worktree_of(fork));
        let (git_dir, revision) = match worktree.transpose()? {
            // Its branches are its own, and this is one for everybody.
            Some(worktree) if worktree.is_own() => (
                repository.common_dir().to_owned(),
                start.commit_id.to_string(),
            ),
            Some(worktree) => (worktree.git_dir().to_owned(), start.revision()),
            None => (call.git_dir()?.to_owned(), start.revision()),
        };
        repository
            .begin_branch(&git_dir, branch, &revision)
            .map_err(|error| taken(&repository, error))?;
        Ok(BranchCreated {
            branch: branch.clone(),
            commit: start.commit_id.to_string(),
            at: start.point.to_string(),
            also: start.others.iter().map(Point::to_string).collect(),
            uncommitted: start.is_uncommitted,
        })
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
        let (daemon, names) = (call.daemon, &self.branches);
        let repository = daemon.repository_now()?;
        let _lease = lease(
            daemon,
            &names.iter().map(String::as_str).collect::<Vec<_>>(),
            &format!("tine branch delete {}", names.join(" ")),
        )?;
        let deleted = BranchUsage::now(&daemon.store, &repository)?.delete(names, self.force)?;
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
}

/// Takes the leases of `branches` (short names).
fn lease<'d>(daemon: &'d Daemon, branches: &[&str], by: &str) -> Result<Lease<'d>, Failure> {
    locks::lease(daemon, by, || {
        let branches = branches.iter().copied().map(str::to_owned);
        Ok(branches.map(LeaseKey::Branch).collect())
    })
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
