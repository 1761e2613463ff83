//! What the daemon has in memory: forks, mounts, and what is under way.

pub mod generations;
pub mod handoffs;
pub mod overlay;
pub(crate) mod place;
pub mod presence;
pub(crate) mod room;
pub mod slots;
pub(crate) mod strays;
