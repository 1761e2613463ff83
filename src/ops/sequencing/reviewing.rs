//! Keeps sequences with conflicts as reviews.
//!
//! A commit on top of resolved conflicts may have conflicts, too. Therefore a review's sequence
//! runs again whenever nothing is open in it, and the review gets the next conflicts.

use std::sync::Arc;

use super::{
    SequenceArgs, TargetState, build, carry_out, mailboxes, on_target, run_on, target_state,
};
use crate::CommitReview;
use crate::failure::{ErrorCode, Failure};
use crate::merging::outdated;
use crate::operation::joined_message;
use crate::policy::Signers;
use crate::protocol::{ReviewPolicy, Sequenced};
use crate::reviews::{nothing_to_plan, sides};
use crate::state::slots::Daemon;
use crate::target::{Target, word_for};
use tine_attr::Timestamp;
use tine_change::merge::FastForward;
use tine_change::rerere;
use tine_change::review::{ReviewRecord, ReviewState, ReviewedMerge, ReviewedWork};
use tine_change::sequence::{Sequence, SequenceOutcome, SequenceRequest};
use tine_git::Repository;
use tine_merge::MergeSide;
use tine_store::RecordKind;
use tine_workspace::Actor;

/// Keeps a sequence as a review, and returns the review's number.
///
/// The sequence has stopped at conflicts, or the request asks for a review in any case.
pub(super) fn keep(
    target: &Target<'_>,
    args: &SequenceArgs,
    now: &TargetState,
    sequence: &Sequence,
    ran: &SequenceOutcome,
) -> Result<u64, Failure> {
    let merge = ReviewedMerge {
        source: describe(&args.request),
        into: word_for(
            target.daemon,
            Some(&args.into),
            target.holder,
            &target.line()?,
        ),
        here: None,
        git_dir: args.git_dir.clone(),
        base: None,
        level: args.merge.level,
        strategy: args.merge.strategy,
        fast_forward: FastForward::default(),
        allow_unrelated: args.allow_unrelated,
        delete: false,
        with_uncommitted: false,
        message: args.message.clone(),
    };
    let mut record = ReviewRecord {
        id: 0,
        created_secs: Timestamp::now().secs,
        state: ReviewState::Open,
        merge,
        work: Some(Box::new(ReviewedWork {
            request: args.request.clone(),
            sequence: sequence.clone(),
            view: now.view.map(|id| id.to_string()),
        })),
        ours_commit: now.tip.commit_id.map(|id| id.to_string()),
        view: None,
        theirs_commit: None,
        theirs_tree: ran.tip.tree_id.to_string(),
        conflicts: Vec::new(),
        verdict: None,
        amendments: Vec::new(),
        commit: None,
        committed_on: None,
    };
    record.take_conflicts(ran);
    let store = &target.daemon.store;
    let (records, _) = store.documents::<ReviewRecord>(RecordKind::Reviews)?;
    if let Some(known) = records
        .into_iter()
        .find(|known| is_open_for(known, &record))
    {
        return plan_again(target, known, record);
    }
    recall(target.daemon, target.repository, &mut record)?;
    let what = format!("{} into {}", record.merge.source, record.merge.into);
    let id = record.add(&target.daemon.store, target.repository)?;
    log::info!("review {id}: {what}");
    Ok(id)
}

/// Returns whether `known` is an open review of the same request.
fn is_open_for(known: &ReviewRecord, new: &ReviewRecord) -> bool {
    let merge = ReviewedMerge {
        message: known.merge.message.clone(),
        ..new.merge.clone()
    };
    let is_same_request = match (&known.work, &new.work) {
        (Some(known), Some(new)) => known.request == new.request,
        _ => false,
    };
    known.state == ReviewState::Open && known.merge == merge && is_same_request
}

/// Plans an open review again, and returns its number.
fn plan_again(target: &Target<'_>, known: ReviewRecord, new: ReviewRecord) -> Result<u64, Failure> {
    let is_as_planned = known.ours_commit == new.ours_commit && known.work == new.work;
    if is_as_planned {
        return Ok(known.id);
    }
    let store = &target.daemon.store;
    let mut record = ReviewRecord {
        id: known.id,
        created_secs: known.created_secs,
        // The known resolutions are kept.
        conflicts: known.conflicts,
        ..new
    };
    record.take_conflicts(&record.run_again(store, target.repository)?);
    recall(target.daemon, target.repository, &mut record)?;
    record.save(store, target.repository)?;
    Ok(record.id)
}

/// Describes the request in a few words.
fn describe(request: &SequenceRequest) -> String {
    match request {
        SequenceRequest::Update { from, rebase } => {
            let how = if *rebase { "rebase onto" } else { "update to" };
            match from {
                Some(from) => format!("{how} {from}"),
                None => format!("{how} the branch it came from"),
            }
        }
        SequenceRequest::CherryPick { commits, .. } => {
            format!("cherry-pick of {}", commits.join(" "))
        }
        SequenceRequest::Patch { .. } => "a patch".to_owned(),
        SequenceRequest::Restore { point, .. } => format!("restore to {point}"),
        SequenceRequest::Mailbox { handoff, .. } => format!("handoff {handoff}"),
    }
}

