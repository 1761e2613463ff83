//! System calls of mounting and unmounting, and the descriptor that `fusermount3` sends.

use std::fs::File;
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
    let mut flags = MountFlags::NOATIME;
    flags.set(MountFlags::NOSUID, inert.set_id);
    flags.set(MountFlags::NODEV, inert.devices);
    mount_with(flags, source, dir, fs_type, options)
}

/// As [`mount`], for a file system to which nobody can write.
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

/// Root of a file system that needs no options and gets no place in any namespace: it goes with the
/// last file open there.
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

/// A copy of the mount that `dir` is on, from `dir` down and without what is mounted below; nowhere
/// to be found but through the descriptor, and gone with it (`open_tree(2)`).
pub fn copy_mount(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(rustix::mount::open_tree(CWD, dir, flags)?)
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
    let flags = match how {
        UnmountHow::IfUnused => UnmountFlags::empty(),
        UnmountHow::Detach => UnmountFlags::DETACH,
        UnmountHow::Abort => UnmountFlags::DETACH | UnmountFlags::FORCE,
    };
    Ok(rustix::mount::unmount(dir, flags | UnmountFlags::NOFOLLOW)?)
}

/// Asks the file system at `path` for its figures and drops the answer: unlike `stat(2)`, which the
/// kernel answers from its cache, this always reaches the server of a FUSE mount, and fails with
/// `ENOTCONN` where that is gone.
pub fn probe(path: &Path) -> io::Result<()> {
    rustix::fs::statfs(path)?;
    Ok(())
}

/// `syncfs(2)`: writes back what the kernel holds for the file system that `file` is on.
pub fn sync_file_system(file: &File) -> io::Result<()> {
    Ok(rustix::fs::syncfs(file)?)
}

/// Receives one descriptor (`SCM_RIGHTS`). `UnexpectedEof` where the other side closed without
/// sending one.
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
