//! Calls that change something below a directory, by name, and never anywhere else: no symlink is
//! followed and no mount is crossed, as in [`beneath`](super::beneath). A call for a name goes to
//! the directory that holds it, which is open.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
};

use super::beneath::open_with;

/// What a new name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewName {
    Directory,
    /// To some target.
    Symlink,
    /// Any other node, by its type (`S_IFMT`).
    Node(u32),
}

/// The number of the calling thread.
pub fn thread_number() -> u32 {
    rustix::thread::gettid().as_raw_pid().unsigned_abs()
}

/// The device of an open file, without asking whoever serves the file system.
pub fn device(file: &File) -> io::Result<(u32, u32)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(file, c"", flags, StatxFlags::TYPE)?;
    Ok((found.stx_dev_major, found.stx_dev_minor))
}

/// Opens a new file to write to it.
pub fn create(dir: &File, name: &[u8]) -> io::Result<File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    open_with(dir, name, flags | COMMON, Mode::from_raw_mode(0o600))
}

/// Opens a file to write to it. Never waits for another program, as opening a fifo does.
pub fn open_to_write(dir: &File, name: &[u8]) -> io::Result<File> {
    open_with(dir, name, OFlags::WRONLY | COMMON, Mode::empty())
}

const COMMON: OFlags = OFlags::CLOEXEC
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// Makes a name.
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

/// Removes a name.
pub fn remove(dir: &File, name: &[u8], is_dir: bool) -> io::Result<()> {
    let flags = if is_dir {
        AtFlags::REMOVEDIR
    } else {
        AtFlags::empty()
    };
    Ok(rustix::fs::unlinkat(dir, name, flags)?)
}

/// Moves a name, over another where one is there.
pub fn rename((from, name): (&File, &[u8]), (to, new_name): (&File, &[u8])) -> io::Result<()> {
    Ok(rustix::fs::renameat(from, name, to, new_name)?)
}

/// Sets the time of the last modification alone, to any time.
pub fn touch(dir: &File, name: &[u8]) -> io::Result<()> {
    let file = look(dir, name)?;
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

/// Sets permission bits.
pub fn set_mode(dir: &File, name: &[u8], perm: u16) -> io::Result<()> {
    let file = look(dir, name)?;
    // The thread may have a table of descriptors to itself.
    let path = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::chmod(
        path,
        Mode::from_raw_mode(u32::from(perm)),
    )?)
}

fn look(dir: &File, name: &[u8]) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open_with(dir, name, flags, Mode::empty())
}
