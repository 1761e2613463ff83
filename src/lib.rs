//! tine: copy-on-write workspaces over a git repository, mounted with FUSE.
//!
//! Imports run downwards only (`tests/architecture.rs` checks it):
//!
//! ```text
//! cli, mcp, ui ─► daemon ─► fuse, tools ─► change ─► workspace ─► layer, merge ─► git ─► path, attr, sys
//! ```
//!
//! The library never prints, prompts or ends the process; only [`cli`] does.

pub mod attr;
pub mod change;
pub mod cli;
pub mod daemon;
pub mod fuse;
pub mod git;
pub mod layer;
pub mod mcp;
pub mod merge;
pub mod path;
pub mod sys;
pub mod tools;
pub mod ui;
pub mod workspace;
