//! What can go wrong in a fork's file system and in the store.

use std::path::PathBuf;

use thiserror::Error;

use super::fork::ForkName;
use super::operations::{Direction, HeadMove, Undoes};
use super::store::LeaseKey;
use tine_git::GitError;
use tine_layer::LayerError;
use tine_path::{PathError, RepoPath};

/// Why a file system operation failed. Each variant is one errno; `fuse` maps them.
#[derive(Debug, Error)]
pub enum FsError {
    #[error("no such file or directory")]
    NotFound,
    #[error("the name is taken")]
    Exists,
    #[error("not a directory")]
    NotADirectory,
    #[error("is a directory")]
    IsADirectory,
    #[error("the directory is not empty")]
    NotEmpty,
    #[error("not permitted")]
    NotPermitted,
    #[error("permission denied")]
    AccessDenied,
    #[error("invalid argument")]
    Invalid,
    #[error("the name is too long")]
    NameTooLong,
    #[error("the file is too large")]
    TooLarge,
    #[error("too many links")]
    TooManyLinks,
    #[error("too many levels of symbolic links")]
    SymlinkLoop,
    #[error("no such extended attribute")]
    NoAttribute,
    #[error("the attribute's name is too long")]
    Range,
    #[error("the attribute's value is too long")]
    ValueTooLong,
    #[error("the node has no room for more attributes")]
    AttributesFull,
    #[error("there is no more data or hole")]
    NoSuchOffset,
    #[error("not supported")]
    Unsupported,
    #[error("stale inode number")]
    Stale,
    #[error("no space left")]
    NoSpace(#[source] LayerError),
    #[error("the layer failed: {0}")]
    Layer(#[source] LayerError),
    #[error("the base failed: {0}")]
    Base(#[from] GitError),
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

/// Why an operation by path was refused, or failed.
#[derive(Debug, Error)]
pub enum OperationError {
    #[error("{0} does not exist in the fork")]
    NotFound(RepoPath),
    #[error("{0} exists already")]
    Exists(RepoPath),
    #[error("{0} is a directory")]
    IsADirectory(RepoPath),
    #[error("{0} is no directory")]
    NotADirectory(RepoPath),
    #[error("{0} is no regular file")]
    NotAFile(RepoPath),
    #[error("the fork's root cannot be moved, removed or written")]
    Root,
    #[error("{0} is the fork's link to its repository, which is left alone")]
    DotGit(RepoPath),
    #[error("{0} leads out of the fork by a symlink")]
    LeadsOut(RepoPath),
    #[error("{0} goes through too many symlinks")]
    SymlinkLoop(RepoPath),
    #[error("{0} cannot be moved into itself")]
    IntoItself(RepoPath),
    #[error("{0} and {1} are the same file")]
    SameFile(RepoPath, RepoPath),
    #[error("{0} is open in a program that reads it without asking")]
    Pinned(RepoPath),
    /// Something that no changeset knows: an ignored file, a fifo, a repository.
    #[error("{0} is in the way, and in no changeset")]
    InTheWay(RepoPath),
    #[error("{0} is not there any more")]
    Gone(RepoPath),
    #[error("nothing is left to {}", what_is_left(*direction, path.as_ref()))]
    NothingToTakeBack {
        direction: Direction,
        path: Option<RepoPath>,
        /// A directory above it, about which there is something.
        above: Option<RepoPath>,
    },
    #[error("the operation {id} exchanged the whole fork, which was the snapshot {before} before")]
    IsSwitch { id: u64, before: String },
    #[error("the operation {} moved HEAD as well", .undoes.operation)]
    IsAdvance { undoes: Undoes, moved: HeadMove },
    #[error("the content for {path} could not be read")]
    Source {
        path: RepoPath,
        source: std::io::Error,
    },
    #[error("{}: {source}", shown(path))]
    Fs {
        path: RepoPath,
        source: Box<FsError>,
    },
}

/// The path; a dot for the root.
fn shown(path: &RepoPath) -> String {
    match path.is_root() {
        true => ".".to_owned(),
        false => path.to_string(),
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
    /// For `map_err`: what went wrong at `path`.
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

/// Why the store refused.
#[derive(Debug, Error)]
pub enum StoreError {
    #[error("there is no fork called {0}")]
    NoSuchFork(String),
    #[error("there is a fork called {0} already")]
    ForkExists(ForkName),
    #[error("{fork} has no snapshot called {snapshot}")]
    NoSuchSnapshot { fork: ForkName, snapshot: ForkName },
    #[error("there is a snapshot called {0} already")]
    SnapshotExists(ForkName),
    #[error("{name:?} is no fork name: {reason}")]
    InvalidName { name: String, reason: &'static str },
    #[error("the store at {path} has format {found}, this tine knows up to {known}")]
    NewerFormat {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    #[error("the store at {path} is in use by another process")]
    Locked { path: PathBuf },
    #[error("{path} is damaged: {reason}")]
    Damaged { path: PathBuf, reason: String },
    #[error("nothing was moved aside as number {0}")]
    NotAside(u64),
    #[error("{0} is in the way of what is to be put back")]
    InTheWay(PathBuf),
    #[error("the fork is gone that {0} belongs to")]
    AsideOfGone(PathBuf),
    #[error(
        "the repository belongs to user {owner}, and root would leave files that this user cannot read"
    )]
    NotRoots { owner: u32 },
    #[error("{path} is no store of this user's own: {reason}")]
    Foreign { path: PathBuf, reason: String },
    #[error("the fork {0} is open elsewhere in this process")]
    Busy(ForkName),
    /// What git leaves out of the files would be deleted by the way back, and by a commit.
    #[error("the fork {0} has, or had then, a sparse checkout, which cannot be brought back")]
    SparseCheckout(ForkName),
    /// Another command holds the lease; `by` is that command.
    #[error("{key} is in use by `{by}`")]
    LeaseHeld { key: LeaseKey, by: String },
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Layer(#[from] LayerError),
    #[error(transparent)]
    Fs(#[from] FsError),
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("{action} {path}: {source}")]
    Io {
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
}

impl StoreError {
    /// Wraps an I/O error: `StoreError::io("write", path)` for `map_err`.
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
