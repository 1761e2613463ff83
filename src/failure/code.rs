//! Stable codes of failures, and exit codes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Exit codes; `docs/errors.md` lists them.
///
/// `tine exec` exits with the code of its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExitCode {
    /// The command succeeded.
    Success,
    /// The system, the disk or the repository failed.
    Failure,
    /// The command line is not valid (clap's own code, too).
    Usage,
    /// Refused because of conflicts or uncommitted work; nothing was changed.
    Refused,
    /// The named object does not exist.
    NotFound,
    /// The object to make already exists, or is in use.
    Conflict,
    /// This machine cannot do it: missing `/dev/fuse`, git or permission.
    Environment,
    /// There was nothing to do.
    Nothing,
    /// The time ran out.
    Timeout,
    /// The allowed number of attempts is used up.
    Spent,
}

impl ExitCode {
    /// All exit codes, in the order of the documentation.
    pub const ALL: &'static [ExitCode] = &[
        ExitCode::Success,
        ExitCode::Failure,
        ExitCode::Usage,
        ExitCode::Refused,
        ExitCode::NotFound,
        ExitCode::Conflict,
        ExitCode::Environment,
        ExitCode::Nothing,
        ExitCode::Timeout,
        ExitCode::Spent,
    ];

    /// Returns the number that the process exits with.
    pub fn code(self) -> u8 {
        match self {
            ExitCode::Success => 0,
            ExitCode::Failure => 1,
            ExitCode::Usage => 2,
            ExitCode::Refused => 3,
            ExitCode::NotFound => 4,
            ExitCode::Conflict => 5,
            ExitCode::Environment => 6,
            ExitCode::Nothing => 7,
            ExitCode::Timeout => 8,
            ExitCode::Spent => 9,
        }
    }
}

/// Declares each code once: name, text on the wire, exit code.
macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $exit:ident;)*) => {
        /// Stable codes of failures, for machines.
        ///
        /// `docs/errors.md` lists them with cause and hint.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum ErrorCode {
            $($(#[$doc])* #[serde(rename = $text)] $name,)*
        }

        impl ErrorCode {
            /// All codes, in the order of the documentation.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name),*];

            /// Returns the code's text on the wire, in kebab-case.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(ErrorCode::$name => $text,)*
                }
            }

            /// Returns the exit code of a command that fails with this code.
            pub fn exit(self) -> ExitCode {
                match self {
                    $(ErrorCode::$name => ExitCode::$exit,)*
                }
            }
        }
    };
}

