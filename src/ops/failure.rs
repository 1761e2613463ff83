//! What a person or a script is told when something fails: a message, its causes, a hint, a stable
//! code, an exit code.
//!
//! The errors of the layers beneath become failures in `convert`, one exhaustive match for each.

use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use tine_path::RepoPath;
use tine_path::shell::shell_word;
use tine_path::text::PathText;
use tine_sys::file::NotAFile;
use tine_workspace::ForkName;

/// Exit codes; `docs/errors.md` lists them. A command run by `tine exec` gives its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExitCode {
    Success,
    /// The system, the disk or the repository failed.
    Failure,
    /// The command line was not understood (clap's own code too).
    Usage,
    /// Refused because of conflicts or uncommitted work; nothing was changed.
    Refused,
    /// What was named does not exist.
    NotFound,
    /// What was to be made exists already, or is in use.
    Conflict,
    /// This machine cannot do it: no `/dev/fuse`, no git, no permission.
    Environment,
    /// There was nothing to do.
    Nothing,
    /// It was not done in the time that was given.
    Timeout,
    /// What may be tried so often has been tried as often.
    Spent,
}

impl ExitCode {
    /// Every exit code, in the order of the documentation.
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

/// Declares the codes once: name, text on the wire, exit code.
macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $exit:ident;)*) => {
        /// Stable codes of failures, for machines. `docs/errors.md` lists them with cause and hint.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum ErrorCode {
            $($(#[$doc])* #[serde(rename = $text)] $name,)*
        }

        impl ErrorCode {
            /// Every code, in the order of the documentation.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name),*];

            /// The code as machines see it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(ErrorCode::$name => $text,)*
                }
            }

            /// The exit code of a command that fails so.
            pub fn exit(self) -> ExitCode {
                match self {
                    $(ErrorCode::$name => ExitCode::$exit,)*
                }
            }
        }
    };
}

