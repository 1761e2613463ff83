//! System calls of mounting and unmounting, and the descriptor that `fusermount3` sends.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Once;

fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// What has no effect on a mount, though it can be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountRestrictions {
    /// Set-id bits and capabilities of files (`MS_NOSUID`).
    pub set_id: bool,
    /// Device nodes (`MS_NODEV`).
    pub devices: bool,
}

/// `mount(2)` with `MS_NOATIME`; `options` is the file system's own comma-separated list.
pub fn mount(
    source: &str,
    dir: &Path,
    fs_type: &str,
    inert: MountRestrictions,
    options: &str,
) -> io::Result<()> {
    let mut flags = libc::MS_NOATIME;
    if inert.set_id {
        flags |= libc::MS_NOSUID;
    }
    if inert.devices {
        flags |= libc::MS_NODEV;
    }
    mount_with(flags, source, dir, fs_type, options)
}

/// As [`mount`], for a file system to which nobody can write.
pub fn mount_read_only(source: &str, dir: &Path, fs_type: &str, options: &str) -> io::Result<()> {
    let flags = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mount_with(flags, source, dir, fs_type, options)
}

fn mount_with(
    flags: libc::c_ulong,
    source: &str,
    dir: &Path,
    fs_type: &str,
    options: &str,
) -> io::Result<()> {
    let source = c_string(source.as_bytes())?;
    let dir = c_string(dir.as_os_str().as_bytes())?;
    let fs_type = c_string(fs_type.as_bytes())?;
    let options = c_string(options.as_bytes())?;
    // SAFETY: all four pointers are to NUL-terminated strings that outlive the call.
    check(unsafe {
        libc::mount(
            source.as_ptr(),
            dir.as_ptr(),
            fs_type.as_ptr(),
            flags,
            options.as_ptr().cast(),
        )
    })
}

/// Root of a file system that needs no options and gets no place in any namespace: it goes with the
/// last file open there.
pub fn mount_nowhere(fs_type: &str) -> io::Result<OwnedFd> {
    const FSOPEN_CLOEXEC: libc::c_uint = 1;
    const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
    const FSMOUNT_CLOEXEC: libc::c_uint = 1;
    let no_text = std::ptr::null::<libc::c_char>();
    let fs_type = c_string(fs_type.as_bytes())?;
    // SAFETY: the pointer is to a NUL-terminated string that outlives the call, which answers with
    // a new descriptor.
    let context =
        descriptor(unsafe { libc::syscall(libc::SYS_fsopen, fs_type.as_ptr(), FSOPEN_CLOEXEC) })?;
    // SAFETY: the command takes neither key nor value, and the descriptor is open.
    check(unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            no_text,
            no_text,
            0,
        ) as libc::c_int
    })?;
    // SAFETY: the call takes numbers and answers with a new descriptor.
    descriptor(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0) })
}

/// A copy of the mount that `dir` is on, from `dir` down and without what is mounted below; nowhere
/// to be found but through the descriptor, and gone with it (`open_tree(2)`).
pub fn copy_mount(dir: &Path) -> io::Result<OwnedFd> {
    const OPEN_TREE_CLONE: libc::c_uint = 1;
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as libc::c_uint;
    let dir = c_string(dir.as_os_str().as_bytes())?;
    // SAFETY: the path is NUL-terminated and outlives the call, which answers with a new
    // descriptor.
    descriptor(unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, dir.as_ptr(), flags) })
}

/// What a system call gave that answers with a new descriptor.
fn descriptor(result: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(result) {
        // SAFETY: the kernel has just given it out, so it is nobody else's.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How `umount2(2)` goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnmountHow {
    /// `EBUSY` while anything uses the mount.
    IfUnused,
    /// `MNT_DETACH`: gone from the tree at once, in use until its last user ends.
    Detach,
    /// `MNT_DETACH | MNT_FORCE`: detached, and requests under way are aborted.
    Abort,
}

/// Unmounts what is mounted at `dir`, which may not be a symlink.
pub fn unmount(dir: &Path, how: UnmountHow) -> io::Result<()> {
    let dir = c_string(dir.as_os_str().as_bytes())?;
    let flags = match how {
        UnmountHow::IfUnused => 0,
        UnmountHow::Detach => libc::MNT_DETACH,
        UnmountHow::Abort => libc::MNT_DETACH | libc::MNT_FORCE,
    };
    // SAFETY: the pointer is to a NUL-terminated string that outlives the call.
    check(unsafe { libc::umount2(dir.as_ptr(), flags | libc::UMOUNT_NOFOLLOW) })
}

/// Asks the file system at `path` for its figures and drops the answer: unlike `stat(2)`, which the
/// kernel answers from its cache, this always reaches the server of a FUSE mount, and fails with
/// `ENOTCONN` where that is gone.
pub fn probe(path: &Path) -> io::Result<()> {
    let path = c_string(path.as_os_str().as_bytes())?;
    let mut figures = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path is NUL-terminated and the buffer has the size of what is written to it.
    check(unsafe { libc::statvfs(path.as_ptr(), figures.as_mut_ptr()) })
}

/// `syncfs(2)`: writes back what the kernel holds for the file system that `file` is on.
pub fn sync_file_system(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open while `file` is borrowed.
    check(unsafe { libc::syncfs(file.as_raw_fd()) })
}

/// Receives one descriptor (`SCM_RIGHTS`). `UnexpectedEof` where the other side closed without
/// sending one.
pub fn receive_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    /// Room for one control message with one descriptor, aligned as `cmsghdr` must be.
    #[repr(align(8))]
    struct ControlBuffer([u8; 64]);
    let mut control = ControlBuffer([0; 64]);
    let mut byte = 0u8;
    let mut part = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    // SAFETY: `msghdr` is plain data for which all zeroes are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    let received = loop {
        // SAFETY: `message` points at buffers that live through the call, with their true lengths.
        let received =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) };
        if received >= 0 {
            break received;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    };
    if received == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // SAFETY: the kernel filled `message` in; CMSG_FIRSTHDR answers null or a header inside the
    // control buffer, and the length is checked before the descriptor behind the header is read.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        if header.is_null()
            || (*header).cmsg_level != libc::SOL_SOCKET
            || (*header).cmsg_type != libc::SCM_RIGHTS
            || ((*header).cmsg_len as usize) < libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let descriptor = libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned();
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

/// Has buffers of 8 MiB and more come straight from the kernel and go back to it, and smaller ones
/// reused.
///
/// By default glibc raises its threshold for that when the first large buffer is freed; the next
/// one is then cut from the heap and cleared by writing to it, so that all of it is resident. The
/// buffers of FUSE threads are 16 MiB, of which a small part is ever used.
pub fn keep_large_buffers_untouched() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: mallopt(3) may be called at any time; it takes plain numbers.
        #[cfg(target_env = "gnu")]
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, 8 * 1024 * 1024);
            // Setting the first one fixes this one, too, at a value below the size of one read or
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
