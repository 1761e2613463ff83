//! Text for answers and failures, shared by all front ends: quoting, sizes, times, conflicts, and
//! failures in JSON.
//!
//! This crate never prints.

pub mod failure;
pub mod handoffs;
pub mod merging;
pub mod nodes;
pub mod text;
