//! Errors of the repository.

use std::io;
use std::path::{Path, PathBuf};

use gix::ObjectId;
use thiserror::Error;

use tine_failure::{ErrorCode, Failure, ToFailure, is_out_of_files, no_space, out_of_files};
use tine_path::shell::{shell_path, shell_word};
use tine_path::{PathError, RepoPath};

/// Maximum number of paths in the way that a failure names.
const MAX_PATHS_SHOWN: usize = 5;

/// A failure of the repository or of the git program.
#[derive(Debug, Error, ToFailure)]
pub enum GitError {
    /// A directory outside every git repository.
    #[error("{0} is not inside a git repository")]
    #[failure(NotARepository)]
    #[hint("go into a git repository, or name one: `tine -C DIR …`; `git init` makes a new one")]
    NotARepository(PathBuf),
    /// A repository with a format or extension that tine cannot read.
    #[error("the repository at {dir} cannot be used: {reason}")]
    #[failure(UnsupportedRepository, cause = reason)]
    #[hint("`git status` in it says what git thinks of it, `tine doctor` what tine needs")]
    UnsupportedRepository {
        /// Common directory of the repository.
        dir: PathBuf,
        /// Cause, as the end of a sentence.
        reason: String,
    },
    /// A repository of another user, which git refuses too (`safe.directory`).
    #[error("the repository at {dir} belongs to another user")]
    #[failure(
        UnsupportedRepository,
        cause = "git and tine run nothing that another user has configured there"
    )]
    #[hint(
        "if you trust it: `git config --global --add safe.directory {}`",
        shell_path(dir)
    )]
    UntrustedRepository {
        /// Directory to add to `safe.directory`.
        dir: PathBuf,
    },
    /// A repository inside a directory, whose files a commit could not contain.
    #[error("{0} is a repository of its own")]
    #[failure(Usage)]
    #[hint("a directory without git must be so with all that is in it: move the repository away")]
    NestedRepository(PathBuf),
    /// A sparse checkout in a linked worktree without settings of its own.
    #[error("a linked worktree of this repository cannot have a sparse checkout")]
    #[failure(
        UnsupportedRepository,
        cause = "`extensions.worktreeConfig` would change what other worktrees read"
    )]
    #[hint("`git sparse-checkout disable` in the fork checks out every path")]
    NoWorktreeConfig,
    /// A revision that does not name an object of the wanted kind.
    #[error("the revision {0:?} does not exist")]
    #[failure(UnknownRevision)]
    #[hint(
        "`git log --all --oneline` lists commits, `git branch -a` branches; fetch what is missing first"
    )]
    UnknownRevision(String),
    /// A branch that another worktree has checked out.
    ///
    /// [`Repository::prepare_checkout_move`](super::Repository::prepare_checkout_move) also returns
    /// it if the checkout is no longer on the branch.
    #[error("the branch {branch:?} is checked out at {at}")]
    #[failure(BranchCheckedOut)]
    #[hint(take_it_off(at))]
    BranchCheckedOut {
        /// Short name.
        branch: String,
        /// Directory of that worktree.
        at: PathBuf,
    },
    /// A branch (short name) that exists, or conflicts with the wanted name.
    #[error("the branch {0:?} exists already")]
    #[failure(BranchExists)]
    #[hint(
        "choose another name; `tine new NAME --branch {branch}`, without `--from`, makes a fork that goes on with it",
        branch = shell_word(_0)
    )]
    BranchExists(String),
    /// A symbolic ref to a branch that does not exist.
    #[error("the branch {alias:?} is an alias of {target:?}, which does not exist")]
    #[failure(NoSuchBranch)]
    #[hint(remove_alias(alias))]
    DanglingAlias {
        /// Short name of the symbolic ref.
        alias: String,
        /// Name of the missing branch.
        target: String,
    },
    /// A chain of symbolic refs that never reaches a branch.
    #[error("the branch {alias:?} is an alias that leads to itself, or through too many others")]
    #[failure(NoSuchBranch)]
    #[hint(remove_alias(alias))]
    AliasLoop {
        /// Short name of the first symbolic ref.
        alias: String,
    },
    /// An alias where only a branch can be renamed.
    #[error("{alias:?} is an alias of the branch {branch:?}")]
    #[failure(BranchExists)]
    #[hint(
        "`tine branch rename {} NEW` renames the branch, once `tine branch delete {}` has removed the alias",
        shell_word(branch),
        shell_word(alias)
    )]
    IsAlias {
        /// Short name of the symbolic ref.
        alias: String,
        /// Short name of the branch that it leads to.
        branch: String,
    },
    /// A branch with an alias, which a rename would leave dangling.
    #[error("the branch {branch:?} has the alias {alias:?}, which would lead nowhere")]
    #[failure(BranchExists)]
    #[hint(
        "`tine branch delete {}` removes the alias alone; then try again",
        shell_word(alias)
    )]
    HasAlias {
        /// Short name of the symbolic ref.
        alias: String,
        /// Short name of the branch.
        branch: String,
    },
    /// A name that git does not accept for a branch.
    #[error("{0:?} is not a valid branch name")]
    #[failure(InvalidBranch)]
    #[hint("`git help check-ref-format` says what a branch may be called")]
    InvalidBranchName(String),
    /// An object that is not in the repository and cannot be fetched.
    #[error("the object {id} is missing")]
    #[failure(CorruptObject)]
    #[hint(
        "`git fsck` shows what is missing; in a shallow or partial clone `git fetch` brings it back"
    )]
    MissingObject {
        /// Id of the object.
        id: ObjectId,
    },
    /// An object that is damaged, too large, or of an unexpected kind.
    #[error("the object {id} cannot be read: {reason}")]
    #[failure(CorruptObject, cause = reason)]
    #[hint("`git fsck` shows what is damaged; `git fetch --refetch` brings it from a remote")]
    CorruptObject {
        /// Id by which the object was read.
        id: ObjectId,
        /// Cause, as the end of a sentence.
        reason: String,
    },
    /// A tree with a forbidden name, such as `..` or `.git`.
    #[error("the tree {tree_id} holds an entry that no checkout may have: {source}")]
    #[failure(HostileTree, cause = source)]
    #[hint("choose another revision with `--from REV`; `git fsck` names the commits")]
    HostileTree {
        /// Tree with the entry.
        tree_id: ObjectId,
        /// Rule that the name breaks.
        source: PathError,
    },
    /// A path that a checkout must refuse.
    #[error("the tree holds {path}, which no checkout may have")]
    #[failure(HostileTree)]
    #[hint("choose another revision with `--from REV`; `git fsck` names the commits")]
    HostilePath {
        /// Path relative to the tree.
        path: RepoPath,
    },
    /// A tree with more files than a checkout could have.
    #[error(
        "the tree {tree_id} holds more than {limit} files, directories counted each time they occur"
    )]
    #[failure(HostileTree)]
    #[hint("no checkout of it is possible: choose another revision with `--from REV`")]
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
    #[failure(LocalChanges, cause = reason)]
    #[hint(
        "commit or stash what is uncommitted there (`git status` shows it), then merge again; nothing was changed"
    )]
    CheckoutInTheWay {
        /// Directory of the checkout.
        dir: PathBuf,
        /// Message of git, or another cause.
        reason: String,
    },
    /// A checkout with files of two commits, and possibly truncated ones.
    #[error("the checkout at {dir} is half way to another commit: {reason}")]
    #[failure(with = half_moved(dir, reason, cause))]
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
    #[failure(InTheWay, causes = paths.iter().take(MAX_PATHS_SHOWN), paths = paths)]
    #[hint("move it elsewhere there, then merge again; nothing was changed")]
    UntrackedInTheWay {
        /// Directory of the checkout.
        dir: PathBuf,
        /// Paths relative to `dir`.
        paths: Vec<RepoPath>,
    },
    /// A ref that does not have the expected value.
    #[error("the ref {name} moved while it was being changed")]
    #[failure(RefMoved)]
    #[hint("another process was faster: try again")]
    RefMoved {
        /// Name of the ref, short or full.
        name: String,
    },
    /// An index that is locked.
    ///
    /// Another git command holds the lock, or left it when it died.
    #[error("the index is locked by {lock}")]
    #[failure(IndexLocked)]
    #[hint(held_lock(lock))]
    IndexLocked {
        /// Lock file.
        lock: PathBuf,
    },
    /// A ref that is locked.
    ///
    /// Another git command holds the lock, or left it when it died.
    #[error("the ref {name} is locked by {lock}")]
    #[failure(RefLocked)]
    #[hint(held_lock(lock))]
    RefLocked {
        /// Full name of the ref, or `packed-refs`.
        name: String,
        /// Lock file.
        lock: PathBuf,
    },
    /// Two commits without a merge base.
    #[error("the histories have no commit in common")]
    #[failure(UnrelatedHistories)]
    #[hint("`--allow-unrelated` merges them even so, `--base REV` names a base")]
    UnrelatedHistories,
    /// A remote that is not configured.
    #[error("{}", match name { Some(name) => format!("there is no remote called {name}"), None => "no remote is named, and none is the one to take".to_owned() })]
    #[failure(NoSuchRemote)]
    #[hint("`git remote -v` lists the remotes, `git remote add NAME URL` makes one")]
    NoSuchRemote {
        /// Requested name; `None` for an undefined default remote.
        name: Option<String>,
    },
    /// A fork whose state the remote does not have.
    #[error("the remote {remote} has no fork called {name}")]
    #[failure(NoSuchState)]
    #[hint("`tine fetch {remote}` shows the forks that it has, `tine push` sends one")]
    NoSuchState {
        /// Name or URL of the remote.
        remote: String,
        /// Name of the fork.
        name: String,
    },
    /// A remote ref that changed since the last push or fetch.
    #[error("{name} on the remote {remote} is not what was last pushed or taken up here")]
    #[failure(RemoteMoved)]
    #[hint(
        "`tine fetch {remote}`, then `tine new OTHER --from-remote {name}` takes it up; `--as NAME` pushes as another; `--force` overwrites it"
    )]
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
    #[failure(RemoteRefused, causes = said)]
    #[hint("do what the remote says; nothing was changed there")]
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
    #[failure(RemoteDenied, causes = said)]
    #[hint("see that `git ls-remote {remote}` works, and that you may push there")]
    RemoteDenied {
        /// Name or URL of the remote.
        remote: String,
        /// Output lines of git.
        said: Vec<String>,
    },
    /// A remote that did not answer.
    #[error("the remote {remote} cannot be reached")]
    #[failure(RemoteUnreachable, causes = said)]
    #[hint("`git ls-remote {remote}` shows whether git reaches it, `git remote -v` where it is")]
    RemoteUnreachable {
        /// Name or URL of the remote.
        remote: String,
        /// Output lines of git.
        said: Vec<String>,
    },
    /// A push that a local hook refused.
    #[error("a hook kept {name} from being pushed")]
    #[failure(HookRefused, causes = said)]
    #[hint("do what the hook `pre-push` says; nothing was sent")]
    PushHook {
        /// Name of the ref or fork.
        name: String,
        /// Output lines of the hook.
        said: Vec<String>,
    },
    /// Text that `git apply` cannot parse as a patch.
    #[error("git cannot read this as a patch: {reason}")]
    #[failure(BadPatch, cause = reason)]
    #[hint(
        "a patch is what `git diff --binary` or `diff -u` prints; `-p0` is for one whose paths have no `a/` and `b/`"
    )]
    BadPatch {
        /// Message of git.
        reason: String,
    },
    /// A file that is not a mailbox, or contains no patch.
    #[error("it is not a mailbox of patches: {reason}")]
    #[failure(NotAMailbox, cause = reason)]
    #[hint("`git format-patch --stdout BASE..HEAD` makes one")]
    NotAMailbox {
        /// Cause, as the end of a sentence.
        reason: String,
    },
    /// An author or committer that is neither given nor configured.
    #[error("git does not know who commits: {0}")]
    #[failure(NoIdentity, cause = _0)]
    #[hint("`git config user.name NAME` and `git config user.email ADDRESS`")]
    NoIdentity(String),
    /// A git program older than tine needs.
    #[error("git {wanted} or newer is needed, {found} was found")]
    #[failure(GitTooOld)]
    #[hint("install a newer git (on Debian: `apt install git`)")]
    GitTooOld {
        /// Oldest version that works.
        wanted: String,
        /// Installed version.
        found: String,
    },
    /// A git program that cannot be started.
    #[error("the git program cannot be run: {0}")]
    #[failure(with = cannot_run(_0))]
    GitMissing(#[source] std::io::Error),
    /// A git command with a nonzero exit status.
    #[error("git {command} failed: {stderr}")]
    #[failure(with = git_failed(command, stderr))]
    GitFailed {
        /// Arguments of git, joined by spaces.
        command: String,
        /// Error output of git.
        stderr: String,
    },
    /// A slow operation refused on a [nonblocking](super::nonblocking) thread.
    #[error("it would take long")]
    // Only a mount's threads are nonblocking, and they retry.
    #[failure(GitFailed)]
    #[hint("try again")]
    TakesLong,
    /// A failed system call on a file.
    #[error("{action} {path}: {source}")]
    #[failure(with = Failure::io(action, path, source))]
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
    #[failure(StoreDamaged, cause = reason)]
    #[hint("`tine check` names what is damaged and what to do about it")]
    UnreadableContent {
        /// Cause, as the end of a sentence.
        reason: String,
    },
    /// A HEAD file that does not contain a ref or commit id.
    #[error("{path} is damaged: {reason}")]
    #[failure(GitFailed, cause = reason)]
    #[hint(
        "`echo 'ref: refs/heads/BRANCH' > {}` puts it on a branch again",
        shell_path(path)
    )]
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
    #[failure(RefDamaged, message("{name} is damaged"), cause = reason)]
    DamagedRef {
        /// Full name of the ref.
        name: String,
        /// Cause, as the end of a sentence.
        reason: String,
    },
    /// A failure of the git library without a variant here.
    #[error("{action}: {reason}")]
    #[failure(with = library_failed(action, reason))]
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

