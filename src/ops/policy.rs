//! Applies unmount policies: a fork's changes are kept, committed, discarded, merged or handed off.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use super::failure::{ErrorCode, Failure};
use super::protocol::{IndexKept, Merged, ReviewPolicy, UnmountAction};
use super::state::slots::{Daemon, ForkGuard};
use crate::Merge;
use crate::locks;
use crate::snapshots::reset_to_head;
use tine_attr::FileKind;
use tine_change::revert_guard::RevertRecords;
use tine_change::{ChangeError, Changeset, CommitOptions, commit};
use tine_git::Identity;
use tine_path::{EntryName, RepoPath};
use tine_store::{Fork, ForkName, SnapshotReason, UnmountPolicy};
use tine_workspace::{Actor, Caller};

/// Result of an action.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Commit that was made, in hex.
    pub commit: Option<String>,
    /// Snapshot that keeps the discarded changes.
    pub snapshot: Option<ForkName>,
    /// Numbers of the staged text and index that a discard kept.
    pub index: IndexKept,
}

/// Author and committer of a commit.
#[derive(Debug, Clone, Default)]
pub struct Signers {
    /// Author. `None` means that git's configuration decides.
    pub author: Option<Identity>,
    /// Committer. `None` means that git's configuration decides.
    pub committer: Option<Identity>,
}

impl Signers {
    /// Returns tine's own identity, for commits that no ref leads to.
    pub(crate) fn tine() -> Signers {
        Signers {
            author: Some(Identity::tine()),
            committer: Some(Identity::tine()),
        }
    }
}

/// Converts a policy to its action. A commit gets tine's own message.
pub(crate) fn default_action(policy: &UnmountPolicy, name: &ForkName) -> UnmountAction {
    match policy {
        UnmountPolicy::Keep => UnmountAction::Keep,
        UnmountPolicy::Commit => UnmountAction::Commit {
            message: work_message(name),
        },
        UnmountPolicy::Discard => UnmountAction::Discard,
        UnmountPolicy::Merge { into } => UnmountAction::Merge {
            into: into.clone(),
            message: None,
        },
        UnmountPolicy::Handoff { to } => UnmountAction::Handoff {
            to: to.clone(),
            include_uncommitted: false,
            message: None,
            allow_revert: false,
        },
    }
}

/// Returns the message of tine's own commits of a fork's work.
pub fn work_message(name: &ForkName) -> String {
    format!("tine: work in {name}")
}

/// Returns the note that `commit` stays although a later step failed.
pub fn stays_committed(fork: &str, commit: &str) -> String {
    format!("what was uncommitted in {fork} is committed there, as {commit}")
}

/// Converts an action to its policy.
pub(crate) fn policy_of(action: &UnmountAction) -> UnmountPolicy {
    match action {
        UnmountAction::Keep => UnmountPolicy::Keep,
        UnmountAction::Commit { .. } => UnmountPolicy::Commit,
        UnmountAction::Discard => UnmountPolicy::Discard,
        UnmountAction::Merge { into, .. } => UnmountPolicy::Merge { into: into.clone() },
        UnmountAction::Handoff { to, .. } => UnmountPolicy::Handoff { to: to.clone() },
    }
}

/// Refuses an action that is known to fail, before anything is unmounted.
pub(crate) fn check(guard: &ForkGuard<'_>, action: &UnmountAction) -> Result<(), Failure> {
    match action {
        UnmountAction::Keep => Ok(()),
        UnmountAction::Commit { message }
        | UnmountAction::Merge {
            message: Some(message),
            ..
        } => {
            if message.trim().is_empty() {
                return Err(ChangeError::EmptyMessage.into());
            }
            refuse_operation(guard)
        }
        UnmountAction::Discard | UnmountAction::Merge { message: None, .. } => {
            refuse_operation(guard)
        }
        UnmountAction::Handoff {
            include_uncommitted,
            message,
            ..
        } => match (include_uncommitted, message) {
            (true, Some(message)) if message.trim().is_empty() => {
                Err(ChangeError::EmptyMessage.into())
            }
            (true, _) => refuse_operation(guard),
            (false, _) => Ok(()),
        },
    }
}

