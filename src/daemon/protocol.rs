//! Requests and answers on the daemon's socket: one JSON value a line, an answer for each request, in order.
//!
//! A request bears the protocol's version beside its fields: `{"protocol":1,"request":"list"}`. An answer is
//! `{"ok":{"answer":"forks",…}}` or `{"error":{"code":"no-such-fork",…}}`. [`Request::Status`] and [`Request::Stop`]
//! are understood whatever the version, so that a newer program can always end an older daemon.
//!
//! Paths need not be UTF-8: those that are travel as strings, others as `{"base64":"…"}` ([`PathText`]).

mod merging;
mod reviewing;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use self::merging::{Merge, MergeRequest, MergeStatus, MergeTarget, MergedHow, MergedSource, ReviewWish};
pub use self::reviewing::{
    CommitReviewRequest, JudgeRequest, ResolutionWish, ResolveRequest, ReviewInfo, ReviewShown,
};
use super::failure::Failure;
use super::transfer::Transfer;
use crate::attr::Timestamp;
use crate::change::ChangeKind;
use crate::git::{CacheFigures, CommitTime};
use crate::path::text::{PathText, host_path, optional_host_path};
use crate::workspace::{
    CarryWish, Direction, ForkName, MountSettings, MountWishes, NoteKind, OperationKind, OperationState,
    Parent, SnapshotEvery, SnapshotReason, UnmountPolicy,
};

/// Version of this protocol; a client and a daemon of different versions refuse each other.
pub const PROTOCOL_VERSION: u32 = 1;

