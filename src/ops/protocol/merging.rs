//! Requests and answers about merges.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{AgentTexts, ChangeLine, PointInfo};
use crate::failure::Failure;
use tine_change::review::ConflictRecord;
use tine_path::text::optional_host_path;
use tine_store::ForkName;

/// Condition under which a merge becomes a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReviewPolicy {
    /// Never: conflicts leave the target unchanged.
    #[default]
    Never,
    /// If there are conflicts.
    OnConflict,
    /// Also if a merge commit would be made; for a single source.
    Always,
}

/// Result of a merge as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MergeStatus {
    /// The target has new commits.
    Merged,
    /// The target already has all of it.
    NothingToMerge,
    /// There are conflicts.
    ///
    /// The target is unchanged, or has the sources before the conflicts.
    Conflicts,
    /// There are no conflicts; a review keeps the merge for approval.
    Reviewed,
}

/// Outcome of a merge, or its prediction in a dry run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Merged {
    /// Result of the merge as a whole.
    pub status: MergeStatus,
    /// True if nothing was changed because only the outcome was asked for.
    pub dry_run: bool,
    /// Branch, fork or checkout that was merged into.
    pub target: MergeTarget,
    /// Commit of the target before, in hex; `None` if unborn.
    pub before: Option<String>,
    /// Commit of the target afterwards; `before` if nothing was merged.
    pub after: Option<String>,
    /// Sources in the requested order, up to the one with conflicts.
    pub sources: Vec<MergedSource>,
    /// Conflicts of the last source.
    pub conflicts: Vec<ConflictRecord>,
    /// Number of the review that keeps the conflicts.
    pub review: Option<u64>,
    /// Changes from the target's old tree to its new one.
    pub changes: Vec<ChangeLine>,
    /// Snapshot of the target's former state, if it is a fork.
    pub snapshot: Option<ForkName>,
}

/// Target of a merge or sequence.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MergeTarget {
    /// Short name of the branch; `None` if a fork's HEAD is detached.
    pub branch: Option<String>,
    /// Fork that has the branch checked out, or whose HEAD is detached.
    pub fork: Option<ForkName>,
    /// Directory of another worktree that has the branch checked out.
    #[serde(with = "optional_host_path", default)]
    pub checkout: Option<PathBuf>,
}

/// One source of a merge.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MergedSource {
    /// Point that was merged.
    pub source: PointInfo,
    /// Result for this source.
    pub how: SourceOutcome,
    /// Commit of the target after this source, in hex.
    pub commit: Option<String>,
    /// Commit of the source's uncommitted changes, if there were any.
    pub committed: Option<String>,
    /// True in a dry run if the merge would commit uncommitted changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncommitted: bool,
    /// Conflicts that the strategy settled.
    pub settled: Vec<ConflictRecord>,
    /// Fork that was deleted after the merge.
    pub deleted_fork: Option<ForkName>,
    /// Branch that was deleted after the merge.
    pub deleted_branch: Option<String>,
    /// Reason that fork or branch was not deleted as requested.
    pub not_deleted: Option<Failure>,
    /// Texts of agents that were written from open buffers first.
    #[serde(default, skip_serializing_if = "AgentTexts::is_empty")]
    pub agent_texts: AgentTexts,
}

/// Result of merging one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceOutcome {
    /// The target already had all of it.
    Contained,
    /// The target was moved forward without a merge commit.
    FastForward,
    /// A merge commit was made.
    MergeCommit,
    /// There are conflicts.
    Conflicts,
}
