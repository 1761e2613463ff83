//! Errors of a fork's file system and of the store.

use std::path::PathBuf;

use thiserror::Error;

use super::fork::ForkName;
use super::operations::{Direction, HeadMove, UndoneChanges};
use super::store::LeaseKey;
use tine_git::GitError;
use tine_layer::LayerError;
use tine_path::{PathError, RepoPath};

/// Failure of a file system operation.
///
/// Each variant is one errno; `fuse` maps them.
#[derive(Debug, Error)]
pub enum FsError {
    /// No node is at the name (`ENOENT`).
    #[error("no such file or directory")]
    NotFound,
    /// A node exists at the target name (`EEXIST`).
    #[error("the name is taken")]
    Exists,
    /// The node or a parent is not a directory (`ENOTDIR`).
    #[error("not a directory")]
    NotADirectory,
    /// The operation does not work on directories (`EISDIR`).
    #[error("is a directory")]
    IsADirectory,
    /// The directory has entries (`ENOTEMPTY`).
    #[error("the directory is not empty")]
    NotEmpty,
    /// The operation is not allowed on this node, whatever its mode (`EPERM`).
    #[error("not permitted")]
    NotPermitted,
    /// The mode denies the access (`EACCES`).
    #[error("permission denied")]
    AccessDenied,
    /// An argument is not valid (`EINVAL`).
    #[error("invalid argument")]
    Invalid,
    /// A name or path is longer than the limit (`ENAMETOOLONG`).
    #[error("the name is too long")]
    NameTooLong,
    /// The size is beyond the limit (`EFBIG`).
    #[error("the file is too large")]
    TooLarge,
    /// The link count is at its limit (`EMLINK`).
    #[error("too many links")]
    TooManyLinks,
    /// The path follows too many symlinks (`ELOOP`).
    #[error("too many levels of symbolic links")]
    SymlinkLoop,
    /// The node does not have the extended attribute (`ENODATA`).
    #[error("no such extended attribute")]
    NoAttribute,
    /// The extended attribute's name is longer than the limit (`ERANGE`).
    #[error("the attribute's name is too long")]
    Range,
    /// The extended attribute's value is longer than the limit (`E2BIG`).
    #[error("the attribute's value is too long")]
    ValueTooLong,
    /// The node's extended attributes have reached their total limit (`ENOSPC`).
    #[error("the node has no room for more attributes")]
    AttributesFull,
    /// No data or hole follows the offset of a seek (`ENXIO`).
    #[error("there is no more data or hole")]
    NoSuchOffset,
    /// The operation is not supported on this node (`EOPNOTSUPP`).
    #[error("not supported")]
    Unsupported,
    /// The inode number has no node, or a carried file changed (`ESTALE`).
    #[error("stale inode number")]
    Stale,
    /// The disk or quota that holds the layer is full.
    #[error("no space left")]
    NoSpace(#[source] LayerError),
    /// The layer cannot be read or written.
    #[error("the layer failed: {0}")]
    Layer(#[source] LayerError),
    /// The base cannot be read from the repository.
    #[error("the base failed: {0}")]
    Base(#[from] GitError),
    /// A file of the main checkout cannot be read.
    #[error("the main checkout failed: {0}")]
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
#[derive(Debug, Error)]
pub enum OperationError {
    /// No node is at the path.
    #[error("{0} does not exist in the fork")]
    NotFound(RepoPath),
    /// The target path exists.
    #[error("{0} exists already")]
    Exists(RepoPath),
    /// The path is a directory, and the operation needs a file.
    #[error("{0} is a directory")]
    IsADirectory(RepoPath),
    /// The path is not a directory, and the operation needs one.
    #[error("{0} is not a directory")]
    NotADirectory(RepoPath),
    /// The path is not a regular file, and the operation needs one.
    #[error("{0} is not a regular file")]
    NotAFile(RepoPath),
    /// The path is the fork's root.
    #[error("the fork's root cannot be moved, removed or written")]
    Root,
    /// The path is, or is below, the fork's `.git` file.
    #[error("{0} is the fork's link to its repository, which is left alone")]
    DotGit(RepoPath),
    /// A symlink on the path leads out of the fork.
    #[error("{0} leads out of the fork by a symlink")]
    LeadsOut(RepoPath),
    /// The path follows too many symlinks.
    #[error("{0} goes through too many symlinks")]
    SymlinkLoop(RepoPath),
    /// The target of a move is below its source.
    #[error("{0} cannot be moved into itself")]
    IntoItself(RepoPath),
    /// Source and target of a move are one file.
    #[error("{0} and {1} are the same file")]
    SameFile(RepoPath, RepoPath),
    /// The kernel reads the file directly (passthrough), so its content must stay.
    #[error("{0} is open in a program that reads it without asking")]
    Pinned(RepoPath),
    /// The node in the way is in no changeset: an ignored file, a fifo, a repository.
    #[error("{0} is in the way, and in no changeset")]
    InTheWay(RepoPath),
    /// The node to restore is not where the operation left it.
    #[error("{0} is not there any more")]
    Gone(RepoPath),
    /// No recorded operation is left to undo or redo.
    #[error("nothing is left to {}", what_is_left(*direction, path.as_ref()))]
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
    IsSwitch {
        /// Number of the operation.
        id: u64,
        /// Name of the snapshot of the state before.
        before: String,
    },
    /// The operation also moved HEAD, which must be moved back with it.
    #[error("the operation {} moved HEAD as well", .undoes.operation)]
    IsAdvance {
        /// Operation, with its changes to undo or redo.
        undoes: UndoneChanges,
        /// Move of HEAD that belongs to the operation.
        moved: HeadMove,
    },
    /// The caller's content cannot be read.
    #[error("the content for {path} could not be read")]
    Source {
        /// File that the content was for.
        path: RepoPath,
        /// Error of the reader.
        source: std::io::Error,
    },
    /// An operation of the file system failed.
    #[error("{}: {source}", shown(path))]
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

/// Refusal or failure of the store.
#[derive(Debug, Error)]
pub enum StoreError {
    /// No fork has this name.
    #[error("there is no fork called {0}")]
    NoSuchFork(String),
    /// A fork with this name exists.
    #[error("there is a fork called {0} already")]
    ForkExists(ForkName),
    /// The fork has no such snapshot.
    #[error("{fork} has no snapshot called {snapshot}")]
    NoSuchSnapshot {
        /// Fork that was searched.
        fork: ForkName,
        /// Name that was asked for.
        snapshot: ForkName,
    },
    /// The fork has a snapshot with this name.
    #[error("there is a snapshot called {0} already")]
    SnapshotExists(ForkName),
    /// The name does not follow the rules for fork names.
    #[error("{name:?} is not a valid fork name: {reason}")]
    InvalidName {
        /// Name as given.
        name: String,
        /// Rule that it breaks.
        reason: &'static str,
    },
    /// A newer version of tine wrote the store.
    #[error("the store at {path} has format {found}, this tine knows up to {known}")]
    NewerFormat {
        /// Directory of the store.
        path: PathBuf,
        /// Format that the store has.
        found: u32,
        /// Newest format that this program reads.
        known: u32,
    },
    /// Another process has the store open.
    #[error("the store at {path} is in use by another process")]
    Locked {
        /// Directory of the store.
        path: PathBuf,
    },
    /// A file of the store is damaged, or missing though needed.
    #[error("{path} is damaged: {reason}")]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Description of the damage.
        reason: String,
    },
    /// No repair has set anything aside under this number.
    #[error("nothing was moved aside as number {0}")]
    NotAside(u64),
    /// A file exists where a set-aside file must be put back.
    #[error("{0} is in the way of what would be put back")]
    InTheWay(PathBuf),
    /// The fork of a set-aside file is deleted.
    #[error("the fork is gone that {0} belongs to")]
    AsideOfGone(PathBuf),
    /// Root may not make a store in another user's repository.
    #[error(
        "the repository belongs to user {owner}, and root would leave files that this user cannot read"
    )]
    NotRoots {
        /// User ID of the repository's owner.
        owner: u32,
    },
    /// The store's directory may have been made by another user.
    #[error("{path} is no store of this user's own: {reason}")]
    Foreign {
        /// Path of the directory.
        path: PathBuf,
        /// Reason for the refusal.
        reason: String,
    },
    /// This process has the fork open already.
    #[error("the fork {0} is open elsewhere in this process")]
    Busy(ForkName),
    /// The fork has a sparse checkout, or had one at the point.
    ///
    /// Going back to that point, and a commit, would delete the files that git leaves out.
    #[error("the fork {0} has, or had then, a sparse checkout, which cannot be brought back")]
    SparseCheckout(ForkName),
    /// Another command holds the lease.
    #[error("{key} is in use by `{by}`")]
    LeaseHeld {
        /// Subject of the lease.
        key: LeaseKey,
        /// Command that holds it.
        by: String,
    },
    /// A git operation failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A layer operation failed.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// An operation of a fork's file system failed.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// A path is not valid.
    #[error(transparent)]
    Path(#[from] PathError),
    /// An I/O operation on the store failed.
    #[error("{action} {path}: {source}")]
    Io {
        /// Verb of the failed operation, for the message.
        action: &'static str,
        /// Path of the failed operation.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
}

impl StoreError {
    /// Returns a function for `map_err` that wraps an I/O error.
    ///
    /// Example: `StoreError::io("write", path)`.
    pub fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> StoreError {
        let path = path.into();
        move |source| StoreError::Io {
            action,
            path,
            source,
        }
    }
}