/// What a client asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// Who is there: answers [`Answer::Daemon`].
    Status,
    /// What the daemon holds in memory. Answers [`Answer::Figures`].
    Figures,
    /// Unmounts everything and ends; without `force` refused while a mount is in use.
    Stop {
        force: bool,
    },
    /// Answers [`Answer::Fork`].
    New(NewRequest),
    /// Freezes what the fork has under a name. Answers [`Answer::Snapshot`].
    Snapshot {
        fork: ForkName,
        name: Option<ForkName>,
        message: Option<String>,
    },
    /// Answers [`Answer::Snapshots`].
    Snapshots {
        fork: ForkName,
    },
    /// Answers [`Answer::Done`].
    RemoveSnapshot {
        fork: ForkName,
        name: ForkName,
    },
    /// Answers [`Answer::Restored`].
    Restore(RestoreRequest),
    /// Takes the fork back to HEAD. Answers [`Answer::Restored`].
    Reset {
        fork: ForkName,
        command: String,
    },
    /// Frees what nothing reaches. Answers [`Answer::Collected`].
    Collect,
    /// Answers [`Answer::Forks`].
    List,
    /// Answers [`Answer::Fork`].
    Show {
        fork: ForkName,
    },
    /// Mounts, at `dir` (absolute) if given (remembered). Mounted there already is no error. Answers [`Answer::Fork`].
    Mount {
        fork: ForkName,
        #[serde(with = "optional_host_path", default)]
        dir: Option<PathBuf>,
        #[serde(flatten)]
        wishes: MountWishes,
        /// Default: as before.
        #[serde(default)]
        snapshot_every: Option<SnapshotPolicy>,
    },
    /// Unmounts and then does what `action` or the fork's policy says. Answers [`Answer::Unmounted`].
    Unmount {
        fork: ForkName,
        action: Option<UnmountAction>,
        force: bool,
        author: Option<IdentityText>,
        committer: Option<IdentityText>,
    },
    /// Unmounts and removes the fork. Refused without `force` where changes are uncommitted; with it they are kept as a
    /// commit under `refs/tine/<fork>/`. Answers [`Answer::Deleted`].
    Delete {
        fork: ForkName,
        force: bool,
        identity: Option<IdentityText>,
    },
    /// The changes against HEAD; with `write` also as objects, so that `Changes::view_tree` is there. Answers
    /// [`Answer::Changes`].
    Changes {
        fork: ForkName,
        write: bool,
    },
    /// The difference between the fork's view and another point (as [`Point`](crate::change::Point) understands words;
    /// HEAD, where none is named): what leads from there to the view, or with `reverse` the other way. All of it is written as
    /// objects. Answers [`Answer::Difference`].
    Diff {
        fork: ForkName,
        against: Option<String>,
        #[serde(default)]
        reverse: bool,
    },
    /// Takes paths, and all beneath them, back to what they are at another point (the fork's base, where none is named).
    /// Answers [`Answer::Reverted`].
    Revert(RevertRequest),
    /// Answers [`Answer::Committed`].
    Commit {
        fork: ForkName,
        message: String,
        author: Option<IdentityText>,
        committer: Option<IdentityText>,
    },
    /// Answers [`Answer::Merge`], whatever came of it.
    Merge(Box<MergeRequest>),
    /// Open reviews, or all. Answers [`Answer::Reviews`].
    Reviews {
        all: bool,
    },
    /// Answers [`Answer::Review`].
    Review {
        review: u64,
    },
    /// Answers [`Answer::Review`], as all that changes one.
    Resolve(ResolveRequest),
    Judge(JudgeRequest),
    /// Plans it again, of the sides as they are now.
    RefreshReview {
        review: u64,
    },
    AbortReview {
        review: u64,
    },
    /// Answers [`Answer::Merge`].
    CommitReview(Box<CommitReviewRequest>),
    /// What changed in the fork that is mounted at `dir`, since the moment that git's index names. Answers
    /// [`Answer::Changed`].
    Changed {
        fork: ForkName,
        #[serde(with = "host_path")]
        dir: PathBuf,
        token: String,
    },
    /// The fork's commits since its base, newest first. Answers [`Answer::Log`].
    Log {
        fork: ForkName,
        limit: usize,
    },
    /// What is at a path; a symlink is not followed at its end. Answers [`Answer::Nodes`] with one.
    Stat {
        fork: ForkName,
        path: PathText,
    },
    /// What a directory holds, with `deep` all beneath; of anything else itself. Answers [`Answer::Nodes`].
    Entries {
        fork: ForkName,
        path: PathText,
        deep: bool,
    },
    /// The contents of regular files. Answers [`Answer::Contents`].
    Read {
        fork: ForkName,
        paths: Vec<PathText>,
    },
    /// Makes a regular file, or replaces its content. Answers [`Answer::Written`].
    Write(WriteRequest),
    /// Moves what is at a path, into a directory that is there (which it must be with `into`). Answers [`Answer::Moved`].
    Move {
        fork: ForkName,
        from: PathText,
        to: PathText,
        into: bool,
        force: bool,
        command: String,
    },
    /// Removes all of these, or nothing. Answers [`Answer::Removed`].
    Remove {
        fork: ForkName,
        paths: Vec<PathText>,
        recursive: bool,
        command: String,
    },
    /// The newest operations, the newest first. Answers [`Answer::Operations`].
    Operations {
        fork: ForkName,
        limit: usize,
    },
    /// Takes the newest operation back, or its changes at and beneath a path; or does again what was taken back. Answers
    /// [`Answer::TakenBack`].
    TakeBack {
        fork: ForkName,
        direction: Direction,
        path: Option<PathText>,
        command: String,
    },
}

/// `tine write`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WriteRequest {
    pub fork: ForkName,
    pub path: PathText,
    pub content: Transfer,
    /// Makes directories that are missing.
    pub parents: bool,
    pub executable: bool,
    pub command: String,
}

/// `tine restore`: lets a fork, or paths of it, be as they are at a point. What the fork was becomes a snapshot first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RestoreRequest {
    pub fork: ForkName,
    pub to: String,
    /// None: everything.
    #[serde(default)]
    pub paths: Vec<PathText>,
    /// What is in the way and in no changeset goes.
    #[serde(default)]
    pub force: bool,
    /// As it was typed; so in all that are operations.
    #[serde(default)]
    pub command: String,
}

/// `tine revert`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RevertRequest {
    pub fork: ForkName,
    pub paths: Vec<PathText>,
    pub to: Option<String>,
    /// What is in the way and in no changeset goes.
    #[serde(default)]
    pub force: bool,
    #[serde(default)]
    pub dry_run: bool,
    /// The command line, to be remembered.
    #[serde(default)]
    pub command: String,
}

