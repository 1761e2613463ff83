//! Plans reviews again after one of their sides moved.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{open_review, shown, sides};
use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation};
use crate::protocol::ReviewShown;
use crate::state::slots::Daemon;
use crate::{Merge, merging, sequencing};
use tine_change::merge::FastForward;
use tine_change::recovery;
use tine_change::review::{ReviewRecord, ReviewState};
use tine_git::Repository;
use tine_merge::MergeSide;
use tine_workspace::Actor;

/// Plan a review again, of both sides as they are now
///
/// Resolutions stay where the conflict is still the same. One that was aborted is taken up again.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Example:
  tine review refresh 3")]
pub struct RefreshReview {
    /// Its number
    #[arg(value_name = "REVIEW")]
    pub review: u64,
}

impl Operation for RefreshReview {
    const NAME: &'static str = "refresh-review";
    const PROGRESS: &'static str = "planning again";
    type Answer = ReviewShown;

    fn run(self, call: &Call<'_>) -> Result<ReviewShown, Failure> {
        let (daemon, by, review) = (call.daemon, call.by(), self.review);
        let repository = daemon.repository_now()?;
        let _guard = daemon.reviews.lock();
        let mut record = ReviewRecord::load(&daemon.store, review)?;
        match record.state {
            ReviewState::Aborted => recovery::write_review_again(&repository, review)?,
            _ => record = open_review(daemon, review)?,
        }
        let gone = sides::find(daemon, &repository, &mut record)?;
        sides::require_target(&repository, &record, &gone)?;
        sides::require_kept(&repository, &record, &gone)?;
        if sides::is_merged(daemon, &repository, &record, &gone)? {
            return Err(all_merged(&record));
        }
        if record.work.is_some() {
            sequencing::refresh(daemon, by, &mut record, &gone)?;
            record.state = ReviewState::Open;
            record.save(&daemon.store, &repository)?;
            return shown(daemon, by, record);
        }
        let request = request_of(&record, &gone);
        let (sides, conflicts) = merging::replan(
            daemon,
            by,
            sides::git_dir_of(&repository, &record),
            &request,
            &record,
        )?;
        let Some(conflicts) = conflicts else {
            return Err(all_merged(&record));
        };
        record.plan_again(&sides, &conflicts);
        record.state = ReviewState::Open;
        record.save(&daemon.store, &repository)?;
        shown(daemon, by, record)
    }
}

fn all_merged(record: &ReviewRecord) -> Failure {
    Failure::new(
        ErrorCode::ReviewState,
        format!(
            "{} has all of {} by now",
            record.merge.into, record.merge.source
        ),
    )
    .hint(nothing_to_plan(record))
}

/// Returns the hint for a review that has nothing left to merge.
pub(crate) fn nothing_to_plan(record: &ReviewRecord) -> String {
    let id = record.id;
    match record.state {
        ReviewState::Aborted => format!("it stays aborted, and `tine review show {id}` shows it"),
        _ => format!("`tine review abort {id}` lets it go"),
    }
}

/// Changes of a review's sides since it was planned.
#[derive(Default)]
pub(super) struct SideChanges {
    pub moved: Vec<MergeSide>,
    pub gone: Vec<MergeSide>,
}

/// Plans a review again if only its target moved.
///
/// The conflicts must be the same.
///
/// Resolutions stay. A review with a verdict or amendments is not planned again, because they were
/// made for the old result. Neither is one whose source moved, because a reviewer has looked at it.
/// Without its target the review stays as it was planned.
pub(super) fn follow_target(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    record: &mut ReviewRecord,
) -> Result<SideChanges, Failure> {
    let repository = daemon.repository_now()?;
    let gone = sides::find(daemon, &repository, record)?;
    let moved = if gone.contains(&MergeSide::Ours) {
        Vec::new()
    } else if sides::is_merged(daemon, &repository, record, &gone)? {
        vec![MergeSide::Ours]
    } else if record.work.is_some() {
        sequencing::follow_target(daemon, by, record, &gone)?
    } else {
        follow_merge(daemon, by, &repository, record, &request_of(record, &gone))?
    };
    Ok(SideChanges { moved, gone })
}

fn follow_merge(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    repository: &Repository,
    record: &mut ReviewRecord,
    request: &Merge,
) -> Result<Vec<MergeSide>, Failure> {
    let git_dir = sides::git_dir_of(repository, record).to_owned();
    let moved = record.moved(&merging::sides(daemon, by, &git_dir, request)?);
    if moved != [MergeSide::Ours] || record.verdict.is_some() || !record.amendments.is_empty() {
        return Ok(moved);
    }
    let (sides, conflicts) = merging::replan(daemon, by, &git_dir, request, record)?;
    match conflicts {
        Some(conflicts) if record.has_conflicts(&conflicts) && record.moved(&sides) == moved => {
            record.plan_again(&sides, &conflicts);
            Ok(Vec::new())
        }
        _ => Ok(moved),
    }
}

/// Finds later conflicts of a review without open ones.
pub(super) fn find_later_conflicts(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    repository: &Repository,
    record: &mut ReviewRecord,
) -> Result<(), Failure> {
    if record.work.is_some() {
        return sequencing::find_later_conflicts(daemon, repository, record);
    }
    if record.view.is_none() || record.open_conflicts() > 0 {
        return Ok(());
    }
    let gone = sides::find(daemon, repository, record)?;
    if gone.contains(&MergeSide::Ours) {
        return Ok(());
    }
    let request = request_of(record, &gone);
    let (sides, conflicts) = merging::replan(
        daemon,
        by,
        sides::git_dir_of(repository, record),
        &request,
        record,
    )?;
    if let Some(conflicts) = conflicts.filter(|_| record.moved(&sides).is_empty()) {
        record.plan_again(&sides, &conflicts);
    }
    Ok(())
}

/// Returns the merge request that the review was made for.
///
/// If the source is gone, the request names the commit that the review keeps.
pub(super) fn request_of(record: &ReviewRecord, gone: &[MergeSide]) -> Merge {
    let merge = &record.merge;
    let is_kept = gone.contains(&MergeSide::Theirs);
    let source = if is_kept {
        sides::kept_source(record)
    } else {
        merge.source.clone()
    };
    Merge {
        into: Some(merge.into.clone()),
        here: merge.here.clone().filter(|_| !is_kept),
        base: merge.base.clone(),
        level: merge.level,
        strategy: merge.strategy,
        no_ff: merge.fast_forward == FastForward::Never,
        ff_only: merge.fast_forward == FastForward::Only,
        allow_unrelated: merge.allow_unrelated,
        delete: merge.delete && !is_kept,
        with_uncommitted: merge.with_uncommitted,
        ..Merge::of(source)
    }
}
