//! Changes of forks, and everything that is made of them.
//!
//! A *changeset* is the typed difference between two views or trees. Status, diff, commit and dry
//! runs are made of it. [`compare`] is pure over a [`Delta`](tine_workspace::Delta), a tree reader
//! and ignore rules; [`changeset`] adds the contents of files.
//!
//! The other modules carry out commits, merges, sequences, reviews, handoffs and rounds, move a
//! fork's HEAD and view, and keep dropped work.

pub mod advance;
pub mod branches;
pub mod changeset;
pub mod check;
pub mod checkout;
pub mod commit;
pub mod compare;
mod contents;
mod cut_back;
pub mod error;
pub mod fork_point;
pub mod going_back;
pub mod handoff;
pub mod merge;
mod nested;
pub mod point;
pub mod recovery;
pub mod rerere;
pub mod resolver;
pub mod revert;
pub mod revert_guard;
pub mod review;
pub mod round;
pub mod scratch;
pub mod sequence;
pub mod snapshots;
pub mod state;
pub mod superseded;
pub mod switch;
#[cfg(test)]
mod tests;
pub mod view;
pub mod with_git;
pub mod write_back;

pub use changeset::{Change, ChangeKind, Changeset, Side};
pub use commit::{CommitOptions, CommitOutcome, SettleOutcome};
pub use error::ChangeError;
pub use point::{FoundPoint, Point, PointTree};
pub use revert::{RevertOptions, RevertOutcome, RevertTo, revert};
