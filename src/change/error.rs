//! What can go wrong with a changeset.

use thiserror::Error;

use crate::git::GitError;
use crate::path::RepoPath;
use crate::workspace::{ForkName, FsError, OperationError, StoreError};

/// Why a changeset could not be computed or committed.
#[derive(Debug, Error)]
pub enum ChangeError {
    #[error("there is nothing to commit")]
    NothingToCommit,
    #[error("the commit message is empty")]
    EmptyMessage,
    #[error("a {0} is under way in the fork")]
    OperationInProgress(&'static str),
    #[error("{0} changed while it was being read")]
    Unstable(RepoPath),
    /// The tree that was written is not what the changeset says. HEAD has not moved.
    #[error("{0} did not land in the new tree as it is in the fork")]
    NotLanded(RepoPath),
    #[error("{word} is no snapshot of {fork}, no fork and no revision")]
    NoSuchPoint { fork: ForkName, word: String },
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Fs(#[from] FsError),
    #[error(transparent)]
    Operation(#[from] OperationError),
    #[error(transparent)]
    Store(#[from] StoreError),
}
