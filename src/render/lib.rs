//! Text for answers and failures: quoting, sizes, times, conflicts, and failures in JSON.
//!
//! All front ends share it.
//!
//! This crate never prints.

pub mod failure;
pub mod handoffs;
pub mod merging;
pub mod nodes;
pub mod text;
