//! Operations on forks, their answers, and the daemon's state in memory.
//!
//! Each [`Operation`] is one type. [`OPERATIONS`] lists them all.

mod agents;
mod branches;
pub mod buffers;
mod converting;
mod deleting;
mod forks;
mod handoffs;
mod lifecycle;
mod locks;
mod making;
mod merging;
pub mod monitor;
mod mounting;
mod operation;
mod paths;
mod points;
mod policy;
pub mod protocol;
pub mod recovery;
mod registry;
mod remotes;
mod report;
mod restoring;
mod reviews;
mod rounds;
mod sequencing;
mod snapshots;
pub mod state;
mod stats;
mod target;
pub mod transfer;
mod trees;
mod undoing;
mod work;

pub use tine_failure as failure;

pub use agents::{AgentOptions, EditFile, MergeBuffer, SearchFiles, ShowContext};
pub use branches::{CreateBranch, DeleteBranches, ListBranches, RenameBranch, SwitchBranch};
pub use buffers::Editor;
pub use converting::{Convert, Converted};
pub use deleting::Delete;
pub use failure::{ErrorCode, ExitCode, Failure};
pub use forks::{FindFork, FoundFork, ListForks, MarkStraysReported, ShowFork};
pub use handoffs::{
    AwaitHandoffs, CreateHandoff, DeleteHandoff, ImportHandoff, ListHandoffs, ShowHandoff,
};
pub use lifecycle::{Check, DaemonStatus, ListSetAside, ReadMetrics, Stop};
pub use lifecycle::{StopMode, end_if_displaced, stop};
pub use making::{MountFlags, New, NewOptions};
pub use merging::Merge;
pub use monitor::AskChanged;
pub use mounting::recover;
pub use mounting::{Mount, Unmount};
pub use operation::{Call, CallerContext, Entry, Operation, joined_message};
pub use paths::{ListDirectory, MovePath, ReadFiles, RemovePaths, Stat, WriteFile};
pub use policy::{Signers, stays_committed, work_message};
pub use recovery::{ListRecover, Purge, ShowRecover};
pub use registry::{OPERATIONS, find};
pub use remotes::MakeState;
pub use restoring::{ConflictOptions, Restore, Revert};
pub use reviews::{
    AbortReview, CommitReview, JudgeReview, ListReviews, RefreshReview, Resolve, ShowReview,
};
pub use rounds::{
    CleanRounds, CompareRound, CountAttempt, CountAttemptIn, FinishRound, ListSessions,
    PresentRound, ReadResults, ShowRound, ShowRoundTo, StartRound,
};
pub use sequencing::{ApplyHandoff, ApplyPatch, CherryPick, SequenceOptions, Update};
pub use snapshots::{Collect, DeleteSnapshot, ListSnapshots, Reset, TakeSnapshot};
pub use stats::ReadStats;
pub use trees::TakeUpTrees;
pub use undoing::{ListOperations, Redo, Undo};
pub use work::{Commit, Diff, Log, Status};
