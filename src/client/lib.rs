//! A library for orchestrators of agents. It connects to the daemon of a repository, starts one if
//! none runs, and calls operations. It also runs the steps that belong to the caller's process, as
//! in git: hooks, identities, setup commands and diffs.
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use tine_client::ops::{Failure, New, TakeSnapshot};
//! use tine_client::place::{Place, Silent};
//! use tine_client::ForkName;
//!
//! fn main() -> Result<(), Failure> {
//!     let place = Place::find(Path::new("/src/project"), Arc::new(Silent))?;
//!     let mut client = place.connect()?;
//!
//!     // A fork, mounted: an ordinary checkout, to which an agent can be sent.
//!     let fork = client.call(&New::of(ForkName::parse("fix-parser")?))?;
//!     println!("{}", fork.mount_dir.display());
//!
//!     // Every operation is called in the same way; its type says what it answers.
//!     let snapshot = client.call(&TakeSnapshot {
//!         fork: Some(fork.name),
//!         name: None,
//!         message: Some("before the agent".to_owned()),
//!     })?;
//!     println!("{}", snapshot.name);
//!     Ok(())
//! }
//! ```
//!
//! | module | what for |
//! |---|---|
//! | [`place`] | where a command runs: its repository, and the fork that it stands in |
//! | [`Client`] | a connection, over which any [operation](ops::Operation) is called |
//! | [`ops`] | all operations with their answers, and [`Failure`](ops::Failure) with its stable codes |
//! | [`commit`], [`merging`], [`review`], [`handoff`] | operations with hooks and identities, as `tine commit` and the like do them |
//! | [`after_new`] | what follows on a new fork: git's `post-checkout`, and the repository's setup command |
//! | [`diff`], [`content`] | differences and conflicts with their texts |
//! | [`ending`], [`silent`] | the end of a daemon that is asked to, or does not answer |
//!
//! Three programs are in `examples/`: `overview`, `agents` and `gather`. Which program the daemon
//! is started from is said in
//! [`ConnectOptions::program`]: this one, if it is tine, or else the `tine` that `PATH` leads to.

pub mod after_new;
pub mod cargo_target;
pub mod commit;
mod connection;
pub mod content;
pub mod diff;
pub mod embedded_paths;
pub mod ending;
pub mod failures;
pub mod handoff;
pub mod hooks;
pub mod identity;
mod killed;
pub mod merging;
pub mod origin;
pub mod place;
pub mod review;
pub mod silent;

pub use connection::{Client, ConnectOptions, ask_running};
pub use tine_ops as ops;
pub use tine_workspace::ForkName;