/// Applies resolutions that git remembers, and finds the conflicts that follow.
fn recall(
    daemon: &Daemon,
    repository: &Repository,
    record: &mut ReviewRecord,
) -> Result<(), Failure> {
    loop {
        match rerere::recall(&daemon.store, repository, record) {
            Err(error) => log::warn!("what git remembers is not used: {error}"),
            Ok(0) => {}
            Ok(_) if record.open_conflicts() == 0 => {
                record.take_conflicts(&record.run_again(&daemon.store, repository)?);
                continue;
            }
            Ok(_) => {}
        }
        return Ok(());
    }
}

/// Finds the conflicts that follow, if nothing is open in the review.
pub(crate) fn find_later_conflicts(
    daemon: &Daemon,
    repository: &Repository,
    record: &mut ReviewRecord,
) -> Result<(), Failure> {
    if record.work.is_none() || record.open_conflicts() > 0 {
        return Ok(());
    }
    record.take_conflicts(&record.run_again(&daemon.store, repository)?);
    recall(daemon, repository, record)
}

/// Returns the sides that differ from the plan.
pub(super) fn moved_from(review: &ReviewRecord, now: &TargetState) -> Vec<MergeSide> {
    let ours_commit = now.tip.commit_id.map(|id| id.to_string());
    let view = now.view.map(|id| id.to_string());
    let planned = review.work.as_ref().and_then(|work| work.view.clone());
    if review.ours_commit == ours_commit && planned == view {
        Vec::new()
    } else {
        vec![MergeSide::Ours]
    }
}

/// Returns the sides that differ from the plan.
///
/// If the sequence does the same with the same conflicts, it plans the review again from the
/// present state, and returns no side.
pub(crate) fn follow_target(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    record: &mut ReviewRecord,
    gone: &[MergeSide],
) -> Result<Vec<MergeSide>, Failure> {
    let args = args_of(&daemon.repository, record, gone)?;
    let moved = on_target(daemon, by, &args, |target| {
        Ok(moved_from(record, &target_state(target, &args)?))
    })?;
    if moved.is_empty() || record.verdict.is_some() || !record.amendments.is_empty() {
        return Ok(moved);
    }
    let mut again = record.clone();
    if let Err(failure) = refresh(daemon, by, &mut again, gone) {
        log::info!("review {}: {failure}", record.id);
        return Ok(moved);
    }
    let is_same_work = match (&record.work, &again.work) {
        (Some(before), Some(now)) => before.sequence.does_the_same(&now.sequence),
        _ => false,
    };
    if is_same_work && record.has_conflicts(&again.conflicts) {
        *record = again;
        Ok(Vec::new())
    } else {
        Ok(moved)
    }
}

/// Plans the sequence again from the present state. Resolutions of equal conflicts stay.
pub(crate) fn refresh(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    record: &mut ReviewRecord,
    gone: &[MergeSide],
) -> Result<(), Failure> {
    let args = args_of(&daemon.repository, record, gone)?;
    let (now, sequence, ran) = on_target(daemon, by, &args, |target| {
        let now = target_state(target, &args)?;
        let sequence = build(target, &args, &now)?;
        // No ref leads to the commits that this makes.
        let signers = Signers::tine();
        let ran = run_on(target, &args, &now, &sequence, &signers, Some(record))?;
        Ok((now, sequence, ran))
    })?;
    if ran.tip == now.tip && ran.view == now.view && ran.stopped.is_none() {
        return Err(Failure::new(
            ErrorCode::ReviewState,
            format!("{} has all of it by now", record.merge.into),
        )
        .hint(nothing_to_plan(record)));
    }
    record.verdict = None;
    record.ours_commit = now.tip.commit_id.map(|id| id.to_string());
    record.theirs_tree = ran.tip.tree_id.to_string();
    record.work = Some(Box::new(ReviewedWork {
        // The original request is kept, because a source that is gone may come back.
        request: record
            .work
            .as_ref()
            .map_or(args.request, |work| work.request.clone()),
        sequence,
        view: now.view.map(|id| id.to_string()),
    }));
    record.take_conflicts(&ran);
    Ok(())
}

/// Carries out the reviewed sequence with its resolutions.
pub(crate) fn commit_review(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    record: &ReviewRecord,
    request: &CommitReview,
    signers: &Signers,
) -> Result<Sequenced, Failure> {
    // The reviewed commits are applied, even if the source's name now leads to others.
    let mut args = args_of(&daemon.repository, record, &[MergeSide::Theirs])?;
    args.dry_run = request.dry_run;
    args.allow_revert = request.allow_revert;
    if let Some(message) = joined_message(&request.message) {
        args.message = Some(message);
    }
    let done = carry_out(daemon, by, &args, signers, Some(record))?;
    mailboxes::note_applied(daemon, &args, &done);
    Ok(done)
}

/// Returns the request of the review.
///
/// If its source is gone, the request names the commits that the review keeps.
fn args_of(
    repository: &Repository,
    record: &ReviewRecord,
    gone: &[MergeSide],
) -> Result<SequenceArgs, Failure> {
    let Some(work) = &record.work else {
        return Err(outdated(record));
    };
    let pinned = sides::pinned_request(record).filter(|_| gone.contains(&MergeSide::Theirs));
    Ok(SequenceArgs {
        into: record.merge.into.clone(),
        // The target is compared with the plan anyway.
        is_clean: false,
        request: pinned.unwrap_or_else(|| work.request.clone()),
        git_dir: sides::git_dir_of(repository, record).to_owned(),
        merge: record.merge.options(),
        allow_unrelated: record.merge.allow_unrelated,
        message: record.merge.message.clone(),
        dry_run: false,
        review: ReviewPolicy::Never,
        allow_revert: false,
    })
}
