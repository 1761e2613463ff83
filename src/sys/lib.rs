//! Safe wrappers of system calls that `std` lacks.
//!
//! They use rustix where it has the call. All `unsafe` code and raw `libc` calls of the project are
//! in this crate. It also has small tools for threads: ranked mutexes, parallel waits and test
//! pauses.

pub mod asker;
pub mod beneath;
pub mod calls_beneath;
pub mod cpu;
pub mod file;
pub mod fuse_ring;
pub mod host_dir;
pub mod mapping;
pub mod memory;
pub mod mount;
pub mod namespace;
pub mod parallel;
pub mod pause;
pub mod process;
pub mod ranked;
