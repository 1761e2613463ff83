//! Access to the git repository: objects, refs, worktrees, indexes, and the git program.
//!
//! It reads base trees and blobs through shared caches, writes objects and refs, and handles linked
//! worktrees, their indexes and ignore rules.
//!
//! Nothing here knows of forks, layers or mounts. Many threads read at once: [`Repository`] is
//! shared, and each thread takes its own handle with [`Repository::local`].

mod aliases;
pub mod base;
mod branches;
pub mod caller;
mod checkout;
mod checksum;
pub mod commit;
pub mod directory;
pub mod error;
mod exclude;
mod fast_forward;
mod head;
pub mod history;
pub mod ignore;
pub mod ignored;
pub mod index;
pub mod line_counts;
mod locking;
pub mod mailbox;
pub mod merge_tree;
pub mod monitor;
pub mod nonblocking;
pub mod objects;
pub mod own;
pub mod patch;
pub mod patterns;
pub mod program;
pub mod recovery;
pub mod refs;
pub mod remotes;
pub mod repository;
pub mod rerere;
mod rule_files;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod traces;
mod unchanged;
pub mod worktree;

pub use base::{
    Base, BaseCache, BaseDir, BaseEntry, BlobContent, CacheStats, CacheUsage, CacheUses,
    ConversionSettings, InoHasher,
};
pub use branches::{BranchTip, Distance};
pub use caller::CallerConfig;
pub use commit::{CommitSpec, CommitTime, Identity, Message, Role, TreeChange, clean_message};
pub use error::GitError;
pub use fast_forward::CheckoutMove;
pub use gix::ObjectId;
pub use gix::objs::Kind;
pub use head::{GoneBranch, MovedUnder};
pub use history::CommitContent;
pub use ignore::{IgnoreRules, MAX_IGNORE_FILE_BYTES};
pub use merge_tree::{IndexStage, MergeMessage, MergeTreeSpec, MergedTree, StageSide};
pub use objects::{CommitInfo, TreeEntry, TreeEntryKind};
pub use patch::{PatchFile, Patched, PatchedFiles, RejectedFile};
pub use refs::DamagedBranch;
pub use repository::{Head, Repository};
pub use worktree::{Checkout, Worktree};
