//! Changes to names in one open directory.
//!
//! As for reading in the sibling module, the calls follow no symlink and cross no mount. The caller
//! opens the directory that holds the name.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
};

use super::beneath::open_with;

/// Kind of file that [`make`] creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewName {
    /// Directory with mode 0700.
    Directory,
    /// Symlink to `.`.
    Symlink,
    /// Any other file with mode 0600, by its type (`S_IFMT`).
    Node(u32),
}

/// Returns the kernel's ID of the calling thread.
pub fn thread_number() -> u32 {
    rustix::thread::gettid().as_raw_pid().unsigned_abs()
}

/// Returns the major and minor device number of an open file.
///
/// Does not ask the server of a network or FUSE file system.
///
/// # Errors
/// The error of `statx(2)`.
pub fn device(file: &File) -> io::Result<(u32, u32)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(file, c"", flags, StatxFlags::TYPE)?;
    Ok((found.stx_dev_major, found.stx_dev_minor))
}

/// Creates a file and opens it for writing.
///
/// # Errors
/// `EEXIST` if the name exists, and the other errors of `openat2(2)`.
pub fn create(dir: &File, name: &[u8]) -> io::Result<File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    open_with(dir, name, flags | COMMON, Mode::from_raw_mode(0o600))
}

/// Opens a file for writing. Never blocks on a fifo.
///
/// # Errors
/// `ENXIO` for a fifo without a reader, and the other errors of `openat2(2)`.
pub fn open_to_write(dir: &File, name: &[u8]) -> io::Result<File> {
    open_with(dir, name, OFlags::WRONLY | COMMON, Mode::empty())
}

/// Flags of all calls that open a file for writing.
const COMMON: OFlags = OFlags::CLOEXEC
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// Creates the file `name`.
///
/// # Errors
/// `EEXIST` if the name exists, and the other errors of `mkdirat(2)`, `symlinkat(2)` and
/// `mknodat(2)`.
pub fn make(dir: &File, name: &[u8], what: NewName) -> io::Result<()> {
    match what {
        NewName::Directory => rustix::fs::mkdirat(dir, name, Mode::RWXU)?,
        NewName::Symlink => rustix::fs::symlinkat(c".", dir, name)?,
        NewName::Node(kind) => {
            let kind = FileType::from_raw_mode(kind);
            rustix::fs::mknodat(dir, name, kind, Mode::from_raw_mode(0o600), 0)?;
        }
    }
    Ok(())
}

/// Removes the name of a directory or of another file.
///
/// # Errors
/// The error of `unlinkat(2)`, for instance `ENOTEMPTY`.
pub fn remove(dir: &File, name: &[u8], is_dir: bool) -> io::Result<()> {
    let flags = if is_dir {
        AtFlags::REMOVEDIR
    } else {
        AtFlags::empty()
    };
    Ok(rustix::fs::unlinkat(dir, name, flags)?)
}

/// Renames a file, replacing an existing file of the new name.
///
/// # Errors
/// The error of `renameat(2)`.
pub fn rename((from, name): (&File, &[u8]), (to, new_name): (&File, &[u8])) -> io::Result<()> {
    Ok(rustix::fs::renameat(from, name, to, new_name)?)
}

/// Sets the time of the last modification to now.
///
/// # Errors
/// The error of opening the file or of `utimensat(2)`.
pub fn touch(dir: &File, name: &[u8]) -> io::Result<()> {
    let file = open_path(dir, name)?;
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let times = Timestamps {
        last_access: special(UTIME_OMIT),
        last_modification: special(UTIME_NOW),
    };
    Ok(rustix::fs::utimensat(
        file,
        c"",
        &times,
        AtFlags::EMPTY_PATH,
    )?)
}

/// Sets the permission bits.
///
/// # Errors
/// The error of opening the file or of `chmod(2)`.
pub fn set_mode(dir: &File, name: &[u8], perm: u16) -> io::Result<()> {
    let file = open_path(dir, name)?;
    // Not `/proc/self`: the thread may have a descriptor table of its own, as after
    // `leave_descriptors`.
    let path = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::chmod(
        path,
        Mode::from_raw_mode(u32::from(perm)),
    )?)
}

/// Opens a file for its attributes only, not following a symlink.
fn open_path(dir: &File, name: &[u8]) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open_with(dir, name, flags, Mode::empty())
}
