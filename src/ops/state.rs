//! State that the daemon keeps in memory: forks, mounts, and requests in progress.

pub mod generations;
pub mod handoffs;
pub(crate) mod lent_settings;
pub mod overlay;
pub(crate) mod place;
pub mod presence;
pub(crate) mod room;
pub mod slots;
pub(crate) mod strays;
pub mod taking;
