//! Keeps merges as reviews, and plans kept ones again.

use std::path::Path;
use std::sync::Arc;

use super::sides::Source;
use super::{Merge, Merging, PlannedSource, Position};
use crate::failure::{ErrorCode, Failure};
use crate::locks::Guards;
use crate::operation::joined_message;
use crate::policy::Signers;
use crate::protocol::MergeTarget;
use crate::state::slots::Daemon;
use crate::target::word_for;
use tine_attr::Timestamp;
use tine_change::rerere;
use tine_change::review::{ConflictRecord, ReviewRecord, ReviewState, ReviewedMerge, Sides};
use tine_store::{ForkName, RecordKind};
use tine_workspace::Actor;

impl Merging<'_> {
    /// Keeps the merge of `source` as a review, and returns its number.
    ///
    /// `position` is the place of the target. If the same merge has an open review, that one is
    /// planned again.
    pub(super) fn keep_review(
        &self,
        source: &PlannedSource,
        position: Position,
        conflicts: &[ConflictRecord],
        target: &MergeTarget,
    ) -> Result<u64, Failure> {
        let request = self.request;
        let here = request.here.as_ref().map(ForkName::as_str);
        let asked = request.into.as_deref().or(here);
        let merge = ReviewedMerge {
            source: source.line.source.point.clone(),
            into: word_for(self.daemon, asked, &self.holder, target),
            here: request.here.clone(),
            git_dir: self.git_dir.to_owned(),
            base: match &request.base {
                Some(word) => Some(self.base_of(word)?.to_string()),
                None => None,
            },
            level: request.level,
            strategy: request.strategy,
            fast_forward: request.fast_forward(),
            allow_unrelated: request.allow_unrelated,
            delete: request.delete,
            with_uncommitted: self.takes_uncommitted,
            message: joined_message(&request.message),
        };
        let sides = Sides {
            ours: position.tip,
            view: position.view,
            theirs: source.theirs,
        };
        let store = &self.daemon.store;
        let (records, _) = store.documents::<ReviewRecord>(RecordKind::Reviews)?;
        if let Some(mut known) = records
            .into_iter()
            .find(|known| known.is_open_merge(&merge))
        {
            if !known.moved(&sides).is_empty() || !known.has_conflicts(conflicts) {
                known.plan_again(&sides, conflicts);
            }
            known.merge.message = merge.message.or(known.merge.message);
            known.save(store, &self.repository)?;
            return Ok(known.id);
        }
        let mut record = ReviewRecord {
            id: 0,
            created_secs: Timestamp::now().secs,
            state: ReviewState::Open,
            merge,
            work: None,
            ours_commit: None,
            view: None,
            theirs_commit: None,
            theirs_tree: String::new(),
            conflicts: Vec::new(),
            verdict: None,
            amendments: Vec::new(),
            commit: None,
            committed_on: None,
        };
        record.plan_again(&sides, conflicts);
        if let Err(error) = rerere::recall(store, &self.repository, &mut record) {
            log::warn!("what git remembers is not used: {error}");
        }
        let what = format!("{} into {}", record.merge.source, record.merge.into);
        let id = record.add(store, &self.repository)?;
        log::info!("review {id}: {what}");
        Ok(id)
    }
}

/// Returns the failure for a review whose target already has everything.
pub(crate) fn contained(review: &ReviewRecord) -> Failure {
    Failure::new(
        ErrorCode::ReviewOutdated,
        format!(
            "{} has all of {} by now",
            review.merge.into, review.merge.source
        ),
    )
    .hint(format!(
        "`tine review abort {}` lets the review go",
        review.id
    ))
}

/// Returns the failure for a review whose sides have moved.
pub(crate) fn outdated(review: &ReviewRecord) -> Failure {
    Failure::new(
        ErrorCode::ReviewOutdated,
        format!(
            "{} or {} has moved on since review {} was planned",
            review.merge.into, review.merge.source, review.id
        ),
    )
    .hint(format!(
        "`tine review refresh {}` plans it again; resolutions of conflicts that are the same stay",
        review.id
    ))
}

/// Returns both sides of a review as they are now: the target, and the only source.
pub(crate) fn sides(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    git_dir: &Path,
    request: &Merge,
) -> Result<Sides, Failure> {
    with_merging(daemon, by, git_dir, request, |merging, guards, source| {
        let position = merging.position(guards)?;
        Ok(Sides {
            ours: position.tip,
            view: position.view,
            theirs: merging.source_view(guards, source)?.0,
        })
    })
}

/// Returns the present sides of a review, and their conflicts.
///
/// The conflicts are `None` if no merge commit would be made and nothing conflicts.
pub(crate) fn replan(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    git_dir: &Path,
    request: &Merge,
    review: &ReviewRecord,
) -> Result<(Sides, Option<Vec<ConflictRecord>>), Failure> {
    with_merging(daemon, by, git_dir, request, |merging, guards, source| {
        merging.find_conflicts(guards, source, review)
    })
}

/// Calls `read` with the merge and the guards of its forks.
fn with_merging<T>(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    git_dir: &Path,
    request: &Merge,
    read: impl FnOnce(&Merging<'_>, &Guards<'_>, &Source) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // No ref leads to the commits that this makes.
    let signers = Signers::tine();
    let mut merging = Merging::begin(daemon, by, git_dir, request, &signers, None)?;
    // This only reads, so uncommitted changes may be part of the sides.
    merging.takes_uncommitted = true;
    let Some(source) = merging.sources.first() else {
        return Err(Failure::new(ErrorCode::Usage, "no source is named")
            .hint("name what to merge: `tine merge FORK`"));
    };
    let guards = merging.guards()?;
    read(&merging, &guards, source)
}
