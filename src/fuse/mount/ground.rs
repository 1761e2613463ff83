//! The ground of a mount: its directory, to which nobody writes while nothing is mounted over it.
//!
//! ```text
//! as root:    directory (not writable) ─► read-only empty mount, the guard ─► the fork
//! as a user:  directory (not writable) ─► the fork
//! ```
//!
//! Modes mean nothing to root, so root mounts a guard and leaves it there until the fork is
//! unmounted on purpose: a dead mount is detached, and what comes to light is read-only.
//! `fusermount3` mounts only over a directory that its user may write to, so a user's daemon opens
//! it for the few milliseconds that this takes. What was put into it all the same is found through
//! [`MountPoint::path`], which leads under all mounts.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use log::{debug, warn};

use super::MountError;
use crate::device;
use crate::place::{self, FS_TYPE, MountedAt};
use tine_sys::mount::{self as sys, UnmountHow};
use tine_sys::process::effective_uid;

/// What stands as the guard's source in `/proc/self/mounts`.
const GUARD_SOURCE: &str = "tine-guard";
/// The file system of a guard.
const GUARD_TYPE: &str = "tmpfs";

/// The bits of a mode that let somebody write.
const WRITE_BITS: u32 = 0o222;

/// The directory itself, whatever is mounted over it.
#[derive(Debug)]
pub struct MountPoint {
    /// Absolute, without symlinks.
    dir: PathBuf,
    handle: File,
}

impl MountPoint {
    /// Opens the directory at `dir`, which is made if it is missing. What is mounted there must be
    /// live or a guard.
    pub(super) fn open(dir: &Path) -> Result<MountPoint, MountError> {
        // Asked before anything else: what is mounted there may be dead, and must not be looked
        // into.
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

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A path to the directory that leads under what is mounted over it. Valid while this lives, in
    /// this process.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.handle.as_raw_fd()))
    }

    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(fs::read_dir(self.path())?.next().is_none())
    }

    /// Lets nobody write into the directory.
    pub fn shut(&self) {
        self.change_mode(|mode| mode & !WRITE_BITS);
    }

    /// Lets its owner write into it, for a moment only while nothing is mounted over it.
    pub fn unshut(&self) {
        self.change_mode(|mode| mode | 0o200);
    }

    /// It is no obstacle where the mode cannot be changed: the directory may be another user's, or
    /// on a read-only disk.
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

    /// Mounts the guard, as root, unless it is there. Where there can be none the directory's mode
    /// has to do.
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

/// Refuses a directory where something other than a guard is mounted.
fn refuse_mounted(dir: &Path) -> Result<(), MountError> {
    let mounts = place::mounts_at(dir).map_err(MountError::io("read", "/proc/self/mountinfo"))?;
    match mounts.iter().all(is_guard) {
        true => Ok(()),
        false => Err(MountError::AlreadyMounted(dir.to_owned())),
    }
}

fn is_guard(mount: &MountedAt) -> bool {
    mount.fs_type == GUARD_TYPE && mount.source == GUARD_SOURCE
}

/// The guard that one meets at `dir`.
fn guard_at(dir: &Path) -> Option<MountedAt> {
    place::mounts_at(dir).ok()?.pop().filter(is_guard)
}

/// Opens a directory under what is mounted at it: in a copy of the mount that its parent is on,
/// which takes root.
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

/// Takes the guard at `dir` away, if there is one. For a fork that is no longer meant to be mounted
/// there; the directory stays shut.
pub fn remove_guard(dir: &Path) {
    let Ok(dir) = place::resolve(dir) else {
        return;
    };
    while guard_at(&dir).is_some() {
        if let Err(error) = device::unmount(&dir, UnmountHow::Detach) {
            warn!("the guard stays at {}: {error}", dir.display());
            return;
        }
    }
}

/// The names of what lies in the directory `dir`, where a fork would be mounted and nothing but a
/// guard is; sorted, those of directories with a slash. None where something else is mounted there.
///
/// # Errors
/// Where the directory is there and cannot be read.
pub fn lying_at(dir: &Path) -> io::Result<Vec<Vec<u8>>> {
    let Ok(dir) = place::resolve(dir) else {
        return Ok(Vec::new());
    };
    // What is mounted there may be dead, and must not be looked into.
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
    let ground = MountPoint { dir, handle };
    let mut names = Vec::new();
    for entry in fs::read_dir(ground.path())? {
        let entry = entry?;
        let is_dir = entry.file_type()?.is_dir();
        let mut name = entry.file_name().into_vec();
        if name == b".git" && !is_dir {
            // The fork has one, and a file says nothing that it does not.
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

/// The directories below `root` at which a guard is and no fork.
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
