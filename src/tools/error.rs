//! Why a file tool refused.

use std::path::PathBuf;

use thiserror::Error;

use super::edit::{EditError, EditFailed};
use tine_git::GitError;
use tine_path::{PathError, RepoPath};
use tine_workspace::{OperationError, StoreError};

#[derive(Debug, Error)]
pub enum ToolError {
    #[error(transparent)]
    Operation(#[from] OperationError),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a path is empty")]
    NoPath,
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("{path} is neither in the fork's mount nor in the main checkout")]
    Outside { path: PathBuf },
    #[error("{0}/ names a directory, and not a file")]
    NamesDirectory(RepoPath),
    #[error("{}{error}", which(path, *number, *count))]
    Edit {
        path: RepoPath,
        /// From 1; 0 for all of them.
        number: usize,
        count: usize,
        error: EditError,
    },
    #[error("{0} is no text in UTF-8")]
    NotText(RepoPath),
    #[error(
        "what was read of {0} had changes that its editor had not saved, and no buffer is open there any more"
    )]
    UnsavedRead(RepoPath),
    #[error(
        "{0} is open in an editor, and this agent is not known to have read what it holds now: its text may lack what was written since"
    )]
    UnreadBuffer(RepoPath),
    #[error("{path} has more than {max_bytes} bytes")]
    TooLarge { path: RepoPath, max_bytes: u64 },
    #[error("the regular expression cannot be understood: {0}")]
    Pattern(String),
    #[error("the glob cannot be understood: {0}")]
    Glob(String),
}

/// Which edit of which file it is about.
fn which(path: &RepoPath, number: usize, count: usize) -> String {
    match (number, count) {
        (0, _) => format!("{path} cannot be edited: "),
        (1, 1) => format!("the edit of {path} fails: "),
        _ => format!("the edit {number} of {count} of {path} fails: "),
    }
}

impl ToolError {
    /// For `map_err`: edits of the file at `path` failed.
    pub fn edit(path: &RepoPath) -> impl FnOnce(EditFailed) -> ToolError {
        let path = path.clone();
        |EditFailed {
             number,
             count,
             error,
         }| ToolError::Edit {
            path,
            number,
            count,
            error,
        }
    }
}
