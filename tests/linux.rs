//! The mount beside ext4: each check is a function of a directory, tried in a fork's mount and in a
//! checkout on the host's file system, and what it observes must be the same. Where it is not, the
//! difference stands with the check and, with its reason, in docs/semantics.md.

#[path = "linux/compare.rs"]
mod compare;
mod support;

#[path = "linux/access.rs"]
mod access;
#[path = "linux/directories.rs"]
mod directories;
#[path = "linux/figures.rs"]
mod figures;
#[path = "linux/io.rs"]
mod io;
#[path = "linux/locks.rs"]
mod locks;
#[path = "linux/mapping.rs"]
mod mapping;
#[path = "linux/names.rs"]
mod names;
#[path = "linux/notification.rs"]
mod notification;
#[path = "linux/ranges.rs"]
mod ranges;
#[path = "linux/rename.rs"]
mod rename;
#[path = "linux/stacking.rs"]
mod stacking;
#[path = "linux/times.rs"]
mod times;
