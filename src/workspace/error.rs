//! Errors of a fork's file system.

use std::io;

use thiserror::Error;

use super::operations::{Direction, GitSwitch, HeadMove, UndoneChanges};
use tine_failure::{ErrorCode, Failure, ToFailure, no_space};
use tine_git::GitError;
use tine_layer::LayerError;
use tine_path::RepoPath;

/// Hint where a node is not what it was a moment before.
const CHANGED: &str = "the fork changed meanwhile: try again";

/// Hint where a limit of Linux is reached.
const LIMIT: &str = "a fork takes what Linux takes: choose a shorter name, or leave the file out";

/// Hint where access is denied.
const DENIED: &str = "`ls -l` in the mount shows who may; `chmod` changes it";

/// Hint where tine itself asked for what is not possible.
const FAULT: &str =
    "try again; if it stays so, please report it, with the end of `daemon.log` in the store";

/// Failure of a file system operation.
///
/// Each variant is one errno; `fuse` maps them.
#[derive(Debug, Error, ToFailure)]
#[failure(Io, message("in the fork: {self}"))]
pub enum FsError {
    /// No node is at the name (`ENOENT`).
    #[error("no such file or directory")]
    #[hint(CHANGED)]
    NotFound,
    /// A node exists at the target name (`EEXIST`).
    #[error("the name is taken")]
    #[hint(CHANGED)]
    Exists,
    /// The node or a parent is not a directory (`ENOTDIR`).
    #[error("not a directory")]
    #[hint(CHANGED)]
    NotADirectory,
    /// The operation does not work on directories (`EISDIR`).
    #[error("is a directory")]
    #[hint(CHANGED)]
    IsADirectory,
    /// The directory has entries (`ENOTEMPTY`).
    #[error("the directory is not empty")]
    #[hint(CHANGED)]
    NotEmpty,
    /// The operation is not allowed on this node, whatever its mode (`EPERM`).
    #[error("not permitted")]
    #[failure(PermissionDenied)]
    #[hint(DENIED)]
    NotPermitted,
    /// The mode denies the access (`EACCES`).
    #[error("permission denied")]
    #[failure(PermissionDenied)]
    #[hint(DENIED)]
    AccessDenied,
    /// An argument is not valid (`EINVAL`).
    #[error("invalid argument")]
    #[hint(FAULT)]
    Invalid,
    /// A name or path is longer than the limit (`ENAMETOOLONG`).
    #[error("the name is too long")]
    #[hint(LIMIT)]
    NameTooLong,
    /// The size is beyond the limit (`EFBIG`).
    #[error("the file is too large")]
    #[hint(LIMIT)]
    TooLarge,
    /// The link count is at its limit (`EMLINK`).
    #[error("too many links")]
    #[hint(LIMIT)]
    TooManyLinks,
    /// The path follows too many symlinks (`ELOOP`).
    #[error("too many levels of symbolic links")]
    #[hint(LIMIT)]
    SymlinkLoop,
    /// The node does not have the extended attribute (`ENODATA`).
    #[error("no such extended attribute")]
    #[hint(FAULT)]
    NoAttribute,
    /// The extended attribute's name is longer than the limit (`ERANGE`).
    #[error("the attribute's name is too long")]
    #[hint(LIMIT)]
    Range,
    /// The extended attribute's value is longer than the limit (`E2BIG`).
    #[error("the attribute's value is too long")]
    #[hint(LIMIT)]
    ValueTooLong,
    /// The node's extended attributes have reached their total limit (`ENOSPC`).
    #[error("the node has no room for more attributes")]
    #[hint(LIMIT)]
    AttributesFull,
    /// No data or hole follows the offset of a seek (`ENXIO`).
    #[error("there is no more data or hole")]
    #[hint(FAULT)]
    NoSuchOffset,
    /// The operation is not supported on this node (`EOPNOTSUPP`).
    #[error("not supported")]
    #[hint(FAULT)]
    Unsupported,
    /// The inode number has no node, or a carried file changed (`ESTALE`).
    #[error("stale inode number")]
    #[hint(CHANGED)]
    Stale,
    /// The disk or quota that holds the layer is full.
    #[error("no space left")]
    #[failure(transparent)]
    NoSpace(#[source] LayerError),
    /// The layer cannot be read or written.
    #[error("the layer failed: {0}")]
    #[failure(transparent)]
    Layer(#[source] LayerError),
    /// The base cannot be read from the repository.
    #[error("the base failed: {0}")]
    #[failure(transparent)]
    Base(#[from] GitError),
    /// A file of the main checkout cannot be read.
    #[error("the main checkout failed: {0}")]
    #[failure(Io, message("a carried file cannot be read"), cause = _0)]
    #[hint("see to it in the main checkout, which it is read from")]
    Carried(#[source] std::io::Error),
}

impl From<LayerError> for FsError {
    fn from(error: LayerError) -> FsError {
        use std::io::ErrorKind;
        match &error {
            LayerError::Io { source, .. }
                if matches!(
                    source.kind(),
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded
                ) =>
            {
                FsError::NoSpace(error)
            }
            LayerError::Io { source, .. } if source.kind() == ErrorKind::FileTooLarge => {
                FsError::TooLarge
            }
            _ => FsError::Layer(error),
        }
    }
}

/// Refusal or failure of an operation by path.
#[derive(Debug, Error, ToFailure)]
pub enum OperationError {
    /// No node is at the path.
    #[error("{0} does not exist in the fork")]
    #[failure(NoSuchPath)]
    #[hint("`tine ls --fork FORK` shows what there is, with `--deep` all of it")]
    NotFound(RepoPath),
    /// The target path exists.
    #[error("{0} exists already")]
    #[failure(PathExists)]
    #[hint("name another path; `--force` replaces a file, without `--agent`")]
    Exists(RepoPath),
    /// The path is a directory, and the operation needs a file.
    #[error("{0} is a directory")]
    #[failure(WrongKind)]
    #[hint("`tine ls --fork FORK PATH` lists it; `tine rm -r` removes one with all in it")]
    IsADirectory(RepoPath),
    /// The path is not a directory, and the operation needs one.
    #[error("{0} is not a directory")]
    #[failure(WrongKind)]
    #[hint("`tine stat PATH` shows what it is")]
    NotADirectory(RepoPath),
    /// The path is not a regular file, and the operation needs one.
    #[error("{0} is not a regular file")]
    #[failure(WrongKind)]
    #[hint("`tine stat PATH` shows what it is, and where a symlink leads")]
    NotAFile(RepoPath),
    /// The path is the fork's root.
    #[error("the fork's root cannot be moved, removed or written")]
    #[failure(PathRefused)]
    #[hint("name a path in it; `tine delete FORK` removes the fork")]
    Root,
    /// The path is, or is below, the fork's `.git` file.
    #[error("{0} is the fork's link to its repository, which is left alone")]
    #[failure(PathRefused)]
    #[hint("without it the mount would be no worktree of git's")]
    DotGit(RepoPath),
    /// A symlink on the path leads out of the fork.
    #[error("{0} leads out of the fork by a symlink")]
    #[failure(PathRefused)]
    #[hint("`tine stat PATH` shows where a symlink leads; name what it leads to in the fork")]
    LeadsOut(RepoPath),
    /// The path follows too many symlinks.
    #[error("{0} goes through too many symlinks")]
    #[failure(PathRefused)]
    #[hint("`tine stat PATH` shows where a symlink leads")]
    SymlinkLoop(RepoPath),
    /// The target of a move is below its source.
    #[error("{0} cannot be moved into itself")]
    #[failure(PathRefused)]
    #[hint("name another destination")]
    IntoItself(RepoPath),
    /// Source and target of a move are one file.
    #[error("{0} and {1} are the same file")]
    #[failure(PathRefused)]
    #[hint("name another destination")]
    SameFile(RepoPath, RepoPath),
    /// The kernel reads the file directly (passthrough), so its content must stay.
    #[error("{0} is open in a program that reads it without asking")]
    #[failure(Busy)]
    #[hint("end that program, or write the file in the mount: its profile is large-files")]
    Pinned(RepoPath),
    /// The node in the way is in no changeset: an ignored file, a fifo, a repository.
    #[error("{0} is in the way, and in no changeset")]
    #[failure(InTheWay)]
    #[hint(
        "it is ignored, or git cannot hold it: move it elsewhere; `tine revert` and `tine restore` let ignored files go with `--force`; nothing was changed"
    )]
    InTheWay(RepoPath),
    /// The node to restore is not where the operation left it.
    #[error("{0} is not there any more")]
    #[failure(CannotUndo)]
    #[hint(
        "it was moved or removed since, and not by tine: put it there again, or take back something else: `tine undo FORK PATH`"
    )]
    Gone(RepoPath),
    /// No recorded operation is left to undo or redo.
    #[error("nothing is left to {}", what_is_left(*direction, path.as_ref()))]
    #[failure(NothingToUndo)]
    #[hint(take_back_instead(above.as_ref()))]
    NothingToTakeBack {
        /// Direction that was asked for.
        direction: Direction,
        /// Path that the request was limited to; `None` for the whole fork.
        path: Option<RepoPath>,
        /// Directory above `path` that has such an operation.
        above: Option<RepoPath>,
    },
    /// The operation replaced the fork's whole state; a snapshot brings it back.
    #[error("the operation {id} exchanged the whole fork, which was the snapshot {before} before")]
    #[failure(CannotUndo)]
    #[hint("`tine restore` brings that snapshot back")]
    IsSwitch {
        /// Number of the operation.
        id: u64,
        /// Name of the snapshot of the state before.
        before: String,
        /// HEAD after it, if HEAD, refs and index went as well.
        git: Option<GitSwitch>,
    },
    /// The operation also moved HEAD, which must be moved back with it.
    #[error("the operation {} moved HEAD as well", .undoes.operation)]
    #[failure(CannotUndo)]
    #[hint(
        "without a path `tine undo` takes back all of it; `tine revert FORK PATH --to SNAPSHOT` one path"
    )]
    IsAdvance {
        /// Operation, with its changes to undo or redo.
        undoes: UndoneChanges,
        /// Move of HEAD that belongs to the operation.
        moved: HeadMove,
    },
    /// The caller's content cannot be read.
    #[error("the content for {path} could not be read")]
    #[failure(with = source_failed(self.to_string(), source))]
    Source {
        /// File that the content was for.
        path: RepoPath,
        /// Error of the reader.
        source: std::io::Error,
    },
    /// An operation of the file system failed.
    #[error("{}: {source}", shown(path))]
    #[failure(with = failed_at(path, source))]
    Fs {
        /// Path at which it failed; the root is empty.
        path: RepoPath,
        /// The failure.
        source: Box<FsError>,
    },
}

