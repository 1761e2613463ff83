//! The store: all that tine keeps for one repository, in `<git-common-dir>/tine/`.
//!
//! [`Store`] makes, opens and removes forks. It keeps their records, snapshots and leases, and
//! repairs what is damaged. An open [`Fork`] has a [`Workspace`](tine_workspace::Workspace), which
//! knows no store.
//!
//! ```text
//! format, format.copy         format version and inode hash key, twice: only these hold the key
//! home                        the repository that the store belongs to
//! lock                        held by the one process that has the store open
//! forks/<name>/fork.json      the fork's record, atomically replaced
//! forks/<name>/snapshots.json the fork's snapshots, atomically replaced
//! forks/<name>/traces.json    resources outside the store, while the fork is being made or removed
//! layers/<id>/                layers; next id in layers/next
//! bases/                      cached indexes of bases
//! generations/<id>/           former dependency trees of the main checkout, named by their hash
//! damaged/<n>/                files that a repair moved aside, under the names that they had
//! reserve                     allocated, never written: space for freeing space on a full disk
//! spares/                     empty files: their inodes serve the same where no inode is free
//! reviews/, handoffs/         records above the level of a fork, and files beside them
//! rounds/.records/            sessions of rounds; rounds/<session>/scratch/ has agents' notes
//! spool/, scratch/            for a process's life: large blobs, temporary layers over snapshots
//! daemon.sock, daemon.log     the daemon's socket and log
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `store`, `places`, `format`, `home`, `misplaced` | opening the store; its paths, version and repository |
//! | `fork`, `snapshot`, `documents`, `files` | records, and how they are written |
//! | `create`, `initial`, `carried`, `times`, `remove`, `rollback` | forks are made and removed |
//! | `open_fork`, `worktree`, `mend`, `memo`, `leases` | forks in use |
//! | `snapshots`, `git_points`, `reset`, `renewing`, `generations` | other states of a fork and of its dependency trees |
//! | `collect`, `merge`, `usage`, `unlocked` | disk space |
//! | `check`, `recover`, `recoverable`, `notices` | repair, and cleaning up after a process that died |
//!
//! Lock order: `leases`, `removal`, `making`, `admin`, then `open` or `index_build`; `generations`
//! is taken last.

mod carried;
mod check;
mod collect;
mod convert;
mod create;
mod documents;
mod error;
mod files;
mod fork;
mod format;
mod generations;
mod git_points;
mod home;
mod initial;
mod leases;
mod memo;
mod mend;
mod merge;
mod misplaced;
mod notices;
mod open_fork;
mod own;
mod places;
mod recover;
mod recoverable;
mod remove;
mod renewing;
mod reset;
mod rollback;
mod snapshot;
mod snapshots;
mod store;
#[cfg(test)]
mod tests;
mod times;
mod unlocked;
mod usage;
mod worktree;

pub use check::{
    CheckCallbacks, CheckOptions, CheckReport, Checked, Depth, FSCK, Finding, FindingKind, SetAside,
};
pub use collect::Collection;
pub use create::{ForkOptions, own_branch};
pub use documents::RecordKind;
pub use error::StoreError;
pub use files::ScratchDir;
pub use fork::{
    Advancing, ForkName, ForkPoint, ForkRecord, GitKind, MountProfile, MountRequest, MountSettings,
    Parent, Renewed, Restoring, Traces, UnmountPolicy, VisiblePath,
};
pub use format::FORMAT;
pub use generations::{GenerationError, MadeGeneration, TreeState};
pub use home::Displaced;
pub use initial::{ForkState, ParentOptions};
pub use leases::{Lease, LeaseKey};
pub use memo::{BlobIdCache, ConvertedAs, IndexStamp, StoredAs};
pub use mend::DotGit;
pub use open_fork::Fork;
pub use recover::{BACKSTAGE_NAME, default_mount_root};
pub use snapshot::{NotedPoint, SnapshotEvery, SnapshotReason, SnapshotRecord};
pub use snapshots::{SnapshotOptions, tree_label};
pub use store::Store;
pub use usage::disk_usage;
pub use worktree::assume_branches;
