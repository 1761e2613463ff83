//! Requests and answers of operations, as they travel on the daemon's socket.
//!
//! Each is one line with one JSON value. The daemon answers the requests of a connection in order.
//!
//! A request names the operation, its arguments and the place that it is called from:
//! `{"protocol":2,"request":"commit","from":{…},"arguments":{…}}`. An answer is `{"ok":…}` or
//! `{"error":{"code":"no-such-fork",…}}`. The operations that are [for every
//! version](crate::Operation::ANY_VERSION) have their arguments at the top level.
//!
//! A path in UTF-8 travels as a string, any other path as `{"base64":"…"}`
//! ([`PathText`](tine_path::text::PathText)).

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

pub use self::branches::{
    BranchCreated, BranchDeleted, BranchInfo, BranchRenamed, Branches, BranchesDeleted, Switched,
};
pub use self::buffers::{AgentTexts, BufferAnswer, BufferInfo, BufferRequest, BufferShown};
pub use self::files::{
    Contents, FileLine, MovedLine, NodeKind, NodeLine, Nodes, NoteLine, OperationLine, Operations,
    Removed, TakenBackLine, TimeLine, WrittenLine,
};
pub use self::forks::{
    CarryInfo, Collected, Deleted, ForkInfo, Forks, IndexKept, LeftInPlace, RefusedChange,
    RestoreMethod, RestoreOutcome, Restored, SnapshotDeleted, SnapshotInfo, SnapshotPolicy,
    Snapshots, Stray, TreeInfo, TreeTakenUp, TreeWord, TreesTakenUp, UnmountAction, Unmounted,
};
pub use self::handoff::{HandoffDeleted, HandoffInfo, HandoffShown, Handoffs, PatchLine};
pub use self::merging::{
    MergeStatus, MergeTarget, Merged, MergedSource, ReviewPolicy, SourceOutcome,
};
pub use self::process::{
    Acknowledged, DaemonInfo, Metrics, MountMetrics, SetAsideList, StoreChecked,
};
pub use self::recovery::{
    OtherRecoverKind, OtherRecoverLine, Purged, RecoverLine, RecoverList, RecoverWork,
    WorkRecovered,
};
pub use self::remotes::{RemoteFork, StateMade};
pub use self::reviewing::{ResolveWith, ReviewInfo, ReviewOutcome, ReviewShown, Reviews};
pub use self::rounds::{
    AgentShown, ArchiveShown, AttemptCounted, BranchStays, DirectoryWritten, FinishedSeat,
    OtherShown, PairCompared, ReaderShown, ResultLine, Results, RoundCompared, RoundFinished,
    RoundPresented, RoundsCleaned, SeatCleaned, SeatShown, SessionLine, SessionShown, Sessions,
    WorkShown,
};
pub use self::sequencing::{Sequenced, SequencedCommit};
pub use self::stats::{FileStats, ForkStats, OperationStats, Stats};
pub use self::tools::{
    BufferMerged, FoundLine, NoSaved, PassthroughWord, Route, ToolAnswer, ToolContextShown,
    ToolDeleted, ToolEdited, ToolFound, ToolListed, ToolMoved, ToolRead, ToolWritten,
};
pub use self::work::{
    ChangeLine, ChangedSince, Changes, CommitLine, Commits, Committed, Difference, PointInfo,
    PointKind, Reverted,
};
/// Version of this protocol.
///
/// A client and a daemon with different versions refuse each other.
pub const PROTOCOL_VERSION: u32 = 2;
