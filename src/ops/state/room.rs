//! Descriptors that are kept free for what must always work: answering who asks, and unmounting.
//!
//! Each mount holds a handful for as long as it lives. Were mounts made until none is left, the
//! daemon could no longer read which of them are its own, and so could not unmount even one.

use std::{fs, io};

use crate::failure::{self, Failure};
use tine_sys::process;

/// How many forks are unmounted at the same time, at most.
pub(crate) const UNMOUNTED_AT_ONCE: usize = 32;

/// How many descriptors stay free: three for each unmounting, which reads the table of mounts and
/// who uses them.
const KEPT_FREE: u64 = 3 * UNMOUNTED_AT_ONCE as u64;

/// How many files this process has open.
pub(crate) fn open_files() -> io::Result<u64> {
    Ok(fs::read_dir("/proc/self/fd")?.count() as u64)
}

/// Fails where another mount would take from the descriptors that are kept free.
pub(crate) fn for_a_mount() -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::io("count", "/proc/self/fd".as_ref(), &error);
    let open = open_files().map_err(failed)?;
    let limit = process::open_files_limit().map_err(failed)?;
    match open.saturating_add(KEPT_FREE) < limit {
        true => Ok(()),
        false => Err(failure::out_of_files(format!(
            "the daemon has {open} files open and may have {limit}, of which it keeps {KEPT_FREE} free for unmounting"
        ))),
    }
}
