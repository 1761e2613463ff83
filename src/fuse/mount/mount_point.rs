//! The mount point: the directory under a mount, protected from writes.
//!
//! ```text
//! as root:    directory (not writable) ─► read-only empty mount, the guard ─► the fork
//! as a user:  directory (not writable) ─► the fork
//! ```
//!
//! Root ignores modes. So root mounts a guard, which stays until the fork is unmounted on purpose:
//! when a dead mount is detached, the read-only guard appears.
//!
//! `fusermount3` mounts only over a directory that its user may write to. So the daemon of another
//! user makes the directory writable for the few milliseconds that this takes.
//! [`MountPoint::path`], which leads under all mounts, gives access to files that a program wrote
//! there even so.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use log::{debug, warn};

use crate::device;
use crate::error::MountError;
use crate::place::{self, FS_TYPE, MountedAt};
use tine_sys::mount::{self as sys, UnmountKind};
use tine_sys::process::effective_uid;

/// Source of a guard in `/proc/self/mounts`.
const GUARD_SOURCE: &str = "tine-guard";
/// File system type of a guard.
const GUARD_TYPE: &str = "tmpfs";

/// Write bits of a mode, for all users.
const WRITE_BITS: u32 = 0o222;

/// Directory under a mount, opened whatever is mounted over it.
#[derive(Debug)]
pub struct MountPoint {
    /// Absolute path without symlinks.
    dir: PathBuf,
    /// Open directory, under all mounts.
    handle: File,
}

impl MountPoint {
    /// Opens the directory at `dir`, creating it if it is missing.
    ///
    /// # Errors
    /// [`MountError::AlreadyMounted`] if anything but a guard is mounted there.
    /// [`MountError::NotEmpty`] if it is not a directory.
    pub(super) fn open(dir: &Path) -> Result<MountPoint, MountError> {
        // Checked first: the mount there may be dead, and accesses to it may hang.
        if let Ok(unfollowed) = place::resolve(dir) {
            refuse_mounted(&unfollowed)?;
        }
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(dir);
        made.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                MountError::NotEmpty(dir.to_owned())
            }
            _ => MountError::io("make", dir)(error),
        })?;
        let dir = dir.canonicalize().map_err(MountError::io("find", dir))?;
        refuse_mounted(&dir)?;
        let handle = open_under_mounts(&dir).map_err(MountError::io("open", &dir))?;
        Ok(MountPoint { dir, handle })
    }

    /// Returns the path of the directory: absolute, without symlinks.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns a path to the directory that leads under all mounts.
    ///
    /// Valid in this process while `self` lives.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.handle.as_raw_fd()))
    }

    /// Returns whether the directory under the mounts is empty.
    ///
    /// # Errors
    /// The error of reading the directory.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(fs::read_dir(self.path())?.next().is_none())
    }

    /// Makes the directory unwritable for all users except root.
    pub fn make_unwritable(&self) {
        self.change_mode(|mode| mode & !WRITE_BITS);
    }

    /// Makes the directory writable for its owner.
    ///
    /// For a moment only, while nothing is mounted over it.
    pub fn make_writable(&self) {
        self.change_mode(|mode| mode | 0o200);
    }

    /// Changes the mode, and logs a failure only.
    ///
    /// The directory may belong to another user or be on a read-only disk.
    fn change_mode(&self, change: impl FnOnce(u32) -> u32) {
        let changed = self.handle.metadata().and_then(|meta| {
            let mode = meta.permissions().mode() & 0o7777;
            match change(mode) {
                same if same == mode => Ok(()),
                changed => self.handle.set_permissions(Permissions::from_mode(changed)),
            }
        });
        if let Err(error) = changed {
            debug!("the mode of {} stays: {error}", self.dir.display());
        }
    }

    /// Mounts the guard, as root, unless it is there.
    ///
    /// If that fails, only the directory's mode protects it.
    pub(super) fn guard(&self) {
        if effective_uid() != 0 || guard_at(&self.dir).is_some() {
            return;
        }
        if let Err(error) = sys::mount_read_only(
            GUARD_SOURCE,
            &self.dir,
            GUARD_TYPE,
            "mode=0555,size=4k,nr_inodes=2",
        ) {
            warn!(
                "{} has no guard while nothing is mounted there: {error}",
                self.dir.display()
            );
        }
    }
}

