//! A mount namespace of this process's own, in which mounts can be made that nobody else sees.
//!
//! Who may not make one gets it together with a user namespace, in which the user and the group are
//! who they were: files keep their owners, and the rights that the namespace gives end when a
//! program is run (unless it is root's).

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::process::{effective_gid, effective_uid};

/// Moves this process into a mount namespace of its own, a copy of the one it was in. What is
/// mounted there stays there; what is mounted outside later is seen where the system has mounts
/// shared.
///
/// An ordinary user's process must have one thread only (`InvalidInput` otherwise). What it fails
/// with for want of rights, [`try_private_mounts`] fails with, too.
pub fn enter_private_mounts() -> io::Result<()> {
    Plan::new()?
        .carry_out()
        .map_err(io::Error::from_raw_os_error)
}

/// Whether [`enter_private_mounts`] is permitted, found out by a child that does it: this process
/// stays as it is.
pub fn try_private_mounts() -> io::Result<()> {
    let plan = Plan::new()?;
    // SAFETY: the child makes system calls only, with what was prepared before, and ends without
    // returning.
    let child = unsafe { libc::fork() };
    match child {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let code = plan.carry_out().err().unwrap_or(0);
            // SAFETY: _exit(2) takes a number and does not return.
            unsafe { libc::_exit(code) };
        }
        _ => {}
    }
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes one number, which lives on the stack.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } == child {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Ok(()),
        (true, code) => Err(io::Error::from_raw_os_error(code)),
        // A seccomp rule may kill instead of refusing.
        (false, _) => Err(io::Error::from_raw_os_error(libc::EPERM)),
    }
}

/// All that entering needs, prepared, so that carrying it out allocates nothing and may be done by
/// a child of a process with threads. Errors are plain numbers for the same reason.
struct Plan {
    uid_map: Vec<u8>,
    gid_map: Vec<u8>,
}

impl Plan {
    fn new() -> io::Result<Plan> {
        let to_itself = |id: u32| format!("{id} {id} 1\n").into_bytes();
        Ok(Plan {
            uid_map: to_itself(effective_uid()),
            gid_map: to_itself(effective_gid()),
        })
    }

    fn carry_out(&self) -> Result<(), i32> {
        // SAFETY: unshare(2) takes flags and touches no memory of this process.
        let unshare = |flags| check(unsafe { libc::unshare(flags) });
        match unshare(libc::CLONE_NEWNS) {
            Err(libc::EPERM) => {
                unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
                // Without this the kernel lets nobody but root say which groups there are.
                write(c"/proc/self/setgroups", b"deny\n")?;
                write(c"/proc/self/uid_map", &self.uid_map)?;
                write(c"/proc/self/gid_map", &self.gid_map)?;
            }
            result => result?,
        }
        let flags = libc::MS_REC | libc::MS_SLAVE;
        let none = std::ptr::null::<libc::c_char>();
        // SAFETY: the only string is a constant with its NUL; the others may be null where
        // propagation is changed.
        check(unsafe { libc::mount(none, c"/".as_ptr(), none, flags, none.cast()) })
    }
}

fn check(result: libc::c_int) -> Result<(), i32> {
    match result {
        -1 => Err(io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO)),
        _ => Ok(()),
    }
}

/// Writes `bytes` to the file at `path` with one system call, as the kernel wants it of these
/// files.
fn write(path: &std::ffi::CStr, bytes: &[u8]) -> Result<(), i32> {
    // SAFETY: the path is NUL-terminated.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    check(fd)?;
    // SAFETY: the descriptor was just opened, and the buffer has the length that is given.
    let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    let result = check(if written < 0 { -1 } else { 0 });
    // SAFETY: it was opened above and is used no more.
    unsafe { libc::close(fd) };
    result
}

/// Shows at `to` what is at `from`, with all that is mounted beneath. Both are directories, or
/// neither is.
pub fn bind(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (c_string(from)?, c_string(to)?);
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: both paths are NUL-terminated and outlive the call, which reads nothing else for a
    // bind mount.
    let result = unsafe {
        libc::mount(
            from.as_ptr(),
            to.as_ptr(),
            none,
            libc::MS_BIND | libc::MS_REC,
            none.cast(),
        )
    };
    check(result).map_err(io::Error::from_raw_os_error)
}

/// Mounts an empty file system at `dir`, kept in memory, which the caller owns.
pub fn mount_memory(dir: &Path) -> io::Result<()> {
    let dir = c_string(dir)?;
    // SAFETY: all strings are NUL-terminated and outlive the call.
    let result = unsafe {
        libc::mount(
            c"tine".as_ptr(),
            dir.as_ptr(),
            c"tmpfs".as_ptr(),
            libc::MS_NOSUID | libc::MS_NODEV,
            c"mode=0755".as_ptr().cast(),
        )
    };
    check(result).map_err(io::Error::from_raw_os_error)
}

/// The mount namespace of a process, by the number that the kernel has for it.
pub fn mount_namespace_of(proc_dir: &Path) -> Option<u64> {
    let link = fs::read_link(proc_dir.join("ns/mnt")).ok()?;
    let number = link.to_str()?.strip_prefix("mnt:[")?.strip_suffix(']')?;
    number.parse().ok()
}

fn c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trying_changes_nothing() {
        let namespace =
            || mount_namespace_of(Path::new("/proc/self")).expect("every process has one");
        let before = namespace();
        // Whether it is permitted depends on the machine.
        let _ = try_private_mounts();
        assert_eq!(namespace(), before);
    }

    #[test]
    fn what_is_not_there_is_not_bound() {
        let error = bind(Path::new("/nonexistent/a"), Path::new("/nonexistent/b")).unwrap_err();
        let expected = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
        assert!(expected.contains(&error.kind()), "{error}");
    }
}
