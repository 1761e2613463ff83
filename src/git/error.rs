//! What can go wrong with the repository.

use std::path::PathBuf;

use gix::ObjectId;
use thiserror::Error;

use tine_path::{PathError, RepoPath};

/// A failure of the repository or of the git program.
#[derive(Debug, Error)]
pub enum GitError {
    #[error("{0} is not inside a git repository")]
    NotARepository(PathBuf),
    #[error("the repository at {dir} cannot be used: {reason}")]
    UnsupportedRepository { dir: PathBuf, reason: String },
    /// git would refuse it as well (`safe.directory`); `dir` is what it wants to be told.
    #[error("the repository at {dir} belongs to another user")]
    UntrustedRepository { dir: PathBuf },
    /// It has files that no commit of another repository could have.
    #[error("{0} is a repository of its own")]
    NestedRepository(PathBuf),
    #[error("the revision {0:?} does not exist")]
    UnknownRevision(String),
    #[error("the branch {branch:?} is checked out at {at}")]
    BranchCheckedOut { branch: String, at: PathBuf },
    #[error("the branch {0:?} exists already")]
    BranchExists(String),
    /// A symbolic ref to a branch that is not there.
    #[error("the branch {alias:?} is an alias of {target:?}, which does not exist")]
    AliasOfNothing { alias: String, target: String },
    /// Symbolic refs that never come to a branch.
    #[error("the branch {alias:?} is an alias that leads to itself, or through too many others")]
    AliasLoop { alias: String },
    /// A branch that only its aliases would name afterwards, or an alias, cannot be renamed.
    #[error("{alias:?} is an alias of the branch {branch:?}")]
    IsAlias { alias: String, branch: String },
    #[error("the branch {branch:?} has the alias {alias:?}, which would lead nowhere")]
    HasAlias { alias: String, branch: String },
    #[error("{0:?} is no valid branch name")]
    InvalidBranchName(String),
    #[error("the object {id} is missing")]
    MissingObject { id: ObjectId },
    #[error("the object {id} cannot be read: {reason}")]
    CorruptObject { id: ObjectId, reason: String },
    #[error("the tree {tree_id} holds an entry that no checkout may have: {source}")]
    HostileTree {
        tree_id: ObjectId,
        source: PathError,
    },
    #[error("the tree holds {path}, which no checkout may have")]
    HostilePath { path: RepoPath },
    #[error(
        "the tree {tree_id} holds more than {limit} files, directories counted each time they occur"
    )]
    TooManyFiles { tree_id: ObjectId, limit: u64 },
    /// What git says of files that would be lost, or of a branch that is not behind.
    #[error("the checkout at {dir} cannot follow: {reason}")]
    CheckoutInTheWay { dir: PathBuf, reason: String },
    /// Some files are those of the new commit, some of the old one, and some are cut off.
    #[error(
        "the checkout at {dir} is half way to another commit, and cannot be taken back: {reason}"
    )]
    CheckoutHalfMoved {
        dir: PathBuf,
        reason: String,
        /// Why it did not come to its end.
        cause: Box<GitError>,
    },
    /// Ignored files, other repositories and pipes where the commit has files.
    #[error("what git does not track is in the way in the checkout at {dir}")]
    UntrackedInTheWay { dir: PathBuf, paths: Vec<RepoPath> },
    #[error("the ref {name} moved while it was being changed")]
    RefMoved { name: String },
    /// `lock` is the file that another git command holds, or left behind.
    #[error("the index is locked by {lock}")]
    IndexLocked { lock: PathBuf },
    /// As [`GitError::IndexLocked`]; `name` is the ref's, or `packed-refs`.
    #[error("the ref {name} is locked by {lock}")]
    RefLocked { name: String, lock: PathBuf },
    /// Nothing to merge over.
    #[error("the histories have no commit in common")]
    UnrelatedHistories,
    /// `name` is `None` where none was named.
    #[error("{}", match name { Some(name) => format!("there is no remote called {name}"), None => "no remote is named, and none is the one to take".to_owned() })]
    NoSuchRemote { name: Option<String> },
    #[error("the remote {remote} has no fork called {name}")]
    NoSuchState { remote: String, name: String },
    /// `found` is what it is there, if it is there and could be looked at.
    #[error("{name} on the remote {remote} is not what was last pushed or taken up here")]
    RemoteMoved {
        remote: String,
        name: String,
        found: Option<ObjectId>,
    },
    /// What git, or a hook of the remote's, said.
    #[error("the remote {remote} refused {name}")]
    RemoteRefused {
        remote: String,
        name: String,
        said: Vec<String>,
    },
    #[error("the remote {remote} does not let you in")]
    RemoteDenied { remote: String, said: Vec<String> },
    #[error("the remote {remote} cannot be reached")]
    RemoteUnreachable { remote: String, said: Vec<String> },
    #[error("a hook kept {name} from being pushed")]
    PushHook { name: String, said: Vec<String> },
    #[error("this is no patch that git can read: {reason}")]
    BadPatch { reason: String },
    /// Or one without a patch.
    #[error("it is no mailbox of patches: {reason}")]
    NotAMailbox { reason: String },
    #[error("no identity: {0}")]
    NoIdentity(String),
    #[error("git {wanted} or newer is needed, {found} was found")]
    GitTooOld { wanted: String, found: String },
    #[error("the git program cannot be run: {0}")]
    GitMissing(#[source] std::io::Error),
    #[error("git {command} failed: {stderr}")]
    GitFailed { command: String, stderr: String },
    /// Only to who is in [haste](super::haste).
    #[error("it would take long")]
    TakesLong,
    #[error("{action} {path}: {source}")]
    Io {
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    /// What was to become a blob.
    #[error("the content of a file cannot be read: {reason}")]
    UnreadableContent { reason: String },
    /// HEAD of a worktree is no HEAD.
    #[error("{path} is damaged: {reason}")]
    DamagedHead { path: PathBuf, reason: String },
    /// The file of a loose ref holds none, as a power cut leaves it, or what it names is not there.
    #[error("the ref {name} is damaged: {reason}")]
    DamagedRef { name: String, reason: String },
    /// A failure of the git library that has no kind of its own here.
    #[error("{action}: {reason}")]
    Library {
        action: &'static str,
        reason: String,
    },
}

impl GitError {
    /// Wraps an I/O error: `GitError::io("write", path)` for `map_err`.
    pub fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> GitError {
        let path = path.into();
        move |source| GitError::Io {
            action,
            path,
            source,
        }
    }

    /// Wraps an error of the git library: `GitError::library("read the index")` for `map_err`.
    pub fn library<E: std::error::Error>(action: &'static str) -> impl FnOnce(E) -> GitError {
        move |error| GitError::Library {
            action,
            reason: with_causes(&error),
        }
    }
}

/// An error's message with those of its causes; the git library's tell only the outermost by
/// themselves.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // A marker stands in the chain for the class of an error, it has no message.
        if !error.is::<gix::error::ClassificationMarker>() {
            let message = error.to_string();
            if !text.ends_with(&message) {
                text.push_str(": ");
                text.push_str(&message);
            }
        }
        cause = error.source();
    }
    text
}
