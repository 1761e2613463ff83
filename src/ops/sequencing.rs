//! Updates forks, picks commits onto them, and applies patches and handoffs.
//!
//! A request and the present state give a [sequence](tine_change::sequence). The sequence runs on
//! git objects, and the target moves to its result in one step. With conflicts nothing moves. A
//! review then keeps the sequence, and runs it again.

mod building;
mod mailboxes;
mod operations;
mod reviewing;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::building::build;
pub(crate) use self::mailboxes::unless_taken_back;
pub use self::operations::{ApplyHandoff, ApplyPatch, CherryPick, SequenceOptions, Update};
pub(crate) use self::reviewing::{commit_review, find_later_conflicts, follow_target, refresh};
use super::locks::retry_while_moved;
use super::merging::outdated;
use super::target::{Holder, Target, find_target};
use crate::failure::Failure;
use crate::operation::Call;
use crate::policy::Signers;
use crate::protocol::{MergeStatus, ReviewPolicy, Sequenced, SequencedCommit};
use crate::report;
use crate::restoring::ConflictOptions;
use crate::state::slots::Daemon;
use crate::transfer::{Arrived, Transfer};
use tine_change::ChangeError;
use tine_change::advance::{Step, UpdateStep};
use tine_change::commit::refuse_moved_under;
use tine_change::compare::compare_trees;
use tine_change::fork_point::{self, fork_point};
use tine_change::merge::Tip;
use tine_change::revert_guard::{RevertRecords, RevertSource, refuse_taking_back};
use tine_change::review::ReviewRecord;
use tine_change::sequence::{
    RunOptions, Sequence, SequenceItem, SequenceOutcome, SequenceRequest, run,
};
use tine_change::view::{check_move, move_view, view_tree};
use tine_git::{GitError, ObjectId, Repository};
use tine_merge::MergeOptions;
use tine_store::{ForkName, SnapshotOptions, SnapshotReason};
use tine_workspace::{Actor, OperationKind};

/// Request for a sequence, by any of the commands.
pub(crate) struct SequenceArgs {
    /// Word that names the target, a fork or branch.
    pub into: String,
    /// True to refuse a target with uncommitted changes.
    pub is_clean: bool,
    /// Kind of the sequence, with its arguments.
    pub request: SequenceRequest,
    /// Git directory in which revisions are resolved.
    pub git_dir: PathBuf,
    /// Level and strategy of all merges in the sequence.
    pub merge: MergeOptions,
    /// True to merge histories without a common commit.
    pub allow_unrelated: bool,
    /// Message of an update's merge commit. `None` means git's default.
    pub message: Option<String>,
    /// True to change nothing.
    pub dry_run: bool,
    /// Policy for keeping the sequence as a review.
    pub review: ReviewPolicy,
    /// True if a handoff may take commits of others back.
    pub allow_revert: bool,
}

/// State of the target when the sequence is planned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TargetState {
    /// Commit and tree, without uncommitted changes.
    pub tip: Tip,
    /// Tree of the view, if uncommitted changes take part.
    pub view: Option<ObjectId>,
}

impl SequenceArgs {
    /// Returns a request with the default options.
    pub(crate) fn of(
        into: String,
        request: SequenceRequest,
        choices: ConflictOptions,
        git_dir: &Path,
    ) -> SequenceArgs {
        SequenceArgs {
            into,
            is_clean: false,
            request,
            git_dir: git_dir.to_owned(),
            merge: MergeOptions {
                level: choices.level,
                strategy: choices.strategy,
                ..MergeOptions::default()
            },
            allow_unrelated: false,
            message: None,
            dry_run: false,
            review: ReviewPolicy::Never,
            allow_revert: false,
        }
    }
}

/// Carries out the request. A dry run only returns what would happen.
fn sequence(call: &Call<'_>, args: &SequenceArgs) -> Result<Sequenced, Failure> {
    let daemon = call.daemon;
    // The lock makes two equal requests share one review.
    let _reviews = (args.review != ReviewPolicy::Never).then(|| daemon.reviews.lock());
    let done = carry_out(daemon, call.by(), args, &call.signers(), None)?;
    mailboxes::note_applied(daemon, args, &done);
    Ok(done)
}

