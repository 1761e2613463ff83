//! A mount namespace of this process's own, in which mounts can be made that nobody else sees.
//!
//! Who may not make one gets it together with a user namespace, in which the user and the group are
//! who they were: files keep their owners, and the rights that the namespace gives end when a
//! program is run (unless it is root's).

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

/// Moves this process into a mount namespace of its own, a copy of the one it was in. What is
/// mounted there stays there; what is mounted outside later is seen where the system has mounts
/// shared.
///
/// An ordinary user's process must have one thread only (`InvalidInput` otherwise). What it fails
/// with for want of rights, [`try_private_mounts`] fails with, too.
pub fn enter_private_mounts() -> io::Result<()> {
    Ok(Plan::new()?.carry_out()?)
}

/// Whether [`enter_private_mounts`] is permitted, found out by a child that does it: this process
/// stays as it is.
pub fn try_private_mounts() -> io::Result<()> {
    let plan = Plan::new()?;
    // SAFETY: the child makes system calls only, with what was prepared before, and ends without
    // returning.
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
        // A seccomp rule may kill instead of refusing.
        None => Err(Errno::PERM.into()),
    }
}

/// All that entering needs, prepared, so that carrying it out allocates nothing and may be done by
/// a child of a process with threads. Errors are plain numbers for the same reason. rustix takes
/// `CStr` paths as they are and makes bare system calls, which are safe there, too.
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

    fn carry_out(&self) -> Result<(), Errno> {
        // SAFETY: no flag leaves the table of descriptors, the only one that other code relies on.
        let unshare = |flags| unsafe { rustix::thread::unshare_unsafe(flags) };
        match unshare(UnshareFlags::NEWNS) {
            Err(Errno::PERM) => {
                unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
                // Without this the kernel lets nobody but root say which groups there are.
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

/// Writes `bytes` to the file at `path` with one system call, as the kernel wants it of these
/// files.
fn write(path: &CStr, bytes: &[u8]) -> Result<(), Errno> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, bytes).map(drop)
}

/// Shows at `to` what is at `from`, with all that is mounted beneath. Both are directories, or
/// neither is.
pub fn bind(from: &Path, to: &Path) -> io::Result<()> {
    Ok(rustix::mount::mount_bind_recursive(from, to)?)
}

/// Mounts an empty file system at `dir`, kept in memory, which the caller owns.
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

/// The mount namespace of a process, by the number that the kernel has for it.
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
