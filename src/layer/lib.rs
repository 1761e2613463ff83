//! Store for one layer: a delta over the layers below it, in a directory.
//!
//! A layer maps inode numbers to [`Node`]s, and names in directories to [`Dentry`]s. The layers
//! below supply each node and name that the layer does not have. All of this is in an append-only
//! log with an index in memory ([`LayerIndex`]). File contents are in a data file of slots and,
//! past a threshold, in a file for each content ([`contents`]).
//!
//! Invariants:
//! - A name in one layer is an entry or a whiteout, never both.
//! - One log record is one atomic step, however many [`Op`]s it has.
//! - A content is written before the record that names it. A content is freed after the record that
//!   drops it, and its space is reused only once that record is on disk.
//! - A frozen layer is never written.
//!
//! ```text
//! <layer>/log        header, records: length, checksums, postcard-encoded ops (docs/store.md)
//! <layer>/data       slots of 4 to 64 KiB
//! <layer>/files/<n>  contents past 64 KiB
//! <layer>/parts/     instead of both: contents of the layers merged into this one ([`merge`])
//! ```

pub mod changes;
pub mod check;
mod content_file;
mod content_store;
pub mod contents;
mod descriptors;
pub mod error;
mod fault;
pub mod frozen;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod index;
mod log;
mod merge;
pub mod merged;
pub mod node;
pub mod position;
mod ranges;
mod record;
pub mod reserve;
pub mod salvage;
mod slots;
pub mod stack;
pub mod store;
#[cfg(test)]
mod tests;

pub use changes::{ChangesSince, Touched};
pub use content_file::{ContentFile, ContentFlush};
pub use contents::{ContentLocation, ContentRef, FILES_NAME, SeekWhence};
pub use error::LayerError;
pub use frozen::{FrozenLayer, inos_below};
pub use index::{DirDelta, LayerIndex};
pub use merged::{MergedIndexes, runs_by_size};
pub use node::{CarriedContent, Content, Dentry, FileVersion, LayerId, Node, Op, Origin, Xattrs};
pub use position::LogPosition;
pub use reserve::{Loan, Reserve};
pub use stack::LayerStack;
pub use store::{Layer, LayerStats, SyncJob};
