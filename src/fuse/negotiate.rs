//! Negotiation with the kernel at the start of a session (INIT).

use std::io;
use std::time::Duration;

use fuser::{InitFlags, KernelConfig};
use log::debug;

/// Largest write request in bytes.
pub(super) const MAX_WRITE: u32 = 1024 * 1024;
/// Largest read-ahead in bytes.
pub(super) const READ_AHEAD: u32 = 1024 * 1024;
/// Number of background requests, such as read-ahead, that may be pending.
const MAX_BACKGROUND: u16 = 64;

/// Stacking depth of the mount, for passthrough.
///
/// The mount is stacked on the store's file system, which must not be stacked itself. One more file
/// system may be stacked on the mount.
const STACK_DEPTH: u32 = 1;

/// Capabilities that are requested if the kernel has them.
///
/// Left out on purpose:
///
/// - ATOMIC_O_TRUNC: without open requests, it would lose truncations.
/// - AUTO_INVAL_DATA: invalidations are explicit.
/// - WRITEBACK_CACHE: a write must be in the layer when it returns.
/// - POSIX_LOCKS and FLOCK_LOCKS: locks stay in the kernel.
/// - READDIRPLUS_AUTO: a listing cached without attributes would never get them.
/// - SETXATTR_EXT: `fuser` 0.18 cannot read its requests.
const CAPABILITIES: InitFlags = InitFlags::FUSE_ASYNC_READ
    .union(InitFlags::FUSE_BIG_WRITES)
    .union(InitFlags::FUSE_MAX_PAGES)
    .union(InitFlags::FUSE_DO_READDIRPLUS)
    .union(InitFlags::FUSE_PARALLEL_DIROPS)
    .union(InitFlags::FUSE_CACHE_SYMLINKS)
    .union(InitFlags::FUSE_NO_OPEN_SUPPORT)
    .union(InitFlags::FUSE_NO_OPENDIR_SUPPORT)
    .union(InitFlags::FUSE_EXPLICIT_INVAL_DATA)
    // For lookups of `.` and `..` in nodes of which the kernel has only a file handle.
    .union(InitFlags::FUSE_EXPORT_SUPPORT)
    // The umask applies only in a directory without a default ACL, which the kernel does not know.
    .union(InitFlags::FUSE_DONT_MASK)
    .union(InitFlags::FUSE_HANDLE_KILLPRIV_V2);

/// Capabilities without which the mount cannot work.
///
/// Without them, programs would see the refusal of open requests as an error.
const REQUIRED: InitFlags =
    InitFlags::FUSE_NO_OPEN_SUPPORT.union(InitFlags::FUSE_NO_OPENDIR_SUPPORT);

/// Fills in the reply to the kernel's INIT.
///
/// If the kernel checks permissions, it must check ACLs, too. Otherwise it is not asked to, because
/// this alone would make it check permissions. ACLs are then ordinary attributes to the kernel; the
/// daemon stores and inherits them in any case.
///
/// # Errors
/// `Unsupported` if the kernel requires open requests, or cannot pass through reads if
/// `passes_through`.
pub(super) fn negotiate(
    config: &mut KernelConfig,
    checks_permissions: bool,
    passes_through: bool,
) -> io::Result<()> {
    if !config.capabilities().contains(REQUIRED) {
        let reason = "the kernel's FUSE is too old, Linux 5.1 or newer is needed";
        return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
    }
    if passes_through {
        if config
            .add_capabilities(InitFlags::FUSE_PASSTHROUGH)
            .is_err()
        {
            let reason =
                "the kernel's FUSE cannot read files by itself, Linux 6.9 or newer is needed";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        if let Err(nearest) = config.set_max_stack_depth(STACK_DEPTH) {
            let _ = config.set_max_stack_depth(nearest);
        }
    }
    let mut capabilities = CAPABILITIES;
    capabilities.set(InitFlags::FUSE_POSIX_ACL, checks_permissions);
    for capability in capabilities.iter() {
        if config.add_capabilities(capability).is_err() {
            debug!("the kernel lacks {capability:?}");
        }
    }
    // Each of these returns the nearest value that it accepts.
    if let Err(nearest) = config.set_max_write(MAX_WRITE) {
        let _ = config.set_max_write(nearest);
    }
    if let Err(nearest) = config.set_max_readahead(READ_AHEAD) {
        let _ = config.set_max_readahead(nearest);
    }
    if let Err(nearest) = config.set_max_background(MAX_BACKGROUND) {
        let _ = config.set_max_background(nearest);
    }
    if let Err(nearest) = config.set_time_granularity(Duration::from_nanos(1)) {
        let _ = config.set_time_granularity(nearest);
    }
    Ok(())
}
