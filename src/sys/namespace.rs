//! Private mount namespaces, whose mounts other processes do not see.
//!
//! A process that may not create a mount namespace creates a user namespace with it. The user and
//! the group stay the same in there: files keep their owners. The rights that the user namespace
//! gives end when the process runs a program, unless the user is root.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{Pid, WaitOptions};
use rustix::thread::UnshareFlags;

use super::process::{effective_gid, effective_uid};

/// Moves this process into a new, private mount namespace.
///
/// It starts as a copy of the old one. Mounts made inside stay inside. Mounts made outside later
/// appear inside where the system has shared mounts.
///
/// # Errors
/// `EPERM` without the rights to do so; [`try_private_mounts`] then fails, too. `EINVAL` for
/// the process of an ordinary user that has more than one thread.
pub fn enter_private_mounts() -> io::Result<()> {
    Ok(Plan::new()?.carry_out()?)
}

/// Checks that [`enter_private_mounts`] is permitted.
///
/// A child process tries it; this process stays as it is. Blocks until the child has ended.
///
/// # Errors
/// The error of the attempt; `EPERM` if the child was killed.
pub fn try_private_mounts() -> io::Result<()> {
    let plan = Plan::new()?;
    // SAFETY: the child makes system calls only, with data that was prepared before, and exits
    // without returning.
    let child = unsafe { libc::fork() };
    if child == -1 {
        return Err(io::Error::last_os_error());
    }
    let Some(child) = Pid::from_raw(child) else {
        let code = plan.carry_out().map_or_else(Errno::raw_os_error, |()| 0);
        // SAFETY: _exit(2) takes a number and does not return.
        unsafe { libc::_exit(code) };
    };
    let waited = retry_on_intr(|| rustix::process::waitpid(Some(child), WaitOptions::empty()))?;
    match waited.and_then(|(_, status)| status.exit_status()) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code)),
        // A seccomp rule may kill the child instead of refusing the call.
        None => Err(Errno::PERM.into()),
    }
}

/// Prepared input for entering the namespace.
///
/// `carry_out` runs in a forked child of a process with threads: it must not allocate or take a
/// lock. rustix is safe there: it uses `CStr` paths as they are, makes plain system calls, and its
/// errors are numbers.
struct Plan {
    /// Line for `/proc/self/uid_map` that maps the user to itself.
    uid_map: Vec<u8>,
    /// Line for `/proc/self/gid_map` that maps the group to itself.
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

    /// Enters the namespace and stops mounts from propagating out of it.
    fn carry_out(&self) -> Result<(), Errno> {
        // SAFETY: neither flag gives the thread another descriptor table, on which other code
        // relies.
        let unshare = |flags| unsafe { rustix::thread::unshare_unsafe(flags) };
        match unshare(UnshareFlags::NEWNS) {
            Err(Errno::PERM) => {
                unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
                // Without this the kernel lets only root write a `gid_map`.
                write(c"/proc/self/setgroups", b"deny\n")?;
                write(c"/proc/self/uid_map", &self.uid_map)?;
                write(c"/proc/self/gid_map", &self.gid_map)?;
            }
            result => result?,
        }
        let flags = MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM;
        rustix::mount::mount_change(c"/", flags)
    }
}

/// Writes `bytes` to the file at `path` with one system call.
///
/// The kernel requires that of the map files.
fn write(path: &CStr, bytes: &[u8]) -> Result<(), Errno> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, bytes).map(drop)
}

/// Bind-mounts `from` at `to`, with all mounts below `from`.
///
/// # Errors
/// The error of `mount(2)`, for instance `ENOTDIR` if only one of them is a directory.
pub fn bind(from: &Path, to: &Path) -> io::Result<()> {
    Ok(rustix::mount::mount_bind_recursive(from, to)?)
}

/// Mounts an empty tmpfs at `dir`, owned by the caller.
///
/// # Errors
/// The error of `mount(2)`.
pub fn mount_memory(dir: &Path) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(rustix::mount::mount(
        c"tine",
        dir,
        c"tmpfs",
        flags,
        c"mode=0755",
    )?)
}

/// Returns the kernel's number for the mount namespace of a process.
///
/// `proc_dir` is the process's directory in `/proc`. `None` if it cannot be read.
pub fn mount_namespace_of(proc_dir: &Path) -> Option<u64> {
    let link = fs::read_link(proc_dir.join("ns/mnt")).ok()?;
    let number = link.to_str()?.strip_prefix("mnt:[")?.strip_suffix(']')?;
    number.parse().ok()
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
