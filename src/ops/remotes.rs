//! Forks that travel through remotes: makes the state to send, and takes up a fetched one.
//!
//! The caller talks to the remotes.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::buffers::with_agent_texts;
use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation};
use crate::protocol::{RemoteFork, StateMade};
use tine_change::fork_point::fork_point;
use tine_change::state::{self, StateOptions};
use tine_git::{GitError, Repository};
use tine_store::{ForkName, ForkState};

/// Makes the state of a fork, for `tine push`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MakeState {
    /// Fork to send.
    pub fork: ForkName,
    /// Remote to send to. `None` means the one that git finds for the fork's branch, or else for
    /// the branch that the fork came from.
    pub remote: Option<String>,
    /// Fork's name on the remote. `None` means its name here.
    pub name: Option<ForkName>,
}

impl Operation for MakeState {
    const NAME: &'static str = "state";
    const PROGRESS: &'static str = "making the state to send";
    type Answer = StateMade;

    fn run(self, call: &Call<'_>) -> Result<StateMade, Failure> {
        let (daemon, signers) = (call.daemon, call.signers());
        let slot = daemon.slot(&self.fork);
        let guard = daemon.lock_fork(&slot)?;
        let record = guard.record()?;
        let fork = guard.open()?;
        let repository = daemon.repository_now()?;
        let head = repository.head_of(fork.worktree.git_dir())?;
        let branches: Vec<&str> = [head.short_branch(), record.from_branch.as_deref()]
            .into_iter()
            .flatten()
            .collect();
        let remote = repository.push_remote(self.remote.as_deref(), &branches)?;
        let name = self.name.clone().unwrap_or_else(|| self.fork.clone());
        guard.settle(&repository, &fork)?;
        let options = StateOptions {
            author: signers.author,
            committer: signers.committer,
            fork_point: fork_point(&repository, &record, head.commit_id())?,
            known: repository.tracked(&remote, name.as_str())?,
        };
        let (made, agent_texts) = with_agent_texts(&guard, || {
            Ok(state::make(&repository, &record, &fork, &options)?)
        })?;
        let changeset = &made.changeset;
        let submodules = changeset
            .repositories
            .iter()
            .filter(|path| !changeset.left_out.contains(path));
        Ok(StateMade {
            fork: record.name,
            remote,
            name,
            commit: made.commit_id.to_string(),
            tree: made.tree_id.to_string(),
            head_commit: changeset.head_commit.map(|id| id.to_string()),
            branch: made.branch,
            base_commit: record.base_commit,
            uncommitted: changeset.changes.len(),
            left_out: changeset.left_out.iter().map(Into::into).collect(),
            submodules: submodules.map(Into::into).collect(),
            operation: fork.worktree.operation_in_progress().map(str::to_owned),
            agent_texts,
        })
    }
}

/// Returns the start of a fork that takes up `from`.
///
/// Its work begins at the HEAD of the worktree with `git_dir`.
pub(super) fn take_up(
    repository: &Repository,
    git_dir: &Path,
    from: &RemoteFork,
) -> Result<ForkState, Failure> {
    let commit_id = repository.tracked(&from.remote, from.name.as_str())?;
    let commit_id = commit_id.ok_or_else(|| GitError::NoSuchState {
        remote: from.remote.clone(),
        name: from.name.to_string(),
    })?;
    let state = state::read(repository, commit_id)?;
    let head = repository.head_of(git_dir)?;
    let trunk = head.commit_id();
    let base = state::base_here(repository, &state, trunk)?;
    Ok(ForkState {
        commit_id,
        head: state.head,
        base,
        fork_point: state::fork_point_here(repository, &state, base, trunk)?,
        from_branch: head.short_branch().map(str::to_owned),
        origin: format!("{}/{}", from.remote, from.name),
    })
}

/// Adds a hint if the branch for the fork exists already.
pub(super) fn other_branch(take_up: &ForkState, failure: Failure) -> Failure {
    match failure.code {
        ErrorCode::BranchExists => failure.hint(format!(
            "it has other commits than {}: take another with `--branch NAME`, or remove it where nobody needs it",
            take_up.origin
        )),
        _ => failure,
    }
}
