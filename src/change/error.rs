//! What can go wrong with a changeset.

use std::path::Path;

use thiserror::Error;

use super::branches::Holder;
use tine_git::{GitError, GoneBranch, MovedUnder, ObjectId};
use tine_path::RepoPath;
use tine_workspace::{ForkName, FsError, OperationError, StoreError};

/// Why a changeset could not be computed or committed.
#[derive(Debug, Error)]
pub enum ChangeError {
    #[error("there is nothing to commit")]
    NothingToCommit,
    #[error("the commit message is empty")]
    EmptyMessage,
    /// By another worktree, or by a command that knew nothing of the fork.
    /// `free` is the name of no branch.
    #[error("the branch {:?} moved under the fork, from {} to {}", .moved.branch, .moved.left_at, .moved.now)]
    MovedUnder {
        fork: ForkName,
        moved: Box<MovedUnder>,
        free: String,
        /// Neither commit has the other in its history.
        is_rewritten: bool,
    },
    /// Some fork went back past commits of others. Sorted by path.
    #[error("{what} would take back what others have committed to {}", shown(.paths))]
    TakesBack {
        what: &'static str,
        paths: Vec<RepoPath>,
        /// The fork in which they can be had as others have them, and where that is.
        way_out: Option<Box<(ForkName, String)>>,
    },
    /// Some fork went back past commits of others, and which ones cannot be read.
    #[error(
        "{what} may take back what others have committed, since a record of that cannot be read: {error}"
    )]
    MayTakeBack { what: &'static str, error: String },
    /// By another worktree, or by a command that knew nothing of the fork.
    #[error("the branch {:?} that the fork is on is gone; the fork left it at {}", .0.branch, .0.left_at)]
    BranchGone(Box<GoneBranch>),
    #[error("the branch {branch:?} is checked out twice: {}", .holders.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    BranchHeldTwice {
        branch: String,
        holders: Vec<Holder>,
    },
    #[error("a {0} is under way in the fork")]
    OperationInProgress(&'static str),
    #[error("{0} changed while it was being read")]
    Unstable(RepoPath),
    /// The tree that was written is not what the changeset says. HEAD has not moved.
    #[error("{0} did not land in the new tree as it is in the fork")]
    NotLanded(RepoPath),
    /// Uncommitted changes, sorted by path.
    #[error("{} would be overwritten", shown(.0))]
    LocalChanges(Vec<RepoPath>),
    /// What is staged, and neither in the files nor in HEAD; sorted by path.
    #[error("what is staged of {} would be lost: it is not what the file has", shown(.0))]
    StagedInTheWay(Vec<RepoPath>),
    #[error("a tree has no history in which a merge base could be found")]
    NoMergeBase,
    #[error("{} {what} {}", "the commit", if *was_empty { "changes nothing" } else { "would change nothing any more" })]
    EmptyPick { what: String, was_empty: bool },
    #[error("both sides have commits that the other has not")]
    NotFastForward,
    #[error("{word} is no snapshot of {fork}, no fork and no revision")]
    NoSuchPoint { fork: ForkName, word: String },
    #[error("there is no review {0}")]
    NoSuchReview(u64),
    #[error("{commit_id} is no state of a fork")]
    NotAState { commit_id: ObjectId },
    #[error("the state {commit_id} was made by a newer tine")]
    NewerState { commit_id: ObjectId },
    #[error("there is no handoff {0}")]
    NoSuchHandoff(u64),
    #[error("the handoff {id} is damaged: {reason}")]
    DamagedHandoff { id: u64, reason: String },
    #[error("there is no session {0} of rounds")]
    NoSuchSession(ForkName),
    /// Sorted by path.
    #[error("{} changed in the directory, too", shown(.0))]
    DirectoryChanged(Vec<RepoPath>),
    #[error("the session {session} has no agent {agent}")]
    NoSuchAgent { session: ForkName, agent: ForkName },
    #[error("{0} is no fork, no snapshot and no revision")]
    NothingCalled(String),
    #[error("there is no branch {0:?}")]
    NoSuchBranch(String),
    #[error("the branch {branch:?} is checked out {holder}")]
    BranchHeld { branch: String, holder: Holder },
    /// Deleting it would leave commits that nothing else reaches.
    #[error(
        "the branch {branch:?} has commits that no other branch or tag has; the last is {commit_id}"
    )]
    BranchNotMerged { branch: String, commit_id: ObjectId },
    #[error("`tine recover` has no entry {0}")]
    NothingToRecover(u64),
    /// `tree_id` is what can still be read of it.
    #[error(
        "the entry {id} needs the object {object_id}, which is not in this repository any more"
    )]
    HistoryGone {
        id: u64,
        object_id: ObjectId,
        tree_id: Option<ObjectId>,
    },
    #[error("{0} names no commit")]
    NoCommit(String),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Fs(#[from] FsError),
    #[error(transparent)]
    Operation(#[from] OperationError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ChangeError {
    /// Wraps an I/O error: `ChangeError::io("write", path)` for `map_err`.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ChangeError {
        let failed = StoreError::io(action, path);
        move |error| failed(error).into()
    }
}

/// How many paths are named.
const NAMED_PATHS: usize = 3;

fn shown(paths: &[RepoPath]) -> String {
    let named: Vec<String> = paths
        .iter()
        .take(NAMED_PATHS)
        .map(RepoPath::to_string)
        .collect();
    match paths.len().saturating_sub(NAMED_PATHS) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}