/// Returns the path for a message; a dot for the root.
fn shown(path: &RepoPath) -> String {
    if path.is_root() {
        ".".to_owned()
    } else {
        path.to_string()
    }
}

fn what_is_left(direction: Direction, path: Option<&RepoPath>) -> String {
    let verb = match direction {
        Direction::Undo => "take back",
        Direction::Redo => "do again",
    };
    match path {
        Some(path) => format!("{verb} of {path}"),
        None => verb.to_owned(),
    }
}

/// Returns the hint where nothing is left to undo or redo.
fn take_back_instead(above: Option<&RepoPath>) -> String {
    match above {
        Some(above) => format!("it went, or came, with {above}: name that"),
        None => "`tine op log FORK` shows what was done by commands, and what can be taken back"
            .to_owned(),
    }
}

/// Makes the failure of reading the caller's content.
fn source_failed(message: String, source: &io::Error) -> Failure {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => no_space(&message),
        _ => Failure::new(ErrorCode::Io, message)
            .cause(source.to_string())
            .hint("try again"),
    }
}

/// Makes the failure of an operation at `path`.
fn failed_at(path: &RepoPath, source: &FsError) -> Failure {
    let failure = source.to_failure();
    let message = format!("{}: {}", shown(path), failure.message);
    failure.message(message)
}

impl OperationError {
    /// Returns a function for `map_err` that adds the path of the failure.
    pub fn at(path: &RepoPath) -> impl FnOnce(FsError) -> OperationError {
        let path = path.clone();
        move |error| match error {
            FsError::NotFound => OperationError::NotFound(path),
            FsError::Exists => OperationError::Exists(path),
            FsError::NotADirectory => OperationError::NotADirectory(path),
            FsError::IsADirectory => OperationError::IsADirectory(path),
            source => OperationError::Fs {
                path,
                source: Box::new(source),
            },
        }
    }
}