/// `tine new`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewRequest {
    pub fork: ForkName,
    /// The private git directory of the worktree that the caller stands in: revisions are understood there.
    #[serde(with = "host_path")]
    pub git_dir: PathBuf,
    pub from: Option<String>,
    /// The fork to begin as, or `fork@snapshot`.
    #[serde(default)]
    pub from_fork: Option<String>,
    pub branch: Option<String>,
    /// Default: `<repository>.forks/<fork>`, or beneath `tine.mountRoot`.
    /// Absolute.
    #[serde(with = "optional_host_path", default)]
    pub dir: Option<PathBuf>,
    pub mount: bool,
    #[serde(flatten)]
    pub wishes: MountWishes,
    pub on_unmount: UnmountPolicy,
    #[serde(default)]
    pub snapshot_every: Option<SnapshotEvery>,
    pub umask: u16,
    #[serde(default)]
    pub carry: CarryWish,
}

/// What becomes of a fork's policy on snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotPolicy {
    Every(SnapshotEvery),
    Never,
}

/// What to do with the layer after unmounting.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum UnmountAction {
    Keep,
    Commit {
        message: String,
    },
    Discard,
    /// Commits and merges; conflicts become a review.
    Merge {
        into: Option<String>,
        message: Option<String>,
    },
}

/// Name, address and time, as git's identities have them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IdentityText {
    pub name: String,
    pub email: String,
    /// When it commits, in the caller's time zone; `None` means when the daemon does it, in the daemon's.
    #[serde(default)]
    pub time: Option<CommitTime>,
}

/// What the daemon answers.
pub type Response = Result<Answer, Failure>;

/// A successful answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    Done,
    Daemon(DaemonInfo),
    Figures(Figures),
    Fork(ForkInfo),
    Forks {
        forks: Vec<ForkInfo>,
        damaged: Vec<Failure>,
    },
    Snapshot(SnapshotInfo),
    Snapshots {
        snapshots: Vec<SnapshotInfo>,
    },
    Restored(Restored),
    Collected(Collected),
    Unmounted(Unmounted),
    Deleted(Deleted),
    Changes(Changes),
    Difference(Box<Difference>),
    Reverted(Reverted),
    Committed(Committed),
    Merge(Box<Merge>),
    Reviews {
        reviews: Vec<ReviewInfo>,
        damaged: Vec<Failure>,
    },
    Review(Box<ReviewShown>),
    /// Paths that changed, as git takes them: with all beneath those that end in a slash. `token` names this moment.
    Changed {
        token: String,
        paths: Vec<PathText>,
    },
    Log {
        commits: Vec<CommitLine>,
    },
    Nodes {
        nodes: Vec<NodeLine>,
    },
    /// The files, and their contents one after the other.
    Contents {
        files: Vec<FileLine>,
        contents: Transfer,
    },
    Written(WrittenLine),
    Moved(MovedLine),
    Removed {
        paths: Vec<PathText>,
    },
    Operations {
        operations: Vec<OperationLine>,
    },
    TakenBack(TakenBackLine),
}

/// One operation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OperationLine {
    pub id: u64,
    pub time: TimeLine,
    pub command: String,
    pub kind: OperationKind,
    pub paths: Vec<PathText>,
    /// The operation that it takes back or does again.
    pub undoes: Option<u64>,
    pub state: OperationState,
}

/// The answer to taking back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TakenBackLine {
    pub fork: ForkName,
    /// The operation that did it.
    pub operation: OperationLine,
    /// The operation whose changes these were.
    pub of: OperationLine,
    pub notes: Vec<NoteLine>,
}

/// What was not as the operation had left it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NoteLine {
    pub path: PathText,
    pub note: NoteKind,
}

/// One path of a fork.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeLine {
    pub path: PathText,
    pub kind: NodeKind,
    /// Permission bits with the kind's, octal (`100644`).
    pub mode: String,
    /// Bytes.
    pub size: u64,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub ino: u64,
    pub modified: TimeLine,
    pub changed: TimeLine,
    /// A symlink's.
    pub target: Option<PathText>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

/// A time since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeLine {
    pub secs: i64,
    pub nanos: u32,
}

