//! What happens to a fork's layer when it is unmounted: kept, committed or discarded.

use super::failure::{ErrorCode, Failure};
use super::handlers::reset_to_head;
use super::protocol::UnmountAction;
use super::slots::Turn;
use crate::attr::FileKind;
use crate::change::{ChangeError, Changeset, CommitOptions, commit};
use crate::git::Identity;
use crate::path::{EntryName, RepoPath};
use crate::workspace::{Fork, ForkName, SnapshotReason, UnmountPolicy};

/// What an action left behind.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The commit that was made, in hex.
    pub commit: Option<String>,
    /// The snapshot that keeps what was discarded.
    pub snapshot: Option<ForkName>,
}

/// Who is named in a commit; where nobody is, git's configuration decides.
#[derive(Debug, Default)]
pub struct Signers {
    pub author: Option<Identity>,
    pub committer: Option<Identity>,
}

/// The policy as an action; a commit gets a message of tine's own.
pub fn default_action(policy: UnmountPolicy, name: &ForkName) -> UnmountAction {
    match policy {
        UnmountPolicy::Keep => UnmountAction::Keep,
        UnmountPolicy::Commit => UnmountAction::Commit {
            message: format!("tine: work in {name}"),
        },
        UnmountPolicy::Discard => UnmountAction::Discard,
    }
}

/// The action as a policy.
pub fn policy_of(action: &UnmountAction) -> UnmountPolicy {
    match action {
        UnmountAction::Keep => UnmountPolicy::Keep,
        UnmountAction::Commit { .. } => UnmountPolicy::Commit,
        UnmountAction::Discard => UnmountPolicy::Discard,
    }
}

/// Refuses what is known to fail, before anything is unmounted.
pub fn check(turn: &Turn<'_>, action: &UnmountAction) -> Result<(), Failure> {
    match action {
        UnmountAction::Keep => Ok(()),
        UnmountAction::Commit { message } => {
            if message.trim().is_empty() {
                return Err(ChangeError::EmptyMessage.into());
            }
            refuse_operation(turn)
        }
        UnmountAction::Discard => refuse_operation(turn),
    }
}

fn refuse_operation(turn: &Turn<'_>) -> Result<(), Failure> {
    match turn.open()?.worktree.operation_in_progress() {
        Some(operation) => Err(ChangeError::OperationInProgress(operation).into()),
        None => Ok(()),
    }
}

/// Does `action` with a fork that is not mounted.
pub fn apply(turn: &Turn<'_>, action: &UnmountAction, signers: Signers) -> Result<Outcome, Failure> {
    let repository = turn.daemon.repository_now()?;
    match action {
        UnmountAction::Keep => Ok(Outcome::default()),
        UnmountAction::Commit { message } => {
            let fork = turn.open()?;
            let options = CommitOptions {
                message: message.clone(),
                author: signers.author,
                committer: signers.committer,
            };
            match commit::commit(&repository, turn.name(), &fork, &options) {
                Ok(made) => {
                    turn.note_settled(made.commit_id);
                    Ok(Outcome {
                        commit: Some(made.commit_id.to_string()),
                        snapshot: None,
                    })
                }
                Err(ChangeError::NothingToCommit) => Ok(Outcome::default()),
                Err(error) => Err(error.into()),
            }
        }
        UnmountAction::Discard => Ok(Outcome {
            commit: None,
            snapshot: reset_to_head(turn, SnapshotReason::BeforeDiscard)?,
        }),
    }
}

/// Refuses where the fork holds repositories of its own: no commit can keep what was committed in them. What git keeps
/// for a submodule elsewhere does not count.
pub fn refuse_nested_repositories(
    name: &ForkName,
    fork: &Fork,
    changeset: &Changeset,
) -> Result<(), Failure> {
    let dot_git = EntryName::dot_git();
    let is_whole = |path: &&RepoPath| {
        let kind = fork.workspace.resolve(&path.join(&dot_git)).map(|attr| attr.kind);
        changeset.left_out.contains(path) || kind.is_ok_and(|kind| kind == FileKind::Directory)
    };
    match changeset.repositories.iter().find(is_whole) {
        None => Ok(()),
        Some(path) => Err(Failure::new(
            ErrorCode::UncommittedChanges,
            format!("{name} has a repository of its own in {path}, which would go with it"),
        )
        .hint(format!(
            "move it out of the fork; `tine delete {name} --force` deletes it"
        ))),
    }
}

/// Does what `tine unmount` would, after the mount has gone without it.
pub fn after_outside_unmount(turn: &Turn<'_>) -> Result<(), Failure> {
    let record = match turn.update_record(|record| record.mounted = false) {
        Ok(record) => record,
        // Deleted meanwhile: nothing is left to do.
        Err(failure) if failure.code == ErrorCode::NoSuchFork => return Ok(()),
        Err(failure) => return Err(failure),
    };
    let action = default_action(record.on_unmount, turn.name());
    check(turn, &action)?;
    {
        let fork = turn.open()?;
        turn.settle(&turn.daemon.repository, &fork)?;
    }
    let outcome = apply(turn, &action, Signers::default())?;
    if let Some(commit) = &outcome.commit {
        log::info!("{}: committed as {commit}", turn.name());
    }
    if let Some(snapshot) = &outcome.snapshot {
        log::info!("{}: discarded, kept as the snapshot {snapshot}", turn.name());
    }
    Ok(())
}