/// Fails if anything other than a guard is mounted at `dir`.
fn refuse_mounted(dir: &Path) -> Result<(), MountError> {
    let mounts = place::mounts_at(dir).map_err(MountError::io("read", "/proc/self/mountinfo"))?;
    if mounts.iter().all(is_guard) {
        Ok(())
    } else {
        Err(MountError::AlreadyMounted(dir.to_owned()))
    }
}

fn is_guard(mount: &MountedAt) -> bool {
    mount.fs_type == GUARD_TYPE && mount.source == GUARD_SOURCE
}

/// Returns the guard at `dir`, if it is the topmost mount.
fn guard_at(dir: &Path) -> Option<MountedAt> {
    place::mounts_at(dir).ok()?.pop().filter(is_guard)
}

/// Opens the directory `dir` under a guard.
///
/// The path goes through a detached copy of the mount that holds the parent directory, which takes
/// root.
fn open_under_mounts(dir: &Path) -> io::Result<File> {
    let open = |path: &Path| {
        OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
            .open(path)
    };
    if guard_at(dir).is_none() {
        return open(dir);
    }
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
        return open(dir);
    };
    let copy = match sys::copy_mount(parent) {
        Ok(copy) => copy,
        Err(error) => {
            warn!(
                "what may be under the guard at {} is not seen: {error}",
                dir.display()
            );
            return open(dir);
        }
    };
    open(&PathBuf::from(format!("/proc/self/fd/{}", copy.as_raw_fd())).join(name))
}

/// Removes the guard at `dir`, if there is one.
///
/// For a fork that will not be mounted there again. The directory stays unwritable.
pub fn remove_guard(dir: &Path) {
    let Ok(dir) = place::resolve(dir) else {
        return;
    };
    while guard_at(&dir).is_some() {
        if let Err(error) = device::unmount(&dir, UnmountKind::Detach) {
            warn!("the guard stays at {}: {error}", dir.display());
            return;
        }
    }
}

/// Lists the files under the mount point `dir` of an unmounted fork.
///
/// The names are sorted; those of directories end in a slash. A `.git` file is left out. Empty if
/// anything but a guard is mounted at `dir`.
///
/// # Errors
/// The error of reading the directory, if it exists.
pub fn files_under_mount_point(dir: &Path) -> io::Result<Vec<Vec<u8>>> {
    let Ok(dir) = place::resolve(dir) else {
        return Ok(Vec::new());
    };
    // The mount there may be dead, and accesses to it may hang.
    if !place::mounts_at(&dir)?.iter().all(is_guard) {
        return Ok(Vec::new());
    }
    let handle = match open_under_mounts(&dir) {
        Ok(handle) => handle,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let mount_point = MountPoint { dir, handle };
    let mut names = Vec::new();
    for entry in fs::read_dir(mount_point.path())? {
        let entry = entry?;
        let is_dir = entry.file_type()?.is_dir();
        let mut name = entry.file_name().into_vec();
        if name == b".git" && !is_dir {
            // The fork has such a file, too, with the same meaning.
            continue;
        }
        if is_dir {
            name.push(b'/');
        }
        names.push(name);
    }
    names.sort();
    Ok(names)
}

/// Lists directories below `root` that have a guard but no fork.
pub fn guards_below(root: &Path) -> Vec<PathBuf> {
    let mounts = place::all_mounts().unwrap_or_default();
    let has_fork = |dir: &Path| {
        let mut at = mounts.iter().filter(|mount| mount.dir == dir);
        at.any(|mount| mount.fs_type == FS_TYPE)
    };
    let guards = mounts.iter().filter(|mount| is_guard(mount));
    guards
        .map(|mount| mount.dir.clone())
        .filter(|dir| dir.starts_with(root) && !has_fork(dir))
        .collect()
}
