//! Keeps file descriptors free for answers to clients and for unmounting.
//!
//! A mount holds several descriptors for its whole life. If mounts used up all descriptors, the
//! daemon could not read the mount table to find its own mounts, and could not unmount any of them.

use std::{fs, io};

use crate::failure::{self, Failure};
use tine_sys::process;

/// Maximum number of forks that are unmounted at the same time.
pub(crate) const UNMOUNTED_AT_ONCE: usize = 32;

/// Number of descriptors that stay free.
///
/// Each unmounting needs three: it reads the mount table and the processes that use the mount.
const KEPT_FREE: u64 = 3 * UNMOUNTED_AT_ONCE as u64;

/// Returns the number of files that this process has open.
pub(crate) fn open_files() -> io::Result<u64> {
    Ok(fs::read_dir("/proc/self/fd")?.count() as u64)
}

/// Fails if another mount would use the descriptors that are kept free.
pub(crate) fn check_free_for_mount() -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::io("count", "/proc/self/fd".as_ref(), &error);
    let open = open_files().map_err(failed)?;
    let limit = process::open_files_limit().map_err(failed)?;
    if open.saturating_add(KEPT_FREE) < limit {
        Ok(())
    } else {
        Err(failure::out_of_files(format!(
            "the daemon has {open} files open and may have {limit}, of which it keeps {KEPT_FREE} free for unmounting"
        )))
    }
}
