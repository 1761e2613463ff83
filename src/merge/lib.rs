//! Three-way merging: values in, values out.
//!
//! ```text
//! base, ours, theirs ─► merge ─► MergeOutcome: a tree, and conflicts as values
//!                                   │ Conflict + Resolution ─► edits of the tree
//! ```
//!
//! Nothing here moves a ref, writes to a checkout or keeps state. It only reads objects and adds
//! blobs and trees to the object database, which deduplicates them. The same input gives the same
//! outcome.

mod classify;
pub mod conflict;
mod settle;
pub mod text;
pub mod tree;
mod walk;

pub use conflict::{Conflict, ConflictKind, MergeSide, Resolution, Version};
pub use settle::{content_place, settle_content, text_of};
pub use text::{
    Favor, MarkerOptions, Style, TextHunk, TextMerge, is_binary, merge_text, takes_back,
};
pub use tree::{Level, MergeInput, MergeOptions, MergeOutcome, Strategy, merge};

#[cfg(test)]
mod tests;