/// Writes the transferred content as a blob.
pub(crate) fn write_content(
    daemon: &Daemon,
    repository: &Repository,
    content: &Transfer,
) -> Result<ObjectId, Failure> {
    Ok(match content.take(daemon.store.dir())? {
        Arrived::Bytes(bytes) => {
            repository.write_blob(&mut bytes.as_slice(), bytes.len() as u64)?
        }
        Arrived::File(mut file) => {
            let len = file
                .metadata()
                .map_err(GitError::io("look at", "what was sent"))?
                .len();
            repository.write_blob(&mut file, len)?
        }
    })
}

/// Plans the request and carries it out. Plans again if the target moves meanwhile.
///
/// With `review` it runs the review's sequence with its resolutions, and fails if the target is no
/// longer at the planned state.
pub(crate) fn carry_out(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    args: &SequenceArgs,
    signers: &Signers,
    review: Option<&ReviewRecord>,
) -> Result<Sequenced, Failure> {
    let (done, holder) = retry_while_moved(|| {
        on_target(daemon, by, args, |target| {
            let _lease = if args.dry_run {
                None
            } else {
                Some(target.lease(|| find_target(daemon, target.repository, &args.into))?)
            };
            if args.is_clean {
                target.refuse_uncommitted()?;
            }
            let now = target_state(target, args)?;
            let sequence = match review.and_then(|review| Some((review, review.work.as_ref()?))) {
                Some((review, _)) if !reviewing::moved_from(review, &now).is_empty() => {
                    return Err(outdated(review));
                }
                Some((_, work)) => work.sequence.clone(),
                None => build(target, args, &now)?,
            };
            let ran = run_on(target, args, &now, &sequence, signers, review)?;
            let done = finish(target, args, &now, sequence, &ran)?;
            Ok((done, target.holder.clone()))
        })
    })?;
    if done.status == MergeStatus::Merged && !args.dry_run {
        Target::after(&daemon.repository, &holder);
    }
    Ok(done)
}

/// Runs a sequence from the target's state `now`.
fn run_on(
    target: &Target<'_>,
    args: &SequenceArgs,
    now: &TargetState,
    sequence: &Sequence,
    signers: &Signers,
    review: Option<&ReviewRecord>,
) -> Result<SequenceOutcome, Failure> {
    let options = RunOptions {
        merge: args.merge,
        allow_unrelated: args.allow_unrelated,
        author: signers.author.clone(),
        committer: signers.committer.clone(),
        review,
    };
    let (store, repository) = (&target.daemon.store, target.repository);
    Ok(run(
        store, repository, sequence, now.tip, now.view, &options,
    )?)
}