error_codes! {
    /// Request or command line that is not valid.
    Usage = "usage", Usage;
    /// The directory is not in a git repository.
    NotARepository = "not-a-repository", NotFound;
    /// The repository uses a format or feature that tine does not support.
    UnsupportedRepository = "unsupported-repository", Environment;
    /// A word does not name a commit or tree.
    UnknownRevision = "unknown-revision", NotFound;
    /// Another worktree has the branch checked out.
    BranchCheckedOut = "branch-checked-out", Conflict;
    /// A branch of that name already exists.
    BranchExists = "branch-exists", Conflict;
    /// No branch has that name.
    NoSuchBranch = "no-such-branch", NotFound;
    /// The branch has commits that nothing else reaches.
    BranchNotMerged = "branch-not-merged", Refused;
    /// The name is not a valid branch name.
    InvalidBranch = "invalid-branch", Usage;
    /// An object of the repository is damaged or missing.
    CorruptObject = "corrupt-object", Failure;
    /// The main repository does not have HEAD of the fork.
    NotTakenOver = "not-taken-over", Refused;
    /// A tree contains names that a checkout must not have.
    HostileTree = "hostile-tree", Failure;
    /// The file of a branch does not contain a valid ref.
    RefDamaged = "ref-damaged", Failure;
    /// Another process moved the ref in the meantime.
    RefMoved = "ref-moved", Conflict;
    /// Another command of tine holds the lease of a branch or checkout.
    LeaseHeld = "lease-held", Conflict;
    /// The fork's branch was moved by another process.
    MovedUnder = "moved-under", Refused;
    /// The fork's branch was deleted.
    BranchGone = "branch-gone", Refused;
    /// Another process holds the lock of an index.
    IndexLocked = "index-locked", Conflict;
    /// Another process holds the lock of a ref.
    RefLocked = "ref-locked", Conflict;
    /// The two commits have no common ancestor.
    UnrelatedHistories = "unrelated-histories", Refused;
    /// git has no name or mail address for a commit.
    NoIdentity = "no-identity", Environment;
    /// The program `git` is not installed.
    GitMissing = "git-missing", Environment;
    /// The installed git is too old.
    GitTooOld = "git-too-old", Environment;
    /// git or its library failed.
    GitFailed = "git-failed", Failure;
    /// No fork has that name.
    NoSuchFork = "no-such-fork", NotFound;
    /// A fork of that name already exists.
    ForkExists = "fork-exists", Conflict;
    /// The fork has no snapshot of that name.
    NoSuchSnapshot = "no-such-snapshot", NotFound;
    /// The fork already has a snapshot of that name.
    SnapshotExists = "snapshot-exists", Conflict;
    /// A word does not name a snapshot, fork or revision.
    NoSuchPoint = "no-such-point", NotFound;
    /// No entry of `tine recover` has that number.
    NothingToRecover = "nothing-to-recover", NotFound;
    /// Objects that a restore needs are no longer in the repository.
    HistoryGone = "history-gone", Failure;
    /// The name is not a valid fork name.
    InvalidForkName = "invalid-fork-name", Usage;
    /// No fork is named, and the directory is not in one.
    NotInFork = "not-in-fork", Usage;
    /// A newer version of tine wrote the store or state.
    NewerFormat = "newer-format", Environment;
    /// Another process has the store open.
    StoreLocked = "store-locked", Conflict;
    /// A file of the store is damaged.
    StoreDamaged = "store-damaged", Failure;
    /// `/dev/fuse` is missing.
    NoFuse = "no-fuse", Environment;
    /// The user is not permitted to use FUSE.
    FuseNotPermitted = "fuse-not-permitted", Environment;
    /// `fusermount3` is missing, which users other than root need.
    NoFusermount = "no-fusermount", Environment;
    /// `tine exec --at-origin` cannot make a mount namespace.
    NamespaceNotPermitted = "namespace-not-permitted", Environment;
    /// The mount place is not an empty directory.
    MountDirNotEmpty = "mount-dir-not-empty", Conflict;
    /// The mount place is in a checkout, git directory or other fork.
    MountDirRefused = "mount-dir-refused", Usage;
    /// Mounting or unmounting failed.
    MountFailed = "mount-failed", Failure;
    /// The fork is not mounted.
    NotMounted = "not-mounted", Conflict;
    /// Programs use the mount, or the daemon has too many clients.
    Busy = "busy", Conflict;
    /// The path does not exist in the fork.
    NoSuchPath = "no-such-path", NotFound;
    /// The destination already exists.
    PathExists = "path-exists", Conflict;
    /// The file at a path has the wrong kind for the command.
    WrongKind = "wrong-kind", Refused;
    /// A path that commands must not change, or outside the fork.
    PathRefused = "path-refused", Usage;
    /// The text that an edit replaces is not in the file.
    EditNotFound = "edit-not-found", Refused;
    /// The text that an edit replaces is in the file several times.
    EditAmbiguous = "edit-ambiguous", Refused;
    /// An edit would replace a text by the same text.
    EditIdentical = "edit-identical", Usage;
    /// An edit names no text to replace, or there is no edit.
    EditEmpty = "edit-empty", Usage;
    /// The text to edit or to write is not UTF-8.
    NotText = "not-text", Refused;
    /// The file is too large to edit or open as buffer.
    TooLarge = "too-large", Refused;
    /// A regular expression or glob is not valid.
    BadPattern = "bad-pattern", Usage;
    /// No editor has the file open.
    NoSuchBuffer = "no-such-buffer", NotFound;
    /// Another editor has the file open.
    BufferTaken = "buffer-taken", Conflict;
    /// An editor's message is about another version of its text.
    BufferStale = "buffer-stale", Refused;
    /// A tool's text is based on unsaved text that is gone.
    ///
    /// The editor that had the text has ended, or the agent has not read the open buffer.
    UnsavedRead = "unsaved-read", Refused;
    /// The command cannot change to or from a sparse checkout.
    SparseCheckout = "sparse-checkout", Refused;
    /// A file that is in no changeset would be lost.
    InTheWay = "in-the-way", Refused;
    /// There is no operation to undo or redo.
    NothingToUndo = "nothing-to-undo", Refused;
    /// The operation cannot be undone in the present state.
    CannotUndo = "cannot-undo", Refused;
    /// HEAD, refs and index of that point are not recorded, or cannot be restored.
    NoGitPoint = "no-git-point", Refused;
    /// The command would drop uncommitted work.
    UncommittedChanges = "uncommitted-changes", Refused;
    /// There are no changes against HEAD.
    NothingToCommit = "nothing-to-commit", Refused;
    /// Uncommitted changes are at paths that the command would change.
    LocalChanges = "local-changes", Refused;
    /// No review has that number.
    NoSuchReview = "no-such-review", NotFound;
    /// The merge at an unmount has conflicts.
    MergeConflicts = "merge-conflicts", Refused;
    /// The command would undo commits of others.
    TakesBack = "takes-back", Refused;
    /// The review is closed, or has an open conflict.
    ReviewState = "review-state", Refused;
    /// A side of the review has new commits.
    ReviewOutdated = "review-outdated", Refused;
    /// The review has no conflict at the path.
    NoSuchConflict = "no-such-conflict", NotFound;
    /// The input is not a patch or a mailbox of patches.
    BadPatch = "bad-patch", Usage;
    /// A picked commit would change nothing.
    EmptyPick = "empty-pick", Refused;
    /// A merge of a tree without a commit needs a base.
    NoMergeBase = "no-merge-base", Usage;
    /// The merge is not a fast-forward.
    NotFastForward = "not-fast-forward", Refused;
    /// No handoff has that number.
    NoSuchHandoff = "no-such-handoff", NotFound;
    /// The handoff is being made, or deleting it would lose work.
    HandoffState = "handoff-state", Refused;
    /// The mailbox of a handoff could not be made.
    HandoffFailed = "handoff-failed", Failure;
    /// The file is not a mailbox of patches.
    NotAMailbox = "not-a-mailbox", Usage;
    /// The time ran out.
    Timeout = "timeout", Timeout;
    /// No session of rounds has that name.
    NoSuchSession = "no-such-session", NotFound;
    /// No agent of the session has that name or fork.
    NoSuchAgent = "no-such-agent", NotFound;
    /// The round is at another step, or its result would be lost.
    RoundState = "round-state", Refused;
    /// The directory for a session's result has other changes.
    DirectoryChanged = "directory-changed", Refused;
    /// The agent has used all attempts of the round.
    BudgetSpent = "budget-spent", Spent;
    /// A commit needs a message.
    EmptyMessage = "empty-message", Usage;
    /// No remote has that name.
    NoSuchRemote = "no-such-remote", NotFound;
    /// The remote has no valid fork of that name.
    NoSuchState = "no-such-state", NotFound;
    /// The remote's fork has changed since the last push or take-up.
    RemoteMoved = "remote-moved", Refused;
    /// The remote, or a hook there, refused a push.
    RemoteRefused = "remote-refused", Refused;
    /// The remote denied access.
    RemoteDenied = "remote-denied", Environment;
    /// The remote cannot be reached.
    RemoteUnreachable = "remote-unreachable", Failure;
    /// A merge, rebase or the like is in progress in the fork.
    OperationInProgress = "operation-in-progress", Refused;
    /// A hook of the repository stopped the command.
    HookRefused = "hook-refused", Refused;
    /// A hook failed that runs after the command.
    ///
    /// The command's changes stay.
    HookFailed = "hook-failed", Failure;
    /// The command of `tine.setup` failed in a new fork.
    SetupFailed = "setup-failed", Failure;
    /// The disk is full.
    NoSpace = "no-space", Failure;
    /// The system denied access.
    PermissionDenied = "permission-denied", Environment;
    /// The daemon did not start, has ended, or does not answer.
    DaemonUnreachable = "daemon-unreachable", Failure;
    /// Client and daemon are of different versions.
    ProtocolMismatch = "protocol-mismatch", Conflict;
    /// The program to run does not exist.
    CommandNotFound = "command-not-found", NotFound;
    /// The client of an MCP server cancelled the call.
    Cancelled = "cancelled", Failure;
    /// A system call failed.
    Io = "io", Failure;
    /// A panic interrupted a change.
    ///
    /// The fork is read-only until it is mounted again.
    ForkInterrupted = "fork-interrupted", Failure;
    /// A bug in tine.
    Internal = "internal", Failure;
}

