//! Requests and answers on the daemon's socket: one JSON value a line, an answer for each request, in order.
//!
//! A request bears the protocol's version beside its fields: `{"protocol":1,"request":"list"}`. An answer is
//! `{"ok":{"answer":"forks",…}}` or `{"error":{"code":"no-such-fork",…}}`. [`Request::Status`] and [`Request::Stop`]
//! are understood whatever the version, so that a newer program can always end an older daemon.
//!
//! Paths need not be UTF-8: those that are travel as strings, others as `{"base64":"…"}` ([`PathText`]).

mod branches;
mod buffers;
mod files;
mod forks;
mod handoff;
mod merging;
mod process;
mod recovery;
mod remotes;
mod reviewing;
mod rounds;
mod sequencing;
mod stats;
mod tools;
mod work;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use self::branches::{
    BranchCreated, BranchDeleted, BranchInfo, BranchRenamed, Branches, CreateBranchRequest, SwitchRequest,
    Switched,
};
pub use self::buffers::{AgentTexts, BufferAnswer, BufferInfo, BufferRequest, BufferShown};
pub use self::files::{
    FileLine, MovedLine, NodeKind, NodeLine, NoteLine, OperationLine, TakenBackLine, TimeLine, WriteRequest,
    WrittenLine,
};
pub use self::forks::{
    CarryInfo, Collected, Deleted, ForkInfo, IndexKept, LeftInPlace, NewRequest, RestoreRequest, Restored,
    RestoredHow, SnapshotInfo, SnapshotPolicy, Stray, TreeInfo, TreeTakenUp, TreeWord, TreesTakenUp,
    UnmountAction, Unmounted,
};
pub use self::handoff::{
    CreateHandoff, HandoffAnswer, HandoffDeleted, HandoffInfo, HandoffRequest, HandoffShown, ImportHandoff,
    PatchLine,
};
pub use self::merging::{Merge, MergeRequest, MergeStatus, MergeTarget, MergedHow, MergedSource, ReviewWish};
pub use self::process::{DaemonInfo, Figures, MountFigures};
pub use self::recovery::{
    BringBack, BroughtBack, Elsewhere, ElsewhereLine, Purged, RecoverAnswer, RecoverLine, RecoverList,
    RecoverRequest,
};
pub use self::remotes::{RemoteFork, StateMade, StateRequest};
pub use self::reviewing::{
    CommitReviewRequest, JudgeRequest, ResolutionWish, ResolveRequest, ReviewInfo, ReviewShown,
};
pub use self::rounds::{
    AgentShown, ArchiveShown, AttemptCounted, AttemptOf, BranchStays, CleanRounds, DirectoryWritten,
    FinishRound, FinishedSeat, OtherShown, PairCompared, PresentRound, ReaderShown, ResultLine, RoundAnswer,
    RoundCompared, RoundFinished, RoundPresented, RoundRequest, RoundsCleaned, SeatCleaned, SeatShown,
    SessionLine, SessionShown, StartRound, WorkShown,
};
pub use self::sequencing::{SequenceRequest, SequenceWish, Sequenced, SequencedCommit};
pub use self::stats::{FileStats, ForkStats, OperationStats, Stats};
pub use self::tools::{
    BufferMerged, FoundLine, Route, SearchRequest, ToolAnswer, ToolContextShown, ToolOperation, ToolRequest,
};
pub use self::work::{
    ChangeKindText, ChangeLine, Changes, CommitLine, Committed, Difference, PointInfo, PointKind,
    RevertRequest, Reverted,
};
use super::failure::Failure;
use super::transfer::Transfer;
use tine_git::Identity;
use tine_path::text::{PathText, host_path, optional_host_path};
use tine_workspace::store::{CheckReport, SetAside};
use tine_workspace::{Direction, ForkName, MountWishes};

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
    /// What the mounts are asked, of one fork or of all; with `watch` it is counted for a while which files are read and
    /// written. Answers [`Answer::Stats`].
    Stats {
        fork: Option<ForkName>,
        watch: bool,
    },
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
    /// Answers [`Answer::SnapshotRemoved`]. One that somebody asked for goes by `force` only.
    RemoveSnapshot {
        fork: ForkName,
        name: ForkName,
        #[serde(default)]
        force: bool,
    },
    /// Answers [`Answer::Restored`].
    Restore(RestoreRequest),
    /// Takes the fork back to HEAD. Answers [`Answer::Restored`].
    Reset {
        fork: ForkName,
        command: String,
    },
    /// What commands dropped. Answers [`Answer::Recover`].
    Recover(Box<RecoverRequest>),
    /// Frees what nothing reaches. Answers [`Answer::Collected`].
    Collect,
    /// Shows the fork's dependency trees as the main checkout has them now, or with `previous` as the fork did before that.
    /// Answers [`Answer::TreesTakenUp`].
    TakeUpTrees {
        fork: ForkName,
        previous: bool,
    },
    /// Looks whether the store is whole, without reading the bytes of files if it is to be `brief`, and with `repair` puts right
    /// what can be. Answers [`Answer::Checked`].
    Check {
        repair: bool,
        brief: bool,
        /// A repair only says what it would do.
        #[serde(default)]
        dry_run: bool,
    },
    /// What repairs moved aside; with a number this one is put back first. Answers [`Answer::SetAside`].
    SetAside {
        put_back: Option<u64>,
    },
    /// Answers [`Answer::Forks`].
    List,
    /// Answers [`Answer::Fork`].
    Show {
        fork: ForkName,
    },
    /// Says that somebody was told of these strays. Answers [`Answer::Done`].
    ToldStrays {
        fork: ForkName,
        strays: Vec<Stray>,
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
        author: Option<Identity>,
        committer: Option<Identity>,
    },
    /// Unmounts and removes the fork. Refused without `force` where changes are uncommitted; with it they become
    /// an entry of `tine recover`. Answers [`Answer::Deleted`].
    Delete {
        fork: ForkName,
        force: bool,
        identity: Option<Identity>,
    },
    /// The changes against HEAD; with `write` also as objects, so that `Changes::view_tree` is there. Answers
    /// [`Answer::Changes`].
    Changes {
        fork: ForkName,
        write: bool,
    },
    /// The difference between the fork's view and another point (as [`Point`](tine_change::Point) understands words;
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
        author: Option<Identity>,
        committer: Option<Identity>,
        /// Also where it takes commits of others back.
        #[serde(default)]
        allow_revert: bool,
    },
    /// Makes the fork's state, and keeps it. Answers [`Answer::State`].
    State(Box<StateRequest>),
    /// Answers [`Answer::Merge`], whatever came of it.
    Merge(Box<MergeRequest>),
    /// Branches of forks, or all. Answers [`Answer::Branches`].
    Branches {
        all: bool,
    },
    /// Answers [`Answer::BranchCreated`].
    CreateBranch(CreateBranchRequest),
    /// All of them, or none. Answers [`Answer::BranchesDeleted`].
    DeleteBranches {
        branches: Vec<String>,
        force: bool,
    },
    /// Answers [`Answer::BranchRenamed`].
    RenameBranch {
        from: String,
        to: String,
    },
    /// Answers [`Answer::Switched`].
    SwitchBranch(SwitchRequest),
    /// Brings a fork up to date, makes commits again or applies a patch. Answers [`Answer::Sequenced`], whatever came of it.
    Sequence(Box<SequenceRequest>),
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
    /// Answers [`Answer::Merge`] or [`Answer::Sequenced`].
    CommitReview(Box<CommitReviewRequest>),
    /// Answers [`Answer::Handoff`].
    Handoff(Box<HandoffRequest>),
    /// Answers [`Answer::Round`].
    Round(Box<RoundRequest>),
    /// Answers [`Answer::Tool`].
    Tool(Box<ToolRequest>),
    /// Answers [`Answer::Buffer`].
    Buffer(Box<BufferRequest>),
    /// What changed in the fork that is mounted at `dir`, since the moment that git's index names. Answers
    /// [`Answer::Changed`].
    Changed {
        fork: ForkName,
        #[serde(with = "host_path")]
        dir: PathBuf,
        token: String,
    },
    /// The fork's commits since its fork point, newest first. Answers [`Answer::Log`].
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