/// Calls `work` with the target, under the lock of a target fork.
fn on_target<T>(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    args: &SequenceArgs,
    work: impl FnOnce(&Target<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let repository = daemon.repository_now()?;
    let holder = find_target(daemon, &repository, &args.into)?;
    let slot = match &holder {
        Holder::Fork(fork) => Some(daemon.slot(fork)),
        Holder::Branch(_) | Holder::Checkout(..) => None,
    };
    let guard = slot
        .as_ref()
        .map(|slot| daemon.lock_fork(slot))
        .transpose()?;
    if let Some(guard) = &guard {
        let open = guard.open_existing()?;
        guard.settle(&repository, &open)?;
        if let Some(operation) = open.worktree.operation_in_progress() {
            return Err(ChangeError::OperationInProgress(operation).into());
        }
        refuse_moved_under(&repository, &open)?;
    }
    work(&Target {
        daemon,
        by,
        repository: &repository,
        holder: &holder,
        guard: guard.as_ref(),
    })
}

/// Returns the target's present state.
fn target_state(target: &Target<'_>, args: &SequenceArgs) -> Result<TargetState, Failure> {
    let view = match (&args.request, target.guard) {
        (
            SequenceRequest::Update { .. }
            | SequenceRequest::Patch { .. }
            | SequenceRequest::Restore { .. },
            Some(guard),
        ) => Some(view_tree(target.repository, &*guard.open()?)?),
        _ => None,
    };
    Ok(TargetState {
        tip: target.tip()?,
        view,
    })
}

/// Moves the target or keeps a review, and returns the answer.
fn finish(
    target: &Target<'_>,
    args: &SequenceArgs,
    now: &TargetState,
    sequence: Sequence,
    ran: &SequenceOutcome,
) -> Result<Sequenced, Failure> {
    let old_tree = now.view.unwrap_or(now.tip.tree_id);
    let is_for_review = args.review == ReviewPolicy::Always && ran.tree_id() != old_tree;
    let is_same = ran.tip == now.tip && ran.view == now.view;
    let status = match (&ran.stopped, is_for_review, is_same) {
        (Some(_), ..) => MergeStatus::Conflicts,
        (None, true, _) => MergeStatus::Reviewed,
        (None, false, true) => MergeStatus::NothingToMerge,
        (None, false, false) => MergeStatus::Merged,
    };
    if status == MergeStatus::Merged
        && matches!(args.request, SequenceRequest::Mailbox { .. })
        && !args.allow_revert
    {
        let reverts = RevertRecords::of(&target.daemon.store);
        let (from, to) = (now.tip.commit_id, ran.tip.tree_id);
        refuse_taking_back(
            target.repository,
            &reverts,
            from,
            to,
            RevertSource::Handoff(None),
        )?;
    }
    let mut snapshot = None;
    match status {
        MergeStatus::Merged => snapshot = go(target, args, now, ran)?,
        MergeStatus::NothingToMerge if !args.dry_run => note_fork_point(target, args, ran)?,
        _ => {}
    }
    let review = match status {
        MergeStatus::Conflicts if args.review != ReviewPolicy::Never => {
            Some(reviewing::keep(target, args, now, &sequence, ran)?)
        }
        MergeStatus::Reviewed => Some(reviewing::keep(target, args, now, &sequence, ran)?),
        _ => None,
    };
    let moves = status == MergeStatus::Merged;
    let (after, new_tree) = if moves {
        (ran.tip, ran.tree_id())
    } else {
        (now.tip, old_tree)
    };
    let changes = compare_trees(target.repository, old_tree, new_tree)?;
    let hex = |tip: Tip| tip.commit_id.map(|id| id.to_string());
    Ok(Sequenced {
        status,
        dry_run: args.dry_run,
        target: target.line()?,
        before: hex(now.tip),
        after: hex(after),
        commits: commits(target.repository, &sequence, ran)?,
        conflicts: ran
            .stopped
            .as_ref()
            .map(|stopped| stopped.conflicts.clone())
            .unwrap_or_default(),
        review,
        changes: changes.iter().map(report::change_line).collect(),
        snapshot,
    })
}

/// Moves the target, and returns the snapshot of its state before.
///
/// A dry run only checks whether the move is possible.
fn go(
    target: &Target<'_>,
    args: &SequenceArgs,
    now: &TargetState,
    ran: &SequenceOutcome,
) -> Result<Option<ForkName>, Failure> {
    let (kind, reason) = match &args.request {
        SequenceRequest::Update { .. } => (OperationKind::Update, SnapshotReason::BeforeUpdate),
        SequenceRequest::CherryPick { .. } => {
            (OperationKind::CherryPick, SnapshotReason::BeforeCherryPick)
        }
        SequenceRequest::Restore { .. } => (OperationKind::Switch, SnapshotReason::BeforeRestore),
        SequenceRequest::Patch { .. } | SequenceRequest::Mailbox { .. } => {
            (OperationKind::Apply, SnapshotReason::BeforeApply)
        }
    };
    if let (
        SequenceRequest::Patch { .. } | SequenceRequest::Restore { .. },
        Some(guard),
        Some(from),
        Some(to),
    ) = (&args.request, target.guard, now.view, ran.view)
    {
        let open = guard.open()?;
        if args.dry_run {
            check_move(target.repository, &open, (from, to))?;
            return Ok(None);
        }
        let (store, name) = (&target.daemon.store, guard.name());
        let before = match &args.request {
            SequenceRequest::Restore { .. } => {
                let kept = SnapshotOptions::because(reason);
                Some(store.take_snapshot(name, &open, &kept)?.name)
            }
            _ => None,
        };
        if let Err(error) = move_view(target.repository, name, &open, target.by, (from, to), kind) {
            if let Some(before) = &before {
                store.remove_snapshot(name, before)?;
            }
            return Err(error.into());
        }
        guard.sync_if_unmounted(&open)?;
        return Ok(before);
    }
    let Some(to) = ran.tip.commit_id else {
        return Err(GitError::UnknownRevision("HEAD".to_owned()).into());
    };
    let update = match (&args.request, target.guard, now.view, ran.view) {
        (SequenceRequest::Update { .. }, Some(guard), Some(view_from), Some(view_to)) => {
            let record = guard.record()?;
            Some(UpdateStep {
                view_from,
                view_to,
                point_from: fork_point(target.repository, &record, now.tip.commit_id)?,
                point_to: building::upstream(target, args)?,
            })
        }
        _ => None,
    };
    let step = Step {
        from: now.tip.commit_id,
        to,
        update,
        switch: None,
        index: None,
        reflog: target.by.command.to_owned(),
        kind,
        undoes: None,
    };
    let ready = target.check(&step)?;
    if args.dry_run {
        return Ok(None);
    }
    target.go(ready, &step, reason)
}

/// Moves the fork point to the upstream commit, if HEAD contains it.
fn note_fork_point(
    target: &Target<'_>,
    args: &SequenceArgs,
    ran: &SequenceOutcome,
) -> Result<(), Failure> {
    let (SequenceRequest::Update { .. }, Some(guard), Some(head)) =
        (&args.request, target.guard, ran.tip.commit_id)
    else {
        return Ok(());
    };
    let Some(upstream) = building::upstream(target, args)? else {
        return Ok(());
    };
    let point = fork_point(target.repository, &guard.record()?, Some(head))?;
    let is_further = match point {
        Some(point) => point != upstream && target.repository.is_ancestor(point, upstream)?,
        None => true,
    };
    if is_further {
        fork_point::note(&target.daemon.store, guard.name(), Some(upstream))?;
    }
    Ok(())
}

/// Returns the result of each commit.
fn commits(
    repository: &Repository,
    sequence: &Sequence,
    ran: &SequenceOutcome,
) -> Result<Vec<SequencedCommit>, Failure> {
    let stopped = ran.stopped.as_ref().map(|stopped| stopped.item);
    let mut lines = Vec::new();
    for (index, item) in sequence.items.iter().enumerate() {
        let done = ran.done.iter().find(|done| done.item == index);
        if done.is_none() && stopped != Some(index) {
            continue;
        }
        let (source, subject) = match item {
            SequenceItem::Merge { commit, .. } | SequenceItem::Pick { commit, .. } => {
                let id = ObjectId::from_hex(commit.as_bytes())
                    .map_err(GitError::library("read an id"))?;
                (Some(commit.clone()), repository.commit_info(id)?.summary)
            }
            SequenceItem::Mail {
                commit, subject, ..
            } => (commit.clone(), subject.clone()),
            SequenceItem::Patch { .. }
            | SequenceItem::Restored { .. }
            | SequenceItem::Uncommitted { .. } => continue,
        };
        lines.push(SequencedCommit {
            source,
            subject,
            how: done.map(|done| done.how),
            commit: done
                .and_then(|done| done.commit_id)
                .map(|id| id.to_string()),
        });
    }
    Ok(lines)
}
