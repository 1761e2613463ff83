//! Sequences with conflicts, kept as reviews.
//!
//! A commit that is made on top of resolved conflicts may have conflicts of its own. So a review of a sequence is run again whenever
//! nothing is open in it, and gets what comes up then.

use std::sync::Arc;

use super::{Asked, Standing, build, carry_out, mailboxes, on_target, options, standing};
use crate::attr::Timestamp;
use crate::change::merge::FastForward;
use crate::change::rerere;
use crate::change::review::{ReviewRecord, ReviewState, ReviewedMerge, ReviewedWork};
use crate::change::sequence::{Ran, Sequence, Wish, run};
use crate::daemon::failure::{ErrorCode, Failure};
use crate::daemon::handlers::merging::outdated;
use crate::daemon::handlers::target::Target;
use crate::daemon::policy::Signers;
use crate::daemon::protocol::{CommitReviewRequest, ReviewWish, Sequenced};
use crate::daemon::slots::Daemon;
use crate::git::{Identity, Repository};
use crate::merge::MergeSide;
use crate::workspace::By;

/// Keeps a sequence that stopped, or that is to be looked at, as a review; its number.
pub fn keep(
    target: &Target<'_>,
    asked: &Asked,
    now: &Standing,
    sequence: &Sequence,
    ran: &Ran,
) -> Result<u64, Failure> {
    let merge = ReviewedMerge {
        source: what(&asked.wish),
        into: target.holder.to_string(),
        here: None,
        git_dir: asked.git_dir.clone(),
        base: None,
        level: asked.merge.level,
        strategy: asked.merge.strategy,
        fast_forward: FastForward::default(),
        allow_unrelated: asked.allow_unrelated,
        delete: false,
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
        theirs_commit: None,
        theirs_tree: ran.tip.tree_id.to_string(),
        conflicts: Vec::new(),
        verdict: None,
        amendments: Vec::new(),
        commit: None,
    };
    record.take_conflicts(ran);
    recall(target.daemon, target.repository, &mut record)?;
    let what = format!("{} into {}", record.merge.source, record.merge.into);
    let id = record.add(&target.daemon.store, target.repository)?;
    log::info!("review {id}: {what}");
    Ok(id)
}

/// In a few words.
fn what(wish: &Wish) -> String {
    match wish {
        Wish::Update { from, rebase } => {
            let how = if *rebase { "rebase onto" } else { "update to" };
            match from {
                Some(from) => format!("{how} {from}"),
                None => format!("{how} the branch it came from"),
            }
        }
        Wish::CherryPick { commits, .. } => format!("cherry-pick of {}", commits.join(" ")),
        Wish::Patch { .. } => "a patch".to_owned(),
        Wish::Restore { point, .. } => format!("restore to {point}"),
        Wish::Mailbox { handoff, .. } => format!("handoff {handoff}"),
    }
}

/// Has git resolve what it remembers, and finds the conflicts that come up then.
fn recall(daemon: &Daemon, repository: &Repository, record: &mut ReviewRecord) -> Result<(), Failure> {
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
pub fn find_more(daemon: &Daemon, repository: &Repository, record: &mut ReviewRecord) -> Result<(), Failure> {
    if record.work.is_none() || record.open_conflicts() > 0 {
        return Ok(());
    }
    record.take_conflicts(&record.run_again(&daemon.store, repository)?);
    recall(daemon, repository, record)
}

/// The sides that are no longer what was planned.
pub(super) fn moved_from(review: &ReviewRecord, now: &Standing) -> Vec<MergeSide> {
    let ours_commit = now.tip.commit_id.map(|id| id.to_string());
    let view = now.view.map(|id| id.to_string());
    let planned = review.work.as_ref().and_then(|work| work.view.clone());
    match review.ours_commit == ours_commit && planned == view {
        true => Vec::new(),
        false => vec![MergeSide::Ours],
    }
}

pub fn moved(daemon: &Arc<Daemon>, by: By<'_>, record: &ReviewRecord) -> Result<Vec<MergeSide>, Failure> {
    let asked = asked_of(record)?;
    on_target(daemon, by, &asked, |target| {
        Ok(moved_from(record, &standing(target, &asked)?))
    })
}

/// Plans the sequence again, of how things are now. Resolutions stay where the conflict is the same.
pub fn refresh(daemon: &Arc<Daemon>, by: By<'_>, record: &mut ReviewRecord) -> Result<(), Failure> {
    let asked = asked_of(record)?;
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
        .hint(format!("`tine review abort {}` lets it go", record.id)));
    }
    record.verdict = None;
    record.ours_commit = now.tip.commit_id.map(|id| id.to_string());
    record.theirs_tree = ran.tip.tree_id.to_string();
    record.work = Some(Box::new(ReviewedWork {
        wish: asked.wish,
        sequence,
        view: now.view.map(|id| id.to_string()),
    }));
    record.take_conflicts(&ran);
    Ok(())
}

/// Does what was reviewed, with the resolutions.
pub fn commit_review(
    daemon: &Arc<Daemon>,
    by: By<'_>,
    record: &ReviewRecord,
    request: &CommitReviewRequest,
    signers: &Signers,
) -> Result<Sequenced, Failure> {
    let mut asked = asked_of(record)?;
    asked.dry_run = request.dry_run;
    if request.message.is_some() {
        asked.message.clone_from(&request.message);
    }
    let done = carry_out(daemon, by, &asked, signers, Some(record))?;
    mailboxes::note_applied(daemon, &asked, &done);
    Ok(done)
}

/// What the review came from.
fn asked_of(record: &ReviewRecord) -> Result<Asked, Failure> {
    let Some(work) = &record.work else {
        return Err(outdated(record));
    };
    Ok(Asked {
        into: record.merge.into.clone(),
        // Nobody changed it since it was planned.
        is_clean: false,
        wish: work.wish.clone(),
        git_dir: record.merge.git_dir.clone(),
        merge: record.merge.options(),
        allow_unrelated: record.merge.allow_unrelated,
        message: record.merge.message.clone(),
        dry_run: false,
        review: ReviewWish::Never,
    })
}