/// Returns the hint for a branch that the checkout at `at` has.
fn take_it_off(at: &Path) -> &'static str {
    if at.exists() {
        "`git -C DIR switch --detach` takes that checkout off the branch; `tine new` takes another one with `--branch NAME`"
    } else {
        "its directory is gone: `git worktree prune` forgets that worktree, then try again"
    }
}

/// Returns the hint for an alias that leads nowhere.
fn remove_alias(alias: &str) -> String {
    format!(
        "`git symbolic-ref --delete refs/heads/{}` removes the alias",
        shell_word(alias)
    )
}

/// Returns the hint for a lock file of git.
fn held_lock(lock: &Path) -> String {
    format!(
        "another git command is at work: try again when it has ended; if there is none, one crashed: remove {}",
        lock.display()
    )
}

/// Makes the failure of a checkout between two commits.
fn half_moved(dir: &Path, reason: &str, cause: &GitError) -> Failure {
    let failure = Failure::new(
        ErrorCode::LocalChanges,
        format!("the checkout at {} is half way to another commit", dir.display()),
    )
    .cause(reason)
    .hint("commit nothing there: make room (`tine recover purge --all` lets kept work go), then merge again, which takes the files back first");
    // A full disk is the cause, not a user's changes.
    match cause.to_failure().code {
        code @ ErrorCode::NoSpace => failure.code(code),
        _ => failure,
    }
}

