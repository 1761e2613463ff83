//! Errors of the store.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::fork::ForkName;
use crate::leases::LeaseKey;
use tine_failure::{ErrorCode, Failure, ToFailure};
use tine_git::GitError;
use tine_layer::LayerError;
use tine_path::PathError;
use tine_workspace::FsError;

/// Refusal or failure of the store.
#[derive(Debug, Error, ToFailure)]
pub enum StoreError {
    /// No fork has this name.
    #[error("there is no fork called {0}")]
    #[failure(NoSuchFork)]
    #[hint("`tine list` shows the forks")]
    NoSuchFork(String),
    /// A fork with this name exists.
    #[error("there is a fork called {0} already")]
    #[failure(ForkExists)]
    #[hint(
        "`tine path {name}` shows where it is, `tine delete {name}` removes it; or choose another name",
        name = _0
    )]
    ForkExists(ForkName),
    /// The fork has no such snapshot.
    #[error("{fork} has no snapshot called {snapshot}")]
    #[failure(NoSuchSnapshot)]
    #[hint("`tine snapshots {fork}` lists them")]
    NoSuchSnapshot {
        /// Fork that was searched.
        fork: ForkName,
        /// Name that was asked for.
        snapshot: ForkName,
    },
    /// HEAD, refs and index cannot be restored.
    #[error("HEAD, refs and index of {fork} cannot be restored: {reason}")]
    #[failure(NoGitPoint)]
    #[hint(
        "without `--with-git` its files are restored, and HEAD, refs and index stay; `git reflog` in the fork tells where HEAD was"
    )]
    NoGitPoint {
        /// The fork.
        fork: ForkName,
        /// Cause, as the end of a sentence.
        reason: &'static str,
    },
    /// The refs cannot be restored: they are the main repository's.
    #[error(
        "{0} is a linked worktree: its refs are the main repository's, and do not go back with it"
    )]
    #[failure(NoGitPoint)]
    #[hint(
        "`tine convert {0} --git own` makes it a repository of its own, whose later snapshots have HEAD, refs and index; without `--with-git` the files are restored",
        _0
    )]
    NoRefsOfItsOwn(ForkName),
    /// The fork has a snapshot with this name.
    #[error("there is a snapshot called {0} already")]
    #[failure(SnapshotExists)]
    #[hint("choose another name, or none")]
    SnapshotExists(ForkName),
    /// The name does not follow the rules for fork names.
    #[error("{name:?} is not a valid fork name: {reason}")]
    #[failure(InvalidForkName, cause = reason)]
    #[hint("take letters, digits, '.', '_' and '-', beginning with a letter or digit")]
    InvalidName {
        /// Name as given.
        name: String,
        /// Rule that it breaks.
        reason: &'static str,
    },
    /// A newer version of tine wrote the store.
    #[error("the store at {path} has format {found}, this tine knows up to {known}")]
    #[failure(NewerFormat)]
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
    #[failure(StoreLocked)]
    Locked {
        /// Directory of the store.
        path: PathBuf,
    },
    /// A file of the store is damaged, or missing though needed.
    #[error("{path} is damaged: {reason}")]
    #[failure(with = damaged(path, reason))]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Description of the damage.
        reason: String,
    },
    /// No repair has set anything aside under this number.
    #[error("nothing was moved aside as number {0}")]
    #[failure(Usage)]
    #[hint("`tine check --set-aside` lists what repairs moved aside")]
    NotAside(u64),
    /// A file exists where a set-aside file must be put back.
    #[error("{0} is in the way of what would be put back")]
    #[failure(ForkExists)]
    #[hint("see what it is, and move it away: {path}", path = _0.display())]
    InTheWay(PathBuf),
    /// The fork of a set-aside file is deleted.
    #[error("the fork is gone that {0} belongs to")]
    #[failure(NoSuchFork)]
    #[hint(
        "`tine recover` lists what brings a deleted fork back; what was set aside stays in {path}",
        path = _0.display()
    )]
    AsideOfGone(PathBuf),
    /// Root may not make a store in another user's repository.
    #[error(
        "the repository belongs to user {owner}, and root would leave files that this user cannot read"
    )]
    #[failure(PermissionDenied)]
    #[hint(
        "run it without sudo, or as that user: `sudo -u '#{owner}' tine …`; where only root can work, `git config tine.asRoot true`"
    )]
    NotRoots {
        /// User ID of the repository's owner.
        owner: u32,
    },
    /// The store's directory may have been made by another user.
    #[error("{path} is not your store: {reason}")]
    #[failure(PermissionDenied, cause = reason)]
    #[hint(
        "another user may have put it there: see what it is, and move it away or correct its owner and mode (0700)"
    )]
    Foreign {
        /// Path of the directory.
        path: PathBuf,
        /// Reason for the refusal.
        reason: String,
    },
    /// This process has the fork open already.
    #[error("the fork {0} is open elsewhere in this process")]
    #[failure(Busy)]
    #[hint(
        "`tine unmount {name}` if it is mounted, or wait until other commands on it have ended, then try again",
        name = _0
    )]
    Busy(ForkName),
    /// The fork has a sparse checkout, or had one at the point.
    ///
    /// Going back to that point, and a commit, would delete the files that git leaves out.
    #[error("the fork {0} has, or had then, a sparse checkout, which cannot be brought back")]
    #[failure(SparseCheckout)]
    #[hint(
        "`git sparse-checkout disable` in {name}'s mount shows all files; `tine new` makes a fork that has them; nothing was changed",
        name = _0
    )]
    SparseCheckout(ForkName),
    /// Another command holds the lease.
    #[error("{key} is in use by `{by}`")]
    #[failure(LeaseHeld)]
    #[hint("wait until that command has ended, then try again; nothing was changed")]
    LeaseHeld {
        /// Subject of the lease.
        key: LeaseKey,
        /// Command that holds it.
        by: String,
    },
    /// A git operation failed.
    #[error(transparent)]
    #[failure(transparent)]
    Git(#[from] GitError),
    /// A layer operation failed.
    #[error(transparent)]
    #[failure(transparent)]
    Layer(#[from] LayerError),
    /// An operation of a fork's file system failed.
    #[error(transparent)]
    #[failure(transparent)]
    Fs(#[from] FsError),
    /// A path is not valid.
    #[error(transparent)]
    #[failure(transparent)]
    Path(#[from] PathError),
    /// An I/O operation on the store failed.
    #[error("{action} {path}: {source}")]
    #[failure(with = Failure::io(action, path, source))]
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

/// Makes the failure of a damaged file of the store.
fn damaged(path: &Path, reason: &str) -> Failure {
    let failure = Failure::new(
        ErrorCode::StoreDamaged,
        format!("{} is damaged", path.display()),
    )
    .cause(reason);
    if path.ends_with("tine/format") {
        failure.hint("put it, or `format.copy` beside it, back from a backup: no layer can be read without the key in it; what was committed is safe in git")
    } else {
        failure
    }
}
