//! Answers about sequences: updates, picked commits and applied patches.

use serde::{Deserialize, Serialize};

use super::{ChangeLine, MergeStatus, MergeTarget};
use tine_change::review::ConflictRecord;
use tine_change::sequence::ItemResult;
use tine_store::ForkName;

/// Outcome of a sequence, or its prediction in a dry run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sequenced {
    /// Result of the sequence as a whole.
    pub status: MergeStatus,
    /// True if nothing was changed because only the outcome was asked for.
    pub dry_run: bool,
    /// Branch, fork or checkout that the commits are put on.
    pub target: MergeTarget,
    /// Commit of the target before, in hex.
    pub before: Option<String>,
    /// Commit of the target afterwards; `before` if none was added.
    pub after: Option<String>,
    /// Commits in order, up to the one that has conflicts.
    pub commits: Vec<SequencedCommit>,
    /// Conflicts of the last commit.
    pub conflicts: Vec<ConflictRecord>,
    /// Number of the review that keeps the conflicts.
    pub review: Option<u64>,
    /// Changes of the target's tree.
    ///
    /// They lead from view to view if uncommitted changes are part of the sequence.
    pub changes: Vec<ChangeLine>,
    /// Snapshot of the target's former state.
    ///
    /// `None` if the target is not a fork or its HEAD did not move.
    pub snapshot: Option<ForkName>,
}

/// Commit that was merged, picked, or applied from a mail.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SequencedCommit {
    /// Source commit in hex; `None` for a mail.
    pub source: Option<String>,
    /// First line of the commit message.
    pub subject: String,
    /// Result of applying it; `None` if it has conflicts.
    pub how: Option<ItemResult>,
    /// Commit of the target after it was applied, in hex.
    pub commit: Option<String>,
}
