//! Errors of this crate.

use std::path::Path;

use thiserror::Error;

use super::branches::Holder;
use tine_git::{GitError, GoneBranch, MovedUnder, ObjectId};
use tine_path::RepoPath;
use tine_workspace::{ForkName, FsError, OperationError, StoreError};

/// Error of computing, committing or merging changes.
#[derive(Debug, Error)]
pub enum ChangeError {
    /// The changeset is empty.
    #[error("there is nothing to commit")]
    NothingToCommit,
    /// The commit message is empty or only white space.
    #[error("the commit message is empty")]
    EmptyMessage,
    /// The fork's branch is not where the fork left it.
    ///
    /// Another worktree moved it, or a command that ignored the fork.
    #[error("the branch {:?} moved under the fork, from {} to {}", .moved.branch, .moved.left_at, .moved.now)]
    MovedUnder {
        /// Fork whose branch moved.
        fork: ForkName,
        /// Branch, with the commits that it was and is at.
        moved: Box<MovedUnder>,
        /// Short name of a branch that does not exist yet.
        free: String,
        /// True if neither commit is an ancestor of the other.
        is_rewritten: bool,
    },
    /// The change would take back others' commits.
    ///
    /// Some fork went back past those commits.
    #[error("{what} would take back what others have committed to {}", shown(.paths))]
    TakesBack {
        /// Kind of change: `the commit`, `the merge` or `the handoff`.
        what: &'static str,
        /// Paths that would be taken back, sorted.
        paths: Vec<RepoPath>,
        /// Fork, and point in it, with the paths as others have them.
        ///
        /// `None`: no such fork is known.
        way_out: Option<Box<(ForkName, String)>>,
    },
    /// The change may take back others' commits.
    ///
    /// Some fork went back past commits of others, and its record cannot be read.
    #[error(
        "{what} may take back what others have committed, since a record of that cannot be read: {error}"
    )]
    MayTakeBack {
        /// Kind of change: `the commit`, `the merge` or `the handoff`.
        what: &'static str,
        /// Error of reading the record.
        error: String,
    },
    /// The fork's branch is gone.
    ///
    /// Another worktree deleted it, or a command that ignored the fork.
    #[error("the branch {:?} that the fork is on is gone; the fork left it at {}", .0.branch, .0.left_at)]
    BranchGone(Box<GoneBranch>),
    /// Several checkouts have the branch.
    #[error("the branch {branch:?} is checked out twice: {}", .holders.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    BranchHeldTwice {
        /// Short name of the branch.
        branch: String,
        /// Checkouts that have it.
        holders: Vec<Holder>,
    },
    /// An operation of git is unfinished in the fork, such as `rebase`.
    #[error("a {0} is under way in the fork")]
    OperationInProgress(&'static str),
    /// A path changed while it was read.
    #[error("{0} changed while it was being read")]
    Unstable(RepoPath),
    /// The written tree differs from the changeset at this path.
    ///
    /// HEAD has not moved.
    #[error("{0} did not land in the new tree as it is in the fork")]
    NotLanded(RepoPath),
    /// Uncommitted changes are in the way, at these paths, sorted.
    #[error("{} would be overwritten", shown(.0))]
    LocalChanges(Vec<RepoPath>),
    /// Staged contents are in the way, at these paths, sorted.
    ///
    /// They are neither in the files nor in HEAD, so that they would be lost.
    #[error("what is staged of {} would be lost: it is not what the file has", shown(.0))]
    StagedInTheWay(Vec<RepoPath>),
    /// One side is a bare tree, which has no history.
    #[error("a tree has no history in which a merge base could be found")]
    NoMergeBase,
    /// A commit to be picked changes nothing.
    #[error("{} {what} {}", "the commit", if *was_empty { "changes nothing" } else { "would change nothing any more" })]
    EmptyPick {
        /// Commit in hex, or subject of a mail.
        what: String,
        /// True if it was empty from the start.
        was_empty: bool,
    },
    /// The target has commits that the source lacks.
    #[error("both sides have commits that the other has not")]
    NotFastForward,
    /// A word names nothing that exists, for this fork.
    #[error("{word} is not a snapshot of {fork}, a fork or a revision")]
    NoSuchPoint {
        /// Fork in question.
        fork: ForkName,
        /// Word as the user gave it.
        word: String,
    },
    /// No review has this number.
    #[error("there is no review {0}")]
    NoSuchReview(u64),
    /// The commit is not a state of a fork.
    #[error("{commit_id} is not a state of a fork")]
    NotAState {
        /// Commit that was read.
        commit_id: ObjectId,
    },
    /// The state has a format of a newer tine.
    #[error("the state {commit_id} was made by a newer tine")]
    NewerState {
        /// Commit of the state.
        commit_id: ObjectId,
    },
    /// No handoff has this number.
    #[error("there is no handoff {0}")]
    NoSuchHandoff(u64),
    /// A handoff's record or mailbox is damaged.
    #[error("the handoff {id} is damaged: {reason}")]
    DamagedHandoff {
        /// Number of the handoff.
        id: u64,
        /// Damage, in words.
        reason: String,
    },
    /// No session of rounds has this name.
    #[error("there is no session {0} of rounds")]
    NoSuchSession(ForkName),
    /// The directory changed since it was imported, at these paths, sorted.
    #[error("{} changed in the directory, too", shown(.0))]
    DirectoryChanged(Vec<RepoPath>),
    /// The session has no such agent in the current round.
    #[error("the session {session} has no agent {agent}")]
    NoSuchAgent {
        /// Name of the session.
        session: ForkName,
        /// Name or label that was given.
        agent: ForkName,
    },
    /// A word names no fork, snapshot or revision.
    #[error("{0} is not a fork, snapshot or revision")]
    NothingCalled(String),
    /// No branch has this short name.
    #[error("there is no branch {0:?}")]
    NoSuchBranch(String),
    /// The branch is checked out elsewhere.
    #[error("the branch {branch:?} is checked out {holder}")]
    BranchHeld {
        /// Short name of the branch.
        branch: String,
        /// Checkout that has it.
        holder: Holder,
    },
    /// Deleting the branch would lose commits that nothing else reaches.
    #[error(
        "the branch {branch:?} has commits that no other branch or tag has; the last is {commit_id}"
    )]
    BranchNotMerged {
        /// Short name of the branch.
        branch: String,
        /// Commit that the branch is at.
        commit_id: ObjectId,
    },
    /// No entry of `tine recover` has this number.
    #[error("`tine recover` has no entry {0}")]
    NothingToRecover(u64),
    /// An entry of `tine recover` needs an object that is lost.
    #[error(
        "the entry {id} needs the object {object_id}, which is not in this repository any more"
    )]
    HistoryGone {
        /// Number of the entry.
        id: u64,
        /// Lost object.
        object_id: ObjectId,
        /// Tree of the entry that can still be read, if any.
        tree_id: Option<ObjectId>,
    },
    /// A point has no commit.
    #[error("{0} names no commit")]
    NoCommit(String),
    /// An error of git's side.
    #[error(transparent)]
    Git(#[from] GitError),
    /// An error of the fork's file system.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// An error of an operation on the fork's files.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ChangeError {
    /// Wraps an I/O error, for `map_err`: `ChangeError::io("write", path)`.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ChangeError {
        let failed = StoreError::io(action, path);
        move |error| failed(error).into()
    }
}

/// Number of paths that a message names.
const NAMED_PATHS: usize = 3;

/// Returns the first paths as text, with the number of the rest.
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
