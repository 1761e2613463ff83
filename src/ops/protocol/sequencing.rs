//! What is asked and answered about bringing forks up to date, making commits again and applying
//! patches.

use serde::{Deserialize, Serialize};

use super::{ChangeLine, MergeStatus, MergeTarget};
use tine_change::review::ConflictRecord;
use tine_change::sequence::DoneHow;
use tine_workspace::ForkName;

/// What came of it, or would.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sequenced {
    pub status: MergeStatus,
    pub dry_run: bool,
    pub target: MergeTarget,
    /// The target's commit before and after; the same where no commit was put on it.
    pub before: Option<String>,
    pub after: Option<String>,
    /// In order, up to the one that has conflicts.
    pub commits: Vec<SequencedCommit>,
    pub conflicts: Vec<ConflictRecord>,
    /// The review that keeps them.
    pub review: Option<u64>,
    /// From the target's tree before to that after; where uncommitted changes come into it, from
    /// view to view.
    pub changes: Vec<ChangeLine>,
    /// The snapshot of what the target was, where that is a fork and HEAD moved.
    pub snapshot: Option<ForkName>,
}

/// A commit that was merged, made again, or applied from a mail.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SequencedCommit {
    /// Where it is from; `None` of a mail.
    pub source: Option<String>,
    pub subject: String,
    /// `None` of one with conflicts.
    pub how: Option<DoneHow>,
    /// The commit that the target came to with it.
    pub commit: Option<String>,
}
