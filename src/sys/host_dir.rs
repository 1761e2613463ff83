//! Calls on names in one open directory, to serve it.
//!
//! No call follows a symlink at the name. The caller opens the directory that holds the name.

use std::fs::File;
use std::io;

use rustix::buffer::spare_capacity;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
    Uid, XattrFlags,
};
use tine_attr::Timestamp;

use super::beneath::open_with;

/// Largest extended attribute of Linux, in bytes.
const XATTR_SIZE_MAX: usize = 65_536;

/// Time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewTime {
    /// Stays as it is.
    Same,
    /// The time of the call.
    Now,
    /// This time.
    At(Timestamp),
}

/// Opens the directory `name` for calls on names in it.
///
/// # Errors
/// `ENOTDIR`, `ELOOP` for a symlink, and the other errors of `openat2(2)`.
pub fn open_dir(dir: &File, name: &[u8]) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open_with(dir, name, flags, Mode::empty())
}

/// Opens a regular file, to write it if that is allowed. Never blocks on a pipe.
///
/// # Errors
/// `ELOOP` for a symlink, and the other errors of `openat2(2)`.
pub fn open_file(dir: &File, name: &[u8]) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    match open_with(dir, name, flags | OFlags::RDWR, Mode::empty()) {
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EACCES | libc::EROFS | libc::EPERM | libc::ETXTBSY)
            ) =>
        {
            open_with(dir, name, flags | OFlags::RDONLY, Mode::empty())
        }
        opened => opened,
    }
}

/// Creates a regular file, and opens it to read and write.
///
/// # Errors
/// `EEXIST` if the name exists, and the other errors of `openat2(2)`.
pub fn create_file(dir: &File, name: &[u8], perm: u16) -> io::Result<File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open_with(dir, name, flags, mode(perm))?;
    // The mask of this process has no say.
    rustix::fs::fchmod(&file, mode(perm))?;
    Ok(file)
}

/// Creates a directory.
///
/// # Errors
/// The error of `mkdirat(2)`.
pub fn make_dir(dir: &File, name: &[u8], perm: u16) -> io::Result<()> {
    rustix::fs::mkdirat(dir, name, mode(perm))?;
    super::calls_beneath::set_mode(dir, name, perm)
}

/// Creates a socket.
///
/// # Errors
/// The error of `mknodat(2)`.
pub fn make_socket(dir: &File, name: &[u8], perm: u16) -> io::Result<()> {
    rustix::fs::mknodat(dir, name, FileType::Socket, mode(perm), 0)?;
    super::calls_beneath::set_mode(dir, name, perm)
}

/// Creates a symlink.
///
/// # Errors
/// The error of `symlinkat(2)`.
pub fn make_symlink(dir: &File, name: &[u8], target: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::symlinkat(target, dir, name)?)
}

/// Returns the target of a symlink.
///
/// # Errors
/// The error of `readlinkat(2)`.
pub fn read_link(dir: &File, name: &[u8]) -> io::Result<Vec<u8>> {
    let mut target = Vec::with_capacity(libc::PATH_MAX as usize);
    rustix::fs::readlinkat_raw(dir, name, spare_capacity(&mut target))?;
    Ok(target)
}

/// Creates a hard link.
///
/// # Errors
/// The error of `linkat(2)`.
pub fn link((dir, name): (&File, &[u8]), (to, new_name): (&File, &[u8])) -> io::Result<()> {
    Ok(rustix::fs::linkat(
        dir,
        name,
        to,
        new_name,
        AtFlags::empty(),
    )?)
}

/// Renames a file. `flags` are those of `renameat2(2)`.
///
/// # Errors
/// The error of `renameat2(2)`.
pub fn rename(
    (dir, name): (&File, &[u8]),
    (to, new_name): (&File, &[u8]),
    flags: u32,
) -> io::Result<()> {
    let flags = RenameFlags::from_bits_retain(flags);
    Ok(rustix::fs::renameat_with(dir, name, to, new_name, flags)?)
}

/// Sets owner and group. `None` leaves one as it is.
///
/// # Errors
/// The error of `fchownat(2)`.
pub fn set_owner(dir: &File, name: &[u8], uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    Ok(rustix::fs::chownat(
        dir,
        name,
        uid,
        gid,
        AtFlags::SYMLINK_NOFOLLOW,
    )?)
}

/// Sets the times of the last access and the last change.
///
/// # Errors
/// The error of `utimensat(2)`.
pub fn set_times(dir: &File, name: &[u8], accessed: NewTime, modified: NewTime) -> io::Result<()> {
    let times = Timestamps {
        last_access: timespec(accessed),
        last_modification: timespec(modified),
    };
    Ok(rustix::fs::utimensat(
        dir,
        name,
        &times,
        AtFlags::SYMLINK_NOFOLLOW,
    )?)
}

/// Flushes the directory's names to disk.
///
/// `dir` may have been opened for calls on names only.
///
/// # Errors
/// The error of `openat(2)` or `fsync(2)`.
pub fn sync_dir(dir: &File) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = rustix::fs::openat(dir, c".", flags, Mode::empty())?;
    Ok(rustix::fs::fsync(readable)?)
}

/// Opens the directory again to list it.
///
/// # Errors
/// The error of `openat(2)`.
pub fn readable(dir: &File) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, c".", flags, Mode::empty())?.into())
}

/// Returns an extended attribute.
///
/// # Errors
/// `ENODATA` if there is none, and the other errors of `fgetxattr(2)`.
pub fn xattr(file: &File, name: &[u8]) -> io::Result<Vec<u8>> {
    let mut value = Vec::with_capacity(XATTR_SIZE_MAX);
    rustix::fs::fgetxattr(file, name, spare_capacity(&mut value))?;
    Ok(value)
}

/// Sets an extended attribute. `flags` are those of `setxattr(2)`.
///
/// # Errors
/// The error of `fsetxattr(2)`.
pub fn set_xattr(file: &File, name: &[u8], value: &[u8], flags: u32) -> io::Result<()> {
    let flags = XattrFlags::from_bits_retain(flags);
    Ok(rustix::fs::fsetxattr(file, name, value, flags)?)
}

/// Lists the names of extended attributes, each followed by a zero byte.
///
/// # Errors
/// The error of `flistxattr(2)`.
pub fn xattrs(file: &File) -> io::Result<Vec<u8>> {
    let mut names = Vec::with_capacity(XATTR_SIZE_MAX);
    rustix::fs::flistxattr(file, spare_capacity(&mut names))?;
    Ok(names)
}

/// Removes an extended attribute.
///
/// # Errors
/// The error of `fremovexattr(2)`.
pub fn remove_xattr(file: &File, name: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::fremovexattr(file, name)?)
}

/// Changes the allocation of a file. `flags` are those of `fallocate(2)`.
///
/// # Errors
/// The error of `fallocate(2)`.
pub fn allocate(file: &File, offset: u64, len: u64, flags: u32) -> io::Result<()> {
    let flags = rustix::fs::FallocateFlags::from_bits_retain(flags);
    Ok(rustix::fs::fallocate(file, flags, offset, len)?)
}

fn mode(perm: u16) -> Mode {
    Mode::from_raw_mode(u32::from(perm))
}

fn timespec(time: NewTime) -> Timespec {
    match time {
        NewTime::Same => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        NewTime::Now => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        },
        NewTime::At(time) => Timespec {
            tv_sec: time.secs,
            tv_nsec: time.nanos.into(),
        },
    }
}