error_codes! {
    /// A request or command line that cannot be understood.
    Usage = "usage", Usage;
    NotARepository = "not-a-repository", NotFound;
    UnsupportedRepository = "unsupported-repository", Environment;
    UnknownRevision = "unknown-revision", NotFound;
    BranchCheckedOut = "branch-checked-out", Conflict;
    BranchExists = "branch-exists", Conflict;
    NoSuchBranch = "no-such-branch", NotFound;
    /// Commits would be left that nothing else reaches.
    BranchNotMerged = "branch-not-merged", Refused;
    InvalidBranch = "invalid-branch", Usage;
    CorruptObject = "corrupt-object", Failure;
    HostileTree = "hostile-tree", Failure;
    /// The file of a branch holds no ref.
    RefDamaged = "ref-damaged", Failure;
    RefMoved = "ref-moved", Conflict;
    /// Another command of tine's is at work on the branch or checkout.
    LeaseHeld = "lease-held", Conflict;
    /// The branch of a fork is not where the fork left it.
    MovedUnder = "moved-under", Refused;
    /// The branch of a fork was deleted.
    BranchGone = "branch-gone", Refused;
    IndexLocked = "index-locked", Conflict;
    RefLocked = "ref-locked", Conflict;
    UnrelatedHistories = "unrelated-histories", Refused;
    NoIdentity = "no-identity", Environment;
    GitMissing = "git-missing", Environment;
    GitTooOld = "git-too-old", Environment;
    GitFailed = "git-failed", Failure;
    NoSuchFork = "no-such-fork", NotFound;
    ForkExists = "fork-exists", Conflict;
    NoSuchSnapshot = "no-such-snapshot", NotFound;
    SnapshotExists = "snapshot-exists", Conflict;
    NoSuchPoint = "no-such-point", NotFound;
    NothingToRecover = "nothing-to-recover", NotFound;
    /// Commits on which others stand that are to come back.
    HistoryGone = "history-gone", Failure;
    InvalidForkName = "invalid-fork-name", Usage;
    NotInFork = "not-in-fork", Usage;
    NewerFormat = "newer-format", Environment;
    StoreLocked = "store-locked", Conflict;
    StoreDamaged = "store-damaged", Failure;
    NoFuse = "no-fuse", Environment;
    FuseNotPermitted = "fuse-not-permitted", Environment;
    NoFusermount = "no-fusermount", Environment;
    /// No mount namespace for `tine exec --at-origin`.
    NamespaceNotPermitted = "namespace-not-permitted", Environment;
    MountDirNotEmpty = "mount-dir-not-empty", Conflict;
    /// A place where no fork may be mounted: inside a checkout, a git directory or another fork.
    MountDirRefused = "mount-dir-refused", Usage;
    MountFailed = "mount-failed", Failure;
    NotMounted = "not-mounted", Conflict;
    Busy = "busy", Conflict;
    NoSuchPath = "no-such-path", NotFound;
    PathExists = "path-exists", Conflict;
    /// Something else is at a path than the command works on.
    WrongKind = "wrong-kind", Refused;
    /// A path that is no command's to change, or that leads out of the fork.
    PathRefused = "path-refused", Usage;
    /// A text that an edit is to replace is not in the file.
    EditNotFound = "edit-not-found", Refused;
    /// A text that an edit is to replace is in the file more than once.
    EditAmbiguous = "edit-ambiguous", Refused;
    /// An edit would replace a text by the same one.
    EditIdentical = "edit-identical", Usage;
    /// An edit names no text to replace, or there is no edit.
    EditEmpty = "edit-empty", Usage;
    /// What is to be edited, or written to a buffer, is not UTF-8.
    NotText = "not-text", Refused;
    TooLarge = "too-large", Refused;
    /// A regular expression or glob that cannot be understood.
    BadPattern = "bad-pattern", Usage;
    /// No editor has a file open.
    NoSuchBuffer = "no-such-buffer", NotFound;
    /// Another editor has the file open.
    BufferTaken = "buffer-taken", Conflict;
    /// What an editor says is about another version of its text.
    BufferStale = "buffer-stale", Refused;
    /// A tool would write over a file of which its agent was given unsaved changes that are gone
    /// with their editor.
    UnsavedRead = "unsaved-read", Refused;
    /// A sparse checkout cannot be taken back, nor gone back to.
    SparseCheckout = "sparse-checkout", Refused;
    /// Something that is in no changeset would be lost.
    InTheWay = "in-the-way", Refused;
    /// No operation is left to be taken back, or done again.
    NothingToUndo = "nothing-to-undo", Refused;
    /// What an operation did cannot be taken back as things are now.
    CannotUndo = "cannot-undo", Refused;
    UncommittedChanges = "uncommitted-changes", Refused;
    NothingToCommit = "nothing-to-commit", Refused;
    /// Uncommitted work is where something else is to be.
    LocalChanges = "local-changes", Refused;
    NoSuchReview = "no-such-review", NotFound;
    /// What a fork was to be merged into has other changes.
    MergeConflicts = "merge-conflicts", Refused;
    /// A commit or merge would take back what others have committed.
    TakesBack = "takes-back", Refused;
    /// The review is committed or aborted, or a conflict in it is open.
    ReviewState = "review-state", Refused;
    /// A side of the review has moved on.
    ReviewOutdated = "review-outdated", Refused;
    NoSuchConflict = "no-such-conflict", NotFound;
    /// What was given is no patch, or no mailbox of patches.
    BadPatch = "bad-patch", Usage;
    /// A commit that is to be made again would change nothing.
    EmptyPick = "empty-pick", Refused;
    NoMergeBase = "no-merge-base", Usage;
    NotFastForward = "not-fast-forward", Refused;
    NoSuchHandoff = "no-such-handoff", NotFound;
    /// The handoff is being made, or deleting it would lose work.
    HandoffState = "handoff-state", Refused;
    /// The handoff could not be made.
    HandoffFailed = "handoff-failed", Failure;
    NotAMailbox = "not-a-mailbox", Usage;
    /// What was waited for did not come in time.
    Timeout = "timeout", Timeout;
    NoSuchSession = "no-such-session", NotFound;
    NoSuchAgent = "no-such-agent", NotFound;
    /// The session's round is at another step, or its result would be lost.
    RoundState = "round-state", Refused;
    /// The directory that a session's result is to be written to has other changes.
    DirectoryChanged = "directory-changed", Refused;
    BudgetSpent = "budget-spent", Spent;
    EmptyMessage = "empty-message", Usage;
    NoSuchRemote = "no-such-remote", NotFound;
    /// No fork of that name is on the remote, or what is there is none.
    NoSuchState = "no-such-state", NotFound;
    /// The remote's fork is not what was last pushed or taken up here.
    RemoteMoved = "remote-moved", Refused;
    /// The remote, or a hook there, does not take it.
    RemoteRefused = "remote-refused", Refused;
    RemoteDenied = "remote-denied", Environment;
    RemoteUnreachable = "remote-unreachable", Failure;
    OperationInProgress = "operation-in-progress", Refused;
    HookRefused = "hook-refused", Refused;
    /// A hook failed that runs after what was done, and changes nothing about it.
    HookFailed = "hook-failed", Failure;
    /// The command of `tine.setup` failed in a new fork.
    SetupFailed = "setup-failed", Failure;
    NoSpace = "no-space", Failure;
    PermissionDenied = "permission-denied", Environment;
    DaemonUnreachable = "daemon-unreachable", Failure;
    ProtocolMismatch = "protocol-mismatch", Conflict;
    CommandNotFound = "command-not-found", NotFound;
    /// The client of an MCP server wanted it no more.
    Cancelled = "cancelled", Failure;
    Io = "io", Failure;
    /// A panic came amid a change: the fork is read-only until it is mounted anew.
    ForkInterrupted = "fork-interrupted", Failure;
    Internal = "internal", Failure;
}

