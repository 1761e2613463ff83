//! Sequences with conflicts, kept as reviews.
//!
//! A commit that is made on top of resolved conflicts may have conflicts of its own. So a review of
//! a sequence is run again whenever nothing is open in it, and gets what comes up then.

use std::sync::Arc;

use super::{Asked, TargetState, build, carry_out, mailboxes, on_target, options, standing};
use crate::CommitReview;
use crate::failure::{ErrorCode, Failure};
use crate::merging::outdated;
use crate::policy::Signers;
use crate::protocol::{ReviewPolicy, Sequenced};
use crate::reviews::{nothing_to_plan, sides};
use crate::state::slots::Daemon;
use crate::target::{Target, word_for};
use tine_attr::Timestamp;
use tine_change::merge::FastForward;
use tine_change::rerere;
use tine_change::review::{ReviewRecord, ReviewState, ReviewedMerge, ReviewedWork};
use tine_change::sequence::{Ran, Sequence, SequenceRequest, run};
use tine_git::{Identity, Repository};
use tine_merge::MergeSide;
use tine_workspace::Actor;
use tine_workspace::store::RecordKind;

/// Keeps a sequence that stopped, or that is to be looked at, as a review; its number.
pub(super) fn keep(
    target: &Target<'_>,
    asked: &Asked,
    now: &TargetState,
    sequence: &Sequence,
    ran: &Ran,
) -> Result<u64, Failure> {
    let merge = ReviewedMerge {
        source: what(&asked.wish),
        into: word_for(
            target.daemon,
            Some(&asked.into),
            target.holder,
            &target.line()?,
        ),
        here: None,
        git_dir: asked.git_dir.clone(),
        base: None,
        level: asked.merge.level,
        strategy: asked.merge.strategy,
        fast_forward: FastForward::default(),
        allow_unrelated: asked.allow_unrelated,
        delete: false,
        with_uncommitted: false,
        message: asked.message.clone(),
    };
    let mut record = ReviewRecord {
        id: 0,
        created_secs: Timestamp::now().secs,
        state: ReviewState::Open,
        merge,
        work: Some(Box::new(ReviewedWork {
            wish: asked.wish.clone(),
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

/// Whether `known` is an open review of what `new` is to do.
fn is_open_for(known: &ReviewRecord, new: &ReviewRecord) -> bool {
    let merge = ReviewedMerge {
        message: known.merge.message.clone(),
        ..new.merge.clone()
    };
    let is_same_wish = match (&known.work, &new.work) {
        (Some(known), Some(new)) => known.wish == new.wish,
        _ => false,
    };
    known.state == ReviewState::Open && known.merge == merge && is_same_wish
}

/// Gives the open review of what is asked for once more, planned of how things are now; its number.
fn plan_again(target: &Target<'_>, known: ReviewRecord, new: ReviewRecord) -> Result<u64, Failure> {
    let is_as_planned = known.ours_commit == new.ours_commit && known.work == new.work;
    if is_as_planned {
        return Ok(known.id);
    }
    let store = &target.daemon.store;
    let mut record = ReviewRecord {
        id: known.id,
        created_secs: known.created_secs,
        // With the resolutions that are known.
        conflicts: known.conflicts,
        ..new
    };
    record.take_conflicts(&record.run_again(store, target.repository)?);
    recall(target.daemon, target.repository, &mut record)?;
    record.save(store, target.repository)?;
    Ok(record.id)
}

/// In a few words.
fn what(wish: &SequenceRequest) -> String {
    match wish {
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

/// Has git resolve what it remembers, and finds the conflicts that come up then.
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

/// Where nothing is open in a review: finds what comes up after it.
pub(crate) fn find_more(
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

/// The sides that are no longer what was planned.
pub(super) fn moved_from(review: &ReviewRecord, now: &TargetState) -> Vec<MergeSide> {
    let ours_commit = now.tip.commit_id.map(|id| id.to_string());
    let view = now.view.map(|id| id.to_string());
    let planned = review.work.as_ref().and_then(|work| work.view.clone());
    match review.ours_commit == ours_commit && planned == view {
        true => Vec::new(),
        false => vec![MergeSide::Ours],
    }
}

/// The sides that are no longer what was planned. Where the same is to be done with the same
/// conflicts, the review is planned again, of how things are now, and has no such side.
pub(crate) fn follow(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    record: &mut ReviewRecord,
    gone: &[MergeSide],
) -> Result<Vec<MergeSide>, Failure> {
    let asked = asked_of(&daemon.repository, record, gone)?;
    let moved = on_target(daemon, by, &asked, |target| {
        Ok(moved_from(record, &standing(target, &asked)?))
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
    match is_same_work && record.has_conflicts(&again.conflicts) {
        true => {
            *record = again;
            Ok(Vec::new())
        }
        false => Ok(moved),
    }
}

/// Plans the sequence again, of how things are now. Resolutions stay where the conflict is the
/// same.
pub(crate) fn refresh(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    record: &mut ReviewRecord,
    gone: &[MergeSide],
) -> Result<(), Failure> {
    let asked = asked_of(&daemon.repository, record, gone)?;
    // What it commits, nobody sees.
    let signers = Signers {
        author: Some(Identity::tine()),
        committer: Some(Identity::tine()),
    };
    let (now, sequence, ran) = on_target(daemon, by, &asked, |target| {
        let now = standing(target, &asked)?;
        let sequence = build(target, &asked, &now)?;
        let options = options(&asked, &signers, Some(record));
        let ran = run(
            &daemon.store,
            target.repository,
            &sequence,
            now.tip,
            now.view,
            &options,
        )?;
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
        // As it was asked for: what is gone may come back.
        wish: record
            .work
            .as_ref()
            .map_or(asked.wish, |work| work.wish.clone()),
        sequence,
        view: now.view.map(|id| id.to_string()),
    }));
    record.take_conflicts(&ran);
    Ok(())
}

/// Does what was reviewed, with the resolutions.
pub(crate) fn commit_review(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    record: &ReviewRecord,
    request: &CommitReview,
    signers: &Signers,
) -> Result<Sequenced, Failure> {
    // What was looked at is done, wherever the names lead by now.
    let mut asked = asked_of(&daemon.repository, record, &[MergeSide::Theirs])?;
    asked.dry_run = request.dry_run;
    asked.allow_revert = request.allow_revert;
    if request.message.is_some() {
        asked.message.clone_from(&request.message);
    }
    let done = carry_out(daemon, by, &asked, signers, Some(record))?;
    mailboxes::note_applied(daemon, &asked, &done);
    Ok(done)
}

/// What the review came from. Where its source is gone, it is of the commits that the review keeps.
fn asked_of(
    repository: &Repository,
    record: &ReviewRecord,
    gone: &[MergeSide],
) -> Result<Asked, Failure> {
    let Some(work) = &record.work else {
        return Err(outdated(record));
    };
    let pinned = sides::pinned_request(record).filter(|_| gone.contains(&MergeSide::Theirs));
    Ok(Asked {
        into: record.merge.into.clone(),
        // Nobody changed it since it was planned.
        is_clean: false,
        wish: pinned.unwrap_or_else(|| work.wish.clone()),
        git_dir: sides::git_dir_of(repository, record).to_owned(),
        merge: record.merge.options(),
        allow_unrelated: record.merge.allow_unrelated,
        message: record.merge.message.clone(),
        dry_run: false,
        review: ReviewPolicy::Never,
        allow_revert: false,
    })
}
