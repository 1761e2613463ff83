//! Client library for programs that run agents in tine's forks.
//!
//! It connects to the daemon of a repository, starts one if none runs, and calls operations. It
//! also runs the steps that belong to the caller's process, as in git: hooks, identities, setup
//! commands and diffs.
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
//!     // A mounted fork is an ordinary checkout: run an agent in `mount_dir`.
//!     let fork = client.call(&New::of(ForkName::parse("fix-parser")?))?;
//!     println!("{}", fork.mount_dir.display());
//!
//!     // Every operation is called in the same way. Its type determines the type of the answer.
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
//! | module | content |
//! |---|---|
//! | [`place`] | Directory of a command, with its repository and its fork. |
//! | [`Client`] | Connection that calls any [operation](ops::Operation). |
//! | [`ops`] | All operations and their answers; [`Failure`](ops::Failure) with its stable codes. |
//! | [`commit`], [`merging`], [`review`] | Commits and merges with hooks and identities, as `tine commit` and `tine merge` make them. |
//! | [`handoff`] | Creation of a handoff, with or without waiting for it. |
//! | [`after_new`] | Steps after a new fork: git's `post-checkout` and the repository's setup command. |
//! | [`diff`], [`content`] | Diffs, and the text of conflicts. |
//! | [`identity`], [`hooks`] | The caller's author and committer; git's hooks. |
//! | [`origin`], [`embedded_paths`], [`cargo_target`] | A fork at another tree's path; paths in a fork that lead to other trees. |
//! | [`ending`], [`silent`] | Stopping a daemon, also one that does not answer. |
//! | [`failures`] | Failures with a cause in the caller's process. |
//!
//! `examples/` has three programs: `overview`, `agents` and `gather`.
//!
//! The daemon runs as a separate process. Its program is [`ConnectOptions::program`]. The default
//! is the current executable if its name begins with `tine`, or else `tine` from `PATH`.

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
pub use tine_store::ForkName;
