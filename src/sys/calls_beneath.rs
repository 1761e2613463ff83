//! Calls that change something below a directory, by name, and never anywhere else: no symlink is
//! followed and no mount is crossed, as in [`beneath`](super::beneath). A call for a name goes to
//! the directory that holds it, which is open.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

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

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn c_name(name: &[u8]) -> io::Result<CString> {
    Ok(CString::new(name)?)
}

/// The number of the calling thread.
pub fn thread_number() -> u32 {
    // SAFETY: the call takes nothing and touches no memory.
    let number = unsafe { libc::gettid() };
    number.unsigned_abs()
}

/// The device of an open file, without asking whoever serves the file system.
pub fn device(file: &File) -> io::Result<(u32, u32)> {
    let mut found = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: the path is NUL-terminated, and the kernel fills the structure, which lives on the
    // stack.
    check(unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            flags,
            libc::STATX_TYPE,
            found.as_mut_ptr(),
        )
    })?;
    // SAFETY: all zeroes is a valid structure, and the call has filled it.
    let found = unsafe { found.assume_init() };
    Ok((found.stx_dev_major, found.stx_dev_minor))
}

/// Opens a new file to write to it.
pub fn create(dir: &File, name: &[u8]) -> io::Result<File> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
    open_with(dir, &c_name(name)?, flags | COMMON, 0o600)
}

/// Opens a file to write to it. Never waits for another program, as opening a fifo does.
pub fn open_to_write(dir: &File, name: &[u8]) -> io::Result<File> {
    open_with(dir, &c_name(name)?, libc::O_WRONLY | COMMON, 0)
}

const COMMON: libc::c_int = libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;

/// Makes a name.
pub fn make(dir: &File, name: &[u8], what: NewName) -> io::Result<()> {
    let (dir, name) = (dir.as_raw_fd(), c_name(name)?);
    // SAFETY: each string ends in NUL and lives through the call, and the descriptor is open.
    check(unsafe {
        match what {
            NewName::Directory => libc::mkdirat(dir, name.as_ptr(), 0o700),
            NewName::Symlink => libc::symlinkat(c".".as_ptr(), dir, name.as_ptr()),
            NewName::Node(kind) => libc::mknodat(dir, name.as_ptr(), kind | 0o600, 0),
        }
    })
}

/// Removes a name.
pub fn remove(dir: &File, name: &[u8], is_dir: bool) -> io::Result<()> {
    let name = c_name(name)?;
    let flags = if is_dir { libc::AT_REMOVEDIR } else { 0 };
    // SAFETY: the string ends in NUL and lives through the call, and the descriptor is open.
    check(unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), flags) })
}

/// Moves a name, over another where one is there.
pub fn rename((from, name): (&File, &[u8]), (to, new_name): (&File, &[u8])) -> io::Result<()> {
    let (name, new_name) = (c_name(name)?, c_name(new_name)?);
    // SAFETY: both strings end in NUL and live through the call, and the descriptors are open.
    check(unsafe {
        libc::renameat(
            from.as_raw_fd(),
            name.as_ptr(),
            to.as_raw_fd(),
            new_name.as_ptr(),
        )
    })
}

/// Sets the time of the last modification alone, to any time.
pub fn touch(dir: &File, name: &[u8]) -> io::Result<()> {
    let file = look(dir, name)?;
    let left_alone = libc::timespec {
        tv_sec: 0,
        tv_nsec: libc::UTIME_OMIT,
    };
    let now = libc::timespec {
        tv_sec: 0,
        tv_nsec: libc::UTIME_NOW,
    };
    let times = [left_alone, now];
    // SAFETY: the string ends in NUL, two structures are passed, and the descriptor is open.
    check(unsafe {
        libc::utimensat(
            file.as_raw_fd(),
            c"".as_ptr(),
            times.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    })
}

/// Sets permission bits.
pub fn set_mode(dir: &File, name: &[u8], perm: u16) -> io::Result<()> {
    let file = look(dir, name)?;
    // The thread may have a table of descriptors to itself.
    let path = CString::new(format!("/proc/thread-self/fd/{}", file.as_raw_fd()))?;
    // SAFETY: the string ends in NUL and lives through the call.
    check(unsafe { libc::chmod(path.as_ptr(), libc::mode_t::from(perm)) })
}

fn look(dir: &File, name: &[u8]) -> io::Result<File> {
    let name: &CStr = &c_name(name)?;
    open_with(
        dir,
        name,
        libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC,
        0,
    )
}
