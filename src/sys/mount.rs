//! Mounting, unmounting, and receiving the descriptor that `fusermount3` sends.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Once;

use rustix::fs::CWD;
use rustix::io::retry_on_intr;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, OpenTreeFlags, UnmountFlags,
};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::path::Arg;

/// Features of a file system that a mount ignores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountRestrictions {
    /// True to ignore set-ID bits and file capabilities (`MS_NOSUID`).
    pub set_id: bool,
    /// True to ignore device nodes (`MS_NODEV`).
    pub devices: bool,
}

/// Calls `mount(2)` with `MS_NOATIME`.
///
/// `options` is the comma-separated list for the file system itself.
///
/// # Errors
/// The error of `mount(2)`; `EINVAL` for a string with a NUL byte.
pub fn mount(
    source: &str,
    dir: &Path,
    fs_type: &str,
    inert: MountRestrictions,
    options: &str,
) -> io::Result<()> {
    let mut flags = MountFlags::NOATIME;
    flags.set(MountFlags::NOSUID, inert.set_id);
    flags.set(MountFlags::NODEV, inert.devices);
    mount_with(flags, source, dir, fs_type, options)
}

/// Mounts a file system read-only, without set-ID, devices and exec.
///
/// # Errors
/// As in [`mount`].
pub fn mount_read_only(source: &str, dir: &Path, fs_type: &str, options: &str) -> io::Result<()> {
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount_with(flags, source, dir, fs_type, options)
}

fn mount_with(
    flags: MountFlags,
    source: &str,
    dir: &Path,
    fs_type: &str,
    options: &str,
) -> io::Result<()> {
    let options = options.into_c_str()?;
    Ok(rustix::mount::mount(
        source, dir, fs_type, flags, &*options,
    )?)
}

/// Mounts a file system outside every namespace and returns its root.
///
/// The file system takes no options. It goes away with the last open file on it.
///
/// # Errors
/// The error of `fsopen(2)`, `fsconfig(2)` or `fsmount(2)`.
pub fn mount_nowhere(fs_type: &str) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(fs_type, FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    Ok(rustix::mount::fsmount(
        context,
        flags,
        MountAttrFlags::empty(),
    )?)
}

/// Returns a detached copy of the mount below `dir` (`open_tree(2)`).
///
/// The copy leaves out mounts below `dir`. It is reachable only through the descriptor and goes
/// away with it.
///
/// # Errors
/// The error of `open_tree(2)`.
pub fn copy_mount(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(rustix::mount::open_tree(CWD, dir, flags)?)
}

/// Mode of `umount2(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnmountKind {
    /// Fails with `EBUSY` while anything uses the mount.
    IfUnused,
    /// Detaches the mount at once (`MNT_DETACH`).
    ///
    /// Processes that use it keep it until they end.
    Detach,
    /// Detaches the mount and aborts pending requests (`MNT_DETACH | MNT_FORCE`).
    Abort,
}

/// Unmounts the file system at `dir`, which must not be a symlink.
///
/// # Errors
/// The error of `umount2(2)`: `EBUSY` if in use, `EINVAL` if `dir` is not a mount point.
pub fn unmount(dir: &Path, how: UnmountKind) -> io::Result<()> {
    let flags = match how {
        UnmountKind::IfUnused => UnmountFlags::empty(),
        UnmountKind::Detach => UnmountFlags::DETACH,
        UnmountKind::Abort => UnmountFlags::DETACH | UnmountFlags::FORCE,
    };
    Ok(rustix::mount::unmount(dir, flags | UnmountFlags::NOFOLLOW)?)
}

/// Checks that the server of the file system at `path` answers.
///
/// Calls `statfs(2)`, which always reaches the server of a FUSE mount. The kernel answers `stat(2)`
/// from its cache. Blocks until the server answers.
///
/// # Errors
/// `ENOTCONN` if the server has ended.
pub fn probe(path: &Path) -> io::Result<()> {
    rustix::fs::statfs(path)?;
    Ok(())
}

/// Receives one descriptor (`SCM_RIGHTS`). Blocks until a message arrives.
///
/// # Errors
/// `UnexpectedEof` if the peer closed the socket without a message. `InvalidData` for a message
/// without a descriptor.
pub fn receive_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(&mut byte)];
        rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    descriptor.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Makes the allocator map buffers of 8 MiB and more separately.
///
/// Such a buffer comes straight from the kernel and goes back to it. Smaller buffers are reused.
///
/// By default, glibc raises its threshold when the first large buffer is freed. It then cuts the
/// next one from the heap and clears it by writing, so that all of it is resident. The buffers of
/// FUSE threads are 16 MiB, of which only a small part is used.
pub fn keep_large_buffers_untouched() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: mallopt(3) may be called at any time; it takes plain numbers.
        #[cfg(target_env = "gnu")]
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, 8 * 1024 * 1024);
            // Setting the first threshold fixes this one at less than the size of one read or
            // write.
            libc::mallopt(libc::M_TRIM_THRESHOLD, 4 * 1024 * 1024);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_socket_is_no_descriptor() {
        let (here, there) = UnixStream::pair().unwrap();
        drop(there);
        assert_eq!(
            receive_descriptor(&here).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }

    #[test]
    fn a_byte_without_descriptor_is_refused() {
        use std::io::Write;
        let (here, mut there) = UnixStream::pair().unwrap();
        there.write_all(b"x").unwrap();
        assert_eq!(
            receive_descriptor(&here).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }

    #[test]
    fn probing_a_missing_place_fails() {
        assert_eq!(
            probe(Path::new("/nonexistent/place")).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
