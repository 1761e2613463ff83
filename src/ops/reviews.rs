//! Reviews: lists, shows and aborts them.

mod committing;
mod replanning;
mod resolving;
pub(crate) mod sides;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::committing::CommitReview;
pub use self::replanning::RefreshReview;
pub(crate) use self::replanning::nothing_to_plan;
use self::replanning::{SideChanges, follow_target};
pub use self::resolving::{JudgeReview, Resolve};
use super::target::{NotedMove, was_taken_back};
use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation};
use crate::protocol::{ReviewInfo, ReviewShown, Reviews};
use crate::report;
use crate::state::slots::Daemon;
use tine_change::ChangeError;
use tine_change::compare::compare_trees;
use tine_change::recovery::{self, RecoverEntry, RecoverKind};
use tine_change::review::{ConflictRecord, ReviewRecord, ReviewState};
use tine_git::Repository;
use tine_merge::MergeSide;
use tine_store::RecordKind;
use tine_workspace::Actor;

/// List reviews
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Example:
  tine review list --all")]
pub struct ListReviews {
    /// Those too that are committed or aborted
    #[arg(short, long)]
    #[serde(default)]
    pub all: bool,
}

impl Operation for ListReviews {
    const NAME: &'static str = "reviews";
    type Answer = Reviews;

    fn run(self, call: &Call<'_>) -> Result<Reviews, Failure> {
        let daemon = call.daemon;
        let repository = daemon.repository_now()?;
        let (records, damaged) = daemon
            .store
            .documents::<ReviewRecord>(RecordKind::Reviews)?;
        let reviews = records
            .into_iter()
            .map(|record| reopened(daemon, &repository, record))
            .filter(|record| self.all || record.state == ReviewState::Open)
            .map(|record| info(daemon, call.by(), record))
            .collect();
        Ok(Reviews {
            reviews,
            damaged: damaged.into_iter().map(Failure::from).collect(),
        })
    }
}

/// Show a review: its conflicts, and how they are resolved
///
/// With --json it has the contents of all three sides.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Example:
  tine review show 3 --json")]
pub struct ShowReview {
    /// Its number
    #[arg(value_name = "REVIEW")]
    pub review: u64,
}

impl Operation for ShowReview {
    const NAME: &'static str = "review";
    type Answer = ReviewShown;

    fn run(self, call: &Call<'_>) -> Result<ReviewShown, Failure> {
        let daemon = call.daemon;
        let record = ReviewRecord::load(&daemon.store, self.review)?;
        let record = reopened(daemon, &daemon.repository_now()?, record);
        shown(daemon, call.by(), record)
    }
}

/// Let a review go
///
/// Neither side was changed by it. `tine review show` still shows it, `tine review refresh` takes
/// it up again.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize, JsonSchema)]
#[command(after_long_help = "\
Example:
  tine review abort 3")]
pub struct AbortReview {
    /// Its number
    #[arg(value_name = "REVIEW")]
    pub review: u64,
}

impl Operation for AbortReview {
    const NAME: &'static str = "abort-review";
    type Answer = ReviewShown;

    fn run(self, call: &Call<'_>) -> Result<ReviewShown, Failure> {
        let (daemon, review) = (call.daemon, self.review);
        let repository = daemon.repository_now()?;
        let _guard = daemon.reviews.lock();
        let mut record = open_review(daemon, review)?;
        let before = record.clone();
        let gone = sides::find(daemon, &repository, &mut record).unwrap_or_default();
        // A review without resolutions can be planned again from both sides.
        let is_resolved = |conflict: &ConflictRecord| conflict.resolution.is_some();
        if (record.conflicts.iter().any(is_resolved) || !gone.is_empty())
            && let Some(commit_id) = record.kept_commit(&repository)?
        {
            let entry = RecoverEntry {
                head: Some(commit_id.to_string()),
                number: Some(review),
                ..RecoverEntry::new(RecoverKind::Review, format!("tine review abort {review}"))
            };
            recovery::keep(&daemon.store, &repository, entry, &[])?;
        }
        record.state = ReviewState::Aborted;
        record.save(&daemon.store, &repository)?;
        shown_as(daemon, info(daemon, call.by(), record), &before)
    }
}

/// Opens a committed review again if its commit was undone.
///
/// It was undone if the target no longer has the commit.
fn reopened(daemon: &Daemon, repository: &Repository, mut record: ReviewRecord) -> ReviewRecord {
    if record.state == ReviewState::Committed
        && let Some(commit) = &record.commit
    {
        let noted = NotedMove {
            target: &record.merge.into,
            branch: record.committed_on.as_deref(),
            before: record.ours_commit.as_deref(),
            after: commit,
        };
        if was_taken_back(daemon, repository, &noted) {
            record.state = ReviewState::Open;
            record.commit = None;
            record.committed_on = None;
        }
    }
    record
}

fn open_review(daemon: &Daemon, review: u64) -> Result<ReviewRecord, Failure> {
    let record = ReviewRecord::load(&daemon.store, review)?;
    let record = reopened(daemon, &daemon.repository_now()?, record);
    let how = match record.state {
        ReviewState::Open => return Ok(record),
        ReviewState::Committed => "committed",
        ReviewState::Aborted => "aborted",
    };
    Err(Failure::new(
        ErrorCode::ReviewState,
        format!("review {review} is {how} already"),
    )
    .hint("`tine review list` shows the open ones"))
}

fn info(daemon: &Arc<Daemon>, by: Actor<'_>, mut record: ReviewRecord) -> ReviewInfo {
    let mut changed = SideChanges::default();
    if record.state == ReviewState::Open {
        match follow_target(daemon, by, &mut record) {
            Ok(found) => changed = found,
            // Only the commit of a review fails on a side that cannot be read.
            Err(failure) => {
                log::info!("review {}: {failure}", record.id);
                changed.moved.extend([MergeSide::Ours, MergeSide::Theirs]);
            }
        }
    }
    ReviewInfo {
        open: record.open_conflicts(),
        record,
        moved: changed.moved,
        gone: changed.gone,
    }
}

fn shown(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    record: ReviewRecord,
) -> Result<ReviewShown, Failure> {
    let info = info(daemon, by, record);
    let of = info.record.clone();
    shown_as(daemon, info, &of)
}

/// Describes a review with the trees of the record `of`.
fn shown_as(
    daemon: &Arc<Daemon>,
    info: ReviewInfo,
    of: &ReviewRecord,
) -> Result<ReviewShown, Failure> {
    let repository = daemon.repository_now()?;
    let (old_tree, new_tree) = match (of.state, of.trees(&daemon.store, &repository)) {
        (_, Ok(trees)) => trees,
        (ReviewState::Open, Err(error)) => return Err(error.into()),
        // `git gc` has removed objects of a closed review.
        (_, Err(ChangeError::Git(_))) => (repository.empty_tree_id(), repository.empty_tree_id()),
        (_, Err(error)) => return Err(error.into()),
    };
    let changes = compare_trees(&repository, old_tree, new_tree)?;
    Ok(ReviewShown {
        info,
        old_tree: old_tree.to_string(),
        new_tree: new_tree.to_string(),
        changes: changes.iter().map(report::change_line).collect(),
    })
}