impl ErrorCode {
    /// What to do about any failure with this code of which nothing better is known.
    pub fn hint(self) -> Option<&'static str> {
        match self {
            ErrorCode::Internal => Some(
                "this is a fault of tine's: please report it, with the end of `daemon.log` in the store",
            ),
            ErrorCode::ForkInterrupted => Some(
                "`tine unmount --keep FORK` and `tine mount FORK` open it anew, with all that was acknowledged",
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

/// A failure as it is shown and sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub code: ErrorCode,
    pub exit: ExitCode,
    /// One line: what happened, to what.
    pub message: String,
    /// What lay beneath it, outermost first.
    #[serde(default)]
    pub causes: Vec<String>,
    /// The paths that it is about, where they are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathText>,
    /// What to do next.
    #[serde(default)]
    pub hint: Option<String>,
}

/// The user to whom a mount at `path` belongs that lets this one not even look at it. Modes mean
/// nothing to root, and this does.
fn user_of_mount(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;

    let looked = std::fs::symlink_metadata(path);
    let is_shut = looked.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    if !is_shut || tine_sys::process::effective_uid() != 0 {
        return None;
    }
    Some(std::fs::metadata(path.parent()?).ok()?.uid())
}

impl Failure {
    /// A failure with the exit code that belongs to `code`, and the hint where one fits all that
    /// has it. Line breaks in `message` become semicolons.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Failure {
        Failure {
            code,
            exit: code.exit(),
            message: one_line(message.into()),
            causes: Vec::new(),
            paths: Vec::new(),
            hint: code.hint().map(str::to_owned),
        }
    }

    /// Names the paths that it is about.
    pub fn paths<'p>(mut self, paths: impl IntoIterator<Item = &'p RepoPath>) -> Failure {
        self.paths.extend(paths.into_iter().map(PathText::from));
        self
    }

    /// The daemon answered `asked`, in words, with another of the answers that its operation has.
    pub fn other_answer(asked: &str) -> Failure {
        Failure::new(
            ErrorCode::ProtocolMismatch,
            format!("the daemon answered {asked} with something else"),
        )
        .hint("the daemon may be of another version: `tine daemon stop` ends it, and the next command starts this one")
    }

    /// There is no fork of that name.
    pub fn no_such_fork(name: &ForkName) -> Failure {
        Failure::new(
            ErrorCode::NoSuchFork,
            format!("there is no fork called {name}"),
        )
        .hint(format!(
            "`tine list` shows the forks, `tine new {name}` makes this one"
        ))
    }

    /// No fork is named, and the caller is in none.
    pub fn not_in_fork() -> Failure {
        Failure::new(
            ErrorCode::NotInFork,
            "no fork is named, and this is not inside the mount of one",
        )
        .hint("give its NAME (`tine list` shows them), or go into its mount first")
    }

    /// What arrived is no such request, or none at all.
    pub fn not_understood(error: serde_json::Error) -> Failure {
        Failure::new(ErrorCode::Usage, "the daemon does not understand the request")
            .cause(error.to_string())
            .hint("the program that asked may be of another version: `tine daemon stop` ends the daemon, and the next command starts one that fits")
    }

