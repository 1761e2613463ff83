//! Errors of this crate.

use std::path::Path;

use thiserror::Error;

use super::branches::Holder;
use tine_failure::ToFailure;
use tine_git::{GitError, GoneBranch, MovedUnder, ObjectId};
use tine_path::RepoPath;
use tine_path::shell::{shell_path, shell_word};
use tine_store::{ForkName, StoreError};
use tine_workspace::{FsError, OperationError};

/// Error of computing, committing or merging changes.
#[derive(Debug, Error, ToFailure)]
pub enum ChangeError {
    /// The changeset is empty.
    #[error("there is nothing to commit")]
    #[failure(NothingToCommit)]
    #[hint("`tine status` shows what differs; ignored files do not count")]
    NothingToCommit,
    /// The commit message is empty or only white space.
    #[error("the commit message is empty")]
    #[failure(EmptyMessage)]
    #[hint("say what was done: `tine commit -m MESSAGE`")]
    EmptyMessage,
    /// The fork's branch is not where the fork left it.
    ///
    /// Another worktree moved it, or a command that ignored the fork.
    #[error("the branch {:?} moved under the fork, from {} to {}", .moved.branch, .moved.left_at, .moved.now)]
    #[failure(MovedUnder, causes = moved.by.iter().map(|by| format!("it was moved by {by}")))]
    #[hint(join_again(fork, moved, free, *is_rewritten))]
    MovedUnder {
        /// Fork whose branch moved.
        fork: ForkName,
        /// Branch, with the commits that it was and is at.
        moved: Box<MovedUnder>,
        /// Short name of a branch that does not exist yet.
        free: String,
        /// True if neither commit is an ancestor of the other.
        is_rewritten: bool,
    },
    /// The change would take back others' commits.
    ///
    /// Some fork went back past those commits.
    #[error("{what} would take back what others have committed to {}", shown(.paths))]
    #[failure(TakesBack)]
    #[hint(as_others_have(paths, way_out.as_deref()))]
    TakesBack {
        /// Kind of change: `the commit`, `the merge` or `the handoff`.
        what: &'static str,
        /// Paths that would be taken back, sorted.
        paths: Vec<RepoPath>,
        /// Fork, and point in it, with the paths as others have them.
        ///
        /// `None`: no such fork is known.
        way_out: Option<Box<(ForkName, String)>>,
    },
    /// The change may take back others' commits.
    ///
    /// Some fork went back past commits of others, and its record cannot be read.
    #[error(
        "{what} may take back what others have committed, since a record of that cannot be read: {error}"
    )]
    #[failure(TakesBack)]
    #[hint(
        "look at what changes (`tine diff`); `--allow-revert` means it, and `tine check --repair` sets the record aside"
    )]
    MayTakeBack {
        /// Kind of change: `the commit`, `the merge` or `the handoff`.
        what: &'static str,
        /// Error of reading the record.
        error: String,
    },
    /// The fork's branch is gone.
    ///
    /// Another worktree deleted it, or a command that ignored the fork.
    #[error("the branch {:?} that the fork is on is gone; the fork left it at {}", .0.branch, .0.left_at)]
    #[failure(BranchGone)]
    #[hint(
        "`git branch {} {}` brings the branch back; nothing was changed",
        shell_word(&_0.branch),
        _0.left_at
    )]
    BranchGone(Box<GoneBranch>),
    /// HEAD's commit, which the main repository does not have.
    #[error("HEAD of the fork, {0}, is in the fork alone: the main repository does not have it")]
    #[failure(NotTakenOver)]
    #[hint(
        "`tine list` says why; wait for the end of a `git gc` there; a commit that it refuses is made anew by `git commit --amend` in the fork"
    )]
    InForkAlone(ObjectId),
    /// Ref (full name) of an object that the main repository lacks.
    #[error("{0} is in the fork alone: the main repository does not have its object")]
    #[failure(NotTakenOver)]
    #[hint(
        "`tine list` says why; wait for the end of a `git gc` there, or remove the ref in the fork; with `--force` the fork is set aside as a whole"
    )]
    RefInForkAlone(String),
    /// Several checkouts have the branch.
    #[error("the branch {branch:?} is checked out twice: {}", .holders.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    #[failure(BranchCheckedOut)]
    #[hint(take_one_off(holders))]
    BranchHeldTwice {
        /// Short name of the branch.
        branch: String,
        /// Checkouts that have it.
        holders: Vec<Holder>,
    },
    /// An operation of git is unfinished in the fork, such as `rebase`.
    #[error("a {0} is under way in the fork")]
    #[failure(OperationInProgress)]
    #[hint(end_operation(_0))]
    OperationInProgress(&'static str),
    /// A path changed while it was read.
    #[error("{0} changed while it was being read")]
    #[failure(Busy)]
    #[hint("stop the program that writes it, then try again")]
    Unstable(RepoPath),
    /// The written tree differs from the changeset at this path.
    ///
    /// HEAD has not moved.
    #[error("{0} did not land in the new tree as it is in the fork")]
    #[failure(Internal, cause = "HEAD did not move and the fork is as it was")]
    NotLanded(RepoPath),
    /// Uncommitted changes are in the way, at these paths, sorted.
    #[error("{} would be overwritten", shown(.0))]
    #[failure(LocalChanges, paths = _0)]
    #[hint(
        "commit them (`tine commit -m MESSAGE`), or take them back (`tine revert`); nothing was changed"
    )]
    LocalChanges(Vec<RepoPath>),
    /// Staged contents are in the way, at these paths, sorted.
    ///
    /// They are neither in the files nor in HEAD, so that they would be lost.
    #[error("what is staged of {} would be lost: it is not what the file has", shown(.0))]
    #[failure(LocalChanges, paths = _0)]
    #[hint(
        "`git add PATH` in the mount stages the file as it is, `git restore --staged PATH` unstages it; nothing was changed"
    )]
    StagedInTheWay(Vec<RepoPath>),
    /// One side is a bare tree, which has no history.
    #[error("a tree has no history in which a merge base could be found")]
    #[failure(NoMergeBase)]
    #[hint("name what both sides began as: `--base REV`")]
    NoMergeBase,
    /// A commit to be picked changes nothing.
    #[error("{} {what} {}", "the commit", if *was_empty { "changes nothing" } else { "would change nothing any more" })]
    #[failure(EmptyPick)]
    #[hint(
        "`--empty drop` leaves out what became empty, `--empty keep` makes such commits; nothing was changed"
    )]
    EmptyPick {
        /// Commit in hex, or subject of a mail.
        what: String,
        /// True if it was empty from the start.
        was_empty: bool,
    },
    /// The target has commits that the source lacks.
    #[error("both sides have commits that the other has not")]
    #[failure(NotFastForward)]
    #[hint("without `--ff-only` a merge commit is made")]
    NotFastForward,
    /// A word names nothing that exists, for this fork.
    #[error("{word} is not a snapshot of {fork}, a fork or a revision")]
    #[failure(NoSuchPoint)]
    #[hint(
        "`tine list` shows the forks, `tine exec {fork} -- git log --all --oneline` the revisions; `pristine` is the fork point of {fork}"
    )]
    NoSuchPoint {
        /// Fork in question.
        fork: ForkName,
        /// Word as the user gave it.
        word: String,
    },
    /// No review has this number.
    #[error("there is no review {0}")]
    #[failure(NoSuchReview)]
    #[hint("`tine review list --all` shows the reviews")]
    NoSuchReview(u64),
    /// The commit is not a state of a fork.
    #[error("{commit_id} is not a state of a fork")]
    #[failure(NoSuchState)]
    #[hint(
        "`tine push` makes states; what else is there may have been put there by another program"
    )]
    NotAState {
        /// Commit that was read.
        commit_id: ObjectId,
    },
    /// The state has a format of a newer tine.
    #[error("the state {commit_id} was made by a newer tine")]
    #[failure(NewerFormat)]
    NewerState {
        /// Commit of the state.
        commit_id: ObjectId,
    },
    /// No handoff has this number.
    #[error("there is no handoff {0}")]
    #[failure(NoSuchHandoff)]
    #[hint("`tine handoff list --all` shows the handoffs")]
    NoSuchHandoff(u64),
    /// A handoff's record or mailbox is damaged.
    #[error("the handoff {id} is damaged: {reason}")]
    #[failure(StoreDamaged, cause = reason)]
    #[hint(
        "`tine handoff delete {id} --force` lets it go; `tine handoff create FORK` makes another"
    )]
    DamagedHandoff {
        /// Number of the handoff.
        id: u64,
        /// Damage, in words.
        reason: String,
    },
    /// No session of rounds has this name.
    #[error("there is no session {0} of rounds")]
    #[failure(NoSuchSession)]
    #[hint("`tine round start --agents A,B` begins one; `--session` names another")]
    NoSuchSession(ForkName),
    /// The directory changed since it was imported, at these paths, sorted.
    #[error("{} changed in the directory, too", shown(.0))]
    #[failure(DirectoryChanged, causes = _0)]
    #[hint("move them away, or bring them into the result; nothing was written")]
    DirectoryChanged(Vec<RepoPath>),
    /// The session has no such agent in the current round.
    #[error("the session {session} has no agent {agent}")]
    #[failure(NoSuchAgent)]
    #[hint("`tine round show` lists the agents")]
    NoSuchAgent {
        /// Name of the session.
        session: ForkName,
        /// Name or label that was given.
        agent: ForkName,
    },
    /// A word names no fork, snapshot or revision.
    #[error("{0} is not a fork, snapshot or revision")]
    #[failure(NoSuchPoint)]
    #[hint(
        "`tine list` shows the forks, `git log --all --oneline` the revisions; a snapshot is `fork@snapshot`"
    )]
    NothingCalled(String),
    /// No branch has this short name.
    #[error("there is no branch {0:?}")]
    #[failure(NoSuchBranch)]
    #[hint(
        "`tine branch list --all` shows the branches, `tine branch create {branch} --at POINT` makes this one",
        branch = shell_word(_0)
    )]
    NoSuchBranch(String),
    /// The branch is checked out elsewhere.
    #[error("the branch {branch:?} is checked out {holder}")]
    #[failure(BranchCheckedOut)]
    #[hint(put_on_another_branch(branch, holder))]
    BranchHeld {
        /// Short name of the branch.
        branch: String,
        /// Checkout that has it.
        holder: Holder,
    },
    /// Deleting the branch would lose commits that nothing else reaches.
    #[error(
        "the branch {branch:?} has commits that no other branch or tag has; the last is {commit_id}"
    )]
    #[failure(BranchNotMerged)]
    #[hint(
        "`tine merge` brings {commit_id} elsewhere; `--force` deletes it, and `tine recover` brings it back"
    )]
    BranchNotMerged {
        /// Short name of the branch.
        branch: String,
        /// Commit that the branch is at.
        commit_id: ObjectId,
    },
    /// No entry of `tine recover` has this number.
    #[error("`tine recover` has no entry {0}")]
    #[failure(NothingToRecover)]
    #[hint("`tine recover` lists what there is; it expires by age and size")]
    NothingToRecover(u64),
    /// An entry of `tine recover` needs an object that is lost.
    #[error(
        "the entry {id} needs the object {object_id}, which is not in this repository any more"
    )]
    #[failure(HistoryGone)]
    #[hint(show_the_rest(*id, tree_id.as_ref()))]
    HistoryGone {
        /// Number of the entry.
        id: u64,
        /// Lost object.
        object_id: ObjectId,
        /// Tree of the entry that can still be read, if any.
        tree_id: Option<ObjectId>,
    },
    /// A point has no commit.
    #[error("{0} names no commit")]
    #[failure(UnknownRevision)]
    #[hint(
        "a branch begins at a commit: a tree has none, and neither has a fork or snapshot on an unborn branch"
    )]
    NoCommit(String),
    /// An error of git's side.
    #[error(transparent)]
    #[failure(transparent)]
    Git(#[from] GitError),
    /// An error of the fork's file system.
    #[error(transparent)]
    #[failure(transparent)]
    Fs(#[from] FsError),
    /// An error of an operation on the fork's files.
    #[error(transparent)]
    #[failure(transparent)]
    Operation(#[from] OperationError),
    /// An error of the store.
    #[error(transparent)]
    #[failure(transparent)]
    Store(#[from] StoreError),
}

impl ChangeError {
    /// Wraps an I/O error, for `map_err`: `ChangeError::io("write", path)`.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ChangeError {
        let failed = StoreError::io(action, path);
        move |error| failed(error).into()
    }
}

/// Number of paths that a message names.
const NAMED_PATHS: usize = 3;

/// Returns the first paths as text, with the number of the rest.
fn shown(paths: &[RepoPath]) -> String {
    let named: Vec<String> = paths
        .iter()
        .take(NAMED_PATHS)
        .map(RepoPath::to_string)
        .collect();
    match paths.len().saturating_sub(NAMED_PATHS) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Returns the hint for a fork whose branch moved.
fn join_again(fork: &ForkName, moved: &MovedUnder, free: &str, is_rewritten: bool) -> String {
    let free = shell_word(free);
    let branch = shell_word(&moved.branch);
    if is_rewritten {
        // A merge with the old history would bring back commits that were removed.
        format!(
            "`tine branch switch {fork} {free} --create` puts the fork on a branch of its own, where it was; then `tine branch switch {fork} {branch}` \
             goes on with the rewritten history and what is uncommitted, or `tine merge {branch} --into {fork}` joins it with the old one; nothing was changed"
        )
    } else {
        format!(
            "`tine branch switch {fork} {free} --create` puts the fork on a branch of its own, where it was; then `tine merge {branch} --into {fork}` \
             joins both; nothing was changed"
        )
    }
}

/// Maximum number of paths in a command that a hint names.
///
/// If there are more, the next run is refused with the rest.
const MAX_NAMED_PATHS: usize = 20;

/// Returns the hint for paths that a change would take back.
fn as_others_have(paths: &[RepoPath], way_out: Option<&(ForkName, String)>) -> String {
    let named = paths.iter().take(MAX_NAMED_PATHS);
    let named: Vec<String> = named.map(|path| shell_word(path.as_bytes())).collect();
    let named = named.join(" ");
    match way_out {
        Some((fork, to)) if to == "HEAD" => format!(
            "`--allow-revert` means that; `tine revert {fork} {named} --to HEAD` has it as HEAD has it"
        ),
        Some((fork, to)) => format!(
            "`--allow-revert` means that; `tine revert {fork} {named} --to {to}` and a commit have it as it was"
        ),
        None => "`--allow-revert` means that".to_owned(),
    }
}

/// Returns the hint for a branch that several checkouts have.
fn take_one_off(holders: &[Holder]) -> &'static str {
    let is_gone = |holder: &Holder| matches!(holder, Holder::Worktree(dir) if !dir.exists());
    if holders.iter().any(is_gone) {
        "the directory of one of them is gone: `git worktree prune` forgets that worktree; nothing was changed"
    } else {
        "`git -C DIR switch --detach` takes one of them off the branch; nothing was changed"
    }
}

/// Returns the hint for an unfinished operation of git.
fn end_operation(operation: &str) -> String {
    if operation == "bisect" {
        "end it in the mount first: `git bisect reset`".to_owned()
    } else {
        format!(
            "end it in the mount first: `git {operation} --continue` or `git {operation} --abort`"
        )
    }
}

/// Returns the hint for a branch that one checkout has.
fn put_on_another_branch(branch: &str, holder: &Holder) -> String {
    match holder {
        Holder::Fork(fork, _) => format!(
            "`tine branch switch {fork} OTHER` puts that fork on another branch, `tine delete {fork}` removes it; a rebase or \
             bisection of {branch} there must end first"
        ),
        Holder::Worktree(dir) if !dir.exists() => {
            "its directory is gone: `git worktree prune` forgets that worktree, then try again"
                .to_owned()
        }
        Holder::Main(dir) | Holder::Worktree(dir) => format!(
            "`git -C {} switch OTHER` puts that checkout on another branch; a rebase or bisection there must end first",
            shell_path(dir)
        ),
    }
}

/// Returns the hint for a recover entry that lacks an object.
fn show_the_rest(id: u64, tree_id: Option<&ObjectId>) -> String {
    match tree_id {
        Some(tree_id) => format!(
            "its files are there: `git archive -o recovered.tar refs/tine/+recover/{id}:trees/{tree_id}`"
        ),
        None => format!("`git ls-tree -r refs/tine/+recover/{id}` shows what is there"),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use super::*;
    use tine_failure::{ErrorCode, ExitCode, Failure};
    use tine_layer::LayerError;

    fn full_disk() -> LayerError {
        LayerError::Io {
            action: "append to",
            path: PathBuf::from("/s/layers/1/log"),
            source: io::Error::from_raw_os_error(libc::ENOSPC),
        }
    }

    #[test]
    fn a_full_disk_is_one_code_from_whatever_depth() {
        for failure in [
            Failure::from(full_disk()),
            FsError::from(full_disk()).into(),
            StoreError::from(full_disk()).into(),
            StoreError::from(FsError::from(full_disk())).into(),
            ChangeError::from(StoreError::from(full_disk())).into(),
            GitError::Io {
                action: "write",
                path: PathBuf::from("/r/.git/objects/x"),
                source: io::Error::from_raw_os_error(libc::ENOSPC),
            }
            .into(),
        ] {
            assert_eq!(failure.code, ErrorCode::NoSpace, "{failure}");
            assert_eq!(failure.exit, ExitCode::Failure);
            assert!(failure.hint.is_some());
        }
    }

    #[test]
    fn what_lies_beneath_decides_the_code() {
        let newer = || LayerError::NewerFormat {
            path: PathBuf::from("/s/layers/1/log"),
            found: 9,
            known: 1,
        };
        assert_eq!(
            Failure::from(ChangeError::from(FsError::from(newer()))).code,
            ErrorCode::NewerFormat
        );
        let git = GitError::BranchCheckedOut {
            branch: "main".into(),
            at: PathBuf::from("/r"),
        };
        let failure = Failure::from(StoreError::from(git));
        assert_eq!(
            (failure.code, failure.exit),
            (ErrorCode::BranchCheckedOut, ExitCode::Conflict)
        );
    }

    #[test]
    fn hints_name_the_command_to_type() {
        let name = ForkName::parse("demo").unwrap();
        let hint = |failure: Failure| failure.hint.unwrap_or_default();
        assert!(hint(StoreError::ForkExists(name).into()).contains("tine path demo"));
        assert!(
            hint(ChangeError::OperationInProgress("rebase").into()).contains("git rebase --abort")
        );
        assert!(
            hint(ChangeError::OperationInProgress("bisect").into()).contains("git bisect reset")
        );
        assert!(hint(GitError::NotARepository(PathBuf::from("/x")).into()).contains("tine -C DIR"));
    }
}
