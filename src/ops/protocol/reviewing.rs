//! Requests and answers about reviews.

use serde::{Deserialize, Serialize};

use super::{ChangeLine, Merged, Sequenced};
use crate::failure::Failure;
use crate::transfer::Transfer;
use tine_change::review::ReviewRecord;
use tine_merge::MergeSide;

/// Resolution of a conflict that a request asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResolutionRequest {
    /// That side's content at conflicts; everything else is merged.
    ///
    /// A file that is not text is taken whole.
    Side(MergeSide),
    /// That side's version, without changes of the other side.
    Whole(MergeSide),
    /// Lines of both sides at conflicts, ours first.
    Union,
    /// Content that the caller sends.
    Content {
        /// Bytes of the file, or the target of the symlink.
        content: Transfer,
        /// True for an executable file; `None` keeps the merged mode.
        ///
        /// With `None` a symlink stays a symlink.
        executable: Option<bool>,
    },
    /// No file at the path.
    Delete,
    /// No resolution: the conflict is open again.
    Open,
}

/// Review and its state now.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReviewInfo {
    /// Record of the review.
    #[serde(flatten)]
    pub record: ReviewRecord,
    /// Number of open conflicts.
    pub open: usize,
    /// Sides that changed since the merge was planned.
    pub moved: Vec<MergeSide>,
    /// Sides that no longer exist.
    ///
    /// Without `theirs` the review continues with the objects that it keeps. Without `ours` it
    /// waits until the target exists again.
    #[serde(default)]
    pub gone: Vec<MergeSide>,
}

/// Review with the changes that it would make.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReviewShown {
    /// The review.
    #[serde(flatten)]
    pub info: ReviewInfo,
    /// Tree of the target, in hex.
    pub old_tree: String,
    /// Merged tree, in hex, without the open conflicts.
    pub new_tree: String,
    /// Changes from `old_tree` to `new_tree`.
    pub changes: Vec<ChangeLine>,
}

/// List of reviews.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reviews {
    /// Reviews, in order of their numbers.
    pub reviews: Vec<ReviewInfo>,
    /// Failures of reviews that cannot be read.
    pub damaged: Vec<Failure>,
}

/// Outcome of committing a review.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum ReviewOutcome {
    /// Outcome of a merge.
    Merge(Box<Merged>),
    /// Outcome of a sequence.
    Sequenced(Box<Sequenced>),
}
