//! The only `unsafe` and raw `libc` of the crate: small safe wrappers of system calls that `std`
//! lacks. And what waits for the system in several places at a time.

pub mod asker;
pub mod beneath;
pub mod calls_beneath;
pub mod cpu;
pub mod file;
pub mod fuse_ring;
pub mod mapping;
pub mod memory;
pub mod mount;
pub mod namespace;
pub mod parallel;
pub mod pause;
pub mod process;
pub mod ranked;