impl From<Timestamp> for TimeLine {
    fn from(time: Timestamp) -> TimeLine {
        let Timestamp { secs, nanos } = time;
        TimeLine { secs, nanos }
    }
}

/// One file of [`Answer::Contents`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FileLine {
    pub path: PathText,
    /// Bytes.
    pub size: u64,
}

/// The answer to a write.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WrittenLine {
    pub fork: ForkName,
    /// Without symlinks on the way.
    pub path: PathText,
    /// Bytes.
    pub size: u64,
    /// Whether there was no such file before.
    pub created: bool,
}

/// The answer to a move.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MovedLine {
    pub fork: ForkName,
    pub from: PathText,
    pub to: PathText,
    /// Whether a file was there.
    pub replaced: bool,
}

/// The daemon itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DaemonInfo {
    pub protocol: u32,
    pub version: String,
    pub pid: u32,
    #[serde(with = "host_path")]
    pub store: PathBuf,
    pub started_secs: i64,
    pub forks: usize,
    pub mounts: usize,
    /// Resident memory in bytes.
    pub memory_bytes: u64,
}

/// What the daemon holds, all forks together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figures {
    /// Nodes that the kernel remembers.
    pub remembered_nodes: u64,
    /// Nodes and names in the open layers of mounted forks; all of them are in memory.
    pub layer_nodes: u64,
    pub layer_names: u64,
    pub caches: CacheFigures,
    pub threads: u64,
    pub open_files: u64,
    /// How many files the daemon may have open.
    pub open_files_limit: u64,
    /// One for each mount, by the fork's name.
    #[serde(default)]
    pub mounted: Vec<MountFigures>,
}

/// What one mount was asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MountFigures {
    pub fork: ForkName,
    /// How requests come: `device` (through `/dev/fuse`) or `ring` (through io_uring).
    #[serde(default)]
    pub transport: String,
    /// How many requests of each kind the kernel sent since the fork was mounted, by FUSE's names in lower case; without
    /// the kinds that never came.
    pub requests: BTreeMap<String, u64>,
}

/// One fork.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ForkInfo {
    pub name: ForkName,
    pub created_secs: i64,
    /// The branch HEAD is on (short name); `None` where it is detached.
    pub branch: Option<String>,
    pub base_commit: Option<String>,
    pub head_commit: Option<String>,
    /// The fork that it began as.
    #[serde(default)]
    pub parent: Option<Parent>,
    #[serde(with = "host_path")]
    pub mount_dir: PathBuf,
    pub mounted: bool,
    /// As it is mounted now, or would be.
    #[serde(flatten)]
    pub settings: MountSettings,
    pub on_unmount: UnmountPolicy,
    /// How often a snapshot is taken while it is mounted, in words.
    #[serde(default)]
    pub snapshot_every: Option<SnapshotEvery>,
    /// Bytes on the disk: log and contents of the open layer.
    pub layer_bytes: u64,
    /// Bytes of contents in the open layer: of live ones while the fork is open in the daemon, else of all.
    pub content_bytes: u64,
    /// `None` where nothing is carried.
    #[serde(default)]
    pub carry: Option<Box<CarryInfo>>,
}

/// What a fork carries of the main checkout. Directories end in a slash.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CarryInfo {
    /// The main checkout.
    #[serde(with = "host_path")]
    pub from: PathBuf,
    /// Whether it is there; nothing is seen of it otherwise.
    pub available: bool,
    pub paths: Vec<PathText>,
    /// What is not carried because it looks like a secret that nobody asked for.
    pub held_back: Vec<PathText>,
}

/// The answer to an unmount.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Unmounted {
    pub fork: ForkName,
    pub policy: UnmountPolicy,
    /// The commit made by the policy, if there was something to commit.
    pub commit: Option<String>,
    /// The snapshot that keeps what was discarded, if there was something.
    pub snapshot: Option<ForkName>,
    /// What came of merging it.
    #[serde(default)]
    pub merge: Option<Box<Merge>>,
}

