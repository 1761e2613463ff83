//! The changeset layer: one delta over what lies beneath, in a directory of its own.
//!
//! A layer maps inode numbers to [`Node`]s and names in directories to [`Dentry`]s. A node that the
//! layer does not name is as it is beneath; so is a name that a directory does not name. All of it
//! stands in an append-only log with an index in memory ([`LayerIndex`]); file contents stand in a
//! data file of slots and, past a threshold, in files of their own ([`contents`]).
//!
//! Invariants:
//! - at one name in one layer: an entry or a whiteout, never both;
//! - one log record is one atomic step, whatever number of [`Op`]s it holds;
//! - content before the record that names it; the record that drops it before the content is freed,
//!   and freed space is used again only once that record is on the disk;
//! - a frozen layer is never written.
//!
//! ```text
//! <layer>/log        header, records: length, checksums, postcard-encoded ops (docs/store.md)
//! <layer>/data       slots of 4 to 64 KiB
//! <layer>/files/<n>  contents past 64 KiB
//! <layer>/parts/     in the place of both: contents of the layers that this one was merged of ([`merge`])
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
pub use contents::{ContentLocation, ContentRef, FILES_NAME};
pub use error::LayerError;
pub use frozen::{FrozenLayer, inos_below};
pub use index::{DirDelta, LayerIndex};
pub use merged::{MergedIndexes, runs_by_size};
pub use node::{CarriedContent, Content, Dentry, FileVersion, LayerId, Node, Op, Origin, Xattrs};
pub use position::LogPosition;
pub use reserve::{Loan, Reserve};
pub use stack::LayerStack;
pub use store::{Layer, LayerStats, SeekWhence, SyncJob};
