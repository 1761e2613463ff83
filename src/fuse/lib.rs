//! The kernel's side of a fork: the only place that knows `fuser`. A transport decodes and replies,
//! and decides nothing; what a request does stands in one place for all transports.
//!
//! ```text
//! mount ──► device     a descriptor of /dev/fuse that is mounted: by ourselves or through fusermount3
//!   │  ───► place      which mount is ours, from /proc/self/mountinfo
//!   │  ───► notifier   invalidations, sent to the kernel from a thread of their own
//!   │  ───► control    ends a connection that lives on
//!   │  ───► transport  which of the two there are
//!   │  ───► replayer   makes the calls in the mount that a change would have taken ──► watchers
//!   ├─────► adapter    one transport: `fuser`, reading and writing /dev/fuse ──► negotiate
//!   └─────► ring       the other: a ring of io_uring for each CPU
//!             └─► operations   for both: what each request does, on a workspace ──► convert, ioctl, errno, counters (and busy_files)
//!                   ├─► generations   which of the kernel's inodes of a number is meant
//!                   ├─► replay    answers to the replayer's own requests
//!                   └─► overlay   what a name leads to where unsaved text is shown ──► askers
//! users                who keeps a mount busy
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
mod generations;
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
pub use counters::{KindFigures, LATENCY_CLASSES, Traffic, latency_bound_secs};
pub use mount::{
    FuseMount, MountError, MountOptions, MountPoint, UnmountMode, cut_off, detach_stale,
    guards_below, has_lost_daemon, lying_at, remove_guard,
};
pub use place::is_seen_at;
pub use transport::{RINGS_PARAMETER, Transport, TransportChoice, UnknownTransport};
pub use users::{users_of, users_of_each};
