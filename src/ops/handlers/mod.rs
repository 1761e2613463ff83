//! What the daemon does for each request: one module for each group of them.

mod branches;
pub mod buffers;
mod forks;
mod handoffs;
mod lifecycle;
mod merging;
mod mounting;
mod operations;
mod paths;
pub mod recovery;
mod remotes;
mod restoring;
mod reviews;
mod rounds;
mod sequencing;
mod snapshots;
mod stats;
pub mod target;
mod tools;
mod trees;
mod turns;
mod work;

pub use branches::{CreateBranch, DeleteBranches, ListBranches, RenameBranch, SwitchBranch};
pub use buffers::Editor;
pub use forks::{Delete, ListForks, NoteToldStrays, ShowFork};
pub use handoffs::{AwaitHandoffs, DeleteHandoff, ListHandoffs, ShowHandoff};
pub use handoffs::{commit_uncommitted, of_unmounted_later};
pub use lifecycle::{Check, DaemonStatus, ListSetAside, ReadFigures, Stop};
pub use lifecycle::{Insistence, end_if_displaced, stop};
pub use merging::merge;
pub use mounting::recover;
pub use mounting::{Mount, Unmount};
pub use operations::{ListOperations, Redo, Undo};
pub use paths::{ListEntries, Move, ReadFiles, Remove, Stat, Walk};
pub use recovery::{ListRecover, Purge, ShowRecover};
pub use restoring::{ConflictChoices, Restore, Revert};
pub use reviews::{AbortReview, ListReviews, RefreshReview, ShowReview};
pub use rounds::{
    CleanRounds, CompareRound, CountAttempt, CountAttemptIn, FinishRound, ListSessions, PresentRound,
    ReadResults, ShowRound, ShowRoundTo, StartRound,
};
pub use snapshots::reset_to_head;
pub use snapshots::{Collect, DeleteSnapshot, ListSnapshots, Reset, TakeSnapshot};
pub use stats::ReadStats;
pub use trees::TakeUpTrees;
pub use work::{Commit, Diff, Log, Status};
