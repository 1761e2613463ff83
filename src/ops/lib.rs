//! Operations on forks: what is asked, what is answered, and what is done; and what the daemon has in memory for them.

mod convert;
pub mod failure;
pub mod generations;
pub mod handlers;
pub mod handoffs;
pub mod monitor;
pub mod overlay;
mod place;
mod points;
mod policy;
pub mod presence;
pub mod protocol;
mod report;
mod room;
pub mod slots;
mod strays;
pub mod transfer;

pub use failure::{ErrorCode, ExitCode, Failure};
pub use policy::{stays_committed, work_message};
