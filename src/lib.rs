//! tine: copy-on-write workspaces over a git repository, mounted with FUSE.
//!
//! Each part is a crate. Imports run downwards only:
//!
//! ```text
//! cli ─► mcp, ui ─► client ─► render, daemon ─► ops ─► fuse, tools ─► change ─► store ─► workspace ─► layer, merge ─► git ─► failure ─► path, attr, sys
//! ```
//!
//! The library does not print, prompt or end the process. Only [`cli`] does.

#![warn(missing_docs, unreachable_pub)]
#![warn(clippy::match_bool, clippy::missing_errors_doc)]

pub use tine_attr as attr;
pub use tine_change as change;
pub use tine_client as client;
pub use tine_daemon as daemon;
pub use tine_failure as failure;
pub use tine_fuse as fuse;
pub use tine_git as git;
pub use tine_layer as layer;
pub use tine_mcp as mcp;
pub use tine_merge as merge;
pub use tine_ops as ops;
pub use tine_path as path;
pub use tine_render as render;
pub use tine_store as store;
pub use tine_sys as sys;
pub use tine_tools as tools;
pub use tine_ui as ui;
pub use tine_workspace as workspace;

pub mod cli;
