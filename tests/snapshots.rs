//! Snapshots, forks of forks and ways back in real mounts: what programs see and hold, and what is
//! taken while they write.

mod support;

#[path = "snapshots/holes.rs"]
mod holes;
#[path = "snapshots/load.rs"]
mod load;
#[path = "snapshots/open_files.rs"]
mod open_files;
