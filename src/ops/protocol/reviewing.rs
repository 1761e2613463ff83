//! What is asked and answered about reviews.

use serde::{Deserialize, Serialize};

use super::{ChangeLine, Merged, Sequenced};
use crate::failure::Failure;
use crate::transfer::Transfer;
use tine_change::review::ReviewRecord;
use tine_merge::MergeSide;

/// What is to become of a conflict.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResolutionRequest {
    /// What that side has where both sides conflict, and all else merged; what is no text is the
    /// whole version.
    Side(MergeSide),
    /// The version of that side, and nothing of the other's.
    Whole(MergeSide),
    /// The lines of both sides where they conflict, ours first.
    Union,
    /// This content, as a file in the merged mode if nothing is said of it; a symlink's is where it
    /// leads.
    Content {
        content: Transfer,
        executable: Option<bool>,
    },
    Delete,
    /// It is open again.
    Open,
}

/// A review, and how it stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReviewInfo {
    #[serde(flatten)]
    pub record: ReviewRecord,
    /// How many conflicts are open.
    pub open: usize,
    /// The sides that have moved on since it was planned.
    pub moved: Vec<MergeSide>,
    /// The sides that are gone: without `theirs` it goes on from what it keeps, without `ours` it
    /// waits for that to come back.
    #[serde(default)]
    pub gone: Vec<MergeSide>,
}

/// A review with what it would change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReviewShown {
    #[serde(flatten)]
    pub info: ReviewInfo,
    /// The target's tree, and the merged one, which open conflicts are left out of.
    pub old_tree: String,
    pub new_tree: String,
    pub changes: Vec<ChangeLine>,
}

/// Reviews.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reviews {
    pub reviews: Vec<ReviewInfo>,
    /// What is wrong with those that cannot be read.
    pub damaged: Vec<Failure>,
}

/// What came of committing a review.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum ReviewOutcome {
    Merge(Box<Merged>),
    Sequenced(Box<Sequenced>),
}
