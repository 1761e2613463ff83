//! What is asked of the kernel when a session begins.

use std::io;
use std::time::Duration;

use fuser::{InitFlags, KernelConfig};
use log::debug;

/// Bytes in one write request at most.
pub(super) const MAX_WRITE: u32 = 1024 * 1024;
/// Bytes that the kernel reads ahead at most.
pub(super) const READ_AHEAD: u32 = 1024 * 1024;
/// Requests that nobody waits for (read-ahead) that the kernel sends at once.
const MAX_BACKGROUND: u16 = 64;

/// How many file systems may stand upon each other where the kernel reads files by itself: ours
/// upon the store's, which then must not be one that stands upon others. Something may still be
/// stacked upon ours.
const STACK_DEPTH: u32 = 1;

/// What is asked for, where the kernel has it. Left out on purpose: ATOMIC_O_TRUNC (without open
/// requests it would lose truncations), AUTO_INVAL_DATA (invalidations are explicit),
/// WRITEBACK_CACHE (a write must be in the layer when it returns), POSIX_LOCKS and FLOCK_LOCKS
/// (locks stay in the kernel), READDIRPLUS_AUTO (a listing cached without attributes would never
/// get them), SETXATTR_EXT (`fuser` 0.18 cannot read its requests).
const CAPABILITIES: InitFlags = InitFlags::FUSE_ASYNC_READ
    .union(InitFlags::FUSE_BIG_WRITES)
    .union(InitFlags::FUSE_MAX_PAGES)
    .union(InitFlags::FUSE_DO_READDIRPLUS)
    .union(InitFlags::FUSE_PARALLEL_DIROPS)
    .union(InitFlags::FUSE_CACHE_SYMLINKS)
    .union(InitFlags::FUSE_NO_OPEN_SUPPORT)
    .union(InitFlags::FUSE_NO_OPENDIR_SUPPORT)
    .union(InitFlags::FUSE_EXPLICIT_INVAL_DATA)
    // `.` and `..` are looked up of nodes that the kernel has only a handle of.
    .union(InitFlags::FUSE_EXPORT_SUPPORT)
    // The umask counts only where a directory has no default ACL, which the kernel does not know.
    .union(InitFlags::FUSE_DONT_MASK)
    .union(InitFlags::FUSE_HANDLE_KILLPRIV_V2);

/// Without these the answer that there are no open requests would be an error to whoever opens
/// something.
const REQUIRED: InitFlags =
    InitFlags::FUSE_NO_OPEN_SUPPORT.union(InitFlags::FUSE_NO_OPENDIR_SUPPORT);

/// Fills in the answer to the kernel's INIT. `Unsupported` where the kernel cannot do without open
/// requests.
///
/// Where the kernel checks permissions, it must check ACLs, too. Elsewhere it is not asked to,
/// because that alone would make it check permissions; ACLs are then attributes like others to it,
/// and kept and inherited all the same.
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
    // Each of these answers the nearest value that it would take.
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
