//! The daemon: one process per store that owns the store, mounts and socket.
//!
//! Every command that changes a fork goes through the daemon, so kernel caches, tools and command
//! line always agree. Requests and answers are JSON, one a line. Every error becomes a
//! [`Failure`](tine_ops::Failure) with a stable code.
//!
//! ```text
//! client ── launch ──► (a new process) server::run
//!    │                                   │ locks the store, binds the socket, mounts again
//!    └── socket, wire ──► connection ──► operations ──► slots (one per fork)
//!                                                         └──► workspace, fuse, change
//! ```

mod connection;
pub mod journal;
pub mod launch;
pub mod server;
pub mod socket;
pub mod wire;
