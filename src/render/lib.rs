//! Words for answers and failures, for every front end: texts and paths quoted, sizes and times, conflicts, failures in JSON.
//!
//! Nothing here prints.

pub mod failure;
pub mod handoffs;
pub mod merging;
pub mod nodes;
pub mod text;