/// What the daemon answers.
pub type Response = Result<Answer, Failure>;

/// A successful answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    Done,
    Daemon(DaemonInfo),
    Figures(Figures),
    Stats(Box<Stats>),
    Fork(ForkInfo),
    Forks {
        forks: Vec<ForkInfo>,
        damaged: Vec<Failure>,
    },
    Snapshot(SnapshotInfo),
    Snapshots {
        snapshots: Vec<SnapshotInfo>,
    },
    /// `recover` is the entry of `tine recover` that brings it back, if it was more than HEAD was.
    SnapshotRemoved {
        recover: Option<u64>,
    },
    Restored(Restored),
    Recover(Box<RecoverAnswer>),
    Collected(Collected),
    TreesTakenUp(TreesTakenUp),
    Checked(CheckReport),
    SetAside {
        /// What is still aside.
        set_aside: Vec<SetAside>,
        put_back: Option<SetAside>,
    },
    Unmounted(Unmounted),
    Deleted(Deleted),
    Changes(Changes),
    Difference(Box<Difference>),
    Reverted(Reverted),
    Committed(Committed),
    State(Box<StateMade>),
    Merge(Box<Merge>),
    Branches(Branches),
    BranchCreated(BranchCreated),
    BranchesDeleted {
        branches: Vec<BranchDeleted>,
    },
    BranchRenamed(BranchRenamed),
    Switched(Box<Switched>),
    Sequenced(Box<Sequenced>),
    Reviews {
        reviews: Vec<ReviewInfo>,
        damaged: Vec<Failure>,
    },
    Review(Box<ReviewShown>),
    Handoff(Box<HandoffAnswer>),
    Round(Box<RoundAnswer>),
    Tool(Box<ToolAnswer>),
    Buffer(Box<BufferAnswer>),
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
