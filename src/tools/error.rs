//! Errors of file tools.

use std::path::PathBuf;

use thiserror::Error;

use super::edit::{EditError, EditFailed};
use tine_failure::{ErrorCode, Failure, ToFailure};
use tine_git::GitError;
use tine_path::shell::shell_word;
use tine_path::{PathError, RepoPath};
use tine_store::StoreError;
use tine_workspace::OperationError;

/// Error of a file tool.
#[derive(Debug, Error, ToFailure)]
pub enum ToolError {
    /// An operation in the fork failed.
    #[error(transparent)]
    #[failure(transparent)]
    Operation(#[from] OperationError),
    /// git or its repository failed.
    #[error(transparent)]
    #[failure(transparent)]
    Git(#[from] GitError),
    /// A record of a buffer cannot be read or written.
    #[error(transparent)]
    #[failure(transparent)]
    Store(#[from] StoreError),
    /// The path is empty.
    #[error("a path is empty")]
    #[failure(Usage)]
    #[hint("`.` is the fork's root, everything else is named from there")]
    NoPath,
    /// The path is not a valid path of a fork.
    #[error(transparent)]
    #[failure(with = path_refused(_0))]
    Path(#[from] PathError),
    /// An absolute path leads outside of the fork.
    #[error("{path} is neither in the fork's mount nor in the main checkout")]
    #[failure(PathRefused)]
    #[hint("name it from the fork's root: a tool touches nothing outside its fork")]
    Outside {
        /// Path as the tool got it.
        path: PathBuf,
    },
    /// The path of a file ends like that of a directory.
    #[error("{0}/ names a directory, and not a file")]
    #[failure(WrongKind)]
    #[hint("name the file, without a slash at the end")]
    NamesDirectory(RepoPath),
    /// An edit of a file failed.
    #[error("{}{error}", which(path, *number, *count))]
    #[failure(with = error.to_failure().message(self))]
    Edit {
        /// Path of the file.
        path: RepoPath,
        /// Position of the edit from 1, or 0 for all of them.
        number: usize,
        /// Number of edits.
        count: usize,
        /// Reason of the failure.
        error: EditError,
    },
    /// The text is not valid UTF-8.
    #[error("{0} is not text in UTF-8")]
    #[failure(NotText)]
    #[hint("only text in UTF-8 can be edited, or written to an open buffer; nothing was changed")]
    NotText(RepoPath),
    /// The agent's text may contain unsaved changes of a closed buffer.
    #[error(
        "what was read of {0} had changes that its editor had not saved, and no buffer is open there any more"
    )]
    #[failure(UnsavedRead)]
    #[hint(
        "the file would get what was never saved: read it again (`tine cat --agent {path}`), and make the change there; nothing was changed",
        path = shell_word(_0.as_bytes())
    )]
    UnsavedRead(RepoPath),
    /// The agent may not have read what the open file holds now.
    #[error(
        "{0} is open in an editor, and this agent is not known to have read what it holds now: its text may lack what was written since"
    )]
    #[failure(UnsavedRead)]
    #[hint(
        "read it first (`tine cat --agent {path}`), then write the whole file; nothing was changed",
        path = shell_word(_0.as_bytes())
    )]
    UnreadBuffer(RepoPath),
    /// The file is too large for the operation.
    #[error("{path} has more than {max_bytes} bytes")]
    #[failure(TooLarge)]
    #[hint("change it with a program; nothing was changed")]
    TooLarge {
        /// Path of the file.
        path: RepoPath,
        /// Limit of the operation, in bytes.
        max_bytes: u64,
    },
    /// The pattern of a search is not a valid regular expression.
    #[error("the regular expression cannot be understood: {0}")]
    #[failure(BadPattern)]
    #[hint(
        "the syntax is ripgrep's, one line at a time; a backslash before a special character takes it as it is"
    )]
    Pattern(String),
    /// A glob of a search is not valid.
    #[error("the glob cannot be understood: {0}")]
    #[failure(BadPattern)]
    #[hint(
        "a glob is as in a .gitignore: `*.rs`, `src/**`; with `!` before it what matches is left out"
    )]
    Glob(String),
}

/// Returns the beginning of the message of [`ToolError::Edit`].
fn which(path: &RepoPath, number: usize, count: usize) -> String {
    match (number, count) {
        (0, _) => format!("{path} cannot be edited: "),
        (1, 1) => format!("the edit of {path} fails: "),
        _ => format!("the edit {number} of {count} of {path} fails: "),
    }
}

/// Makes the failure of a path that is not valid.
fn path_refused(error: &PathError) -> Failure {
    let message = error.to_string();
    match error {
        PathError::Outside(_) => Failure::new(ErrorCode::PathRefused, message)
            .hint("name it from the fork's root, without `..`"),
        PathError::Empty
        | PathError::TooLong
        | PathError::Reserved(_)
        | PathError::ForbiddenByte(_) => error.to_failure(),
    }
}

impl ToolError {
    /// Returns a function for `map_err` that adds the path of the file.
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