fn refuse_operation(guard: &ForkGuard<'_>) -> Result<(), Failure> {
    match guard.open()?.worktree.operation_in_progress() {
        Some(operation) => Err(ChangeError::OperationInProgress(operation).into()),
        None => Ok(()),
    }
}

/// Applies `action` to a fork that is not mounted.
///
/// For a merge or handoff the caller runs [`merge`] or makes the handoff after it drops the guard.
pub(crate) fn apply(
    guard: &ForkGuard<'_>,
    action: &UnmountAction,
    signers: &Signers,
) -> Result<Outcome, Failure> {
    // A buffer ends when its mount is gone for good, so an action that fails must not end it.
    let outcome = crate::buffers::with_all_agent_texts(guard, || act(guard, action, signers))?;
    crate::buffers::end_in(guard)?;
    Ok(outcome)
}

fn act(
    guard: &ForkGuard<'_>,
    action: &UnmountAction,
    signers: &Signers,
) -> Result<Outcome, Failure> {
    let repository = guard.daemon.repository_now()?;
    match action {
        // A merge locks other forks, so the caller runs it after it drops this guard.
        UnmountAction::Keep
        | UnmountAction::Merge { .. }
        | UnmountAction::Handoff {
            include_uncommitted: false,
            ..
        } => Ok(Outcome::default()),
        UnmountAction::Handoff {
            include_uncommitted: true,
            message,
            allow_revert,
            ..
        } => {
            let commit_id = crate::handoffs::commit_uncommitted(
                guard,
                message.clone(),
                signers,
                *allow_revert,
            )?;
            Ok(Outcome {
                commit: commit_id.map(|id| id.to_string()),
                ..Outcome::default()
            })
        }
        UnmountAction::Commit { message } => {
            let fork = guard.open()?;
            let options = CommitOptions {
                message: message.clone(),
                author: signers.author.clone(),
                committer: signers.committer.clone(),
                reverts: RevertRecords::of(&guard.daemon.store),
            };
            let command = format!("tine unmount --commit {}", guard.name());
            let _lease = locks::lease(guard.daemon, &command, || {
                locks::head_of(guard, &repository)
            })?;
            match commit::commit(&repository, guard.name(), &fork, &options) {
                Ok(made) => {
                    guard.note_settled(&made);
                    Ok(Outcome {
                        commit: Some(made.commit_id.to_string()),
                        ..Outcome::default()
                    })
                }
                Err(ChangeError::NothingToCommit) => Ok(Outcome::default()),
                Err(error) => Err(error.into()),
            }
        }
        UnmountAction::Discard => {
            let command = format!("tine unmount --discard {}", guard.name());
            let dropped = reset_to_head(guard, SnapshotReason::BeforeDiscard, &command)?;
            Ok(Outcome {
                commit: None,
                snapshot: dropped.snapshot,
                index: dropped.index,
            })
        }
    }
}

