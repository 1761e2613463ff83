//! Errors of the repository.

use std::path::PathBuf;

use gix::ObjectId;
use thiserror::Error;

use tine_path::{PathError, RepoPath};

/// A failure of the repository or of the git program.
#[derive(Debug, Error)]
pub enum GitError {
    /// A directory outside every git repository.
    #[error("{0} is not inside a git repository")]
    NotARepository(PathBuf),
    /// A repository with a format or extension that tine cannot read.
    #[error("the repository at {dir} cannot be used: {reason}")]
    UnsupportedRepository {
        /// Common directory of the repository.
        dir: PathBuf,
        /// Cause, as the end of a sentence.
        reason: String,
    },
    /// A repository of another user, which git refuses too (`safe.directory`).
    #[error("the repository at {dir} belongs to another user")]
    UntrustedRepository {
        /// Directory to add to `safe.directory`.
        dir: PathBuf,
    },
    /// A repository inside a directory, whose files a commit could not contain.
    #[error("{0} is a repository of its own")]
    NestedRepository(PathBuf),
    /// A revision that does not name an object of the wanted kind.
    #[error("the revision {0:?} does not exist")]
    UnknownRevision(String),
    /// A branch that another worktree has checked out.
    ///
    /// [`Repository::prepare_checkout_move`](super::Repository::prepare_checkout_move) also returns
    /// it if the checkout is no longer on the branch.
    #[error("the branch {branch:?} is checked out at {at}")]
    BranchCheckedOut {
        /// Short name.
        branch: String,
        /// Directory of that worktree.
        at: PathBuf,
    },
    /// A branch (short name) that exists, or conflicts with the wanted name.
    #[error("the branch {0:?} exists already")]
    BranchExists(String),
    /// A symbolic ref to a branch that does not exist.
    #[error("the branch {alias:?} is an alias of {target:?}, which does not exist")]
    DanglingAlias {
        /// Short name of the symbolic ref.
        alias: String,
        /// Name of the missing branch.
        target: String,
    },
    /// A chain of symbolic refs that never reaches a branch.
    #[error("the branch {alias:?} is an alias that leads to itself, or through too many others")]
    AliasLoop {
        /// Short name of the first symbolic ref.
        alias: String,
    },
    /// An alias where only a branch can be renamed.
    #[error("{alias:?} is an alias of the branch {branch:?}")]
    IsAlias {
        /// Short name of the symbolic ref.
        alias: String,
        /// Short name of the branch that it leads to.
        branch: String,
    },
    /// A branch with an alias, which a rename would leave dangling.
    #[error("the branch {branch:?} has the alias {alias:?}, which would lead nowhere")]
    HasAlias {
        /// Short name of the symbolic ref.
        alias: String,
        /// Short name of the branch.
        branch: String,
    },
    /// A name that git does not accept for a branch.
    #[error("{0:?} is not a valid branch name")]
    InvalidBranchName(String),
    /// An object that is not in the repository and cannot be fetched.
    #[error("the object {id} is missing")]
    MissingObject {
        /// Id of the object.
        id: ObjectId,
    },
    /// An object that is damaged, too large, or of an unexpected kind.
    #[error("the object {id} cannot be read: {reason}")]
    CorruptObject {
        /// Id by which the object was read.
        id: ObjectId,
        /// Cause, as the end of a sentence.
        reason: String,
    },
    /// A tree with a forbidden name, such as `..` or `.git`.
    #[error("the tree {tree_id} holds an entry that no checkout may have: {source}")]
    HostileTree {
        /// Tree with the entry.
        tree_id: ObjectId,
        /// Rule that the name breaks.
        source: PathError,
    },
    /// A path that a checkout must refuse.
    #[error("the tree holds {path}, which no checkout may have")]
    HostilePath {
        /// Path relative to the tree.
        path: RepoPath,
    },
    /// A tree with more files than a checkout could have.
    #[error(
        "the tree {tree_id} holds more than {limit} files, directories counted each time they occur"
    )]
    TooManyFiles {
        /// Tree whose files were counted.
        tree_id: ObjectId,
        /// Maximum number of files.
        limit: u64,
    },
    /// A checkout that cannot be fast-forwarded.
    ///
    /// Files would be lost, or its branch is not behind.
    #[error("the checkout at {dir} cannot follow: {reason}")]
    CheckoutInTheWay {
        /// Directory of the checkout.
        dir: PathBuf,
        /// Message of git, or another cause.
        reason: String,
    },
    /// A checkout with files of two commits, and possibly truncated ones.
    #[error(
        "the checkout at {dir} is half way to another commit, and cannot be taken back: {reason}"
    )]
    CheckoutHalfMoved {
        /// Directory of the checkout.
        dir: PathBuf,
        /// Cause of the failed rollback.
        reason: String,
        /// Cause of the failed move.
        cause: Box<GitError>,
    },
    /// Ignored files, nested repositories or pipes where the commit has files.
    #[error("what git does not track is in the way in the checkout at {dir}")]
    UntrackedInTheWay {
        /// Directory of the checkout.
        dir: PathBuf,
        /// Paths relative to `dir`.
        paths: Vec<RepoPath>,
    },
    /// A ref that does not have the expected value.
    #[error("the ref {name} moved while it was being changed")]
    RefMoved {
        /// Name of the ref, short or full.
        name: String,
    },
    /// An index that is locked.
    ///
    /// Another git command holds the lock, or left it when it died.
    #[error("the index is locked by {lock}")]
    IndexLocked {
        /// Lock file.
        lock: PathBuf,
    },
    /// A ref that is locked.
    ///
    /// Another git command holds the lock, or left it when it died.
    #[error("the ref {name} is locked by {lock}")]
    RefLocked {
        /// Full name of the ref, or `packed-refs`.
        name: String,
        /// Lock file.
        lock: PathBuf,
    },
    /// Two commits without a merge base.
    #[error("the histories have no commit in common")]
    UnrelatedHistories,
    /// A remote that is not configured.
    #[error("{}", match name { Some(name) => format!("there is no remote called {name}"), None => "no remote is named, and none is the one to take".to_owned() })]
    NoSuchRemote {
        /// Requested name; `None` for an undefined default remote.
        name: Option<String>,
    },
    /// A fork whose state the remote does not have.
    #[error("the remote {remote} has no fork called {name}")]
    NoSuchState {
        /// Name or URL of the remote.
        remote: String,
        /// Name of the fork.
        name: String,
    },
    /// A remote ref that changed since the last push or fetch.
    #[error("{name} on the remote {remote} is not what was last pushed or taken up here")]
    RemoteMoved {
        /// Name or URL of the remote.
        remote: String,
        /// Name of the ref or fork.
        name: String,
        /// Value on the remote; `None` if missing or unreadable.
        found: Option<ObjectId>,
    },
    /// A push that the remote or one of its hooks refused.
    #[error("the remote {remote} refused {name}")]
    RemoteRefused {
        /// Name or URL of the remote.
        remote: String,
        /// Name of the ref or fork.
        name: String,
        /// Output lines of git or of the hook.
        said: Vec<String>,
    },
    /// A remote that denied access.
    #[error("the remote {remote} does not let you in")]
    RemoteDenied {
        /// Name or URL of the remote.
        remote: String,
        /// Output lines of git.
        said: Vec<String>,
    },
    /// A remote that did not answer.
    #[error("the remote {remote} cannot be reached")]
    RemoteUnreachable {
        /// Name or URL of the remote.
        remote: String,
        /// Output lines of git.
        said: Vec<String>,
    },
    /// A push that a local hook refused.
    #[error("a hook kept {name} from being pushed")]
    PushHook {
        /// Name of the ref or fork.
        name: String,
        /// Output lines of the hook.
        said: Vec<String>,
    },
    /// Text that `git apply` cannot parse as a patch.
    #[error("this is no patch that git can read: {reason}")]
    BadPatch {
        /// Message of git.
        reason: String,
    },
    /// A file that is not a mailbox, or contains no patch.
    #[error("it is not a mailbox of patches: {reason}")]
    NotAMailbox {
        /// Cause, as the end of a sentence.
        reason: String,
    },
    /// An author or committer that is neither given nor configured.
    #[error("no identity: {0}")]
    NoIdentity(String),
    /// A git program older than tine needs.
    #[error("git {wanted} or newer is needed, {found} was found")]
    GitTooOld {
        /// Oldest version that works.
        wanted: String,
        /// Installed version.
        found: String,
    },
    /// A git program that cannot be started.
    #[error("the git program cannot be run: {0}")]
    GitMissing(#[source] std::io::Error),
    /// A git command with a nonzero exit status.
    #[error("git {command} failed: {stderr}")]
    GitFailed {
        /// Arguments of git, joined by spaces.
        command: String,
        /// Error output of git.
        stderr: String,
    },
    /// A slow operation refused on a [nonblocking](super::nonblocking) thread.
    #[error("it would take long")]
    TakesLong,
    /// A failed system call on a file.
    #[error("{action} {path}: {source}")]
    Io {
        /// Verb of the failed action: `read`.
        action: &'static str,
        /// File that the action was on.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A file content that could not be read to write a blob.
    #[error("the content of a file cannot be read: {reason}")]
    UnreadableContent {
        /// Cause, as the end of a sentence.
        reason: String,
    },
    /// A HEAD file that does not contain a ref or commit id.
    #[error("{path} is damaged: {reason}")]
    DamagedHead {
        /// HEAD file of the worktree.
        path: PathBuf,
        /// Cause, as the end of a sentence.
        reason: String,
    },
    /// A loose ref without a value, or one whose object is missing.
    ///
    /// A power cut can leave an empty ref file.
    #[error("the ref {name} is damaged: {reason}")]
    DamagedRef {
        /// Full name of the ref.
        name: String,
        /// Cause, as the end of a sentence.
        reason: String,
    },
    /// A failure of the git library without a variant here.
    #[error("{action}: {reason}")]
    Library {
        /// Failed action: `read the index`.
        action: &'static str,
        /// Messages of the error and its causes.
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

/// Returns the message of an error followed by those of its causes.
///
/// The git library's own messages describe only the outermost error.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // A marker in the chain gives the class of an error. It has no message.
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
