//! Operations on forks: what is asked, what is answered, and what is done; and what the daemon has in memory for them.

mod convert;
pub mod failure;
pub mod generations;
pub mod handlers;
pub mod handoffs;
pub mod monitor;
mod operation;
pub mod overlay;
mod place;
mod points;
mod policy;
pub mod presence;
pub mod protocol;
mod registry;
mod report;
mod room;
pub mod slots;
mod strays;
pub mod transfer;

pub use failure::{ErrorCode, ExitCode, Failure};
pub use handlers::{
    AbortReview, AwaitHandoffs, Check, CleanRounds, Collect, Commit, CompareRound, ConflictChoices,
    CountAttempt, CountAttemptIn, CreateBranch, DaemonStatus, Delete, DeleteBranches, DeleteHandoff,
    DeleteSnapshot, Diff, FinishRound, ListBranches, ListEntries, ListForks, ListHandoffs, ListOperations,
    ListRecover, ListReviews, ListSessions, ListSetAside, ListSnapshots, Log, Mount, Move, NoteToldStrays,
    PresentRound, Purge, ReadFigures, ReadFiles, ReadResults, ReadStats, Redo, RefreshReview, Remove,
    RenameBranch, Reset, Restore, Revert, ShowFork, ShowHandoff, ShowRecover, ShowReview, ShowRound,
    ShowRoundTo, StartRound, Stat, Status, Stop, SwitchBranch, TakeSnapshot, TakeUpTrees, Undo, Unmount,
    Walk,
};
pub use monitor::AskChanged;
pub use operation::{Call, Entry, Operation, Surroundings};
pub use policy::{Signers, stays_committed, work_message};
pub use registry::{OPERATIONS, find};