    /// Adds what lay beneath.
    pub fn cause(mut self, cause: impl Into<String>) -> Failure {
        self.causes.push(one_line(cause.into()));
        self
    }

    /// Says what to do next, in place of an earlier hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Says what was being done when this happened: `context` becomes the message, the message the
    /// first cause.
    pub fn context(mut self, context: impl Into<String>) -> Failure {
        let message = std::mem::replace(&mut self.message, one_line(context.into()));
        self.causes.insert(0, message);
        self
    }

    /// An I/O error at `path`, where `action` is what was tried: `"open"`.
    pub fn io(action: &str, path: &Path, error: &io::Error) -> Failure {
        let failure = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => no_space(&path.display().to_string()),
            ErrorKind::PermissionDenied if let Some(uid) = user_of_mount(path) => Failure::new(
                ErrorCode::PermissionDenied,
                format!("not permitted to {action} {}", path.display()),
            )
            .hint(format!(
                "it is mounted by the daemon of user {uid}, and lets in nobody else, not even root: run the command as that user (`sudo -u '#{uid}' tine ...`)"
            )),
            ErrorKind::PermissionDenied => Failure::new(
                ErrorCode::PermissionDenied,
                format!("not permitted to {action} {}", path.display()),
            )
            .hint(format!(
                "`ls -ld {}` shows whose it is: run as that user, or choose another place",
                shell_word(path.as_os_str().as_bytes())
            )),
            ErrorKind::ReadOnlyFilesystem => Failure::new(
                ErrorCode::PermissionDenied,
                format!("not permitted to {action} {}", path.display()),
            )
            .hint("the file system is read-only, as the kernel makes one whose disk fails: see that it is well, and mount it again"),
            _ if error.raw_os_error() == Some(libc::EIO) => {
                Failure::new(ErrorCode::Io, format!("could not {action} {}", path.display()))
                    .hint("the disk answers with errors (`dmesg` tells more): see that it is well, then try again")
            }
            _ if NotAFile::in_error(error).is_some() => {
                Failure::new(ErrorCode::Io, format!("could not {action} {}", path.display())).hint(format!(
                    "`ls -ld {}` says what is there; move it away, then try again",
                    shell_word(path.as_os_str().as_bytes())
                ))
            }
            _ if is_out_of_files(error) => out_of_files(format!("could not {action} {}", path.display())),
            _ => Failure::new(ErrorCode::Io, format!("could not {action} {}", path.display())),
        };
        failure.cause(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for cause in &self.causes {
            write!(f, ": {cause}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// The process may have no more files open.
pub(super) fn out_of_files(message: String) -> Failure {
    Failure::new(ErrorCode::Io, message).hint(
        "unmount some forks, or end the daemon (`tine daemon stop`) and start it with a higher limit of open files (`ulimit -Hn`)",
    )
}

/// Whether the process, or the system, has as many files open as it may.
pub fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// The text without line breaks, so that a message stays one line.
fn one_line(text: String) -> String {
    if !text.contains(['\n', '\r']) {
        return text;
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

pub(super) fn no_space(place: &str) -> Failure {
    Failure::new(ErrorCode::NoSpace, format!("the disk is full: {place}"))
        .hint("free some space and try again: `tine recover purge --all`, `tine gc`, or `tine delete` a fork; `tine list` shows the size of each")
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

    #[test]
    fn messages_and_causes_stay_one_line() {
        let failure = Failure::new(ErrorCode::Io, "a\n\n  b\r\n").cause("c\nd");
        assert_eq!(failure.message, "a; b");
        assert_eq!(failure.causes, ["c; d"]);
        assert_eq!(failure.context("e").to_string(), "e: a; b: c; d");
    }

    #[test]
    fn a_full_disk_is_told_apart_from_other_trouble() {
        let code = |errno| {
            let error = io::Error::from_raw_os_error(errno);
            Failure::io("write", Path::new("/x"), &error).code
        };
        assert_eq!(code(libc::ENOSPC), ErrorCode::NoSpace);
        assert_eq!(code(libc::EDQUOT), ErrorCode::NoSpace);
        assert_eq!(code(libc::EACCES), ErrorCode::PermissionDenied);
        assert_eq!(code(libc::EROFS), ErrorCode::PermissionDenied);
        assert_eq!(code(libc::EIO), ErrorCode::Io);
    }
}