/// Refuses if the fork holds whole repositories.
///
/// No commit of the fork can keep their commits. A submodule whose repository git keeps elsewhere
/// does not count.
pub(crate) fn refuse_nested_repositories(
    name: &ForkName,
    fork: &Fork,
    changeset: &Changeset,
) -> Result<(), Failure> {
    let dot_git = EntryName::dot_git();
    let is_whole = |path: &&RepoPath| {
        let kind = fork
            .workspace
            .resolve(&path.join(&dot_git))
            .map(|attr| attr.kind);
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

/// Refuses if the fork holds checkouts whose repository is elsewhere.
///
/// An example is a linked worktree. Its commits stay in that repository, but its files would go
/// with the fork.
pub(crate) fn refuse_nested_checkouts(
    name: &ForkName,
    fork: &Fork,
    changeset: &Changeset,
) -> Result<(), Failure> {
    let dot_git = EntryName::dot_git();
    let has_files = |path: &&RepoPath| {
        let listed = fork.workspace.list_path(path).unwrap_or_default();
        listed.iter().any(|(name, ..)| *name != dot_git)
    };
    match changeset.repositories.iter().find(has_files) {
        None => Ok(()),
        Some(path) => Err(Failure::new(
            ErrorCode::UncommittedChanges,
            format!("{name} has a checkout of another repository in {path}, which would go with it"),
        )
        .hint(format!(
            "commit there what is not committed, and move the checkout out of the fork; `tine delete {name} --force` deletes its files"
        ))),
    }
}

/// Applies the policy after a mount ended without `tine unmount`.
pub(crate) fn after_outside_unmount(guard: &ForkGuard<'_>) -> Result<(), Failure> {
    let record = match guard.update_record(|record| record.mounted = false) {
        Ok(record) => record,
        // The fork was deleted meanwhile, so nothing is left to do.
        Err(failure) if failure.code == ErrorCode::NoSuchFork => return Ok(()),
        Err(failure) => return Err(failure),
    };
    tine_fuse::remove_guard(&record.mount_dir);
    let action = default_action(&record.on_unmount, guard.name());
    check(guard, &action)?;
    {
        let fork = guard.open()?;
        guard.settle(&guard.daemon.repository, &fork)?;
    }
    let outcome = apply(guard, &action, &Signers::default())?;
    if let Some(commit) = &outcome.commit {
        log::info!("{}: committed as {commit}", guard.name());
    }
    if let Some(snapshot) = &outcome.snapshot {
        log::info!(
            "{}: discarded, kept as the snapshot {snapshot}",
            guard.name()
        );
    }
    match action {
        UnmountAction::Merge { into, message } => merge_later(guard, into, message)?,
        UnmountAction::Handoff { to, .. } => crate::handoffs::of_unmounted_later(guard, to)?,
        UnmountAction::Keep | UnmountAction::Commit { .. } | UnmountAction::Discard => {}
    }
    Ok(())
}

/// Merges a fork that is not mounted. The caller must hold no guard.
pub(crate) fn merge(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    name: &ForkName,
    into: Option<String>,
    message: Option<String>,
    signers: &Signers,
) -> Result<Box<Merged>, Failure> {
    let worktree = daemon.store.worktree_of(name)?;
    let request = Merge {
        into,
        message: message.into_iter().collect(),
        review: ReviewPolicy::OnConflict,
        with_uncommitted: true,
        ..Merge::of(format!("fork:{name}"))
    };
    crate::merging::merge(daemon, by, worktree.git_dir(), &request, signers)
        .map(Box::new)
        .map_err(|failure| {
            failure.context(format!("{name} is unmounted and whole, but was not merged"))
        })
}

/// Starts a thread that merges the fork after the guard is dropped. No caller waits for it.
fn merge_later(
    guard: &ForkGuard<'_>,
    into: Option<String>,
    message: Option<String>,
) -> Result<(), Failure> {
    let attrs = guard.open()?.workspace.base_attrs();
    work_later(guard, "merge", move |daemon, name| {
        let by = Actor {
            caller: Caller::new(attrs.uid, attrs.gid),
            command: "tine unmount --merge",
        };
        let merge = merge(daemon, by, name, into, message, &Signers::default())?;
        if let Some(review) = merge.review {
            return Err(Failure::new(
                ErrorCode::MergeConflicts,
                format!("{name} has conflicts with what it is merged into"),
            )
            .hint(format!("`tine review show {review}` shows them")));
        }
        log::info!("{name}: merged: {:?}", merge.after);
        Ok(())
    })
}

/// Starts a thread for work that waits for the fork's lock.
///
/// The caller holds that lock. A failure of the work is logged, and `tine list` shows it.
pub(crate) fn work_later(
    guard: &ForkGuard<'_>,
    what: &str,
    work: impl FnOnce(&Arc<Daemon>, &ForkName) -> Result<(), Failure> + Send + 'static,
) -> Result<(), Failure> {
    let (daemon, name) = (guard.daemon.clone(), guard.name().clone());
    let run = move || {
        if let Err(failure) = work(&daemon, &name) {
            log::error!("{failure}");
            daemon.slot(&name).set_trouble(Some(failure));
        }
    };
    thread::Builder::new()
        .name(format!("{what}-{}", guard.name()))
        .spawn(run)
        .map(drop)
        .map_err(|error| {
            let what = format!("the {what}");
            Failure::io("start a thread for", Path::new(&what), &error)
        })
}
