//! A fork as a file system.
//!
//! It needs no mount and knows no store. [`Workspace`] carries out POSIX operations by inode number
//! (for the kernel) and by path (for tools), over a base tree and a stack of layers. Its opener
//! passes the base, the layers and the files to carry. [`Delta`] is a plain value with the changes
//! of a fork's layers.

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
#[cfg(test)]
mod tests;
mod view_steps;
mod xattr;

pub use apply::{Advance, ApplyOptions, FileContent, NewEntry, Replacement};
pub use base_nodes::{BaseAttrs, base_root};
pub use base_times::{BaseTimes, TimesId};
pub use carry::{CarryRecord, CarryRules, DependencyTree};
pub use changed::Changed;
pub use delta::{Delta, DeltaDir, DeltaEntry, DeltaNode};
pub use error::{FsError, OperationError};
pub use follow::{FinalComponent, PathNode};
pub use fs::{Announcement, AnnouncementListener, Invalidation, Workspace};
pub use lower_stack::{Exclusive, LowerStack};
pub use operate::{MoveOptions, Moved, NewContent, PutOptions, Written};
pub use operations::{
    Actor, Direction, FileChange, FileOperation, GitSwitch, HeadMove, IndexContent, IndexMove,
    Note, NoteKind, OperationKind, OperationState, Reachable, SwitchMove, UndoOutcome,
    UndoneChanges, UpdateMove,
};
pub use ops::{Caller, DirEntry, FallocateMode, RenameMode, SetAttr, SetTime, StatFs, XattrMode};
pub use shown::is_text_node;
pub use view_steps::{NameOutcome, NamePlace, ViewStep};
