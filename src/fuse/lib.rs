//! FUSE mounts of forks: the only crate that uses `fuser`.
//!
//! A transport decodes requests, sends replies, and decides nothing. One module implements the
//! requests for all transports.
//!
//! ```text
//! mount ──► device     mounts a descriptor of /dev/fuse: directly or through fusermount3
//!   │  ───► place      identifies our mount in /proc/self/mountinfo
//!   │  ───► notifier   sends invalidations to the kernel from a separate thread
//!   │  ───► control    aborts a connection that outlives its mount
//!   │  ───► transport  chooses between the two transports
//!   │  ───► replayer   repeats a change as system calls in the mount ──► watchers
//!   ├─────► adapter    transport 1: `fuser`, reading and writing /dev/fuse ──► negotiate
//!   └─────► ring       transport 2: one io_uring ring for each CPU
//!             └─► operations   implements each request on a workspace, for both transports
//!                   │            ──► convert, ioctl, errno, counters (and busy_files)
//!                   ├─► generations   which of the kernel's inodes of a number is meant
//!                   ├─► replay    answers the replayer's own requests
//!                   └─► overlay   resolves names where unsaved text is shown ──► askers
//! users                finds the processes that keep a mount busy
//! ```

mod adapter;
mod askers;
mod busy_files;
mod control;
mod convert;
mod counters;
mod device;
mod entries;
mod errno;
mod error;
mod generations;
mod host_view;
mod ioctl;
pub mod mount;
mod negotiate;
mod notifier;
mod opens;
mod operations;
mod overlay;
mod place;
mod priming;
mod replay;
mod replayer;
mod ring;
#[cfg(test)]
mod tests;
mod transport;
mod users;
mod watchers;

pub use askers::process_and_above;
pub use busy_files::BusyFile;
pub use counters::{KindMetrics, LATENCY_CLASSES, Traffic, latency_bound_secs};
pub use error::MountError;
pub use mount::{
    FuseMount, MountOptions, MountPoint, UnmountMode, cut_off, detach_stale,
    files_under_mount_point, guards_below, has_lost_daemon, remove_guard,
};
pub use place::is_seen_at;
pub use transport::{RINGS_PARAMETER, Transport, TransportChoice, UnknownTransport};
pub use users::{users_of, users_of_each};