impl ErrorCode {
    /// Returns the default hint of failures with this code.
    pub fn hint(self) -> Option<&'static str> {
        match self {
            ErrorCode::Internal => Some(
                "this is a fault of tine's: please report it, with the end of `daemon.log` in the store",
            ),
            ErrorCode::ForkInterrupted => Some(
                "`tine unmount --keep FORK` and `tine mount FORK` open it again, with all that was acknowledged",
            ),
            ErrorCode::NewerFormat => Some("use the tine that made it, or a newer one"),
            ErrorCode::StoreLocked => Some(
                "`tine daemon status` shows who has it; another program that uses the library must end first",
            ),
            ErrorCode::Io => Some("see to the cause, then try again"),
            ErrorCode::StoreDamaged => Some(
                "`tine check` tells what is damaged and what can be done; what was committed is safe in git",
            ),
            ErrorCode::RefDamaged => Some(
                "`tine check` says where it was last, and `tine check --repair` puts it back there",
            ),
            ErrorCode::GitFailed => {
                Some("`git fsck` checks the repository, `tine doctor` the rest")
            }
            _ => None,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_code_is_documented_with_its_exit_code_and_nothing_else_is() {
        let page = include_str!("../../docs/errors.md");
        let (_, table) = page.split_once("## Codes").unwrap();
        let documented: BTreeMap<&str, u8> = table
            .lines()
            .filter_map(|line| line.strip_prefix("| `"))
            .map(|line| {
                let (code, rest) = line.split_once("` | ").unwrap();
                let cells: Vec<&str> = rest.split(" | ").collect();
                assert_eq!(cells.len(), 3, "{line}");
                (code, cells[0].parse().unwrap())
            })
            .collect();
        let known: BTreeMap<&str, u8> = ErrorCode::ALL
            .iter()
            .map(|code| (code.as_str(), code.exit().code()))
            .collect();
        assert_eq!(documented, known);
    }

    #[test]
    fn every_exit_code_is_documented() {
        let page = include_str!("../../docs/errors.md");
        for exit in ExitCode::ALL {
            let name = serde_json::to_value(exit).unwrap();
            let row = format!("| {} | `{}` |", exit.code(), name.as_str().unwrap());
            assert!(page.contains(&row), "{row}");
        }
    }

    #[test]
    fn a_code_is_the_same_text_everywhere() {
        for code in ErrorCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
