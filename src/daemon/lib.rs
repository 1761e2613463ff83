//! One process per store: owns the store, the mounts and the socket; and the client side of that socket.
//!
//! Every command that changes a fork goes through the daemon, so kernel caches, tools and command line always agree.
//! Requests and answers are JSON, one a line ([`protocol`]); whatever fails becomes a [`Failure`] with a stable code.
//!
//! ```text
//! client ── launch ──► (a new process) server::run
//!    │                                   │ takes the store's lock, binds the socket, mounts again
//!    └── socket, wire ──► connection ──► handlers ──► slots (one per fork) ──► workspace, fuse, change
//! ```

pub mod client;
mod connection;
mod convert;
pub mod ending;
pub mod failure;
mod generations;
mod handlers;
mod handoffs;
mod journal;
mod killed;
mod launch;
pub mod monitor;
mod overlay;
mod place;
mod points;
mod policy;
mod presence;
pub mod protocol;
mod report;
mod room;
pub mod server;
pub mod silent;
mod slots;
mod socket;
mod strays;
pub mod transfer;
mod wire;

pub use self::policy::{stays_committed, work_message};
pub use client::{Client, ConnectOptions};
pub use failure::{ErrorCode, ExitCode, Failure};