/// One snapshot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotInfo {
    pub fork: ForkName,
    pub name: ForkName,
    pub created_secs: i64,
    pub message: Option<String>,
    pub reason: SnapshotReason,
    pub base_commit: Option<String>,
    pub head_commit: Option<String>,
    pub branch: Option<String>,
    /// The view as a git tree, once somebody asked for it.
    pub tree: Option<String>,
    /// How many frozen layers it stands on.
    pub layers: usize,
}

/// The answer to a restore or reset.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Restored {
    pub fork: ForkName,
    /// The point that it is at now, with the prefix that leaves it no other meaning; of a reset `null`.
    pub to: Option<String>,
    /// The snapshot of what the fork was before, if that was anything.
    pub before: Option<ForkName>,
}

/// What a collection freed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Collected {
    /// Layers that nothing stood on.
    pub layers: u64,
    /// Snapshots that tine had taken by itself and that were too old.
    pub snapshots: u64,
    /// Bytes on the disk.
    pub freed_bytes: u64,
    /// Bytes on the disk of all layers that are left.
    pub kept_bytes: u64,
}

/// The answer to a delete.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Deleted {
    pub fork: ForkName,
    /// The ref that keeps what was uncommitted, if there was something.
    pub kept_as: Option<String>,
    /// Whether the branch went too: it had no commit beyond the fork's base.
    pub branch_deleted: bool,
}

/// The changes of a fork against HEAD.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Changes {
    pub fork: ForkName,
    pub branch: Option<String>,
    pub head_commit: Option<String>,
    pub head_tree: String,
    /// The tree of the view, where it was asked for.
    pub view_tree: Option<String>,
    pub changes: Vec<ChangeLine>,
    pub left_out: Vec<PathText>,
}

/// The difference between a fork's view and another point.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Difference {
    pub fork: ForkName,
    pub branch: Option<String>,
    pub head_commit: Option<String>,
    pub head_tree: String,
    /// The tree of the view.
    pub view_tree: String,
    /// The other point; `None`: HEAD.
    pub against: Option<PointInfo>,
    /// What `changes` lead from, and to: the other point's tree and the view's, or the other way round.
    pub old_tree: String,
    pub new_tree: String,
    pub changes: Vec<ChangeLine>,
    pub left_out: Vec<PathText>,
}

/// The answer to a revert.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reverted {
    pub fork: ForkName,
    pub to: PointInfo,
    /// From what it was to what it is.
    pub changes: Vec<ChangeLine>,
    /// Submodules whose repositories were left alone.
    pub left_alone: Vec<PathText>,
    pub dry_run: bool,
}

/// What a word was taken for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PointInfo {
    pub kind: PointKind,
    /// With the prefix that leaves it no other meaning.
    pub point: String,
    pub tree: String,
    pub commit: Option<String>,
    /// What else the word means, likewise with prefixes.
    pub also: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PointKind {
    Snapshot,
    Fork,
    Pristine,
    Revision,
}

/// One changed path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChangeLine {
    pub path: PathText,
    pub kind: ChangeKindText,
    /// git's octal modes as text (`100644`), and blob ids in hex.
    pub old_mode: Option<String>,
    pub new_mode: Option<String>,
    pub old_id: Option<String>,
    pub new_id: Option<String>,
}

/// [`ChangeKind`] on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKindText {
    Added,
    Modified,
    Deleted,
    TypeChanged,
}

impl From<ChangeKind> for ChangeKindText {
    fn from(kind: ChangeKind) -> ChangeKindText {
        match kind {
            ChangeKind::Added => ChangeKindText::Added,
            ChangeKind::Modified => ChangeKindText::Modified,
            ChangeKind::Deleted => ChangeKindText::Deleted,
            ChangeKind::TypeChanged => ChangeKindText::TypeChanged,
        }
    }
}

/// The answer to a commit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Committed {
    pub fork: ForkName,
    pub branch: Option<String>,
    pub commit: String,
    pub tree: String,
    pub parent: Option<String>,
    pub summary: String,
    pub changes: Vec<ChangeLine>,
    pub left_out: Vec<PathText>,
}

/// One commit of a log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CommitLine {
    pub commit: String,
    pub summary: String,
    pub author_name: String,
    pub author_email: String,
    pub author_time_secs: i64,
}
