//! What is asked and answered about merges.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{AgentTexts, ChangeLine, PointInfo};
use crate::failure::Failure;
use tine_change::merge::FastForward;
use tine_change::review::ConflictRecord;
use tine_merge::{Level, Strategy};
use tine_path::text::{host_path, optional_host_path};
use tine_workspace::ForkName;

/// `tine merge`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MergeRequest {
    /// Points, one merged after another.
    pub sources: Vec<String>,
    /// A fork or branch; default: `here`, else the branch that the first source came from.
    pub into: Option<String>,
    /// The fork that the caller stands in.
    pub here: Option<ForkName>,
    /// The private git directory of the worktree that the caller stands in: revisions are understood there.
    #[serde(with = "host_path")]
    pub git_dir: PathBuf,
    pub base: Option<String>,
    pub level: Level,
    pub strategy: Strategy,
    pub fast_forward: FastForward,
    pub allow_unrelated: bool,
    /// A conflict keeps all sources from being merged, those before it, too.
    pub all_or_nothing: bool,
    /// Source forks and branches go when they are merged.
    pub delete: bool,
    /// Also where it takes commits of the target's back.
    #[serde(default)]
    pub allow_revert: bool,
    pub dry_run: bool,
    pub review: ReviewWish,
    /// Conflicts are for the caller to put into the mounted target with markers: what is uncommitted in the source is committed
    /// for that.
    #[serde(default)]
    pub markers: bool,
    /// What is uncommitted in a source fork may go into a branch: it is committed in the fork and merged.
    #[serde(default)]
    pub with_uncommitted: bool,
    /// What the merge commits say, one for each source, as hooks left it.
    #[serde(default)]
    pub messages: Vec<Option<String>>,
    pub message: Option<String>,
}

impl MergeRequest {
    /// A merge of `source` where nothing else is said. Revisions are understood in the worktree with `git_dir`.
    pub fn of(source: String, git_dir: PathBuf) -> MergeRequest {
        MergeRequest {
            sources: vec![source],
            into: None,
            here: None,
            git_dir,
            base: None,
            level: Level::default(),
            strategy: Strategy::default(),
            fast_forward: FastForward::default(),
            allow_unrelated: false,
            all_or_nothing: false,
            delete: false,
            allow_revert: false,
            dry_run: false,
            review: ReviewWish::Never,
            markers: false,
            with_uncommitted: false,
            messages: Vec::new(),
            message: None,
        }
    }
}

/// When a merge becomes a review, and is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReviewWish {
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
pub struct Merge {
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
