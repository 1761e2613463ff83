//! A fork's file system, and the store of forks.
//!
//! Neither needs a mount. [`Workspace`] carries out POSIX operations by inode number (for the
//! kernel) and by path (for tools), over a base tree and a stack of layers. [`Store`] is everything
//! that tine keeps for a repository: it makes, opens and removes forks. [`Delta`] is a plain value
//! with the changes of a fork's layers.

mod acl;
mod apply;
mod backing;
mod base_nodes;
mod base_times;
mod carried;
pub mod carry;
pub mod changed;
mod content_locks;
mod copy_up;
pub mod delta;
mod dir_places;
mod edit;
pub mod error;
mod flags;
mod follow;
pub mod fork;
pub mod fs;
mod handles;
mod inodes;
mod io;
mod listing;
mod lower;
pub mod lower_stack;
mod mutate;
mod naming;
mod operate;
mod operations;
pub mod ops;
mod paths;
mod privileges;
mod renewing;
mod shown;
pub mod snapshot;
pub mod store;
#[cfg(test)]
mod tests;
mod view_steps;
mod xattr;

pub use apply::{Advance, ApplyOptions, FileContent, NewEntry, Replacement};
pub use base_nodes::BaseAttrs;
pub use carry::{CarryRecord, CarryRules, DependencyTree};
pub use changed::Changed;
pub use delta::{Delta, DeltaDir, DeltaEntry, DeltaNode};
pub use error::{FsError, OperationError, StoreError};
pub use follow::{Last, PathNode};
pub use fork::{
    Advancing, ForkName, ForkPoint, ForkRecord, MountProfile, MountRequest, MountSettings, Parent,
    Traces, UnmountPolicy, VisiblePath,
};
pub use fs::{Announcement, AnnouncementListener, Invalidation, Workspace};
pub use lower_stack::{Exclusive, LowerStack};
pub use operate::{MoveOptions, Moved, NewContent, PutOptions, Written};
pub use operations::{
    Actor, Direction, FileChange, FileOperation, HeadMove, IndexContent, IndexMove, Note, NoteKind,
    OperationKind, OperationState, Reachable, SwitchMove, UndoOutcome, UndoneChanges, UpdateMove,
};
pub use ops::{Caller, DirEntry, FallocateMode, RenameMode, SetAttr, SetTime, StatFs, XattrMode};
pub use shown::is_text_node;
pub use snapshot::{SnapshotEvery, SnapshotReason, SnapshotRecord};
pub use store::{Fork, ForkOptions, ParentOptions, SnapshotOptions, Store, TakeUp};
pub use view_steps::{NameOutcome, NamePlace, ViewStep};