/// Makes the failure of a git program that does not start.
fn cannot_run(source: &io::Error) -> Failure {
    let failure = if is_out_of_files(source) {
        out_of_files("the git program cannot be run".to_owned())
    } else {
        Failure::new(ErrorCode::GitMissing, "the git program cannot be run")
            .hint("install git (on Debian: `apt install git`)")
    };
    failure.cause(source.to_string())
}

/// Makes the failure of a git command.
fn git_failed(command: &str, stderr: &str) -> Failure {
    let failure = if says_full(stderr) {
        no_space("git could not write")
    } else {
        Failure::new(ErrorCode::GitFailed, format!("`git {command}` failed"))
    };
    failure.cause(stderr)
}

/// Makes the failure of the git library.
fn library_failed(action: &str, reason: &str) -> Failure {
    let failure = if says_full(reason) {
        no_space(&format!("could not {action} in the repository"))
    } else {
        Failure::new(
            ErrorCode::GitFailed,
            format!("could not {action} in the repository"),
        )
    };
    failure.cause(reason)
}

/// Returns whether git or its library reports a full disk.
fn says_full(said: &str) -> bool {
    ["No space left on device", "Disk quota exceeded"]
        .iter()
        .any(|full| said.contains(full))
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

#[cfg(test)]
mod tests {
    use tine_failure::ExitCode;

    use super::*;

    #[test]
    fn a_full_disk_that_git_tells_of_is_no_space() {
        let full = || io::Error::from_raw_os_error(libc::ENOSPC);
        for error in [
            GitError::GitFailed {
                command: "commit-tree".into(),
                stderr: "error: unable to write file: No space left on device\n".into(),
            },
            GitError::GitFailed {
                command: "commit-tree".into(),
                stderr: "error: unable to write file: Disk quota exceeded\n".into(),
            },
            GitError::library("write a blob")(full()),
            GitError::CheckoutHalfMoved {
                dir: PathBuf::from("/r"),
                reason: "a file could not be put back".into(),
                cause: Box::new(GitError::io("move the checkout at", "/r")(full())),
            },
        ] {
            let failure = Failure::from(error);
            assert_eq!(failure.code, ErrorCode::NoSpace, "{failure}");
            assert_eq!(failure.exit, ExitCode::Failure);
        }
    }

    #[test]
    fn long_output_of_git_stays_one_line() {
        let failure = Failure::from(GitError::GitFailed {
            command: "commit".into(),
            stderr: "fatal: one\nfatal: two\n".into(),
        });
        assert_eq!(failure.causes, ["fatal: one; fatal: two"]);
        assert_eq!(failure.message.lines().count(), 1);
    }
}
