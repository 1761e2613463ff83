//! What is asked and answered about merges.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{AgentTexts, ChangeLine, PointInfo};
use crate::failure::Failure;
use tine_change::review::ConflictRecord;
use tine_path::text::optional_host_path;
use tine_workspace::ForkName;

/// When a merge becomes a review, and is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReviewPolicy {
    #[default]
    Never,
    OnConflict,
    /// Where a merge commit would be made, too. For a single source.
    Always,
}

/// How a merge ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MergeStatus {
    Merged,
    /// The target has all of it already.
    NothingToMerge,
    /// Nothing was changed, or what was merged before the conflicts is kept.
    Conflicts,
    /// There are none, and it is to be looked at as a whole before it is made.
    Reviewed,
}

/// What came of a merge, or would.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Merged {
    pub status: MergeStatus,
    pub dry_run: bool,
    pub target: MergeTarget,
    /// The target's commit before and after; the same where nothing was merged.
    pub before: Option<String>,
    pub after: Option<String>,
    /// In the order in which they were asked for, without those after a conflict.
    pub sources: Vec<MergedSource>,
    /// Of the last source.
    pub conflicts: Vec<ConflictRecord>,
    /// The review that keeps them.
    pub review: Option<u64>,
    /// From the target's tree before to that after.
    pub changes: Vec<ChangeLine>,
    /// The snapshot of what the target was, where that is a fork.
    pub snapshot: Option<ForkName>,
}

/// Where the target is checked out, if it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MergeTarget {
    /// Short name; `None` where a fork's HEAD is detached.
    pub branch: Option<String>,
    pub fork: Option<ForkName>,
    /// Another checkout of the repository.
    #[serde(with = "optional_host_path", default)]
    pub checkout: Option<PathBuf>,
}

/// One source.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MergedSource {
    pub source: PointInfo,
    pub how: MergedHow,
    /// The commit that the target came to with it.
    pub commit: Option<String>,
    /// The commit that was made of what was uncommitted in it.
    pub committed: Option<String>,
    /// Whether a dry run found something uncommitted in it that the merge would commit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncommitted: bool,
    /// Conflicts that the strategy settled.
    pub settled: Vec<ConflictRecord>,
    /// The fork that was removed.
    pub deleted_fork: Option<ForkName>,
    /// The branch that was removed.
    pub deleted_branch: Option<String>,
    /// Why it was not removed as asked.
    pub not_deleted: Option<Failure>,
    /// What was brought in from open buffers first.
    #[serde(default, skip_serializing_if = "AgentTexts::is_empty")]
    pub agent_texts: AgentTexts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MergedHow {
    /// It was all there.
    Contained,
    FastForward,
    MergeCommit,
    Conflicts,
}
